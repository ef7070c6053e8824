"""Environments for tests: what pip is asked, what is built and where, what is kept. No network."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentgym.envs.swe.records import SweRecord
from agentgym.envs.swe.runtime import pythonenv
from agentgym.envs.swe.runtime.pythonenv import download_sdist, environment, resolve, wheel_of
from agentgym.envs.swe.runtime.wheels import BuildSystem, build_system, must_be_built, take_from_wheel
from agentgym.envs.swe.trees import task_python
from agentgym.errors import InfrastructureError, TaskError
from tests.envs.swe.tiny_package import put_tree

# A build back end that the tree itself brings, so that its build needs nothing.
BACKEND = """
import os, socket, sys, zipfile

def get_requires_for_build_wheel(settings=None):
    print("noise", os.environ["PBR_VERSION"])
    return {requires}

def build_wheel(folder, settings=None, metadata=None):
    print("noise")
    open("mark.txt", "w").close()
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
        network = "reached"
    except OSError:
        network = "none"
    name = "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as file:
        file.writestr("made/__init__.py", "")
        file.writestr("made/_version.py", "version = %r; network = %r" % (os.environ.get("PBR_VERSION"), network))
        file.writestr("made/fast.cpython-311.so", "compiled")
        file.writestr("made/slow.cpython-311.so", "compiled, but there is a source")
        file.writestr("made-1.0.dist-info/METADATA", "Name: made\\nVersion: 1.0\\n")
        file.writestr("made-1.0.dist-info/entry_points.txt", "[x]\\na = b\\n")
        file.writestr("../outside.py", "")
    return name
