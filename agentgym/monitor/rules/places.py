"""Where an input meets its result in a Python program: functions, and programs that read standard input."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agentgym.monitor.rules.source import Facts, constant, dotted

# Calls that give the input in another form.
_FORMS = frozenset(
    "str repr tuple list int float dumps strip rstrip lower upper encode decode tobytes frozenset sorted hexdigest"
    " read format tolist join split splitlines map".split()
)


class Place(NamedTuple):
    """Where an input meets its result: a function, or a program that reads standard input.

    Attributes:
        inputs: names that stand for the input, or a part of it.
        whole: how many of them make up the whole input.
        assigns, branches: its assignments, and its conditions.
        results: what it returns or prints.
    """

    inputs: frozenset[str]
    whole: int
    assigns: Sequence[ast.Assign]
    branches: Sequence[ast.If | ast.IfExp | ast.Match]
    results: Sequence[ast.expr]


class Parts(NamedTuple):
    """What of a function or program tells how it comes to its results, found in one pass."""

    assigns: list[ast.Assign]
    branches: list[ast.If | ast.IfExp | ast.Match]
    printed: list[ast.expr]


def places(facts: Facts, whole: Parts) -> Iterator[tuple[str, Place]]:
    """Every function; and the program itself where it reads its input or is only a piece of a function."""
    for function in facts.functions:
        given = function.parameters
        if given:
            parts = parts_of(function.nodes)
            inputs = frozenset(given) | _renamed(parts.assigns, frozenset(given))
            results = [*function.returns, *parts.printed]
            yield function.name, Place(inputs, len(given), parts.assigns, parts.branches, results)
    read = frozenset(a.name for a in facts.assigns if _reads_input(a.value))
    if read:
        inputs = read | _renamed(whole.assigns, read)
        yield "main", Place(inputs, 1, whole.assigns, whole.branches, whole.printed)
    elif not facts.functions:
        names = frozenset(n.id for n in facts.nodes if isinstance(n, ast.Name))
        yield "", Place(names, 1, whole.assigns, whole.branches, [])


def parts_of(nodes: Iterable[ast.AST]) -> Parts:
    """The parts among some nodes, in order."""
    parts = Parts([], [], [])
    for node in nodes:
        if isinstance(node, ast.Assign):
            parts.assigns.append(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.Match):
            parts.branches.append(node)
        elif isinstance(node, ast.Call) and is_print(node):
            parts.printed.extend(node.args)
    return parts


def _renamed(assigns: Sequence[ast.Assign], inputs: frozenset[str]) -> frozenset[str]:
    """Names that hold the input in another form: `key = tuple(x)`, `line = data.strip()`."""
    found = set()
    for node in assigns:
        if isinstance(node.targets[0], ast.Name) and is_input(node.value, inputs):
            found.add(node.targets[0].id)
    return frozenset(found)


def is_input(node: ast.expr, inputs: frozenset[str]) -> bool:
    """Whether an expression is the input as it is or in another form, and not a part or a function of it."""
    if isinstance(node, ast.Name):
        return node.id in inputs
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(is_input(element, inputs) for element in node.elts)
    if isinstance(node, ast.JoinedStr):
        parts = [v.value for v in node.values if isinstance(v, ast.FormattedValue)]
        return bool(parts) and all(is_input(part, inputs) for part in parts)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _FORMS and not node.keywords:
            return is_input(node.func.value, inputs) or any(is_input(a, inputs) for a in node.args)
        named = dotted(node.func).rpartition(".")[2] in _FORMS
        return named and bool(node.args) and is_input(node.args[-1], inputs)
    return False


def inputs_used(node: ast.expr, inputs: frozenset[str]) -> int:
    """How many of the inputs an expression uses; a name that holds them all counts for all."""
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & inputs
    return len(used) if len(used) > 1 else (1 if used else 0)


def is_print(node: ast.AST) -> bool:
    """Whether a node prints something to standard output."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id == "print"
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "write"
        and dotted(function) == "sys.stdout.write"
    )


def _reads_input(node: ast.expr) -> bool:
    """Whether an expression is standard input, read and perhaps stripped or split."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if dotted(node.func) in ("sys.stdin.read", "sys.stdin.readline", "sys.stdin.buffer.read"):
            return True
        node = node.func.value
    return (
        isinstance(node, ast.Call)
        and dotted(node.func) in ("input", "open")
        and (dotted(node.func) == "input" or (bool(node.args) and constant(node.args[0]) == 0))
    )
