"""Small defects in Python source: found by syntax tree, made by splicing bytes, so comments and layout stay.

`find_sites` lists where a defect of a known kind can be put, in a fixed order; `apply` puts one there. Left
alone are docstrings and other texts, annotations, assertions, names such as ``__version__``, code for type
checkers only, code that asks for the interpreter's version, and everything inside f-strings, whose
positions Python 3.11 gets wrong.
"""

from __future__ import annotations

import ast
import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMPARISONS: dict[type[ast.cmpop], tuple[bytes, bytes]] = {
    ast.Lt: (rb"<", b"<="),
    ast.LtE: (rb"<=", b"<"),
    ast.Gt: (rb">", b">="),
    ast.GtE: (rb">=", b">"),
    ast.Eq: (rb"==", b"!="),
    ast.NotEq: (rb"!=", b"=="),
    ast.Is: (rb"\bis\b", b"is not"),
    ast.IsNot: (rb"\bis\s+not\b", b"is"),
    ast.In: (rb"\bin\b", b"not in"),
    ast.NotIn: (rb"\bnot\s+in\b", b"in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[bytes, bytes]] = {
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
_COMMENT_ONLY = re.compile(rb"[ \t\f]*(#.*)?$")


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place for a defect: bytes `start` to `end` of the source become `replacement`; `line` counts from 1."""

    start: int
    end: int
    kind: str
    replacement: bytes
    line: int


def apply(source: bytes, site: Site) -> bytes:
    """The source with the defect.

    Raises:
        ValueError: the result does not parse or means the same; `find_sites` gives no such site for the source.
    """
    mutated = source[: site.start] + site.replacement + source[site.end :]
    try:
        same = ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"the {site.kind} at line {site.line} does not parse: {error}") from None
    if same:
        raise ValueError(f"the {site.kind} at line {site.line} changes nothing")
    return mutated


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
    return sorted(_Finder(source).block(tree.body))


class _Finder:
    """Walks one file; every method yields sites."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _site(self, kind: str, start: int, end: int, replacement: bytes) -> Site:
        line = self._source.count(b"\n", 0, start) + 1
        return Site(start, end, kind, replacement, line)

    def block(self, body: list[ast.stmt]) -> Iterator[Site]:
        for statement in body:
            if not _skipped(statement):
                yield from self._walk(statement, alone=len(body) == 1)

    def _walk(self, node: ast.AST, *, alone: bool = False) -> Iterator[Site]:
        if type(node).__name__ in ("JoinedStr", "TemplateStr", "MatchValue"):
            return
        if isinstance(node, ast.If):
            yield from self._guard(node, alone=alone)
            yield from self._else(node)
        elif isinstance(node, ast.expr):
            yield from self._expression(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            values = value if isinstance(value, list) else [value]
            children = [child for child in values if isinstance(child, ast.AST)]
            statements = [child for child in children if isinstance(child, ast.stmt)]
            if statements:
                yield from self.block(statements)
            else:
                for child in children:
                    yield from self._walk(child)

    def _whole_lines(self, first: int, end: int) -> tuple[int, int] | None:
        """Start and end of the lines from byte `first` to `end`, if nothing else stands on them."""
        start = self._source.rfind(b"\n", 0, first) + 1
        stop = self._source.find(b"\n", end)
        stop = len(self._source) if stop < 0 else stop + 1
        clean = not self._source[start:first].strip() and _COMMENT_ONLY.match(
            self._source[end:stop].rstrip(b"\r\n")
        )
        return (start, stop) if clean else None

    def _guard(self, node: ast.If, *, alone: bool) -> Iterator[Site]:
        """An early exit under an if: gone."""
        start, end = self._start(node), self._end(node)
        leaves = len(node.body) == 1 and isinstance(
            node.body[0], ast.Return | ast.Raise | ast.Continue | ast.Break
        )
        if alone or node.orelse or not leaves or not self._source.startswith(b"if", start):
            return
        span = self._whole_lines(start, end)
        if span is not None:
            yield self._site("dropped_guard", *span, b"")

    def _else(self, node: ast.If) -> Iterator[Site]:
        """An else block: gone."""
        if not node.orelse:
            return
        gap_start, gap_end = self._end(node.body[-1]), self._start(node.orelse[0])
        found = list(re.finditer(rb"^[ \t]*else[ \t]*:", self._source[gap_start:gap_end], re.MULTILINE))
        if len(found) != 1:
            return
        first = gap_start + found[0].start()
        first += len(found[0].group()) - len(found[0].group().lstrip())
        span = self._whole_lines(first, self._end(node.orelse[-1]))
        if span is not None:
            yield self._site("dropped_else", *span, b"")

    def _expression(self, node: ast.expr) -> Iterator[Site]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pattern, other = _COMPARISONS[type(node.ops[0])]
            yield from self._operator("comparison", node.left, node.comparators[0], pattern, other)
        elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
            names = (rb"\band\b", b"or") if isinstance(node.op, ast.And) else (rb"\bor\b", b"and")
            yield from self._operator("boolean", node.values[0], node.values[1], *names)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _textual(node):
            yield from self._operator("arithmetic", node.left, node.right, *_ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            word = re.compile(rb"not[ \t]*").match(self._source, self._start(node))
            if word:
                yield self._site("dropped_not", word.start(), word.end(), b"")
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call):
            yield from self._arguments(node)
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                if (
                    isinstance(bound, ast.Name | ast.Attribute | ast.Call)
                    and bound.lineno == bound.end_lineno
                ):
                    yield self._site("slice", self._end(bound), self._end(bound), b" + 1")

    def _operator(
        self, kind: str, left: ast.expr, right: ast.expr, pattern: bytes, other: bytes
    ) -> Iterator[Site]:
        start, end = self._end(left), self._start(right)
        gap = self._source[start:end]
        found = list(re.finditer(pattern, gap))
        if b"#" in gap or len(found) != 1 or _has_fstring(left):
            return
        yield self._site(kind, start + found[0].start(), start + found[0].end(), other)

    def _constant(self, node: ast.Constant) -> Iterator[Site]:
        start, end = self._start(node), self._end(node)
        if isinstance(node.value, bool):
            yield self._site("flipped_flag", start, end, str(not node.value).encode())
        elif isinstance(node.value, int) and self._source[start:end].decode() == str(node.value):
            # not in another notation, such as hexadecimal, where a value is mostly a mask or a code point
            yield self._site("integer", start, end, str(node.value + 1).encode())

    def _arguments(self, node: ast.Call) -> Iterator[Site]:
        if len(node.args) < 2:
            return
        first, second = node.args[:2]
        unfit = (ast.Starred, ast.NamedExpr, ast.GeneratorExp)
        if (
            isinstance(first, unfit)
            or isinstance(second, unfit)
            or _has_fstring(first)
            or _has_fstring(second)
        ):
            return
        if ast.dump(first) == ast.dump(second):
            return
        spans = [self._start(first), self._end(first), self._start(second), self._end(second)]
        one, gap, two = (self._source[a:b] for a, b in pairwise(spans))
        yield self._site("swapped_arguments", spans[0], spans[3], two + gap + one)


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


def _textual(node: ast.BinOp) -> bool:
    """Joining or formatting texts: another operator would fail at once, everywhere."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _has_fstring(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.JoinedStr) for inner in ast.walk(node))
