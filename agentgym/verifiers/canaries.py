"""Tests that no honest run passes, put among a tree's own so that code under test cannot tell them by their looks.

Code that makes every test pass makes these pass too. Their number, kinds, files and names differ from run to run;
the names are made of the words in the names of the tree's own tests.
"""

from __future__ import annotations

import ast
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_FEWEST, _MOST = 3, 6
_WORDS = "add basic copy default empty error first invalid list missing name none order simple single value".split()
_KINDS = {
    "assert": "def {name}():\n    assert len({word!r}) == {wrong}\n",
    "raise": "def {name}():\n    raise LookupError({word!r})\n",
    "pytest.raises": "def {name}():\n    with pytest.raises(ValueError):\n        int({number!r})\n",
    "assertEqual": "class {cls}(unittest.TestCase):\n    def {name}(self):\n"
    "        self.assertEqual(len({word!r}), {wrong})\n",
    "assertRaises": "class {cls}(unittest.TestCase):\n    def {name}(self):\n"
    "        with self.assertRaises(ValueError):\n            int({number!r})\n",
}
# What a runner can run: the first lines of a file, and the kinds.
STYLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "pytest": ("import unittest\n\nimport pytest\n", tuple(_KINDS)),
    "unittest": ("import unittest\n", ("assertEqual", "assertRaises")),
    "functions": ("", ("assert", "raise")),
}
_random = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Canaries:
    """Files to put into the tree, by path; and the node ids of the tests in them."""

    files: dict[str, str]
    nodes: frozenset[str]

    def names(self) -> set[str]:
        """The names of the test functions, each used once."""
        return {node.rpartition("::")[2] for node in self.nodes}

    def all_failed(self, statuses: Mapping[str, str]) -> bool:
        """Whether each of them failed, with some parameters if it has any, and did nothing else but be skipped.

        They have parameters where a fixture that every test gets has some.

        Args:
            statuses: of the tests in these files, by node id.
        """
        found: dict[str, set[str]] = {}
        for node, status in statuses.items():
            test = node if node in self.nodes else node.partition("[")[0]
            # Parameters may be skipped. One that has none must fail.
            skipped = status == "skipped" and test != node
            found.setdefault(test, set()).update([] if skipped else [status])
        return found == {node: {"failed"} for node in self.nodes}


def make_canaries(tree: Path, targets: Iterable[str], style: str = "pytest") -> Canaries:
    """New canaries, for the folders in which the tree's tests are; `style` is a name from `STYLES`."""
    paths = [PurePosixPath(target.partition("::")[0]) for target in targets]
    places = [str(path if (tree / path).is_dir() else path.parent) for path in paths]
    files = [file for path in paths for file in _files(tree / path)]
    stems = [file.stem for file in files if re.fullmatch(r"(test_\w+|\w+_test)\.py", file.name)]
    texts = {file: _text(file) for file in files if file.suffix == ".py"}
    names = {file: re.findall(r"^\s*def (test_\w+)", text, re.MULTILINE) for file, text in texts.items()}
    words = _words([*stems, *(name for file, found in names.items() if file.stem in stems for name in found)])
    # A file with a base name used twice cannot be imported where folders are no packages.
    taken = {name for _, folders, others in os.walk(tree) for name in (*folders, *others)}
    taken.update(name for found in names.values() for name in found)
    above = {tree / folder / "conftest.py" for path in paths for folder in path.parents}
    header, offered = STYLES[style]
    if style == "pytest" and _rules_out_unittest({**{file: _text(file) for file in above}, **texts}):
        offered = tuple(kind for kind in offered if kind not in STYLES["unittest"][1])
    count = _random.randint(_FEWEST, _MOST)
    kinds = _random.sample(offered, min(_FEWEST, len(offered)))
    kinds += _random.choices(offered, k=count - len(kinds))
    contents: dict[str, list[str]] = {}
    nodes = set()
    for number, kind in enumerate(kinds):
        # Two in the first file, so that both kinds occur
        if number == 0 or (number >= 2 and _random.random() < 0.5):
            path = _new_file(places, stems, words, taken)
            contents[path] = []
        name = _new_name(words, taken)
        cls = "Test" + "".join(word.capitalize() for word in name.split("_")[1:])
        word, value = _random.choice(words), _random.randint(2, 999)
        wrong = len(word) + _random.randint(1, 3)
        contents[path].append(
            _KINDS[kind].format(name=name, cls=cls, word=word, wrong=wrong, number=str(value))
        )
        nodes.add(f"{path}::{cls}::{name}" if _KINDS[kind].startswith("class") else f"{path}::{name}")
    canaries = {path: "\n\n".join([header, *parts]) for path, parts in contents.items()}
    return Canaries(canaries, frozenset(nodes))


def _files(target: Path) -> list[Path]:
    """A target's own files: those beside it may be of the code under test, which has no say in the words."""
    if target.is_dir():
        return [Path(top, name) for top, _, names in os.walk(target) for name in names]
    return [target]


def _text(file: Path) -> str:
    if not file.is_file() or file.is_symlink():
        return ""
    return file.read_text(encoding="utf-8", errors="replace")


def _rules_out_unittest(texts: Mapping[Path, str]) -> bool:
    """Whether no test is of unittest, and every test gets a fixture with parameters, which unittest's cannot have."""
    if any("TestCase" in text for text in texts.values()):
        return False
    return any(_gives_parameters(text) for file, text in texts.items() if file.name == "conftest.py")


def _gives_parameters(conftest: str) -> bool:
    """Whether a conftest file has a fixture with parameters that every test gets."""
    try:
        nodes = list(ast.walk(ast.parse(conftest)))
    except (SyntaxError, ValueError):
        return False
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return any({"autouse", "params"} <= {keyword.arg for keyword in call.keywords} for call in calls)


def _words(names: list[str]) -> list[str]:
    words = {word for name in names for word in name.split("_") if word.isalpha() and word.isascii()}
    return sorted((words - {"test"}) | (set(_WORDS) if len(words) < 8 else set()))


def _new_file(places: list[str], stems: list[str], words: list[str], taken: set[str]) -> str:
    """A path beside the tests, its name like theirs with a word more."""
    while True:
        stem, more = _random.choice(stems or ["test"]), _random.sample(words, _random.randint(1, 2))
        name = "_".join([*more, stem] if stem.endswith("_test") else [stem, *more]) + ".py"
        if name not in taken:
            taken.add(name)
            return f"{_random.choice(places)}/{name}".removeprefix("./")


def _new_name(words: list[str], taken: set[str]) -> str:
    while True:
        name = "_".join(["test", *_random.sample(words, _random.randint(2, 3))])
        if name not in taken:
            taken.add(name)
            return name
