"""The process in which the alfworld package plays. A script of its own: it imports nothing of this package.

    python original_player.py DESCRIPTOR PARENT

It answers requests ``(method, *arguments)`` on a `multiprocessing` connection with ``(good, answer, CPU seconds)``, and
ends with its parent: at the end of the connection, and where that is held open by a stranger, when the parent is gone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

# The text, the admissible commands, whether the game is won
Answer: TypeAlias = tuple[str, tuple[str, ...], bool]

_LOOK_FOR_PARENT_S = 0.5


class Player:
    """One environment of the package, for one game after the other: each environment keeps memory for good."""

    def __init__(self) -> None:
        # Imported, alfworld makes a folder at this path, which is otherwise in the user's home.
        os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld import EnvInfos
        from textworld.envs import PddlEnv

        self._core = PddlEnv(EnvInfos(won=True, admissible_commands=True))
        self._env = AlfredInfos(AlfredDemangler(self._core))
        self._admissible: tuple[str, ...] = ()

    def load(self, texts: Mapping[str, str]) -> None:
        """Load a game, given as the content of its file."""
        self._env.load(dict(texts))

    def reset(self) -> Answer:
        """Start an episode of the loaded game."""
        return self._answer(self._env.reset())

    def step(self, command: str) -> Answer:
        """Do what a command says."""
        possible = command.strip() in self._admissible
        state, _, _ = self._env.step(command)
        # The package takes any ValueError inside of it for an inadmissible command, and answers alike.
        if possible and self._core._last_action is None:
            raise RuntimeError(f"the admissible command {command!r} was not carried out")
        return self._answer(state)

    def anchor(self) -> str:
        """What the receptacles here and the thing in the hand show: the game's own phrases, as after a command."""
        facts: dict[str, list[tuple[Any, ...]]] = {}
        for fact in self._core._pddl_state.facts:
            facts.setdefault(fact.name, []).append(tuple(fact.arguments))
        parts = []
        for _, here in sorted(facts.get("atlocation", ()), key=str):
            for thing, place in sorted(facts.get("receptacleatlocation", ()), key=str):
                if place == here:
                    parts.append(self._phrase("#examineReceptacle.feedback#", r=thing))
        for agent, thing in sorted(facts.get("holds", ()), key=str):
            parts.append(self._phrase("#inventory.feedback#", a=agent))
            parts.append(self._phrase("#examineObject.feedback#", o=thing))
        return "\n".join(parts)

    def _phrase(self, symbol: str, **filled: Any) -> str:
        from textworld.logic import Placeholder

        entities, state = self._core._entity_infos, self._core._pddl_state
        context = {
            "state": state,
            "facts": list(state.facts),
            "variables": {name: entities[variable.name] for name, variable in filled.items()},
            "mapping": {Placeholder(name, variable.type): variable for name, variable in filled.items()},
            "entity_infos": entities,
        }
        return str(self._core._logic.grammar.derive(symbol, context))

    def _answer(self, state: Mapping[str, Any]) -> Answer:
        self._admissible = tuple(state["admissible_commands"])
        return state["feedback"], self._admissible, bool(state["won"])


def serve(requests: Connection) -> None:
    """Answer until the other end is closed. What fails is answered, too; the package may even want to exit."""
    player: Player | None = None
    while True:
        try:
            method, *arguments = requests.recv()
        except EOFError:
            return
        try:
            player = player or Player()
            good, answer = True, getattr(player, method)(*arguments)
        except (Exception, SystemExit) as error:
            good, answer = False, f"{type(error).__name__}: {error}"
        requests.send((good, answer, time.process_time()))


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_without, args=(int(sys.argv[2]),), daemon=True).start()
    serve(Connection(int(sys.argv[1])))
