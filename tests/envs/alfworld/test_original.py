"""The alfworld package as an engine: its processes with a toy in them, and the package itself where it is installed."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest

from agentgym.envs.alfworld import original, original_pool
from agentgym.envs.alfworld.engines import cpu_seconds, make_engine
from agentgym.envs.alfworld.generate import write_games
from agentgym.envs.alfworld.houses import houses
from agentgym.envs.alfworld.layouts import find_package
from agentgym.envs.alfworld.original import OriginalEngine
from agentgym.envs.alfworld.original_pool import Pool, pool
from agentgym.envs.alfworld.recipes import Recipe
from agentgym.envs.alfworld.replay import read_recordings, replay
from agentgym.envs.alfworld.sources import read_game, source_of
from agentgym.errors import InfrastructureError, MissingDependency, TaskError, UsageError
from benchmarks import alfworld_engines
from benchmarks.alfworld_engines import compare, compare_all, find_games, record
from tests.envs.alfworld.tiny_game import write_game

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
TOY = Path(__file__).with_name("toy_player.py")

Make = Callable[[str], OriginalEngine]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Makes engines whose processes hold a toy; the name of the game is what it answers first."""
    monkeypatch.setattr(original_pool, "_SCRIPT", TOY)
    monkeypatch.setattr(original_pool, "_pool", Pool())
    monkeypatch.setattr(original, "PACKAGES", ())
    yield lambda name: OriginalEngine(str(write_game(tmp_path / name, pddl_problem=name)))
    pool().close()


def processes() -> list[int]:
    return [player.process.pid for player in pool().players]


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds, all of its threads."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
            # Dead, and waited for by nobody. Its parent can't see it while one of its threads still ends.
            if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1:
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_an_episode(toy: Make) -> None:
    engine = toy("game")
    assert engine.reset() == ("game", ("a", "b"), False)
    assert engine.step("x").obs == "game x"
    assert engine.anchor() == "anchor of x"
    assert engine.step("win") == ("game x win", ("a", "b"), True)
    assert engine.reset().obs == "game"
    assert len(processes()) == 1


def test_a_process_plays_one_game_after_the_other(toy: Make) -> None:
    toy("one").reset()
    assert toy("two").reset().obs == "two"  # the first engine is gone, and its process is free
    assert len(processes()) == 1


def test_engines_at_the_same_time_have_processes_of_their_own(toy: Make) -> None:
    engines = [toy(f"game{number}") for number in range(3)]
    for engine in engines:
        engine.reset()
    assert [engine.step("x").obs for engine in engines] == ["game0 x", "game1 x", "game2 x"]
    assert len(set(processes())) == 3


def test_more_engines_than_processes_take_turns(toy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(original_pool.MOST_PROCESSES, "2")
    engines = [toy(f"game{number}") for number in range(5)]
    for engine in engines:
        engine.reset()
    for word in ("x", "y"):
        for engine in engines:
            engine.step(word)
    assert [engine.anchor() for engine in engines] == ["anchor of x y"] * 5
    assert len(processes()) == 2


def test_threads_wait_for_a_process_in_use(toy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(original_pool.MOST_PROCESSES, "2")

    def play(number: int) -> str:
        engine = toy(f"game{number}")
        engine.reset()
        for word in "abcdef":
            engine.step(word)
        return engine.step("g").obs

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(play, range(6))) == [f"game{number} a b c d e f g" for number in range(6)]
    assert len(processes()) == 2


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])
def test_a_twin_goes_its_own_way(toy: Make, twin: Callable[[OriginalEngine], OriginalEngine]) -> None:
    engine = toy("game")
    engine.reset()
    engine.step("x")
    other = twin(engine)
    assert other.step("y").obs == "game x y"
    assert engine.step("z").obs == "game x z"


