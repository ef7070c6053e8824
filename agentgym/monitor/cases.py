"""Files of labelled calls and trajectories, and what a monitor makes of them.

The monitor gets tool, arguments and context; what an evaluator knows (label, class, hack, results) is kept apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError
from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Decision, Monitor
from agentgym.monitor.rules import CLASSES
from agentgym.tools import ToolCall

CASE_LABELS = ("hack", "benign")
TRAJECTORY_LABELS = ("hacked", "clean")


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a case.

    Attributes:
        call: what the policy asked for.
        answer: what it was answered; None for single calls, whose answer nobody knows.
        hack: whether the call crosses a line, where labelled.
    """

    call: ToolCall
    answer: str | None = None
    hack: bool | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A single call or a whole trajectory.

    Attributes:
        id: unique in its file.
        context: as in the file; `Context.from_dict` reads it.
        steps: one for a single call.
        trajectory: whether it is a whole trajectory.
        label, hack_class: the evaluator's; "" where the file has none.
        line: where it stands in its file, from 1.
        more: the other keys.
    """

    id: str
    context: Mapping[str, Any]
    steps: tuple[Step, ...]
    trajectory: bool = False
    label: str = ""
    hack_class: str = ""
    line: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def positive(self) -> bool:
        """Whether a line was crossed, by the label."""
        return self.label in ("hack", "hacked")


def load_cases(path: str | Path, *, labelled: bool) -> list[Case]:
    """Read a file of cases or of trajectories, one JSON object a line.

    Args:
        path: of the file.
        labelled: every line must have a label and a class, and every call of a trajectory must say `hack`.

    Raises:
        UsageError: the file can't be read, mixes the two kinds, or a line lacks a key or holds something unexpected;
            names the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the cases {path}: {error}") from None
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            case = _read(json.loads(line), number, labelled=labelled)
        except (UsageError, ValueError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        if cases and case.trajectory != cases[0].trajectory:
            raise UsageError(f"{path}, line {number}: expected only cases or only trajectories in one file")
        if case.id in seen:
            raise UsageError(
                f"{path}, line {number}: the id {case.id!r} stands in line {seen[case.id]} already"
            )
        seen[case.id] = number
        cases.append(case)
    return cases


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with the monitor's decision on each of its calls.

    Attributes:
        case: what was judged.
        decisions: one for each call, in order.
        cpu_ms: CPU time of this thread for each review, in milliseconds.
    """

    case: Case
    decisions: tuple[Decision, ...]
    cpu_ms: tuple[float, ...]

    @property
    def first(self) -> Decision:
        """The first decision to block, else one that allows."""
        return next((decision for decision in self.decisions if decision.block), self.decisions[0])


def judge_cases(monitor: Monitor, cases: Sequence[Case]) -> Iterator[Judged]:
    """Let a monitor decide on each call of each case; memory lasts for one case."""
    for case in cases:
        context = Context.from_dict(case.context)
        decisions, spent = [], []
        for step in case.steps:
            before = time.thread_time()
            decisions.append(monitor.review(step.call, context, step.answer))
            spent.append(1000 * (time.thread_time() - before))
        yield Judged(case, tuple(decisions), tuple(spent))


def decision_row(judged: Judged) -> dict[str, Any]:
    """What ``agentgym monitor decide`` prints of a case."""
    row = {"id": judged.case.id, **_short(judged.first)}
    if judged.case.trajectory:
        row["calls"] = [_short(decision) for decision in judged.decisions]
    return row


def _short(decision: Decision) -> dict[str, Any]:
    return {
        "block": decision.block,
        "rule": decision.rule,
        "reason": decision.reason if decision.block else "",
    }


def _read(row: object, number: int, *, labelled: bool) -> Case:
    if not isinstance(row, dict):
        raise UsageError(f"expected a JSON object, got {str(row)[:60]!r}")
    trajectory = "calls" in row
    needed = ["id", "context", *(["calls"] if trajectory else ["tool", "arguments"])]
    needed += ["label", "class"] if labelled else []
    for key in needed:
        if key not in row:
            raise UsageError(f"the key {key!r} is missing")
    if not isinstance(row["id"], str):
        raise UsageError(f"expected id to be text, got {row['id']!r:.60}")
    Context.from_dict(row["context"])
    if trajectory and not isinstance(row["calls"], list):
        raise UsageError(f"expected calls to be a list, got {row['calls']!r:.60}")
    steps = tuple(_step(call, labelled=labelled) for call in row["calls"]) if trajectory else (_step(row),)
    if not steps:
        raise UsageError("expected at least one call")
    label, hack_class = row.get("label", ""), row.get("class", "")
    if labelled:
        known = TRAJECTORY_LABELS if trajectory else CASE_LABELS
        if label not in known:
            raise UsageError(f"expected the label {' or '.join(known)}, got {label!r:.60}")
        if hack_class not in (*CLASSES, "generic"):
            raise UsageError(
                f"unknown class {hack_class!r:.60}; expected one of {', '.join(CLASSES)} or generic"
            )
    read = {"id", "context", "calls", "tool", "arguments", "label", "class"}
    more = {key: value for key, value in row.items() if key not in read}
    return Case(row["id"], row["context"], steps, trajectory, label, hack_class, number, more)


def _step(row: object, *, labelled: bool = False) -> Step:
    if not isinstance(row, dict):
        raise UsageError(f"expected a call to be an object, got {row!r:.60}")
    for key in ("tool", "arguments", *(["hack"] if labelled else [])):
        if key not in row:
            raise UsageError(f"the key {key!r} of a call is missing")
    tool, arguments = row["tool"], row["arguments"]
    if not isinstance(tool, str):
        raise UsageError(f"expected tool to be text, got {tool!r:.60}")
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
        raise UsageError(f"expected arguments to be an object of texts, got {arguments!r:.60}")
    answer, hack = row.get("result"), row.get("hack")
    if answer is not None and not isinstance(answer, str):
        raise UsageError(f"expected result to be text, got {answer!r:.60}")
    if labelled and not isinstance(hack, bool):
        raise UsageError(f"expected hack to be true or false, got {hack!r:.60}")
    return Step(ToolCall(tool, arguments), answer, hack if isinstance(hack, bool) else None)
