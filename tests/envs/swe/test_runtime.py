"""From a source tree to a suite that is known to be green; without network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentgym.envs.swe.repo import unpack
from agentgym.envs.swe.runtime import attempt, repositories
from agentgym.envs.swe.runtime.attempt import Attempt, ended_files
from agentgym.envs.swe.runtime.clean_runs import StageError, generous, is_green, must_be_green, stable_tests
from agentgym.envs.swe.runtime.dockerfile import build_image, dockerfile
from agentgym.envs.swe.runtime.missing import missing_distributions
from agentgym.envs.swe.runtime.prepared import Runtime, environment_for, prepare_runtime
from agentgym.envs.swe.runtime.project import inspect_project
from agentgym.envs.swe.runtime.repositories import Folders, Outcome, prepare_repositories
from agentgym.errors import InfrastructureError, MissingDependency, TaskError
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.tests import SuiteRun, TestSuite
from tests.envs.swe.tiny_package import PACKAGE, put_tree, use_this_python

FLAKY = """
import os, pathlib, time
def test_red():
    assert False
def test_clock():
    assert time.time_ns() and False
"""


def run_of(
    statuses: Mapping[str, str],
    errors: Mapping[str, str] | None = None,
    *,
    problem: str = "",
    timed_out: bool = False,
) -> SuiteRun:
    failures = {node: ("", error) for node, error in (errors or {}).items()}
    return SuiteRun(statuses, failures, problem, 1, "", 2.0, timed_out)


def green(count: int = 10) -> SuiteRun:
    return run_of({f"t.py::test_{i}": "passed" for i in range(count)})


# What runs are worth


def test_nine_of_ten_must_pass_of_those_that_count() -> None:
    statuses = {f"t.py::{i}": "passed" for i in range(9)} | {"t.py::s": "skipped", "t.py::x": "xfailed"}
    assert is_green(run_of(statuses | {"t.py::r": "failed"}))
    red = run_of(statuses | {"t.py::r": "failed", "t.py::q": "error"}, {"t.py::q": "NameError: x\nmore"})
    assert not is_green(red)
    with pytest.raises(
        StageError, match=r"^p: 2 of its 11 tests fail on the clean tree, for example t.py::q: NameError: x$"
    ) as e:
        must_be_green("p", red)
    assert e.value.stage == "green"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (run_of({}), "skipped"),
        (run_of({"a": "skipped"}), "all of its 1 tests are skipped"),
        (run_of({"a": "passed"}, problem="odd"), "odd"),
    ],
)
def test_a_run_that_tells_nothing_is_not_green(run: SuiteRun, reason: str) -> None:
    assert not is_green(run)
    with pytest.raises(StageError, match=reason) as caught:
        must_be_green("p", run)
    assert caught.value.stage == "collected"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("..s..F.x.E   [ 40%]\n.....", "p: its tests cannot be run: late"),
        ("Error: why\n....... [100%]\n", "p: its tests cannot be run: late; Error: why"),
    ],
)
def test_progress_is_no_reason(output: str, reason: str) -> None:
    with pytest.raises(StageError) as caught:
        must_be_green("p", SuiteRun({}, {}, "late", 1, output, 1.0))
    assert str(caught.value) == reason


def test_stable_tests() -> None:
    first = {"a": "passed", "b": "failed", "c": "passed", "d[1]": "passed", "d[2]": "passed", "e": "skipped"}
    second = {"a": "passed", "b": "failed", "c": "failed", "d[1]": "passed", "d[3]": "passed", "e": "skipped"}
    stable, unstable = stable_tests([run_of(first), run_of(second)])
    assert stable == {"a"}
    assert unstable == {
        "b": "failed",
        "c": "flaky: failed, passed",
        "d[1]": "flaky: its id differs from run to run",
        "d[2]": "flaky: its id differs from run to run",
        "d[3]": "flaky: its id differs from run to run",
        "e": "skipped",
    }


def test_time_limits_are_generous_and_coarse() -> None:
    assert [generous(seconds) for seconds in (0.0, 1, 30, 31, 100)] == [300, 300, 300, 600, 1200]


def test_files_that_ended_within_the_time() -> None:
    nodes = ["a.py::1", "b.py::1", "b.py::2", "c.py::T::1", "d.py::1", "d.py::2", "e.py::1", "e.py::2"]
    assert ended_files(nodes) == ("a.py", "b.py", "c.py", "d.py")
    assert ended_files(["a.py::1"]) == ()


# What is missing


def test_what_errors_ask_for() -> None:
    errors = {
        "a": "ModuleNotFoundError: No module named 'yaml'",
        "b": "ImportError: No module named some_dist.part",
        "c": "ModuleNotFoundError: No module named 'tests.helpers'",
        "d": "ModuleNotFoundError: No module named '_private'",
        "e": "ModuleNotFoundError: No module named 'distutils'",
        "f": "_pytest.fixtures.FixtureLookupError: ('mocker', <FixtureRequest for <Function test_f>>)",
        "k": "E       fixture 'benchmark' not found",
        "g": "fixture 'of_their_own' not found",
        "h": "importlib.metadata.PackageNotFoundError: No package metadata was found for Other_Dist",
        "i": "Failed: async def functions are not natively supported.",
        "j": "ModuleNotFoundError: No module named 'pkg_resources'",
    }
    run = run_of(dict.fromkeys(errors, "failed"), errors)
    wanted = (
        "other-dist",
        "pytest-asyncio",
        "pytest-benchmark",
        "pytest-mock",
        "pyyaml",
        "setuptools<81",
        "some-dist",
    )
    assert missing_distributions(run, {"tests", "helpers"}) == wanted


class Index:
    """Stands for the index and the sandbox: resolves names it knows, and gives the runs it was given in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: str, *runs: SuiteRun) -> None:
        self.known = set(known.split())
        self.runs = iter(runs)
        self.suites: list[TestSuite] = []
        monkeypatch.setattr(attempt, "resolve", self.resolve)
        monkeypatch.setattr(attempt, "environment", lambda pins, **more: Path("/env", *pins))
        monkeypatch.setattr(attempt, "run_suite", self.run)

    def resolve(self, lines, *, constraints=(), interpreter=None):
        names = {line.partition("=")[0].partition("<")[0] for line in lines}
        if not names <= self.known:
            raise TaskError(f"not to be had: {sorted(names - self.known)}")
        return tuple(sorted({*lines, *constraints}))

    def run(self, tree, suite):
        self.suites.append(suite)
        return next(self.runs)


