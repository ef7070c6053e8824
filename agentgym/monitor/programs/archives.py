"""Archivers: what goes in is read, where it is unpacked is written."""

from __future__ import annotations

from agentgym.monitor import paths
from agentgym.monitor.command import Command, Row
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


_TAR_VALUED = (
    "f C X T file directory exclude exclude-from files-from transform strip-components I use-compress-program"
)


def _tar(command: Command) -> str:
    words = command.arguments
    if words and not words[0].startswith("-"):
        words = ["-" + words[0], *words[1:]]
    # The letters of a cluster take their values in order after it; f last is the usual form.
    command.arguments = words
    options = command.options(_TAR_VALUED)
    archive = next(iter(options.values("-f", "--file")), "-")
    folder = next(iter(options.values("-C", "--directory")), "")
    creating = options.has("-c", "-r", "-u", "--create", "--append", "--update")
    for path in options.values("-T", "--files-from"):
        command.read(path)
    if creating:
        for path in options.operands:
            whole = (
                paths.join(folder, path) if folder.startswith("/") else f"{folder}/{path}" if folder else path
            )
            excluded = options.values("--exclude")
            command.read(whole, deep=not excludes_all(command, whole, excluded), detail=tuple(words))
        if archive != "-":
            target = command.analysis.write(archive, "tar")
            for path in options.operands:
                command.analysis.copied(f"{folder}/{path}" if folder else path, target, deep=True)
        return HOLE
    if archive != "-":
        command.read(archive)
    if options.has("-x", "--extract", "--get") and not options.has("-O", "--to-stdout"):
        command.analysis.emit(
            "write", command.analysis.locate(folder or ".")[0], "tar", ("unpack", *options.operands)
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
