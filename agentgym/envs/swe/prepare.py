"""Everything an episode of a task needs, made once and shared by all its episodes."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from agentgym.envs.swe.grading import gold_patch, hidden_tests
from agentgym.envs.swe.records import SweRecord
from agentgym.envs.swe.repo import make_repository
from agentgym.envs.swe.runtime.pythonenv import publish
from agentgym.verifiers.tests import HiddenTests, copy_tree


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task that is ready to be played and graded.

    Attributes:
        record: the task.
        repository: the tree with its one-commit repository; only read, copied for each episode.
        tests: the verifier.
        gold_patch: never shown to a policy.
    """

    record: SweRecord
    repository: Path
    tests: HiddenTests
    gold_patch: str = field(repr=False)

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedTask:
        return self


def prepare(
    record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False, partial: bool = False
) -> PreparedTask:
    """Unpack, install and check what the task needs; kept on disk, so that only the first time costs.

    Args:
        record: the task.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        partial: parts of a repair will be paid, see `hidden_tests`.

    Raises:
        TaskError: the record is wrong.
        InfrastructureError: something it needs could not be installed or started.
    """
    return _prepare(_ByIdentity(record), backend, allow_unsafe, partial)


class _ByIdentity:
    """Makes a record a cache key: it holds lists of thousands of ids that hashing would walk at every reset."""

    def __init__(self, record: SweRecord) -> None:
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.record is self.record


@functools.lru_cache(maxsize=256)
def _prepare(key: _ByIdentity, backend: str, allow_unsafe: bool, partial: bool) -> PreparedTask:
    record = key.record
    tests = hidden_tests(record, backend=backend, allow_unsafe=allow_unsafe, partial=partial)
    repository = tests.base.parent.with_name("repositories") / tests.base.name
    if not repository.is_dir():
        repository.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=repository.parent) as folder:
            built = Path(folder, "tree")
            copy_tree(tests.base, built)
            make_repository(built)
            publish(built, repository)
    gold = gold_patch(record, backend=backend, allow_unsafe=allow_unsafe)
    return PreparedTask(record, repository, tests, gold)
