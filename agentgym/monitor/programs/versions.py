"""git: the sub-command with its arguments, the repository it is asked of, and what it does to files and the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest

from agentgym.monitor import writing
from agentgym.monitor.command import Command, Options, Row, sort_options
from agentgym.monitor.effects import HOLE
from agentgym.monitor.paths import normalise

_GLOBAL_VALUED = frozenset(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env".split()
)
_NETWORK = frozenset(
    "clone fetch pull push ls-remote remote submodule archive fetch-pack send-pack bundle".split()
)


_TOOLS = re.compile(r"(?i)core\.(?:fsmonitor|sshcommand|pager|editor|hookspath)|.*\.command\Z")
# Further settings whose value git runs.
_RUN = re.compile(
    r"(?i)(?:diff\.external|core\.(?:gitproxy|askpass)|sequence\.editor|interactive\.difffilter|pager\.\w+"
    r"|credential\.(?:.*\.)?helper|gpg\.(?:\w+\.)?program|uploadpack\.packobjectshook"
    r"|.*\.(?:textconv|clean|smudge|process|driver|cmd))\Z"
)
_ASKED_BY_INPUT = frozenset("cat-file log show rev-list diff-tree update-ref".split())
_MOST_NAMED = 256
"""Objects on standard input that are looked at."""


def git(command: Command) -> str:
    """The row of git."""
    words, folder, changed = _global_options(command)
    if not words:
        return HOLE
    verb, arguments = words[0], words[1:]
    alias = changed.get(f"alias.{verb}") or command.state.variables.get(f"git:alias.{verb}")
    if alias and command.analysis.depth < 8:
        if alias.startswith("!"):
            return command.shell.run_text(alias[1:] + " " + " ".join(arguments))
        return git(Command(command.shell, "git", [*alias.split(), *arguments], command.origin))
    named = _named(command, verb, arguments)
    command.analysis.emit("git", verb, "git", (*named, *arguments), folder=folder, origin=command.origin)
    for name, value in changed.items():
        if _TOOLS.match(name):
            command.analysis.emit("env", f"git:{name}", "git", (value,))
        if (_TOOLS.match(name) and " " in value) or _RUN.match(name):
            command.shell.run_text(value.removeprefix("!"))
    handler = _VERBS.get(verb)
    if handler is not None:
        handler(command, arguments, folder)
    return _output(command, verb, arguments, folder)


def _global_options(command: Command) -> tuple[list[str], str, dict[str, str]]:
    """What follows git's global options, the repository's folder, and the settings given with -c."""
    folder = command.state.cwd
    changed: dict[str, str] = {}
    if given := command.state.variables.get("GIT_DIR"):
        folder = _repository(command, given)
    words = command.arguments
    i = 0
    while i < len(words) and words[i].startswith("-"):
        name, equals, value = words[i].partition("=")
        if name in _GLOBAL_VALUED and not equals and i + 1 < len(words):
            value = words[i + 1]
            i += 1
        i += 1
        if name == "-C":
            command.look(value)
            folder = command.analysis.locate(f"{folder}/{value}" if not value.startswith("/") else value)[0]
        elif name == "--git-dir":
            folder = _repository(command, value)
        elif name == "-c":
            key, _, text = value.partition("=")
            changed[key] = text
    return words[i:], folder, changed


def _named(command: Command, verb: str, arguments: list[str]) -> list[str]:
    """The revisions and objects that a sub-command is given on its standard input."""
    if verb not in _ASKED_BY_INPUT or not any(word.startswith(("--stdin", "--batch")) for word in arguments):
        return []
    return list(dict.fromkeys(command.stdin.split()))[:_MOST_NAMED]


def _repository(command: Command, path: str) -> str:
    target = command.analysis.locate(path)[0]
    return target.removesuffix("/.git")


def _output(command: Command, verb: str, arguments: list[str], folder: str) -> str:
    """What is known of git's answer: names below the repository, symbolic commits."""
    if verb == "rev-parse":
        if "--show-toplevel" in arguments:
            root = command.analysis.context.workspace
            return (root if folder.startswith(root) else folder) + "\n"
        if "--git-dir" in arguments or "--absolute-git-dir" in arguments:
            return f"{folder}/.git\n"
        names = [word for word in arguments if not word.startswith("-")]
        return "".join(f"{name}\n" for name in names) or HOLE
    if verb == "merge-base" and all(re.match(r"-|HEAD", word) for word in arguments):
        return "HEAD~\n"
    if verb == "ls-files":
        return "".join(f"{path}\n" for path in _tracked(arguments))
    if verb in ("diff", "status", "ls-tree", "grep", "log", "show") and (
        {"--name-only", "-l", "--files-with-matches"} & set(arguments)
    ):
        return f"./{HOLE}\n"
    if verb == "branch" and "--show-current" in arguments:
        return "HEAD\n"
    if verb in ("show", "cat-file"):
        return HOLE
    return HOLE


