"""Three small tasks that come with the package: one tiny library, three defects, tests for each.

They exist so that `gymnasium.make("agentgym/SWE-v0")` works without further files; for anything serious, build tasks
from real packages.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from agentgym.envs.swe.records import SweRecord, write_atomic
from agentgym.envs.swe.repo import pack_tree, tree_diff
from agentgym.envs.swe.runtime.pythonenv import swe_cache

_LEDGER = '''\
"""Amounts of money in integer cents, and accounts that hold them."""

from __future__ import annotations


def parse(text: str) -> int:
    """Cents from a text such as "12.30", "-5" or "1,250.00"."""
    text = text.strip().replace(",", "")
    negative = text.startswith("-")
    whole, _, fraction = text.lstrip("+-").partition(".")
    if not whole.isdigit() or (fraction and not fraction.isdigit()) or len(fraction) > 2:
        raise ValueError(f"not an amount: {text!r}")
    cents = int(whole) * 100 + int(fraction.ljust(2, "0") or 0)
    return -cents if negative else cents


def show(cents: int) -> str:
    """The reverse of parse, without separators."""
    sign = "-" if cents < 0 else ""
    whole, fraction = divmod(abs(cents), 100)
    return f"{sign}{whole}.{fraction:02}"


def split(cents: int, shares: int) -> list[int]:
    """Divide an amount into shares that differ by at most one cent; earlier shares get the odd cents."""
    if shares < 1:
        raise ValueError("expected at least one share")
    each, odd = divmod(cents, shares)
    return [each + (1 if number < odd else 0) for number in range(shares)]


class Account:
    """A balance that may not fall below its limit."""

    def __init__(self, limit: int = 0) -> None:
        self.balance = 0
        self.limit = limit
        self.entries: list[int] = []

    def deposit(self, cents: int) -> None:
        if cents <= 0:
            raise ValueError("expected a positive amount")
        self._post(cents)

    def withdraw(self, cents: int) -> None:
        if cents <= 0:
            raise ValueError("expected a positive amount")
        if self.balance - cents < self.limit:
            raise ValueError("the balance would fall below the limit")
        self._post(-cents)

    def undo(self) -> int:
        """Take back the last entry and return it."""
        if not self.entries:
            raise ValueError("nothing to undo")
        last = self.entries.pop()
        self.balance -= last
        return last

    def _post(self, cents: int) -> None:
        self.balance += cents
        self.entries.append(cents)
'''

_VISIBLE_TESTS = """\
import pytest

from ledger import Account, parse, show


def test_parse_plain():
    assert parse("12.30") == 1230


def test_show():
    assert show(1230) == "12.30"


def test_deposit():
    account = Account()
    account.deposit(500)
    assert account.balance == 500


def test_deposit_refuses_nothing():
    with pytest.raises(ValueError):
        Account().deposit(0)
"""

_HIDDEN_TESTS = """\
import pytest

from ledger import Account, parse, show, split


@pytest.mark.parametrize(
    ("text", "cents"),
    [("5", 500), ("-5", -500), ("0.05", 5), ("0.5", 50), ("-0.5", -50), ("1,250.00", 125000), (" 7.1 ", 710)],
)
def test_parse(text, cents):
    assert parse(text) == cents


@pytest.mark.parametrize("text", ["", "a", "1.234", "1.x", "--1.-1", "."])
def test_parse_refuses(text):
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize("cents", [0, 5, 50, 500, -5, -50, 123456])
def test_round_trip(cents):
    assert parse(show(cents)) == cents


@pytest.mark.parametrize(("cents", "shares"), [(100, 3), (101, 3), (2, 5), (0, 4), (-100, 3), (7, 1)])
def test_split_adds_up(cents, shares):
    parts = split(cents, shares)
    assert sum(parts) == cents
    assert len(parts) == shares
    assert max(parts) - min(parts) <= 1


def test_split_gives_odd_cents_first():
    assert split(101, 3) == [34, 34, 33]


def test_split_refuses_no_shares():
    with pytest.raises(ValueError):
        split(100, 0)


def test_withdraw_to_the_limit():
    account = Account(limit=-100)
    account.withdraw(100)
    assert account.balance == -100
    with pytest.raises(ValueError):
        account.withdraw(1)


