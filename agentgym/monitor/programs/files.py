"""Programs that look at, copy, move, link, change and remove files."""

from __future__ import annotations

import posixpath
import re
from itertools import pairwise

from agentgym.monitor import writing
from agentgym.monitor.command import Command, Options, Row
from agentgym.monitor.effects import HOLE


def _list(valued: str, deep: str = "") -> Row:
    """A row for a program that lists or measures its operands; `deep` names the options that mean the whole tree."""

    def handler(command: Command) -> str:
        options = command.options(valued)
        whole = options.has(*deep.split()) if deep != "always" else True
        operands = options.operands or ["."]
        for path in operands:
            command.look(path, deep=whole, detail=tuple(command.arguments))
        return "".join(f"{_listed(path)}\n" for path in operands)

    return handler


def _listed(path: str) -> str:
    """What a listing of `path` prints: a name that is not known, or the path itself with wildcards as holes."""
    if "*" in path or "?" in path:
        return path.replace("**", HOLE).replace("*", HOLE).replace("?", HOLE)
    return HOLE


def _stat(command: Command) -> str:
    for path in command.options("c f printf format t").operands:
        command.look(path)
    return HOLE


def _test(command: Command) -> str:
    words = command.arguments
    for operator, path in pairwise(words):
        if len(operator) == 2 and operator[0] == "-" and operator[1] in "abcdefghkprsuwxLNOGS":
            command.look(path)
    return ""


def _reader(valued: str = "", deep: str = "") -> Row:
    def handler(command: Command) -> str:
        options = command.options(valued)
        whole = bool(deep) and (deep == "always" or options.has(*deep.split()))
        for path in options.operands:
            if path != "-" and not path.startswith("+"):
                command.read(path, deep=whole)
        return HOLE

    return handler


_COPY_VALUED = "t target-directory S suffix o g m owner group mode"
_RSYNC = "e rsh exclude include exclude-from include-from files-from f filter T temp-dir B"


def _copy(command: Command) -> str:
    if command.name == "install" and {"-d", "--directory"} & set(command.arguments):
        return _make_folder(command)
    options = command.options(_RSYNC if command.name == "rsync" else _COPY_VALUED)
    sources, target = _sources(options)
    remote = [
        path for path in (*sources, target or "") if re.match(r"[\w.@-]+::?/?|rsync://", path) and ":" in path
    ]
    if command.name == "rsync" and remote:
        for path in remote:
            url = path if "://" in path else f"ssh://{re.sub(r':/*', '/', path, count=1)}"
            command.analysis.emit("net", url, "rsync", tuple(command.arguments))
        sources = [path for path in sources if path not in remote]
        target = None if target in remote else target
    deep = command.name == "rsync" or options.has("-r", "-R", "-a", "--recursive", "--archive")
    if target is None:
        for source in sources:
            command.read(source, deep=deep)
        return ""
    links = options.has("-l", "--link", "-s", "--symbolic-link") and command.name == "cp"
    for source in sources:
        into = _inside(
            command, source, target, many=len(sources) > 1 or options.has("-t", "--target-directory")
        )
        if links:
            command.analysis.link(source, into, "cp")
            continue
        command.read(source, deep=deep)
        written = command.analysis.write(into, command.name, command.analysis.content_of(source), deep=deep)
        command.analysis.copied(source, written, deep=deep)
        rename_code(command, written)
    return ""


def rename_code(command: Command, written: str) -> None:
    """What a file says depends on its name (conftest.py): text that comes to a new one is read again there."""
    content = command.state.files.get(written)
    if content:
        writing.written(command.analysis, written, content)


def _move(command: Command) -> str:
    options = command.options("t target-directory S suffix")
    sources, target = _sources(options)
    if target is None:
        return ""
    for source in sources:
        into = _inside(
            command, source, target, many=len(sources) > 1 or options.has("-t", "--target-directory")
        )
        command.read(source, deep=True)
        content = command.analysis.content_of(source)
        written = command.analysis.write(into, "mv", content)
        command.analysis.copied(source, written, deep=True)
        command.analysis.delete(source, "mv")
        rename_code(command, written)
    return ""


