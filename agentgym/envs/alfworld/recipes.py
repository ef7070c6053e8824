"""What games are to be made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.envs.alfworld.files import SPLITS, TASK_TYPES
from agentgym.errors import UsageError, flag, nearest, whole_number

MOST_COPIES = 100  # with more, drawing and planning take minutes
FORMAT = 1  # goes up when the same recipe makes other games


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which games are made, and how hard they are. Equal recipes make equal games.

    Attributes:
        count: how many, of the task types in turn.
        seed: of all that is drawn.
        split: "train", "valid_seen" or "valid_unseen". The last has four rooms of its own; the others share the rest.
        task_types: which types.
        copies: how many there are of a kind of thing, at most. More of the wanted kind are easier to find.
        distractors: how many things lie about that are not wanted, at most; None for as many as come.
        hidden: the wanted things are in closed furniture at the start, where the room has some that takes them.
        min_steps: the shortest way to win has at least so many commands.

    Raises:
        UsageError: a value makes no sense.
    """

    count: int
    seed: int = 0
    split: str = "train"
    task_types: tuple[str, ...] = TASK_TYPES
    copies: int = 3
    distractors: int | None = None
    hidden: bool = False
    min_steps: int = 1

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("seed", 0), ("copies", 1), ("min_steps", 1)):
            whole_number(name, getattr(self, name), least=least)
        if self.copies > MOST_COPIES:
            raise UsageError(f"expected copies <= {MOST_COPIES}, got {self.copies}")
        if self.distractors is not None:
            whole_number("distractors", self.distractors, least=0)
        flag("hidden", self.hidden)
        if self.split not in SPLITS:
            raise UsageError(f"unknown split {self.split!r}.{nearest(self.split, SPLITS)}")
        if not self.task_types:
            raise UsageError("expected at least one task type")
        for task_type in self.task_types:
            if task_type not in TASK_TYPES:
                raise UsageError(f"unknown task type {task_type!r}.{nearest(task_type, TASK_TYPES)}")

    @property
    def digest(self) -> str:
        """Names the recipe but for its count: a larger one begins with the games of a smaller one."""
        text = json.dumps([FORMAT, dataclasses.asdict(dataclasses.replace(self, count=1))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_recipe(options: Mapping[str, Any], **fixed: Any) -> Recipe:
    """The recipe of an environment's keyword.

    Args:
        options: the fields by name, `count` at least.
        **fixed: the fields that are not chosen there.

    Raises:
        UsageError: there is no such option, or a value makes no sense.
    """
    known = [field.name for field in dataclasses.fields(Recipe) if field.name not in fixed]
    for name in options:
        if name not in known:
            raise UsageError(f"unknown option {name!r} of generate.{nearest(name, known)}")
    return Recipe(**options, **fixed)
