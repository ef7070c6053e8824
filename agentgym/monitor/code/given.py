"""Functions and objects that nothing is known of: a protected path that they are given is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentgym.monitor.code.values import UNKNOWN, Name, PathValue, Value

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

_SAYS = frozenset(
    "startswith endswith info debug warning warn error exception critical log add_argument append count index find "
    "removeprefix is_relative_to relative_to match fullmatch search fail skip echo secho mark parametrize "
    "assertEqual assertIn assertTrue get post put patch delete head options route request redirect add_url_rule "
    "add_route url_for websocket dump dumps safe_dump pprint Namespace setdefault TypeError ValueError".split()
)
"""Methods that speak of a path or compare it."""
_QUERIES = frozenset("execute executescript executemany sql query read_sql read_sql_query".split())
_IN_QUERY = re.compile(r"['\"](/[^'\"\s]+)['\"]")


def follow(reader: Reader, name: str, arguments: list[Value], keywords: dict[str, Value]) -> None:
    """`name` is called: functions among its arguments are called once, protected paths are read."""
    last = name.rpartition(".")[2]
    given = [*arguments, *keywords.values()]
    for argument in given:
        if isinstance(target := keywords.get("target"), type(argument)) and argument is target:
            handed = keywords.get("args")
            reader.apply(argument, list(handed) if isinstance(handed, list | tuple) else [UNKNOWN])
        else:
            reader.apply(argument, [UNKNOWN])
    if last in _SAYS:
        return
    context = reader.analysis.context
    for text in _texts(given, 0):
        paths = _IN_QUERY.findall(text) if last in _QUERIES else [text] if text.startswith("/") else []
        for path in paths:
            if (
                len(path) < 512
                and "\n" not in path
                and context.protection_of(reader.analysis.locate(path)[0]) == "protected"
            ):
                reader.analysis.read(path, "python")


def _texts(values: list[Value], depth: int) -> Iterator[str]:
    for value in values[:64]:
        if isinstance(value, PathValue):
            yield value.text
        elif isinstance(value, str) and not isinstance(value, Name):
            yield value
        elif isinstance(value, bytes):
            yield value[:4096].decode("utf-8", "replace")
        elif isinstance(value, list | tuple) and not hasattr(value, "_fields") and depth < 3:
            yield from _texts(list(value), depth + 1)
        elif isinstance(value, dict) and depth < 3:
            yield from _texts([*value.keys(), *value.values()], depth + 1)
