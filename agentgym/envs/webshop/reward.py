"""What a purchase is worth: type, attributes, options and price, as WebShop scores them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from agentgym.envs.webshop.goals import Goal
from agentgym.envs.webshop.products import Product
from agentgym.errors import MissingDependency

try:
    from rapidfuzz import fuzz
except ImportError:
    raise MissingDependency(
        "WebShop needs the package rapidfuzz: pip install 'agentgym-suite[shop]'"
    ) from None

Nouns = Callable[[str], Sequence[str]]  # of a title: its nouns in lower case, with repeats

_SAME = 85  # texts whose token set ratio is above this count as equal
_NOT_WORD = re.compile(r"\W")
_LATIN = dict.fromkeys(range(128, 256))  # characters that the original's comparison leaves out

# In the order in which they are looked for.
COLOURS = tuple(
    """
    alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
    caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
    dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
    ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
    mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
    sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
    wheat white wine yellow
    """.split()
)


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's worth and its parts.

    Attributes:
        total: in [0, 1].
        r_type: whether it is the right kind of thing: 0, 0.1, 0.5 or 1; a factor of the total.
        r_att: share of the goal's attributes that it has.
        r_option: share of the goal's options that were chosen; None where the goal has none.
        r_price: whether it costs no more than it may.
        query_match, category_match, title_score: what `r_type` came of.
        w_att, w_option, w_price: the parts' weights.
    """

    total: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float
    w_att: float
    w_option: float | None
    w_price: float

    def to_json(self) -> dict[str, float | bool]:
        """As the original writes it."""
        names = ("r_type", "r_att", "w_att", "query_match", "category_match", "title_score")
        info = {name: getattr(self, name) for name in names}
        if self.r_option is not None:
            info |= {"r_option": self.r_option, "w_option": self.w_option}
        return info | {"r_price": self.r_price, "w_price": self.w_price}


def score(
    product: Product, goal: Goal, *, price: float, options: Mapping[str, str], nouns: Nouns, colours: bool
) -> Score:
    """Score a purchase.

    Args:
        product: what was bought.
        goal: what was asked for.
        price: what it cost, in dollars.
        options: option name -> value chosen.
        nouns: finds the nouns of a title.
        colours: compare options by the first colour word that stands anywhere in them, as the original does: then
            navy blue is sky blue, and layered is red. Else by their words, each bought value for one goal option.
    """
    query_match, category_match, title_score = _kind(product, goal, nouns)
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score else 0.0
    attributes = sum(has_attribute(product, attribute) for attribute in goal.attributes)
    wanted = wanted_options(goal)
    chosen = (
        original_matches(list(options.values()), wanted) if colours else matches(options.values(), wanted)
    )
    affordable = price <= goal.price_upper
    parts = len(goal.attributes) + len(wanted) + 1
    return Score(
        total=(attributes + chosen + affordable) / parts * r_type,
        r_type=r_type,
        r_att=attributes / len(goal.attributes),
        r_option=chosen / len(wanted) if wanted else None,
        r_price=affordable,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        w_att=len(goal.attributes) / parts,
        w_option=len(wanted) / parts if wanted else None,
        w_price=1 / parts,
    )


def _kind(product: Product, goal: Goal, nouns: Nouns) -> tuple[bool, bool, float]:
    """Same query; two shared category levels; the share of the wanted title's nouns that the bought one has."""
    levels = [
        {level.strip() for level in text.split("›")}
        for text in (product.product_category, goal.product_category)
    ]
    wanted = nouns(goal.name)
    shared = len(set(nouns(product.title)) & set(wanted))
    title_score = shared / len(wanted) if wanted else 0.2
    return product.query == goal.query, len(levels[0] & levels[1]) >= 2, title_score


def has_attribute(product: Product, attribute: str) -> bool:
    """Whether a product has an attribute: in its list, or in its text word for word."""
    return any(alike(own, attribute) for own in product.attributes) or any(
        attribute in text for text in product.evidence
    )


def wanted_options(goal: Goal) -> list[str | tuple[str, str]]:
    """The goal's options; those of synthetic goals as name and value."""
    options = goal.goal_options
    return list(options.items()) if isinstance(options, Mapping) else list(options)


def original_matches(bought: Sequence[str], wanted: Sequence[str | tuple[str, str]]) -> int:
    """How many wanted options any bought value is like; one value may serve several."""
    values = [_colour(value) for value in bought]
    return sum(any(alike(value, _colour(option)) for value in values) for option in wanted)


def matches(bought: Collection[str], wanted: Sequence[str | tuple[str, str]]) -> int:
    """How many wanted options a bought value is like, each value serving one; equal ones first."""
    left = list(bought)
    found = 0
    values = [option if isinstance(option, str) else option[1] for option in wanted]
    for same in (str.__eq__, alike):
        for value in list(values):
            fitting = next((own for own in left if same(own, value)), None)
            if fitting is not None:
                left.remove(fitting)
                values.remove(value)
                found += 1
    return found


def _colour(option: str | tuple[str, str]) -> str | tuple[str, str]:
    return next((colour for colour in COLOURS if colour in option), option)


def alike(one: str | tuple[str, str], other: str | tuple[str, str]) -> bool:
    """Whether the words of two texts are nearly the same, or those of one are among the other's."""
    if one == other:
        return True
    first, second = _words(one), _words(other)
    return bool(first and second) and round(fuzz.token_set_ratio(first, second)) > _SAME


def _words(text: str | tuple[str, str]) -> str:
    return _NOT_WORD.sub(" ", str(text).translate(_LATIN)).lower().strip()
