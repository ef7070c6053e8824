"""The lead of HiddenNumber-v0 is trained like any other policy, from its seat."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym.rollout import collect

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from baselines.tiny import make_model, texts_of  # noqa: E402

LEAD = "benchmarks.team:HiddenNumberLead-v0"


@pytest.fixture(scope="module")
def lead_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows the words of the game, and nothing of how it is played."""
    texts = texts_of(collect(LEAD, "random", episodes=8))
    return make_model(tmp_path_factory.mktemp("lead"), texts, hidden=32, context=1024)


def test_one_update_of_grpo(train, lead_model, tmp_path):
    update, evaluation = train(
        "grpo", "--env", LEAD, "--model", lead_model, "--out", tmp_path, "--steps", 1, "--groups", 2,
        "--group-size", 4, "--max-new-tokens", 8, "--lr", 1e-3, "--eval-episodes", 4,
    )  # fmt: skip
    assert update["rollout/episodes"] == 8
    assert update["rollout/broken"] == 0
    assert update["rollout/segments"] == 1  # what the scouts wrote is no segment of the lead's
    assert 0 < update["rollout/tokens"] <= 8 * update["rollout/turns"]
    assert evaluation["eval/episodes"] == 4
