"""Programs that rewrite the files they are given, or leave their output in a file that an option or operand names."""

from __future__ import annotations

from typing import NamedTuple

from agentgym.monitor.command import Command, Row
from agentgym.monitor.effects import HOLE

_VERBS = frozenset("check format fix lint fmt".split())
_VALUED = (
    "c l line-length config target-version select ignore extend-select rules parser p profile style f o extensions e "
    "exclude extend-exclude isort settings-path"
)


def _formatter(
    always: bool, *switches: str, keeps: tuple[str, ...] = ("--check", "--diff", "-c", "--list-different")
) -> Row:
    """A row for a formatter or linter: what it is pointed at is rewritten `always`, or where a switch says so."""

    def handler(command: Command) -> str:
        options = command.options(_VALUED)
        words = command.arguments
        rewrites = (always or not set(switches).isdisjoint(words)) and set(keeps).isdisjoint(words)
        for path in options.operands:
            if path in _VERBS:
                continue
            if rewrites:
                command.analysis.write(path, command.name, None, ("edit", "format"), deep=True)
            else:
                command.read(path, deep=True)
        return HOLE

    return handler


def _replacer(command: Command) -> str:
    """sd, rpl and kin: two texts, then the files they are changed in."""
    operands = command.options("f n m extensions x matcher").operands
    for path in operands[2:]:
        command.analysis.write(path, command.name, None, ("edit", *operands[:2]), deep=True)
    return HOLE


class Output(NamedTuple):
    """Where a program leaves what it makes.

    Attributes:
        valued: options that take a value.
        options: those of them that name the output.
        operand: the first operand that names it, counted from 0; -1 for none.
    """

    valued: str
    options: tuple[str, ...] = ()
    operand: int = -1


_OUTPUTS = {
    "split": Output("l b n a C t", operand=1),
    "csplit": Output("f b n prefix suffix-format digits", ("-f", "--prefix")),
    "xxd": Output("l s c g o", operand=1),
    "gpg": Output("r o u output recipient passphrase", ("-o", "--output")),
    "age": Output("r o i output", ("-o", "--output")),
    "fallocate": Output("l o length offset", operand=0),
    "patchelf": Output(
        "set-interpreter set-rpath add-needed remove-needed replace-needed output", ("--output",), 0
    ),
    "strip": Output("o", ("-o",), 0),
    "objcopy": Output("O I j", (), 0),
    "dpkg-divert": Output("divert", ("--divert",), 0),
    "pandoc": Output("f t o output", ("-o", "--output")),
    "dot": Output("T o", ("-o",)),
    "convert": Output("", operand=1),
    "ffmpeg": Output("i", operand=0),
    "protoc": Output("python_out I", ("--python_out",)),
    "pg_dump": Output("f file d", ("-f", "--file")),
    "uudecode": Output("o", ("-o",)),
}


def leaves(name: str, known: Row | None) -> Row:
    """The row of a program that leaves its output in a file; what else it does, `known` says."""
    output = _OUTPUTS[name]

    def handler(command: Command) -> str:
        options = command.options(output.valued)
        paths = options.values(*output.options)
        at = options.operands[output.operand : output.operand + 1] if output.operand >= 0 else []
        if known is not None:
            command.arguments = [word for word in command.arguments if word not in at or word == "-"]
            printed = known(command)
        else:
            for path in options.operands:
                if path not in at:
                    command.read(path)
            printed = HOLE
        for path in (*paths, *at):
            command.analysis.write(path, command.name, None if printed == HOLE else printed)
        return "" if paths or at else printed

    return handler


def rows(known: dict[str, Row]) -> dict[str, Row]:
    """The rows of this module, on top of those of the programs that are `known` already."""
    return {name: leaves(name, known.get(name)) for name in _OUTPUTS}


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(
        ("black", "blue", "isort", "usort", "rustfmt", "djlint-format"),
        _formatter(True, keeps=("--check", "--diff", "-c", "--check-only")),
    ),
    **dict.fromkeys(
        ("autopep8", "yapf", "clang-format", "autoflake", "docformatter", "2to3", "fixit", "pyupgrade"),
        _formatter(False, "-i", "--in-place", "-w", "--write", "fix"),
    ),
    "ruff": _formatter(False, "--fix", "format", "--unsafe-fixes", keeps=("--diff", "--check")),
    **dict.fromkeys(("prettier", "biome", "shfmt", "gofmt", "goimports"), _formatter(False, "--write", "-w")),
    **dict.fromkeys(
        ("eslint", "stylelint", "standard", "rubocop", "tslint", "xo", "sqlfluff"),
        _formatter(False, "--fix", "-a", "-A", "--autocorrect", "fix"),
    ),
    **dict.fromkeys(("sd", "rpl", "codemod", "fastmod", "comby", "replace", "sad", "repren"), _replacer),
}
