"""``agentgym web judge`` as it is used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from agentgym.cli import main
from agentgym.verifiers.browser.launch import NAMES

needs_browser = pytest.mark.skipif(
    not any(map(shutil.which, NAMES)), reason="no browser: apt-get install chromium-headless-shell"
)
TASK: dict[str, Any] = {
    "id": "greet",
    "prompt": "A page that greets.",
    "items": [
        {"id": "F1", "category": "functionality", "weight": 2, "text": "greets by name"},
        {"id": "C1", "category": "content", "text": "has a heading"},
    ],
    "scenarios": [
        {
            "name": "main",
            "steps": [
                {"op": "goto"},
                {"op": "fill", "target": {"css": "input"}, "value": "{{t1}}"},
                {
                    "op": "assert",
                    "item": "F1",
                    "kind": "text",
                    "target": {"css": "p"},
                    "equals": "Hello {{t1}}",
                },
                {"op": "assert", "item": "C1", "kind": "count", "target": {"css": "h1"}, "min": 1},
            ],
        }
    ],
}
PAGE = "<h1>Hi</h1><input oninput=\"document.querySelector('p').textContent = 'Hello ' + value\"><p></p>"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "task.json").write_text(json.dumps(TASK))
    (tmp_path / "page.html").write_text(PAGE)
    return tmp_path


@pytest.mark.slow
@needs_browser
def test_a_verdict_is_one_json_object_and_exit_code_0(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["web", "judge", "--task", str(files / "task.json"), "--json"]
    assert main([*command, str(files / "page.html"), "--trace", str(files / "trace.jsonl")]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["task"], verdict["score"], verdict["raw"]) == ("greet", 1.0, 1.0)
    assert verdict["items"] == {"F1": True, "C1": True}
    assert verdict["flags"] == {
        "hung": 0,
        "deadline": False,
        "popups": 0,
        "dialogs": 0,
        "blocked": [],
        "errors": [],
    }
    assert verdict["bytes"] == len(PAGE)
    trace = [json.loads(line) for line in (files / "trace.jsonl").read_text().splitlines()]
    assert [row["op"] for row in trace] == ["goto", "fill", "assert", "assert"]
    (files / "page.html").write_text("")
    assert main([*command, str(files / "page.html"), "--seed", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["score"] == 0.0


@pytest.mark.slow
@needs_browser
def test_the_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "page.html").write_text("<h1>Hi</h1>")
    assert main(["web", "judge", "--task", str(files / "task.json"), str(files / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "greets by name" in out
    assert "score 0 (raw 0.333, function 0%)" in out
    assert "nothing matches input" in out
    (files / "page.html").write_text("<script>for (;;);</script>")
    assert main(["web", "judge", "--task", str(files / "task.json"), str(files / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "score 0 (raw 0, function 0%)" in out
    assert "hung: 1" in out


@pytest.mark.parametrize(
    ("change", "page", "words", "says"),
    [
        ({}, "none.html", [], "expected a page"),
        ({"items": []}, "page.html", [], "at least one item"),
        ({"extra": 1}, "page.html", [], "unknown field 'extra'"),
        ({}, "page.html", ["--seed", "x"], "--seed"),
        ({}, "page.html", ["--seed", "-1"], "--seed to be a whole number"),
        ({}, "page.html", ["--nonsense"], "--nonsense"),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    page: str,
    words: list[str],
    says: str,
) -> None:
    (files / "task.json").write_text(json.dumps({**TASK, **change}))
    assert main(["web", "judge", "--task", str(files / "task.json"), str(files / page), *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err


@pytest.mark.slow
def test_no_browser_is_exit_code_3_and_no_verdict(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.verifiers.browser import launch

    monkeypatch.setattr(launch, "find_browser", lambda playwright: "/bin/false")
    assert main(["web", "judge", "--task", str(files / "task.json"), str(files / "page.html"), "--json"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "does not start" in captured.err
