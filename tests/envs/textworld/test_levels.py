"""Levels: which settings there are, what is refused, and which tasks a level has."""

from __future__ import annotations

from typing import Any

import pytest

from agentgym.envs.textworld import TextWorldEnv
from agentgym.envs.textworld.levels import Level, generate, level_tasks
from agentgym.errors import TaskError, UsageError


def test_defaults_fill_what_is_not_given() -> None:
    level = Level.of("custom", "house", {"rooms": 2})
    assert dict(level.settings) == {"rooms": 2, "objects": 10, "quest_length": 5, "quest_breadth": 1}
    assert level.name == "custom-house-rooms2-objects10-questlength5-questbreadth1"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"challenge": "coin_colector"}, "Did you mean 'coin_collector'"),
        ({"theme": "castle"}, "theme among house, basic, got 'castle'"),
        ({"rooms": 0}, "rooms to be a whole number >= 1, got 0"),
        ({"rooms": True}, "rooms to be a whole number"),
        ({"level": 3}, "custom games have no setting 'level'"),
        ({"challenge": "treasure_hunter", "level": 31}, "level <= 30 for treasure_hunter, got 31"),
        ({"challenge": "cooking", "settings": {"recipes": 2}}, "Did you mean 'recipe'"),
        ({"challenge": "cooking", "settings": {"go": 2}}, "go among 1, 6, 9, 12, got 2"),
        ({"challenge": "cooking", "settings": {"cut": 1}}, "cut to be True or False, got 1"),
        ({"challenge": "cooking", "settings": {"take": 2}}, "take <= recipe, got 2 > 1"),
        ({"challenge": "cooking", "settings": {"recipe": 6}}, "recipe <= 5 for cooking, got 6"),
        ({"challenge": [1]}, r"unknown challenge \[1\]"),
        ({"settings": 5}, "settings to be .* got 5"),
        ({"settings": "go"}, "settings to be .* got 'go'"),
        ({"quest_length": 3, "quest_breadth": 2}, "quest_length >= 4 for quest_breadth=2, got 3"),
        ({"games": ""}, "expected a game file .* got ''"),  # not the folder one stands in
        ({"challenge": "simple", "settings": {"goal": "long"}}, "goal among detailed, brief, none"),
        ({"games": "x", "rooms": 2}, "one of: a challenge with its settings, games=..., tasks=..."),
        ({"tasks": [], "challenge": "simple"}, "one of: a challenge"),
        ({"split": "dev"}, "no split 'dev'"),
        ({"intermediate_reward": "no"}, "intermediate_reward to be True or False, got 'no'"),
    ],
)
def test_wrong_keywords(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TextWorldEnv(**keywords)


def test_splits_have_seeds_of_their_own() -> None:
    tasks = level_tasks(Level.of("custom", "house", {}))
    sizes = {split: len(tasks.split(split)) for split in tasks.splits}
    assert sizes == {"train": 256, "valid": 64, "test": 64}
    assert len({task.data["seed"] for task in tasks}) == 384


@pytest.mark.parametrize(
    ("challenge", "settings", "turns"),
    [
        ("custom", {}, 50),
        ("custom", {"quest_length": 26}, 100),
        ("coin_collector", {"level": 25}, 50),
        ("coin_collector", {"level": 126}, 100),  # the 26th of its hundred
        ("cooking", {}, 100),
    ],
)
def test_turns_suffice(challenge: str, settings: dict[str, Any], turns: int) -> None:
    assert Level.of(challenge, "house", settings).max_turns == turns


@pytest.mark.slow
def test_what_cannot_be_generated_is_told() -> None:
    level = Level.of("coin_collector", "house", {"level": 280})
    with pytest.raises(TaskError, match=r"no game of coin_collector-house-level280 with seed 7: .*100 rooms"):
        generate(level, 7, "train")
