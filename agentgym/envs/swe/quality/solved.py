"""A task with its solution, as the checks look at it: the sources before and after, the tests, what is new."""

from __future__ import annotations

import ast
import contextlib
import difflib
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from agentgym.envs.swe.building.changes import SOURCE, kind_of
from agentgym.envs.swe.records import SweRecord
from agentgym.envs.swe.repo import apply_patch, clean_tree, tree_diff, unpack
from agentgym.errors import TaskError
from agentgym.sandbox import scratch_folder
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.suite import junit_id
from agentgym.verifiers.tests import copy_tree

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class TestCode:
    """One test function: its file, the syntax tree of that, and its own."""

    __test__ = False

    path: str
    module: ast.Module
    function: Function

    def nodes(self) -> list[ast.AST]:
        """The function with what it uses of its file: helpers, fixtures, constants, imports."""
        defined = {name: statement for statement in self.module.body for name in bound_names(statement)}
        chosen: list[ast.AST] = [self.function]
        for node in chosen:  # grows
            for name in sorted(words_of(node)):
                statement = defined.get(name)
                holds_it = statement is not None and any(
                    inner is self.function for inner in ast.walk(statement)
                )
                if statement is not None and not holds_it and statement not in chosen:
                    chosen.append(statement)
        return chosen


@dataclass(frozen=True)
class SolvedTask:
    """A record with what its patches make of its tree. Nothing of it was run.

    Attributes:
        record: the task.
        gold: the gold patch; for a synthetic task what takes its bugs back.
        before: path -> text of each Python source of the tree as the policy gets it.
        after: the same with the gold patch.
        tests: path -> text of each other Python file, with the hidden tests in place.
    """

    record: SweRecord
    gold: str = field(repr=False)
    before: dict[str, str] = field(repr=False)
    after: dict[str, str] = field(repr=False)
    tests: dict[str, str] = field(repr=False)

    @property
    def statement(self) -> str:
        """What the policy reads."""
        return self.record.problem_statement

    @property
    def changed(self) -> list[str]:
        """The sources that the gold patch changes or brings, as they are called after it."""
        return sorted(path for path, text in self.after.items() if self.before.get(path) != text)

    def touched_lines(self, path: str) -> set[int]:
        """Lines of a source, after the gold patch, that it adds, and both neighbours of what it only removes."""
        old, new = (files.get(path, "").split("\n") for files in (self.before, self.after))
        touched: set[int] = set()
        for kind, _, _, start, end in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            if kind == "delete":
                touched |= {start, start + 1}
            elif kind != "equal":
                touched |= set(range(start + 1, end + 1))
        return touched

    def failing_tests(self) -> list[TestCode]:
        """The fail-to-pass test functions whose source can be found by their ids, each once."""
        wanted = {junit_id(name).partition("[")[0] for name in self.record.fail_to_pass if "::" in name}
        found = []
        for path, text in sorted(self.tests.items()):
            place = path.removesuffix(".py").replace("/", ".")
            names = {
                name.rpartition("::")[2] for name in wanted if name.startswith((f"{place}.", f"{place}::"))
            }
            module = parsed(text) if names else None
            if module is not None:
                inside = [node for node in ast.walk(module) if isinstance(node, Function)]
                found += [TestCode(path, module, node) for node in inside if node.name in names]
        return found


def solve(record: SweRecord) -> SolvedTask:
    """Unpack a record's snapshot and apply its patches; needs neither the task's interpreter nor a sandbox.

    Raises:
        TaskError: it has no snapshot or no gold patch, or one of its patches does not apply.
    """
    if not record.patch and not record.bug_patch:
        raise TaskError("there is no gold patch: neither `patch` nor `bug_patch` is given")
    with scratch_folder("quality") as folder:
        base, after, tested = (Path(folder, name) for name in ("base", "after", "tested"))
        unpack(record.snapshot_path(), base)
        clean_tree(base)
        copy_tree(base, after)
        apply_patch(base, record.bug_patch)
        if record.patch:
            apply_patch(after, record.bug_patch)
            apply_patch(after, record.patch)
        copy_tree(base, tested)
        apply_patch(tested, record.test_patch)
        old, new, with_tests = _python_files(base), _python_files(after), _python_files(tested)
        return SolvedTask(
            record,
            gold=record.patch or tree_diff(base, after),
            before={path: text for path, text in old.items() if kind_of(path) == SOURCE},
            after={path: text for path, text in new.items() if kind_of(path) == SOURCE},
            tests={path: text for path, text in with_tests.items() if kind_of(path) != SOURCE},
        )


def _python_files(tree: Path) -> dict[str, str]:
    """The Python files in UTF-8: others could not be written back as they were."""
    files = {}
    for path, entry in list_tree(tree).items():
        if path.endswith(".py") and entry.mode != "120000":
            with contextlib.suppress(UnicodeDecodeError):
                files[path] = entry.content.decode("utf-8")
    return files


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a source; None for one that this Python cannot read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def bound_names(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a value, not looking into functions and classes."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def words_of(*nodes: ast.AST) -> set[str]:
    """Every identifier in these syntax trees: names, attributes, parameters, keywords, what is imported."""
    words: set[str] = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword):
                words.add(node.arg or "")
            elif isinstance(node, ast.alias):
                words.update(node.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                words.update((node.module or "").split("."))
            elif isinstance(node, Function | ast.ClassDef):
                words.add(node.name)
    return words - {""}


def texts_of(*nodes: ast.AST) -> list[str]:
    """Every text constant in these syntax trees but docstrings; the fixed parts of f-strings each by itself."""
    docstrings = {
        id(node.body[0].value)
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, Function | ast.ClassDef | ast.Module)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
