"""Logs as the runners print them, written by hand; the expected ids are SWE-bench's."""

from __future__ import annotations

import pytest

from agentgym.verifiers.log_parsers import PARSERS

PYTEST = """\
============================= test session starts ==============================
tests/test_a.py::test_one PASSED                                         [ 33%]
tests/test_a.py::TestB::test_two[1-2] FAILED                             [ 66%]
\x1b[31mERROR\x1b[0m tests/test_c.py - ImportError: no module
PASSED tests/test_a.py::test_one
FAILED tests/test_a.py::TestB::test_two[1-2] - assert 1 == 2
SKIPPED [1] tests/test_a.py:3: needs a network
ERROR    app.log:views.py:12 what a test that passes has logged
XFAIL tests/test_a.py::test_known - a bug
PASSED tests/test_a.py::test_words[two words]
========================= 1 failed, 1 passed in 0.12s ==========================
"""
OPTIONS = """\
PASSED tests/test_r.py::test_file[/home/me/data/cert.pem]
PASSED tests/test_r.py::test_url[//example.org/x]
FAILED tests/test_r.py::test_glob[/a/*.py]
"""
DJANGO = """\
test_ok (admin.tests.Case) ... ok
test_bad (admin.tests.Case) ... FAIL
test_later (admin.tests.Case) ... Testing against Django installed in 'x' (0 silenced).
ok
The first line of a docstring ... ok
A docstring ... with dots ... ok
test_skip (admin.tests.Case) ... skipped 'no ... database'
test_known (admin.tests.Case.test_known) ... expected failure
test_prints (admin.tests.Case) ... Applying sites.0002 ... ok

======================================================================
FAIL: test_sub (admin.tests.Case) (i=1)
----------------------------------------------------------------------
ERROR: setUpClass (admin.tests.Other)
Ran 7 tests in 0.010s

FAILED (failures=2)
"""
SYMPY = """\
sympy/core/tests/test_x.py[4]
test_add ok
test_mul F
test_div E
test_known f
                                                      [FAIL]
________________________________________________________________________________
___________________ sympy/core/tests/test_x.py:test_mul ________________________
Traceback (most recent call last):
"""
TAP = "TAP version 13\n1..4\nok 1 - adds\nnot ok 2 - subtracts\nok 3 - later # SKIP no\nnot ok 4 - known # TODO fix\n"
LOGS = {
    "pytest": (
        PYTEST,
        {
            "tests/test_a.py::test_one": "passed",
            "tests/test_a.py::TestB::test_two[1-2]": "failed",
            "tests/test_c.py": "error",
            "tests/test_a.py::test_known": "xfailed",
            "tests/test_a.py::test_words[two": "passed",
        },
    ),
    "pytest_options": (
        OPTIONS,
        {
            "tests/test_r.py::test_file[/cert.pem]": "passed",
            "tests/test_r.py::test_url[//example.org/x]": "passed",
            "tests/test_r.py::test_glob[/a/*.py]": "failed",
        },
    ),
    "matplotlib": ("PASSED t.py::test_b[MouseButton.LEFT]\n", {"t.py::test_b[1]": "passed"}),
    "django": (
        DJANGO,
        {
            "test_ok (admin.tests.Case)": "passed",
            "test_bad (admin.tests.Case)": "failed",
            "test_later (admin.tests.Case)": "passed",
            "The first line of a docstring": "passed",
            "A docstring ... with dots": "passed",
            "test_skip (admin.tests.Case)": "skipped",
            "test_known (admin.tests.Case.test_known)": "xfailed",
            "test_prints (admin.tests.Case)": "passed",
            "test_sub (admin.tests.Case)": "failed",
            "setUpClass (admin.tests.Other)": "error",
        },
    ),
    "sympy": (
        SYMPY,
        {
            "test_add": "passed",
            "test_mul": "failed",
            "test_div": "error",
            "test_known": "xfailed",
            "sympy/core/tests/test_x.py:test_mul": "failed",
        },
    ),
    "tap": (TAP, {"adds": "passed", "subtracts": "failed", "later": "skipped", "known": "xfailed"}),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read(name: str) -> None:
    log, expected = LOGS[name]
    assert PARSERS[name](log) == expected


def test_the_same_grammar_under_every_name_of_it() -> None:
    for name in ("pytest_v2", "seaborn"):
        assert PARSERS[name](PYTEST) == LOGS["pytest"][1]
    assert PARSERS["unittest"](DJANGO) == LOGS["django"][1]


@pytest.mark.parametrize("name", PARSERS)
def test_no_result_is_read_from_other_text(name: str) -> None:
    assert PARSERS[name]("") == {}
    assert PARSERS[name]("Traceback (most recent call last):\n  File 'x'\nSyntaxError: no\n") == {}


@pytest.mark.parametrize("order", [("PASSED", "FAILED"), ("FAILED", "PASSED")])
def test_a_failure_is_not_outweighed_by_a_line_that_says_passed(order: tuple[str, str]) -> None:
    log = "".join(f"{status} tests/test_a.py::test_one\n" for status in order)
    assert PARSERS["pytest"](log) == {"tests/test_a.py::test_one": "failed"}
