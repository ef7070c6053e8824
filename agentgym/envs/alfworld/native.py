"""The symbolic engine: game files in, the transcript of the original out."""

from __future__ import annotations

import functools
from typing import Any

from agentgym.envs.alfworld.engines import Reply
from agentgym.envs.alfworld.files import GameFile
from agentgym.envs.alfworld.grammar import Filled, Scene
from agentgym.envs.alfworld.grammar_text import read_grammar, read_template
from agentgym.envs.alfworld.names import number_names
from agentgym.envs.alfworld.pddl import read_domain, read_problem
from agentgym.envs.alfworld.relations import State
from agentgym.envs.alfworld.sources import Source, read_game
from agentgym.envs.alfworld.world import Move, World
from agentgym.errors import TaskError

NOTHING = "Nothing happens."
CACHED_GAMES = 128
_MOST_OFFERS = 1000  # a bound for odd games: of ALFWorld's there is one for each action and place

_INTRO = read_template("#intro#")
_EXAMINE_PLACE = read_template("#examineReceptacle.feedback#")
_EXAMINE_THING = read_template("#examineObject.feedback#")
_INVENTORY = read_template("#inventory.feedback#")
_read_domain = functools.lru_cache(8)(read_domain)  # all games of one version share it


class Game:
    """A game, compiled. Its states are plain values, so any number of episodes and threads share it.

    Args:
        file: the texts of the game.

    Attributes:
        world: its rules.
        goal: what has to become true.

    Raises:
        TaskError: they can't be read.
    """

    def __init__(self, file: GameFile) -> None:
        problem = read_problem(file.problem)
        self.goal = problem.goal
        self.world = World(_read_domain(file.domain), problem)
        self._grammar = read_grammar(file.grammar)
        # What stands in no fact is in no place: it counts for nothing, and is never spoken of.
        named = number_names({name for _, row in problem.facts for name in row})
        self._names = {name: named.get(name, name) for name in self.world.types} | named
        missing = self.world.parameters.keys() - self._grammar.actions.keys()
        if missing:
            raise TaskError(f"the game's grammar has no phrases for the action {min(missing)!r}")
        self._lasting = frozenset(
            name
            for name, phrases in self._grammar.actions.items()
            if self._grammar.predicates(phrases.command).isdisjoint(self.world.changing)
        )
        self._commands: dict[Move, str] = {}  # empty for a move that is none
        self._offered: dict[tuple[Any, ...], list[tuple[str, Move]]] = {}

    @property
    def start(self) -> State:
        """The first state."""
        return self.world.start

    @functools.cached_property
    def intro(self) -> str:
        """The first observation."""
        return self._grammar.write(_INTRO, self._scene(self.start), {})

    @functools.cached_property
    def first_moves(self) -> dict[str, Move]:
        """What can be done at the start."""
        return self.moves(self.start)

    def won(self, state: State) -> bool:
        """Whether the goal is reached."""
        return self.world.won(state)

    def moves(self, state: State) -> dict[str, Move]:
        """What can be done, by its command, in the order of the commands."""
        moves: dict[str, Move] = {}
        for action in self.world.parameters:
            for command, move in self._offers(action, state):
                moves.setdefault(command, move)
        return dict(sorted(moves.items()))

    def play(self, state: State, move: Move) -> tuple[State, str]:
        """The state after a possible move, and its answer."""
        after = self.world.apply(state, move)
        answer = self._grammar.actions[move.action].answer
        return after, self._grammar.write(answer, self._scene(after), self._filled(move))

    def describe(self, state: State) -> str:
        """What the receptacles here and the thing in the hand show, in the words of the game."""
        parts = []
        for _, place in sorted(state["atlocation"].rows):
            for name, _ in state["receptacleatlocation"].by((1,)).get(place, ()):
                parts.append((_EXAMINE_PLACE, {("r", "receptacle"): name}))
        for agent, thing in sorted(state["holds"].rows):
            parts.append((_INVENTORY, {("a", "agent"): agent}))
            parts.append((_EXAMINE_THING, {("o", "object"): thing}))
        scene = self._scene(state)
        return "\n".join(self._grammar.write(template, scene, filled) for template, filled in parts)

    def _offers(self, action: str, state: State) -> list[tuple[str, Move]]:
        """What can be done of one action.

        Where it depends on one thing that changes, as going somewhere does on where one is, the answer is kept: these
        are most of a game's commands.
        """
        reads = self.world.reads[action]
        keep = len(reads) <= 1 and action in self._lasting
        key = (action, *(state[name].rows for name in reads)) if keep else ()
        if keep and key in self._offered:
            return self._offered[key]
        moves = ((self.command(state, move), move) for move in self.world.moves(action, state))
        offers = [(command, move) for command, move in moves if command]
        if keep and len(self._offered) < _MOST_OFFERS:
            self._offered[key] = offers
        return offers

    def command(self, state: State, move: Move) -> str:
        """How a move is said; empty for one that does nothing."""
        if (known := self._commands.get(move)) is not None:
            return known
        template = self._grammar.actions[move.action].command if self.world.does_something(move) else ()
        command = self._grammar.write(template, self._scene(state), self._filled(move))
        if move.action in self._lasting:
            self._commands[move] = command
        return command

    def _filled(self, move: Move) -> Filled:
        return dict(zip(self.world.parameters[move.action], move.objects, strict=True))

    def _scene(self, state: State) -> Scene:
        return Scene(state, self._names, self.world.is_kind)


class NativeEngine:
    """One episode at a time of one game.

    Args:
        source: where the game comes from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._game = load_game(source)
        self._state = self._game.start
        self._moves: dict[str, Move] = {}

    def reset(self) -> Reply:
        """Start."""
        self._state, self._moves = self._game.start, self._game.first_moves
        return self._reply(self._game.intro)

    def step(self, command: str) -> Reply:
        """Do what a command says; one that is not admissible changes nothing."""
        move = self._moves.get(command.strip())
        if move is None:
            return self._reply(NOTHING)
        self._state, answer = self._game.play(self._state, move)
        self._moves = self._game.moves(self._state)
        return self._reply(answer)

    def _reply(self, obs: str) -> Reply:
        return Reply(obs, tuple(self._moves), self._game.won(self._state))

    def anchor(self) -> str:
        """What is here and what is carried, without doing anything."""
        return self._game.describe(self._state)

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeEngine:
        twin = NativeEngine.__new__(NativeEngine)
        twin.__dict__ |= self.__dict__  # nothing of it is ever changed in place
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "_state": self._state, "_moves": self._moves}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved, _game=load_game(saved["_source"]))


@functools.lru_cache(CACHED_GAMES)
def load_game(source: Source) -> Game:
    """The game of a source, compiled. The last ones are kept, so a file that is changed is not read again."""
    return Game(read_game(source))
