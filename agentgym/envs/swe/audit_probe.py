"""Searches a policy's sandbox for what gives the solution away; run inside it by the task's interpreter.

agentgym is not installed there, and an image's interpreter may be old: standard library only, nothing newer than
Python 3.6. Reads an order in JSON from standard input and prints one JSON object: `findings` as rows of kind, place and
detail, `files` and `bytes` read, and whether the search was `complete`. `agentgym.envs.swe.audit` writes the order.
"""
# ruff: noqa: UP006, UP035

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
import zlib
from typing import Any, Dict, Iterator, List, Set, Tuple

LARGEST = 16 << 20  # bytes of one file, and of one member of an archive
COMMON = 3  # library files in which a line may stand before it counts as nobody's secret
ENOUGH = 3  # rare lines that give a library file away, or all there are; anywhere else one is enough
NOT_FILES = {"/proc", "/sys", "/dev", "/run"}
# Of these only what Python imports from
SYSTEM = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
ARCHIVES = (".zip", ".whl", ".egg", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LEFT_BY_GIT = "ORIG_HEAD FETCH_HEAD MERGE_HEAD logs worktrees modules shallow objects/info/alternates".split()
GET_FLAGS, UP = 0x8913, 1  # SIOCGIFFLAGS, IFF_UP
CACHES = ("pip", "uv", "pypoetry", "pdm", "conda")
WHERE_FROM = """
import importlib.util, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    if spec is not None:
        found[name] = spec.origin or next(iter(spec.submodule_search_locations or []), "")
print(json.dumps([sys.path, found]))
"""

Row = Tuple[str, str, str]


class Search:
    """The order, what was found so far, and how much may still be read."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.order = order
        self.root = os.getcwd()
        self.findings: List[Row] = []
        self.hits: Dict[Tuple[str, str], List[str]] = {}
        self.libraries: Tuple[str, ...] = ("/usr/", "/opt/")
        self.files = self.bytes = 0
        self.end = time.time() + order["seconds"]
        self.complete = True
        self.seen: Set[Tuple[int, int]] = set()
        secrets = order["secrets"]
        self.probes = [line.encode() for part in secrets.values() for line in part["lines"]]
        self.probes += [max(block, key=len).encode() for part in secrets.values() for block in part["blocks"]]

    def add(self, kind: str, where: str, detail: str) -> None:
        """Note a finding."""
        self.findings.append((kind, where, detail))

    def inside(self, path: str) -> bool:
        """Whether a path is in the tree."""
        return (path + os.sep).startswith(self.root + os.sep)

    def spent(self) -> bool:
        """Whether the bounds are reached."""
        if time.time() > self.end or self.bytes > self.order["bytes"]:
            self.complete = False
        return not self.complete

    # -- texts -----------------------------------------------------------------------------------------------------

    def look_in(self, top: str) -> None:
        """Search every file below a folder that was not searched yet."""
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if self.is_wanted(os.path.join(folder, name), top)]
            for name in names:
                if self.spent():
                    return
                self.look_at(os.path.join(folder, name))

    def is_wanted(self, path: str, top: str) -> bool:
        """Whether to step into a folder: each once, and not into what is no file or has checks of its own."""
        if os.path.islink(path) or path in NOT_FILES or (top == "/" and path in SYSTEM):
            return False
        if os.path.basename(path) == ".git":
            if os.path.dirname(path) != self.root:
                self.add("git", path, "a repository besides the task's")
            return False
        try:
            status = os.stat(path)
        except OSError:
            return False
        place = (status.st_dev, status.st_ino)
        new = place not in self.seen
        self.seen.add(place)
        return new and path != sysconfig.get_path("stdlib")

    def look_at(self, path: str) -> None:
        """Search one file, or the members of an archive."""
        try:
            if os.path.islink(path) or not os.path.isfile(path):
                return
            if path.endswith(ARCHIVES):
                for member, data in members(path):
                    self.text(path + "!" + member, data)
            elif path.endswith(".pyc"):
                if self.inside(path):
                    self.add("byte code", path, "compiled from a tree that may be another")
            elif os.path.getsize(path) <= LARGEST:
                with open(path, "rb") as file:
                    self.text(path, file.read())
        except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError):
            pass  # what cannot be read gives nothing away
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error):
            pass

    def text(self, path: str, data: bytes) -> None:
        """Look for the secrets in one text."""
        self.files += 1
        self.bytes += len(data)
        if b"\0" in data[:8000] or not any(probe in data for probe in self.probes):
            return
        plain = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        forms = [[line for line in plain if line]]
        if any(line.startswith("@@ ") for line in plain):  # a patch
            forms.append([line[1:].strip() for line in plain if line[:1] not in "-@" and line[1:].strip()])
        for name, part in self.order["secrets"].items():
            for form in forms:
                joined = "\n" + "\n".join(form) + "\n"
                block = next((b for b in part["blocks"] if "\n" + "\n".join(b) + "\n" in joined), None)
                lines = [line for line in part["lines"] if line in form]
                if block is not None:
                    self.add(
                        name, path, "holds " + repr(max(block, key=len)[:100]) + " with the lines around it"
                    )
                    return
                if lines:
                    self.hits[name, path] = lines
                    return

    def settle(self) -> None:
        """Judge the files that hold single lines: in libraries, some stand by chance."""
        seen: Dict[str, int] = {}
        for (_, path), lines in self.hits.items():
            for line in lines if path.startswith(self.libraries) else ():
                seen[line] = seen.get(line, 0) + 1
        for (name, path), lines in self.hits.items():
            rare = [line for line in lines if seen.get(line, 0) <= COMMON]
            enough = (
                min(ENOUGH, len(self.order["secrets"][name]["lines"]))
                if path.startswith(self.libraries)
                else 1
            )
            if len(rare) >= enough:
                self.add(name, path, "holds " + repr(max(rare, key=len)[:100]))

    # -- everything else -------------------------------------------------------------------------------------------

    def modules(self) -> List[str]:
        """Check where the tree's own modules come from; returns the folders that Python imports from."""
        names = self.order["modules"]
        done = subprocess.run(
            [sys.executable, "-c", WHERE_FROM, json.dumps(names)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        path, found = json.loads(done.stdout.decode())
        folders = [os.path.abspath(entry or ".") for entry in path]
        for name, place in found.items():
            if place and not self.inside(os.path.abspath(place)):
                self.add("installed copy", place, "is what `import " + name + "` finds, not the tree")
        for folder in folders:
            if not self.inside(folder) and os.path.isdir(folder):
                self.copies(folder, names)
        folders = [folder for folder in folders if os.path.isdir(folder)]
        outside = [folder for folder in (*folders, sys.prefix, sys.base_prefix) if not self.inside(folder)]
        self.libraries += tuple(folder + os.sep for folder in outside)
        return folders

    def copies(self, folder: str, names: List[str]) -> None:
        """Modules of the tree's names in a folder of the import path."""
        entries = sorted(os.listdir(folder))
        compiled = os.path.join(folder, "__pycache__")
        compiled_names = sorted(os.listdir(compiled)) if os.path.isdir(compiled) else []
        for name in names:
            module = re.compile(re.escape(name) + r"(\.py|\.pyc|\.[\w.-]*so|)")
            for entry in entries:
                if module.fullmatch(entry):
                    self.add(
                        "installed copy", os.path.join(folder, entry), "has the name of a module of the tree"
                    )
            for entry in compiled_names:
                if entry.startswith(name + "."):
                    self.add("byte code", os.path.join(compiled, entry), "of a module of the tree's name")
        for entry in entries:
            if entry.endswith(".egg-link"):
                self.add(
                    "installed copy",
                    os.path.join(folder, entry),
                    "a link to a tree that is installed for editing",
                )

    def git(self) -> None:
        """The repository must hold the objects of one commit and nothing else."""
        place = os.path.join(self.root, ".git")
        for name in LEFT_BY_GIT:
            if os.path.exists(os.path.join(place, name)):
                self.add(
                    "git", ".git/" + name, "what a repository of one commit without history does not have"
                )
        if not os.path.isdir(place):
            return
        try:
            commits = git("rev-list", "--all", "--reflog")
            every = set(git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
            held = {line.split()[0] for line in git("rev-list", "--objects", "HEAD")}
            remotes, refs = git("remote"), git("for-each-ref", "--format=%(refname)")
        except OSError:
            self.add("git", ".git", "cannot be checked: there is no program git")
            return
        if len(commits) != 1:
            self.add("git", ".git", f"expected 1 commit, found {len(commits)}")
        if every - held:
            self.add("git", ".git", f"{len(every - held)} objects that are not of the commit")
        for name in remotes:
            self.add("git", ".git/config", "a remote, " + name)
        if len(refs) > 1:
            self.add("git", ".git", "expected 1 ref, found " + ", ".join(refs[:5]))

    def files_of_tree(self) -> None:
        """What must not lie in the tree, and caches beside it."""
        for path in self.order["hidden_paths"]:
            if os.path.exists(path):
                self.add("hidden tests", path, "a file that only the hidden tests bring")
        for name in ("build", "dist"):
            if os.path.isdir(name) and not os.path.exists(os.path.join(name, "__init__.py")):
                self.add("build products", name, "may hold the package in another state")
        homes = [os.path.expanduser("~"), "/root"]
        homes += (
            [os.path.join("/home", name) for name in sorted(os.listdir("/home"))]
            if os.path.isdir("/home")
            else []
        )
        for home in dict.fromkeys(homes):
            for name in CACHES:
                cache = os.path.join(home, ".cache", name)
                if os.path.isdir(cache) and os.access(cache, os.R_OK) and os.listdir(cache):
                    self.add("package cache", cache, "may hold the package in another version")

    def network(self) -> None:
        """Only the loopback device may be there; nothing is sent."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                flags = struct.unpack_from("H", fcntl.ioctl(asking.fileno(), GET_FLAGS, request), 16)[0]
                if name != "lo" and flags & UP:
                    self.add("network", name, "a network device that is up")


def git(*arguments: str) -> List[str]:
    """Output lines of a git command in the tree."""
    command = ["git", "-c", "safe.directory=*"] + list(arguments)  # noqa: RUF005
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode("utf-8", "replace").splitlines()


def members(path: str) -> Iterator[Tuple[str, bytes]]:
    """Names and contents of the files in an archive, large ones left out."""
    if path.endswith((".zip", ".whl", ".egg")):
        with zipfile.ZipFile(path) as zipped:
            for info in zipped.infolist():
                if info.file_size <= LARGEST:
                    yield info.filename, zipped.read(info)
        return
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() and member.size <= LARGEST else None
            if file is not None:
                yield member.name, file.read()


def main() -> None:
    """Read the order, search, print the report."""
    search = Search(json.loads(sys.stdin.buffer.read().decode("utf-8")))
    search.git()
    search.files_of_tree()
    search.network()
    imported_from = search.modules()
    first = [search.root, "/tmp", os.path.expanduser("~"), "/usr/local", "/usr/src"]
    for top in [*first, *imported_from, "/"]:
        if os.path.isdir(top) and (top == "/" or search.is_wanted(top, top)):
            search.look_in(top)
    search.settle()
    report = {
        "findings": search.findings,
        "files": search.files,
        "bytes": search.bytes,
        "complete": search.complete,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
