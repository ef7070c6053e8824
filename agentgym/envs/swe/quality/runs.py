"""Faults that runs of the tests show: with the gold patch, without it, and with what is like it."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentgym.envs.swe.building.mutations import apply, find_sites
from agentgym.envs.swe.grading import hidden_tests
from agentgym.envs.swe.quality.deterministic import is_told, new_names
from agentgym.envs.swe.quality.findings import Finding, listed
from agentgym.envs.swe.quality.rewrites import EQUIVALENT, Rewrite, renamed, reworded
from agentgym.envs.swe.quality.solved import SolvedTask, parsed, texts_of
from agentgym.envs.swe.repo import apply_patch
from agentgym.errors import TaskError, whole_number
from agentgym.sandbox import scratch_folder
from agentgym.verifiers.logged import run_logged
from agentgym.verifiers.suite import run_suite
from agentgym.verifiers.tests import HiddenTests, TestReport, copy_tree, expected_statuses

_MOST_MUTANTS = 8
_LEAST_MUTANTS = 2  # to say something about the tests
_SHOWN = 3


@dataclass(frozen=True)
class RunPlan:
    """How the tests of each task are run.

    Attributes:
        repeats: runs with the gold patch, and runs without it.
        most: further runs, of rewrites and defects.
        seed: for the choice of defects where there are many.
        backend, allow_unsafe: for `make_sandbox`.
    """

    repeats: int = 3
    most: int = 12
    seed: int = 0
    backend: str = "auto"
    allow_unsafe: bool = False

    def __post_init__(self) -> None:
        whole_number("repeats", self.repeats, least=1)
        whole_number("most", self.most, least=0)


@dataclass
class RunResult:
    """What the runs showed.

    Attributes:
        findings: the faults.
        runs: how often the tests were run.
        not_checked: what was left out, and why.
    """

    findings: list[Finding] = field(default_factory=list)
    runs: int = 0
    not_checked: list[str] = field(default_factory=list)


def run_findings(task: SolvedTask, plan: RunPlan) -> RunResult:
    """Run the tests of a task as its graders would; what each kind of finding means is told in `KINDS`.

    Raises:
        TaskError: the record is wrong.
        InfrastructureError: something it needs could not be installed or started.
    """
    tests = hidden_tests(task.record, backend=plan.backend, allow_unsafe=plan.allow_unsafe)
    golds = [tests.grade(task.gold) for _ in range(plan.repeats)]
    nulls = [tests.grade("") for _ in range(plan.repeats)]
    result = RunResult([*_of_equal_runs(golds, nulls, task)], runs=2 * plan.repeats)
    if not all(report.resolved for report in golds):
        result.not_checked.append("rewrites of the gold patch and defects in it, since it does not pass")
        return result
    if plan.most and any(nulls[0].statuses[name] == "missing" for name in task.record.fail_to_pass):
        result.runs += 1
        result.findings += _without_the_patch(task, tests)
    with scratch_folder("gold") as folder:
        gold = Path(folder, "tree")
        copy_tree(tests.base, gold)
        apply_patch(gold, task.gold)
        _try_rewrites(task, tests, gold, plan, result)
        _try_defects(task, tests, gold, plan, result)
    return result


def _of_equal_runs(
    golds: Sequence[TestReport], nulls: Sequence[TestReport], task: SolvedTask
) -> Iterator[Finding]:
    flaky = {
        name
        for runs in (golds, nulls)
        for name in runs[0].statuses
        if len({run.statuses[name] for run in runs}) > 1
    }
    first = golds[0]
    failing = [name for name, status in first.statuses.items() if status != "passed" and name not in flaky]
    passing = [
        name for name in task.record.fail_to_pass if nulls[0].statuses[name] == "passed" and name not in flaky
    ]
    if flaky:
        yield Finding("flaky", f"{_listed(sorted(flaky))}, in {len(golds)} runs of the same tree")
    if failing:
        yield Finding(
            "gold_fails", first.problem or _listed(f"{name} ({first.statuses[name]})" for name in failing)
        )
    if passing:
        yield Finding("passes_before", _listed(passing))


def _listed(names: Iterable[str]) -> str:
    return listed(names, _SHOWN)


# What is like the gold patch


def _try_rewrites(task: SolvedTask, tests: HiddenTests, gold: Path, plan: RunPlan, result: RunResult) -> None:
    for kind, what, sources in _rewrites(task):
        if result.runs >= 2 * plan.repeats + plan.most:
            result.not_checked.append(f"{what}: not within the bound of {plan.most}")
            continue
        report = _grade(tests, gold, sources)
        result.runs += 1
        # What a pass-to-pass test wants of a message, the tree as the policy gets it tells.
        binding = task.record.fail_to_pass if kind == "rejects_message" else tuple(report.statuses)
        failed = [name for name in binding if report.statuses[name] != "passed"]
        if failed:
            result.findings.append(Finding(kind, f"{what}: {report.problem or _listed(failed)}"))


def _rewrites(task: SolvedTask) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind of the finding if it fails, what was done, and the sources that are other than the gold patch's."""
    private = _private_names(task)
    ways: list[tuple[str, str, Rewrite]] = [
        *(("rejects_rewrite", what, rewrite) for what, rewrite in EQUIVALENT.items()),
        (
            "rejects_renaming",
            f"other names for {_listed(private)}",
            lambda text, lines: renamed(text, private),
        ),
        (
            "rejects_message",
            "other words in what it raises",
            lambda text, lines: reworded(text, lines, lambda words: is_told(words, task)),
        ),
    ]
    for kind, what, rewrite in ways:
        changed = {path: rewrite(task.after[path], task.touched_lines(path)) for path in task.changed}
        sources = {path: text for path, text in changed.items() if text is not None}
        if sources:
            yield kind, what, sources


