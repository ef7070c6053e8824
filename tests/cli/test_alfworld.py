"""``agentgym alfworld``; the engine itself is tested in tests/envs/alfworld."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.envs.alfworld.tiny_game import write_game

START = {
    "obs": "Welcome.\n\nHere: a box 2, and a box 1.",
    "admissible": ["unlid box 2", "walk to south 1"],
    "won": False,
}
STEP = {
    "action": "unlid box 2",
    "obs": "The box 2 is open: the lamp 1.",
    "admissible": ["grab lamp 1", "walk to south 1"],
    "won": False,
    "score": 0.0,
    "done": False,
}


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    write_game(tmp_path / "data" / "train" / "room" / "trial")

    def write(*steps: dict[str, Any], start: dict[str, Any] = START) -> Path:
        episodes = [{"kind": "random", "seed": 7, "reset": start, "steps": list(steps)}]
        line = {"game": "train/room/trial/game.tw-pddl", "versions": {}, "episodes": episodes}
        path = tmp_path / "transcripts.jsonl"
        path.write_text(json.dumps(line) + "\n", encoding="utf-8")
        return path

    return write


def test_equal_episodes(call: Callable[..., Any], record: Callable[..., Path], tmp_path: Path) -> None:
    called = call("alfworld", "replay", record(STEP), "--data", tmp_path / "data", "--json")
    assert called.code == 0
    report = called.json
    assert report.pop("cpu_s").keys() == {"reset", "step"}
    assert report == {
        "games": 1,
        "episodes": 1,
        "equal": 1,
        "episodes_detail": [
            {
                "game": "train/room/trial/game.tw-pddl",
                "kind": "random",
                "seed": 7,
                "equal": True,
                "first_difference": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("obs", "The box 2 is open."), ("admissible", []), ("won", True), ("score", 1.0), ("done", True)],
)
def test_each_field_counts(
    call: Callable[..., Any], record: Callable[..., Path], tmp_path: Path, field: str, value: Any
) -> None:
    called = call("alfworld", "replay", record({**STEP, field: value}), "--data", tmp_path / "data", "--json")
    assert called.code == 1
    assert called.json["equal"] == 0
    assert called.json["episodes_detail"][0]["first_difference"] == {
        "step": 1,
        "field": field,
        "expected": value,
        "got": STEP[field],
    }


def test_the_first_difference_is_shown(
    call: Callable[..., Any], record: Callable[..., Path], tmp_path: Path
) -> None:
    path = record({**STEP, "obs": "no"}, start={**START, "won": True})
    called = call("alfworld", "replay", path, "--data", tmp_path / "data")
    assert called.code == 1
    assert "random 7, step 0: won differs" in called.out
    assert "0 of 1 episodes of 1 games are equal" in called.out


def test_refusals(call: Callable[..., Any], record: Callable[..., Path], tmp_path: Path) -> None:
    assert "there is no game" in call("alfworld", "replay", record(), "--data", tmp_path).complaint
    assert "an answer has no 'won'" in call("alfworld", "replay", record({"action": "a", "obs": "b", "admissible": []}),
                                           "--data", tmp_path / "data").complaint  # fmt: skip
    engine = call("alfworld", "replay", record(), "--data", tmp_path / "data", "--engine", "other")
    assert "unknown engine 'other'" in engine.complaint
    (tmp_path / "transcripts.jsonl").write_text('{"game": "x"}\n', encoding="utf-8")
    assert "line 1: expected a game" in call("alfworld", "replay", tmp_path / "transcripts.jsonl",
                                             "--data", tmp_path).complaint  # fmt: skip
    assert "unknown verb" in call("alfworld", "reply").complaint
    assert "usage: agentgym alfworld" in call("alfworld").out