def _sources(options: Options) -> tuple[list[str], str | None]:
    named = options.values("-t", "--target-directory")
    if named:
        return options.operands, named[-1]
    if len(options.operands) < 2:
        return options.operands, None
    return options.operands[:-1], options.operands[-1]


def _inside(command: Command, source: str, target: str, *, many: bool) -> str:
    """Where a copy of `source` lands: in `target` if that is a folder, as far as can be told."""
    if command.name == "rsync" and source.endswith("/"):
        return target  # what lies in the source, not the source itself
    if many or is_folder(command, target):
        name = posixpath.basename(source.rstrip("/"))
        return f"{target.rstrip('/')}/{name}" if name not in ("", ".", "..") else target
    return target


def is_folder(command: Command, path: str) -> bool:
    """Whether `path` is a folder, told by its spelling and by what is known to lie in it."""
    if path.endswith("/") or path.rpartition("/")[2] in (".", ".."):
        return True
    target = command.analysis.locate(path)[0]
    context = command.analysis.context
    known = (
        context.workspace,
        command.state.cwd,
        *context.readonly_paths,
        *context.protected_paths,
        *command.state.files,
    )
    if (
        target in ("/tmp", "/usr", "/opt", "/etc", "/home", "/root", "/var")
        or target in command.state.folders
    ):
        return True
    return any(other.startswith(target.rstrip("/") + "/") for other in known) or (
        target in (context.workspace, command.state.cwd)
    )


def _link(command: Command) -> str:
    options = command.options("t target-directory S suffix")
    if not options.has("-s", "--symbolic") and command.name == "ln":
        for source in options.operands[:-1] or options.operands:
            command.look(source)
    if len(options.operands) == 1 and not options.values("-t", "--target-directory"):
        target = options.operands[0]
        command.analysis.link(target, posixpath.basename(target.rstrip("/")) or ".", "ln")
        return ""
    sources, name = _sources(options)
    for source in sources:
        if name is None:
            continue
        plain = options.has("-n", "-T", "--no-dereference", "--no-target-directory")
        at = name if plain and len(sources) == 1 else _inside(command, source, name, many=len(sources) > 1)
        command.analysis.link(source, at, "ln")
    return ""


def _mount(command: Command) -> str:
    options = command.options("t o L U")
    if len(options.operands) >= 2:
        command.analysis.link(options.operands[0], options.operands[1], "mount")
    return ""


def _remove(command: Command) -> str:
    options = command.options("")
    deep = options.has("-r", "-R", "--recursive")
    for path in options.operands:
        command.analysis.delete(path, command.name, deep=deep, origin=command.origin)
    return ""


def _change_mode(command: Command) -> str:
    words = command.arguments
    mode = [word for word in words[:2] if re.fullmatch(r"-[rwxXstugo]+", word) and word != "-R"]
    command.arguments = [*mode[:1], *words] if mode else words
    options = command.options("reference from")
    operands = [*mode[:1], *options.operands]
    for path in operands if options.has("--reference") else operands[1:]:
        command.analysis.emit(
            "write",
            command.analysis.locate(path)[0],
            command.name,
            ("mode", *command.arguments[:1]),
            deep=options.has("-R", "--recursive"),
        )
    return ""


def _touch(command: Command) -> str:
    for path in command.options("d t r date reference").operands:
        target = command.analysis.locate(path)[0]
        if command.state.files.get(target):
            command.analysis.emit("write", target, "touch", ("mode",))
        else:
            command.analysis.write(path, "touch", "", ("append",))
    return ""


def _make_folder(command: Command) -> str:
    for path in command.options("m mode").operands:
        target = command.analysis.locate(path)[0]
        command.analysis.emit("write", target, "mkdir", ("folder",))
        command.state.folders |= {target}
    return ""


def _truncate(command: Command) -> str:
    for path in command.options("s size r reference").operands:
        command.analysis.write(path, "truncate", "")
        command.analysis.emit("delete", command.analysis.locate(path)[0], "truncate")
    return ""


def _shred(command: Command) -> str:
    for path in command.options("n s iterations size").operands:
        command.analysis.delete(path, command.name)
    return ""


