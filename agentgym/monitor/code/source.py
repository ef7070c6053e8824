"""Python source as a syntax tree: whole programs, fragments as edits write them, cells of notebooks."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import lru_cache

from agentgym.monitor.effects import HOLE

MAX_FRAGMENT = 8 * 1024
"""Characters of a text that is tried as a fragment where it is no whole program."""


@lru_cache(maxsize=64)
def parse(code: str) -> ast.Module | None:
    """The syntax tree, which nobody may change; None for what is no Python.

    A fragment cut out of a function, as edits write it, is accepted too.
    """
    forms = (code, textwrap.dedent(code), "if 1:\n" + code, _closed(code), _without_magics(code))
    for source in forms if len(code) < MAX_FRAGMENT else forms[:1]:
        try:
            return ast.parse(source.replace(HOLE, "__hole__"))
        except (SyntaxError, ValueError):
            continue
        except (RecursionError, MemoryError):
            return None
    return None


_CELL = re.compile(r"\s*%%(?:bash|sh|script \S+)\s*\n(.*)", re.DOTALL)
_MAGIC = re.compile(
    r"(?m)^([ \t]*(?:\w+[ \t]*=[ \t]*)?)(?:!+|%(?:sx|system|run|cat|ls|cd|pip|conda|load|pycat|env)?\b)(.*)$"
)


def _without_magics(code: str) -> str:
    """`code` of a notebook with its shell lines and magic commands as calls."""
    if cell := _CELL.match(code):
        return f"get_ipython().system({cell.group(1)!r})"
    return _MAGIC.sub(lambda m: f"{m.group(1)}get_ipython().system({_as_command(m.group())!r})", code)


def _as_command(line: str) -> str:
    word = re.sub(r"^\s*(?:\w+\s*=\s*)?(?:!+|%(?:sx|system)\s)", "", line)
    return re.sub(r"^\s*(?:\w+\s*=\s*)?%(?:run\s+)?", lambda m: "python " if "run" in m.group() else "", word)


def _closed(code: str) -> str:
    """`code` with a body after a last line that opens a block, for the head of a function alone."""
    return (
        textwrap.dedent(code).rstrip() + "\n" + " " * 200 + "pass\n" if code.rstrip().endswith(":") else code
    )
