"""Invented catalogues: products and instructions of any number from a seed, in the shape of the official files.

Every product is drawn from a generator of its own, so the first thousand of a larger catalogue are the smaller one.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym.envs.webshop.catalogue import Catalogue, keep_catalogue
from agentgym.envs.webshop.products import NO_PRICE, Product
from agentgym.errors import whole_number

VERSION = 1  # raise it whenever other products come of a seed

_ASKED = 0.6  # share of products with an instruction
_ASIN_DIGITS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_ASIN_LENGTH = 8
_STRIDE = 611_953_751  # spreads ids; a prime, so that none comes twice


class Kind(NamedTuple):
    """A kind of product: where it stands, what titles call it, what it may have, its options, a usual price."""

    category: str
    query: str
    levels: str
    nouns: list[str]
    attributes: list[str]
    options: dict[str, list[str]]
    price: float


class Words(NamedTuple):
    """What catalogues are made of: invented.json."""

    kinds: list[Kind]
    adjectives: list[str]
    occasions: list[str]
    syllables: list[str]
    sentences: list[str]
    asking: list[str]
    choosing: list[str]


@functools.cache
def _words() -> Words:
    data = json.loads(Path(__file__).with_name("invented.json").read_text(encoding="utf-8"))
    values = data.pop("values")
    kinds = [
        Kind(
            **row
            | {
                "category": category,
                "attributes": rows["attributes"],
                "options": {name: values[choice] for name, choice in row["options"].items()},
            }
        )
        for category, rows in data.pop("categories").items()
        for row in rows["kinds"]
    ]
    return Words(kinds, **data)


def invented_catalogue(count: int = 1000, seed: int = 0) -> Catalogue:
    """A catalogue of `count` invented products, made once and then read from the cache."""
    whole_number("num_products", count, least=1)
    whole_number("catalogue_seed", seed, least=0)

    def make() -> tuple[Iterator[Product], Mapping[str, list[dict[str, Any]]]]:
        instructions: dict[str, list[dict[str, Any]]] = {}
        return _products(count, seed, instructions), instructions

    return keep_catalogue(f"invented-{VERSION}-{count}-{seed}", make)


def _products(count: int, seed: int, instructions: dict[str, list[dict[str, Any]]]) -> Iterator[Product]:
    """The products in order; `instructions` fills as they are drawn."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        product = _product(_asin(number), rng)
        if product.attributes and rng.random() < _ASKED:
            instructions[product.asin] = [_instruction(product, rng)]
        yield product


def _product(asin: str, rng: random.Random) -> Product:
    words = _words()
    kind = rng.choice(words.kinds)
    brand = "".join(rng.choice(words.syllables) for _ in range(rng.choice((2, 3)))).capitalize()
    attributes = rng.sample(kind.attributes, rng.randint(1, 4))
    shown = [attribute.title() for attribute in attributes[: rng.randint(0, 2)]]
    title = ", ".join(
        [
            f"{brand} {rng.choice(words.adjectives)} {rng.choice(kind.nouns)}{rng.choice(words.occasions)}",
            *shown,
        ]
    )
    bullets = [f"{attribute.capitalize()}: {rng.choice(words.sentences)}" for attribute in attributes[1:]]
    options, images = _options(kind, asin, rng)
    return Product(
        asin=asin,
        title=title,
        description=f"{brand} {kind.query}. {rng.choice(words.sentences)} {rng.choice(words.sentences)}",
        bullets=(*bullets, rng.choice(words.sentences)),
        pricing=_pricing(kind, rng),
        options=options,
        option_images=images,
        image=f"https://img.example.invalid/{asin}.jpg",
        category=kind.category,
        query=kind.query,
        product_category=kind.levels,
        attributes=tuple(attributes),
        instruction=f"Find me {', '.join(attributes[:2])} {kind.query}",
        instruction_attributes=tuple(attributes[:2]),
    )


def _options(
    kind: Kind, asin: str, rng: random.Random
) -> tuple[dict[str, tuple[str, ...]], dict[str, str | None]]:
    """Some of the kind's options, each with some of its values. Only the first has pictures."""
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str | None] = {}
    for name, values in kind.options.items():
        if rng.random() < 0.85:
            options[name] = tuple(rng.sample(values, rng.randint(2, min(6, len(values)))))
            pictured = len(options) == 1
            images |= {
                value: f"https://img.example.invalid/{asin}-{number}.jpg" if pictured else None
                for number, value in enumerate(options[name])
            }
    return options, images


def _pricing(kind: Kind, rng: random.Random) -> tuple[float, ...]:
    if rng.random() < 0.05:
        return NO_PRICE
    low = round(kind.price * rng.uniform(0.4, 2.5), 2)
    return (low,) if rng.random() < 0.8 else (low, round(low * rng.uniform(1.1, 2.0), 2))


def _instruction(product: Product, rng: random.Random) -> dict[str, Any]:
    """A row as in items_human_ins: some attributes and some options, in words."""
    wanted = rng.sample(product.attributes, rng.randint(1, min(3, len(product.attributes))))
    names = [name for name in product.options if rng.random() < 0.7]
    chosen = {name: rng.choice(product.options[name]) for name in names}
    text = rng.choice(_words().asking).format(query=product.query, attributes=_and(wanted))
    if chosen:
        text += rng.choice(_words().choosing).format(
            options=_and([f"{value} {name}" for name, value in chosen.items()])
        )
    return {
        "asin": product.asin,
        "instruction": text,
        "attributes": list(product.attributes),
        "options": [f"{name}: {value}" for name, value in chosen.items()],
        "instruction_attributes": wanted,
        "instruction_options": list(chosen.values()),
    }


def _and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _asin(number: int) -> str:
    base = len(_ASIN_DIGITS)
    rest = (number + 1) * _STRIDE % base**_ASIN_LENGTH
    digits = ""
    for _ in range(_ASIN_LENGTH):
        rest, digit = divmod(rest, base)
        digits += _ASIN_DIGITS[digit]
    return "X0" + digits
