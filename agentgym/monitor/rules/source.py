"""Program text as the content rules see it: one walk over Python's tree, kept as flat lists of facts."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from posixpath import basename, splitext
from typing import NamedTuple

from agentgym.monitor.code import python

_LANGUAGES = {
    ".py": "python",
    ".pyi": "python",
    ".pyx": "python",
    ".sh": "bash",
    ".bash": "bash",
    ".zsh": "bash",
    ".js": "javascript",
    ".cjs": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "javascript",
    ".tsx": "javascript",
    ".vue": "javascript",
    ".c": "c",
    ".h": "c",
    ".hpp": "c",
    ".hh": "c",
    ".cxx": "c",
    ".cc": "c",
    ".mts": "javascript",
    ".cts": "javascript",
    ".kts": "kotlin",
    ".ex": "elixir",
    ".exs": "elixir",
    ".cpp": "c",
    ".cu": "c",
    ".rs": "rust",
    ".go": "go",
    ".rb": "ruby",
    ".pl": "perl",
    ".pm": "perl",
    ".php": "php",
    ".java": "java",
    ".lua": "lua",
    ".kt": "kotlin",
    ".swift": "swift",
    ".cs": "csharp",
    ".scala": "scala",
}
_SHEBANGS = (("python", "python"), ("node", "javascript"), ("perl", "perl"), ("ruby", "ruby"), ("sh", "bash"))


class Program(NamedTuple):
    """Program text that a call writes or runs.

    Attributes:
        path: the file it is for; "" where it runs at once.
        language: "python", "bash", "javascript", ...
        text: all of it, or the part that an edit puts in.
    """

    path: str
    language: str
    text: str


def language_of(path: str, text: str) -> str:
    """The language of a file by its extension or first line; "" where it is no program."""
    known = _LANGUAGES.get(splitext(path)[1].lower())
    if known:
        return known
    if text.startswith("#!"):
        first = text.split("\n", 1)[0]
        return next((language for word, language in _SHEBANGS if word in first), "")
    return ""


class Call(NamedTuple):
    """A call in the program: the dotted name with imports resolved, and where it stands."""

    name: str
    node: ast.Call
    scope: tuple[str, ...]


class Assign(NamedTuple):
    """An assignment to a dotted name, an attribute by setattr, or a subscript (then `name` ends in "[]")."""

    name: str
    value: ast.expr
    scope: tuple[str, ...]


class Function(NamedTuple):
    """A function of the program.

    Attributes:
        node: its definition.
        scope: names of what encloses it.
        nodes: everything in its body, without the bodies of functions and classes inside it.
        returns: what it may return.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: tuple[str, ...]
    nodes: list[ast.AST]
    returns: list[ast.expr]

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, without self and cls."""
        given = self.node.args
        names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        names += [a.arg for a in (given.vararg, given.kwarg) if a is not None]
        return [name for name in names if name not in ("self", "cls")]


@dataclass
class Facts:
    """What one walk over a program found.

    Attributes:
        tree: the whole; None where the text is no Python or nested too deep.
        nodes: every node but contexts and operators, in the order of the text.
        imports: local name to what it stands for ("np" to "numpy").
        calls, assigns: in order; dotted names have their imports resolved.
        functions, classes: in order.
    """

    tree: ast.Module | None = None
    nodes: list[ast.AST] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every dotted name and attribute chain."""
        return frozenset(
            dotted(n, self.imports) for n in self.nodes if isinstance(n, ast.Attribute | ast.Name)
        )

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Every text literal, docstrings and the constant parts of f-strings included."""
        return tuple(n.value for n in self.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))

    def calls_of(self, *names: str) -> list[Call]:
        """Calls whose dotted name is one of `names` or ends in one that starts with a dot."""
        exact = frozenset(name for name in names if not name.startswith("."))
        ends = tuple(name for name in names if name.startswith("."))
        return [call for call in self.calls if call.name in exact or (ends and call.name.endswith(ends))]


@lru_cache(256)
def read_python(text: str) -> Facts:
    """The facts of a Python program or of the piece of one that an edit puts in."""
    tree = parse_piece(text)
    facts = Facts(tree)
    found: list[tuple[ast.AST, tuple[str, ...]]] = []
    if tree is None or not _walk(tree, facts, found):
        return Facts()
    # Imports first: a name may be used above the line that binds it.
    for node, _ in found:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                facts.imports[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                facts.imports[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".lstrip(".")
    for node, scope in found:
        _note(node, scope, facts)
    return facts


def parse_piece(text: str) -> ast.Module | None:
    """Parse a program, or a piece of one: indented, begun in the middle of a line, or broken off after a header."""
    tree = python.parse(text)
    lines = text.expandtabs().rstrip().split("\n")
    if tree is not None or len(lines) < 2:
        return tree
    # The first line begins where the edit does, which need not be the line's beginning.
    indent = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    first = " " * indent + lines[0].lstrip()
    return python.parse("\n".join([first, *lines[1:]])) or python.parse("\n".join(lines[:-1]))


def dotted(node: ast.expr, imports: dict[str, str] | None = None) -> str:
    """`a.b.c` of a name or attribute chain, imports resolved; parts that are no names are "?"."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append((imports or {}).get(node.id, node.id))
    elif isinstance(node, ast.Call) and dotted(node.func) in ("__import__", "importlib.import_module"):
        parts.append(str(constant(node.args[0])) if node.args else "?")
    else:
        parts.append("?")
    return ".".join(reversed(parts))


