"""An image as SWE-bench makes them, without any registry: this machine's programs, and a repository with history."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

from agentgym.envs.swe.runtime.pythonenv import environment

PREFIX = "opt/miniconda3/envs/testbed"  # where the images of SWE-bench have their interpreter
PROGRAMS = (
    "bash sh env cat ls cp mv rm mkdir rmdir ln chmod touch head tail wc sort uniq seq sleep true false echo printf id"
    " stat realpath dirname basename find grep sed xargs tar git mktemp kill ps timeout tr cut tee expr setsid"
).split()
_LEFT_OUT = re.compile(r"(test|tests|idlelib|tkinter|lib2to3|ensurepip|site-packages|turtledemo|config-.*)")


def image_tar(workspace: str, tree: Path, extra: dict[str, str]) -> bytes:
    """A tar of an image whose folder `workspace` holds `tree`, `.git` included, and further files by path."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("tmp", "root", "proc", "sys", "dev", "etc", "run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for name, target in (
            ("bin", "usr/bin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("sbin", "usr/bin"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        base = Path(sys.base_prefix)
        python = base / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        programs = [Path(found) for name in PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin"))]
        for program in programs:
            tar.add(program.resolve(), arcname=f"usr/bin/{program.name}")
        tar.add(python.resolve(), arcname=f"{PREFIX}/bin/python")
        library = Path(sysconfig.get_path("stdlib"))
        tar.add(library, arcname=f"{PREFIX}/lib/{library.name}", filter=_needed)
        site = next((environment(()).parent.parent / "lib").glob("python*/site-packages"))
        tar.add(site, arcname=f"{PREFIX}/lib/{library.name}/site-packages")
        extensions = list((library / "lib-dynload").glob("*.so"))
        libraries = {_in_usr(lib): lib for lib in _libraries([*programs, python, *extensions])}
        for name, lib in libraries.items():
            tar.add(os.path.realpath(lib), arcname=name)
        texts = {"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n", **extra}
        _add_texts(tar, texts)
        tar.add(tree, arcname=workspace.lstrip("/"))
    return out.getvalue()


def tar_of(texts: dict[str, str]) -> bytes:
    """A tar of text files by path."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        _add_texts(tar, texts)
    return out.getvalue()


def _add_texts(tar: tarfile.TarFile, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(text.encode()), 0o644
        tar.addfile(entry, io.BytesIO(text.encode()))


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    below = entry.name.removeprefix(PREFIX).split("/")[3:]
    return None if any(_LEFT_OUT.fullmatch(part) for part in below) else entry


def _libraries(programs: Iterable[Path]) -> set[str]:
    """Shared libraries that programs need, as the loader finds them."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    return set(re.findall(r"(?:=> )?(/\S+\.so\S*) \(0x", done.stdout))


def _in_usr(path: str) -> str:
    """Name in the archive: /lib is a link to /usr/lib there; elsewhere a program asks for exactly this path."""
    return f"usr{path}" if path.startswith("/lib") else path.lstrip("/")
