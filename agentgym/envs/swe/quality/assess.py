"""From a record to its labels: what reading finds, what runs find, what a judge says."""

from __future__ import annotations

import ast
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentgym.envs.swe.quality.deterministic import read_findings
from agentgym.envs.swe.quality.findings import KINDS, LABELS, Finding, labels_of
from agentgym.envs.swe.quality.judge import Question, TaskJudge
from agentgym.envs.swe.quality.runs import RunPlan, run_findings
from agentgym.envs.swe.quality.solved import SolvedTask, solve
from agentgym.envs.swe.records import SweRecord
from agentgym.errors import InfrastructureError, TaskError, UnusableAnswer, whole_number


def assess_records(
    records: Sequence[SweRecord],
    *,
    judge: TaskJudge | None = None,
    plan: RunPlan | None = None,
    jobs: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Label tasks.

    Args:
        records: the tasks.
        judge: asked about those of which no fault is proven; None: guessed faults count as well.
        plan: how the tests are run; None: they are not.
        jobs: how many records are looked at at once.
        progress: called with an instance id, how many are done, and how many there are.

    Returns:
        What ``agentgym swe judge --json`` prints, without what labels add.
    """
    whole_number("jobs", jobs, least=1)
    done = itertools.count(1)

    def look(record: SweRecord) -> dict[str, Any]:
        row = assess(record, judge=judge, plan=plan)
        if progress is not None:
            progress(record.instance_id, next(done), len(records))
        return row

    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(look, records))
    report: dict[str, Any] = {"n": len(rows), "good": sum(row["overall_good"] for row in rows)}
    report["unknown"] = sum(row["unknown"] for row in rows)
    if judge is not None:
        report["judge"] = judge.counts()
    return {**report, "records": rows}


def assess(
    record: SweRecord, *, judge: TaskJudge | None = None, plan: RunPlan | None = None
) -> dict[str, Any]:
    """The row of one record.

    A proven fault decides (stage "deterministic"). Else a judge does where there is one (stage "judge"), and it is told
    of the guessed faults; where it gives no usable answer, all labels are false (stage "judge_failed"). Without one the
    guessed faults decide. `unknown` is true where a sandbox or server failed, `not_checked` tells what was left out.

    Raises:
        UsageError: the judge's server refuses the key or does not know the model.
    """
    start = time.monotonic()
    row: dict[str, Any] = {"instance_id": record.instance_id, "stage": "deterministic"}
    not_checked: list[str] = []
    unknown, runs = False, 0
    try:
        task = solve(record)
    except TaskError as error:
        task = SolvedTask(record, record.patch, {}, {}, {})
        not_checked.append(f"the tree: {error}")
    findings = read_findings(task)
    if plan is not None:
        try:
            result = run_findings(task, plan)
        except TaskError as error:
            not_checked.append(f"the tests: {error}")
        except InfrastructureError as error:
            unknown = True
            not_checked.append(f"the tests: infrastructure: {error}")
        else:
            findings += result.findings
            not_checked += result.not_checked
            runs = result.runs
    labels, reason = labels_of(findings), ""
    if judge is not None and not any(KINDS[finding.kind].proven for finding in findings):
        try:
            labels, reason = _ask(judge, task, findings)
            row["stage"] = "judge"
        except (InfrastructureError, TaskError) as error:
            row["stage"], labels, reason = "judge_failed", dict.fromkeys(LABELS, False), str(error)
            unknown = unknown or not isinstance(error, UnusableAnswer | TaskError)
    return {
        **row,
        **labels,
        "findings": [finding.to_dict() for finding in findings],
        "reason": reason,
        "not_checked": not_checked,
        "unknown": unknown,
        "runs": runs,
        "seconds": round(time.monotonic() - start, 3),
    }


def _ask(judge: TaskJudge, task: SolvedTask, findings: Sequence[Finding]) -> tuple[dict[str, bool], str]:
    """Labels and reason."""
    gold = task.gold if judge.gold else ""
    question = Question(task.statement, _tests_text(task), gold, tuple(findings))
    opinion = judge.ask(question, task.record)
    return dict(opinion.labels), opinion.reason


def _tests_text(task: SolvedTask) -> str:
    """The hidden tests as a patch; where the tree has them already, the sources of those that fail."""
    if task.record.test_patch:
        return task.record.test_patch
    sources = [ast.unparse(node) for test in task.failing_tests() for node in test.nodes()]
    return "\n\n".join(dict.fromkeys(sources)) or "\n".join(task.record.fail_to_pass)
