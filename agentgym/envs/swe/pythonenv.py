"""Python environments for tests: one per set of requirements, installed once, shared, never agentgym's own.

Also the one way to an sdist: through pip, without running its build.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from agentgym.cache import cache_folder
from agentgym.envs.swe.records import write_atomic
from agentgym.errors import InfrastructureError, MissingDependency, TaskError

# pip asks a build back end for an sdist's metadata even when it only downloads it, which means installing that back
# end and running the sdist's code. This start-up module answers instead, from the PKG-INFO every sdist carries.
_ANSWER_FROM_PKG_INFO = """\
import json, os, sys
words = sys.orig_argv
if len(words) >= 4 and os.path.basename(words[-3]) == "_in_process.py":
    hook, control = words[-2:]
    answer = []
    if hook == "prepare_metadata_for_build_wheel":
        with open(os.path.join(control, "input.json"), encoding="utf-8") as file:
            folder = json.load(file)["kwargs"]["metadata_directory"]
        with open("PKG-INFO", encoding="utf-8") as file:
            text = file.read()
        lines = [line for line in text.splitlines() if line.startswith(("Name: ", "Version: "))]
        fields = dict(line.split(": ", 1) for line in reversed(lines))
        answer = "{}-{}.dist-info".format(fields["Name"].replace("-", "_"), fields["Version"])
        os.mkdir(os.path.join(folder, answer))
        with open(os.path.join(folder, answer, "METADATA"), "w", encoding="utf-8") as file:
            file.write(text)
    with open(os.path.join(control, "output.json"), "w", encoding="utf-8") as file:
        json.dump({"unsupported": False, "return_val": answer, "warnings": []}, file)
    os._exit(0)
