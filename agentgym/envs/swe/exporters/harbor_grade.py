"""Grades the tree an agent left, inside an exported Harbor task: exit status 0 if every expected test passes.

It needs only the standard library and pytest. The agent's changes to files that are neither tests nor configuration are
put on an untouched tree with the hidden tests, and pytest runs there with a report of its own. The code under test
still runs in pytest's process, in the container the agent had: `agentgym swe grade` is stricter on both.

``grading.json`` beside this file holds: ``expected`` (``classname::name`` of each test), ``kept`` (those of them that
passed before, which may also fail as a mark in the test files expects), ``base`` (SHA-256 of each file of the tree the
agent got), ``protected`` (files and folders that are not taken from the agent), ``python_path``, ``arguments`` (for
pytest) and ``time_s``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

LARGEST_FILE = 16 << 20  # bytes
PROTECTED_NAMES = set(
    "conftest.py sitecustomize.py usercustomize.py setup.py noxfile.py pyvenv.cfg pytest.toml .pytest.toml pytest.ini"
    " .pytest.ini pyproject.toml tox.ini setup.cfg".split()
)
PROTECTED_ENDS = (".pth", ".egg-link", ".egg-info", ".dist-info", ".pyc", ".pyo")
NOISE = set("__pycache__ .git .hg .pytest_cache .hypothesis .mypy_cache .ruff_cache .coverage".split())
OPTIONS = "-q -p no:cacheprovider --continue-on-collection-errors --import-mode=append --maxfail=0".split()
STATUSES = ("passed", "xfailed", "failed")  # from best to worst; whatever else happens to a test is "failed"
EXPECTED_FAILURE = "agentgym-expected-failure"  # property of a test in the report
OVERRIDES = "addopts= filterwarnings= required_plugins= minversion= junit_family=xunit2".split()


def main(workdir: Path) -> int:
    """Grade `workdir`."""
    here = Path(__file__).resolve().parent
    settings = json.loads((here / "grading.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(here / "tree.tar.gz") as archive:
            archive.extractall(scratch)
        tree = Path(scratch, "tree")
        carry_over(workdir, tree, settings["base"], settings["protected"])
        report = Path(scratch, "report.xml")
        code = run_pytest(tree, report, settings)
        results = read_report(report) if code in (0, 1) else {}
    kept = set(settings["kept"])
    lacking = [name for name in settings["expected"] if not counts_as_passed(name, results, name in kept)]
    print(
        f"pytest ended with {code}; {len(lacking)} of {len(settings['expected'])} expected tests did not pass"
    )
    print("\n".join(lacking[:50]))
    return 1 if lacking or not settings["expected"] else 0


def carry_over(workdir: Path, tree: Path, base: dict[str, str], protected: list[str]) -> None:
    """Put what the agent changed on `tree`: plain files only, none that is protected."""
    fixed = set(protected)
    found = dict(plain_files(workdir))
    for key in base.keys() - found.keys():
        if (tree / key).is_file() and not is_protected(key, fixed) and not os.path.lexists(workdir / key):
            (tree / key).unlink()
            with contextlib.suppress(OSError):  # a folder that still holds something stays
                os.removedirs((tree / key).parent)
    for key, path in found.items():
        content = path.read_bytes()
        if base.get(key) != hashlib.sha256(content).hexdigest() and not is_protected(key, fixed):
            target = tree / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(path, target)


def plain_files(workdir: Path) -> Iterator[tuple[str, Path]]:
    """Path and place of each file that is no link and not too large to be source code."""
    for folder, folders, names in os.walk(workdir):
        folders[:] = [name for name in folders if name not in NOISE]
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink() and path.is_file() and path.stat().st_size <= LARGEST_FILE:
                yield path.relative_to(workdir).as_posix(), path


def is_protected(key: str, fixed: set[str]) -> bool:
    """Whether a path keeps the state it had."""
    parts = key.split("/")
    above = {"/".join(parts[:length]) for length in range(1, len(parts) + 1)}
    named = any(part in PROTECTED_NAMES or part in NOISE or part.endswith(PROTECTED_ENDS) for part in parts)
    return named or not above.isdisjoint(fixed)


def run_pytest(tree: Path, report: Path, settings: dict[str, Any]) -> int:
    """Exit status of pytest in a process of its own; -1 if it took too long."""
    places = [str(tree / place) for place in settings["python_path"]]
    overrides = [word for override in OVERRIDES for word in ("-o", override)]
    words = [*settings["arguments"], *OPTIONS, *overrides, f"--rootdir={tree}", f"--junitxml={report}"]
    command = [sys.executable, "-I", __file__, "--pytest", json.dumps(places), *words]
    try:
        return subprocess.run(command, cwd=tree, timeout=settings["time_s"], check=False).returncode
    except subprocess.TimeoutExpired:
        return -1


def read_report(report: Path) -> dict[str, str]:
    """The worst of `STATUSES` that a test had each time it came, by ``classname::name``."""
    results: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        results[name] = max(status_of(case), results.get(name, "passed"), key=STATUSES.index)
    return results


def status_of(case: ElementTree.Element) -> str:
    """One of `STATUSES`."""
    said = [child for child in case if child.tag not in ("system-out", "system-err", "properties")]
    if not said:
        return "passed"
    marked = any(each.get("name") == EXPECTED_FAILURE for each in case.iter("property"))
    as_expected = [(child.tag, child.get("type")) for child in said] == [("skipped", "pytest.xfail")]
    return "xfailed" if marked and as_expected else "failed"


def counts_as_passed(name: str, results: dict[str, str], kept: bool) -> bool:
    """An id whose parameters are cut off stands for all that begin so: all of them must have passed."""
    found = [results[name]] if name in results else []
    if not found and (not name.endswith("]") or name.count("[") > name.count("]")) and "[" in name:
        found = [status for entry, status in results.items() if entry.startswith(name)]
    good = {"passed", "xfailed"} if kept else {"passed"}
    return bool(found) and good.issuperset(found)


def pytest_process(places: list[str], words: list[str]) -> int:
    """Run pytest with `places` last on the import path, so that nothing in them stands in for pytest itself."""
    import pytest

    class Marks:
        """Notes which tests fail as the test files expect. Code under test that calls `pytest.xfail` is no mark."""

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.marked = {item.nodeid for item in session.items if item.get_closest_marker("xfail")}

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(
            self, item: pytest.Item, call: pytest.CallInfo[None]
        ) -> Generator[None, Any, None]:
            report = (yield).get_result()
            called = call.excinfo is not None and isinstance(call.excinfo.value, pytest.xfail.Exception)
            if (
                call.when == "call"
                and item.nodeid in self.marked
                and hasattr(report, "wasxfail")
                and not called
            ):
                item.user_properties.append((EXPECTED_FAILURE, "true"))

    sys.path += places
    return int(pytest.main(words, plugins=[Marks()]))


if __name__ == "__main__":
    if sys.argv[1] == "--pytest":
        sys.exit(pytest_process(json.loads(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(Path(sys.argv[1])))