def _tracked(arguments: list[str]) -> list[str]:
    """The names that ls-files prints: those it is asked for, what lies in the folders among them."""
    asked = sort_options(
        arguments, "x X exclude exclude-from exclude-per-directory with-tree format"
    ).operands
    return [
        f"./{HOLE}"
        if path == "." or re.search(r"[*?\[:]", path)
        else path
        if "." in path.rpartition("/")[2]
        else f"{path}/{HOLE}"
        for path in asked or ["."]
    ]


def _clone(command: Command, arguments: list[str], folder: str) -> None:
    options = sort_options(
        arguments, "b o u c j depth branch reference origin template filter shallow-since separate-git-dir"
    )
    operands = options.operands
    if not operands:
        return
    source = operands[0]
    if is_remote(source):
        command.analysis.emit("net", source, "git", ("clone",), origin=command.origin)
    else:
        command.read(source.removeprefix("file://"), deep=True)
    target = (
        operands[1] if len(operands) > 1 else re.sub(r"(?:\.git)?/*$", "", source).rpartition("/")[2] or "."
    )
    where = command.analysis.locate(target)[0]
    command.analysis.emit("write", where, "git", ("clone", source))
    command.state.folders |= {where}


def is_remote(source: str) -> bool:
    """Whether git would reach `source` over the network."""
    return bool(
        re.match(r"(?!file:)[a-z][a-z0-9+]*(?:://|::)|[\w.-]+@[\w.-]+:|(?!/|\.)[\w-]+(?:\.[\w-]+)+:", source)
    )


def _remote(command: Command, arguments: list[str], folder: str) -> None:
    if arguments[:1] == ["foreach"]:  # of submodule
        _run_inside(command, arguments, folder)
        return
    verb_options = sort_options(arguments, "depth o j shallow-since format prefix remote exec upload-pack")
    operands = verb_options.operands + verb_options.values("--remote")
    for word in operands:
        if is_remote(word):
            command.analysis.emit("net", word, "git", tuple(arguments), origin=command.origin)
        elif word.startswith(("/", "../", "file:")):
            command.read(word.removeprefix("file://"), deep=True)


def _apply(command: Command, arguments: list[str], folder: str) -> None:
    options = sort_options(arguments, "p C directory include exclude whitespace")
    patches = options.operands
    texts = [command.input([path]) for path in patches] if patches else [command.stdin]
    for path in patches:
        if path != "-":
            continue
    folder = "/".join([folder, *options.values("--directory")[-1:]])
    for text in texts:
        given = _strip(options)
        patched_files(
            command, text, folder, 1 if given is None else given
        )  # git takes one, whatever its name


def _strip(options: Options) -> int | None:
    """How many leading folders -p takes from a patch's names; None where it is not given."""
    given = options.values("-p", "--strip")[-1:]
    return int(given[0]) if given and given[0].isdigit() else None


# The head of one file of a context diff: `*** old`, `--- new`, a row of stars.
_CONTEXT_HEAD = re.compile(r"(?m)^\*\*\* (\S+).*\n--- (\S+).*\n(?=\*{15})")


def patched_files(command: Command, text: str, folder: str, strip: int | None = None) -> None:
    """The files that a patch changes, with what it puts in.

    Args:
        command: what applies it.
        text: the patch, unified or in context form.
        folder: where its names begin.
        strip: leading folders to take from each name; None does as patch without -p.
    """
    if not text or text == HOLE:
        return
    heads = [*_CONTEXT_HEAD.finditer(text)]
    for head, following in zip_longest(heads, heads[1:]):
        old, new = head.groups()
        whole = _patched(command, old if new == "/dev/null" else new, folder, strip)
        body = text[head.end() : following.start() if following else None]
        added = "\n".join(line[2:] for line in body.splitlines() if line.startswith(("+ ", "! ")))
        if new == "/dev/null":
            command.analysis.delete(whole, command.name)
            continue
        target = command.analysis.write(whole, command.name, None, ("edit", "", added))
        if added:
            writing.edited(command.analysis, target, "", added)
    for part in re.split(r"(?m)^(?=--- )", text)[1:]:
        match = re.match(r"--- (\S+).*\n\+\+\+ (\S+)", part)
        if match is None:
            continue
        path = match.group(2) if match.group(2) != "/dev/null" else match.group(1)
        whole = _patched(command, path, folder, strip)
        if match.group(2) == "/dev/null":
            command.analysis.delete(whole, command.name)
            continue
        added = "\n".join(line[1:] for line in part.splitlines()[2:] if line.startswith("+"))
        removed = "\n".join(line[1:] for line in part.splitlines()[2:] if line.startswith("-"))
        target = command.analysis.write(whole, command.name, None, ("edit", removed, added))
        if added:
            writing.edited(command.analysis, target, removed, added)


