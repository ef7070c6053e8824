"""Functions of Python whose value is computed, or that call what they are given; they reach nothing outside."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym.monitor import bounds
from agentgym.monitor.code.files import Arguments, Keywords
from agentgym.monitor.code.values import UNKNOWN, Instance, Value, bounded, is_known, items, method, text_of
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader


def _map(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) < 2:
        return UNKNOWN
    return [reader.apply(arguments[0], [item]) for item in items(arguments[1])]


def _range(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    if arguments and all(isinstance(a, int) and abs(a) < 2**31 for a in arguments):
        numbers = range(*arguments) if len(arguments) < 3 or arguments[2] else range(0)
        return list(numbers[:4096])
    return UNKNOWN


def _plain(function: Callable[..., Value]) -> Callable[[Reader, Arguments, Keywords], Value]:
    """A row for a builtin that is computed on constants."""

    def row(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
        if not all(map(is_known, arguments)):
            return UNKNOWN
        try:
            return bounded(function(*arguments))
        except (TypeError, ValueError, OverflowError, LookupError, MemoryError):
            return UNKNOWN

    return row


def _text(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    return text_of(arguments[0]) if arguments else ""


def _bytes(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    value = arguments[0] if arguments else b""
    if isinstance(value, list | tuple) and all(isinstance(i, int) and 0 <= i < 256 for i in value):
        return bytes(value)
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else UNKNOWN


def _substituted(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """re.sub on constants."""
    if len(arguments) < 3 or not all(isinstance(a, str) and HOLE not in a for a in arguments[:3]):
        return UNKNOWN
    pattern, new, text = arguments[:3]
    regex = bounds.expression(pattern, length=len(text))
    try:
        return bounded(regex.sub(new, text)) if regex is not None else UNKNOWN
    except (re.error, IndexError):
        return UNKNOWN


def _packed(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """struct.pack of single bytes."""
    numbers = arguments[1:]
    if re.fullmatch(r"[<>=!@]?\d*[bB]+", text_of(arguments[0]) if arguments else ""):
        return _bytes(reader, [numbers], {})
    return UNKNOWN


def _applied(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """functools.partial and kin: what is bound is followed as if it were called at once."""
    return reader.apply(arguments[0], arguments[1:]) if arguments else UNKNOWN


def _split_words(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    text = text_of(arguments[0]) if arguments else HOLE
    try:
        return shlex.split(text) if len(text) < 65536 else UNKNOWN
    except ValueError:
        return UNKNOWN


def _ordered(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    found = items(arguments[0]) if arguments else []
    if (key := keywords.get("key")) is not None:
        for item in found:
            reader.apply(key, [item])
    return found


def _ordered_one(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """max, min: any of them."""
    found = _ordered(reader, arguments, keywords) if len(arguments) == 1 else arguments
    return found[0] if found else UNKNOWN


def _reduced(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    result: Value = arguments[2] if len(arguments) > 2 else UNKNOWN
    for item in items(arguments[1]) if len(arguments) > 1 else []:
        result = item if result is UNKNOWN else reader.apply(arguments[0], [result, item])
    return result


def _loaded(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """json.loads of a text that is known."""
    text = text_of(arguments[0]) if arguments else HOLE
    try:
        return bounded(json.loads(text)) if HOLE not in text and len(text) < 65536 else UNKNOWN
    except (ValueError, RecursionError):
        return UNKNOWN


def _made_class(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """type: a class made of a name and a dictionary."""
    return Instance(dict(arguments[2])) if len(arguments) == 3 and isinstance(arguments[2], dict) else UNKNOWN


COMPUTED: dict[str, Callable[[Reader, Arguments, Keywords], Value]] = {
    "shlex.split": _split_words,
    "dict": lambda reader, arguments, keywords: dict(keywords) if not arguments else arguments[0],
    "functools.partial": _applied,
    "operator.call": _applied,
    "re.sub": _substituted,
    "struct.pack": _packed,
    "str.join": lambda reader, arguments, keywords: (
        method(arguments[0], "join", arguments[1:]) if arguments else UNKNOWN
    ),
    "map": _map,
    "filter": lambda reader, arguments, keywords: arguments[1] if len(arguments) > 1 else UNKNOWN,
    "range": _range,
    "list": lambda reader, arguments, keywords: items(arguments[0]) if arguments else [],
    "tuple": lambda reader, arguments, keywords: tuple(items(arguments[0])) if arguments else (),
    "reversed": lambda reader, arguments, keywords: items(arguments[0])[::-1] if arguments else UNKNOWN,
    "sorted": _ordered,
    "max": _ordered_one,
    "min": _ordered_one,
    "set": lambda reader, arguments, keywords: items(arguments[0]) if arguments else [],
    "frozenset": lambda reader, arguments, keywords: items(arguments[0]) if arguments else [],
    "type": _made_class,
    "json.loads": _loaded,
    "functools.reduce": _reduced,
    "itertools.chain": lambda reader, arguments, keywords: [x for part in arguments for x in items(part)],
    "itertools.chain.from_iterable": lambda reader, arguments, keywords: [
        x for part in items(arguments[0] if arguments else UNKNOWN) for x in items(part)
    ],
    "itertools.product": lambda reader, arguments, keywords: list(
        itertools.islice(itertools.product(*map(items, arguments)), 64)
    ),
    "enumerate": lambda reader, arguments, keywords: (
        list(enumerate(items(arguments[0]))) if arguments else UNKNOWN
    ),
    "zip": lambda reader, arguments, keywords: list(zip(*map(items, arguments), strict=False)),
    "next": lambda reader, arguments, keywords: (
        items(arguments[0])[0] if arguments and items(arguments[0]) else UNKNOWN
    ),
    "iter": lambda reader, arguments, keywords: arguments[0] if arguments else UNKNOWN,
    "chr": _plain(chr),
    "ord": _plain(ord),
    "int": _plain(int),
    "len": _plain(len),
    "hex": _plain(hex),
    "bytes": _bytes,
    "bytearray": _bytes,
    "str": _text,
    "repr": _text,
    "os.fspath": _text,
    "os.path.abspath": _text,
    "os.path.normpath": _text,
    "os.path.realpath": _text,
    "shlex.quote": _text,
    "os.path.dirname": lambda reader, arguments, keywords: (
        posixpath.dirname(text_of(arguments[0])) if arguments else UNKNOWN
    ),
    "os.path.basename": lambda reader, arguments, keywords: (
        text_of(arguments[0]).rpartition("/")[2] if arguments else UNKNOWN
    ),
}
