"""The environment: the original's texts, ends, points, refusals. tests/test_all_envs.py tests what all must do."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import textworld

from agentgym.envs.textworld import TextWorldEnv
from agentgym.envs.textworld.env import _refuse
from agentgym.envs.textworld.machine import read_opening
from agentgym.errors import ToolError
from tests.envs.textworld.conftest import TINY

COOKING = {"challenge": "cooking", "settings": {"go": 1, "cook": False, "open": False}}
needs_games = pytest.mark.slow

pytestmark = pytest.mark.filterwarnings(
    "ignore::jericho.UnsupportedGameWarning"
)  # textworld's own environment


def made(**keywords: Any) -> tuple[TextWorldEnv, str, dict[str, Any]]:
    env = TextWorldEnv(**keywords)
    observation, info = env.reset(options={"task": 0})
    return env, observation, info


def solve(env: TextWorldEnv) -> list[tuple[Any, ...]]:
    """The steps of gold from where the environment is."""
    steps = [env.step(env.gold())]
    while not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(env.gold()))
    return steps


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["look", "n", "take all", "take the key from the box", ""])
def test_commands_to_the_player_pass(command: str) -> None:
    _refuse(command)


@pytest.mark.parametrize(
    "command",
    ["open box. take key", "north then south", "then", "n, look", "look,n", "west, take coin", "take a, b"],
)
def test_more_than_one_command_is_refused(command: str) -> None:
    with pytest.raises(ToolError, match="Expected one command, without"):
        _refuse(command)


@pytest.mark.parametrize(
    "command",
    [
        "save",
        "SAVE",
        "Restore game",
        "undo",
        "oops save",
        "quit",
        "q",
        "transcript on",
        "transcripts",  # the games read nine letters
        'me "undo"',
        "tw-print player id",
        "tw-trace-actions",
        "print_state",
        "enable print state option",
        "restrict commands",
        "superbrief",
        "a\nb",
        "caf\u00e9",
        "a\0b",
        "\\n",  # the interpreter never answers to it
        "look\\n",
        "x" * 119,
    ],
)
def test_commands_to_the_program_are_refused(command: str) -> None:
    with pytest.raises(ToolError, match=r"Expected|That is a command to the program"):
        _refuse(command)


# -- against the original ------------------------------------------------------------------------------------------


def original(story: str) -> Any:
    """TextWorld's own environment of a story."""
    infos = textworld.EnvInfos(admissible_commands=True, won=True, lost=True, score=True, last_action=True)
    return textworld.start(story, infos)


def feedback(text: str) -> str:
    """A text of the original without the prompt and the status line."""
    return text.rpartition("\n>")[0].strip()


@needs_games
@pytest.mark.parametrize("keywords", [TINY, COOKING], ids=["custom", "cooking"])
def test_texts_and_commands_are_the_originals(cache: Path, keywords: dict[str, Any]) -> None:
    env, observation, info = made(max_turns=40, **keywords)
    theirs = original(env.play._files.story)
    state = theirs.reset()
    assert observation == read_opening(state.feedback)
    rng = random.Random(5)
    for _ in range(40):
        assert info["admissible_actions"] == tuple(state.admissible_commands)
        command = rng.choice([*info["admissible_actions"], "take all", "jump", "open", "dance"])
        observation, _, terminated, _, info = env.step(command)
        state, score, done = theirs.step(command)
        if done:
            assert terminated
            assert observation == feedback(state.feedback).partition("Would you like")[0].strip()
            break
        assert (observation, env.play.score) == (feedback(state.feedback), score)
    theirs.close()


