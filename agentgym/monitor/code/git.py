"""Python libraries that read git repositories: what is asked of them as the sub-command that asks the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.monitor.code.files import Arguments, Keywords
from agentgym.monitor.code.values import text_of

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

_LIBRARIES = ("git.Repo", "git.Git", "git.cmd.Git", "dulwich.", "pygit2.", "pydriller.", "git.repo.")
_VERBS = {
    "iter_commits": "log",
    "walk": "log",
    "get_walker": "log",
    "traverse_commits": "log",
    "Repository": "log",
    "log": "log",
    "revparse_single": "show",
    "rev_parse": "show",
    "commit": "show",
    "tree": "show",
    "get_object": "cat-file",
    "object_store": "cat-file",
    "odb": "cat-file",
    "refs": "for-each-ref",
    "get_refs": "for-each-ref",
    "references": "for-each-ref",
    "listall_references": "for-each-ref",
    "branches": "branch",
    "heads": "branch",
    "tags": "tag",
    "remotes": "remote",
    "clone_from": "clone",
    "clone": "clone",
    "clone_repository": "clone",
    "fetch": "fetch",
    "pull": "pull",
}


def verb_of(dotted: str) -> str | None:
    """The sub-command that a function or attribute of a git library stands for; None where it is none."""
    plain = dotted.replace("()", "")
    if not plain.startswith(_LIBRARIES):
        return None
    last = plain.rpartition(".")[2]
    if ".git." in plain or plain.startswith(("git.Git.", "git.cmd.Git.", "dulwich.porcelain.")):
        return last.replace("_", "-")
    if plain.startswith("pydriller."):
        return "log" if last == "traverse_commits" else None
    return _VERBS.get(last) if last != "Repository" else None


def asked(
    reader: Reader, verb: str, arguments: Arguments | tuple[()] = (), keywords: Keywords | None = None
) -> None:
    """The program asks a repository for what ``git verb`` tells."""
    words = [
        text_of(word) for item in arguments for word in (item if isinstance(item, list | tuple) else [item])
    ]
    words += [f"--{name.replace('_', '-')}" for name, value in (keywords or {}).items() if value is True]
    reader.analysis.emit("git", verb, "python", tuple(words), folder=reader.analysis.state.cwd)
    for word in words:
        if "://" in word:
            reader.analysis.emit("net", word, "python", (verb,))