"""


def swe_cache() -> Path:
    """Where downloads, environments and prepared trees are kept."""
    return cache_folder() / "swe"


def canonical(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def download_sdist(requirement: str) -> Path:
    """Source archive of ``NAME`` or ``NAME==VERSION``; one with a version is downloaded once and kept.

    Raises:
        TaskError: the index has no such project, version or source archive.
    """
    name, _, version = (part.strip() for part in requirement.partition("=="))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or not re.fullmatch(
        r"[A-Za-z0-9.+!_-]*", version
    ):
        raise TaskError(
            f"expected NAME==VERSION or a path to a source archive or folder, got {requirement!r}"
        )
    kept = swe_cache() / "sdists" / f"{canonical(name)}=={version}"
    if version and kept.is_dir():
        return next(kept.iterdir())
    with tempfile.TemporaryDirectory(prefix="agentgym-sdist-") as folder:
        (Path(folder) / "stub").mkdir()
        (Path(folder) / "stub" / "sitecustomize.py").write_text(_ANSWER_FROM_PKG_INFO)
        files = Path(folder) / "files"
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--quiet", "-d", str(files)]
        try:
            _pip(["download", *options, requirement], env={"PYTHONPATH": str(Path(folder) / "stub")})
        except InfrastructureError as error:
            if "No matching distribution" in str(error) or "Could not find a version" in str(error):
                raise TaskError(f"the package index has no source archive for {requirement}") from None
            raise
        archive = next(files.iterdir())
        if not version:
            version = _archive_version(archive.name)
            kept = kept.with_name(f"{canonical(name)}=={version}")
        publish(files, kept)
    return next(kept.iterdir())


def _archive_version(file_name: str) -> str:
    return re.sub(r"\.(tar\.\w+|zip|tgz)$", "", file_name).rpartition("-")[2]


def resolve(requirements: Sequence[str]) -> tuple[str, ...]:
    """Pin requirements to what the index offers now, dependencies included: ``NAME==VERSION``, sorted.

    The answer is kept, so that the same question has the same answer on this machine, also offline.
    """
    kept = swe_cache() / "resolved" / f"{_key(requirements)}.json"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(prefix="agentgym-pip-") as folder:
            report = Path(folder, "report.json")
            options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
            _pip(["install", *options, *requirements])
            items = [item["metadata"] for item in json.loads(report.read_text())["install"]]
        write_atomic(
            kept,
            json.dumps(sorted(f"{canonical(item['name'])}=={item['version']}" for item in items)).encode(),
        )
    return tuple(json.loads(kept.read_text()))


def environment(requirements: Sequence[str]) -> Path:
    """Interpreter of an environment that holds pytest and these requirements; installed on first use.

    It has neither pip nor agentgym, so nothing of ours is within reach of the tests.

    Raises:
        TaskError: there is no such distribution or version.
        InfrastructureError: pip could not install them.
    """
    wanted = sorted(
        {*requirements, *(() if any(_is_pytest(entry) for entry in requirements) else ("pytest",))}
    )
    folder = swe_cache() / "environments" / f"2-{_key(wanted)}"  # 2: of this form
    if not folder.is_dir():
        # Built beside its place under another name and renamed: a half-built one is never seen, and of two parallel
        # builds the first wins.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as building:
            built = Path(building, "env")
            venv.EnvBuilder(symlinks=True, with_pip=False).create(built)
            python = str(built / "bin" / "python")
            if wanted == ["pytest"] and importlib.util.find_spec("pytest") is not None:
                _copy_installed("pytest", next(built.glob("lib/python*/site-packages")))
                wanted = []  # tasks that need nothing else work offline
            if wanted:
                try:
                    _pip(["--python", python, "install", "--quiet", "--no-compile", *wanted])
                except InfrastructureError as error:
                    if "No matching distribution" in str(error):
                        raise TaskError(f"its requirements cannot be had: {error}") from None
                    raise
            _write_scripts(built / "bin", folder / "bin")
            subprocess.run([python, "-m", "compileall", "-q", str(built / "lib")], stdout=subprocess.DEVNULL)
            publish(built, folder)
    return folder / "bin" / "python"


def _write_scripts(scripts: Path, place: Path) -> None:
    """Make the first line of each script name the place it will run from; a policy calls ``pytest`` by its name."""
    (scripts / "pytest").write_text("#!python\nimport sys\nimport pytest\nsys.exit(pytest.console_main())\n")
    (scripts / "pytest").chmod(0o755)
    for script in scripts.iterdir():
        if script.is_symlink() or not script.is_file() or not script.read_bytes().startswith(b"#!"):
            continue
        line, _, rest = script.read_bytes().partition(b"\n")
        if b"python" in line:
            script.write_bytes(b"#!" + os.fsencode(place / "python") + b"\n" + rest)


def _copy_installed(name: str, target: Path) -> None:
    """Copy a distribution that is installed beside agentgym, and what it requires, into another site-packages."""
    waiting, done = [name], set()
    while waiting:
        name = canonical(waiting.pop())
        if name in done:
            continue
        done.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # only for other platforms or Python versions
        for requirement in distribution.requires or []:
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[\s\[<>=!~;(@]", requirement, maxsplit=1)[0])
        for file in distribution.files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(distribution.locate_file(file)), target / file)


def _is_pytest(requirement: str) -> bool:
    return re.match(r"pytest\s*($|[\[<>=!~;@ ])", requirement) is not None


def publish(built: Path, place: Path) -> None:
    """Rename a finished folder to its place; if somebody else was faster, theirs stays: the content is the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        if built.stat().st_dev == place.parent.stat().st_dev:
            built.rename(place)
        else:
            shutil.move(built, place)
    except OSError:
        if not place.is_dir():
            raise


def _key(requirements: Sequence[str]) -> str:
    text = json.dumps([sys.version, sys.base_prefix, sorted(requirements)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _pip(arguments: list[str], *, env: dict[str, str] | None = None) -> None:
    if importlib.util.find_spec("pip") is None:
        raise MissingDependency("this needs pip in agentgym's environment: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    result = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line or "error" in line]
        raise InfrastructureError("pip failed: " + ("; ".join(lines[-3:]) or result.stderr.strip()[-300:]))
