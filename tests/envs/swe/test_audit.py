"""The audit finds each kind of leak that is planted, and nothing in the tasks that come with the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.envs.swe.audit import PROBE, _changes, _later_version, audit_sandbox, audit_task
from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.env import SweEnv
from agentgym.envs.swe.records import write_records
from agentgym.sandbox import make_sandbox, python_binds
from agentgym.verifiers.suite import open_sandbox

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

GOLD = "self.balance -= last"
# The method as it is when repaired, with other indentation.
COPY = 'raise ValueError("nothing to undo")\nlast = self.entries.pop()\nself.balance -= last\n\nreturn last\n'


@pytest.fixture(scope="module")
def env() -> Iterator[SweEnv]:
    env = SweEnv()
    yield env
    env.close()


def found(env: SweEnv, command: str) -> set[tuple[str, str]]:
    """Kinds and places of what the audit says after a command was run in a fresh sandbox."""
    env.reset(options={"task": "ledger-undo"})
    result = env.sandbox.exec(f"set -e\n{command}", timeout=30)
    assert result.exit_code == 0, result.stderr
    report = audit_sandbox(env.sandbox, env.prepared)
    assert report.complete
    return {(finding.kind, finding.where) for finding in report.findings}


@pytest.mark.slow
@pytest.mark.parametrize("record", builtin_records(), ids=lambda record: record.instance_id)
def test_the_tasks_of_the_package_give_nothing_away(record) -> None:
    report = audit_task(record)
    assert report.findings == ()
    assert report.ok
    assert report.files > 10


IN_TREE = "/workspace"
PLANTED = {
    "a note with the line": (
        "echo 'self.balance -= last' > notes.txt",
        ("gold patch", f"{IN_TREE}/notes.txt"),
    ),
    "a copy with other indentation": (f"cat > copy.py <<'E'\n{COPY}E", ("gold patch", f"{IN_TREE}/copy.py")),
    "the patch itself": (
        "printf -- '--- a/ledger.py\\n+++ b/ledger.py\\n@@ -56,3 +56,3 @@\\n         last = self.entries.pop()\\n"
        "-        self.balance += last\\n+        self.balance -= last\\n         return last\\n' > x.diff",
        ("gold patch", f"{IN_TREE}/x.diff"),
    ),
    "inside an archive": (
        f"mkdir /tmp/p && cat > /tmp/p/copy.py <<'E'\n{COPY}E\ntar -C /tmp -czf old.tar.gz p && rm -r /tmp/p",
        ("gold patch", f"{IN_TREE}/old.tar.gz!p/copy.py"),
    ),
    "hidden tests": (
        "echo '    assert account.undo() == -200' > tests/other.py",
        ("hidden tests", f"{IN_TREE}/tests/other.py"),
    ),
    "the hidden test file": ("touch tests/test_ledger.py", ("hidden tests", "tests/test_ledger.py")),
    "a later commit": (
        "git commit -q --allow-empty -m later && git reset -q --hard HEAD~1",
        ("git", ".git/ORIG_HEAD"),
    ),
    "a dangling object": (f"echo '{GOLD}' | git hash-object -w --stdin", ("git", ".git")),
    "a tag": ("git tag v2", ("git", ".git")),
    "a remote": ("git remote add origin /tmp/r", ("git", ".git/config")),
    "another repository": ("git init -q upstream", ("git", f"{IN_TREE}/upstream/.git")),
    "byte code": (
        "python -m compileall -q ledger.py",
        ("byte code", f"{IN_TREE}/__pycache__/ledger.cpython-{sys.version_info[0]}{sys.version_info[1]}.pyc"),
    ),
    "a build folder": ("mkdir -p build/lib && cp ledger.py build/lib", ("build products", "build")),
}


def test_a_planted_line_is_found(env: SweEnv) -> None:
    command, expected = PLANTED["a note with the line"]
    assert found(env, command) == {expected}


@pytest.mark.slow
def test_what_is_planted_is_found(env: SweEnv) -> None:
    """All at once: each is told by its kind and its place."""
    told = found(env, "\n".join(command for command, _ in PLANTED.values()))
    assert {name for name, (_, expected) in PLANTED.items() if expected not in told} == set()


@pytest.mark.slow
def test_ordinary_work_gives_nothing_away(env: SweEnv) -> None:
    command = "echo 'self.balance = 0' > x.py; echo 'import unittest' > /tmp/y.py; git status -s"
    assert found(env, command) == set()


@pytest.mark.slow
def test_an_installed_copy_is_found(env: SweEnv, tmp_path: Path) -> None:
    """A site-packages folder with the package in it, repaired, and a link to an installation for editing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "ledger.py").write_text("def fixed():\n    " + COPY.replace("\n", "\n    "))
    (site / "ledger.egg-link").write_text("/elsewhere\n")
    env.reset(options={"task": "ledger-undo"})
    tests = env.prepared.tests
    suite = replace(tests.suite, python=tmp_path / "venv" / "bin" / "python")
    prepared = replace(env.prepared, tests=replace(tests, suite=suite))
    with open_sandbox(suite, prepared.repository, env=suite.env()) as sandbox:
        report = audit_sandbox(sandbox, prepared)
    told = {(finding.kind, finding.where) for finding in report.findings}
    assert ("installed copy", f"{site}/ledger.py") in told
    assert ("installed copy", f"{site}/ledger.egg-link") in told
    assert ("gold patch", f"{site}/ledger.py") in told


