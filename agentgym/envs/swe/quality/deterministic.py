"""Faults that are read off a task's statement, tests and gold patch, without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from agentgym.envs.swe.quality.findings import Finding, listed
from agentgym.envs.swe.quality.solved import SolvedTask, parsed, texts_of, words_of

_LEAST_WORDS = 4  # that say something
_LEAST_CODE = 16  # characters of a line of the patch that gives it away
_LEAST_MESSAGE = 8  # characters of a text that a test may expect
_SHOWN = 5

_LINK = re.compile(r"https?://\S+|(?<!\w)(?:gh|issue|bug|pr|ticket|pull request)?[ -]?#\d+\b", re.IGNORECASE)
# Words that every request to repair something has.
_EMPTY_WORDS = frozenset(
    "a an and are as at be behaves broken bug bugs but by can cannot case cases close closed closes code"
    " correct correctly could does doesn't don't error errors fail failing fails failure fix fixed fixes"
    " following for from function has have here how i if in incorrect incorrectly instead is isn't issue it its"
    " make method might module my not of on or package please problem project pytest python ref refs repair"
    " report reported resolve resolved resolves result results return returned returns right same see seems"
    " should so some somehow something sometimes test tests than that the them then there these they this to"
    " too unexpected up used using value values version was we were what when where which will with work"
    " working works would wrong you your".split()
)


def read_findings(task: SolvedTask) -> list[Finding]:
    """What is wrong with a task as far as reading shows it, one finding of a kind."""
    tests = [node for test in task.failing_tests() for node in test.nodes()]
    return [
        *_of_the_statement(task, tests),
        *_leaked_lines(task),
        *_new_names(task, words_of(*tests)),
        *_hidden_messages(task, tests),
    ]


# What the statement says


def _of_the_statement(task: SolvedTask, tests: list[ast.AST]) -> Iterator[Finding]:
    text = task.statement
    said = _telling(_LINK.sub(" ", text))
    if not re.search(r"\w", text):
        yield Finding("empty_statement", "there is no statement")
    elif not said and _LINK.search(text):
        yield Finding("only_a_link", f"there is nothing but {text.strip()[:100]!r}")
    elif len(said) < _LEAST_WORDS:
        words = f"only {', '.join(map(repr, said))}" if said else "nothing"
        yield Finding("short_statement", f"{words} in it says what is wrong: {text.strip()[:100]!r}")
    elif tests:
        yield from _names_no_test(task, tests)


def _names_no_test(task: SolvedTask, tests: list[ast.AST]) -> Iterator[Finding]:
    """A statement that has nothing of what the tests use of the package, and none of the texts they hold."""
    package = _package_words(task)
    used = package & words_of(*tests)
    expected = [text for text in texts_of(*tests) if len(text) > 3]
    if _is_about(task.statement, used) or any(text in task.statement for text in expected):
        return
    shown = _listed(sorted(used)) or "nothing of the package"
    if _is_about(task.statement, package):
        yield Finding("tests_elsewhere", f"the tests use {shown}")
    else:
        yield Finding("names_nothing", f"it names nothing of the package; the tests use {shown}")


def _is_about(text: str, words: set[str]) -> bool:
    """Whether a text has one of these identifiers, or a word of one in some form: "shortened" is about `shorten`."""
    said = set(re.findall(r"\w+", text))
    if said & words:
        return True
    stems = {part for word in words for part in _parts(word) if len(part) > 3}
    forms = {part for word in said for part in _parts(word) if len(part) > 3} - _EMPTY_WORDS
    return any(form.startswith(stem) or stem.startswith(form) for stem in stems for form in forms)


def _telling(text: str) -> list[str]:
    """The words of a text that are not in every report, each once."""
    words = re.findall(r"[A-Za-z_]\w+(?:'t)?|\d+", text)
    return list(dict.fromkeys(word for word in words if word.lower() not in _EMPTY_WORDS))


def _package_words(task: SolvedTask) -> set[str]:
    """What the sources define."""
    found: set[str] = set()
    for files in (task.before, task.after):
        for text in files.values():
            found |= _defined(text)
    return found


def _parts(word: str) -> list[str]:
    """The words that an identifier is made of, in lower case."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", word)]


