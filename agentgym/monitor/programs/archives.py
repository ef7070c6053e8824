"""Archivers: what goes in is read, where it is unpacked is written."""

from __future__ import annotations

from agentgym.monitor import paths
from agentgym.monitor.command import STDIN, Command, Options, Row
from agentgym.monitor.effects import HOLE
from agentgym.monitor.programs.search import excludes_all


def _pack(command: Command) -> str:
    """zip, 7z, ar: the archive first, then what goes in."""
    operands = command.options("x i").operands
    if command.name in ("7z", "7za", "ar") and operands:
        operands = operands[1:]
    if operands:
        for path in operands[1:]:
            command.read(path, deep=True)
        command.analysis.write(operands[0], command.name) if operands[1:] else command.read(operands[0])
    return ""


def _unpack(command: Command) -> str:
    options = command.options("d o P")
    if options.operands:
        command.read(options.operands[0])
    for folder in options.values("-d") or ([] if options.has("-p", "-l", "-c", "-t") else ["."]):
        target = command.analysis.locate(folder)[0]
        command.analysis.emit("write", target, command.name, ("unpack", *options.operands))
    return HOLE


_TAR_RUNS = "I F use-compress-program info-script new-volume-script to-command rsh-command checkpoint-action"
_TAR_VALUED = f"f C X T file directory exclude exclude-from files-from transform strip-components {_TAR_RUNS}"
_TAR_COMMANDS = frozenset(_TAR_RUNS.split())
_MOST_LISTED = 256
"""Names in a list of files that are followed."""


def _listed(command: Command, options: Options) -> list[str]:
    """The names in the lists that -T gives; HOLE for a list that is not known."""
    names: list[str] = []
    for path in options.values("-T", "--files-from"):
        if path not in STDIN:
            command.read(path)
        content = command.content_of(path)
        names += [HOLE] if content is None else content.splitlines()[:_MOST_LISTED]
    return names


def _tar(command: Command) -> str:
    words = command.arguments
    if words and not words[0].startswith("-"):
        words = ["-" + words[0], *words[1:]]
    # The letters of a cluster take their values in order after it; f last is the usual form.
    command.arguments = words
    options = command.options(_TAR_VALUED)
    archive = next(iter(options.values("-f", "--file")), "-")
    folders = options.values("-C", "--directory") or [""]
    creating = options.has("-c", "-r", "-u", "--create", "--append", "--update")
    operands = [*options.operands, *_listed(command, options)]
    for name, text in options.given:
        if name.lstrip("-") in _TAR_COMMANDS:
            command.shell.run_text(text.removeprefix("exec=") if name == "--checkpoint-action" else text)
    if creating:
        # -C holds for what follows it; each name is looked at in each of the folders.
        packed = [
            paths.join(folder, path) if folder.startswith("/") else f"{folder}/{path}" if folder else path
            for path in operands
            for folder in folders
        ]
        excluded = options.values("--exclude")
        for path in packed:
            command.read(path, deep=not excludes_all(command, path, excluded), detail=tuple(words))
        if archive != "-":
            target = command.analysis.write(archive, "tar")
            for path in packed:
                command.analysis.copied(path, target, deep=True)
        return HOLE
    if archive != "-":
        command.read(archive)
    if options.has("-x", "--extract", "--get") and not options.has("-O", "--to-stdout"):
        command.analysis.emit(
            "write", command.analysis.locate(folders[-1] or ".")[0], "tar", ("unpack", *options.operands)
        )
    return HOLE


def _names_from_input(command: Command) -> str:
    """cpio, pax: the files whose names come in are read."""
    options = command.options("D F I O directory")
    for folder in options.values("-D", "--directory"):
        command.analysis.emit("write", command.analysis.locate(folder)[0], command.name, ("unpack",))
    for path in command.stdin.splitlines()[:16] if command.stdin != HOLE else ():
        command.read(path, deep=True)
    if options.has("-p") and options.operands:
        command.analysis.write(options.operands[-1], command.name, deep=True)
    return HOLE


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(("zip", "7z", "7za", "ar"), _pack),
    **dict.fromkeys(("unzip", "unar"), _unpack),
    **dict.fromkeys(("cpio", "pax"), _names_from_input),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _tar),
}
