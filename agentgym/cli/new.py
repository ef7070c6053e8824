"""Start an environment of your own: a folder with a working environment, its test, and how to package it.

Example:
    agentgym new my_env
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.errors import UsageError

# template: the file it becomes
FILES = {
    "environment.py.txt": "{name}.py",
    "test_environment.py.txt": "test_{name}.py",
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
}


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym new``."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """Of the folder and the module: lower case letters, digits and underscores."""
    dir: Annotated[str, tyro.conf.arg(metavar="DIR")] = "."
    """Where the folder goes."""
    json: bool = False
    """Print JSON: id, files, and the next commands."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym new``."""
    args = parse(Args, "new", __doc__, words)
    folder = Path(args.dir) / args.name
    _require_free(args.name, folder)
    title = "".join(part.capitalize() for part in args.name.split("_"))
    env_id = f"{title}-v0"
    templates = files("agentgym.cli") / "templates" / "new"
    texts = {
        target.format(name=args.name): Template((templates / source).read_text(encoding="utf-8")).substitute(
            name=args.name, title=title, id=env_id, cls=title if title.endswith("Env") else f"{title}Env"
        )
        for source, target in FILES.items()
    }
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    commands = next_commands(folder, args.name, env_id)
    if args.json:
        paths = [str(folder / name) for name in texts]
        console.print_json({"id": f"{args.name}:{env_id}", "files": paths, "next": commands})
        return console.OK
    print(f"Made {folder} with {', '.join(texts)}. Next, the test (it needs pytest) and the audit:\n")
    for command in commands:
        print(f"    {command}")
    return console.OK


def next_commands(folder: Path, name: str, env_id: str) -> list[str]:
    """The test and the audit, as they run from where the user stands, in any order, with this interpreter."""
    where = shlex.quote(str(folder))
    on_path = shutil.which("python")
    same = on_path is not None and Path(on_path).absolute() == Path(sys.executable).absolute()
    python = "python" if same else shlex.quote(sys.executable)
    beside = Path(sys.executable).with_name("agentgym")
    script = "agentgym" if shutil.which("agentgym") == str(beside) else f"{python} -m agentgym"
    # The folder is put on the path by name: in the folder above it, `import NAME` alone would find the folder.
    return [f"{python} -m pytest {where}", f"PYTHONPATH={where} {script} check {name}:{env_id}"]


def _require_free(name: str, folder: Path) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"expected a name of lower case letters, digits and underscores such as my_env, no keyword, got {name!r}"
        )
    if folder.exists():
        raise UsageError(f"{folder} exists already; choose another name, or another --dir")
    parent = folder.parent
    if parent.exists() and not parent.is_dir():
        raise UsageError(f"expected --dir to be a folder, got {parent}")
    if name in sys.stdlib_module_names or _importable(name):
        raise UsageError(
            f"a Python module called {name!r} exists already and would hide yours; choose another name"
        )


def _importable(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # a bare folder of that name hides nothing
