"""sed: files read, files edited in place, files named inside a script; substitutions of known text are computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agentgym.monitor import bounds, writing
from agentgym.monitor.code import replacements
from agentgym.monitor.command import Command
from agentgym.monitor.effects import HOLE

_FLAGS = re.compile(r"[gpiIemM0-9]*(?:w[ \t]*[^\n;}]+)?")
# What stands before a command: the end of the one before, and addresses. An address ends at its own separator.
_BEFORE = re.compile(
    rf"(?:[\s;{{}}!,$+~\d{HOLE}]|/(?:\\.|[^/\\\n])*/[IM]*"
    r"|\\(?P<mark>[^\\\n])(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)[IM]*)*"
)
_NAME = re.compile(r"[ \t]*([^\n;}]*)")
_LINE = re.compile(r"[ \t]*((?:\\.|[^\\\n])*)", re.DOTALL)
_PAIR = re.compile(r"([^\\\n])(?:(?:\\.|(?!\1)[^\\])*\1){2}", re.DOTALL)
_INSERTS = re.compile(r"(?:^|[;{}\n/0-9$ ])([iac])\s*\\?\s*([^\n]+(?:\\\n[^\n]*)*)")
_VALUED = "e f l expression file line-length"


class Substitution(NamedTuple):
    """One ``s`` command."""

    old: str
    new: str
    flags: str
    separator: str


def sed(command: Command) -> str:
    """The row of sed."""
    words = [re.sub(r"^-([nrEsz]*)i.*$", r"-\1i", word) for word in command.arguments]
    command.arguments = words
    options = command.options(_VALUED)
    operands = options.operands
    scripts = options.values("-e", "--expression")
    for path in options.values("-f", "--file"):
        command.read(path)
        scripts.append(command.analysis.content_of(path) or "")
    if not scripts and not options.has("-f", "--file") and operands:
        scripts, operands = [operands[0]], operands[1:]
    script = "\n".join(scripts)
    _side_effects(command, script)
    in_place = any(name.startswith(("-i", "--in-place")) for name, _ in options.given)
    if in_place:
        for path in operands:
            target = command.analysis.write(path, "sed", None, ("edit", *scripts), origin=command.origin)
            inserted = put_in(script)
            if inserted:
                writing.edited(command.analysis, target, "", inserted)
            for old, new in pairs(script):
                replacements.edited(command.analysis, target, "sed", old, new, said=inserted)
        return ""
    text = command.input(operands)
    return HOLE if text == HOLE else apply(text, script, quiet=options.has("-n"))


def _side_effects(command: Command, script: str) -> None:
    """Files that a script reads and writes by itself, commands that it runs."""
    for found in substitutions(script):
        if "e" in found.flags:
            command.shell.run_text(re.sub(r"\\(.)", r"\1", found.new))
        if "w" in found.flags:
            command.analysis.write(found.flags.partition("w")[2].strip(), "sed")
    for verb, text in _reaching(script):
        if verb == "e":
            command.shell.run_text(text)
        elif verb in "rR":
            command.read(text)
        else:
            command.analysis.write(text, "sed")


def _reaching(script: str) -> Iterator[tuple[str, str]]:
    """The commands r R w W and e of a script, each with its file or its command line; no blank need stand between."""
    at = 0
    while at < len(script):
        before = _BEFORE.match(script, at)
        at = before.end() if before else at
        verb = script[at : at + 1]
        at += 1
        if verb in ("/", "\\"):
            return  # an address that does not end: sed takes nothing of the script
        if verb in ("s", "y"):
            pair = _PAIR.match(script, at)
            flags = pair and _FLAGS.match(script, pair.end())
            if not flags:
                return
            at = flags.end()
        elif verb and verb in "rRwWeaic#":
            words = (_NAME if verb in "rRwW" else _LINE).match(script, at)
            if words and words[1].strip() and verb in "rRwWe":
                yield verb, words[1].strip()
            at = words.end() if words else at


def without_substitutions(script: str) -> str:
    """`script` with the texts of its ``s`` commands taken out, so that what they say is not read as commands."""
    for found in substitutions(script):
        body = f"{found.old}{found.separator}{found.new}{found.separator}{found.flags}"
        script = script.replace(body, "", 1)
    return script


def substitutions(script: str) -> list[Substitution]:
    """The ``s`` commands of a script."""
    found: list[Substitution] = []
    at = 0
    while match := re.compile(r"(?:^|[;{}\n/0-9$,! ])s([^\w\s\\;])", re.MULTILINE).search(script, at):
        separator = match.group(1)
        parts: list[str] = []
        i = match.end()
        start = i
        while i < len(script) and len(parts) < 2:
            if script[i] == "\\":
                i += 1
            elif script[i] == separator:
                parts.append(script[start:i])
                start = i + 1
            i += 1
        if len(parts) < 2:
            break
        flags = _FLAGS.match(script, start)
        found.append(Substitution(parts[0], parts[1], flags.group() if flags else "", separator))
        at = flags.end() if flags else start
    return found


def put_in(script: str) -> str:
    """The text that a script puts into a file: replacements and what i, a and c insert."""
    found = substitutions(script)
    pieces = [s.new for s in found]
    pieces += [text for _, text in _INSERTS.findall(without_substitutions(script))]
    return "\n".join(
        re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), p) for p in pieces
    )


_QUOTED = re.compile(r"\"((?:\\.|[^\"\\]){0,1000})\"|'((?:\\.|[^'\\]){0,1000})'")


def printed(text: str) -> str:
    """The texts that a one-line program of awk, perl or ruby holds: what it may print into the file it edits."""
    return plain("\n".join(first or second for first, second in _QUOTED.findall(text)))


def pairs(script: str) -> list[tuple[str, str]]:
    """(old, new) of what a script changes; for a whole line, the pattern that picks the line is the old."""
    found = [
        (picked or plain(s.old), plain(s.new))
        for s, picked in ((s, _picked(script) if s.old in _WHOLE else "") for s in substitutions(script))
    ]
    changed = _CHANGES.findall(without_substitutions(script))
    return [*found, *((plain(old), plain(new.strip())) for old, new in changed)]


_WHOLE = (".*", "^.*$", "^.*", ".*$", "^", "$", ".+")
_ADDRESS = re.compile(r"/((?:\\.|[^/\\\n])+)/")
_CHANGES = re.compile(r"/((?:\\.|[^/\\\n])+)/[ \t]*(?:,[^{}\n]{0,80}?)?\{?[ \t]*c[ \t]*\\?[ \t\n]*([^\n]+)")


def _picked(script: str) -> str:
    match = _ADDRESS.search(script)
    return plain(match.group(1)) if match else ""


def plain(text: str) -> str:
    """A piece of a script without its escapes."""
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text)


def apply(text: str, script: str, *, quiet: bool) -> str:
    """`text` after a script of plain substitutions; HOLE for anything else."""
    lines = re.match(r"\s*(\d+)(?:,(\d+|\$))?p\s*\Z", script)
    if quiet and lines:
        first, last = int(lines.group(1)), lines.group(2) or lines.group(1)
        kept = text.splitlines(keepends=True)
        return "".join(kept[first - 1 : None if last == "$" else int(last)])
    found = substitutions(script)
    if not script.strip():
        return text
    if quiet or not found or len(found) > 20:
        return HOLE
    for old, new, flags, _ in found:
        pattern = re.sub(r"\\([(){}|+?])", r"\1", old) if "\\(" in old else old
        replacement = new.replace("\\/", "/")
        longest = max(map(len, text.split("\n")))
        regex = bounds.expression(pattern, re.IGNORECASE if "i" in flags.lower() else 0, length=longest)
        if regex is None:
            return HOLE
        try:
            count = 0 if "g" in flags else 1
            replacement = re.sub(r"(?<!\\)&", r"\\g<0>", replacement)
            text = "\n".join(regex.sub(replacement, line, count=count) for line in text.split("\n"))
        except (re.error, IndexError):
            return HOLE
    return text
