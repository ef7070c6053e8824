"""Models of a few thousand parameters that know the words of one environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.rollout import collect

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from baselines import grpo, ppo  # noqa: E402
from baselines.tiny import make_model, texts_of  # noqa: E402
from tests.baselines.toys import TEXTS  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def word_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows the words of ``baselines.toys:Word-v0``, and nothing of which is right."""
    texts = texts_of(collect("baselines.toys:Word-v0", "gold", episodes=2))
    return make_model(
        tmp_path_factory.mktemp("word"), [*texts, "red green blue grey"], hidden=32, context=128
    )


@pytest.fixture(scope="session")
def even_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows the words of ``tests.baselines.toys:Even-v0``."""
    return make_model(tmp_path_factory.mktemp("even"), TEXTS, hidden=32, context=512)


EVEN = "--env tests.baselines.toys:Even-v0 --max-new-tokens 4".split()
WORD = "--env baselines.toys:Word-v0 --max-new-tokens 3".split()
TRAINERS = {"grpo": (grpo, grpo.GRPO), "ppo": (ppo, ppo.PPO)}


def flags(trainer: str, *words: object) -> Any:
    """The arguments that a command line gives."""
    module, _ = TRAINERS[trainer]
    from baselines.flags import arguments

    return arguments(module.Args, trainer, "", [str(word) for word in words])


@pytest.fixture
def train() -> Callable[..., list[dict[str, Any]]]:
    """Run a trainer in this process; the lines of its metrics."""

    def run(trainer: str, *words: object) -> list[dict[str, Any]]:
        from baselines.run import train

        args = flags(trainer, *words)
        assert train(args, trainer, TRAINERS[trainer][1]) == 0
        return lines(args.out)

    return run


def lines(folder: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run."""
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def tasks(folder: str | Path) -> list[str]:
    """Which tasks a run trained on, in order; it must have kept all of its rollouts."""
    files = sorted((Path(folder) / "rollouts").glob("step-*/trajectories.jsonl"))
    return [json.loads(line)["task_id"] for file in files for line in file.read_text().splitlines()]