def test_a_game_that_answers_otherwise_when_played_again_is_no_restored_state(toy: Make) -> None:
    engine = toy("game")
    engine.reset()
    engine.step("forget")  # answered with the number of the process
    twin = copy.deepcopy(engine)
    with pytest.raises(InfrastructureError, match="answered otherwise when 1 commands were played again"):
        twin.anchor()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("die", "ended at 'step' with status 7"),
        ("hang", r"did not answer 'step' in 0\.5 s"),
        ("fail", "ValueError: the inside"),
    ],
)
def test_what_goes_wrong_inside_is_infrastructure(
    toy: Make, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    engine = toy("game")
    engine.reset()
    (pid,) = processes()
    monkeypatch.setattr(original_pool, "DEADLINE_S", 0.5)
    with pytest.raises(InfrastructureError, match=message):
        engine.step(command)
    assert processes() == []
    assert gone(pid)
    monkeypatch.setattr(original_pool, "DEADLINE_S", 60.0)
    assert engine.reset().obs == "game"  # in another one


def test_an_interrupt_leaves_no_answer_behind(toy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = toy("game")
    engine.reset()
    (pid,) = processes()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        engine.step("hang")
    assert gone(pid)
    assert engine.step("x").obs == "game x"


def test_a_process_that_died_between_episodes_is_replaced(toy: Make) -> None:
    engine = toy("game")
    engine.reset()
    (pid,) = processes()
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    with pytest.raises(InfrastructureError, match="ended at 'step' with status -9"):
        engine.step("x")
    engine.reset()
    (pid,) = processes()
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert engine.reset().obs == "game"


def test_a_process_is_retired(toy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_pool, "EPISODES_PER_PROCESS", 2)
    engine = toy("game")
    seen = []
    for _ in range(4):
        engine.reset()
        seen += processes()
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert gone(seen[0])


def test_a_game_that_cannot_be_loaded(toy: Make) -> None:
    with pytest.raises(TaskError, match=r"cannot load .*game.tw-pddl: SystemExit: cannot be parsed"):
        toy("broken").reset()
    with pytest.raises(TaskError, match="cannot read"):
        OriginalEngine("missing.tw-pddl").reset()


def test_the_number_of_processes_is_checked(toy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(original_pool.MOST_PROCESSES, "none")
    with pytest.raises(UsageError, match="AGENTGYM_ALFWORLD_PROCESSES to be a whole number >= 1, got 'none'"):
        toy("game").reset()


def test_cpu_time_counts_the_processes(toy: Make) -> None:
    engine = toy("game")
    before = cpu_seconds()
    engine.reset()
    spent = cpu_seconds() - before
    pool().close()
    assert cpu_seconds() - before >= spent >= 0.01  # starting Python costs as much; ended ones stay counted


def test_a_forked_child_has_processes_of_its_own(toy: Make) -> None:
    engine = toy("game")
    engine.reset()
    mine = processes()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        code = 1
        try:
            ok = engine.step("child").obs == "game child" and processes() != mine
            pool().close()
            code = 0 if ok else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.step("parent").obs == "game parent"
    assert processes() == mine


PARENT = """
import os, pathlib, signal, sys
from agentgym.envs.alfworld import original, original_pool
from agentgym.envs.alfworld.original import OriginalEngine

script, game, way = sys.argv[1:]
original_pool._SCRIPT = pathlib.Path(script)
original.PACKAGES = ()
engine = OriginalEngine(game)
engine.reset()
stranger = os.fork()  # holds the parent's end of the connection open
if stranger == 0:
    os.close(1)
    signal.pause()
print(original_pool.pool().players[0].process.pid, stranger, flush=True)
if way == "killed":
    engine.step("hang")
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", "ends"])
def test_no_process_outlives_its_parent(tmp_path: Path, way: str) -> None:
    argv = [sys.executable, "-c", PARENT, TOY, write_game(tmp_path / "game"), way]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, stranger = map(int, parent.stdout.readline().split())
        if way == "killed":
            parent.kill()
        parent.wait(30)
    try:
        assert gone(pid)
    finally:
        os.kill(stranger, signal.SIGKILL)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original, "PACKAGES", ("json", "no_such_package"))
    with pytest.raises(
        MissingDependency, match=r"needs no_such_package: pip install 'agentgym-suite\[alfworld\]'"
    ):
        make_engine("alfworld", "game.tw-pddl")


def test_recording_both_kinds_of_episodes(tmp_path: Path) -> None:
    plan = ("unlid box 2", "grab lamp 1", "press lamp 1")
    game = make_engine("native", str(write_game(tmp_path / "game")))
    walkthrough, *drawn = record(game, plan, episodes=2, seed=5)
    assert [step["action"] for step in walkthrough["steps"]] == list(plan)
    assert walkthrough["steps"][-1] | {"admissible": []} == {
        "action": "press lamp 1",
        "obs": "Light!",
        "admissible": [],
        "won": True,
        "score": 1.0,
        "done": True,
    }
    assert [episode["seed"] for episode in drawn] == [5, 6]
    for episode in drawn:
        rng = random.Random(episode["seed"])
        answers = [episode["reset"], *episode["steps"]]
        for before, step in itertools.pairwise(answers):
            assert step["action"] == rng.choice(before["admissible"])
            assert not before["won"]
        assert answers[-1]["won"] or len(episode["steps"]) == 50


def test_a_comparison_goes_on_where_it_was(tmp_path: Path) -> None:
    (game,) = find_games([write_game(tmp_path / "train" / "task" / "trial")])
    row = {"game": "train/task/trial/game.tw-pddl", "random": 2, "seed": 0}
    done = tmp_path / "equal.jsonl"
    done.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert list(compare_all([game], 2, 0, out=done)) == [row]
    with pytest.raises(UsageError, match=r"there is no game\.tw-pddl in"):
        find_games([tmp_path / "nowhere"])


def test_a_comparison_that_breaks_keeps_the_other_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = [write_game(tmp_path / "train" / "task" / trial) for trial in ("a", "b", "c")]
    done = tmp_path / "equal.jsonl"

    def compared(game: Path, episodes: int, seed: int) -> dict[str, str]:
        if game == games[0]:
            raise InfrastructureError("no answer")
        return {"game": alfworld_engines.name(game)}

    monkeypatch.setattr(
        alfworld_engines, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs)
    )
    monkeypatch.setattr(alfworld_engines, "compare", compared)
    with pytest.raises(InfrastructureError, match="no answer"):
        list(compare_all(games, 2, 0, out=done))
    kept = [json.loads(line)["game"] for line in done.read_text(encoding="utf-8").splitlines()]
    assert sorted(kept) == ["train/task/b/game.tw-pddl", "train/task/c/game.tw-pddl"]


START = ("unlid box 2", "walk to south 1")

needs_alfworld = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in original.PACKAGES),
    reason="the alfworld package is not installed: make alfworld",
)


@needs_alfworld
@pytest.mark.slow
def test_the_package_plays_the_game_written_by_hand(tmp_path: Path) -> None:
    game = str(write_game(tmp_path / "game"))
    native, package = make_engine("native", game), make_engine("alfworld", game)
    assert package.reset() == native.reset() == ("Welcome.\n\nHere: a box 2, and a box 1.", START, False)
    for command in ("unlid box 1", " unlid box 2 ", "grab lamp 1"):
        reply = package.step(command)
        assert reply == native.step(command)
        assert (reply.obs == "Nothing happens.") == (command == "unlid box 1")
    # The one known difference: texts of the package see also those conditional effects whose condition failed.
    pressed, ours = package.step("press lamp 1"), native.step("press lamp 1")
    assert (pressed.obs, ours.obs) == ("Dark.", "Light!")
    assert pressed._replace(obs="") == ours._replace(obs="")
    assert ours.won


@needs_alfworld
@pytest.mark.slow
def test_environments_show_the_same(tmp_path: Path) -> None:
    task = houses().split("train")[3]
    native, package = (
        gymnasium.make("agentgym/ALFWorld-v0", engine=engine) for engine in ("native", "alfworld")
    )
    plan = read_game(source_of(task.data, task.id)).walkthrough
    assert package.reset(options={"task": task.id}) == native.reset(options={"task": task.id})
    middle = None
    for turn, command in enumerate(("inventory", "fly", *plan)):
        step = native.step(command)
        assert package.step(command) == step  # with the anchor
        middle = package.unwrapped.snapshot() if turn == 3 else middle
    assert step[2]
    package.unwrapped.restore(middle)
    native.reset(options={"task": task.id})
    for command in ("inventory", "fly", *plan)[:4]:
        native.step(command)
    assert package.step("look") == native.step("look")


@needs_alfworld
@pytest.mark.slow
@pytest.mark.parametrize("task_type", ["pick_heat_then_place_in_recep", "pick_two_obj_and_place"])
def test_engines_agree_on_a_generated_game(tmp_path: Path, task_type: str) -> None:
    write_games(find_package(), Recipe(count=1, seed=4, task_types=(task_type,)), tmp_path)
    (game,) = find_games([tmp_path])
    row = compare(game, episodes=2, seed=0)
    assert (row["differences"], row["equal"], row["episodes"]) == ([], 3, 3)
    assert row["won"] >= 1


@needs_alfworld
@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "cases").is_dir(), reason="the recordings of the original are not here")
def test_a_recorded_game_is_equal() -> None:
    recording = read_recordings(SHARED / "cases" / "alfworld_transcripts.jsonl")[0]
    walkthrough = replace(recording, episodes=recording.episodes[:1])
    report = replay([walkthrough], SHARED / "data" / "alfworld", engine="alfworld")
    assert (report["episodes"], report["equal"]) == (1, 1)
    assert report["cpu_s"]["step"] > 0.1  # the package's own, in its process
