"""Python environments for tests: one per set of requirements, installed once, shared, never agentgym's own.

Pip resolves, downloads and installs wheels; it never builds. What has no wheel on the index is built in a sandbox
(`wheels`), and its metadata are read from the archive, so that nobody's code runs outside of one.
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from agentgym.cache import cache_folder
from agentgym.envs.swe.records import write_atomic
from agentgym.envs.swe.repo import unpack
from agentgym.envs.swe.runtime.names import canonical, requirement_name
from agentgym.envs.swe.runtime.wheels import build_system, build_wheel, further_requires
from agentgym.errors import InfrastructureError, MissingDependency, TaskError
from agentgym.sandbox import scratch_folder

__all__ = ["canonical", "download_sdist", "environment", "publish", "resolve", "swe_cache", "wheel_of"]

PIP_S = 900.0  # for one call of pip
_PYTEST_NEEDS = frozenset("pytest iniconfig packaging pluggy".split())
_NETWORK = re.compile(
    r"Retrying|ConnectionError|Connection (refused|reset|aborted)|timed out|name resolution|Network is unreachable"
    r"|SSLError|HTTP error 5"
)

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
        files = Path(folder) / "files"
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--quiet", "-d", str(files)]
        try:
            _pip(["download", *options, requirement], env=_no_builds(Path(folder)))
        except TaskError as error:
            if "No matching distribution" in str(error) or "Could not find a version" in str(error):
                raise TaskError(f"the package index has no source archive for {requirement}") from None
            raise
        archive = next(files.iterdir())
        if not version:
            version = _archive_version(archive.name)
            kept = kept.with_name(f"{canonical(name)}=={version}")
        publish(files, kept)
    return next(kept.iterdir())


def _no_builds(folder: Path) -> dict[str, str]:
    """Variables under which pip runs no code of an archive; `folder` is one to write into."""
    stub = folder / "stub"
    stub.mkdir()
    (stub / "sitecustomize.py").write_text(_ANSWER_FROM_PKG_INFO)
    return {"PYTHONPATH": str(stub)}


def _archive_version(file_name: str) -> str:
    return re.sub(r"\.(tar\.\w+|zip|tgz)$", "", file_name).rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class _Resolution:
    """Pins, dependencies included, and those of them that the index has no wheel for."""

    pins: tuple[str, ...]
    archives: tuple[str, ...] = ()


def resolve(
    requirements: Sequence[str], *, constraints: Sequence[str] = (), interpreter: Path | None = None
) -> tuple[str, ...]:
    """Pin requirements to what the index offers now, dependencies included: ``NAME==VERSION``, sorted.

    The answer is kept, so that the same question has the same answer on this machine, also offline.

    Args:
        requirements: in pip's notation.
        constraints: on versions, of what is needed.
        interpreter: the Python it is for; None: this one.

    Raises:
        TaskError: there is no such distribution or version, or the requirements contradict each other.
        InfrastructureError: the index cannot be reached.
    """
    return _resolve(requirements, constraints, interpreter).pins


def _resolve(
    requirements: Sequence[str], constraints: Sequence[str], interpreter: Path | None
) -> _Resolution:
    kept = _kept_resolution([*requirements, *(f"constraint: {line}" for line in constraints)], interpreter)
    if not kept.is_file():
        with tempfile.TemporaryDirectory(prefix="agentgym-pip-") as folder:
            report = Path(folder, "report.json")
            file = Path(folder, "constraints.txt")
            file.write_text("\n".join(constraints))
            options = [
                "--dry-run",
                "--ignore-installed",
                "--quiet",
                "--prefer-binary",
                "--no-build-isolation",
            ]
            python = ["--python", str(interpreter)] if interpreter else []
            arguments = [
                *python,
                "install",
                *options,
                "--report",
                str(report),
                "-c",
                str(file),
                *requirements,
            ]
            _pip(arguments, env=_no_builds(Path(folder)))
            items = json.loads(report.read_text())["install"]
        pins = {_pin(item): str(item["download_info"]["url"]).endswith(".whl") for item in items}
        found = _Resolution(
            tuple(sorted(pins)), tuple(sorted(pin for pin, wheel in pins.items() if not wheel))
        )
        # The pins resolve to themselves: no second question when they are installed.
        for place in (kept, _kept_resolution(found.pins, interpreter)):
            write_atomic(place, json.dumps(asdict(found)).encode())
    data = json.loads(kept.read_text())
    return _Resolution(tuple(data["pins"]), tuple(data["archives"]))


def _kept_resolution(question: Sequence[str], interpreter: Path | None) -> Path:
    return swe_cache() / "resolved" / f"2-{_key(question, interpreter)}.json"  # 2: of this form


def _pin(item: Mapping[str, Any]) -> str:
    return f"{canonical(item['metadata']['name'])}=={item['metadata']['version']}"


def environment(requirements: Sequence[str], *, interpreter: Path | None = None, without: str = "") -> Path:
    """Interpreter of an environment that holds pytest and these requirements; installed on first use.

    It has neither pip nor agentgym, so nothing of ours is within reach of the tests.

    Args:
        requirements: in pip's notation.
        interpreter: the Python to make it from; None: this one.
        without: a distribution that is left out even if a requirement needs it: the project under test.

    Raises:
        TaskError: there is no such distribution or version, or pytest itself needs the one left out.
        InfrastructureError: pip could not install them.
    """
    if canonical(without) in _PYTEST_NEEDS:
        raise TaskError(f"{without}: pytest itself needs it, so it cannot be tested from its tree")
    has_pytest = any(requirement_name(line) == "pytest" for line in requirements)
    return _environment([*requirements, *([] if has_pytest else ["pytest"])], interpreter, without)


def wheel_of(tree: Path, target: Path, *, interpreter: Path | None = None, version: str = "") -> Path:
    """Build the wheel of a source tree in a sandbox, with what its build needs.

    Args:
        tree: only read.
        target: folder for the wheel; new.
        interpreter: the Python to build for; None: this one.
        version: what tools that ask git for the version are told instead.

    Raises:
        TaskError: what the build needs cannot be had, or it failed.
        InfrastructureError: pip or the sandbox failed.
    """
    system = build_system(tree)
    python = _environment(system.requires, interpreter)
    if further := further_requires(tree, system, python, version=version):
        python = _environment((*system.requires, *further), interpreter)
    return build_wheel(tree, system, python, target, version=version)


def _environment(requirements: Sequence[str], interpreter: Path | None, without: str = "") -> Path:
    wanted = sorted(set(requirements))
    copied = wanted == ["pytest"] and interpreter is None and importlib.util.find_spec("pytest") is not None
    found = _Resolution(()) if copied else _resolve(wanted, (), interpreter)
    left_out = {pin for pin in found.pins if canonical(without) == requirement_name(pin)}
    key = _key([*wanted, *(f"without: {pin}" for pin in left_out)], interpreter)
    folder = swe_cache() / "environments" / f"3-{key}"  # 3: of this form
    if not folder.is_dir():
        # Built beside its place under another name and renamed: a half-built one is never seen, and of two parallel
        # builds the first wins.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as building:
            built = Path(building, "env")
            python = _new_environment(built, interpreter)
            if copied:  # tasks that need nothing else work offline
                _copy_installed("pytest", next(built.glob("lib/python*/site-packages")))
            else:
                _install(
                    python, [pin for pin in found.pins if pin not in left_out], found.archives, interpreter
                )
            _write_scripts(built / "bin", folder / "bin")
            subprocess.run([python, "-m", "compileall", "-q", str(built / "lib")], stdout=subprocess.DEVNULL)
            publish(built, folder)
    return folder / "bin" / "python"


def _new_environment(folder: Path, interpreter: Path | None) -> str:
    """An empty environment; returns its interpreter."""
    command = [
        str(interpreter or sys.executable),
        "-I",
        "-m",
        "venv",
        "--symlinks",
        "--without-pip",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InfrastructureError(
            f"no environment could be made: {(done.stderr or done.stdout).strip()[-300:]}"
        )
    return str(folder / "bin" / "python")


def _install(python: str, pins: Sequence[str], archives: Sequence[str], interpreter: Path | None) -> None:
    """Install exactly these, from wheels; those without one are built first."""
    with scratch_folder("wheels") as folder:
        entries = [pin for pin in pins if pin not in archives]
        for pin in (pin for pin in pins if pin in archives):
            tree, target = Path(folder, pin, "tree"), Path(folder, pin, "wheel")
            try:
                unpack(download_sdist(pin), tree)
                entries.append(
                    str(wheel_of(tree, target, interpreter=interpreter, version=pin.partition("==")[2]))
                )
            except TaskError as error:
                raise TaskError(f"{pin} has no wheel on the index, and {error}") from None
        options = ["--quiet", "--no-compile", "--no-deps", "--only-binary", ":all:"]
        _pip(["--python", python, "install", *options, *entries])


def _write_scripts(scripts: Path, place: Path) -> None:
    """Make the first line of each script name the place it will run from; a policy calls ``pytest`` by its name."""
    if any(scripts.parent.glob("lib/python*/site-packages/pytest")):
        text = "#!python\nimport sys\nimport pytest\nsys.exit(pytest.console_main())\n"
        (scripts / "pytest").write_text(text)
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
                waiting.append(requirement_name(requirement))
        for file in distribution.files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(distribution.locate_file(file)), target / file)


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


def _key(question: Sequence[str], interpreter: Path | None) -> str:
    python = [sys.version, sys.base_prefix] if interpreter is None else [str(interpreter)]
    text = json.dumps([*python, sorted(question)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _pip(arguments: list[str], *, env: dict[str, str] | None = None) -> None:
    if importlib.util.find_spec("pip") is None:
        raise MissingDependency("this needs pip in agentgym's environment: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    try:
        result = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=PIP_S
        )
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"pip took longer than {PIP_S:g} s") from None
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line or "error" in line]
        text = "; ".join(lines[-3:]) or result.stderr.strip()[-300:]
        if _NETWORK.search(result.stderr):
            raise InfrastructureError(f"pip failed: {text}")
        raise TaskError(f"what it needs cannot be had: {text}")
