"""Products as the shop shows them, and how a row of the official product file becomes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from agentgym.errors import TaskError

NO_PRICE = (100.0,)  # of a product without one
NO_ATTRIBUTES = ("DUMMY_ATTR",)

_MARK = " \t\n\f\r"  # what an HTML parser takes for blank


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        asin: its id.
        title: one line.
        description: a paragraph.
        bullets: the feature list.
        pricing: in dollars; one amount, or the two ends of a range.
        options: option name -> its values, all lower case.
        option_images: value -> address of its picture.
        image: address of the picture.
        category: one of five.
        query: the search word it is filed under.
        product_category: levels joined by " › ".
        attributes: what it is known to have.
        instruction: what a synthetic goal asks for; None where there is none.
        instruction_attributes: the attributes in it.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    pricing: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    option_images: Mapping[str, str | None]
    image: str
    category: str
    query: str
    product_category: str
    attributes: tuple[str, ...]
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Product:
        return self

    @cached_property
    def price_text(self) -> str:
        """What the page says: "$8.99" or "$5.0 to $7.5"."""
        return " to ".join(f"${amount}" for amount in self.pricing)

    @cached_property
    def result_texts(self) -> tuple[str, ...]:
        """What a list of results shows beside the id."""
        return visible(self.title, self.price_text)

    @cached_property
    def searchable(self) -> str:
        """What the search engine indexes."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join([self.title, self.description, first, options]).lower()

    @cached_property
    def evidence(self) -> tuple[str, str, str]:
        """Where a goal's attributes are looked for beside `attributes`: title, features, description; lower case."""
        return self.title.lower(), " ".join(self.bullets).lower(), self.description.lower()


def visible(*texts: str) -> tuple[str, ...]:
    """The texts that show on a page: an HTML parser drops empty ones and those of blanks with a line break."""
    return tuple(
        text if text.strip(_MARK) else " "
        for text in texts
        if text and (text.strip(_MARK) or "\n" not in text)
    )


def read_product(row: Mapping[str, Any], attributes: Mapping[str, Any]) -> Product:
    """A product from a row of items_shuffle and its entry of items_ins_v2 (empty where there is none).

    Raises:
        TaskError: a key is missing or of another form; names it.
    """
    try:
        bullets = row["small_description"]
        options, images = _options(row["customization_options"] or {})
        return Product(
            asin=row["asin"],
            title=row["name"],
            description=row["full_description"],
            bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
            pricing=_pricing(row.get("pricing") or ""),
            options=options,
            option_images=images,
            image=row["images"][0],
            category=row["category"],
            query=row["query"].lower().strip(),
            product_category=row["product_category"],
            attributes=tuple(attributes.get("attributes", NO_ATTRIBUTES)),
            instruction=attributes.get("instruction"),
            instruction_attributes=tuple(attributes.get("instruction_attributes") or ()),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise TaskError(
            f"product {row.get('asin')!r}: expected the form of WebShop's items_shuffle files, got {error!r}"
        ) from None


def _pricing(text: str) -> tuple[float, ...]:
    if not text:
        return NO_PRICE
    try:
        amounts = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in text.split("$")[1:]]
    except InvalidOperation:
        amounts = []
    if not amounts:
        raise TaskError(f"expected a price such as '$8.99' or '$5.00 - $7.50', got {text!r:.60}")
    return tuple(amounts[:2])


def _options(rows: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], dict[str, str | None]]:
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str | None] = {}
    for name, contents in rows.items():
        if contents is None:
            continue
        values = []
        for content in contents:
            value = content["value"].strip().replace("/", " | ").lower()
            images[value] = content.get("image")
            values.append(value)
        options[name.lower()] = tuple(values)
    return options, images
