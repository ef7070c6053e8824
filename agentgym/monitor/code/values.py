"""Constants of Python programs: what strings, bytes, lists and paths become, with unknown parts as holes."""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import codecs
import lzma
import operator
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from agentgym.monitor import paths
from agentgym.monitor.effects import HOLE

MAX_SIZE = 256 * 1024
"""Characters or elements that a computed value may have."""


class Unknown:
    """A value that is not known; there is one, `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __reduce__(self) -> str:
        return "UNKNOWN"  # copies and pickles are the one there is


UNKNOWN = Unknown()


class PathValue(NamedTuple):
    """A pathlib path."""

    text: str


class Name(NamedTuple):
    """A module, function or class of the outside, by its dotted name."""

    dotted: str


class Handle(NamedTuple):
    """An open file, connection or similar, that came from `path`."""

    path: str
    kind: str = "file"


class Environment(NamedTuple):
    """os.environ."""


class Function(NamedTuple):
    """A function or lambda of the program."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

    @property
    def is_property(self) -> bool:
        """Whether it runs where it is named as an attribute."""
        return self._is_decorated("property", "cached_property")

    @property
    def is_static(self) -> bool:
        """Whether its object is not among its arguments."""
        return self._is_decorated("staticmethod")

    def _is_decorated(self, *names: str) -> bool:
        decorators = [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list
        return any(isinstance(d, ast.Name) and d.id in names for d in decorators)


class Instance(NamedTuple):
    """A class of the program; stands for its objects too, which are told apart only by what was stored last."""

    attributes: dict[str, Any]


Value = Any
"""A constant of Python, `PathValue`, `Name`, `Handle`, `Function`, `Environment`, `Instance` or `UNKNOWN`."""


def text_of(value: Value) -> str:
    """`value` where text is wanted (a path, a URL, a command); HOLE where it is not known."""
    if isinstance(value, str):
        return value
    if isinstance(value, PathValue | Handle):
        return value[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | int | float) or value is None:
        return str(value)
    return HOLE


def is_known(value: Value) -> bool:
    """Whether `value` is a plain constant all through."""
    if isinstance(value, Unknown | Name | Handle | Function | Environment | Instance):
        return False
    if isinstance(value, list | tuple):
        return all(map(is_known, value))
    return not isinstance(value, dict) or all(map(is_known, value.values()))


def in_text(value: Value) -> Value:
    """`value` as formatting shows it: paths as their text, what is not known as a hole."""
    return value.text if isinstance(value, PathValue) else value if is_known(value) else text_of(value)


MAX_LOOP = 12
"""Values a loop is unrolled for."""
MAX_CODES = 512
"""Numbers a loop is unrolled for: they spell texts."""


def items(value: Value) -> list[Value]:
    """The values a loop goes through; one unknown where they are not known."""
    if (
        isinstance(value, list | tuple | bytes)
        and value
        and all(isinstance(item, int) for item in value[:MAX_CODES])
    ):
        return list(value[:MAX_CODES])
    if isinstance(value, Handle):
        return [HOLE]
    if isinstance(value, Name | PathValue | Function | Environment | Instance):
        return [UNKNOWN]
    if isinstance(value, str | bytes | list | tuple | dict):
        if isinstance(value, str) and HOLE in value:
            return [value if "/" in value else UNKNOWN]
        return list(value)[: MAX_LOOP if not isinstance(value, str | bytes) else 4096]
    if isinstance(value, range):
        return list(value[:MAX_LOOP])
    return [UNKNOWN]


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.FloorDiv: operator.floordiv,
}