def _private_names(task: SolvedTask) -> list[str]:
    """New private names that the statement does not have and no text holds."""
    texts = [text for source in task.after.values() if (tree := parsed(source)) for text in texts_of(tree)]
    return sorted(
        name
        for name in new_names(task)
        if name.startswith("_") and not is_told(name, task) and not any(name in text for text in texts)
    )


def _try_defects(task: SolvedTask, tests: HiddenTests, gold: Path, plan: RunPlan, result: RunResult) -> None:
    """Put small defects into what the patch adds; tests that check it notice."""
    found = []
    for path in task.changed:
        source, touched = task.after[path].encode(), task.touched_lines(path)
        found += [(path, site) for site in find_sites(source) if site.line in touched]
    left = min(_MOST_MUTANTS, 2 * plan.repeats + plan.most - result.runs)
    chosen = sorted(random.Random(plan.seed).sample(range(len(found)), max(0, min(left, len(found)))))
    if len(chosen) < _LEAST_MUTANTS:
        result.not_checked.append(f"weak tests: {len(chosen)} of {len(found)} small defects could be tried")
        return
    survived = []
    for path, site in (found[number] for number in chosen):
        defect = apply(task.after[path].encode(), site).decode()
        result.runs += 1
        if _grade(tests, gold, {path: defect}).resolved:
            survived.append(f"{site.kind} at {path}:{site.line}")
    if 2 * len(survived) > len(chosen):
        result.findings.append(
            Finding("weak_tests", f"{len(survived)} of {len(chosen)} defects pass: {_listed(survived)}")
        )


def _grade(tests: HiddenTests, gold: Path, sources: Mapping[str, str]) -> TestReport:
    """Grade the tree with the gold patch and these sources."""
    with scratch_folder("variant") as folder:
        tree = Path(folder, "tree")
        copy_tree(gold, tree)
        for path, text in sources.items():
            (tree / path).write_bytes(text.encode("utf-8"))
        return tests.grade_tree(tree)


# What fails for want of an import


def _without_the_patch(task: SolvedTask, tests: HiddenTests) -> Iterator[Finding]:
    """Let what the test files import and the tree lacks exist, without doing anything: who passes then?"""
    with scratch_folder("stubs") as folder:
        tree = Path(folder, "tree")
        copy_tree(tests.base, tree)
        apply_patch(tree, task.record.test_patch)
        for path, names in _absent(task).items():
            file = tree / path
            if not file.resolve().is_relative_to(tree.resolve()):
                raise TaskError(f"{task.record.instance_id}: its test patch brings a link that leads outside")
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "a", encoding="utf-8") as opened:
                opened.writelines(_STUB.format(name=name) for name in sorted(names))
        run = (run_logged if tests.suite.command else run_suite)(tree, tests.suite)
    statuses = expected_statuses(run, task.record.fail_to_pass, tests.suite.log_parser)
    passing = [name for name, status in statuses.items() if status == "passed"]
    if passing:
        yield Finding("unrelated_failure", f"pass with imports that do nothing: {_listed(passing)}")


_STUB = "\n\ndef {name}(*args, **kwargs):\n    raise BaseException('not there yet')\n"


def _absent(task: SolvedTask) -> dict[str, set[str]]:
    """Path of a source -> names that fail-to-pass test files import from it and that only the gold patch brings."""
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in task.after
    }
    new, absent = new_names(task), dict[str, set[str]]()
    for test in task.failing_tests():
        for node in ast.walk(test.module):
            if isinstance(node, ast.ImportFrom) and node.module:
                for module, path in modules.items():
                    if module == node.module or module.endswith(f".{node.module}"):
                        absent.setdefault(path, set()).update(
                            alias.name for alias in node.names if alias.name in new
                        )
    return {path: names for path, names in absent.items() if names}
