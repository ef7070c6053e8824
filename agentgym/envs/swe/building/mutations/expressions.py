"""Defects inside expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from agentgym.envs.swe.building.mutations.source import Node, Site, Source

# operator: (its text as a pattern, what it becomes, kind)
_COMPARISONS: dict[type[ast.cmpop], tuple[bytes, bytes, str]] = {
    ast.Lt: (rb"<", b"<=", "boundary"),
    ast.LtE: (rb"<=", b"<", "boundary"),
    ast.Gt: (rb">", b">=", "boundary"),
    ast.GtE: (rb">=", b">", "boundary"),
    ast.Eq: (rb"==", b"!=", "comparison"),
    ast.NotEq: (rb"!=", b"==", "comparison"),
    ast.Is: (rb"\bis\b", b"is not", "comparison"),
    ast.IsNot: (rb"\bis\s+not\b", b"is", "comparison"),
    ast.In: (rb"\bin\b", b"not in", "comparison"),
    ast.NotIn: (rb"\bnot\s+in\b", b"in", "comparison"),
}
ARITHMETIC: dict[type[ast.operator], tuple[bytes, bytes]] = {
    ast.Add: (rb"\+", b"-"),
    ast.Sub: (rb"-", b"+"),
    ast.Mult: (rb"\*", b"+"),
    ast.Div: (rb"/", b"*"),
    ast.FloorDiv: (rb"//", b"/"),
    ast.Mod: (rb"%", b"//"),
    ast.LShift: (rb"<<", b">>"),
    ast.RShift: (rb">>", b"<<"),
    ast.BitAnd: (rb"&", b"|"),
    ast.BitOr: (rb"\|", b"&"),
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)  # operators whose operands must not be swapped
SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_SEPARATOR = re.compile(r"[^\w\s\\]{1,3}|[^\w\s\\]?[ ][^\w\s\\]?")
_WORDS = re.compile(rb"\s+(and|or)\s+")


def expression_sites(source: Source, node: ast.expr) -> Iterator[Site]:
    """Places for a defect in this expression itself, not in those inside of it."""
    if isinstance(node, ast.Compare):
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            pattern, other, kind = _COMPARISONS[type(operator)]
            yield from operator_sites(source, kind, left, right, pattern, other)
    elif isinstance(node, ast.BoolOp):
        yield from _boolean(source, node)
    elif isinstance(node, ast.BinOp):
        yield from _binary(source, node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        word = re.compile(rb"not[ \t]*").match(source.text, source.start(node))
        if word:
            yield source.site("dropped_not", word.start(), word.end(), b"")
    elif isinstance(node, ast.IfExp):
        yield from negation(source, node.test)
        yield from _swapped(source, "swapped_branches", node.body, node.orelse)
    elif isinstance(node, ast.Constant):
        yield from _constant(source, node)
    elif isinstance(node, ast.Call):
        yield from _arguments(source, node)
    elif isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if isinstance(bound, ast.Name | ast.Attribute | ast.Call) and bound.lineno == bound.end_lineno:
                yield source.site("slice", source.end(bound), source.end(bound), b" + 1")


def operator_sites(
    source: Source, kind: str, left: ast.expr, right: ast.expr, pattern: bytes, other: bytes
) -> Iterator[Site]:
    """The operator between two operands, which `pattern` matches, becomes `other`."""
    gap = source.between(left, right)
    found = list(re.finditer(pattern, gap))
    if b"#" in gap or len(found) != 1 or _has_fstring(left):
        return
    start = source.end(left)
    yield source.site(kind, start + found[0].start(), start + found[0].end(), other)


def negation(source: Source, test: ast.expr) -> Iterator[Site]:
    """A condition without an operator of its own, turned round."""
    if isinstance(test, SIMPLE):
        yield source.site("negated_condition", source.start(test), source.start(test), b"not ")


def textual(*sides: ast.expr) -> bool:
    """Whether texts are joined or formatted: another operator would fail at once, everywhere."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _boolean(source: Source, node: ast.BoolOp) -> Iterator[Site]:
    names = (rb"\band\b", b"or") if isinstance(node.op, ast.And) else (rb"\bor\b", b"and")
    if len(node.values) == 2:
        yield from operator_sites(source, "boolean", node.values[0], node.values[1], *names)
    # With a parenthesis in the gap, an operand cannot be cut out at its ends.
    first, second = node.values[:2]
    if _WORDS.fullmatch(source.between(first, second)) and not _has_fstring(first):
        yield source.site("dropped_condition", source.start(first), source.start(second), b"")
    before, last = node.values[-2:]
    if _WORDS.fullmatch(source.between(before, last)) and not (_has_fstring(before) or _has_fstring(last)):
        yield source.site("dropped_condition", source.end(before), source.end(last), b"")


def _binary(source: Source, node: ast.BinOp) -> Iterator[Site]:
    if textual(node.left, node.right):
        return
    if type(node.op) in ARITHMETIC:
        yield from operator_sites(source, "arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)])
    plain = isinstance(node.left, (*SIMPLE, ast.Constant)) and isinstance(node.right, (*SIMPLE, ast.Constant))
    if isinstance(node.op, _ORDERED) and plain:
        yield from _swapped(source, "swapped_operands", node.left, node.right)


def _constant(source: Source, node: ast.Constant) -> Iterator[Site]:
    start, end, text = source.start(node), source.end(node), source.of(node)
    value = node.value
    if isinstance(value, bool):
        yield source.site("flipped_flag", start, end, str(not value).encode())
    elif isinstance(value, int) and text == str(value).encode():
        # not in another notation, such as hexadecimal, where a value is mostly a mask or a code point
        yield source.site("integer", start, end, str(value + 1).encode())
    elif isinstance(value, float) and text == str(value).encode():
        yield source.site("float", start, end, str(value + 1.0).encode())
    elif isinstance(value, str) and _SEPARATOR.fullmatch(value) and text[1:-1] == value.encode():
        yield source.site("lost_separator", start + 1, end - 1, b"")


def _arguments(source: Source, node: ast.Call) -> Iterator[Site]:
    unfit = (ast.Starred, ast.NamedExpr, ast.GeneratorExp)
    if len(node.args) >= 2 and not any(isinstance(argument, unfit) for argument in node.args[:2]):
        yield from _swapped(source, "swapped_arguments", *node.args[:2])
    given: list[Node] = sorted([*node.args, *node.keywords], key=source.start)
    for before, argument in pairwise(given):
        comma = re.fullmatch(rb"\s*,\s*", source.between(before, argument))
        if (
            isinstance(argument, ast.keyword)
            and argument.arg
            and comma
            and not _has_fstring(before, argument)
        ):
            yield source.site("dropped_argument", source.end(before), source.end(argument), b"")


def _swapped(source: Source, kind: str, first: ast.expr, second: ast.expr) -> Iterator[Site]:
    if _has_fstring(first, second) or ast.dump(first) == ast.dump(second):
        return
    gap = source.between(first, second)
    text = source.of(second) + gap + source.of(first)
    yield source.site(kind, source.start(first), source.end(second), text)


def _has_fstring(*nodes: Node) -> bool:
    return any(isinstance(inner, ast.JoinedStr) for node in nodes for inner in ast.walk(node))
