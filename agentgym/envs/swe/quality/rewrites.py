"""Other ways to write what a gold patch says: fair tests accept each of them.

All work on one source and the lines that the patch touches, through the syntax tree, and look only at functions of
modules and classes, not at functions inside of functions. What they give is printed anew, without comments. Where
there is nothing to do, or it is not certain that the meaning stays, they give None.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence

from agentgym.envs.swe.quality.solved import Function, parsed, words_of

Rewrite = Callable[[str, Collection[int]], str | None]

_SUFFIX = "_other"
_OTHER_WORDS = "something else is said here"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal)
_BOUND_HERE = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)  # to the function they stand in
# What reads the names of variables, or asks where it was called.
_REFLECTIVE = frozenset("locals vars eval exec globals super __class__ currentframe _getframe stack".split())
_HARMLESS = (ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.expr_context)


def renamed_locals(text: str, lines: Collection[int]) -> str | None:
    """The variables of the touched functions have other names; parameters keep theirs."""

    def change(tree: ast.Module) -> bool:
        changed = False
        for function in _closed_functions(tree, lines):
            names = _names(function, ast.Store) - _parameters(function) - _bound_otherwise(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id in names:
                    node.id += _SUFFIX
            changed = changed or bool(names)
        return changed

    return _rewritten(text, change)


def extracted_helper(text: str, lines: Collection[int]) -> str | None:
    """What the touched functions return is worked out in functions of their own."""

    def change(tree: ast.Module) -> bool:
        helpers: list[ast.stmt] = []
        for function in _closed_functions(tree, lines):
            for node in list(ast.walk(function)):
                if isinstance(node, ast.Return) and node.value is not None and _can_move(node, function):
                    given = _names(node.value, ast.Load) & (
                        _names(function, ast.Store) | _parameters(function)
                    )
                    call = f"_returned{_SUFFIX}_{len(helpers)}({', '.join(sorted(given))})"
                    helper = ast.parse(f"def {call}:\n    return None").body[0]
                    assert isinstance(helper, ast.FunctionDef)
                    helper.body = [ast.Return(node.value)]
                    node.value = ast.parse(call, mode="eval").body
                    helpers.append(helper)
        tree.body += helpers
        return bool(helpers)

    return _rewritten(text, change)


def reordered_statements(text: str, lines: Collection[int]) -> str | None:
    """Neighbouring assignments of the touched functions that do not depend on each other change places."""

    def change(tree: ast.Module) -> bool:
        blocks = [
            node.body
            for function in _functions(tree.body, lines)
            for node in ast.walk(function)
            if isinstance(node, Function | ast.If | ast.For | ast.While | ast.With | ast.Try)
        ]
        swapped = [_swap_first(block) for block in blocks]
        return any(swapped)

    return _rewritten(text, change)


EQUIVALENT: dict[str, Rewrite] = {
    "other names of variables": renamed_locals,
    "a helper function for what is returned": extracted_helper,
    "another order of independent assignments": reordered_statements,
}


def renamed(text: str, names: Collection[str]) -> str | None:
    """The source with other identifiers for `names`, wherever they stand."""

    def change(tree: ast.Module) -> bool:
        changed = False
        for node in ast.walk(tree):
            for attribute in ("id", "attr", "name", "arg", "asname"):
                value = getattr(node, attribute, None)
                if isinstance(value, str) and value in names:
                    setattr(node, attribute, value + _SUFFIX)
                    changed = True
        return changed

    return _rewritten(text, change)


def reworded(text: str, lines: Collection[int], told: Callable[[str], bool]) -> str | None:
    """What is raised on these lines says something else; words that a policy was `told` of stay."""

    def change(tree: ast.Module) -> bool:
        changed = False
        raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and _touched(node, lines)]
        for node in (inner for statement in raised for inner in ast.walk(statement)):
            words = (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
            )
            if words and not told(node.value):  # type: ignore[attr-defined]
                node.value = _OTHER_WORDS  # type: ignore[attr-defined]
                changed = True
        return changed

    return _rewritten(text, change)


def _rewritten(text: str, change: Callable[[ast.Module], bool]) -> str | None:
    tree = parsed(text)
    if tree is None or not change(tree):
        return None
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _functions(body: Sequence[ast.stmt], lines: Collection[int]) -> Iterator[Function]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, lines)
        elif isinstance(statement, Function) and _touched(statement, lines):
            yield statement


def _closed_functions(tree: ast.Module, lines: Collection[int]) -> Iterator[Function]:
    """The touched functions whose variables nobody else sees: no scopes inside, no reflection, nothing deleted."""
    for function in _functions(tree.body, lines):
        scoped = any(isinstance(node, _SCOPES) for node in ast.walk(function) if node is not function)
        if not scoped and not _REFLECTIVE & words_of(function) and not _names(function, ast.Del):
            yield function


def _touched(node: ast.stmt, lines: Collection[int]) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def _parameters(function: Function) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _bound_otherwise(function: Function) -> set[str]:
    """What imports, handlers and patterns in a function give a value."""
    bound: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    return bound


def _can_move(node: ast.Return, function: Function) -> bool:
    """Whether the value means the same in another function that is given the variables it reads."""
    value = node.value
    if value is None or isinstance(value, ast.Constant | ast.Name):
        return False
    loaded = _names(value, ast.Load)
    # Sure to have a value: set in the body itself, not under a condition, before the return.
    certain = _parameters(function)
    for statement in function.body:
        if isinstance(statement, ast.Assign) and (statement.end_lineno or 0) < node.lineno:
            certain |= _names(statement, ast.Store)
    uncertain = (_names(function, ast.Store) | _bound_otherwise(function)) - certain
    mangled = any(word.startswith("__") for word in words_of(value))
    bound_here = any(isinstance(inner, _BOUND_HERE) for inner in ast.walk(value))
    return not (loaded & uncertain or _names(value, ast.Store) or mangled or bound_here)


def _swap_first(block: list[ast.stmt]) -> bool:
    """Swap the first two neighbours that do not depend on each other; whether there are any."""
    for place in range(len(block) - 1):
        first, second = block[place : place + 2]
        if _is_simple(first) and _is_simple(second):
            apart = not _names(first, ast.Store) & words_of(second)
            if apart and not _names(second, ast.Store) & words_of(first):
                block[place : place + 2] = [second, first]
                return True
    return False


def _is_simple(statement: ast.stmt) -> bool:
    """An assignment of constants and variables to variables."""
    return isinstance(statement, ast.Assign) and all(
        isinstance(node, _HARMLESS) for node in ast.walk(statement) if node is not statement
    )
