"""Twenty-two small tasks on one tiny package, labelled by us, to measure the quality judge with.

They are made up for this purpose, and the faults are those the judge looks for: what it reaches on them says that it
works, not how good it is on tasks of the world. Four faults among them are beyond what a program can see.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.envs.swe.records import RecordLimits, SweRecord
from agentgym.envs.swe.repo import pack_tree
from tests.envs.swe.tiny_package import put_tree

MEASURE = """\
UNITS = {"m": 1.0, "cm": 0.01, "km": 1000.0}


def parse(text):
    number, _, unit = text.strip().partition(" ")
    return float(number) * UNITS[unit]


def show(metres, unit="m"):
    return f"{metres / UNITS[unit]:g} {unit}"


def total(texts):
    result = 0.0
    for text in texts:
        result += parse(text)
    return result


class Track:
    def __init__(self):
        self.legs = []

    def add(self, text):
        self.legs.append(parse(text))

    def longest(self):
        return max(self.legs)
"""
OLD_TESTS = """\
from measure import Track, parse, show, total


def test_parse():
    assert parse(" 3 km") == 3000


def test_show():
    assert show(2000, "km") == "2 km"


def test_total():
    assert total(["1 m", "2 m"]) == 3


def test_longest():
    track = Track()
    track.add("1 m")
    track.add("2 m")
    assert track.longest() == 2
"""
TREE = {"measure.py": MEASURE, "tests/test_measure.py": OLD_TESTS}
OLD_IDS = tuple(f"tests/test_measure.py::test_{name}" for name in ("parse", "show", "total", "longest"))

CAPITALS = (
    "UNITS[unit]\n\n\ndef show",
    "UNITS[unit.lower()]\n\n\ndef show",
)
CAPITALS_TEST = """\
from measure import parse


def test_capitals():
    assert parse("3 KM") == 3000
    assert parse("2 Cm") == 0.02
"""
CAPITALS_TEXT = (
    '`parse` fails with a KeyError where the unit is written in capitals, for example `parse("3 KM")`.'
    " Units should be understood in capitals and in small letters alike."
)
END = "        return max(self.legs)\n"
SHORTEST = (
    END,
    END
    + """
    def shortest(self):
        if not self.legs:
            raise ValueError("a track without legs has no shortest leg")
        best = self.legs[0]
        for leg in self.legs:
            if leg < best:
                best = leg
        return best * 1.0
""",
)
SHORTEST_TEXT = (
    "A `Track` should have a method `shortest()` that returns its shortest leg in metres."
    " On a track without legs it should raise a ValueError."
)
SHORTEST_TEST = """\
import pytest

from measure import Track


def test_shortest():
    track = Track()
    for text in ("3 m", "1 m", "2 m"):
        track.add(text)
    assert track.shortest() == 1


def test_one_leg():
    track = Track()
    track.add("3 m")
    assert track.shortest() == 3


def test_no_legs():
    with pytest.raises(ValueError):
        Track().shortest()
"""
UNKNOWN = (
    '    return f"{metres / UNITS[unit]:g} {unit}"\n',
    """\
    if unit not in UNITS:
        raise ValueError(f"no such unit of length: {unit}")
    return f"{metres / UNITS[unit]:g} {unit}"
""",
)
UNKNOWN_TEST = """\
import pytest

from measure import show


def test_unknown():
    with pytest.raises(ValueError, match="no such unit of length: ell"):
        show(1, "ell")
"""
HELPER = (
    'def parse(text):\n    number, _, unit = text.strip().partition(" ")\n    return float(number) * UNITS[unit]\n',
    """\
def _factor(unit):
    return UNITS[unit.lower()]


def parse(text):
    number, _, unit = text.strip().partition(" ")
    return float(number) * _factor(unit)