def combined(kind: type[ast.operator], left: Value, right: Value) -> Value:
    """The value of ``left kind right``; strings with unknown parts keep what is known."""
    if kind is ast.Div and isinstance(left, PathValue):
        return PathValue(_join(left.text, text_of(right)))
    if kind is ast.Div and isinstance(right, PathValue):
        return PathValue(_join(text_of(left), right.text))
    if kind is ast.Add and isinstance(left, str) != isinstance(right, str):
        if isinstance(left, Unknown | Handle) or isinstance(right, Unknown | Handle):
            return text_of(left) + text_of(right)
        return UNKNOWN
    if kind is ast.Mult:
        return _repeat(left, right)
    if kind is ast.Mod and isinstance(left, str):
        return _percent(left, right)
    apply = _BINARY.get(kind)
    if apply is None or not (is_known(left) or isinstance(left, str | list)) or isinstance(right, Unknown):
        return UNKNOWN
    return bounded(apply(left, right))


def _join(left: str, right: str) -> str:
    return right if right.startswith("/") else left.rstrip("/") + "/" + right


def _repeat(left: Value, right: Value) -> Value:
    if isinstance(left, int) and isinstance(right, str | bytes | list):
        left, right = right, left
    if isinstance(left, str | bytes | list | tuple) and isinstance(right, int):
        return left * right if len(left) * max(right, 0) <= MAX_SIZE else UNKNOWN
    if (
        isinstance(left, int | float)
        and isinstance(right, int | float)
        and abs(left) < 2**64
        and abs(right) < 2**64
    ):
        return left * right
    return UNKNOWN


_WIDE = re.compile(r"\d{4}")
"""A width in a format that would make a text grow out of proportion."""


def _percent(form: str, right: Value) -> Value:
    if _WIDE.search(form):
        return HOLE
    if isinstance(right, dict):
        return form % {key: in_text(value) for key, value in right.items()}
    return form % tuple(map(in_text, right if type(right) is tuple else (right,)))


def bounded(value: Value) -> Value:
    """`value`, unless it is too large to be followed."""
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > MAX_SIZE:
        return UNKNOWN
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**128:
        return UNKNOWN
    return value


_TEXT_METHODS = frozenset(
    "format join replace strip lstrip rstrip lower upper title capitalize swapcase split rsplit "
    "splitlines partition rpartition encode removeprefix removesuffix translate startswith endswith find "
    "count format_map casefold isdigit index zfill expandtabs".split()
)
_BYTES_METHODS = frozenset("decode hex join replace strip split translate lower upper".split())
_LIST_METHODS = frozenset("copy index count".split())
_DICT_METHODS = frozenset("get keys values items".split())


def method(value: Value, name: str, arguments: list[Value]) -> Value:
    """The result of ``value.name(*arguments)`` for a constant; UNKNOWN where it is not computed."""
    if isinstance(value, str) and name in _TEXT_METHODS:
        if name == "join" and arguments and isinstance(arguments[0], list | tuple):
            return bounded(value.join(text_of(item) for item in arguments[0]))
        if name in ("format", "format_map"):
            if _WIDE.search(value):
                return HOLE
            arguments = [in_text(item) for item in arguments]
        if HOLE in value and name not in (
            "format",
            "join",
            "replace",
            "lower",
            "upper",
            "strip",
            "encode",
            "rstrip",
        ):
            return [value] if "split" in name else UNKNOWN
    elif isinstance(value, bytes) and name in _BYTES_METHODS:
        if name == "decode":
            return decode_bytes(value, text_of(arguments[0]) if arguments else "utf-8")
    elif not (
        (isinstance(value, list | tuple) and name in _LIST_METHODS)
        or (isinstance(value, dict) and name in _DICT_METHODS)
    ):
        return UNKNOWN
    if not all(map(is_known, arguments)):
        return UNKNOWN
    if name in ("zfill", "expandtabs", "replace") and any(
        isinstance(a, int) and a > MAX_SIZE for a in arguments
    ):
        return UNKNOWN
    result = getattr(value, name)(*arguments)
    return bounded(list(result) if name in ("keys", "values", "items") else result)


def decode_bytes(value: bytes, encoding: str) -> Value:
    """``bytes.decode``."""
    return value.decode(
        encoding if encoding in ("utf-8", "utf8", "ascii", "latin-1", "latin1", "utf-16") else "utf-8",
        "replace",
    )


