"""Loops, branches and assignments of the shell: statements that are more than a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym.monitor import arithmetic, fields
from agentgym.monitor.effects import HOLE
from agentgym.monitor.syntax import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from agentgym.monitor.shell import Shell

MAX_LOOP = 16
"""Values a loop is unrolled for."""
MAX_COUNT = 96
"""Turns of a loop that counts."""

_C_START = re.compile(r"\s*(\w+)\s*=\s*(.+)", re.DOTALL)
_C_TEST = re.compile(r"\s*(\w+)\s*(<=|<|>=|>|!=)\s*(.+)", re.DOTALL)
_C_STEP = re.compile(r"\s*(?:(\w+)\s*(\+\+|--|\+=|-=)\s*(\w*)|(\+\+|--)(\w+))\s*\Z")
_FILE_TESTS = frozenset("-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -L -N -O -G -S".split())
_COMPARES_FILES = ("-nt", "-ot", "-ef")
_READS = re.compile(r"(?:IFS=\S*\s+)?read\b")


def branches(shell: Shell, node: Node) -> str:
    """if: every branch, each from the folder where the condition was asked; the first one's folder is kept."""
    cwd, moved = shell.state.cwd, ""
    out: list[str] = []
    for child in node.named_children:
        if child.type in ("elif_clause", "else_clause"):
            moved = moved or shell.state.cwd
            shell.state.cwd = cwd
        out.append(shell.run(child))
    shell.state.cwd = moved or shell.state.cwd
    return "".join(out)


def cases(shell: Shell, node: Node) -> str:
    """case: every item, each from the same folder."""
    cwd = shell.state.cwd
    out: list[str] = []
    for item in node.named_children:
        if item.type == "case_item":
            shell.state.cwd = cwd
            patterns = {(child.start_byte, child.end_byte) for child in item.children_by_field_name("value")}
            statements = [
                child for child in item.named_children if (child.start_byte, child.end_byte) not in patterns
            ]
            out.extend(map(shell.run, statements))
        elif item.type != "word":
            shell.words.fields(item)  # what is matched may hold a substitution
    return "".join(out)


def for_each(shell: Shell, node: Node) -> str:
    """for, select: the body for each word."""
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        return shell.sequence(node)
    nodes = node.children_by_field_name("value")
    values = (
        [word for child in nodes for word in shell.words.fields(child)]
        if nodes
        else list(shell.positional[1:])
    )
    out: list[str] = []
    for value in [*values[:MAX_LOOP], *([HOLE] if len(values) > MAX_LOOP else [])]:
        shell.state.variables[text_of(variable)] = value
        out.append(shell.run(body))
    return "".join(out)


def while_loop(shell: Shell, node: Node) -> str:
    """while, until: once, or once for each line where the condition reads one."""
    body = node.child_by_field_name("body")
    conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
    reads = any(_READS.match(text_of(child)) for child in conditions)
    out: list[str] = []
    for _ in range(MAX_LOOP if reads else 1):
        if reads and not shell.stdin:
            break
        out.extend(map(shell.run, conditions))
        if body is not None:
            out.append(shell.run(body))
    return "".join(out)


def counting_loop(shell: Shell, node: Node) -> str:
    """``for ((i = 0; i < n; i++))``."""
    body = node.child_by_field_name("body")
    if body is None:
        return shell.sequence(node)
    head = text_of(node).partition("((")[2].partition("))")[0].split(";")
    start, test, step = [*head, "", "", ""][:3]
    if begun := _C_START.match(start):
        shell.state.variables[begun.group(1)] = _number(shell, begun.group(2))
    out: list[str] = []
    for turn in range(MAX_COUNT):
        if turn and not _holds(shell, test):
            break
        out.append(shell.run(body))
        _advance(shell, step)
    return "".join(out)


def _holds(shell: Shell, condition: str) -> bool:
    test = _C_TEST.match(condition)
    if test is None:
        return False
    left, right = _number(shell, test.group(1)), _number(shell, test.group(3))
    if HOLE in left or HOLE in right:
        return False
    a, b = int(left), int(right)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "!=": a != b}[test.group(2)]


def _advance(shell: Shell, step: str) -> None:
    if match := _C_STEP.match(step):
        name = match.group(1) or match.group(5)
        operator = match.group(2) or match.group(4)
        size = (match.group(3) or "1") if operator in ("+=", "-=") else "1"
        shell.state.variables[name] = _number(shell, f"{name} {operator[0]} {size}")