def _dd(command: Command) -> str:
    given = dict(word.split("=", 1) for word in command.arguments if "=" in word)
    content = command.stdin
    if source := given.get("if"):
        command.read(source)
        known = command.analysis.content_of(source)
        content = HOLE if known is None else known
    if target := given.get("of"):
        written = command.analysis.write(target, "dd", None if content == HOLE else content)
        if source:
            command.analysis.copied(source, written)
        rename_code(command, written)
        return ""
    return content


def _tee(command: Command) -> str:
    options = command.options("")
    append = options.has("-a", "--append")
    content = None if command.stdin == HOLE else command.stdin
    for path in options.operands:
        writing.write_file(command.analysis, path, command.name, content, append=append)
    return command.stdin


_READERS = {
    "less": "p P",
    "more": "",
    "most": "",
    "bat": "l r",
    "batcat": "l r",
    "strings": "n e t",
    "od": "A j N S t w",
    "hexdump": "n s e C",
    "hd": "n s",
    "file": "m F",
    "wc": "",
    "cmp": "n i",
    "diff": "U C I x",
    "diff3": "",
    "sdiff": "w",
    "comm": "",
    "colordiff": "U",
    "icdiff": "",
    "md5sum": "",
    "sha1sum": "",
    "sha224sum": "",
    "sha256sum": "",
    "sha512sum": "",
    "b2sum": "",
    "cksum": "",
    "sum": "",
    "crc32": "",
    "shasum": "a",
    "pr": "",
    "fmt": "w",
    "expand": "t",
    "unexpand": "t",
    "column": "s o",
    "join": "t 1 2",
    "look": "",
    "readelf": "",
    "objdump": "",
    "nm": "",
    "ldd": "",
    "zcat": "",
    "zless": "",
    "bzcat": "",
    "xzcat": "",
    "zstdcat": "",
    "gzcat": "",
    "lzcat": "",
    "gunzip": "",
    "pygmentize": "l f",
    "highlight": "",
    "glow": "",
    "mdcat": "",
    "pandoc": "f t o",
    "csvlook": "",
    "xmllint": "xpath",
    "identify": "",
    "ffprobe": "",
    "ctags": "f",
    "cloc": "",
    "tokei": "",
    "wdiff": "",
    "source-highlight": "i o f",
    "w3m": "T",
    "lynx": "",
    "aspell": "",
    "spell": "",
    "ptx": "",
    "tsort": "",
    "csplit": "f b n",
    "split": "l b n a",
    "basenc": "w",
    "uuencode": "",
    "gpg": "r o",
    "gpgv": "",
    "getfacl": "",
    "lsattr": "",
    "xdelta3": "",
    "bsdiff": "",
    "parquet-tools": "",
    "h5dump": "d",
    "ncdump": "",
    "dot": "T o",
}

PROGRAMS: dict[str, Row] = {
    **{
        name: _reader(valued, "-r --recursive" if "diff" in name else "") for name, valued in _READERS.items()
    },
    "ls": _list("I w T ignore block-size color", "-R --recursive"),
    "dir": _list("I", "-R"),
    "vdir": _list("I", "-R"),
    "exa": _list("L", "-R -T --tree"),
    "eza": _list("L", "-R -T --tree"),
    "lsd": _list("", "-R --tree"),
    "tree": _list("L P I o", "always"),
    "du": _list("d B t max-depth exclude", "always"),
    "ncdu": _list("", "always"),
    "broot": _list("", "always"),
    "stat": _stat,
    "test": _test,
    "[": _test,
    "cp": _copy,
    "install": _copy,
    "rsync": _copy,
    "mv": _move,
    "rename": _move,
    "ln": _link,
    "link": _link,
    "mount": _mount,
    "rm": _remove,
    "rmdir": _remove,
    "unlink": _remove,
    "trash": _remove,
    "shred": _shred,
    "wipe": _shred,
    "chmod": _change_mode,
    "chown": _change_mode,
    "chgrp": _change_mode,
    "chattr": _change_mode,
    "setfacl": _change_mode,
    "touch": _touch,
    "mkdir": _make_folder,
    "truncate": _truncate,
    "dd": _dd,
    "tee": _tee,
    "sponge": _tee,
}
