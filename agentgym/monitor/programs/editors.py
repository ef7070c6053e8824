"""Editors that are fed with commands, and programs that rewrite structured files in place."""

from __future__ import annotations

import re

from agentgym.monitor import writing
from agentgym.monitor.command import Command, Row, urls
from agentgym.monitor.effects import HOLE

_WRITES = re.compile(r":?\s*(?:\d*,?[\d$%]*)?\s*(?:w|wq|x|write|saveas|sav)!?(?:\s*>>)?(?:\s+(\S+))?\s*\Z")
_READS = re.compile(
    r":?\s*(?:\d+|\$|\.)?\s*(?:e|r|E|read|edit|sp|split|vs|vsplit|tabe|view|so|source|bad|n)!?\s+([^!\s]\S*)"
)
_RUNS = re.compile(
    r":?\s*(?:\d+|\$|\.|%)?\s*(?:(?:r|e|w)\s+)?!\s*(.+)|:?\s*(?:call\s+)?system\(['\"](.+)['\"]\)"
)
_VALUED = "c S u i T cmd"


def _editor(command: Command) -> str:
    """vim, ex, ed: files are read; ``:w`` writes, ``:r`` reads, ``:!`` runs, from options or standard input."""
    options = command.options(_VALUED)
    files = [path for path in options.operands if not path.startswith("+")]
    for path in files:
        command.read(path)
    if command.name == "emacs" and re.search(
        r"save-buffer|write-file|write-region", " ".join(command.arguments)
    ):
        for path in files:
            _saved(command, path, command.arguments, [])
    for url in urls(command.arguments):
        command.analysis.emit("net", url.rstrip("\"')"), command.name)
    lines = [*options.values("-c", "--cmd"), *(w[1:] for w in command.arguments if w.startswith("+"))]
    if command.stdin != HOLE:
        lines.extend(command.stdin.splitlines()[:200])
    current = files
    inserted: list[str] = []
    for line in lines:
        for part in line.split("|") if command.name != "ed" else [line]:
            if match := _RUNS.match(part):
                command.shell.run_text(match.group(1) or match.group(2))
            elif match := _READS.match(part):
                command.read(match.group(1))
                current = [match.group(1)] if re.match(r":?\s*e", part) else current
            elif match := _WRITES.match(part):
                for path in [match.group(1)] if match.group(1) else current:
                    _saved(command, path, lines, inserted)
            else:
                inserted.append(part)
    return HOLE


def _saved(command: Command, path: str, script: list[str], inserted: list[str]) -> None:
    target = command.analysis.write(path, command.name, None, ("edit", *script))
    if inserted:
        writing.edited(command.analysis, target, "", "\n".join(inserted))


def _query(command: Command) -> str:
    """jq, yq and kin: files are read, and rewritten with -i or by a verb that puts something in."""
    options = command.options("f arg argjson slurpfile rawfile from-file indent L r w v t type")
    constants = [word for word in command.arguments if re.fullmatch(r'"[^"\\()]*"', word)]
    if constants and any(re.match(r"-\w*n|--null-input", word) for word in command.arguments):
        return constants[0].strip('"') + "\n"
    named = options.values("-f", "--from-file", "--slurpfile", "--rawfile")
    for path in named:
        command.read(path)
    operands = options.operands
    verb = operands[:1] if command.name in ("dasel", "yq", "crudini", "toml", "dotenv") else []
    puts = verb in (["put"], ["delete"], ["set"], ["unset"], ["write"], ["w"], ["--set"])
    if puts or not named or command.name != "jq":
        operands = operands[1:]
    in_place = puts or options.has("-i", "-I", "--in-place", "--inplace", "-Y")
    files = [path for path in operands if "." in path or "/" in path] or (named if puts else [])
    for path in files:
        if in_place:
            command.analysis.write(path, command.name, None, ("edit", *command.arguments))
        else:
            command.read(path)
    return HOLE


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(
        ("vim", "vi", "nvim", "ex", "view", "vimdiff", "ed", "red", "nano", "emacs", "kak", "micro"), _editor
    ),
    **dict.fromkeys(
        ("jq", "yq", "gojq", "jaq", "xq", "tomlq", "dasel", "crudini", "toml", "dotenv", "xmlstarlet"), _query
    ),
}