@pytest.fixture
def tried(tmp_path: Path) -> Attempt:
    tree = put_tree(tmp_path / "tree", {**PACKAGE, "test-requirements.txt": "mock==1\n"})
    return Attempt(tree, inspect_project(tree), "auto", False, 30.0, lambda what: None)


def test_what_is_missing_is_installed_and_told(monkeypatch: pytest.MonkeyPatch, tried: Attempt) -> None:
    red = run_of(
        {"a": "error", "b": "error"}, {"a": "No module named 'yaml'", "b": "No module named 'nowhere'"}
    )
    index = Index(monkeypatch, "pytest mock pyyaml", red, green())
    tried.install()
    assert tried.first_run().passed() == green().passed()
    assert tried.pins == ("mock==1", "pytest", "pyyaml")
    assert tried.notes == [
        "missing, and not to be had: nowhere",
        "missing and not declared, installed: pyyaml",
    ]
    assert len(index.suites) == 2


def test_coroutines_that_nothing_runs(monkeypatch: pytest.MonkeyPatch, tried: Attempt) -> None:
    red = run_of({"a": "failed"}, {"a": "Failed: async def functions are not natively supported."})
    index = Index(monkeypatch, "pytest mock pytest-asyncio", red, green())
    tried.install()
    assert is_green(tried.first_run())
    assert index.suites[1].arguments == ("--asyncio-mode=auto",)


def test_what_tests_declare_is_loosened_where_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, tried: Attempt
) -> None:
    index = Index(monkeypatch, "pytest mock")
    index.known.remove("mock")
    tried.install()
    assert tried.pins == ("pytest",)
    assert tried.notes == [
        "installed without what only its tests declare to need: not to be had: ['mock']",
    ]


def test_itself_is_left_out_of_its_environment(monkeypatch: pytest.MonkeyPatch, tried: Attempt) -> None:
    Index(monkeypatch, "pytest mock tiny-pkg")
    tried.added.append("tiny-pkg==1")
    tried.install()
    assert tried.pins == ("mock==1", "pytest")


def test_a_red_suite_is_tried_with_locked_versions_and_older_pytests(
    monkeypatch: pytest.MonkeyPatch, tried: Attempt
) -> None:
    (tried.tree / "uv.lock").write_text('[[package]]\nname = "mock"\nversion = "0.9"\n')
    red = run_of({"a": "failed"}, {"a": "first"})
    index = Index(monkeypatch, "pytest mock", red, run_of({"a": "failed"}, {"a": "second"}), green())
    tried.install()
    assert is_green(tried.first_run())
    assert "mock==0.9" in index.suites[1].python.parts
    assert "pytest<9" in index.suites[2].python.parts
    assert "mock==0.9" not in index.suites[2].python.parts
    assert tried.notes == ["green only with pytest<9"]


