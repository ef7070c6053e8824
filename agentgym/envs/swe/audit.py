"""Does anything in a policy's sandbox give the solution away? The whole of it is searched, as a policy could."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentgym.envs.swe.env import SweEnv, record_tasks
from agentgym.envs.swe.prepare import PreparedTask
from agentgym.envs.swe.records import SweRecord
from agentgym.errors import InfrastructureError
from agentgym.sandbox.base import Sandbox
from agentgym.verifiers.patches import list_tree

PROBE = Path(__file__).with_name("audit_probe.py")
SECONDS = 120.0  # one sandbox may be searched for
BYTES = 2 << 30  # may be read of it
_SHORTEST = 16  # characters of a line that gives something away by itself
_CONTEXT = 2  # lines on each side of a change that are searched with it
_MOST_LINES = 300
_NO_MODULES = frozenset(
    "setup conftest noxfile test tests doc docs example examples benchmarks tools".split()
)
_CHANGELOG = re.compile(r"(change|history|news|release).*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that gives the solution away.

    Attributes:
        kind: "gold patch", "hidden tests", "git", "installed copy", "byte code", "build products", "package cache",
            "network" or "later version".
        where: path in the sandbox, or what else it is.
        detail: what is wrong with it.
    """

    kind: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was found in the sandbox of one task.

    Attributes:
        instance_id: the task.
        findings: the leaks; none for a sound task.
        files, bytes: how much was read.
        complete: False if the search stopped at its bounds.
        seconds: wall time.
    """

    instance_id: str
    findings: tuple[Finding, ...]
    files: int
    bytes: int
    complete: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Nothing was found, and everything was searched."""
        return not self.findings and self.complete

    def to_dict(self) -> dict[str, Any]:
        """As ``agentgym swe audit --json`` prints it."""
        return {**asdict(self), "ok": self.ok, "seconds": round(self.seconds, 3)}


def audit_task(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> AuditReport:
    """Open the sandbox a policy would get for this task and search it.

    Raises:
        TaskError: the record is broken.
        InfrastructureError: the sandbox did not start, or the search broke off.
    """
    env = SweEnv(
        tasks=record_tasks([record], name="audit"), split="all", backend=backend, allow_unsafe=allow_unsafe
    )
    try:
        env.reset(options={"task": record.instance_id})
        return audit_sandbox(env.sandbox, env.prepared)
    finally:
        env.close()


def audit_sandbox(sandbox: Sandbox, prepared: PreparedTask) -> AuditReport:
    """Search a sandbox in which the task's repository lies, as it is now.

    Searched for: lines that the gold patch or the hidden tests add and the task's tree does not have, alone or with
    their neighbours, in files, archives and patches; git objects beyond the one commit; copies of the tree's modules
    on the import path; byte code; build products; package caches; network devices. Not searched: the standard library
    and other parts of the operating system that Python does not import from.
    """
    start = time.monotonic()
    record = prepared.record
    base = prepared.tests.base
    known = _known_lines(base)
    order = {
        "secrets": {
            "gold patch": _secret(prepared.gold_patch, known),
            "hidden tests": _secret(record.test_patch, known),
        },
        "hidden_paths": [path for path in _new_files(record.test_patch) if not (base / path).exists()],
        "modules": _modules(base, record.python_path),
        "seconds": SECONDS,
        "bytes": BYTES,
    }
    python = str(prepared.tests.suite.python)
    command = [python, "-I", "-c", PROBE.read_text(encoding="utf-8")]
    result = sandbox.exec(command, timeout=SECONDS + 60, stdin=json.dumps(order).encode())
    try:
        told = json.loads(result.stdout)
    except ValueError:
        said = "it took too long" if result.timed_out else result.stderr.strip()[-300:]
        raise InfrastructureError(
            f"{record.instance_id}: the search of its sandbox broke off: {said}"
        ) from None
    findings = [Finding(*row) for row in told["findings"]]
    findings += _later_version(base, record)
    return AuditReport(
        instance_id=record.instance_id,
        findings=tuple(dict.fromkeys(findings)),
        files=told["files"],
        bytes=told["bytes"],
        complete=told["complete"],
        seconds=time.monotonic() - start,
    )


def _known_lines(tree: Path) -> set[str]:
    """Every line of the task's own tree: what stands there is no secret."""
    known: set[str] = set()
    for entry in list_tree(tree).values():
        if entry.mode != "120000":
            known.update(map(str.strip, entry.content.decode("utf-8", "replace").splitlines()))
    return known


def _secret(diff: str, known: set[str]) -> dict[str, list[Any]]:
    """The lines of a patch that give it away alone, and each change with the lines around it."""
    blocks = [block for block in _changes(diff) if len(block) > 2 or len("".join(block)) > 2 * _SHORTEST]
    added = dict.fromkeys(line[1:].strip() for line in diff.splitlines() if re.match(r"\+(?!\+\+ )", line))
    lines = [
        line for line in added if len(line) >= _SHORTEST and line not in known and re.search(r"\w", line)
    ]
    return {"lines": lines[:_MOST_LINES], "blocks": blocks[:_MOST_LINES]}


def _changes(diff: str) -> Iterator[list[str]]:
    """What each change of a diff leaves, with up to two lines of context on each side; blank lines left out."""
    before: list[str] = []
    added: list[str] = []
    after: list[str] = []
    changing = False
    for line in [*diff.splitlines(), "@@ end"]:
        if changing and (len(after) == _CONTEXT or line[:1] in "@d" or (after and line[:1] in "+-")):
            yield [*before[-_CONTEXT:], *added, *after]
            before, added, after, changing = [*before, *added, *after], [], [], False
        text = line[1:].strip()
        if line.startswith(("@@", "diff ", "--- ", "+++ ", "index ")):
            before, added, after, changing = [], [], [], False
        elif line.startswith("-"):
            changing = True
        elif line.startswith("+"):
            changing = True
            added += [text] if text else []
        elif text:
            (after if changing else before).append(text)


def _new_files(diff: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+?)\t?$", diff, re.MULTILINE)


def _modules(tree: Path, python_path: tuple[str, ...]) -> list[str]:
    """Names under which the tree's own code is imported."""
    names = set()
    for folder in python_path:
        for entry in (tree / folder).iterdir():
            package = entry.is_dir() and any(entry.glob("*.py"))
            name = entry.name.removesuffix(".py")
            if (package or entry.suffix == ".py") and name.isidentifier() and name not in _NO_MODULES:
                names.add(name)
    return sorted(names)


def _later_version(tree: Path, record: SweRecord) -> Iterator[Finding]:
    """Release notes that tell of the version in which the defect was repaired."""
    version = record.fixed_in.rpartition("==")[2].strip()
    if not re.fullmatch(r"v?\d[\w.]*", version):
        return
    for path in tree.iterdir():
        if path.is_file() and _CHANGELOG.fullmatch(path.name):
            text = path.read_text(encoding="utf-8", errors="replace")
            if re.search(rf"(?<![\w.]){re.escape(version.removeprefix('v'))}(?![\w.]*\w)", text):
                yield Finding("later version", path.name, f"names {version}, in which the defect is repaired")
