"""The engine on a game written by hand, where every answer can be worked out, and on recordings of the original."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentgym.envs.alfworld.engines import Reply, make_engine
from agentgym.envs.alfworld.names import number_names
from agentgym.envs.alfworld.native import NativeEngine, load_game
from agentgym.envs.alfworld.replay import read_recordings, replay
from agentgym.errors import TaskError, UsageError
from tests.envs.alfworld.tiny_game import write_game

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
RECORDINGS = SHARED / "cases" / "alfworld_transcripts.jsonl"
GAMES = SHARED / "data" / "alfworld"


@pytest.fixture
def engine(tmp_path: Path) -> NativeEngine:
    return NativeEngine(str(write_game(tmp_path / "game")))


def play(engine: NativeEngine, *commands: str) -> Reply:
    reply = engine.reset()
    for command in commands:
        reply = engine.step(command)
    return reply


def test_the_first_answer(engine: NativeEngine) -> None:
    reply = engine.reset()
    # Box_bar_1 comes first in the order of the ids, and numbers count down.
    assert reply.obs == "Welcome.\n\nHere: a box 2, and a box 1."
    # box 1 is locked until something is lit; walking where one stands does nothing, so it is no command.
    assert reply.admissible == ("unlid box 2", "walk to south 1")
    assert (reply.won, reply.score, reply.done) == (False, 0.0, False)


def test_the_way_to_win(engine: NativeEngine) -> None:
    reply = play(engine, "unlid box 2")
    assert reply.obs == "The box 2 is open: the lamp 1."
    assert reply.admissible == ("grab lamp 1", "walk to south 1")
    reply = engine.step("grab lamp 1")
    # What follows the lone bracket of the template is ignored, as in the original.
    assert reply.obs == "Taken: lamp 1. Gone: lamp 1. "
    assert reply.admissible == ("press lamp 1", "walk to south 1")
    reply = engine.step("press lamp 1")
    assert (reply.obs, reply.won, reply.score, reply.done) == ("Light!", True, 1.0, True)
    assert engine.step("press lamp 1").obs == "Dark."
    assert not engine.step("look").won  # nothing happens, and it is dark


def test_what_is_no_command_changes_nothing(engine: NativeEngine) -> None:
    for text in ("unlid box 1", "Unlid box 2", "unlid  box 2", "", "unlid box 2 now"):
        reply = play(engine, text)
        assert reply.obs == "Nothing happens."
        assert reply.admissible == ("unlid box 2", "walk to south 1")
    assert play(engine, " unlid box 2\n").obs.startswith("The box 2 is open")


def test_a_condition_that_nothing_meets(engine: NativeEngine) -> None:
    assert play(engine, "walk to south 1").obs == "Nothing is here."
    assert engine.step("walk to north 1").obs == "Here: a box 2, and a box 1."


def test_conditional_effects_use_the_state_before(engine: NativeEngine) -> None:
    reply = play(engine, "unlid box 2", "grab lamp 1", "press lamp 1", "walk to south 1", "walk to north 1")
    assert reply.obs == "Here: a box 2(open), and a box 1(open)."  # pressing opened the locked one
    assert reply.admissible == ("press lamp 1", "walk to south 1")  # one hand: the cup stays


def test_a_reset_starts_anew(engine: NativeEngine) -> None:
    first = engine.reset()
    play(engine, "unlid box 2", "grab lamp 1")
    assert engine.reset() == first


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_twin_goes_its_own_way(engine: NativeEngine, twin) -> None:
    play(engine, "unlid box 2")
    other = twin(engine)
    assert other.step("grab lamp 1").obs.startswith("Taken")
    assert engine.step("grab lamp 1") == Reply(
        "Taken: lamp 1. Gone: lamp 1. ", ("press lamp 1", "walk to south 1"), False
    )
    assert engine.step("press lamp 1") == other.step("press lamp 1")


def test_numbers_count_down_over_the_sorted_ids() -> None:
    objects = {"cup_bar_3", "cup_bar_1", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "cuptype"}
    assert number_names(objects) == {
        "cup_bar_1": "cup 2",
        "cup_bar_3": "cup 1",
        "sink_bar_1": "sink 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "cuptype": "cuptype ",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pddl_domain": None}, "'pddl_domain' to be a text"),
        ({"pddl_domain": "(define (domain x)"}, "as many"),
        ({"pddl_domain": "(define (domain x))"}, "at least one :action"),
        ({"pddl_problem": "(define (problem x))"}, "one :goal"),
        ({"pddl_problem": "(define (problem x) (:init (p a)) (:goal (p a)))"}, "a fact names 'a'"),
        ({"grammar": "nonsense"}, "expected a rule or an action, got 'nonsense'"),
        ({"grammar": "action Walk {}"}, "no phrases for the action 'grab'"),
        ({"grammar": 'grammar :: """ {"a": } """;'}, "no JSON"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, changes, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_game(str(write_game(tmp_path, **changes)))


def test_a_missing_file_and_engine(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot read"):
        make_engine("native", str(tmp_path / "game.tw-pddl"))
    with pytest.raises(UsageError, match=r"unknown engine 'nativ'.*'native'"):
        make_engine("nativ", "")


recorded = pytest.mark.skipif(not RECORDINGS.is_file(), reason="the recordings of the original are not here")


@pytest.mark.slow
@recorded
def test_every_recorded_episode_is_equal() -> None:
    report = replay(read_recordings(RECORDINGS), GAMES)
    assert (report["games"], report["episodes"], report["equal"]) == (12, 48, 48)


@pytest.mark.slow
@recorded
def test_threads_play_as_one_after_the_other() -> None:
    recordings = read_recordings(RECORDINGS)[:4]
    load_game.cache_clear()  # so that they compile the games at once, too
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda _: replay(recordings, GAMES), range(8)))
    assert [report["equal"] for report in reports] == [16] * 8
