"""Plans against breadth-first search, and against the walkthroughs that real games come with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.envs.alfworld.errands import Errand, read_errand
from agentgym.envs.alfworld.files import TASK_TYPES, GameFile, read_game_file
from agentgym.envs.alfworld.generate import make_game
from agentgym.envs.alfworld.houses import House
from agentgym.envs.alfworld.layouts import Package
from agentgym.envs.alfworld.native import Game
from agentgym.envs.alfworld.pddl import read_problem
from agentgym.envs.alfworld.planning import Planner, planner_of, what_counts
from agentgym.envs.alfworld.recipes import Recipe
from agentgym.envs.alfworld.relations import State
from agentgym.errors import TaskError
from tests.envs.alfworld.small_package import write_package
from tests.envs.alfworld.tiny_game import write_game

REAL = Path(__file__).parents[4] / "shared" / "data" / "alfworld" / "json_2.1.1"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package(write_package(tmp_path_factory.mktemp("package")))


def length_by_breadth(game: Game, start: State) -> int | None:
    """How many commands a shortest way to win has, found without any knowledge of the game."""
    seen, layer = {what_counts(start)}, [start]
    for steps in range(16):
        if any(map(game.won, layer)):
            return steps
        after = [game.world.apply(state, move) for state in layer for move in game.moves(state).values()]
        layer = []
        for state in after:
            if (key := what_counts(state)) not in seen:
                seen.add(key)
                layer.append(state)
    return None


def wander(game: Game, seed: int, steps: int) -> Iterator[State]:
    rng = random.Random(seed)
    state = game.start
    for _ in range(steps):
        moves = game.moves(state)
        state = game.world.apply(state, moves[rng.choice(list(moves))])
        yield state


def play(game: Game, state: State, commands: tuple[str, ...]) -> State:
    for command in commands:
        state = game.world.apply(state, game.moves(state)[command])
    return state


def check_lengths(package: Package, recipe: Recipe) -> None:
    """Plans from the start and from where random moves have led are as short as can be."""
    for index in range(recipe.count):
        game = Game(make_game(package, recipe, index).file)
        planner = Planner(game)
        for state in [game.start, *list(wander(game, index, 12))[5::6]]:
            plan = planner.plan(state)
            assert plan is not None
            assert game.won(play(game, state, plan))
            assert len(plan) == length_by_breadth(game, state)
            for done in range(len(plan)):  # the estimate must not say too much anywhere on the way
                assert planner.at_least(play(game, state, plan[:done])) in range(len(plan) - done + 1)


@pytest.mark.parametrize("task_type", ["pick_and_place_simple", "look_at_obj_in_light"])
def test_plans_are_shortest(package: Package, task_type: str) -> None:
    check_lengths(package, Recipe(3, seed=2, task_types=(task_type,), copies=1, distractors=1))


@pytest.mark.slow
@pytest.mark.parametrize("task_type", [each for each in TASK_TYPES if each.startswith("pick_c")])
def test_plans_with_work_are_shortest(package: Package, task_type: str) -> None:
    check_lengths(package, Recipe(1, seed=2, task_types=(task_type,), copies=1, distractors=1))


@pytest.mark.slow
def test_plans_for_two_things_are_shortest(package: Package) -> None:
    check_lengths(package, Recipe(1, seed=1, task_types=("pick_two_obj_and_place",), copies=2, distractors=0))


def test_a_state_in_which_the_game_is_won_needs_nothing() -> None:
    source = House(0, 0, "pick_and_place_simple")
    game = Game(source.game())
    won = play(game, game.start, source.game().walkthrough)
    assert planner_of(source).plan(won) == ()


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_houses_are_won_from_wherever_one_has_gone(task_type: str) -> None:
    source = House(1, 1, task_type)
    game = Game(source.game())
    for state in list(wander(game, 0, 40))[::5]:
        assert game.won(play(game, state, planner_of(source).plan(state) or ()))


def test_a_game_with_nothing_that_can_be_heated_has_no_plan() -> None:
    file = House(0, 0, "pick_heat_then_place_in_recep").game()
    game = Game(
        GameFile(file.domain, file.grammar, file.problem.replace("(heatable ", "(cleanable "), True, ())
    )
    assert Planner(game).plan(game.start) is None


def test_a_goal_of_another_form_is_refused(tmp_path: Path) -> None:
    source = str(write_game(tmp_path))
    with pytest.raises(TaskError, match="ALFWorld's six task types"):
        planner_of(source)


@pytest.mark.parametrize(
    ("task_type", "errand"),
    [
        ("pick_and_place_simple", Errand("pentype", 1, "", "desktype", "")),
        ("look_at_obj_in_light", Errand("pentype", 1, "", "", "desklamptype")),
        ("pick_clean_then_place_in_recep", Errand("pentype", 1, "isclean", "desktype", "")),
        ("pick_heat_then_place_in_recep", Errand("pentype", 1, "ishot", "desktype", "")),
        ("pick_cool_then_place_in_recep", Errand("pentype", 1, "iscool", "desktype", "")),
        ("pick_two_obj_and_place", Errand("pentype", 2, "", "desktype", "")),
    ],
)
def test_goals_are_read(package: Package, task_type: str, errand: Errand) -> None:
    goal = package.goals[task_type].pddl.format(obj="Pen", recep="Desk", toggle="DeskLamp").replace("#", "-")
    assert read_errand(read_problem(f"(define (problem x) {goal}").goal) == errand


@pytest.mark.skipif(not REAL.is_dir(), reason="the twelve real games are not here")
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_real_games_are_solved_in_as_many_commands_as_their_planner_took(task_type: str) -> None:
    paths = sorted(REAL.glob(f"train/{task_type}-*/*/game.tw-pddl"))
    assert len(paths) == 2
    for path in paths:
        file = read_game_file(path)
        game = Game(file)
        plan = Planner(game).plan(game.start)
        assert plan is not None
        assert len(plan) == len(file.walkthrough)
        assert game.won(play(game, game.start, plan))