""",
)


@dataclass(frozen=True)
class Labelled:
    """A task: what it says, what the gold patch replaces, the hidden tests, and what is right.

    `reading` and `running` are the faults that a program should find without and with runs of the tests.
    """

    name: str
    text: str
    edit: tuple[str, str]
    tests: str
    reading: str = ""
    running: str = ""
    clear: bool = True
    aligned: bool = True
    good: bool | None = None

    @property
    def labels(self) -> dict[str, Any]:
        good = self.clear and self.aligned if self.good is None else self.good
        return {
            "instance_id": self.name,
            "instruct_clear": self.clear,
            "instruct_ut_align": self.aligned,
            "overall_good": good,
        }


TASKS = (
    Labelled("good-behaviour", CAPITALS_TEXT, CAPITALS, CAPITALS_TEST),
    Labelled("good-new-method", SHORTEST_TEXT, SHORTEST, SHORTEST_TEST),
    Labelled(
        "good-told-message",
        "`show` of a unit it does not know ends with a KeyError. It should be a ValueError that says"
        " `no such unit of length: ` and the unit.",
        UNKNOWN,
        UNKNOWN_TEST,
    ),
    Labelled("good-private-helper", CAPITALS_TEXT, HELPER, CAPITALS_TEST),
    Labelled(
        "good-in-plain-words",
        "Small lengths are shown with an exponent: a tenth of a micrometre comes out as 1e-07 m. People want"
        " decimal digits, at most seven behind the point, without zeros at the end.",
        (
            '    return f"{metres / UNITS[unit]:g} {unit}"\n',
            """\
    amount = f"{metres / UNITS[unit]:.7f}"
    digits = amount.rstrip("0")
    return f"{digits.rstrip('.')} {unit}"
""",
        ),
        """\
from measure import show


def test_digits():
    assert show(0.0000001) == "0.0000001 m"
    assert show(1200) == "1200 m"
    assert show(0.5, "km") == "0.0005 km"