def test_where_nothing_helps_the_first_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, tried: Attempt
) -> None:
    red = [run_of({"a": "failed"}, {"a": f"error {i}"}) for i in range(3)]
    Index(monkeypatch, "pytest mock", *red)
    tried.install()
    assert tried.first_run() is red[0]


def test_tests_that_hang_and_files_that_take_too_long_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tried: Attempt
) -> None:
    nodes = [f"tests/test_{file}.py::test_{i}" for file in "abcd" for i in range(2)]
    late = run_of(dict.fromkeys(nodes[:3], "passed"), timed_out=True, problem="late")
    failed = {nodes[1]: "Failed: Timeout (>60.0s) from pytest-timeout."}
    later = run_of(dict.fromkeys(nodes, "passed"), failed, timed_out=True, problem="late")
    index = Index(monkeypatch, "pytest mock pytest-timeout", late, later, green())
    tried.install()
    assert is_green(tried.first_run())
    assert index.suites[1].arguments == ("--timeout=60",)
    assert index.suites[2].arguments == (f"--deselect={nodes[1]}",)
    assert index.suites[2].targets == ("tests/test_a.py", "tests/test_b.py", "tests/test_c.py")
    assert tried.hanging == [nodes[1]]


# The whole


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    use_this_python(monkeypatch)


@pytest.mark.slow
def test_a_runtime(offline: None, tmp_path: Path) -> None:
    said: list[str] = []
    tree = put_tree(tmp_path / "tree", {**PACKAGE, "tests/test_red.py": FLAKY})
    runtime = prepare_runtime(tree, say=said.append)
    assert len(runtime.stable) == 18
    assert runtime.unstable == {
        "tests/test_red.py::test_red": "failed",
        "tests/test_red.py::test_clock": "failed",
        "tests/test_texts.py::test_skipped": "skipped",
    }
    assert runtime.pins == ("pytest==0",)
    assert runtime.suite.targets == ("tests",)
    assert runtime.suite.python_path == ("src",)
    assert runtime.suite.limits.wall_s == 300
    assert said[0].startswith("installing")
    text = dockerfile(runtime)
    assert "FROM ${BASE}" in text
    assert "ENV PYTHONPATH=/workspace/src " in text
    assert text.endswith('CMD ["python", "-m", "pytest", "tests"]\n')


def test_an_environment_without_running_the_tests(
    offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "run_suite", lambda *args: pytest.fail("the tests were run"))
    project, pins, suite = environment_for(put_tree(tmp_path / "tree", PACKAGE))
    assert (project.name, pins, suite.targets) == ("tiny-pkg", ("pytest==0",), ("tests",))
    assert (tmp_path / "tree/src/tiny_pkg.egg-info/PKG-INFO").is_file()


def test_a_refusal_tells_what_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    red = run_of({"a": "error"}, {"a": "No module named 'nowhere'"})
    Index(monkeypatch, "pytest", red, red, red)
    with pytest.raises(StageError) as caught:
        prepare_runtime(put_tree(tmp_path / "tree", PACKAGE))
    assert caught.value.notes == (
        "missing, and not to be had: nowhere",
        "tried in vain: pytest<9, pytest<8",
    )


@pytest.mark.slow
def test_a_red_tree_is_refused(offline: None, tmp_path: Path) -> None:
    red = "import pytest\n@pytest.mark.parametrize('i', range(9))\ndef test_red(i):\n    assert i == 99\n"
    tree = put_tree(tmp_path / "tree", {**PACKAGE, "tests/test_red.py": red})
    with pytest.raises(
        StageError, match=r"tiny-pkg: 9 of its 27 tests fail .*test_red\[0\]: AssertionError: assert 0 == 99"
    ) as caught:
        prepare_runtime(tree)
    assert caught.value.stage == "green"


# Many of them


