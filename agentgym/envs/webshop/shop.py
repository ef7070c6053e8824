"""A shop that is open: products, prices and rules, ready for visits. Never changes; threads may share it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from agentgym.envs.webshop.catalogue import Catalogue
from agentgym.envs.webshop.goals import Goal
from agentgym.envs.webshop.products import Product
from agentgym.envs.webshop.reward import Nouns, Score, score
from agentgym.envs.webshop.session import Quirks, Session
from agentgym.errors import UsageError, flag, nearest


class Shop:
    """Where sessions take place.

    Args:
        catalogue: the products.
        nouns: finds the nouns of a title.
        quirks: what is as in the original.
        prices: what each product costs with the quirk `drawn_prices`.
        show_attrs: products have a page of attributes.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        nouns: Nouns,
        *,
        quirks: Quirks,
        prices: Mapping[str, float] | None = None,
        show_attrs: bool = False,
    ) -> None:
        self.catalogue = catalogue
        self.quirks = quirks
        self._nouns = nouns
        self._prices = prices
        self._show_attrs = show_attrs

    def __deepcopy__(self, memo: dict[int, Any]) -> Shop:
        return self

    def changed(self, quirks: Mapping[str, bool]) -> Shop:
        """The same shop with some quirks turned on or off.

        Raises:
            UsageError: there is no such quirk, or it is neither turned on nor off.
        """
        names = [quirk.name for quirk in fields(Quirks)]
        for name, on in quirks.items():
            if name not in names:
                raise UsageError(f"there is no quirk {name!r}.{nearest(name, names)}")
            flag(f"the quirk {name}", on)
        if not quirks:
            return self
        return Shop(
            self.catalogue,
            self._nouns,
            quirks=replace(self.quirks, **quirks),
            prices=self._prices,
            show_attrs=self._show_attrs,
        )

    def visit(
        self,
        goal: Goal,
        name: str,
        rng: random.Random | None = None,
        search: Callable[[str], Sequence[str]] | None = None,
    ) -> Session:
        """A new session.

        Args:
            goal: what is to be bought.
            name: of the session, part of the addresses.
            rng: for the special search word <r>, where the quirks have it.
            search: in place of the catalogue's own: query -> ids.
        """
        return Session(
            self.catalogue,
            goal,
            name=name,
            quirks=self.quirks,
            judge=self._score,
            rng=rng,
            show_attrs=self._show_attrs,
            search=search,
        )

    def _score(self, product: Product, goal: Goal, options: dict[str, str]) -> Score:
        drawn = self._prices if self.quirks.drawn_prices else None
        price = max(product.pricing) if drawn is None else drawn[product.asin]
        colours = self.quirks.colour_words
        return score(product, goal, price=price, options=options, nouns=self._nouns, colours=colours)
