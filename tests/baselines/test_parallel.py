"""Several processes make the update that one would."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from baselines import checkpoints
from baselines.parallel import Ranks
from tests.baselines.conftest import EVEN, tasks

ROOT = Path(__file__).resolve().parents[2]


def ranks_of(size):
    found = []
    for rank in range(size):
        ranks = Ranks.__new__(Ranks)
        ranks.rank, ranks.size = rank, size
        found.append(ranks)
    return found


@pytest.mark.parametrize("sizes", [[1] * 7, [100, 1, 1, 1], [1, 1, 1, 100], [5], [], [3, 3, 3, 3]])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_parts_cover_everything_once(sizes, size):
    parts = [ranks.part(sizes) for ranks in ranks_of(size)]
    assert [n for part in parts for n in range(len(sizes))[part]] == list(range(len(sizes)))
    totals = [sum(sizes[part]) for part in parts]
    assert max(totals) <= sum(sizes) / size + max(sizes, default=0)


def launch(trainer, words, out, size):
    """As torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    command = [sys.executable, "-m", f"baselines.{trainer}", *map(str, words), "--out", str(out)]
    processes = []
    for rank in range(size):
        names = shared | {"RANK": rank, "LOCAL_RANK": rank}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        processes.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stderr=subprocess.PIPE)
        )
    told = [process.communicate(timeout=280)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * size, told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "extra"),
    [
        ("grpo", "--epochs 2 --minibatches 2"),
        ("ppo", "--group-size 1 --groups 8 --critic-epochs 2 --warmup 1"),
    ],
)
def test_two_processes_learn_what_one_would(trainer, extra, train, even_model, tmp_path):
    size = "--groups 3 --group-size 3 --steps 2 --keep-rollouts 1 --eval-every 2 --eval-episodes 5".split()
    words = [*EVEN, "--model", even_model, *size, "--lr", 1e-3, "--device", "cpu", *extra.split()]
    one = train(trainer, *words, "--out", tmp_path / "one")
    launch(trainer, words, tmp_path / "two", 2)
    two = train(trainer, *words, "--out", tmp_path / "two")  # has nothing left to do but to evaluate

    assert tasks(tmp_path / "two") == tasks(tmp_path / "one")
    assert len(one) == len(two) == 3
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            # Shared prefixes
            if not name.startswith(("time/", "speed/", "memory/", "cost/trained", "cost/critic")):
                assert b[name] == pytest.approx(a[name], rel=1e-3, abs=1e-4), name
    states = [checkpoints.load(tmp_path / name / "checkpoints" / "step-000002.pt") for name in ("one", "two")]
    assert states[0]["position"] == states[1]["position"]
    for name, parameter in states[0]["algorithm"]["model"].items():
        torch.testing.assert_close(
            states[1]["algorithm"]["model"][name], parameter, rtol=1e-3, atol=1e-4, msg=name
        )
