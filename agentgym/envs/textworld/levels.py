"""What can be generated: challenges, their settings, and the game of a level and seed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

from agentgym.envs.textworld.inform import QuietMaker
from agentgym.envs.textworld.package import (
    BUILTIN_DATA_PATH,
    CHALLENGES,
    LOCK,
    GameOptions,
    KnowledgeBase,
    jericho,
    make_game,
    textworld,
)
from agentgym.errors import TaskError, UsageError, flag, nearest, whole_number
from agentgym.tasks import Task, TaskSet

Setting: TypeAlias = int | str | bool

THEMES = ("house", "basic")

# Challenge -> its settings with their defaults. "custom" is TextWorld's generator of quests, the others are its
# challenges under TextWorld's own names.
SETTINGS: dict[str, dict[str, Setting]] = {
    "custom": {"rooms": 5, "objects": 10, "quest_length": 5, "quest_breadth": 1},
    "coin_collector": {"level": 5},
    "treasure_hunter": {"level": 5},
    "simple": {"rewards": "balanced", "goal": "detailed"},
    "cooking": {
        "recipe": 1,
        "take": 1,
        "go": 6,
        "open": True,
        "cook": True,
        "cut": False,
        "drop": False,
        "recipe_seed": 0,
    },
}
_CHOICES: dict[str, tuple[Setting, ...]] = {
    "rewards": ("dense", "balanced", "sparse"),
    "goal": ("detailed", "brief", "none"),
    "go": (1, 6, 9, 12),
}
_HIGHEST = {
    ("coin_collector", "level"): 300,
    ("treasure_hunter", "level"): 30,
    ("cooking", "recipe"): 5,
}
_LEAST = {"take": 0, "recipe_seed": 0}  # other numbers begin with 1

# Split -> first seed and number of games. Seeds of different splits never meet.
SPLITS = {"train": (0, 256), "valid": (100_000, 64), "test": (200_000, 64)}


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of game.

    Attributes:
        challenge: key of `SETTINGS`.
        theme: which words the texts are made of.
        settings: all settings of the challenge, in the order of `SETTINGS`.
    """

    challenge: str
    theme: str
    settings: tuple[tuple[str, Setting], ...]

    @classmethod
    def of(cls, challenge: str, theme: str, given: Mapping[str, Setting]) -> Level:
        """The level with the given settings and the challenge's defaults for the others.

        Raises:
            UsageError: there is no such challenge, theme, setting or value.
        """
        if not isinstance(challenge, str) or challenge not in SETTINGS:
            raise UsageError(f"unknown challenge {challenge!r}.{nearest(challenge, SETTINGS)}")
        if theme not in THEMES:
            raise UsageError(f"expected theme among {', '.join(THEMES)}, got {theme!r}")
        defaults = SETTINGS[challenge]
        for name in given:
            if name not in defaults:
                raise UsageError(f"{challenge} games have no setting {name!r}.{nearest(name, defaults)}")
        settings = {**defaults, **given}
        for name, value in settings.items():
            _check(challenge, name, value, defaults[name])
        if challenge == "cooking" and settings["take"] > settings["recipe"]:  # type: ignore[operator]  # both numbers
            raise UsageError(f"expected take <= recipe, got {settings['take']} > {settings['recipe']}")
        breadth, length = settings.get("quest_breadth", 1), settings.get("quest_length", 1)
        if breadth > 1 and length < 2 * breadth:  # type: ignore[operator]  # all three are numbers
            raise UsageError(
                f"expected quest_length >= {2 * breadth} for quest_breadth={breadth}, got {length}"
            )  # type: ignore[operator]
        return cls(challenge, theme, tuple((name, settings[name]) for name in defaults))

    @property
    def max_turns(self) -> int:
        """Steps that a policy is given by default: TextWorld's 50, and 100 where its own solution may need more."""
        settings = dict(self.settings)
        steps = int(settings.get("quest_length", 0))
        if self.challenge == "coin_collector":
            steps = (int(settings["level"]) - 1) % 100 + 1  # rooms from the start to the coin
        return 100 if self.challenge == "cooking" or steps > 25 else 50

    @property
    def name(self) -> str:
        """The level in one word, for ids and folders."""
        words = [f"{name.replace('_', '')}{_short(value)}" for name, value in self.settings]
        return "-".join([self.challenge, self.theme, *words])


def _check(challenge: str, name: str, value: object, default: Setting) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name] or isinstance(value, bool):
            expected = ", ".join(map(str, _CHOICES[name]))
            raise UsageError(f"expected {name} among {expected}, got {value!r:.60}")
    elif isinstance(default, bool):
        flag(name, value)
    else:
        number = whole_number(name, value, least=_LEAST.get(name, 1))
        highest = _HIGHEST.get((challenge, name), number)
        if number > highest:
            raise UsageError(f"expected {name} <= {highest} for {challenge}, got {number}")


def _short(value: Setting) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def level_tasks(level: Level) -> TaskSet:
    """The games of a level, in three splits with seeds of their own."""
    tasks = [
        Task(f"{level.name}/{split}-{number:03}", split=split, data=_task_data(level, first + number))
        for split, (first, count) in SPLITS.items()
        for number in range(count)
    ]
    return TaskSet(tasks, name=f"TextWorld {level.name}")


def _task_data(level: Level, seed: int) -> dict[str, Any]:
    return {
        "challenge": level.challenge,
        "theme": level.theme,
        "settings": dict(level.settings),
        "seed": seed,
    }


def generate(level: Level, seed: int, split: str) -> str:
    """The game of a level and a seed, as the JSON that textworld reads.

    The same seed gives the game that ``tw-make --seed`` makes with these settings.

    Args:
        level: the kind of game.
        seed: from 0 to 2**32 - 1.
        split: cooking has other food and recipes, "simple" another food, in "test"; cooking also in "valid".

    Raises:
        TaskError: textworld finds no such game.
    """
    options = GameOptions()
    options.seeds = seed
    options.grammar.theme = level.theme
    settings = dict(level.settings)
    with LOCK:
        # By default textworld would look for a folder textworld_data where the process happens to be.
        options.kb = KnowledgeBase.load(BUILTIN_DATA_PATH)
        try:
            game = (
                _custom(options, settings)
                if level.challenge == "custom"
                else _challenge(level, options, split)
            )
        except Exception as error:  # it fails with whatever its search ran into
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(":")
            raise TaskError(f"textworld makes no game of {level.name} with seed {seed}: {reason}") from error
        return json.dumps(game.serialize())


def _custom(options: Any, settings: Mapping[str, Setting]) -> Any:
    options.nb_rooms = settings["rooms"]
    options.nb_objects = settings["objects"]
    options.quest_length = settings["quest_length"]
    options.quest_breadth = settings["quest_breadth"]
    return make_game(options)


def _challenge(level: Level, options: Any, split: str) -> Any:
    make = CHALLENGES[f"tw-{level.challenge}"][1]
    more: dict[str, dict[str, Any]] = {
        "simple": {"test": split == "test"},
        "cooking": {"split": split if split in SPLITS else None},
    }
    settings = {**dict(level.settings), **more.get(level.challenge, {})}
    with mock.patch.object(textworld, "GameMaker", QuietMaker), warnings.catch_warnings():
        warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
        return make(settings=settings, options=options)
