"""The original WebShop's server of sessions and its text environment, made anew.

`Server` is built as the original is after ``random.seed(42)``, with a generator of its own in place of Python's global
one. `Player` is the original's `WebAgentTextEnv`: it goes on after a purchase.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence

from agentgym.envs.webshop.catalogue import Catalogue
from agentgym.envs.webshop.goals import (
    Goal,
    GoalDraw,
    draw_prices,
    human_goals,
    original_goals,
    synthetic_goals,
)
from agentgym.envs.webshop.reward import Nouns
from agentgym.envs.webshop.screen import Screen
from agentgym.envs.webshop.session import ORIGINAL, Session
from agentgym.envs.webshop.shop import Shop
from agentgym.errors import TaskError, UsageError

SEED = 42  # of the generator right before construction


class Server:
    """Prices, goals and sessions of one shop.

    Args:
        catalogue: the products.
        nouns: finds the nouns of a title.
        human_goals: goals that people wrote, or synthetic ones.
        limit_goals: how many goals there are; -1: all.
        show_attrs: products have a page of attributes.
        seed: of the generator from which prices, ceilings and all later draws come.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        nouns: Nouns,
        *,
        human_goals: bool = False,
        limit_goals: int = -1,
        show_attrs: bool = False,
        seed: int = SEED,
    ) -> None:
        self.rng = random.Random(seed)
        prices = drawn_prices(catalogue, self.rng)
        self.shop = Shop(catalogue, nouns, quirks=ORIGINAL, prices=prices, show_attrs=show_attrs)
        made = _make_goals(catalogue, prices, self.rng, human=human_goals)
        self.goals = original_goals(made, limit_goals, self.rng)
        if not self.goals:
            raise TaskError("the shop's files give no goal of this kind")
        self._draw = GoalDraw(self.goals)
        self._sessions: dict[str, Goal] = {}

    def open(self, name: str, number: int | None, search: Callable[[str], Sequence[str]] | None) -> Session:
        """The session of a name: a known one keeps its goal, else it gets goal `number`, or one drawn."""
        if name not in self._sessions:
            self._sessions[name] = self.goals[self._draw(self.rng) if number is None else number]
        return self.shop.visit(self._sessions[name], name, self.rng, search)

    def forget_sessions(self) -> None:
        """As if nobody had been here; the original keeps every session for ever."""
        self._sessions.clear()


class Player(Screen):
    """The original's environment: sessions by name, steps without an end.

    Args:
        server: the shop.
        **kwargs: see `Screen`.
    """

    def __init__(self, server: Server, observation_mode: str = "html", **kwargs: int) -> None:
        super().__init__(observation_mode, **kwargs)
        self.server = server

    def reset(
        self, session: str | int | None = None, *, search: Callable[[str], Sequence[str]] | None = None
    ) -> str:
        """Start: an int is a goal's number and the session's name, a text only its name, None draws both."""
        drawn = self.server.rng.choices(string.ascii_lowercase, k=10) if session is None else str(session)
        number = session if isinstance(session, int) else None
        if number is not None and not -len(self.server.goals) <= number < len(self.server.goals):
            raise UsageError(f"expected the number of one of {len(self.server.goals)} goals, got {number}")
        return self.start(self.server.open("".join(drawn), number, search))


def drawn_prices(catalogue: Catalogue, rng: random.Random) -> dict[str, float]:
    """What each product costs: the one amount, or one drawn from the range."""
    return draw_prices(zip(catalogue.asins, catalogue.pricing, strict=True), rng)


def _make_goals(
    catalogue: Catalogue, prices: dict[str, float], rng: random.Random, *, human: bool
) -> list[Goal]:
    """The goals of a catalogue in the order of its products."""
    if human:
        instructions = catalogue.instructions
        asked = (catalogue.product(asin) for asin in catalogue.asins if asin in instructions)
        return human_goals(asked, instructions, prices, rng)
    return synthetic_goals(map(catalogue.product, catalogue.instructed), prices, rng)
