"""What `original_player.py` is, with a toy in place of the alfworld package: its game answers with all it was told."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "agentgym" / "envs" / "alfworld"


class Toy:
    """Answers with the game's problem and the commands since the start; some commands go wrong."""

    def load(self, texts: dict[str, str]) -> None:
        if texts["pddl_problem"] == "broken":
            raise SystemExit("cannot be parsed")
        self._problem = texts["pddl_problem"]

    def reset(self) -> tuple[str, tuple[str, ...], bool]:
        self._heard: list[str] = []
        return self._answer()

    def step(self, command: str) -> tuple[str, tuple[str, ...], bool]:
        match command:
            case "die":
                os._exit(7)
            case "hang":
                signal.pause()
            case "fail":
                raise ValueError("the inside")
        self._heard.append(str(os.getpid()) if command == "forget" else command)
        return self._answer()

    def anchor(self) -> str:
        return f"anchor of {' '.join(self._heard)}"

    def _answer(self) -> tuple[str, tuple[str, ...], bool]:
        return " ".join([self._problem, *self._heard]), ("a", "b"), self._heard[-1:] == ["win"]


def main(descriptor: str, parent: str) -> None:
    sys.path.insert(0, str(FOLDER))
    import original_player

    player: Any = original_player
    player.Player = Toy
    threading.Thread(target=player._end_without, args=(int(parent),), daemon=True).start()
    player.serve(Connection(int(descriptor)))


if __name__ == "__main__":
    main(*sys.argv[1:])
