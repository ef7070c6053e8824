"""Small defects in Python source: found by syntax tree, made by splicing bytes, so comments and layout stay.

`find_sites` lists where a defect of a known kind can be put, in a fixed order; `apply` puts one or several there. Left
alone are docstrings and other texts, annotations, assertions, names such as ``__version__``, code for type
checkers only, code that asks for the interpreter's version, and everything inside f-strings, whose
positions Python 3.11 gets wrong.
"""

from __future__ import annotations

import ast
import codecs
import re
from collections.abc import Iterator
from itertools import pairwise

from agentgym.envs.swe.building.mutations.expressions import expression_sites
from agentgym.envs.swe.building.mutations.source import Site, Source
from agentgym.envs.swe.building.mutations.statements import statement_sites

__all__ = ["Site", "apply", "find_sites", "overlap"]

_NOT_LOOKED_INTO = ("annotation", "returns", "decorator_list", "type_params")


def apply(source: bytes, *sites: Site) -> bytes:
    """The source with the defects.

    Raises:
        ValueError: the result does not parse or means the same, or two sites overlap. `find_sites` gives no such
            site for the source.
    """
    ordered = sorted(sites)
    if any(overlap(one, other) for one, other in pairwise(ordered)):
        raise ValueError("two of the sites overlap")
    mutated = source
    for site in reversed(ordered):
        mutated = mutated[: site.start] + site.replacement + mutated[site.end :]
    what = " and ".join(f"the {site.kind} at line {site.line}" for site in ordered)
    try:
        same = ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{what} does not parse: {error}") from None
    if same:
        raise ValueError(f"{what} changes nothing")
    return mutated


def overlap(one: Site, other: Site) -> bool:
    """Whether two sites of one source cannot both be applied."""
    return max(one.start, other.start) < min(one.end, other.end) or one.start == other.start


def find_sites(source: bytes) -> list[Site]:
    """All places for a defect, in the order of the source.

    A file that is no UTF-8, starts with a byte order mark or does not parse has none.
    """
    try:
        source.decode("utf-8")
        tree = ast.parse(source)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return []
    declared = re.search(
        rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", b"\n".join(source.splitlines()[:2]), re.MULTILINE
    )
    other_encoding = declared is not None and declared.group(1).lower() not in (b"utf-8", b"utf8")
    if source.startswith(codecs.BOM_UTF8) or other_encoding:
        return []
    return sorted(set(_block(Source(source), tree.body)))


def _block(source: Source, body: list[ast.stmt]) -> Iterator[Site]:
    for statement in body:
        if not _skipped(statement):
            yield from _walk(source, statement, alone=len(body) == 1)


def _walk(source: Source, node: ast.AST, *, alone: bool = False) -> Iterator[Site]:
    if type(node).__name__ in ("JoinedStr", "TemplateStr", "MatchValue"):
        return
    if isinstance(node, ast.stmt):
        yield from statement_sites(source, node, alone=alone)
    elif isinstance(node, ast.expr):
        yield from expression_sites(source, node)
    for name, value in ast.iter_fields(node):
        if name in _NOT_LOOKED_INTO:
            continue
        values = value if isinstance(value, list) else [value]
        children = [child for child in values if isinstance(child, ast.AST)]
        statements = [child for child in children if isinstance(child, ast.stmt)]
        if statements:
            yield from _block(source, statements)
        else:
            for child in children:
                yield from _walk(source, child)


def _skipped(node: ast.stmt) -> bool:
    """Statements whose change is no defect in the behaviour under test."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Name) and target.id.startswith("__") for target in targets)
    if isinstance(node, ast.If):
        words = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
        words |= {name.attr for name in ast.walk(node.test) if isinstance(name, ast.Attribute)}
        return bool(words & {"TYPE_CHECKING", "__name__", "version_info", "platform", "PY2", "PY3"})
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)
    return False