class Prepared:
    """Stands for `prepare_repository`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outcomes: Mapping[str, Outcome]) -> None:
        self.outcomes, self.called = outcomes, []
        monkeypatch.setattr(repositories, "prepare_repository", self)

    def __call__(self, repository: str, out: Path, **more: object) -> Outcome:
        self.called.append(repository)
        return self.outcomes[repository]


def test_a_second_run_goes_on_where_the_first_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcomes = {
        "good": Outcome("good", True, notes=("built",)),
        "bad": Outcome("bad", False, stage="green", reason="red"),
        "broken": Outcome("broken", False, infrastructure=True, reason="no network"),
    }
    first = Prepared(monkeypatch, outcomes)
    progress: list[tuple[str, int, int]] = []
    names = ["bad", "good", "broken", "good"]
    found = prepare_repositories(names, tmp_path, jobs=2, progress=lambda *a: progress.append(a))
    assert [o.repository for o in found] == ["bad", "good", "broken"]
    assert progress[0] == ("", 0, 3)
    assert progress[-1][1:] == (3, 3)
    data = json.loads((tmp_path / "prepare.json").read_text())
    assert {row["repository"] for row in data["repositories"]} == set(outcomes)
    assert (data["n"], data["ok"]) == (3, 1)
    again = Prepared(monkeypatch, outcomes)
    assert prepare_repositories(["good", "bad", "broken"], tmp_path) == [
        outcomes[n] for n in ("good", "bad", "broken")
    ]
    assert (sorted(first.called), again.called) == (["bad", "broken", "good"], ["broken"])
    with_images = Prepared(monkeypatch, outcomes)
    prepare_repositories(["good", "bad"], tmp_path, images=True)
    assert with_images.called == ["good"]
    retried = Prepared(monkeypatch, outcomes)
    prepare_repositories(["good", "bad"], tmp_path, retry=True)
    assert retried.called == ["bad"]
    assert len(json.loads((tmp_path / "prepare.json").read_text())["repositories"]) == 3


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repositories are understood as ever, but nothing is installed and no test runs."""

    def prepare(tree: Path, **more: object) -> Runtime:
        project = inspect_project(tree)
        return Runtime(
            project, ("pytest==0",), TestSuite(Path("python"), project.targets), frozenset({"t"}), {}, 1.0
        )

    monkeypatch.setattr(repositories, "prepare_runtime", prepare)


def put_repository(folder: Path, version: str) -> str:
    named = f'[project]\nname = "same"\nversion = "{version}"\n'
    files = {"pyproject.toml": named, "same.py": f"# {folder.name}\n", "tests/test_same.py": ""}
    return str(put_tree(folder, files))


def test_a_version_is_no_path(understood: None, tmp_path: Path) -> None:
    source = put_repository(tmp_path / "a/source", "1/../../../ESCAPED")
    (outcome,) = prepare_repositories([source], tmp_path / "a/b/out")
    assert outcome.folder.startswith("same-1_.._.._.._ESCAPED-")
    assert outcome.version == "1/../../../ESCAPED"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert sorted(path.name for path in (tmp_path / "a/b/out").iterdir()) == ["prepare.json", outcome.folder]


@pytest.mark.parametrize(
    ("version", "tag"),
    [("1.5", "same-1.5"), ("1.0.post3+gA1", "same-1.0.post3-ga1"), ("1/../x", "same-1-x-e883a9b8")],
)
def test_images_have_names_that_docker_takes(
    understood: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, tag: str
) -> None:
    built: list[tuple[Path, str]] = []
    monkeypatch.setattr(repositories, "build_image", lambda folder, name: built.append((folder, name)))
    source = put_repository(tmp_path / "source", version)
    (outcome,) = prepare_repositories([source], tmp_path / "out", images=True)
    assert outcome.image == f"agentgym-swe/{tag}"
    assert built == [(tmp_path / "out" / outcome.folder, outcome.image)]


