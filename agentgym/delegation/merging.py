"""Taking a worker's changes over: a three-way merge of files between sandboxes."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox import scratch_folder
from agentgym.sandbox.base import MACHINE_ERRORS, Sandbox, TreeError
from agentgym.verifiers.patches import (
    Entry,
    PatchError,
    apply_patch,
    list_tree,
    parents,
    tree_diff,
    write_entry,
)
from agentgym.verifiers.tests import Protected

# A larger tree is no source code: its changes are not taken over.
MOST_ENTRIES, MOST_BYTES = 100_000, 256 << 20


class Tree:
    """A sandbox's files as they are now, without what ordinary work leaves behind; on disk until nobody holds this.

    Args:
        sandbox: whose files.

    Attributes:
        folder: where they lie.

    Raises:
        TreeError: there are too many, or they cannot be read.
        SandboxError: the machine failed.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        held = contextlib.ExitStack()
        self.folder = Path(held.enter_context(scratch_folder("tree")), "files")
        weakref.finalize(self, held.close)
        try:
            sandbox.download(
                ".", self.folder, skip=_left_out, most_entries=MOST_ENTRIES, most_bytes=MOST_BYTES
            )
        except OSError as error:
            if isinstance(error, TreeError) or error.errno not in MACHINE_ERRORS:
                raise TreeError(error.errno, error.strerror) from None
            raise SandboxError(f"could not take the files out of the sandbox: {error}") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> Tree:
        return self  # it never changes


def merge(base: Tree, worker: Sandbox, into: Sandbox) -> str:
    """Put what a worker changed into another sandbox: all of it, or nothing where it does not fit.

    Args:
        base: the files as the worker found them.
        worker: where it worked.
        into: the files of who gave it the task, which may have changed meanwhile.

    Returns:
        One line that says what was taken over, or why nothing was.
    """
    try:
        theirs, ours = Tree(worker), Tree(into)
        diff = tree_diff(base.folder, theirs.folder)
        if not diff:
            return "It changed no file."
        # What a listing says of a file is read from the folder again where it is asked for: keep what stays true.
        before = {key: (entry.mode, entry.digest) for key, entry in list_tree(ours.folder).items()}
        apply_patch(ours.folder, diff)
    except PatchError as error:
        return f"Its changes were not taken over: {error}."
    except TreeError as error:  # without the path, which is one of this machine
        return f"Its changes were not taken over: {error.strerror}."
    after = list_tree(ours.folder)
    changed = {key: entry for key, entry in after.items() if before.get(key) != (entry.mode, entry.digest)}
    gone = [key for key in before if key not in after]
    if problem := _put(into, changed, gone):
        return f"Its changes were not all taken over: {problem}."
    return f"Its changes were taken over: {', '.join(sorted([*changed, *gone]))}."


def _put(into: Sandbox, changed: dict[str, Entry], gone: list[str]) -> str:
    """Write and remove files; what stood in the way, "" if nothing did.

    What changes is removed first: a folder may have become a file, and a file a folder.
    """
    paths = [*gone, *changed]
    _each(into, ["chmod", "-f", "u+rwx"], sorted({parent for path in paths for parent in parents(path)}))
    if problem := _each(into, ["rm", "-rf"], paths):
        return problem
    if changed:
        with scratch_folder("merge") as folder:
            for key, entry in changed.items():
                write_entry(folder, key, entry)
            into.upload(folder)
    return ""


def _each(box: Sandbox, command: list[str], paths: list[str]) -> str:
    """Run a command on paths, which may be more than one command line can hold; the last line of its complaints."""
    done = box.exec(["xargs", "-0r", *command, "--"], stdin=b"\0".join(map(os.fsencode, paths)))
    return "" if done.exit_code == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def _left_out(path: str) -> bool:
    return path == ".git" or path.startswith(".git/") or Protected.noise(path)