""",
    ),
    Labelled("unclear-empty", "  \n", CAPITALS, CAPITALS_TEST, reading="empty_statement", clear=False),
    Labelled(
        "unclear-link",
        "Fixes https://example.org/issues/12 and #13",
        CAPITALS,
        CAPITALS_TEST,
        reading="only_a_link",
        clear=False,
    ),
    Labelled(
        "unclear-short",
        "Please fix the bug, it does not work.",
        CAPITALS,
        CAPITALS_TEST,
        reading="short_statement",
        clear=False,
    ),
    Labelled(
        "unclear-vague",
        "Some of the numbers come out differently from what our customers want. Have a good look at everything and"
        " make it behave.",
        CAPITALS,
        CAPITALS_TEST,
        reading="names_nothing",
        clear=False,
    ),
    Labelled(
        "unclear-open",  # beyond a program: what "properly" is nobody says
        "`Track.longest` should deal properly with a track that has no legs yet.",
        (END, "        return max(self.legs, default=-1.0)\n"),
        "from measure import Track\n\n\ndef test_none():\n    assert Track().longest() == -1.0\n",
        clear=False,
        aligned=False,
    ),
    Labelled(
        "misaligned-unnamed-api",
        "A `Track` should be able to tell the least of its legs in metres, or raise a ValueError where it has none.",
        SHORTEST,
        SHORTEST_TEST,
        reading="unnamed_api",
        aligned=False,
    ),
    Labelled(
        "misaligned-word",  # beyond a program: the method's name stands there, not as a name
        "A `Track` should be able to tell its shortest leg in metres, or raise a ValueError where it has no legs.",
        SHORTEST,
        SHORTEST_TEST,
        aligned=False,
    ),
    Labelled(
        "misaligned-elsewhere",
        CAPITALS_TEXT,
        UNKNOWN,
        UNKNOWN_TEST.replace(', match="no such unit of length: ell"', ""),
        reading="tests_elsewhere",
        aligned=False,
    ),
    Labelled(
        "misaligned-contradiction",  # beyond a program: the tests want the opposite
        '`parse` should refuse units in capitals with a KeyError, as in `parse("3 KM")`, and so it should in future.',
        CAPITALS,
        CAPITALS_TEST,
        aligned=False,
    ),
    Labelled(
        "misaligned-half",  # beyond a program: half of the request is never checked
        SHORTEST_TEXT + " The method `longest()` should raise a ValueError that tells the track's name.",
        SHORTEST,
        SHORTEST_TEST,
        aligned=False,
    ),
    Labelled(
        "overspecified-private",
        CAPITALS_TEXT,
        HELPER,
        'import measure\n\n\ndef test_capitals():\n    assert measure._factor("KM") == measure.parse("1 KM") == 1000\n',
        reading="private_name",
        running="rejects_renaming",
        aligned=False,
    ),
    Labelled(
        "overspecified-message",
        "`show` of a unit it does not know ends with a KeyError. It should be a ValueError.",
        UNKNOWN,
        UNKNOWN_TEST,
        reading="hidden_message",
        running="rejects_message",
        aligned=False,
    ),
    Labelled(
        "overspecified-variable",
        SHORTEST_TEXT,
        SHORTEST,
        SHORTEST_TEST + '\n\ndef test_best():\n    assert "best" in Track.shortest.__code__.co_varnames\n',
        running="rejects_rewrite",
        aligned=False,
    ),
    Labelled(
        "leaking-patch",
        CAPITALS_TEXT + "\n\nIt works with\n\n    return float(number) * UNITS[unit.lower()]\n",
        CAPITALS,
        CAPITALS_TEST,
        reading="leaked_fix",
        good=False,
    ),
    Labelled(
        "flaky",
        CAPITALS_TEXT,
        CAPITALS,
        "import random\n\nimport pytest\n\nfrom measure import parse\n\n\n"
        '@pytest.mark.parametrize("number", range(20))\n'
        'def test_capitals(number):\n    assert parse("3 KM") * random.random() < 1500\n',
        running="flaky",
        aligned=False,
    ),
    Labelled(
        "weak-tests",
        SHORTEST_TEXT,
        SHORTEST,
        "from measure import Track\n\n\ndef test_there():\n    assert callable(Track.shortest)\n",
        running="weak_tests",
        aligned=False,
    ),
    Labelled(
        "gold-fails",
        CAPITALS_TEXT,
        CAPITALS,
        CAPITALS_TEST + '\n\ndef test_strange():\n    assert parse("1 KM") == 1024\n',
        running="gold_fails",
        aligned=False,
    ),
)


def make_records(folder: Path) -> dict[str, SweRecord]:
    """The tasks as records by id; their snapshot lies in `folder`."""
    (folder / "tree.tar.gz").write_bytes(pack_tree(put_tree(folder / "base", TREE)))
    return {task.name: make_record(task, folder) for task in TASKS}


def make_record(task: Labelled, folder: Path) -> SweRecord:
    assert MEASURE.count(task.edit[0]) == 1, task.name
    names = re.findall(r"^def (test\w*)", task.tests, re.MULTILINE)
    if "range(20)" in task.tests:
        names = [f"{name}[{number}]" for name in names for number in range(20)]
    return SweRecord(
        instance_id=task.name,
        problem_statement=task.text,
        snapshot="tree.tar.gz",
        patch=patch_of("measure.py", MEASURE, MEASURE.replace(*task.edit)),
        test_patch=patch_of("tests/test_hidden.py", "", task.tests),
        fail_to_pass=tuple(f"tests/test_hidden.py::{name}" for name in names),
        pass_to_pass=OLD_IDS,
        limits=RecordLimits(time_s=60),
        folder=folder,
    )


def patch_of(path: str, old: str, new: str) -> str:
    """A unified diff; an empty old text means that there was no such file."""
    lines = (old.splitlines(keepends=True), new.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, f"a/{path}" if old else "/dev/null", f"b/{path}"))


def write_records(records: dict[str, SweRecord], folder: Path) -> Path:
    """The records, as a file that `load_records` reads, and the labels beside it."""
    file = folder / "tasks.jsonl"
    rows = [
        {
            "instance_id": record.instance_id,
            "problem_statement": record.problem_statement,
            "snapshot": record.snapshot,
            "patch": record.patch,
            "test_patch": record.test_patch,
            "FAIL_TO_PASS": list(record.fail_to_pass),
            "PASS_TO_PASS": list(record.pass_to_pass),
            "limits": {"time_s": 60},
        }
        for record in records.values()
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = [task.labels for task in TASKS if task.name in records]
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    return file
