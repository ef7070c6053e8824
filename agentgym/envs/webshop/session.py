"""One visit to the shop: what is on the screen, and what an action does to it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from agentgym.envs.webshop import pages
from agentgym.envs.webshop.catalogue import Catalogue
from agentgym.envs.webshop.goals import Goal
from agentgym.envs.webshop.pages import BACK, BUY, NEXT, PER_PAGE, PREVIOUS, SEARCH, SECTIONS, Clickable, Page
from agentgym.envs.webshop.products import Product
from agentgym.envs.webshop.reward import Score
from agentgym.errors import ToolError

RESULTS = 50
_BASE = "http://127.0.0.1:3000"
_RANDOM, _ATTRIBUTE, _CATEGORY, _QUERY = "<r>", "<a>", "<c>", "<q>"
_PAGE_NAMES = ("search_results", "item_page", "item_sub_page", "done")  # in the order they are looked for


@dataclass(frozen=True, slots=True)
class Quirks:
    """What of the original's behaviour is kept. `compat` keeps all of it, the default mode nothing.

    Attributes:
        search_anywhere: `search[...]` works on every page, not only where there is a search bar.
        special_words: a search that begins with <r>, <c>, <q> or <a> is a command.
        endless_results: "Next >" is there on the last page of results too, and beyond it.
        named_by_address: which page one is on is read from its address, which a searched word can mislead.
        score_shown: the last page tells the score.
        unmarked_options: plain text does not say which options are chosen.
        drawn_prices: a range's price is drawn, unseen; else it is the upper end, as the page shows it.
        colour_words: options are compared by the first colour word anywhere in them, one value for several options.
    """

    search_anywhere: bool = False
    special_words: bool = False
    endless_results: bool = False
    named_by_address: bool = False
    score_shown: bool = False
    unmarked_options: bool = False
    drawn_prices: bool = False
    colour_words: bool = False


ORIGINAL = Quirks(**{quirk.name: True for quirk in fields(Quirks)})


class Outcome(NamedTuple):
    """What an action came to.

    Attributes:
        done: something was bought.
        reward: what the purchase was worth.
        valid: the action meant something here; else nothing happened.
    """

    reward: float = 0.0
    done: bool = False
    valid: bool = True


NOTHING = Outcome(valid=False)


def read_action(action: str) -> tuple[str, str]:
    """Verb and argument of ``verb[argument]``, the argument in lower case; two empty texts for anything else.

    As the original's regular expression reads it: the last "]" of the first line that leaves an argument ends it, the
    last "[" before that begins it. (The expression itself takes time that grows with the square of the length.)
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    return (line[:start], line[start + 1 : end].lower()) if start > 0 else ("", "")


