"""Searches a tree for lines that match a regular expression; run inside the sandbox by the task's interpreter.

agentgym is not installed there, and an image's interpreter may be old: standard library only, nothing newer than
Python 3.6. Reads an order in JSON from standard input, prints ``path:line: text`` and a last line on what is left out.
Exit status 2: the expression or the path is wrong, and what is printed says how.
"""
# ruff: noqa: UP006, UP035

import fnmatch
import json
import os
import re
import sys
from typing import Iterator, List

LARGEST = 2 << 20  # bytes of a file that is looked at
WIDEST = 300  # characters of a line that are shown
SKIPPED = {".git", "__pycache__", "node_modules"}


def files(top: str) -> Iterator[str]:
    """The files below a path, sorted, or the path itself."""
    if os.path.isfile(top):
        yield top
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            yield os.path.normpath(os.path.join(folder, name))


def wanted(path: str, glob: str) -> bool:
    """Whether the glob fits the path or the file's name."""
    return not glob or fnmatch.fnmatch(path, glob) or fnmatch.fnmatch(os.path.basename(path), glob)


def lines(path: str) -> List[str]:
    """The text lines of a file; none of one that is binary, too large or cannot be read.

    Only a line feed ends a line, with or without a carriage return before it, as for grep.
    """
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return []
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    if b"\0" in data[:8000]:
        return []
    found = data.decode("utf-8", "replace").split("\n")
    if not found[-1]:
        found.pop()
    return [line[:-1] if line.endswith("\r") else line for line in found]


def main() -> int:
    """Read the order, print the matches."""
    order = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    try:
        pattern = re.compile(order["pattern"])
    except re.error as error:
        print(f"expected a regular expression as Python reads it: {error}")
        return 2
    if not os.path.exists(order["path"]):
        print("there is no file or folder {}".format(order["path"]))
        return 2
    out = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    found = held = 0
    for path in files(order["path"]):
        if not wanted(path, order["glob"]):
            continue
        before = found
        for number, line in enumerate(lines(path), 1):
            if pattern.search(line):
                found += 1
                if found <= order["most"]:
                    out.write(f"{path}:{number}: {line[:WIDEST]}\n")
        held += found > before
    if found > order["most"]:
        out.write(f"... {found - order['most']} more matches; {found} in {held} files\n")
    elif not found:
        out.write("no match\n")
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
