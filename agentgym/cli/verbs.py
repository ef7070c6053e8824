"""Verbs that have verbs of their own, as ``agentgym alfworld replay``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence

from agentgym.cli import console
from agentgym.errors import UsageError, nearest


def run_verb(
    verb: str, text: str | None, verbs: Mapping[str, tuple[str, str]], words: Sequence[str], *, package: str
) -> int:
    """Run the verb that `words` start with.

    Args:
        verb: the outer verb, as the user wrote it.
        text: what ``--help`` says: a summary in one line, an empty one, an example.
        verbs: inner verb -> (module of `package`, what it does). The module has ``main(words)`` and is imported when
            its verb is called.
        words: what stands after the outer verb.
        package: where the modules are.

    Returns:
        The exit code.
    """
    if not words or words[0] in ("-h", "--help"):
        summary, _, example = inspect.cleandoc(text or "").partition("\n")
        width = max(map(len, verbs)) + 1
        lines = [f"  {name:<{width}} {does}" for name, (_, does) in verbs.items()]
        print(
            "\n".join([f"usage: agentgym {verb} {{{','.join(verbs)}}} ...", "", summary, "", *lines, example])
        )
        return console.OK
    if words[0] not in verbs:
        raise UsageError(f"unknown verb {words[0]!r} of agentgym {verb}.{nearest(words[0], verbs)}")
    code: int = importlib.import_module(f"{package}.{verbs[words[0]][0]}").main(words[1:])
    return code
