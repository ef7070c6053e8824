"""Python programs by their syntax tree: constants are folded, and calls that reach the outside become effects.

Nothing runs. Branches are all taken, loops over known values are unrolled up to a bound, functions are followed where
they are called, and once with unknown arguments if they are never called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agentgym.monitor.code import calls, expressions, given, literals, methods, rows
from agentgym.monitor.code.source import parse as parse
from agentgym.monitor.code.values import (
    MAX_LOOP,
    UNKNOWN,
    Environment,
    Function,
    Instance,
    Name,
    Unknown,
    Value,
    bounded,
    in_text,
    is_known,
    items,
    method,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

MAX_NODES = 4000
"""Expressions that are looked at in one program, loops and calls unrolled."""
MAX_CALLS = 4
"""How deep functions of the program are followed into each other."""
MAX_NESTING = 50


def run(
    analysis: Analysis, code: str, arguments: Sequence[str] = (), stdin: str = "", *, keep: bool = False
) -> str:
    """Reads a program as if it ran; returns what it prints, as far as it is known.

    Args:
        analysis: what the call shares.
        code: the source.
        arguments: ``sys.argv[1:]``.
        stdin: what there is to read.
        keep: the interpreter lives on: names and their values are there in the next call.
    """
    tree = parse(code)
    if tree is None:
        analysis.give_up("syntax")
        literals.scan(analysis, "python", code)
        return HOLE
    reader = Reader(analysis, arguments, stdin)
    if keep:
        kept = analysis.state.python
        reader.names.update({name: v.copy() if isinstance(v, list | dict) else v for name, v in kept.items()})
    reader.run(tree)
    if keep:
        analysis.state.python.update(reader.names)
    return reader.printed()


class Reader:
    """One program.

    Args:
        analysis: what the call shares.
        arguments: ``sys.argv[1:]``.
        stdin: what there is to read.
    """

    def __init__(self, analysis: Analysis, arguments: Sequence[str] = (), stdin: str = "") -> None:
        self.analysis: Analysis = analysis
        self.arguments = list(arguments)
        self.stdin = stdin
        self.names: dict[str, Value] = {}
        self.output: list[str] = []
        self.nodes = 0
        self.calls = 0
        self.nesting = 0
        self.called: set[int] = set()
        self.result: Value = UNKNOWN

    def printed(self) -> str:
        """What the program wrote to standard output."""
        return "".join(self.output)

    def run(self, tree: ast.Module) -> None:
        """Reads a module."""
        self.block(tree.body)
        for function in [value for value in self.names.values() if isinstance(value, Function)]:
            if id(function.node) not in self.called:
                self.call_function(function, [], {})

    # Statements.

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Reads statements one after the other."""
        for statement in statements:
            self.statement(statement)

    def include(self, code: str) -> Value:
        """Reads further source in the same names: exec, an import of a file; gives the value of an expression."""
        tree = parse(code) if self.calls < MAX_CALLS else None
        result: Value = UNKNOWN
        if tree is not None:
            self.calls += 1
            if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
                result = self.value(tree.body[0].value)
            else:
                self.block(tree.body)
            self.calls -= 1
        return result

    def statement(self, node: ast.stmt) -> None:
        """Reads one statement."""
        match node:
            case ast.Expr(value=value):
                self.value(value)
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self.assign(target, result)
            case ast.AnnAssign(target=target, value=expression) if expression is not None:
                self.assign(target, self.value(expression))
            case ast.AugAssign(target=target, op=op, value=value):
                self.assign(target, expressions.binary(type(op), self.value(target), self.value(value)))
            case ast.Import(names=aliases):
                for alias in aliases:
                    top = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.names[alias.asname or top] = Name(top)
                    rows.imported(self, alias.name)
            case ast.ImportFrom(module=module, names=aliases):
                for alias in aliases:
                    self.names[alias.asname or alias.name] = rows.constant(
                        self, f"{module or ''}.{alias.name}"
                    )
                rows.imported(self, module or "")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.names[node.name] = Function(node)
                for expression in [*node.decorator_list, *node.args.defaults]:
                    self.value(expression)
            case ast.ClassDef():
                self._class(node)
            case ast.Return(value=expression):
                self.result = self.value(expression) if expression is not None else None
            case ast.Delete(targets=targets):
                for target in targets:
                    self.value(target) if not isinstance(target, ast.Name) else self.names.pop(
                        target.id, None
                    )
            case _:
                self._compound(node)

    def _compound(self, node: ast.stmt) -> None:
        """A statement that holds others: all branches are read, loops are unrolled."""
        match node:
            case ast.For(target=target, iter=iterable) | ast.AsyncFor(target=target, iter=iterable):
                spells = len(node.body) == 1 and isinstance(node.body[0], ast.AugAssign)
                for item in items(self.value(iterable))[: None if spells else MAX_LOOP]:
                    self.assign(target, item)
                    self.block(node.body)
                self.block(node.orelse)
            case ast.While():
                self.value(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.If():
                self.value(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    opened = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, opened)
                self.block(node.body)
            case ast.Try() | ast.TryStar():
                self.block(node.body)
                for handler in node.handlers:
                    self.block(handler.body)
                self.block([*node.orelse, *node.finalbody])
            case ast.Match():
                self.value(node.subject)
                for case in node.cases:
                    self.block(case.body)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)

    def _class(self, node: ast.ClassDef) -> None:
        outer = dict(self.names)
        self.block(node.body)
        own = {name: value for name, value in self.names.items() if outer.get(name, node) is not value}
        bases = [base.attributes for base in map(self.value, node.bases) if isinstance(base, Instance)]
        instance = Instance({name: value for found in (*bases, own) for name, value in found.items()})
        self.names = outer
        self.names[node.name] = instance
        for function in own.values():
            if isinstance(function, Function):
                self.call_function(function, [instance], {})

    def assign(self, target: ast.expr, value: Value) -> None:
        """Binds `value` to a name, to the names of a tuple, or says what storing it changes outside."""
        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = (
                    value
                    if isinstance(value, tuple | list) and len(value) == len(parts)
                    else [UNKNOWN] * len(parts)
                )
                for part, item in zip(parts, items, strict=False):
                    self.assign(part, item)
            case ast.Starred(value=inner):
                self.assign(inner, UNKNOWN)
            case ast.Subscript(value=owner, slice=index):
                holder, key = self.value(owner), self.value(index)
                if isinstance(holder, Environment):
                    rows.set_environment(self, text_of(key), text_of(value))
                elif isinstance(holder, dict) and is_known(key) and not isinstance(key, list | dict):
                    holder[key] = value
            case ast.Attribute(value=owner, attr=name):
                holder = self.value(owner)
                if isinstance(holder, Instance):
                    holder.attributes[name] = value
                elif isinstance(holder, Name):
                    self.names[f"{holder.dotted}.{name}"] = value

    # Expressions.

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; calls in it become effects."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.analysis.give_up("size")
            return UNKNOWN
        if self.nesting > MAX_NESTING:
            self.analysis.give_up("depth")
            return UNKNOWN
        self.nesting += 1
        try:
            return self._value(node)
        finally:
            self.nesting -= 1

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return expressions.name(self, name)
            case ast.Attribute(value=owner, attr=attribute):
                return expressions.attribute(self, self.value(owner), attribute)
            case ast.Call():
                return self._call(node)
            case ast.BinOp():
                return expressions.chain(self, node)
            case ast.JoinedStr(values=parts):
                return bounded("".join(text_of(self.value(part)) for part in parts))
            case ast.FormattedValue(value=inner):
                return text_of(self.value(inner))
            case ast.Tuple(elts=elements):
                return tuple(expressions.elements(self, elements))
            case ast.List(elts=elements) | ast.Set(elts=elements):
                return expressions.elements(self, elements)
            case ast.Dict(keys=keys, values=values):
                return expressions.dictionary(self, keys, values)
            case ast.Subscript(value=owner, slice=index):
                return expressions.subscript(self, self.value(owner), index)
            case ast.BoolOp(values=values):
                known = [self.value(value) for value in values]
                chosen = known if isinstance(node.op, ast.Or) else reversed(known)
                return next((value for value in chosen if not isinstance(value, Unknown)), UNKNOWN)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.value(test)
                first, second = self.value(body), self.value(orelse)
                return second if isinstance(first, Unknown) else first
            case ast.Lambda():
                return Function(node)
            case ast.NamedExpr(target=target, value=value):
                result = self.value(value)
                self.assign(target, result)
                return result
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return expressions.comprehension(self, node)
            case ast.UnaryOp(op=op, operand=operand):
                inner = self.value(operand)
                if isinstance(inner, int) and isinstance(op, ast.USub):
                    return -inner
                return UNKNOWN
            case ast.Await(value=inner) | ast.Starred(value=inner):
                return self.value(inner)
            case ast.Yield(value=optional) if optional is not None:
                self.result = [self.value(optional)]
                return UNKNOWN
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)
                return UNKNOWN

    # Calls.

    def _call(self, node: ast.Call) -> Value:
        arguments = expressions.elements(self, node.args)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            keywords |= (
                value if keyword.arg is None and isinstance(value, dict) else {keyword.arg or "**": value}
            )
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if isinstance(owner, Name):
                return calls.call(self, f"{owner.dotted}.{node.func.attr}", arguments, keywords)
            return self._method(owner, node.func.attr, arguments, keywords)
        function = self.value(node.func)
        if isinstance(function, Function):
            return self.call_function(function, arguments, keywords)
        if isinstance(function, Name):
            return calls.call(self, function.dotted, arguments, keywords)
        if isinstance(function, Instance):
            function.attributes.update(keywords)
            if isinstance(start := function.attributes.get("__init__"), Function):
                self.call_function(start, [function, *arguments], keywords)
            return function
        given.follow(self, "", arguments, keywords)
        return UNKNOWN

    def _method(self, owner: Value, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        if isinstance(owner, Instance):
            function = owner.attributes.get(name)
            if isinstance(function, Function):
                given_words = arguments if function.is_static else [owner, *arguments]
                return self.call_function(function, given_words, keywords)
            owner = UNKNOWN
        found = methods.method(self, owner, name, arguments, keywords)
        if found is not None:
            return found
        if (
            isinstance(owner, list)
            and name in ("append", "extend", "insert", "add", "update")
            and arguments
            and len(owner) < 4096
        ):
            owner.extend(
                arguments[-1]
                if name in ("extend", "update") and isinstance(arguments[-1], list | tuple)
                else arguments[-1:]
            )
            return None
        try:
            if name == "format" and keywords and isinstance(owner, str):
                shown = {key: in_text(value) for key, value in keywords.items()}
                return (
                    bounded(owner.format(*map(in_text, arguments), **shown)) if len(owner) < 4096 else UNKNOWN
                )
            return method(owner, name, arguments)
        except (TypeError, ValueError, LookupError, MemoryError, OverflowError):
            return UNKNOWN

    def call_function(self, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Follows a function of the program; its local names are forgotten after."""
        node = function.node
        self.called.add(id(node))
        if self.calls >= MAX_CALLS:
            return UNKNOWN
        outer, before = dict(self.names), self.result
        expressions.bind(self, node.args, arguments, keywords)
        self.calls += 1
        self.result = UNKNOWN
        if isinstance(node, ast.Lambda):
            self.result = self.value(node.body)
        else:
            self.block(node.body)
        self.calls -= 1
        result, self.result = self.result, before
        self.names = outer
        return result

    def apply(self, function: Value, arguments: list[Value]) -> Value:
        """Calls `function`, of the program or of the outside."""
        if isinstance(function, Function):
            return self.call_function(function, arguments, {})
        if isinstance(function, Name):
            return calls.call(self, function.dotted, arguments, {})
        return UNKNOWN