@pytest.mark.slow
def test_a_network_is_found(env: SweEnv) -> None:
    """Where the host has any device besides the loopback one."""
    devices = [path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo"]
    up = [name for name in devices if int(Path("/sys/class/net", name, "flags").read_text(), 16) & 1]
    if not up:
        pytest.skip("this machine has no network device")
    env.reset(options={"task": "ledger-undo"})
    with make_sandbox(network=True, binds=python_binds(str(env.prepared.tests.suite.python))) as sandbox:
        sandbox.upload(env.prepared.repository)
        report = audit_sandbox(sandbox, env.prepared)
    assert {finding.where for finding in report.findings if finding.kind == "network"} == set(up)


def test_a_package_cache_is_found(tmp_path: Path) -> None:
    """The probe by itself, as the sandbox's home does not outlive a command; no time, so that no file is searched."""
    (tmp_path / ".cache" / "pip" / "http").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    secret = {"lines": [], "blocks": []}
    order = {"secrets": {"gold patch": secret}, "hidden_paths": [], "modules": [], "seconds": -1, "bytes": 0}
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROBE.read_text()],
        input=json.dumps(order),
        cwd=tmp_path / "tree",
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert [
        "package cache",
        str(tmp_path / ".cache" / "pip"),
        "may hold the package in another version",
    ] in report["findings"]
    assert report["complete"] is False


@pytest.mark.parametrize(
    ("fixed_in", "told"),
    [
        ("ledger==2.1.0", True),
        ("2.1.0", True),
        ("v2.1.0", True),
        ("2.1", False),
        ("2.1.0.1", False),
        ("", False),
    ],
)
def test_release_notes_of_a_later_version(tmp_path: Path, fixed_in: str, told: bool) -> None:
    (tmp_path / "CHANGES.rst").write_text("2.1.0\n-----\n\n- undo is right again\n")
    record = replace(builtin_records()[0], fixed_in=fixed_in)
    assert [finding.where for finding in _later_version(tmp_path, record)] == (
        ["CHANGES.rst"] if told else []
    )


def test_changes_of_a_diff() -> None:
    diff = (
        "--- a/x\n+++ b/x\n@@ -1,7 +1,6 @@\n one\n two\n three\n-four\n+4\n five\n six\n seven\n-eight\n+8\n"
    )
    assert list(_changes(diff)) == [["two", "three", "4", "five", "six"], ["six", "seven", "8"]]


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from agentgym.cli.swe.audit import main

    records = list(builtin_records()[:1])
    shutil.copy(records[0].snapshot_path(), tmp_path)
    write_records(
        tmp_path / "tasks.jsonl", [*records, replace(records[0], instance_id="gone", snapshot="gone.tar.gz")]
    )
    assert main([str(tmp_path / "tasks.jsonl"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["n"], report["ok"]) == (2, 1)
    assert [row["ok"] for row in report["records"]] == [True, False]
    assert "gone.tar.gz" in report["records"][1]["problem"]
