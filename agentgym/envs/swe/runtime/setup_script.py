"""The arguments of a `setup.py`, read from its syntax tree: a stranger's script is never run for them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

_UNKNOWN = object()


def setup_arguments(tree: Path) -> dict[str, Any]:
    """Keyword arguments of the call of `setup` in the tree's setup.py, as far as they can be told without running it.

    Names are followed to assignments at any level, in the order of the file: of several, the last counts. Lists, dicts
    and texts are put together with ``+``, ``+=``, ``dict()`` and item assignment; everything else is unknown, and an
    unknown element of a list is left out.
    """
    path = tree / "setup.py"
    if not path.is_file():
        return {}
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # Python 2, or no text
        return {}
    reader = _Reader()
    reader.visit(module)
    return reader.arguments


class _Reader(ast.NodeVisitor):
    """Follows the assignments of a script down to its call of `setup`."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        value = self.value(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = value
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                owner, key = self.names.get(target.value.id), self.value(target.slice)
                if isinstance(owner, dict) and isinstance(key, str) and value is not _UNKNOWN:
                    owner[key] = value

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and isinstance(node.target, ast.Name):
            self.names[node.target.id] = self.value(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            old = self.names.get(node.target.id, _UNKNOWN)
            self.names[node.target.id] = _joined(old, self.value(node.value))

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name != "setup":
            return
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None and value is not _UNKNOWN:
                self.arguments[keyword.arg] = value
            elif keyword.arg is None and isinstance(value, dict):
                self.arguments.update(value)

    def value(self, node: ast.expr) -> Any:
        """What an expression is, or `_UNKNOWN`."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.names.get(node.id, _UNKNOWN)
            case ast.List() | ast.Tuple() | ast.Set():
                return [value for value in map(self.value, node.elts) if value is not _UNKNOWN]
            case ast.Dict():
                return self._dict(node)
            case ast.BinOp(op=ast.Add()):
                return _joined(self.value(node.left), self.value(node.right))
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                pairs = {keyword.arg: self.value(keyword.value) for keyword in node.keywords}
                return {key: value for key, value in pairs.items() if key and value is not _UNKNOWN}
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted" | "set"), args=[only]):
                return self.value(only)
            case ast.Subscript():
                owner, key = self.value(node.value), self.value(node.slice)
                return (
                    owner.get(key, _UNKNOWN) if isinstance(owner, dict) and isinstance(key, str) else _UNKNOWN
                )
        return _UNKNOWN

    def _dict(self, node: ast.Dict) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if key is None:
                result.update(value if isinstance(value, dict) else {})
            elif isinstance(name := self.value(key), str) and value is not _UNKNOWN:
                result[name] = value
        return result


def _joined(left: Any, right: Any) -> Any:
    """Their sum; of a known and an unknown list, the known one."""
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) or isinstance(right, list):
        return left if isinstance(left, list) else right
    return _UNKNOWN