def _patched(command: Command, path: str, folder: str, strip: int | None) -> str:
    """The file that a name of a patch stands for.

    Without -p, patch takes the whole name where its folders are there, else the last part. What is there is not known:
    the name without a folder that only tells old from new, or the last part where it alone names a file that is held.
    """
    if strip is not None:
        path = re.sub(rf"^([^/]*/+){{0,{min(strip, 99)}}}", "", path)
        return path if path.startswith("/") else f"{folder}/{path}"
    path = re.sub(r"^[abciw]/", "", path)
    whole = path if path.startswith("/") else f"{folder}/{path}"
    last = f"{folder}/{path.rpartition('/')[2]}"
    held = [command.analysis.context.protection_of(normalise(name)) for name in (whole, last)]
    return last if held[1] and not held[0] else whole


def _restore(command: Command, arguments: list[str], folder: str) -> None:
    """checkout, restore: files after ``--`` or after a commit are written."""
    paths = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    options = sort_options(
        arguments[: arguments.index("--")] if "--" in arguments else arguments, "b B s source orphan"
    )
    if not paths and command.arguments:
        operands = options.operands
        paths = operands if options.has("-s", "--source") or "restore" in command.arguments else operands[1:]
    for path in paths:
        command.analysis.emit(
            "write",
            command.analysis.locate(path if path.startswith("/") else f"{folder}/{path}")[0],
            "git",
            ("restore", *arguments),
        )


def _remove(command: Command, arguments: list[str], folder: str) -> None:
    if "--cached" in arguments:
        return
    for path in sort_options(arguments).operands:
        command.analysis.delete(f"{folder}/{path}" if not path.startswith("/") else path, "git", deep=True)


def _move(command: Command, arguments: list[str], folder: str) -> None:
    operands = sort_options(arguments).operands
    if len(operands) >= 2:
        command.shell.call(["mv", *operands])


def _config(command: Command, arguments: list[str], folder: str) -> None:
    options = sort_options(arguments, "f file type default blob")
    operands = options.operands
    if operands[:1] == ["set"]:
        operands = operands[1:]
    for path in options.values("-f", "--file"):
        command.read(path)
    if len(operands) >= 2:
        place = "/root/.gitconfig" if options.has("--global", "--system") else f"{folder}/.git/config"
        command.analysis.write(place, "git", None, ("edit", *arguments))
        if operands[0].startswith("alias."):
            command.state.variables[f"git:{operands[0]}"] = operands[1]


def _files_read(command: Command, arguments: list[str], folder: str) -> None:
    """Diff --no-index, blame, hash-object, commit -F: files outside history are read."""
    options = sort_options(arguments, "F file m L U S G n contents")
    for path in options.values("-F", "--file", "--contents"):
        if path != "-":
            command.read(path)
    if "--no-index" in arguments or "hash-object" in command.arguments:
        for path in options.operands:
            command.read(path, deep=True)


def _run_inside(command: Command, arguments: list[str], folder: str) -> None:
    """Bisect run, submodule foreach, rebase -x, filter-branch: commands inside."""
    words = [word for word in arguments if word not in ("run", "foreach", "--recursive")]
    options = sort_options(arguments, "x exec tree-filter index-filter msg-filter commit-filter")
    for _, text in options.given:
        if text:
            command.shell.run_text(text)
    if arguments[:1] in (["run"], ["foreach"]):
        command.shell.run_text(" ".join(words))


_Verb = Callable[[Command, list[str], str], None]
_VERBS: dict[str, _Verb] = {
    "clone": _clone,
    **dict.fromkeys(
        ("fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive", "fetch-pack", "bundle"),
        _remote,
    ),
    **dict.fromkeys(("apply", "am"), _apply),
    **dict.fromkeys(("checkout", "restore"), _restore),
    "rm": _remove,
    "clean": _remove,
    "mv": _move,
    "config": _config,
    **dict.fromkeys(("diff", "hash-object", "commit", "blame"), _files_read),
    **dict.fromkeys(("bisect", "rebase", "filter-branch"), _run_inside),
}


def _patch(command: Command) -> str:
    options = command.options("p i d o r strip input directory output")
    text = command.stdin
    for path in options.values("-i", "--input"):
        text = command.input([path])
    if len(options.operands) > 1:
        text = command.input(options.operands[1:2])
    folder = (options.values("-d", "--directory") or [command.state.cwd])[-1]
    patched_files(command, text, command.analysis.locate(folder)[0], _strip(options))
    for path in options.values("-o", "--output"):
        command.analysis.write(path, "patch", None, ("edit",))
    for path in options.operands[:1]:
        command.analysis.write(path, "patch", None, ("edit",))
    return HOLE


def _viewer(command: Command) -> str:
    """Programs that show history: as git log with their arguments."""
    return git(Command(command.shell, "git", ["log", *command.arguments], command.origin))


def _other_git(command: Command) -> str:
    """Other implementations of git, with its sub-commands."""
    return git(Command(command.shell, "git", command.arguments, command.origin))


PROGRAMS: dict[str, Row] = {
    "git": git,
    "patch": _patch,
    **dict.fromkeys(("tig", "gitk", "lazygit", "gitui", "qgit"), _viewer),
    **dict.fromkeys(("dulwich", "gix", "got"), _other_git),
}