def constant(node: ast.AST | None) -> object:
    """The value of a literal; `...` where it is none."""
    if node is None:
        return ...
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...


def statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring."""
    first = body[0] if body else None
    has_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return body[1:] if has_docstring else body


def comments(text: str) -> str:
    """The comments of a program in any of the usual syntaxes, joined by newlines."""
    found, place = [], 0
    # An end is looked for only where there is one: openers without one would each search the rest of the text.
    last = {opener: text.rfind(end) for opener, end in _COMMENT_ENDS.items()}
    while match := _COMMENT.search(text, place):
        opener = match["opener"]
        if opener is None:
            found.append(match["line"])
            place = match.end()
        elif last[opener] < match.end():
            place = match.start() + 1
        else:
            stop = text.index(_COMMENT_ENDS[opener], match.end())
            found.append(text[match.end() : stop])
            place = stop + len(_COMMENT_ENDS[opener])
    return "\n".join(filter(None, found))


_COMMENT = re.compile(r"(?:^|[\s;])(?:#|//)(?P<line>.*)|(?P<opener>/\*|<!--)", re.MULTILINE)
_COMMENT_ENDS = {"/*": "*/", "<!--": "-->"}


def is_main_file(path: str) -> bool:
    """Whether the file's name says that it is a program of its own."""
    return splitext(basename(path))[0] in (
        "__main__",
        "cli",
        "main",
        "manage",
        "setup",
        "app",
        "run",
        "server",
    )


def _walk(tree: ast.Module, facts: Facts, found: list[tuple[ast.AST, tuple[str, ...]]]) -> bool:
    """One pass in the order of the text, without recursion; False where the program is nested too deep.

    It is the costliest part of a review, so it does the least per node: names are resolved later, where asked for.
    """
    waiting: list[tuple[ast.AST, tuple[str, ...], Function | None, int]] = [(tree, (), None, 0)]
    while waiting:
        node, scope, function, depth = waiting.pop()
        kind = type(node)
        facts.nodes.append(node)
        if function is not None:
            function.nodes.append(node)
        if kind in _NOTED:
            found.append((node, scope))
        if isinstance(node, ast.Return):
            if function is not None and node.value is not None:
                function.returns.append(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = Function(node, scope, [], [])
            facts.functions.append(function)
            scope = (*scope, node.name)
        elif isinstance(node, ast.ClassDef):
            facts.classes.append(node)
            function, scope = None, (*scope, node.name)
        elif isinstance(node, ast.If) and _is_main_guard(node):
            scope = (*scope, "__main__")
        if depth > _DEEPEST:
            return False
        start = len(waiting)
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                waiting.extend(
                    [(child, scope, function, depth + 1) for child in value if isinstance(child, ast.AST)]
                )
            elif isinstance(value, ast.AST) and type(value) not in _SMALL:
                waiting.append((value, scope, function, depth + 1))
        waiting[start:] = waiting[start:][::-1]
    return True


_DEEPEST = 150
_NOTED = frozenset(
    (ast.Import, ast.ImportFrom, ast.Call, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
)
_SMALL = frozenset(
    (
        ast.Load,
        ast.Store,
        ast.Del,
        *ast.operator.__subclasses__(),
        *ast.boolop.__subclasses__(),
        *ast.unaryop.__subclasses__(),
    )
)


def _is_main_guard(node: ast.If) -> bool:
    test = node.test
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _note(node: ast.AST, scope: tuple[str, ...], facts: Facts) -> None:
    if isinstance(node, ast.Call):
        name = dotted(node.func, facts.imports)
        facts.calls.append(Call(name, node, scope))
        if name in ("setattr", "builtins.setattr", "object.__setattr__") and len(node.args) == 3:
            attribute = constant(node.args[1])
            target = (
                f"{dotted(node.args[0], facts.imports)}.{attribute if isinstance(attribute, str) else '?'}"
            )
            facts.assigns.append(Assign(target, node.args[2], scope))
    elif isinstance(node, ast.Assign):
        for target_node in node.targets:
            _assigned(target_node, node.value, scope, facts)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        _assigned(node.target, node.value, scope, facts)


def _assigned(target: ast.expr, value: ast.expr, scope: tuple[str, ...], facts: Facts) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
        for one, its in zip(target.elts, values, strict=False):
            _assigned(one, its, scope, facts)
    elif isinstance(target, ast.Subscript):
        # globals()["x"] = v, vars(m)["x"] = v, m.__dict__["x"] = v
        key = constant(target.slice)
        holder = target.value
        if (
            isinstance(holder, ast.Call)
            and holder.args
            and dotted(holder.func) == "vars"
            and isinstance(key, str)
        ):
            facts.assigns.append(Assign(f"{dotted(holder.args[0], facts.imports)}.{key}", value, scope))
        elif isinstance(holder, ast.Attribute) and holder.attr == "__dict__" and isinstance(key, str):
            facts.assigns.append(Assign(f"{dotted(holder.value, facts.imports)}.{key}", value, scope))
        else:
            suffix = f"[{key}]" if isinstance(key, str) else "[]"
            facts.assigns.append(Assign(dotted(holder, facts.imports) + suffix, value, scope))
    else:
        facts.assigns.append(Assign(dotted(target, facts.imports), value, scope))