def _number(shell: Shell, text: str) -> str:
    return arithmetic.evaluate(fields.plain(shell.words.fragment(text, quoted=True)), shell.state.variables)


def group(shell: Shell, node: Node) -> str:
    """``{ ..; }`` or ``(( .. ))``."""
    if not node.children or node.children[0].type != "((":
        return shell.sequence(node)
    if "$(" in text_of(node) or "`" in text_of(node):
        shell.words.fragment(text_of(node)[2:-2], quoted=True)
        return ""
    for part in text_of(node)[2:-2].split(","):
        if begun := _C_START.match(part):
            shell.state.variables[begun.group(1)] = _number(shell, begun.group(2))
        else:
            _advance(shell, part)
    return ""


def test(shell: Shell, node: Node) -> str:
    """``[ .. ]`` and ``[[ .. ]]``: a file that is asked for is looked at."""
    waiting = list(node.named_children)
    while waiting:
        part = waiting.pop()
        if part.type in ("command_substitution", "process_substitution"):
            shell.words.fields(part)
        elif part.type == "unary_expression":
            operator = part.child_by_field_name("operator")
            asks_file = operator is not None and text_of(operator) in _FILE_TESTS
            for word in shell.words.fields(part.named_children[-1]):
                if asks_file:
                    shell.analysis.look(word, "test")
        else:
            operator = part.child_by_field_name("operator") if part.type == "binary_expression" else None
            for side in (
                part.named_children if operator is not None and text_of(operator) in _COMPARES_FILES else ()
            ):
                for word in shell.words.fields(side):
                    shell.analysis.look(word, "test")
            waiting.extend(part.named_children)
    return ""


def assignment(shell: Shell, node: Node) -> str:
    """``name=value`` on its own."""
    name, appends, text = assigned(shell, node)
    if text is not None:
        shell.assign(name, shell.state.variables.get(name, "") + text if appends else text)
    return ""


def assigned(shell: Shell, node: Node) -> tuple[str, bool, str | None]:
    """Name, whether it appends, and text of an assignment; an array is stored at once and has no text."""
    name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    name = text_of(name_node) if name_node is not None else ""
    appends = any(child.type == "+=" for child in node.children)
    if name_node is not None and name_node.type == "subscript":
        base, _, index = name.partition("[")
        name = f"{base}[{fields.plain(shell.words.fragment(index.removesuffix(']')))}]"
    if value is not None and value.type == "array":
        _assign_array(shell, name, value, appends)
        return name, appends, None
    return name, appends, shell.words.text(value) if value is not None else ""


def _assign_array(shell: Shell, name: str, node: Node, appends: bool) -> None:
    elements: list[str] = []
    for child in node.named_children:
        text = text_of(child)
        if keyed := re.match(r"\[([^]]*)\]=", text):
            key = fields.plain(shell.words.fragment(keyed.group(1)))
            shell.state.variables[f"{name}[{key}]"] = fields.plain(shell.words.fragment(text[keyed.end() :]))
        else:
            elements.extend(shell.words.fields(child))
    before = shell.state.arrays.get(name, ()) if appends else ()
    shell.state.arrays[name] = (*before, *elements)
    shell.state.variables.pop(name, None)


def declaration(shell: Shell, node: Node) -> str:
    """``export``, ``declare``, ``local``, ``readonly`` with their assignments."""
    words: list[str] = []
    for child in node.named_children:
        if child.type == "variable_assignment":
            assignment(shell, child)
            words.append(text_of(child).partition("=")[0].rstrip("+"))
        else:
            words.extend(shell.words.fields(child))
    return shell.call([text_of(node.children[0]), *words])


def unset(shell: Shell, node: Node) -> str:
    """``unset``: variables, arrays and functions."""
    for child in node.named_children:
        for name in shell.words.fields(child):
            for table in (shell.state.variables, shell.state.arrays, shell.state.functions):
                table.pop(name, None)
    return ""


def function(shell: Shell, node: Node) -> str:
    """A function is kept as source: it may be called by a later call."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        text = shell.source_of(body)
        shell.state.functions[text_of(name)] = text
        shell.analysis.emit("env", text_of(name), "function", (text,))
    return ""


STATEMENTS: dict[str, Callable[[Shell, Node], str]] = {
    "if_statement": branches,
    "case_statement": cases,
    "for_statement": for_each,
    "c_style_for_statement": counting_loop,
    "while_statement": while_loop,
    "compound_statement": group,
    "test_command": test,
    "variable_assignment": assignment,
    "declaration_command": declaration,
    "unset_command": unset,
    "function_definition": function,
}
