"""Expressions of Python whose value follows from their parts."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentgym.monitor.code import rows
from agentgym.monitor.code.values import (
    UNKNOWN,
    Environment,
    Function,
    Instance,
    Name,
    PathValue,
    Value,
    combined,
    items,
    path_attribute,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

MAX_LOOP = 12
"""Values a loop is unrolled for."""
MAX_SPINE = 4000
"""Parts of one concatenation."""
_IMPLIED = {"np": "numpy", "pd": "pandas"}


def elements(reader: Reader, nodes: Sequence[ast.expr]) -> list[Value]:
    """The values of some expressions, starred ones spread."""
    out: list[Value] = []
    for node in nodes:
        value = reader.value(node)
        if isinstance(node, ast.Starred) and isinstance(value, list | tuple):
            out.extend(value)
        else:
            out.append(value)
    return out


def dictionary(reader: Reader, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> Value:
    """A dictionary display."""
    out: dict[Value, Value] = {}
    for key_node, value_node in zip(keys, values, strict=True):
        value = reader.value(value_node)
        key = reader.value(key_node) if key_node is not None else UNKNOWN
        if key_node is None and isinstance(value, dict):
            out.update(value)
        elif isinstance(key, str | int | bytes):
            out[key] = value
    return out


def chain(reader: Reader, node: ast.BinOp) -> Value:
    """``a + b + c``: the left spine is walked without recursion, since concatenations grow long."""
    spine: list[ast.BinOp] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and len(spine) < MAX_SPINE:
        spine.append(left)
        left = left.left
    result = reader.value(left)
    for part in reversed(spine):
        result = binary(type(part.op), result, reader.value(part.right))
    return result


def binary(kind: type[ast.operator], left: Value, right: Value) -> Value:
    """``left kind right``; UNKNOWN where Python would raise."""
    try:
        return combined(kind, left, right)
    except (TypeError, ValueError, ArithmeticError, KeyError, MemoryError):
        return UNKNOWN


def name(reader: Reader, word: str) -> Value:
    """The value of a name."""
    if word in reader.names:
        return reader.names[word]
    if word == "__file__":
        return reader.analysis.file or f"{reader.analysis.state.cwd}/{HOLE}.py"
    if word == "__name__":
        return "__main__"
    if hasattr(builtins, word):
        return Name(word if word in rows.TABLE else f"builtins.{word}")
    if isinstance(whole := reader.names.get("*"), Name):  # from os import *
        return Name(whole.dotted.removesuffix("*") + word)
    return Name(_IMPLIED.get(word, word))


def globals_name(reader: Reader, word: str) -> Value:
    """The value of a name of the module, asked for as text."""
    return name(reader, word)


def attribute(reader: Reader, owner: Value, name: str) -> Value:
    """The value of ``owner.name``."""
    if isinstance(owner, PathValue):
        return path_attribute(owner, name)
    if isinstance(owner, Instance):
        found = owner.attributes.get(name, UNKNOWN)
        if isinstance(found, Function) and found.is_property:
            return reader.call_function(found, [owner], {})
        return found
    if isinstance(owner, Name) and name == "__dict__":
        return owner
    if isinstance(owner, Name):
        return rows.constant(reader, f"{owner.dotted}.{name}")
    return UNKNOWN


def subscript(reader: Reader, owner: Value, index: ast.expr) -> Value:
    """The value of ``owner[index]``."""
    if isinstance(index, ast.Slice):
        bounds = [
            reader.value(part) if part is not None else None
            for part in (index.lower, index.upper, index.step)
        ]
        if isinstance(owner, str | bytes | list | tuple) and all(
            b is None or isinstance(b, int) for b in bounds
        ):
            if isinstance(owner, str) and HOLE in owner:
                return HOLE
            return owner[slice(*bounds)] if bounds[2] != 0 else UNKNOWN
        return UNKNOWN
    key = reader.value(index)
    if isinstance(owner, Environment):
        return rows.environment(reader, text_of(key))
    if isinstance(owner, Name) and isinstance(key, str):
        return (
            globals_name(reader, key)
            if owner.dotted == rows.NAMESPACE
            else rows.constant(reader, f"{owner.dotted}.{key}")
        )
    try:
        return owner[key]
    except (TypeError, KeyError, IndexError):
        return UNKNOWN


def bind(reader: Reader, wanted: ast.arguments, arguments: list[Value], keywords: dict[str, Value]) -> None:
    """Binds the parameters of a function that is followed; one that is not given becomes unknown."""
    names = [arg.arg for arg in (*wanted.posonlyargs, *wanted.args)]
    defaults = wanted.defaults
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=False):
        reader.names[name] = reader.value(default)
    for only, given in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True):
        reader.names[only.arg] = reader.value(given) if given is not None else UNKNOWN
        if only.arg in keywords:
            reader.names[only.arg] = keywords[only.arg]
    for i, name in enumerate(names):
        if i < len(arguments):
            reader.names[name] = arguments[i]
        elif name in keywords:
            reader.names[name] = keywords[name]
        elif i < len(names) - len(defaults):
            reader.names[name] = UNKNOWN
    if wanted.vararg is not None:
        reader.names[wanted.vararg.arg] = arguments[len(names) :]
    if wanted.kwarg is not None:
        reader.names[wanted.kwarg.arg] = {k: v for k, v in keywords.items() if k not in names}


def comprehension(
    reader: Reader, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Value:
    """The values of a comprehension, its loops unrolled as those of statements."""
    results: list[Value] = []

    def turn(depth: int) -> None:
        if depth == len(node.generators):
            if isinstance(node, ast.DictComp):
                reader.value(node.key)
                results.append(reader.value(node.value))
            else:
                results.append(reader.value(node.elt))
            return
        generator = node.generators[depth]
        for item in items(reader.value(generator.iter)):
            reader.assign(generator.target, item)
            for condition in generator.ifs:
                reader.value(condition)
            turn(depth + 1)

    turn(0)
    return results