def path_attribute(value: PathValue, name: str) -> Value:
    """An attribute of a pathlib path."""
    text = paths.normalise(value.text) if value.text.startswith("/") else value.text
    if name == "parent":
        return PathValue(paths.parent(text) if text.startswith("/") else text.rpartition("/")[0] or ".")
    if name == "name":
        return text.rpartition("/")[2]
    if name == "stem":
        return text.rpartition("/")[2].partition(".")[0]
    if name == "suffix":
        head, dot, tail = text.rpartition("/")[2].rpartition(".")
        return dot + tail if head else ""
    if name == "parents":
        out: list[PathValue] = []
        while text.startswith("/") and text != "/":
            text = paths.parent(text)
            out.append(PathValue(text))
        return out
    return UNKNOWN


def _raw(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and HOLE not in value:
        return value.encode("utf-8", "replace")
    raise ValueError("not known")


def _inflate(raw: bytes, window: int = 15) -> bytes:
    return zlib.decompressobj(window).decompress(raw, MAX_SIZE)


def _codec(raw: Value, name: str) -> Value:
    name = name.lower().replace("_", "").replace("-", "")
    if name in ("rot13", "rot"):
        return codecs.encode(text_of(raw), "rot13")
    if name in ("hex", "hexcodec"):
        return bytes.fromhex(_raw(raw).decode("ascii", "replace"))
    if name in ("base64", "base64codec"):
        return base64.b64decode(_raw(raw))
    if name in ("zlib", "zip"):
        return _inflate(_raw(raw))
    if name in ("unicodeescape", "stringescape"):
        return _raw(raw).decode("unicode_escape")
    return UNKNOWN if not isinstance(raw, bytes) else decode_bytes(raw, name)


DECODERS: dict[str, Callable[[list[Value]], Value]] = {
    "base64.b64decode": lambda a: base64.b64decode(_raw(a[0]) + b"==="),
    "base64.decodebytes": lambda a: base64.b64decode(_raw(a[0])),
    "base64.urlsafe_b64decode": lambda a: base64.urlsafe_b64decode(_raw(a[0]) + b"==="),
    "base64.standard_b64decode": lambda a: base64.b64decode(_raw(a[0])),
    "base64.b32decode": lambda a: base64.b32decode(_raw(a[0])),
    "base64.b16decode": lambda a: base64.b16decode(_raw(a[0]), casefold=True),
    "base64.b85decode": lambda a: base64.b85decode(_raw(a[0])),
    "base64.a85decode": lambda a: base64.a85decode(_raw(a[0])),
    "base64.b64encode": lambda a: base64.b64encode(_raw(a[0])),
    "binascii.unhexlify": lambda a: binascii.unhexlify(_raw(a[0])),
    "binascii.a2b_hex": lambda a: binascii.unhexlify(_raw(a[0])),
    "binascii.a2b_base64": lambda a: binascii.a2b_base64(_raw(a[0])),
    "bytes.fromhex": lambda a: bytes.fromhex(text_of(a[0])),
    "bytearray.fromhex": lambda a: bytes.fromhex(text_of(a[0])),
    "codecs.decode": lambda a: _codec(a[0], text_of(a[1]) if len(a) > 1 else "utf-8"),
    "codecs.encode": lambda a: _codec(a[0], text_of(a[1]) if len(a) > 1 else "utf-8"),
    "zlib.decompress": lambda a: _inflate(_raw(a[0])),
    "gzip.decompress": lambda a: _inflate(_raw(a[0]), 31),
    "bz2.decompress": lambda a: bz2.BZ2Decompressor().decompress(_raw(a[0]), MAX_SIZE),
    "lzma.decompress": lambda a: lzma.LZMADecompressor().decompress(_raw(a[0]), MAX_SIZE),
    "urllib.parse.unquote": lambda a: unquote(text_of(a[0])),
}
"""Decoders that are computed on constants; they raise ValueError and kin on what they cannot read."""

DECODE_ERRORS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    LookupError,
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)
