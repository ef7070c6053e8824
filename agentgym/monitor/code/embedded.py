"""Files that are no programs but hold commands: makefiles, container files, workflows, scripts of a package."""

from __future__ import annotations

import json
import re

MAX_COMMANDS = 64

_MAKE_SHELL = re.compile(r"\$\(shell ((?:[^()]|\([^()]*\))*)\)")
_MAKE_VARIABLE = re.compile(r"(?m)^(\w+)\s*[:?+]?=[ \t]*(.*)$")
_MAKE_REFERENCE = re.compile(r"\$[({](\w+)[)}]")
_ON_ONE_LINE = re.compile(r"[\w.%-]+\s*:[^=;]*;(.*)")
_CONTAINER = re.compile(r"(?im)^[^\S\n]*(?:RUN|CMD|ENTRYPOINT)\s+((?:[^\n\\]|\\\n|\\.)+)")
_SETTING = re.compile(
    r"""(?m)^(?:[^\S\n]|-)*["']?(?:run|script|command|commands\w*|entry|entrypoint|cmd|shell|exec\w*|before_script|args|tasks?"""
    r"""|[\w:.-]*(?:test|build|lint|start|web|worker)[\w:.-]*)["']?\s*[:=]\s*(.+(?:\n[ \t]+\S.*)*)""",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""["']((?:\\.|[^"'\\\n])*)["']""")
_VOLUME = re.compile(r"""(?m)^[^\S\n]*-[^\S\n]*["']?(/[^:\s]+:/[^"'\s]+)""")
_TASKS = re.compile(r"(?m)^\[[^\]\n]*(?:tasks|scripts|commands)[^\]\n]*\]\n((?:[^\[\n][^\n]*\n|\n)*)")
HOLDING = frozenset("make dockerfile yaml json ini toml".split())
"""Kinds of files that hold commands."""


def commands_of(language: str, content: str) -> list[str]:
    """The commands that a file of one of the kinds `HOLDING` gives to a shell, as far as they can be told."""
    if language == "make":
        found = recipes(content)
    elif language == "dockerfile":
        found = [text.replace("\\\n", " ") for text in _CONTAINER.findall(content)]
    elif language == "json":
        found = _QUOTED.findall(content)
    else:
        found = []
        for value in _SETTING.findall(content):
            lines = [line.strip().lstrip("|>-").strip() for line in value.splitlines()]
            found += [text for line in lines for text in (_QUOTED.findall(line) or [line])]
        found += [f"docker run -v {volume}" for volume in _VOLUME.findall(content)]
        found += [text for body in _TASKS.findall(content) for text in _QUOTED.findall(body)]
    if language not in ("make", "dockerfile"):  # a single word is rather a setting
        found = [text for text in found if " " in text.strip()]
    return [text for text in found if text.strip()][:MAX_COMMANDS]


def recipes(content: str) -> list[str]:
    """What a makefile gives to the shell, for all its targets."""
    variables = dict(_MAKE_VARIABLE.findall(content))
    found = _MAKE_SHELL.findall(content)
    indent = "\t" if "\n\t" in content else "  "  # as a justfile has it
    for line in content.splitlines():
        if line.startswith(indent):
            found.append(line.lstrip("\t@-+ "))
        elif inside := _ON_ONE_LINE.match(line):
            found.append(inside.group(1))
    filled = (
        _MAKE_REFERENCE.sub(lambda m: variables.get(m.group(1), f"${m.group(1)}"), text) for text in found
    )
    return [text.replace("$$", "$") for text in filled][:MAX_COMMANDS]


def notebook_code(content: str) -> str:
    """The program in the cells of a notebook; "" where it is none."""
    try:
        cells = json.loads(content)["cells"]
        sources = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return "\n".join(text if isinstance(text, str) else "".join(map(str, text)) for text in sources)