"""
PYPROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['build_tools']\n"


class Pip:
    """Stands for pip: answers `--report` with what it was given, and keeps the arguments of each call."""

    def __init__(self, *offered: str) -> None:
        self.offered = offered
        self.calls: list[list[str]] = []

    def __call__(self, arguments: list[str], *, env: dict[str, str] | None = None) -> None:
        self.calls.append(arguments)
        if "--report" not in arguments:
            return
        items = []
        for url in self.offered:
            name, version = url.partition(".tar")[0].partition("-py3")[0].split("-")[:2]
            items.append(
                {"metadata": {"name": name, "version": version}, "download_info": {"url": f"x/{url}"}}
            )
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps({"install": items}))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "swe"


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    pip = Pip("pytest-9.0-py3-none-any.whl", "Dep.A-1.5-py3-none-any.whl")
    monkeypatch.setattr(pythonenv, "_pip", pip)
    return pip


def test_the_same_question_is_asked_once(pip: Pip) -> None:
    assert resolve(["pytest", "dep_a>1"], constraints=["x<2"]) == ("dep-a==1.5", "pytest==9.0")
    assert resolve(["dep_a>1", "pytest"], constraints=["x<2"]) == ("dep-a==1.5", "pytest==9.0")
    assert len(pip.calls) == 1
    assert resolve(["dep-a==1.5", "pytest==9.0"]) == ("dep-a==1.5", "pytest==9.0")
    assert len(pip.calls) == 1  # pins need no answer
    resolve(["pytest", "dep_a>1"])
    resolve(["pytest", "dep_a>1"], interpreter=Path("/other/python"))
    assert len(pip.calls) == 3
    assert pip.calls[-1][:2] == ["--python", "/other/python"]


def test_an_environment_without_the_package_under_test(pip: Pip) -> None:
    whole = environment(["dep-a==1.5"])
    assert pip.calls[-1][-2:] == ["dep-a==1.5", "pytest==9.0"]
    assert {"--no-deps", "--only-binary"} <= set(pip.calls[-1])
    without = environment(["dep-a==1.5"], without="Dep_A")
    assert pip.calls[-1][-1:] == ["pytest==9.0"]
    assert "dep-a==1.5" not in pip.calls[-1]
    assert whole != without
    count = len(pip.calls)
    assert environment(["dep-a==1.5"], without="other") == whole
    assert len(pip.calls) == count
    with pytest.raises(TaskError, match="Pluggy: pytest itself needs it"):
        environment(["dep-a==1.5"], without="Pluggy")


@pytest.mark.parametrize("repo", ["dep.a", "owner/Dep_A"])
def test_a_task_s_environment_is_without_its_project(pip: Pip, repo: str) -> None:
    # What its tests need may need the project: resolving their pins brings it back.
    task_python(SweRecord("a", repo=repo, requirements=("pytest==9.0",)))
    assert "--dry-run" in pip.calls[0]
    assert pip.calls[-1][-1] == "pytest==9.0"
    assert not any("dep-a" in word for word in pip.calls[-1])


@pytest.mark.slow
def test_an_environment_that_needs_pytest_only_is_made_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythonenv, "_pip", lambda *args, **kwargs: pytest.fail("pip was called"))
    python = environment([])
    code = "import pytest, sys; print(sys.prefix != sys.base_prefix, pytest.__file__.startswith(sys.prefix))"
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
    for name in ("pip", "agentgym"):
        assert (
            subprocess.run([str(python), "-I", "-c", f"import {name}"], capture_output=True).returncode == 1
        )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: No matching distribution",
            InfrastructureError,
        ),
        (
            "ERROR: Could not find a version that satisfies x\nERROR: No matching distribution found for x",
            TaskError,
        ),
        ("ERROR: ResolutionImpossible", TaskError),
    ],
)
def test_whose_fault_it_is_when_pip_fails(
    monkeypatch: pytest.MonkeyPatch, message: str, kind: type[Exception]
) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "pip"]
        return subprocess.CompletedProcess(command, 1, "", message)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(kind):
        resolve(["x"])


def test_pip_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], *, timeout: float, **options: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(InfrastructureError, match="longer than 900 s"):
        resolve(["x"])


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pythonenv, "_environment", lambda *args: Path(sys.executable))
    files = {
        "made/__init__.py": "",
        "made/slow.py": "",
        "build_tools/backend.py": BACKEND.format(requires=[]),
    }
    return put_tree(tmp_path / "tree", {"pyproject.toml": PYPROJECT, **files})


def test_a_build_runs_in_a_sandbox_and_its_products_come_into_the_tree(made: Path, tmp_path: Path) -> None:
    wheel = wheel_of(made, tmp_path / "wheel", version="2.5")
    assert wheel.name == "made-1.0-py3-none-any.whl"
    assert not (made / "mark.txt").exists()  # the tree is only read
    assert take_from_wheel(wheel, made, ".") == ["made/_version.py", "made/fast.cpython-311.so"]
    assert (made / "made/_version.py").read_text() == "version = '2.5'; network = 'none'"
    assert (made / "made.egg-info/PKG-INFO").read_text() == "Name: made\nVersion: 1.0\n"
    assert (made / "made.egg-info/entry_points.txt").read_text() == "[x]\na = b\n"
    assert not (tmp_path / "outside.py").exists()
    assert not (made / "made/slow.cpython-311.so").exists()


def test_what_a_build_asks_for_is_installed_for_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        pythonenv, "_environment", lambda needs, *args: (asked.append(tuple(needs)), Path(sys.executable))[1]
    )
    (made / "build_tools/backend.py").write_text(BACKEND.format(requires=["cython>=3"]))
    wheel_of(made, tmp_path / "wheel", version="1")
    assert asked == [(), ("cython>=3",)]


def test_a_failed_build_is_told_by_its_error(made: Path, tmp_path: Path) -> None:
    message = "x.c:3:10: fatal error: foo.h: No such file\\nexit 1"
    text = f"def build_wheel(*args):\n    import sys\n    sys.exit('{message}')\n"
    (made / "build_tools/backend.py").write_text(text)
    with pytest.raises(TaskError, match=r"its build failed: x.c:3:10: fatal error: foo.h: No such file$"):
        wheel_of(made, tmp_path / "wheel")


@pytest.mark.parametrize(
    "answer", ["None", "3", "open('.agentgym-answer.json', 'w').write('{') and sys.exit()"]
)
def test_an_answer_that_is_none(made: Path, tmp_path: Path, answer: str) -> None:
    text = f"import sys\ndef get_requires_for_build_wheel(settings):\n    return {answer}\n"
    (made / "build_tools/backend.py").write_text(text)
    with pytest.raises(TaskError, match="its build"):
        wheel_of(made, tmp_path / "wheel")


def test_a_dependency_without_a_wheel_is_built_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = {"pyproject.toml": PYPROJECT, "build_tools/backend.py": BACKEND.format(requires=[])}
    archive = tmp_path / "made-1.0.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in tree.items():
            zipped.writestr(f"made-1.0/{name}", content)
    pip = Pip("made-1.0.tar.gz", "pytest-9.0-py3-none-any.whl")
    monkeypatch.setattr(pythonenv, "_pip", pip)
    monkeypatch.setattr(pythonenv, "download_sdist", lambda pin: archive)
    pip.offered = ("made-1.0.tar.gz", "pytest-9.0-py3-none-any.whl")
    resolve(["made", "pytest"])
    pip.offered = ()  # for the build environment
    environment(["made", "pytest"])
    assert "pytest==9.0" in pip.calls[-1]
    assert pip.calls[-1][-1].endswith("/made-1.0-py3-none-any.whl")
    assert "--no-deps" in pip.calls[-1]


def test_build_systems(tmp_path: Path) -> None:
    legacy = put_tree(tmp_path / "legacy", {"setup.py": ""})
    assert build_system(legacy) == BuildSystem("setuptools.build_meta:__legacy__", ("setuptools", "wheel"))
    told = put_tree(tmp_path / "told", {"pyproject.toml": PYPROJECT})
    assert build_system(told) == BuildSystem("backend", (), ("build_tools",))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"setup.py": "setup()", "x.c": ""}, ""),
        ({"setup.py": "setup(ext_modules=[])", "x.py": ""}, ""),
        ({"setup.py": "setup(ext_modules=e)", "src/x.c": ""}, "it has extension modules"),
        (
            {"pyproject.toml": "[build-system]\nrequires=['Cython']\n", "x/y.pyx": ""},
            "it has extension modules",
        ),
        ({"pyproject.toml": "[tool.setuptools_scm]\nwrite_to = 'a/_v.py'\n"}, "its build generates a/_v.py"),
        ({"pyproject.toml": "[tool.setuptools_scm]\nwrite_to = 'a/_v.py'\n", "a/_v.py": ""}, ""),
        (
            {"pyproject.toml": '[tool.hatch.build.hooks.vcs]\nversion-file = "a/_v.py"\n'},
            "its build generates a/_v.py",
        ),
    ],
)
def test_what_must_be_built(tmp_path: Path, files: dict[str, str], why: str) -> None:
    assert must_be_built(put_tree(tmp_path, files)) == why


# Source archives


@pytest.mark.parametrize("name", ["two words", "-r x", "name>=1", "../x", "name==1;ls"])
def test_download_refuses_what_is_no_name(name: str, pip: Pip) -> None:
    with pytest.raises(TaskError, match="expected NAME==VERSION"):
        download_sdist(name)
    assert pip.calls == []


def test_an_archive_is_downloaded_once_and_no_code_of_it_runs(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    calls = []

    def pip(arguments: list[str], *, env: dict[str, str]) -> None:
        calls.append(arguments)
        assert "--no-build-isolation" in arguments
        assert "prepare_metadata_for_build_wheel" in Path(env["PYTHONPATH"], "sitecustomize.py").read_text()
        folder = Path(arguments[arguments.index("-d") + 1])
        put_tree(folder, {"Some_Thing-1.5.tar.gz": "archive"})

    monkeypatch.setattr(pythonenv, "_pip", pip)
    assert download_sdist("some-thing").read_text() == "archive"
    assert download_sdist("Some.Thing==1.5") == cache / "sdists/some-thing==1.5/Some_Thing-1.5.tar.gz"
    assert len(calls) == 1


def test_a_project_without_an_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(arguments: list[str], *, env: dict[str, str]) -> None:
        raise TaskError("what it needs cannot be had: ERROR: No matching distribution found for x==1")

    monkeypatch.setattr(pythonenv, "_pip", pip)
    with pytest.raises(TaskError, match="no source archive for x==1"):
        download_sdist("x==1")