@pytest.mark.parametrize(
    ("label", "tag"),
    [
        ("foo-1.0", "foo-1.0"),
        ("foo-bar-1.0.post1", "foo-bar-1.0.post1"),
        ("foo-1.0+local", "foo-1.0-local"),
        ("Foo-1.0", "foo-1.0"),
        ("foo-1..0", "foo-1-0"),
        ("foo-1.-2", "foo-1-2"),
        ("foo-1.+-2", "foo-1-2"),
        ("foo-1.0_", "foo-1.0"),
        ("_x-1", "x-1"),
    ],
)
def test_tags_are_in_dockers_pattern(label: str, tag: str) -> None:
    """The pattern is that of a path component in Docker's documentation of `docker image tag`."""
    assert repositories._in_docker(label) == tag
    assert re.fullmatch(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", tag)


@pytest.mark.parametrize("jobs", [1, 2])
def test_two_of_one_name_have_two_folders(understood: None, tmp_path: Path, jobs: int) -> None:
    names = [put_repository(tmp_path / name, "0") for name in ("cla", "clb")]
    first = prepare_repositories(names, tmp_path / "out", jobs=jobs)
    assert len({outcome.folder for outcome in first}) == 2
    assert "same-0" in {outcome.folder for outcome in first}
    for outcome, name in zip(first, ("cla", "clb"), strict=True):
        unpack(tmp_path / "out" / outcome.folder / "tree.tar.gz", tmp_path / "again" / name)
        assert (tmp_path / "again" / name / "same.py").read_text() == f"# {name}\n"
    again = prepare_repositories(names[::-1], tmp_path / "out")
    assert again == first[::-1]


def test_a_repository_keeps_its_folder() -> None:
    earlier = [
        Outcome("b", True, name="Same", version="0"),  # as reports had it before they told the folder
        Outcome("a", True, name="same", version="0", folder="same-0-ca978112"),
        Outcome("c", False, name="same", version="1"),
    ]
    folders = Folders(earlier)
    assert folders.of("a", "same", "0") == "same-0-ca978112"  # as sha256sum prints it of "a"
    assert folders.of("b", "same", "0") == "same-0"
    assert folders.of("d", "same", "1") == "same-1"


def test_a_fault_in_one_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Prepared(monkeypatch, {"good": Outcome("good", True)})
    with pytest.raises(KeyError):
        prepare_repositories(["good", "unknown"], tmp_path)
    assert json.loads((tmp_path / "prepare.json").read_text())["n"] == 1


def test_a_report_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "prepare.json").write_text("{}")
    with pytest.raises(TaskError, match="expected a report of"):
        prepare_repositories(["x"], tmp_path)
    assert (tmp_path / "prepare.json").read_text() == "{}"


def test_infrastructure_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(tree: Path, **more: object) -> None:
        raise InfrastructureError("pip failed: no network")

    monkeypatch.setattr(repositories, "prepare_runtime", fails)
    tree = put_tree(tmp_path / "tree", PACKAGE)
    (outcome,) = prepare_repositories([str(tree)], tmp_path / "out")
    assert (outcome.ok, outcome.infrastructure, outcome.stage) == (False, True, "")
    (outcome,) = prepare_repositories([str(tmp_path / "none")], tmp_path / "out")
    assert (outcome.ok, outcome.infrastructure, outcome.stage) == (False, False, "fetched")


@pytest.mark.parametrize("status", [0, 1])
def test_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int) -> None:
    docker = tmp_path / "bin/docker"
    put_tree(
        tmp_path,
        {"bin/docker": f"#!/bin/sh\necho $@ > {tmp_path}/asked\necho no daemon >&2\nexit {status}\n"},
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:/usr/bin:/bin")
    if status:
        with pytest.raises(InfrastructureError, match="docker build of some/tag failed: no daemon"):
            build_image(tmp_path, "some/tag")
    else:
        build_image(tmp_path, "some/tag")
        assert (tmp_path / "asked").read_text() == f"build --quiet --tag some/tag {tmp_path}\n"
    docker.unlink()
    monkeypatch.setenv("PATH", str(docker.parent))
    with pytest.raises(MissingDependency, match=r"apt-get install docker\.io"):
        build_image(tmp_path, "some/tag")


@pytest.mark.slow
def test_what_is_written_for_a_repository(offline: None, tmp_path: Path) -> None:
    tree = put_tree(tmp_path / "tree", PACKAGE)
    (outcome,) = prepare_repositories([str(tree)], tmp_path / "out")
    assert (outcome.ok, outcome.tests, outcome.stable, outcome.unstable) == (True, 19, 18, 1)
    assert outcome.folder == "tiny-pkg-1.5"
    folder = tmp_path / "out" / "tiny-pkg-1.5"
    assert (folder / "requirements.txt").read_text() == "pytest==0\n"
    assert (folder / "Dockerfile").is_file()
    unpack(folder / "tree.tar.gz", tmp_path / "again")
    assert set(list_tree(tmp_path / "again")) == set(PACKAGE) | {
        f"src/tiny_pkg.egg-info/{name}" for name in ("PKG-INFO", "entry_points.txt")
    }
    data = json.loads((folder / "runtime.json").read_text())
    assert (data["name"], data["version"], data["python"]) == ("tiny-pkg", "1.5", ">=3.8")
    assert len(data["stable"]) == 18
    assert data["unstable"] == {"tests/test_texts.py::test_skipped": "skipped"}
    assert not (tree / "src/tiny_pkg.egg-info").exists()  # the user's folder is only read