def _leaked_lines(task: SolvedTask) -> Iterator[Finding]:
    """Lines of code that the patch adds and the sources did not have before, in the statement."""
    told = [" ".join(line.split()) for line in task.statement.splitlines()]
    known = {" ".join(line.split()) for text in task.before.values() for line in text.splitlines()}
    leaked = [
        line for line in _added_code(task) if line not in known and any(line in other for other in told)
    ]
    if leaked:
        yield Finding(
            "leaked_fix", f"the statement has {len(leaked)} of its lines, such as `{leaked[0][:100]}`"
        )


def _added_code(task: SolvedTask) -> list[str]:
    """The added lines that are part of a statement which does something: no docstring, import or signature."""
    found = []
    for path in task.changed:
        tree = parsed(task.after[path])
        lines, touched = task.after[path].split("\n"), task.touched_lines(path)
        spared = set() if tree is None else _interface_lines(tree)
        for number in sorted(touched - spared):
            line = " ".join(lines[number - 1].split()) if 1 <= number <= len(lines) else ""
            if len(line) >= _LEAST_CODE and not line.startswith("#"):
                found.append(line)
    return list(dict.fromkeys(found))


def _interface_lines(tree: ast.Module) -> set[int]:
    """Lines of docstrings, imports, decorators and signatures: a statement may well tell the interface."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (text or isinstance(node, ast.Import | ast.ImportFrom)):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines |= set(range(first, max(node.body[0].lineno, node.lineno + 1)))
    return lines


# What the tests need


def _defined(text: str) -> set[str]:
    """What a source defines that others may use: functions, classes, parameters, attributes, names of its module."""
    tree = parsed(text)
    if tree is None:
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    for body in (tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        for statement in body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not (name.startswith("__") and name.endswith("__"))} - {"self", "cls"}


def new_names(task: SolvedTask) -> set[str]:
    """What only the gold patch defines: names of sources, and the modules it brings, that occurred nowhere before."""
    known: set[str] = set()
    for path, text in task.before.items():
        tree = parsed(text)
        known |= set() if tree is None else words_of(tree)
        known |= set(path.removesuffix(".py").split("/"))
    brought = {part for path in task.changed for part in path.removesuffix(".py").split("/")}
    return (brought | {name for path in task.changed for name in _defined(task.after[path])}) - known


def _new_names(task: SolvedTask, used: set[str]) -> Iterator[Finding]:
    told = set(re.findall(r"\w+", task.statement))
    unnamed = sorted((new_names(task) & used) - told)
    private = [name for name in unnamed if name.startswith("_")]
    public = [name for name in unnamed if not name.startswith("_")]
    for kind, names in (("unnamed_api", public), ("private_name", private)):
        if names:
            yield Finding(kind, f"not in the statement: {_listed(names)}")


def _hidden_messages(task: SolvedTask, tests: list[ast.AST]) -> Iterator[Finding]:
    """Texts of several words that the tests hold and only the gold patch brings."""
    old = [text for source in task.before.values() if (tree := parsed(source)) for text in texts_of(tree)]
    brought = {text for path in task.changed if (tree := parsed(task.after[path])) for text in texts_of(tree)}
    told = _plain(task.statement)
    found = []
    for expected in texts_of(*tests):
        wanted = _plain(re.sub(r"\\(.)", r"\1", expected))  # a pattern, as `pytest.raises` takes it
        shared = [_shared(wanted, _plain(text)) for text in brought.difference(old)]
        if any(text and text not in told for text in shared):
            found.append(expected)
    if found:
        yield Finding("hidden_message", f"not in the statement: {_listed(map(repr, found))}")


def _shared(wanted: str, text: str) -> str:
    """The shorter of a text that a test expects and one of the package, if it is part of the other and says enough."""
    shorter, longer = sorted((wanted, text), key=len)
    return shorter if len(shorter) >= _LEAST_MESSAGE and " " in shorter.strip() and shorter in longer else ""


def is_told(words: str, task: SolvedTask) -> bool:
    """Whether the statement has these words."""
    return _plain(words) in _plain(task.statement)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _listed(names: Iterable[str]) -> str:
    return listed(names, _SHOWN)
