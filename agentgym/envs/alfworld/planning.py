"""Plans that win a household game, found by a search in the engine's own states."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeAlias

from agentgym.envs.alfworld.errands import WORK, read_errand
from agentgym.envs.alfworld.native import CACHED_GAMES, Game, load_game
from agentgym.envs.alfworld.pddl import Row
from agentgym.envs.alfworld.relations import State
from agentgym.envs.alfworld.sources import Source
from agentgym.envs.alfworld.world import Move
from agentgym.errors import TaskError

Furniture: TypeAlias = frozenset[str]  # receptacles
Places: TypeAlias = frozenset[str]  # locations

MOST_STATES = 20_000  # looked at before a search gives up; ALFWorld's own games need some dozens
_CHANGING = ("atlocation", "opened", "inreceptacle", "holds", "istoggled", *WORK)


class Planner:
    """Finds the shortest way to win a game, from any of its states.

    This is A*. The states are the engine's. The moves are those that can serve the errand: to go where a wanted thing
    is or has to be, to open what is there, to take it, work on it and put it down, and to put down what else is in the
    hand. The estimate counts the handling and the walking that is left if nothing is closed: it never says too much.

    Args:
        game: the game.

    Raises:
        TaskError: its goal has none of the six forms of ALFWorld.
    """

    def __init__(self, game: Game) -> None:
        errand = read_errand(game.goal)
        if errand is None:
            raise TaskError(
                "expected a goal in the form of one of ALFWorld's six task types: others are not planned for"
            )
        self._game, self._errand = game, errand
        start = game.start
        self._location = {row[0]: row[1] for row in start["receptacleatlocation"].rows}
        kinds = {row[0]: row[1] for row in start["objecttype"].rows}
        self._wanted = frozenset(name for name, kind in kinds.items() if kind == errand.thing)
        self._lamps = frozenset(name for name, kind in kinds.items() if kind == errand.lamp)
        self._goals = self._furniture({errand.place})
        self._tools = self._furniture({WORK[errand.work][1]}) if errand.work else frozenset()
        takers = start["cancontain"].by((1,))
        self._takers = {
            name: self._furniture({row[0] for row in takers.get(kind, ())}) for name, kind in kinds.items()
        }

    def plan(self, state: State) -> tuple[str, ...] | None:
        """The commands of a shortest way to win, none if it is won; None where there is no way."""
        order = itertools.count()
        frontier: list[tuple[int, int, int, State, tuple[Move, ...]]] = [(0, 0, 0, state, ())]
        cheapest = {what_counts(state): 0}
        while frontier and len(cheapest) <= MOST_STATES:
            *_, here, moves = heapq.heappop(frontier)
            if self._game.won(here):
                return self._commands(state, moves)
            if len(moves) > cheapest[what_counts(here)]:
                continue  # since then it was reached by a shorter way
            for move in self._moves(here):
                after, cost = self._game.world.apply(here, move), len(moves) + 1
                key = what_counts(after)
                if cost < cheapest.get(key, math.inf) and (left := self.at_least(after)) is not None:
                    cheapest[key] = cost
                    # Of those that look as good the longest is taken first, and of these the newest.
                    heapq.heappush(frontier, (cost + left, -cost, -next(order), after, (*moves, move)))
        return None

    def at_least(self, state: State) -> int | None:
        """How many commands it takes to win, at least: the estimate; None if there are not enough things."""
        held, ends, there = _held(state), self._ends(state), 0
        if not self._errand.lamp:
            done = Counter(
                r
                for o, r in state["inreceptacle"].rows
                if o in self._wanted and r in ends and self._worked(state, o)
            )
            there = max(done.values(), default=0)
            ends = frozenset(r for r in ends if done[r] == there)
        routes = [
            route
            for thing in sorted(self._wanted)
            if (route := self._route(state, thing, held, ends)) is not None
        ]
        before = [self._at(self._takers[held])] if held is not None and held not in self._wanted else []
        here = frozenset(place for _, place in state["atlocation"].rows)
        orders = itertools.permutations(routes, self._errand.count - there)
        least = min((_walk(here, [*before, *itertools.chain(*order)]) for order in orders), default=None)
        lit = any((lamp,) in state["istoggled"].rows for lamp in self._lamps)
        return least if least is None else least - lit

    def _moves(self, state: State) -> Iterator[Move]:
        """What can serve the errand."""
        stops = self._stops(state)
        useful = {
            "gotolocation": ("r", stops),
            "openobject": ("r", stops),
            "putobject": ("r", stops),
            "pickupobject": ("o", self._wanted),
            "toggleobject": ("o", self._lamps),
        }
        if self._errand.work:
            useful[WORK[self._errand.work][0]] = ("o", self._wanted)
        world = self._game.world
        for action, (parameter, names) in useful.items():
            slot = [name for name, _ in world.parameters[action]].index(parameter)
            yield from (move for move in world.moves(action, state) if move.objects[slot] in names)

    def _stops(self, state: State) -> Furniture:
        """Where the next thing is to be done."""
        held = _held(state)
        if held is None:
            return _around(state, self._wanted)
        if held not in self._wanted:
            return self._takers[held]
        return self._ends(state) if self._worked(state, held) else self._tools

    def _ends(self, state: State) -> Furniture:
        """Where things are to be brought."""
        return _around(state, self._lamps) if self._errand.lamp else self._goals

    def _worked(self, state: State, thing: str) -> bool:
        return not self._errand.work or (thing,) in state[self._errand.work].rows

    def _route(self, state: State, thing: str, held: str | None, ends: Furniture) -> list[Places] | None:
        """Where something is to be done with a thing, in order; None if it is done with, or can't be had."""
        around = _around(state, (thing,))
        worked = self._worked(state, thing)
        if thing != held and (not around or (worked and around & ends and not self._errand.lamp)):
            return None
        route = [] if thing == held else [around]
        route += [] if worked else [self._tools]
        return [self._at(stops) for stops in (*route, ends)]

    def _commands(self, state: State, moves: Sequence[Move]) -> tuple[str, ...]:
        commands = []
        for move in moves:
            commands.append(self._game.command(state, move))
            state = self._game.world.apply(state, move)
        return tuple(commands)

    def _furniture(self, kinds: Container[str]) -> Furniture:
        """What is of one of the kinds."""
        rows = self._game.start["receptacletype"].rows
        return frozenset(name for name, kind in rows if kind in kinds and name in self._location)

    def _at(self, furniture: Furniture) -> Places:
        return frozenset(self._location[name] for name in furniture)


def _held(state: State) -> str | None:
    return next((thing for _, thing in state["holds"].rows), None)


def _around(state: State, things: Iterable[str]) -> Furniture:
    """The furniture that some of the things are in."""
    where = state["inreceptacle"].by((0,))
    return frozenset(r for thing in things for _, r in where.get(thing, ()))


def _walk(here: Places, route: Iterable[Places]) -> int:
    """How many commands it takes to do one thing at each stop, where it is somewhere in `here` that one begins."""
    count = 0
    for stop in route:
        count += 1 if not here.isdisjoint(stop) else 2
        here = stop
    return count


def what_counts(state: State) -> tuple[frozenset[Row], ...]:
    """All that a plan depends on: two states that agree in it are one to a planner."""
    return tuple([state[name].rows for name in _CHANGING])


@functools.lru_cache(CACHED_GAMES)
def planner_of(source: Source) -> Planner:
    """The planner of a source's game; the last ones are kept.

    Raises:
        TaskError: see `Planner`.
    """
    return Planner(load_game(source))
