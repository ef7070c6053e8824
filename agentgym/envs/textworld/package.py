"""The one place that imports textworld and jericho, which are neither quiet nor safe in threads.

Importing textworld draws from numpy's global generator, and its parsers of rules keep state between calls. So the
import puts the generator back, and whoever loads or generates a game holds `LOCK`. Playing needs no lock: a game's
rules are only read then, and every interpreter is a copy of the library of its own.
"""

from __future__ import annotations

import threading

import numpy as np

from agentgym.errors import MissingDependency

_numpy_state = np.random.get_state()
try:
    import jericho
    import textworld
    from textworld import GameOptions
    from textworld.challenges import CHALLENGES
    from textworld.generator import GameMaker, make_game
    from textworld.generator.data import BUILTIN_DATA_PATH, KnowledgeBase
    from textworld.generator.game import Game, GameProgression
    from textworld.generator.inform7.world2inform7 import I7_DEFAULT_PATH, Inform7Game
    from textworld.logic import State
except ImportError as error:
    raise MissingDependency(
        f"TextWorld needs the package textworld: pip install 'agentgym-suite[text]' ({error})"
    ) from None
finally:
    np.random.set_state(_numpy_state)

__all__ = [
    "BUILTIN_DATA_PATH",
    "CHALLENGES",
    "I7_DEFAULT_PATH",
    "LOCK",
    "VERSION",
    "Game",
    "GameMaker",
    "GameOptions",
    "GameProgression",
    "Inform7Game",
    "KnowledgeBase",
    "State",
    "jericho",
    "make_game",
    "textworld",
]

LOCK = threading.RLock()
VERSION: str = textworld.__version__
