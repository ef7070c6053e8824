"""sed: files read, files edited in place, files named inside a script; substitutions of known text are computed."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym.monitor import bounds, writing
from agentgym.monitor.code import replacements
from agentgym.monitor.command import STDIN, Command
from agentgym.monitor.effects import HOLE

_FLAGS = re.compile(r"[gpiIemM0-9 \t]*(?:w[ \t]*[^\n;}]+)?")
# In a bracket expression nothing ends a pattern, and a backslash is itself: `[/]`, `[^]/]`, `[[:alpha:]/]`. One that
# does not end sed refuses: `[` is nothing else, and no text is looked through twice.
_BRACKET = r"\[\^?\]?(?:\[(?:\.[^\n]{1,20}?\.|:[^\n]{1,20}?:|=[^\n]{1,20}?=)\]|[^\]\n])*+\]"
# What stands before a command: the end of the one before, and addresses. An address ends at its own separator.
_BEFORE = re.compile(
    rf"(?>[\s;{{}}!,$+~\d{HOLE}]|/(?:\\.|{_BRACKET}|[^/\\\n\[])*+/[IM]*"
    rf"|\\(?P<mark>[^\\\n])(?:\\.|(?!(?P=mark))(?:{_BRACKET}|[^\\\n\[]))*+(?P=mark)[IM]*)*+",
    re.DOTALL,
)
_SUBSTITUTION = re.compile(
    rf"(?P<mark>[^\\\n])(?P<old>(?:\\.|(?!(?P=mark))(?:{_BRACKET}|[^\\\n\[]))*+)(?P=mark)"
    rf"(?P<new>(?:\\.|(?!(?P=mark))[^\\\n])*+)(?P=mark)(?P<flags>{_FLAGS.pattern})",
    re.DOTALL,
)
_TRANSLATION = re.compile(r"([^\\\n])(?:(?:\\.|(?!\1)[^\\\n])*+\1){2}", re.DOTALL)
_LINE = re.compile(r"[ \t]*((?:\\.|[^\\\n])*+)", re.DOTALL)
_LABEL = re.compile(r"[ \t]*([^\s;}]*)")
# What a command takes as its argument. A name of a file goes to the end of its line; what follows `;` or `}` in it is
# read as commands too.
_ARGUMENTS = {
    **dict.fromkeys("rRwW", re.compile(r"[ \t]*([^\n;}]*)")),
    **dict.fromkeys("eaic", _LINE),
    **dict.fromkeys(":btTv", _LABEL),
    "#": re.compile(r"([^\n]*)"),
    "y": _TRANSLATION,
    "s": _SUBSTITUTION,
}
# For a script that cannot be read to its end: what looks like a command with a file, like a command line, like text.
_FILES = re.compile(r"(?:^|[;{}\n/0-9$,! ])([rRwW])[ \t]+([^\n;}]+)")
_COMMANDS = re.compile(r"(?:^|[;{}\n0-9$ ])e[ \t]+([^\n]+)")
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
    words = [re.sub(r"^-([nrEszub]*)i.*$", r"-\1i", word) for word in command.arguments]
    # getopt takes the beginning of a long name for all of it.
    words = [re.sub(r"\A--e[a-z]*(?==|\Z)", "--expression", word) for word in words]
    command.arguments = [re.sub(r"\A--fi[a-z]*(?==|\Z)", "--file", word) for word in words]
    options = command.options(_VALUED)
    operands = options.operands
    scripts = options.values("-e", "--expression")
    for path in options.values("-f", "--file"):
        if path not in STDIN:
            command.read(path)
        scripts.append(command.content_of(path) or "")
    if not scripts and not options.has("-f", "--file") and operands:
        scripts, operands = [operands[0]], operands[1:]
    script = "\n".join(scripts)
    _side_effects(command, script)
    in_place = any(name.startswith(("-i", "--i")) for name, _ in options.given)
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
        options, writes, path = found.flags.partition("w")
        if "e" in options:
            command.shell.run_text(re.sub(r"\\(.)", r"\1", found.new))
        if writes:
            command.analysis.write(path.strip(), "sed")
    steps, whole = _steps(script)
    reached = [(verb, found[1]) for verb, found in steps if verb in "rRwWe"]
    if not whole:
        rest = without_substitutions(script)
        reached += [*_FILES.findall(rest), *(("e", text) for text in _COMMANDS.findall(rest))]
    for verb, given in reached:
        text = given.strip()
        if not text:
            continue
        if verb == "e":
            command.shell.run_text(text)
        elif verb in "rR":
            command.read(text)
        else:
            command.analysis.write(text, "sed")


def _steps(script: str) -> tuple[list[tuple[str, re.Match[str]]], bool]:
    """The commands of a script that take an argument, each with the match of it, and whether the script ends well."""
    steps: list[tuple[str, re.Match[str]]] = []
    at = 0
    while at < len(script):
        before = _BEFORE.match(script, at)
        at = before.end() if before else at
        verb = script[at : at + 1]
        at += 1
        if verb in _ARGUMENTS:
            found = _ARGUMENTS[verb].match(script, at)
            if found is None:
                return steps, False
            steps.append((verb, found))
            at = found.end()
        elif verb in ("/", "\\"):  # an address that does not end
            return steps, False
    return steps, True


def without_substitutions(script: str) -> str:
    """`script` with the texts of its ``s`` commands taken out, so that what they say is not read as commands."""
    for found in substitutions(script):
        body = f"{found.old}{found.separator}{found.new}{found.separator}{found.flags}"
        script = script.replace(body, "", 1)
    return script


def substitutions(script: str) -> list[Substitution]:
    """The ``s`` commands of a script."""
    steps, whole = _steps(script)
    found = {match.start(): match for verb, match in steps if verb == "s"}
    at = 0
    while not whole and (start := _STARTS.search(script, at)):
        match = _SUBSTITUTION.match(script, start.end())
        if match is None:
            break
        found.setdefault(match.start(), match)
        at = match.end()
    return [Substitution(m["old"], m["new"], m["flags"], m["mark"]) for m in found.values()]


_STARTS = re.compile(r"(?:^|[;{}\n/0-9$,! ])s(?=[^\w\s\\;])", re.MULTILINE)


def put_in(script: str) -> str:
    """The text that a script puts into a file: replacements and what i, a and c insert."""
    steps, whole = _steps(script)
    pieces = [s.new for s in substitutions(script)]
    pieces += [re.sub(r"\A\s*\\?\s*", "", found[1]) for verb, found in steps if verb in "iac"]
    if not whole:
        pieces += [text for _, text in _INSERTS.findall(without_substitutions(script))]
    return "\n".join(map(plain, pieces))


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
    return re.sub(r"(?s)\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text)


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