def test_undo():
    account = Account()
    account.deposit(500)
    account.withdraw(200)
    assert account.undo() == -200
    assert account.balance == 500
    assert account.entries == [500]


def test_undo_nothing():
    with pytest.raises(ValueError):
        Account().undo()
"""

_SPLIT_CASES = ((100, 3), (101, 3), (2, 5), (0, 4), (-100, 3), (7, 1))
_PARSE_CASES = ("5-500", "-5--500", "0.05-5", "0.5-50", "-0.5--50", "1,250.00-125000", " 7.1 -710")
_PASSING = (
    *(f"tests/test_ledger.py::test_parse[{case}]" for case in _PARSE_CASES),
    *(f"tests/test_ledger.py::test_split_adds_up[{cents}-{shares}]" for cents, shares in _SPLIT_CASES),
    *(
        f"tests/test_ledger.py::test_{name}"
        for name in (
            "split_gives_odd_cents_first",
            "split_refuses_no_shares",
            "withdraw_to_the_limit",
            "undo",
        )
    ),
    "tests/test_ledger.py::test_undo_nothing",
)

# name -> what is said, the text of the source and what the defect makes of it, a test that tells
_DEFECTS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "ledger-fraction": (
        'Amounts with a single digit after the point come out wrong: `ledger.parse("0.5")` should give 50 cents.',
        'int(fraction.ljust(2, "0") or 0)',
        "int(fraction or 0)",
        tuple(f"tests/test_ledger.py::test_parse[{case}]" for case in ("0.5-50", "-0.5--50", " 7.1 -710")),
    ),
    "ledger-limit": (
        "An account with a limit refuses to be drawn down to exactly that limit. With `Account(limit=-100)`,"
        " `withdraw(100)` should leave a balance of -100; only going below the limit is an error.",
        "if self.balance - cents < self.limit:",
        "if self.balance - cents <= self.limit:",
        ("tests/test_ledger.py::test_withdraw_to_the_limit",),
    ),
    "ledger-undo": (
        "After `Account.undo()` the balance does not match the remaining entries: a deposit of 500, a withdrawal of 200"
        " and one `undo()` should leave 500.",
        "self.balance -= last",
        "self.balance += last",
        ("tests/test_ledger.py::test_undo",),
    ),
}


@functools.cache
def builtin_records() -> tuple[SweRecord, ...]:
    """The records; their snapshot is written to the cache folder on first use."""
    with tempfile.TemporaryDirectory(prefix="agentgym-builtin-") as folder:
        clean, broken = Path(folder, "clean"), Path(folder, "broken")
        for tree in (clean, broken):
            (tree / "tests").mkdir(parents=True)
            (tree / "ledger.py").write_text(_LEDGER)
            (tree / "tests" / "test_basics.py").write_text(_VISIBLE_TESTS)
        archive = pack_tree(clean)
        digest = hashlib.sha256(archive).hexdigest()
        place = swe_cache() / "builtin" / f"ledger-{digest[:12]}.tar.gz"
        if not place.is_file():
            write_atomic(place, archive)
        with_tests = Path(folder, "with_tests")
        (with_tests / "tests").mkdir(parents=True)
        (with_tests / "tests" / "test_ledger.py").write_text(_HIDDEN_TESTS)
        (Path(folder, "empty")).mkdir()
        test_patch = tree_diff(Path(folder, "empty"), with_tests)
        records = []
        for name, (statement, right, wrong, failing) in _DEFECTS.items():
            (broken / "ledger.py").write_text(_LEDGER.replace(right, wrong))
            records.append(
                SweRecord(
                    name,
                    problem_statement=statement,
                    repo="ledger",
                    license="MIT",
                    origin="written for agentgym",
                    snapshot=place.name,
                    snapshot_sha256=digest,
                    folder=place.parent,
                    bug_patch=tree_diff(clean, broken),
                    test_patch=test_patch,
                    requirements=("pytest",),
                    fail_to_pass=failing,
                    pass_to_pass=tuple(test for test in _PASSING if test not in failing),
                )
            )
    return tuple(records)
