"""What the shop shows: pages as data, as plain text, as rich text, and what can be clicked on them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from agentgym.envs.webshop.products import Product, visible

SEPARATOR = " [SEP] "
PER_PAGE = 10

SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
DESCRIPTION, FEATURES, REVIEWS, ATTRIBUTES = "Description", "Features", "Reviews", "Attributes"
SECTIONS = (DESCRIPTION, FEATURES, REVIEWS, ATTRIBUTES)

PageName = Literal["index", "search_results", "item_page", "item_sub_page", "done"]
NodeKind = Literal["text", "button", "option", "link"]


class Node(NamedTuple):
    """One piece of visible text."""

    kind: NodeKind
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it stands.

    Attributes:
        name: which of the five.
        instruction: what is to be bought.
        keywords: what was searched for, word by word.
        number: of the page of results, from 1.
        total: how many results there are.
        products: those of this page.
        product: the one that is looked at.
        options: what was chosen so far.
        section: of the item's sub page.
        buttons: what can be pressed, in order.
        score: shown on the last page; None: hidden.
        marks: whether plain text marks the options that are chosen.
    """

    name: PageName
    instruction: str
    buttons: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    number: int = 1
    total: int = 0
    products: tuple[Product, ...] = ()
    product: Product | None = None
    options: Mapping[str, str] | None = None
    section: str = ""
    score: float | None = None
    marks: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Page:
        return self

    @property
    def item(self) -> Product:
        """The product of an item's page."""
        assert self.product is not None, f"a page {self.name} has no product"
        return self.product

    @property
    def chosen(self) -> Mapping[str, str]:
        """The options chosen so far."""
        return self.options or {}


class Clickable(NamedTuple):
    """What a text of a page is: a button, a product's link, or a value of the option `name`."""

    kind: NodeKind
    name: str = ""


def clickables(page: Page) -> dict[str, Clickable]:
    """What can be clicked, by its text: buttons, then links, then option values.

    Of two with the same text the later one counts, in the place of the first.
    """
    found = {button.lower(): Clickable("button") for button in page.buttons}
    found.update((product.asin.lower(), Clickable("link")) for product in page.products)
    if page.name == "item_page":
        for name, values in page.item.options.items():
            found.update((value, Clickable("option", name)) for value in values)
    return found


def plain_text(page: Page) -> str:
    """All visible text, its pieces joined by " [SEP] "."""
    if page.name == "search_results":  # the page seen most
        parts = [node.text.strip() for node in _results_head(page)]
        for product in page.products:
            parts.append(product.asin)
            parts += [text.strip() for text in product.result_texts]
        return SEPARATOR.join(parts)
    chosen = set(page.chosen.values()) if page.marks else ()
    return SEPARATOR.join(
        f"{node.text.strip()} (chosen)"
        if node.kind == "option" and node.text in chosen
        else node.text.strip()
        for node in nodes(page)
    )


def rich_text(page: Page, url: str, visited: Collection[str]) -> str:
    """One line for each piece of text, with marks around what can be clicked and what has been.

    An option counts as clicked where it stands in quotes in the address, as in the original.
    """
    lines: list[str] = []
    for kind, text in nodes(page):
        if kind == "button":
            lines.append(f"[button] {text} [button_]")
        elif kind == "option" and f'"{text}"' in url:
            lines.append(f"  [clicked button] {text} [clicked button_]")
            lines.insert(0, f"You have clicked {text}.")
        elif kind == "option":
            lines.append(f"  [button] {text} [button_]")
        elif kind == "link":
            mark = "clicked button" if text in visited else "button"
            lines.append(f"\n[{mark}] {text} [{mark}_]")
        else:
            lines.append(text)
    return "".join(f"{line}\n" for line in lines)


def nodes(page: Page) -> list[Node]:
    """The pieces of visible text, in order, with the blanks that an HTML parser leaves."""
    if page.name == "index":
        return [*_texts("WebShop", "Instruction: ", page.instruction), *_buttons(page.buttons)]
    if page.name == "search_results":
        found = _results_head(page)
        for product in page.products:
            found.append(Node("link", product.asin))
            found += (Node("text", text) for text in product.result_texts)
        return found
    if page.name == "item_page":
        return _item(page)
    if page.name == "item_sub_page":
        return [*_head(page), *_buttons(page.buttons), *_texts(*section_texts(page))]
    return _done(page)


def section_texts(page: Page) -> tuple[str, ...]:
    """What a sub page of an item says. Reviews are always empty."""
    product = page.item
    if page.section == DESCRIPTION:
        return (product.description,)
    if page.section == FEATURES:
        return tuple(f" {bullet}" for bullet in product.bullets)
    if page.section == ATTRIBUTES:
        own = tuple(f" {attribute}" for attribute in product.attributes)
        return (*own, product.category, product.query, product.product_category)
    return ()


def options_json(options: Mapping[str, str]) -> str:
    """The chosen options as the original's pages write them: sorted, ASCII, safe inside HTML."""
    text = json.dumps(options, sort_keys=True)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _texts(*texts: str) -> list[Node]:
    return [Node("text", text) for text in visible(*texts)]


def _buttons(names: tuple[str, ...]) -> list[Node]:
    return [Node("button", name) for name in names]


def _head(page: Page) -> list[Node]:
    return _texts("Instruction:", page.instruction)


def _results_head(page: Page) -> list[Node]:
    count = Node("text", f"Page {page.number} (Total results: {page.total})")
    return [*_head(page), *_buttons(page.buttons[:1]), count, *_buttons(page.buttons[1:])]


def _item(page: Page) -> list[Node]:
    found = [*_head(page), *_buttons(page.buttons[:2])]
    for name, values in page.item.options.items():
        found += _texts(name)
        found += (Node("option", value) for value in visible(*values))
    found += _texts(page.item.title, f"Price: {page.item.price_text}", "Rating: N.A.")
    return found + _buttons(page.buttons[2:])


def _done(page: Page) -> list[Node]:
    if page.score is None:
        return _texts(
            "Thank you for shopping with us!", "Purchased", page.item.asin, options_json(page.chosen)
        )
    return _texts(
        "Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased",
        "asin", page.item.asin, "options", options_json(page.chosen), "attrs", "None", "category", "None",
        "query", "None", "product category", "None", "Target", "asin", "options", "attrs", "price upper",
        "instuction text", "category", "product category", "query", "Goal ", "None",
        "Reward", "Your score (min 0.0, max 1.0)", str(page.score), "Reward Details ", "None",
    )  # fmt: skip
