"""What a call would do to the world, in one flat vocabulary: the rules read effects, never command text.

The parsers (`shell`, `code`, `tools`) turn a call into effects; words are folded and paths resolved by then. What could
not be resolved is said, not guessed: `certain` is False and `target` holds what is known.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

HOLE = "\0"
"""Stands for a stretch of text that is not known, in `Effect.target` and `Effect.content`: ``/proc/\0/environ``."""

Kind = Literal[
    "read",  # the content of target, an absolute path, is read; also of a folder's files (grep -r, tar, cp -r)
    "list",  # target is listed, globbed, measured or asked for (ls, find, stat, test -e, cd)
    "write",  # target is created, overwritten, appended to, moved onto, or has its mode changed
    "delete",  # target is removed, moved away or truncated to nothing
    "link",  # detail[0] becomes a link (or mount, or further name) of target
    "run",  # target, an absolute path or a bare program name, is executed or sourced; detail holds its arguments
    "net",  # target, a URL as it would be requested, is contacted
    "git",  # target is the sub-command ("log"); detail holds its arguments with global options taken off
    "install",  # target, a package name or URL, would be fetched by an installer; program says which
    "env",  # variable target is set to detail[0] for commands to come (export, PYTHONPATH=… cmd)
    "process",  # a process is killed, traced or attached to; target is what was named
    "code",  # program text runs or is written: content holds it, target its file ("" if inline), program its language
    "text",  # words for a reader: a message, a sub-agent's task, an answer, a search query; content holds them
    "action",  # a move of a simulated world (shop, game, page script); content holds it
    "opaque",  # something could not be understood; target says what: "syntax", "depth", "size", "unresolved", "fault"
]


class Effect(NamedTuple):
    """One thing a call does.

    Attributes:
        kind: see `Kind`.
        target: what it is done to; absolute and without "..", links followed, for paths.
        program: what does it: "cat", "python", the tool's name.
        detail: further words, see `Kind`. A write that keeps a part of the file says how first: ("append",) or
            ("edit", old, new) where the two are known, else ("edit", script, ...), as of sed -i. A "code" effect of an
            edit holds only what is put in, and in detail[0] what it replaces.
        content: what is written, run or said, as far as it is known; None where it is not.
        certain: False where a part of `target` could not be resolved (an unset variable, output of a program).
        deep: everything below `target` is meant (find, grep -r, ls -R, cp -r, tar); with excluded and unreachable parts
            taken into account, so `Context.covers_protected(target)` is the question to ask.
        folder: where it is done, for kinds whose target is no path: git's repository, the cwd of a program.
        background: it goes on after the call has returned (&, nohup, cron, at, a hook).
        origin: how the call came to it: "" directly, else "glob", "decoded", "script" (through a file that was written
            earlier), "written" (what a program that this call writes would do once it is run), "find", "xargs", "link",
            "copy" (target is the protected original), "proc".
    """

    kind: Kind
    target: str
    program: str = ""
    detail: tuple[str, ...] = ()
    content: str | None = None
    certain: bool = True
    deep: bool = False
    folder: str = ""
    background: bool = False
    origin: str = ""
