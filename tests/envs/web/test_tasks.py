"""Every bundled task is well formed, says all that it asks for, and cannot be known beforehand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agentgym.envs.web.tasks import RECIPES, SEEDS, make
from agentgym.envs.web.tasks.script import mentions, money, rounded, shows
from agentgym.errors import TaskError
from agentgym.verifiers.web.predicates import holds
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.task import CATEGORIES, Action, Assert, WebTask

IDLE = ("goto", "wait", "resize", "screenshot")
NAMES = [name for names in RECIPES.values() for name in names]
# What a brief says as "key-0 to key-9" and "error-name, error-email and so on".
IMPLIED = {f"key-{digit}" for digit in range(10)}
IMPLIED |= {f"error-{field}" for field in ("age", "password", "repeat", "town", "terms")}
every = pytest.mark.parametrize("name", NAMES)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def test_there_are_enough_and_splits_share_nothing():
    assert len(set(NAMES)) == len(NAMES) >= 24
    seeds = [seed for numbers in SEEDS.values() for seed in numbers]
    assert len(set(seeds)) == len(seeds)
    assert RECIPES.keys() == SEEDS.keys() == {"train", "dev", "test"}


@every
def test_the_rubric(name):
    for seed in range(6):
        task = parse_task(make(name, seed).task)
        assert 10 <= len(task.items) <= 20
        assert {item.category for item in task.items} == set(CATEGORIES)
        asserted = {step.item for each in task.scenarios for step in each.steps if isinstance(step, Assert)}
        assert asserted == {item.id for item in task.items}


@every
def test_nothing_counts_without_function(name):
    """Every other item requires one of function, or a page must be used for it: no look alone passes it."""
    task = parse_task(make(name, 0).task)
    functional = {item.id for item in task.items if item.category == "functionality"}
    requires = {item.id: item.requires for item in task.items}

    def rests_on_function(item: str) -> bool:
        return item in functional or any(map(rests_on_function, requires[item]))

    for item in task.items:
        assert rests_on_function(item.id) or used_before(task, item.id), item.id


def used_before(task: WebTask, item: str) -> bool:
    """Whether something is done to the page before the last assert of an item, in one of the scenarios."""
    for scenario in task.scenarios:
        asserts = [
            n for n, step in enumerate(scenario.steps) if isinstance(step, Assert) and step.item == item
        ]
        steps = scenario.steps[: asserts[-1]] if asserts else ()
        if any(isinstance(step, Action) and step.op not in IDLE for step in steps):
            return True
    return False


@every
def test_the_prompt_names_every_part_that_is_used(name):
    """What a script clicks or reads by `data-testid` stands in the brief, and the gold page has no other way either."""
    problem = make(name, 1)
    used = set()
    for text in strings(problem.task["scenarios"]):
        used |= set(re.findall(r"data-testid=([\w-]+)", text))
    named = set(re.findall(r"[\w-]+", problem.task["prompt"]))
    assert used <= named | IMPLIED


@every
def test_seeds_change_the_task(name):
    assert make(name, 3) == make(name, 3)
    prompts = {make(name, seed).task["prompt"] for seed in range(4)}
    scripts = {json.dumps(make(name, seed).task["scenarios"]) for seed in range(4)}
    assert len(scripts) == 4, "an answer learned by heart would be right again"
    if name != "calculator":  # its numbers are only typed by the judge
        assert len(prompts) > 1


@every
def test_the_gold_page_is_alone(name):
    gold = make(name, 0).gold
    assert not re.search(r"https?://|\bsrc=|@import|url\(", gold)
    assert len(gold) < 10_000
    assert "__" not in re.sub(r"__proto__", "", gold), "a placeholder is left"


def test_scripts_type_words_that_no_page_can_know():
    typed = [name for name in NAMES if "{{t1}}" in json.dumps(make(name, 0).task)]
    # The others are played with what the brief says, in an order and with numbers drawn from the seed.
    rest = {"calculator", "lights", "memory", "pricing", "quiz", "router", "timer"}
    assert set(NAMES) - set(typed) == rest


def test_an_unknown_recipe():
    with pytest.raises(TaskError, match="kanban"):
        make("kanbam", 0)


@pytest.mark.parametrize(
    ("text", "shown", "mentioned"),
    [
        ("12.50", True, True),
        ("Total: 12.50 EUR.", True, True),
        ("2 for 12.50", False, True),
        ("112.50", False, False),
        ("12.505", False, False),
        ("2.12.50", False, False),
        ("12 50", False, False),
    ],
)
def test_a_number_is_found_only_whole(text, shown, mentioned):
    assert holds(text, shows("12.50")) is shown
    assert holds(text, mentions("12.50")) is mentioned


def test_money():
    assert [money(cents) for cents in (5, 250, 12345)] == ["0.05", "2.50", "123.45"]


def test_rounded():
    """100 * n / 8 for n = 0, 1, 3, 4, 8 is 0, 12.5, 37.5, 50, 100; thirds have one nearest number."""
    assert [rounded(100 * part, 8) for part in (0, 1, 3, 4, 8)] == [[0], [12, 13], [37, 38], [50], [100]]
    assert (rounded(100, 3), rounded(200, 3)) == ([33], [67])
