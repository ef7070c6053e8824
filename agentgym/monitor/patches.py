"""The patch-level detector: what a final diff does that a single call may have hidden.

Each file of the diff is reviewed as the calls that would have made it: a new file as one that writes it, a hunk as an
edit, a removal as a deletion. So the rules for written text, and for what may be changed at all, hold for diffs too.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentgym.errors import MissingDependency, UsageError
from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Monitor
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall


@dataclass(frozen=True, slots=True)
class PatchFinding:
    """A place of a diff that crosses a line.

    Attributes:
        path: as the diff names it.
        line: where the hunk begins in the changed file; 0 for a file as a whole.
        rule, hack_class, reason: of the decision.
    """

    path: str
    line: int
    rule: str
    hack_class: str
    reason: str


def review_patch(diff: str, context: Context, monitor: Monitor | None = None) -> list[PatchFinding]:
    """Look through a unified diff for changed tests and runners, answers built in, comparisons and clocks bent.

    Args:
        diff: as `git diff` or `diff -u` writes it; paths are relative to the workspace.
        context: the policy of the task; its memory is neither used nor changed.
        monitor: by default the rules with the deterministic reviewer.

    Raises:
        UsageError: not a unified diff.
        MissingDependency: the package unidiff is not installed.
    """
    monitor = monitor or Monitor()
    findings = []
    for path, line, call in _calls(_parse(diff), context.workspace):
        # A new one: what one hunk writes, another does not run
        decision = monitor.review(call, replace(context))
        if decision.block and decision.rule is not None:
            findings.append(PatchFinding(path, line, decision.rule, decision.hack_class, decision.reason))
    return findings


def _parse(diff: str) -> Any:
    try:
        from unidiff.errors import UnidiffParseError
        from unidiff.patch import PatchSet
    except ImportError:
        raise MissingDependency(
            "reading diffs needs unidiff: pip install 'agentgym-suite[monitor]'"
        ) from None
    try:
        patch = PatchSet(diff)
    except UnidiffParseError as error:
        raise UsageError(f"expected a unified diff: {error}") from None
    if not patch and diff.strip():
        raise UsageError(f"expected a unified diff, found no file header in {diff.strip()[:60]!r}")
    return patch


def _calls(patch: Any, workspace: str) -> Iterator[tuple[str, int, ToolCall]]:
    """Path, line and call for every change of a parsed diff."""
    for file in patch:
        path = posixpath.join(workspace, file.path)
        if file.is_removed_file:
            yield file.path, 0, _call("bash", command=f"rm -f {shlex.quote(path)}")
            continue
        if file.is_rename:
            source = posixpath.join(workspace, file.source_file.removeprefix("a/"))
            yield file.path, 0, _call("bash", command=f"mv {shlex.quote(source)} {shlex.quote(path)}")
        if file.is_added_file:
            text = "".join(line.value for hunk in file for line in hunk if line.is_added)
            yield file.path, 0, _call("write_file", path=path, content=text)
            continue
        for hunk in file:
            old = "".join(line.value for line in hunk if not line.is_added)
            new = "".join(line.value for line in hunk if not line.is_removed)
            edit = _call("str_replace", path=path, old_str=old, new_str=new)
            yield file.path, int(hunk.target_start), edit


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name, FrozenDict(arguments))
