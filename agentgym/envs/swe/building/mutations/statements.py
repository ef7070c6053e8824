"""Defects in whole statements: what is dropped, cut short or turned round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agentgym.envs.swe.building.mutations.expressions import ARITHMETIC, negation, operator_sites, textual
from agentgym.envs.swe.building.mutations.source import Site, Source

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def statement_sites(source: Source, node: ast.stmt, *, alone: bool) -> Iterator[Site]:
    """Places for a defect in this statement itself, not in those inside of it.

    Args:
        source: the file.
        node: the statement.
        alone: it is the only one of its block, so that something must stay in its place.
    """
    if isinstance(node, ast.If):
        yield from _condition(source, node, alone=alone)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
        yield from _loop(source, node, alone=alone)
    elif isinstance(node, ast.Try):
        yield from _handlers(source, node)
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield from _value(source, "lost_return", node.value, b"None")
    elif isinstance(node, ast.Continue):
        yield source.site("loop_exit", source.start(node), source.end(node), b"break")
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC and not textual(node.value):
        pattern, other = ARITHMETIC[type(node.op)]
        yield from operator_sites(source, "arithmetic", node.target, node.value, pattern + b"=", other + b"=")
    if not alone and _droppable(node):
        yield from _without(source, "dropped_statement", source.start(node), source.end(node))


def _condition(source: Source, node: ast.If, *, alone: bool) -> Iterator[Site]:
    yield from negation(source, node.test)
    start, end = source.start(node), source.end(node)
    if source.text.startswith(b"elif", start):
        yield from _without(source, "dropped_branch", start, source.end(node.body[-1]))
    elif not node.orelse and not alone:
        leaves = len(node.body) == 1 and isinstance(node.body[0], _LEAVES)
        yield from _without(source, "dropped_guard" if leaves else "dropped_branch", start, end)
    if node.orelse:
        gap_start, gap_end = source.end(node.body[-1]), source.start(node.orelse[0])
        found = list(re.finditer(rb"^[ \t]*(else[ \t]*:)", source.text[gap_start:gap_end], re.MULTILINE))
        if len(found) == 1:
            first = gap_start + found[0].start(1)
            yield from _without(source, "dropped_else", first, source.end(node.orelse[-1]))


def _loop(source: Source, node: ast.For | ast.AsyncFor | ast.While, *, alone: bool) -> Iterator[Site]:
    """The loop is gone, ends after its first round, or no longer ends early."""
    start, end = source.start(node), source.end(node)
    if alone:
        yield source.site("removed_loop", start, end, b"pass")
    else:
        yield from _without(source, "removed_loop", start, end)
    last = node.body[-1]
    lines = source.whole_lines(source.start(last), source.end(last))
    if lines is not None and not isinstance(last, _LEAVES) and source.text[lines[1] - 1 : lines[1]] == b"\n":
        indent = source.text[lines[0] : source.start(last)]
        line_end = b"\r\n" if source.text[: lines[1]].endswith(b"\r\n") else b"\n"
        yield source.site("single_round", lines[1], lines[1], indent + b"break" + line_end)
    if not isinstance(node, ast.While):  # where it would mostly go on for ever
        for inner in ast.walk(node):
            if isinstance(inner, ast.Break):
                yield source.site("loop_exit", source.start(inner), source.end(inner), b"pass")


def _handlers(source: Source, node: ast.Try) -> Iterator[Site]:
    if len(node.handlers) > 1:
        for handler in node.handlers:
            yield from _without(source, "dropped_handler", source.start(handler), source.end(handler))


def _value(source: Source, kind: str, node: ast.expr, replacement: bytes) -> Iterator[Site]:
    start, end = source.start(node), source.end(node)
    before = source.text[source.text.rfind(b"\n", 0, start) + 1 : start]
    if before.endswith(b"return "):  # no parenthesis around it
        yield source.site(kind, start, end, replacement)


def _without(source: Source, kind: str, start: int, end: int) -> Iterator[Site]:
    """What stands from `start` to `end` is gone, if it has its lines for itself."""
    lines = source.whole_lines(start, end)
    if lines is not None:
        yield source.site(kind, *lines, b"")


def _droppable(node: ast.stmt) -> bool:
    """Statements that leave a program that runs when they are gone: no name loses its only value."""
    if isinstance(node, ast.AugAssign):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if not isinstance(node, ast.Assign):
        return False
    read = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
    return all(
        isinstance(target, ast.Attribute | ast.Subscript)
        or (isinstance(target, ast.Name) and target.id in read)
        for target in node.targets
    )
