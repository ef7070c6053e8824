"""The bundled web tasks: recipes that draw a task from a seed, each with a page that meets it.

from agentgym.envs.web.tasks import make

problem = make("kanban", seed=3)
problem.task  # an object of the web task format
problem.gold  # the page that gets 1.0
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from agentgym.envs.web.tasks.script import GROUND_RULES, Draft
from agentgym.errors import TaskError, nearest

# Recipes by split: what a page of the test split does is in no task that is trained on.
RECIPES: Mapping[str, tuple[str, ...]] = {
    "train": tuple(
        "calculator cart chart dialog faq kanban memory notes quiz router search signup table tabs timer wizard".split()
    ),
    "dev": ("converter", "gallery", "poll", "tree"),
    "test": ("calendar", "invoice", "lights", "pricing"),
}
# Which seeds a split draws from: no two splits share one, should a recipe ever move.
SEEDS: Mapping[str, range] = {"train": range(4), "dev": range(1000, 1002), "test": range(2000, 2002)}


@dataclass(frozen=True, slots=True)
class Problem:
    """A task and a page that meets it.

    Attributes:
        recipe, seed: what it was drawn from.
        task: an object of the web task format (docs/web-judge.md).
        gold: the HTML of a page that gets 1.0.
    """

    recipe: str
    seed: int
    task: Mapping[str, Any]
    gold: str


def make(recipe: str, seed: int) -> Problem:
    """Draw a task.

    Args:
        recipe: one of `RECIPES`.
        seed: of names, numbers and orders; equal seeds give equal tasks.

    Raises:
        TaskError: there is no such recipe.
    """
    known = [name for names in RECIPES.values() for name in names]
    if recipe not in known:
        raise TaskError(f"no recipe {recipe!r} for web tasks.{nearest(recipe, known)}")
    draft: Draft = importlib.import_module(f"{__name__}.{recipe}").make(seed)
    task = {
        "id": f"{recipe}-{seed}",
        "prompt": f"{draft.prompt}\n\n{GROUND_RULES}",
        "items": list(draft.items),
        "scenarios": [scenario.to_json() for scenario in draft.scenarios],
    }
    data = json.dumps(draft.data, ensure_ascii=False).replace("<", "\\u003c")
    gold = _text("shell.html").replace("__PAGE__", _text(f"{recipe}.html")).replace("__DATA__", data)
    return Problem(recipe, seed, task, gold)


@functools.cache
def _text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