@needs_games
def test_the_seed_is_that_of_tw_make(cache: Path, tmp_path: Path) -> None:
    env, *_ = made(**TINY)
    tw_make = Path(sys.executable).with_name("tw-make")
    options = [
        "--world-size",
        "2",
        "--nb-objects",
        "4",
        "--quest-length",
        "3",
        "--quest-breadth",
        "1",
        "--seed",
        "0",
    ]
    subprocess.run(
        [sys.executable, tw_make, "custom", *options, "--silent", "--output", tmp_path / "g.z8"],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert textworld.Game.load(str(tmp_path / "g.json")) == env.play.story.game


# -- ends and points -----------------------------------------------------------------------------------------------


@needs_games
def test_a_win(cache: Path) -> None:
    env, *_ = made(**TINY)
    steps = solve(env)
    observation, reward, terminated, truncated, info = steps[-1]
    assert "*** The End ***" in observation
    assert "RESTART" not in observation
    assert (reward, terminated, truncated, info["resolved"]) == (1.0, True, False, True)
    assert [step[1] for step in steps[:-1]] == [0.0] * (len(steps) - 1)
    assert info["admissible_actions"] == ()
    assert "invalid_action" not in info


@needs_games
def test_a_win_on_the_last_turn_is_no_truncation(cache: Path) -> None:
    env, *_ = made(max_turns=3, **TINY)
    assert solve(env)[-1][2:4] == (True, False)


@needs_games
def test_a_loss(cache: Path) -> None:
    """Eating what is to be cooked, after the first point."""
    env, *_ = made(intermediate_reward=True, **COOKING)
    ingredient = env.play.story.game.metadata["ingredients"][0][0]
    rewards = []
    while env.play.score < 1:
        rewards.append(env.step(env.gold())[1])
    assert ingredient in env.play.scene.anchor
    observation, reward, terminated, truncated, info = env.step(f"eat {ingredient}")
    assert "*** You lost! ***" in observation
    assert (terminated, truncated, info["resolved"], info["verdict"].score) == (True, False, False, 0.0)
    assert sum(rewards) > 0
    assert sum(rewards) + reward == 0.0


@needs_games
@pytest.mark.parametrize("paid_early", [True, False])
def test_points_so_far_are_the_score_at_the_limit(cache: Path, paid_early: bool) -> None:
    env, *_ = made(intermediate_reward=paid_early, **COOKING)
    highest = env.play.story.max_score
    rewards = []
    while env.play.score < 1:
        rewards.append(env.step(env.gold())[1])
    env.max_turns = len(rewards) + 1
    _, reward, terminated, truncated, info = env.step("look")
    rewards.append(reward)
    assert (terminated, truncated, info["resolved"]) == (False, True, False)
    assert info["verdict"].score == 1 / highest
    assert rewards[-2:] == ([1 / highest, 0.0] if paid_early else [0.0, 1 / highest])


@needs_games
def test_early_points_add_up_to_one(cache: Path) -> None:
    env, *_ = made(intermediate_reward=True, **COOKING)
    rewards = [step[1] for step in solve(env)]
    assert len([reward for reward in rewards if reward]) > 1
    assert sum(rewards) == pytest.approx(1.0)


# -- commands ------------------------------------------------------------------------------------------------------


@needs_games
def test_other_words_for_a_command_do_it(cache: Path) -> None:
    env, _, info = made(**TINY)
    way = next(command for command in info["admissible_actions"] if command.startswith("go "))
    observation, *_, info = env.step(way[3])  # "go north" as "n"
    twin, *_ = made(**TINY)
    same = twin.step(way)
    assert (observation, info["anchor"], "invalid_action" in info) == (same[0], same[-1]["anchor"], False)


@needs_games
def test_what_is_not_understood_is_answered_by_the_game(cache: Path) -> None:
    env, _, info = made(**TINY)
    before = info["anchor"]
    for command, answer in (
        ("dance", "That's not a verb I recognise."),
        ("", "I beg your pardon?"),
        ("take moon", "You can't see any such thing."),
        ("undo", "That is a command to the program. Expected one to the player, for example: look"),
    ):
        observation, *_, info = env.step(command)
        assert (observation, info["invalid_action"], info["anchor"]) == (answer, True, before)


@needs_games
def test_a_plan_in_one_message_is_no_plan_carried_out(cache: Path) -> None:
    """The games read "west, take coin" as two commands."""
    env, *_ = made(challenge="coin_collector", level=2)
    _, reward, terminated, _, info = env.step(
        ", ".join(command.removeprefix("go ") for command in env.play.story.walkthrough)
    )
    assert (reward, terminated, info["invalid_action"], env.play.said) == (0.0, False, True, ())


@needs_games
def test_anchors_are_without_history(cache: Path) -> None:
    env, _, info = made(**TINY)
    start = info["anchor"]
    way = next(command for command in info["admissible_actions"] if command.startswith("go "))
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[way[3:]]
    assert env.step(way)[-1]["anchor"] != start
    assert env.step(f"go {back}")[-1]["anchor"] == start


@needs_games
def test_the_anchor_shows_no_content_of_what_is_shut(cache: Path) -> None:
    env, *_ = made(challenge="simple")  # in a bedroom with a key in one of two shut things
    for name in ("chest drawer", "antique trunk"):
        assert f"closed({name})" in env.anchor()
        assert f"in(old key, {name})" not in env.anchor()
        env.step(f"open {name}")
        assert f"open({name})" in env.anchor()
    assert env.anchor().count("in(old key, ") == 1


@needs_games
def test_gold_wins_from_where_others_have_been(cache: Path) -> None:
    env, _, info = made(**TINY)
    rng = random.Random(1)
    for _ in range(10):
        harmless = [each for each in info["admissible_actions"] if not each.startswith("eat ")]
        *_, over, _, info = env.step(rng.choice(harmless))
        assert not over
    assert solve(env)[-1][1:3] == (1.0, True)


# -- processes -----------------------------------------------------------------------------------------------------

_GO_ON = """
import pickle, sys
env, command = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps([env.step(command)[:4], env.anchor(), env.admissible_actions(), env.gold()]))
"""


@needs_games
def test_a_pickle_goes_on_in_another_process(cache: Path) -> None:
    env, *_ = made(**TINY)
    env.step(env.gold())
    command = env.gold()
    done = subprocess.run(
        [sys.executable, "-c", _GO_ON],
        input=pickle.dumps((env, command)),
        env=os.environ | {"PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert pickle.loads(done.stdout) == [
        env.step(command)[:4],
        env.anchor(),
        env.admissible_actions(),
        env.gold(),
    ]


def play_all(games: Path) -> None:
    """Ask for files to be written, then win, in every game of a folder."""
    env = TextWorldEnv(games=games, split="all")
    for task in env.task_set:
        env.reset(options={"task": task.id})
        for command in ("save", "script", "undo", "look"):
            env.step(command)
        assert solve(env)[-1][1] == 1.0


@needs_games
def test_parallel_runs_leave_the_files_alone(folder: Path) -> None:
    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    before = state()
    processes = multiprocessing.get_context("fork")  # which need not import textworld again
    runs = [processes.Process(target=play_all, args=(folder,)) for _ in range(8)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0] * 8
    assert state() == before


@needs_games
def test_many_games_at_once(cache: Path) -> None:
    """Interpreters do not share memory: sixteen, stepped in turn, each say what one alone says."""
    alone, *_ = made(**TINY)
    expected = [step[0] for step in solve(alone)]
    plan = [turn.action for turn in alone.episode.turns]
    envs = [made(**TINY)[0] for _ in range(16)]
    for command, text in zip(plan, expected, strict=True):
        assert {env.step(command)[0] for env in envs} == {text}