class Session:
    """A visit with one goal.

    Args:
        catalogue: the shop.
        goal: what is to be bought.
        name: of the session, part of the addresses.
        quirks: what is as in the original.
        judge: scores a purchase.
        rng: for the special search word <r>.
        show_attrs: offer the page of attributes.
        search: in place of the catalogue's own search: query -> ids.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        goal: Goal,
        *,
        name: str,
        quirks: Quirks,
        judge: Callable[[Product, Goal, dict[str, str]], Score],
        rng: random.Random | None = None,
        show_attrs: bool = False,
        search: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.goal = goal
        self.name = name
        self.quirks = quirks
        self.rng = rng
        self.score: Score | None = None
        self._judge = judge
        self._search = search or catalogue.search
        sections = SECTIONS if show_attrs else SECTIONS[:-1]
        self._item_buttons = (BACK, PREVIOUS, *sections, BUY)
        self.reset()

    def reset(self) -> None:
        """Back to the search page, with nothing looked at or chosen. A score stays."""
        self.keywords: tuple[str, ...] = ()
        self.number = 1  # of the page of results
        self.asin: str | None = None
        self.visited: set[str] = set()
        self.options: dict[str, str] = {}
        self._show(Page("index", self.goal.instruction_text, (SEARCH,)), self.name)

    def _show(self, page: Page, *place: object) -> None:
        self.page = page
        self.url = "/".join([_BASE, *map(str, place)])
        self.clickables: dict[str, Clickable] = pages.clickables(page)  # what can be clicked, by its text
        self.clicks = tuple(f"click[{text}]" for text in self.clickables)

    @property
    def has_search_bar(self) -> bool:
        """Whether the page has a search bar."""
        return self.page.name == "index"

    def act(self, action: str) -> Outcome:
        """Do one action: ``search[words]`` or ``click[text]``; the argument is taken in lower case.

        Raises:
            ToolError: where the original breaks; the page stays.
        """
        verb, argument = read_action(action)
        if verb == "search" and (self.has_search_bar or self.quirks.search_anywhere):
            self._results(tuple(argument.split(" ")), 1)
            return Outcome()
        if verb == "click" and argument != "search":
            target = self.clickables.get(argument)
            if target is not None:
                return self._click(argument, target)
        return NOTHING

    def _click(self, text: str, target: Clickable) -> Outcome:
        # As in the original, what a text says comes before what it belongs to: an option called "buy now" buys.
        here = self._page_name()
        section = next((name for name in SECTIONS if name.lower() == text), None)
        if text == BUY.lower():
            return self._buy()
        if text == BACK.lower():
            self.reset()
        elif text == NEXT.lower() and here == "search_results":
            self._results(self.keywords, self.number + 1)
        elif text == PREVIOUS.lower() and here == "search_results":
            self._results(self.keywords, self.number - 1)
        elif text == PREVIOUS.lower() and here == "item_page":
            self._results(self.keywords, self.number)
        elif section is not None:
            self._section(section)
        else:
            if target.kind == "link":
                self.asin = text.upper()
                self.visited.add(self.asin)
            elif target.kind == "option":
                self.options[target.name.lower()] = text
            self._item()
        return Outcome()

    def _page_name(self) -> str:
        if not self.quirks.named_by_address:
            return self.page.name
        return next((name for name in _PAGE_NAMES if name in self.url), "")

    # -- pages -----------------------------------------------------------------------------------------------------

    def _results(self, keywords: tuple[str, ...], number: int) -> None:
        self.keywords, self.number = keywords, number
        self.asin, self.options = None, {}
        found = self._find(keywords)
        shown = found[(number - 1) * PER_PAGE : number * PER_PAGE]
        more = self.quirks.endless_results or len(found) > number * PER_PAGE
        page = Page(
            "search_results",
            self.goal.instruction_text,
            (BACK, *([PREVIOUS] if number > 1 else []), *([NEXT] if more else [])),
            keywords=keywords,
            number=number,
            total=len(found),
            products=tuple(map(self.catalogue.product, shown)),
        )
        self._show(page, page.name, self.name, "+".join(keywords), number)

    def _find(self, keywords: tuple[str, ...]) -> Sequence[str]:
        first, rest = keywords[0], " ".join(keywords[1:]).strip()
        if self.quirks.special_words:
            if first == _RANDOM:
                if len(self.catalogue) < RESULTS:
                    raise ToolError(
                        f"{_RANDOM} draws {RESULTS} products, the shop has {len(self.catalogue)}."
                    )
                assert self.rng is not None, "the special word <r> needs a generator"
                return self.rng.sample(self.catalogue.asins, k=RESULTS)
            if first == _ATTRIBUTE:
                raise ToolError("Searching by attribute is not possible.")
            if first == _CATEGORY:
                if len(keywords) < 2:
                    raise ToolError(f"Expected a category after {_CATEGORY}.")
                category = keywords[1].strip()
                return [p.asin for p in self.catalogue.products() if p.category == category]
            if first == _QUERY:
                return [p.asin for p in self.catalogue.products() if p.query == rest]
        return self._search(" ".join(keywords))

    def _item(self) -> None:
        page = Page(
            "item_page",
            self.goal.instruction_text,
            self._item_buttons,
            product=self._product(),
            options=dict(self.options),
            marks=not self.quirks.unmarked_options,
        )
        self._show(page, page.name, *self._place(), json.dumps(self.options))

    def _section(self, section: str) -> None:
        text = self.goal.instruction_text
        page = Page("item_sub_page", text, (BACK, PREVIOUS), product=self._product(), section=section)
        self._show(page, page.name, *self._place(), section, self.options)

    def _buy(self) -> Outcome:
        product = self._product()
        self.score = self._judge(product, self.goal, self.options)
        page = Page(
            "done",
            self.goal.instruction_text,
            product=product,
            options=dict(self.options),
            score=self.score.total if self.quirks.score_shown else None,
        )
        self._show(page, page.name, self.name, self.asin, self.options)
        return Outcome(self.score.total, True)

    def _place(self) -> tuple[object, ...]:
        return self.name, self.asin, "+".join(self.keywords), self.number

    def _product(self) -> Product:
        if self.asin is None or self.asin not in self.catalogue:
            raise ToolError("There is no product on this page any more.")
        return self.catalogue.product(self.asin)
