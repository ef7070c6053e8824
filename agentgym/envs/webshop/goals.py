"""Goals: what is to be bought, made of products and instructions as the original WebShop makes them."""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from agentgym.envs.webshop.products import Product
from agentgym.errors import TaskError

NO_CEILING = 1000000
_CEILINGS = tuple(10.0 * step for step in range(1, 100))


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be bought.

    Attributes:
        asin: the product the instruction was written for.
        category, query, name, product_category: of that product.
        instruction_text: what the policy reads.
        attributes: what the product must have.
        price_upper: the most it may cost, in dollars; `NO_CEILING` where any price will do.
        goal_options: values to choose; in synthetic goals with their option names.
        weight: how often it is drawn, next to others.
    """

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: tuple[str, ...]
    price_upper: float
    goal_options: tuple[str, ...] | Mapping[str, str]
    weight: float = 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Goal:
        return self

    def to_json(self) -> dict[str, Any]:
        """As the original writes it."""
        options = self.goal_options
        plain = dict(options) if isinstance(options, Mapping) else list(options)
        own = {name: getattr(self, name) for name in Goal.__dataclass_fields__}
        return own | {"attributes": list(self.attributes), "goal_options": plain}


def draw_prices(pricing: Iterable[tuple[str, Sequence[float]]], rng: random.Random) -> dict[str, float]:
    """What each product costs: the one amount, or one drawn from the two ends of a range.

    Args:
        pricing: asin and amounts, in the order of the file.
        rng: draws.
    """
    return {
        asin: amounts[0] if len(amounts) == 1 else rng.uniform(amounts[0], amounts[1])
        for asin, amounts in pricing
    }


def price_ceiling(price: float, rng: random.Random) -> tuple[float, str]:
    """The most a product of this price may cost, and how the instruction says so."""
    above = [ceiling for ceiling in _CEILINGS if ceiling > price][:4]
    if len(above) < 2:
        return NO_CEILING, ""
    ceiling = max(rng.sample(above, 2))
    return ceiling, f", and price lower than {ceiling:.2f} dollars"


def human_goals(
    products: Iterable[Product],
    instructions: Mapping[str, Sequence[Mapping[str, Any]]],
    prices: Mapping[str, float],
    rng: random.Random,
) -> list[Goal]:
    """One goal for each instruction that people wrote and that names an attribute.

    Args:
        products: in the order of the file.
        instructions: asin -> rows of items_human_ins.
        prices: what each product costs.
        rng: draws the price ceilings.
    """
    goals = []
    for product in products:
        for row in instructions.get(product.asin, ()):
            try:
                attributes, text = row["instruction_attributes"], row["instruction"].strip(".")
                options = tuple(row["instruction_options"])
            except (KeyError, AttributeError, TypeError) as error:
                raise TaskError(
                    f"instructions of {product.asin!r}: expected the form of items_human_ins.json, got {error!r}"
                ) from None
            if attributes:
                ceiling, suffix = price_ceiling(prices[product.asin], rng)
                goals.append(_goal(product, text + suffix, attributes, ceiling, options))
    return goals


def synthetic_goals(
    products: Iterable[Product], prices: Mapping[str, float], rng: random.Random
) -> list[Goal]:
    """One goal for each combination of option values of every product with an instruction."""
    goals = []
    for product in products:
        if product.instruction is None:
            continue
        if not product.instruction_attributes:
            raise TaskError(
                f"product {product.asin!r}: expected instruction_attributes beside its instruction"
            )
        ceiling, suffix = price_ceiling(prices[product.asin], rng)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = product.instruction + (f" with {chosen}" if chosen else "") + suffix
            goals.append(_goal(product, text, product.instruction_attributes, ceiling, options))
    counts = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [_weighted(goal, counts) for goal in goals]


def _goal(
    product: Product,
    text: str,
    attributes: Sequence[str],
    ceiling: float,
    options: tuple[str, ...] | Mapping[str, str],
) -> Goal:
    return Goal(
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        text,
        tuple(attributes),
        ceiling,
        options,
    )


def _weighted(goal: Goal, counts: Mapping[str, int]) -> Goal:
    weight = sum(1.0 / counts[attribute] for attribute in goal.attributes) / len(goal.attributes)
    return replace(goal, weight=weight)


class GoalDraw:
    """Draws goals by weight as the original does, off by one: goal 0 never comes, the last has two shares."""

    def __init__(self, goals: Sequence[Goal]) -> None:
        self._sums = [0, *accumulate(goal.weight for goal in goals)]

    def __call__(self, rng: random.Random) -> int:
        """The number of a goal."""
        position = rng.uniform(0, self._sums[-1])
        return min(bisect(self._sums, position), len(self._sums) - 2)


def original_goals(goals: list[Goal], limit: int, rng: random.Random) -> list[Goal]:
    """The goals in the original's order, cut to `limit` drawn ones (-1: all). Leaves `rng` where the original does."""
    rng.seed(233)
    goals = list(goals)
    rng.shuffle(goals)
    if limit == -1 or limit >= len(goals):
        return goals
    draw = GoalDraw(goals)
    chosen: dict[int, None] = {}
    while len(chosen) < limit:
        chosen[draw(rng)] = None
    return [goals[number] for number in chosen]
