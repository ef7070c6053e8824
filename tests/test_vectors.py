"""Both spaces in gymnasium's vector environments: every observation is compared with single environments.

Running is not enough: gymnasium's own Text passes through shared memory and returns the first values for ever.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from agentgym import Message, spaces
from agentgym.spaces import LazyBatch, _Buffers
from tests.side_by_side import play
from tests.toys import ChatEnv, DictTextEnv, Moves, Notes, TextEnv

pytestmark = pytest.mark.filterwarnings("error")

MODES = list(AutoresetMode)
ASYNC_VARIANTS = {
    "default": {},
    "pipes": {"shared_memory": False},
    "different": {"observation_mode": "different"},
    "no copy": {"copy": False},
}


def any_move(env: gymnasium.Env, plan: np.random.Generator) -> str:
    return str(plan.choice(["look", "point", "wrong", "win", "lose"]))


@pytest.mark.parametrize("mode", MODES, ids=str)
class TestModes:
    def test_sync(self, mode):
        vector = SyncVectorEnv([Moves] * 3, autoreset_mode=mode)
        assert play(vector, [Moves(), Moves(), Moves()], mode, any_move) >= 8

    @pytest.mark.parametrize("variant", ASYNC_VARIANTS)
    def test_async(self, mode, variant):
        vector = AsyncVectorEnv([Moves] * 2, autoreset_mode=mode, **ASYNC_VARIANTS[variant])
        assert play(vector, [Moves(), Moves()], mode, any_move, copied=variant != "no copy") >= 5

    @pytest.mark.slow
    @pytest.mark.parametrize("context", ["spawn", "forkserver"])
    def test_contexts(self, mode, context):
        vector = AsyncVectorEnv([Moves] * 2, context=context, autoreset_mode=mode)
        assert play(vector, [Moves(), Moves()], mode, any_move) >= 5


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
class TestKinds:
    def test_tools(self, kind):
        action = '<tool_call>{"name": "write", "arguments": {"name": "a", "text": "中"}}</tool_call>'
        with contextlib.closing(kind([Notes] * 2)) as vector:
            vector.reset(seed=0)
            observations, *_, infos = vector.step((action, "x"))
            assert observations[0] == "<tool_response>\nok\n</tool_response>"
            assert observations[1].startswith("Invalid action")
            assert infos["calls"][0][0].call.arguments == {"name": "a", "text": "中"}
            assert list(infos["_invalid_action"]) == [False, True]

    def test_long_texts(self, kind):
        single = TextEnv(500_000)
        with contextlib.closing(kind([TextEnv])) as vector:
            assert vector.reset(seed=3)[0] == (single.reset(seed=3)[0],)
            for _ in range(4):
                observation = single.step("")[0]
                assert vector.step(("",))[0] == (observation,)
            assert not observation.isascii() or len(observation) == 500_000

    def test_bounds_may_differ(self, kind):
        makers = [functools.partial(TextEnv, 3, 10), functools.partial(TextEnv, 12, 20)]
        with contextlib.closing(kind(makers, observation_mode="different")) as vector:
            observations, _ = vector.reset(seed=0)
            assert [len(text) for text in observations] == [3, 12]
            assert observations in vector.observation_space
            assert [space.max_length for space in vector.observation_space] == [10, 20]

    def test_inside_dict(self, kind):
        singles = [DictTextEnv(), DictTextEnv()]
        with contextlib.closing(kind([DictTextEnv] * 2)) as vector:
            expected = [env.reset(seed=i)[0]["text"] for i, env in enumerate(singles)]
            observations, _ = vector.reset(seed=0)
            seen = set()
            for _ in range(6):
                assert list(observations) == ["text"]
                assert tuple(observations["text"]) == tuple(expected)
                seen.update(expected)
                observations = vector.step(("", ""))[0]
                expected = [env.step("")[0]["text"] for env in singles]
            assert len(seen) > 1

    def test_conversations(self, kind):
        singles = [ChatEnv(), ChatEnv()]
        with contextlib.closing(kind([ChatEnv] * 2)) as vector:
            kept = [vector.reset(seed=5)[0]]
            expected = [tuple(env.reset(seed=5 + i)[0] for i, env in enumerate(singles))]
            for turn in range(2):
                kept.append(vector.step((f"a{turn}", f"b{turn}"))[0])
                expected.append(tuple(env.step(f"{'ab'[i]}{turn}")[0] for i, env in enumerate(singles)))
            assert kept == expected  # what was handed out earlier has not changed
            assert len(kept[-1][0]) == 5
            assert type(kept[-1][1][0]) is Message

    def test_failures_reach_the_infos(self, kind):
        with contextlib.closing(kind([Moves] * 2)) as vector:
            vector.reset(seed=0)
            *_, truncated, infos = vector.step(("broken", "look"))
            assert list(truncated) == [True, False]
            assert infos["infrastructure_error"][0] == "the server died"
            assert list(infos["_infrastructure_error"]) == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_conversations_in_every_context(context):
    with contextlib.closing(AsyncVectorEnv([ChatEnv] * 2, context=context)) as vector:
        vector.reset(seed=5)
        vector.step(("a", "b"))
        assert vector.step(("c", "d"))[0][1][-2] == Message("assistant", "d")


class TestLazyBatch:
    def test_it_shows_the_present_and_its_copy_the_past(self):
        with contextlib.closing(AsyncVectorEnv([Moves] * 2, copy=False)) as vector:
            view, _ = vector.reset(seed=1)
            assert isinstance(view, LazyBatch)
            past = copy.deepcopy(view)
            assert type(past) is tuple
            again = vector.step(("look", "look"))[0]
            assert again is view
            assert view[0].startswith("look")
            assert not past[0].startswith("look")
            assert (view[-1], view[0:1], len(view)) == (view[1], (view[0],), 2)
            assert view == tuple(view)
            with pytest.raises(IndexError, match="outside a batch of 2"):
                view[2]


def folders(pid: int) -> set[Path]:
    return set(spaces._root().glob(f"agentgym-*-{pid}-*"))


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Path:
    """A place for folders that no other test, run at the same time, sweeps."""
    monkeypatch.setattr(spaces, "_root", lambda: tmp_path)
    return tmp_path


def run(shelf: Path, code: str) -> Path:
    """Make a folder in a process of its own, which then runs `code`."""
    make = (
        "from pathlib import Path; import os; import agentgym.spaces as s; "
        f"s._root = lambda: Path({str(shelf)!r}); b = s._Buffers(1); b.write(0, b'x'); print(b.folder, flush=True); "
    )
    command = [sys.executable, "-c", make + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return Path(done.stdout.strip())


KILLED = "os.kill(os.getpid(), 9)"


class TestFolders:
    def test_gone_with_the_environment(self):
        before = folders(os.getpid())
        vector = AsyncVectorEnv([Moves])
        [folder] = folders(os.getpid()) - before
        vector.reset(seed=0)
        assert (folder / "0").exists()
        assert folder.stat().st_mode & 0o077 == 0  # of no interest to other users
        vector.close()
        del vector
        gc.collect()
        assert not folder.exists()

    def test_gone_at_exit(self, shelf):
        folder = run(shelf, "")
        assert folder.name.startswith("agentgym-")
        assert not folder.exists()

    def test_left_by_a_killed_process_and_swept_by_the_next(self, shelf):
        folder = run(shelf, KILLED)
        assert folder.exists()
        _Buffers(1)
        assert not folder.exists()

    @pytest.mark.slow
    def test_the_next_process_sweeps_too(self, shelf):
        folder = run(shelf, KILLED)
        run(shelf, "")
        assert not folder.exists()

    def test_a_living_process_keeps_its_folder(self, shelf):
        mine = _Buffers(1)
        mine.write(0, b"mine")
        run(shelf, "")
        _Buffers(1)
        assert mine.read(0) == b"mine"

    def test_another_pid_namespace_is_left_alone(self, shelf):
        folder = run(shelf, KILLED)
        _, namespace, rest = folder.name.split("-", 2)
        foreign = folder.rename(folder.with_name(f"agentgym-{int(namespace) + 1}-{rest}"))
        try:
            _Buffers(1)
            assert foreign.exists()
        finally:
            foreign.rename(folder)
        _Buffers(1)
        assert not folder.exists()

    def test_a_forked_child_removes_nothing(self):
        mine = _Buffers(1)
        mine.write(0, b"mine")
        child = multiprocessing.get_context("fork").Process(target=mine._finalizer)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert mine.read(0) == b"mine"

    def test_an_unpickled_copy_removes_nothing(self):
        mine = _Buffers(1)
        mine.write(0, b"mine")
        other = _Buffers.__new__(_Buffers)
        other.__dict__.update(mine.__getstate__())
        assert other.read(0) == b"mine"
        del other
        gc.collect()
        assert mine.read(0) == b"mine"

    def test_a_killed_vector_leaves_no_workers(self):
        code = (
            "from gymnasium.vector import AsyncVectorEnv; from tests.toys import Moves; import time\n"
            "v = AsyncVectorEnv([Moves] * 2); v.reset(seed=0)\n"
            "print(*[p.pid for p in v.processes], flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            left = list(folders(parent.pid))
            parent.send_signal(signal.SIGKILL)
        assert len(pids) == 2
        assert len(left) == 1
        deadline = time.monotonic() + 30
        while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
            assert time.monotonic() < deadline, "workers live on"
            time.sleep(0.05)
        _Buffers(1)
        assert not left[0].exists()
