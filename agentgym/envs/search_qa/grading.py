"""Exact match and F1 of short answers, as the scripts of SQuAD 1.1 and HotpotQA compute them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})  # sharing a word with these means nothing


class Grade(NamedTuple):
    """How good an answer is, by the best of the right ones.

    Attributes:
        em: 1 where it equals a right answer after normalisation, else 0.
        f1: shared words, as published figures count them.
        f1_paid: `f1`, but 0 for an answer that is longer than the right one it is compared with. So an answer that
            lists candidates earns nothing: it is longer than each of them.
    """

    em: float
    f1: float
    f1_paid: float


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and surplus blanks."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def grade(answer: str, right: Iterable[str]) -> Grade:
    """Compare an answer with every right one."""
    grades = [_compare(answer, each) for each in right]
    return Grade(*map(max, zip(*grades, strict=True)))


def _compare(answer: str, right: str) -> Grade:
    given, wanted = normalise(answer), normalise(right)
    if not wanted:  # "The The", "+": articles and punctuation are all there is
        same = float(answer.strip().lower() == right.strip().lower())
        return Grade(same, same, same)
    if given == wanted:
        return Grade(1.0, 1.0, 1.0)
    f1 = _f1(given, wanted)
    return Grade(0.0, f1, f1 if len(given.split()) <= len(wanted.split()) else 0.0)


def _f1(given: str, wanted: str) -> float:
    if given in _ALL_OR_NOTHING or wanted in _ALL_OR_NOTHING:
        return 0.0  # equal ones never come here
    given_words, wanted_words = given.split(), wanted.split()
    shared = sum((Counter(given_words) & Counter(wanted_words)).values())
    return 2 * shared / (len(given_words) + len(wanted_words))
