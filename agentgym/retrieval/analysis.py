"""From text to index terms as Lucene's English analysis does it.

The word rules are those of Unicode's text segmentation (UAX 29) as Lucene's StandardTokenizer applies them: letters and
digits stay together across ``_``, and across ``.``, ``'``, ``:`` between letters and ``.``, ``'``, ``,``, ``;`` between
digits; each ideograph, each hiragana sign and each emoji is a word. Character classes come from Python's own Unicode
tables, so characters younger than those that Lucene knows may differ.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable

from agentgym.retrieval.porter import stem

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)

_MAX_TOKEN = 255  # UTF-16 units; longer words are cut
_POSSESSIVE = re.compile("['\u2019\uff07][sS]$")

# What joins, beside letters and digits (the Word_Break property of Unicode 14).
_EXTEND_NUM_LET = "_\u202f\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f"
_MID_NUM_LET = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"  # with the single quote
_MID_LETTER = ":\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a" + _MID_NUM_LET
_MID_NUM = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b" + _MID_NUM_LET

_ASCII_WORD = re.compile(
    r"_*(?:[0-9](?:(?:_*|[.',;])[0-9])*|[A-Za-z](?:(?:_*|[.':])[A-Za-z])*)+"
    r"(?:_+(?:[0-9](?:(?:_*|[.',;])[0-9])*|[A-Za-z](?:(?:_*|[.':])[A-Za-z])*)+)*_*"
)

# Scripts that Python's tables do not name, by their blocks.
_KATAKANA = (
    "\u3031-\u3035\u309b\u309c\u30a0-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u32d0-\u32fe\u3300-\u3357\uff66-\uff9d"
)
_HIRAGANA = "\u3041-\u3096\u309d-\u309f\U0001b001-\U0001b11f\U0001b150-\U0001b152\U0001f200"
_HAN = (
    "\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufa6d\ufa70-\ufad9\U00020000-\U0003134a"
)
_SOUTHEAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\u1950-\u1974\u1980-\u19c9\u19da\u19de\u19df\u1a20-\u1aad\ua9e0-\ua9ef"
    "\ua9fa-\ua9fe\uaa60-\uaac2\uaadb-\uaadf"
)
# Emoji and other pictographs (Extended_Pictographic of Unicode 14; "\u00a9 \u00ae \u2122" among them).
_PICTOGRAPHS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705"
    "\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767"
    "\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a"
    "\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f"
    "\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001faff"
    "\U0001fc00-\U0001fffd"
)
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"


def analyse(text: str) -> list[str]:
    """The index terms of a text, in order, with repeats."""
    return [found for token in tokenize(text) if (found := term(token))]


def tokenize(text: str) -> list[str]:
    """The words of a text as they stand in it."""
    words = (_ASCII_WORD if text.isascii() else _unicode_word()).findall(text)
    if all(len(word) <= _MAX_TOKEN // 2 for word in words):
        return words
    return [piece for word in words for piece in _pieces(word)]


@functools.lru_cache(1 << 16)
def term(token: str) -> str:
    """What a word is looked up by: without 's, in lower case, stemmed; empty for a stop word."""
    folded = _lower(_POSSESSIVE.sub("", token))
    return "" if folded in STOP_WORDS else stem(folded)


def _lower(token: str) -> str:
    """Lower case sign by sign, as Java does it; Python makes two characters of some."""
    return token.lower() if token.isascii() else "".join(character.lower()[0] for character in token)


def _pieces(word: str) -> Iterable[str]:
    start = size = 0
    for position, character in enumerate(word):
        width = 1 + (character > "\uffff")
        if size + width > _MAX_TOKEN:
            yield word[start:position]
            start, size = position, 0
        size += width
    yield word[start:]


@functools.cache
def _unicode_word() -> re.Pattern[str]:
    """The word rules for any text. Takes some hundredths of a second to make, once, so ASCII texts go without."""
    letters, digits, marks = _classes()
    more = f"[{marks}]*"  # rule WB4: marks and format characters belong to what they follow
    link = f"(?:[{_EXTEND_NUM_LET}]{more})"
    digit = f"(?:[{digits}]{more})"
    letter = f"(?:[{letters}]{more})"
    katakana = f"(?:[{_KATAKANA}]{more})"
    number = f"{digit}(?:(?:{link}*|[{_MID_NUM}]{more}){digit})*"
    word = f"{letter}(?:(?:{link}*|[{_MID_LETTER}]{more}){letter})*"
    run = f"(?:{katakana}(?:{link}*{katakana})*|(?:{number}|{word})+)"
    selectorless = f"(?:(?![\ufe0e\ufe0f])[{marks}])*"
    picture = f"(?:\u200d*(?:[{_PICTOGRAPHS}]{selectorless}[{_SKIN_TONES}]{selectorless}"
    picture += f"|[{_PICTOGRAPHS}]{selectorless}\ufe0f?|[{_SKIN_TONES}]{selectorless}))"
    # A joiner may already be taken as a mark of what stands before it.
    emoji = f"{picture}(?:(?:\u200d|(?<=\u200d)){picture})*(?:[\U000e0020-\U000e007e]+\U000e007f)?"
    keycap = f"[0-9#*]{selectorless}\ufe0f?\u20e3{selectorless}"
    flag = f"[{_FLAG_LETTERS}]{more}[{_FLAG_LETTERS}]{more}"
    return re.compile(
        f"{emoji}|{keycap}|{flag}|{link}*{run}(?:{link}+{run})*{link}*"
        f"|(?:[{_SOUTHEAST_ASIAN}]{more})+|[{_HAN}]{more}|[{_HIRAGANA}]{more}"
    )


@functools.cache
def _classes() -> tuple[str, str, str]:
    """Letters, digits and marks, as the inside of a regular expression's brackets."""
    elsewhere = re.compile(f"[{_KATAKANA}{_HIRAGANA}{_HAN}{_SOUTHEAST_ASIAN}{_PICTOGRAPHS}]")
    letters, digits, marks = [], [], []
    planes = (range(0x20000), range(0xE0000, 0xE01F0))  # what lies between is ideographs
    for point in (point for plane in planes for point in plane):
        character = chr(point)
        kind = unicodedata.category(character)
        if kind == "Nd":
            digits.append(point)
        elif kind[0] == "M" or kind == "Cf" or point in (0xFF9E, 0xFF9F):
            if point != 0x200B:  # the zero width space separates
                marks.append(point)
        elif (kind[0] == "L" or kind == "Nl" or 0x24B6 <= point <= 0x24E9) and not elsewhere.match(character):
            letters.append(point)
    return _brackets(letters), _brackets([*digits, 0x66B]), _brackets(marks)


def _brackets(points: list[int]) -> str:
    """Code points as ranges."""
    ranges: list[list[int]] = []
    for point in sorted(points):
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)
