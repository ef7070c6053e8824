"""Shell arithmetic, ``$((..))``: integers only, unknown names are 0 as in bash, a hole makes the result a hole."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from agentgym.monitor.effects import HOLE

_LIMIT = 2**63
_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: int(a / b) if abs(a) < 2**52 else a // b,
    ast.Mod: lambda a, b: a - b * int(a / b),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: lambda a, b: a << min(b, 63),
    ast.RShift: lambda a, b: a >> min(b, 63),
    ast.Pow: lambda a, b: a**b if abs(a) < 2**16 and 0 <= b <= 63 else 0,
}
_BASE = re.compile(r"\b(\d+)#([0-9A-Za-z]+)")
_OCTAL = re.compile(r"(?<![\w.])0([0-7]+)\b")


def evaluate(text: str, variables: Mapping[str, str]) -> str:
    """The value of the expression `text` as digits; HOLE where it is not known."""
    if HOLE in text or len(text) > 400:
        return HOLE
    source = _BASE.sub(lambda m: str(_from_base(m.group(2), int(m.group(1)))), text)
    source = _OCTAL.sub(r"0o\1", source)
    source = source.replace("/", "//").replace("&&", " and ").replace("||", " or ").replace("$", "").strip()
    try:
        return str(_value(ast.parse(source or "0", mode="eval").body, variables, 0))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return HOLE


def _from_base(digits: str, base: int) -> int:
    try:
        return int(digits, base)
    except ValueError:
        return 0


def _value(node: ast.expr, variables: Mapping[str, str], depth: int) -> int:
    if depth > 40:
        raise ValueError("too deep")
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        text = variables.get(node.id, "0") or "0"
        if HOLE in text:
            raise ValueError("unknown")
        if re.fullmatch(r"-?[0-9]+", text):
            return int(text)
        return _value(ast.parse(text, mode="eval").body, variables, depth + 10)
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, variables, depth + 1)
        if isinstance(node.op, ast.USub):
            return -inner
        return (
            int(not inner)
            if isinstance(node.op, ast.Not)
            else ~inner
            if isinstance(node.op, ast.Invert)
            else inner
        )
    if isinstance(node, ast.BinOp) and (apply := _OPERATORS.get(type(node.op))):
        result = apply(_value(node.left, variables, depth + 1), _value(node.right, variables, depth + 1))
        if abs(result) >= _LIMIT:
            raise ValueError("too large")
        return result
    raise ValueError("not arithmetic")
