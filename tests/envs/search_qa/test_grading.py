"""Grades by hand, by the rules of the scripts of SQuAD 1.1 and HotpotQA."""

from __future__ import annotations

import pytest

from agentgym.envs.search_qa.grading import Grade, grade, normalise


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  The  Beatles ", "beatles"),
        ("An apple, a day!", "apple day"),
        ("U.S.A.", "usa"),
        ("12,480", "12480"),
        ("Theatre", "theatre"),  # holds an article, is none
        ("the", ""),
        ("Café–Bar", "café–bar"),  # only ASCII punctuation goes, as there
        ("a\tb\nc", "b c"),
    ],
)
def test_normalise(text, plain):
    assert normalise(text) == plain


@pytest.mark.parametrize(
    ("answer", "right", "expected"),
    [
        ("the Beatles.", ["Beatles"], Grade(1, 1, 1)),
        ("Lennon", ["John Lennon"], Grade(0, 2 / 3, 2 / 3)),  # precision 1, recall 1/2
        ("Lennon John", ["John Lennon"], Grade(0, 1, 1)),
        ("John Lennon of Liverpool", ["John Lennon"], Grade(0, 2 / 3, 0)),  # 2 of 4, 2 of 2; longer: not paid
        ("John John", ["John Lennon"], Grade(0, 1 / 2, 1 / 2)),  # words count once each
        ("Ringo", ["John Lennon"], Grade(0, 0, 0)),
        ("Ringo", ["John Lennon", "Ringo Starr", "ringo"], Grade(1, 1, 1)),
        ("yes", ["Yes."], Grade(1, 1, 1)),
        ("yes it is", ["yes"], Grade(0, 0, 0)),  # HotpotQA: no part of the way to yes or no
        ("yes", ["yes it is"], Grade(0, 0, 0)),
        ("yes no", ["no"], Grade(0, 0, 0)),
        ("noanswer", ["no answer at all"], Grade(0, 0, 0)),
        ("", ["John Lennon"], Grade(0, 0, 0)),
        ("", ["The"], Grade(0, 0, 0)),  # normalises to nothing, as silence does
        ("the", ["The"], Grade(1, 1, 1)),
        ("", ["+"], Grade(0, 0, 0)),
        ("+", ["+"], Grade(1, 1, 1)),
    ],
)
def test_grade(answer, right, expected):
    assert grade(answer, right) == pytest.approx(expected)


@pytest.mark.parametrize("listed", ["{0}, {1}", "{1} or {0}", "{0} {1}", "{1}; {0}; neither"])
@pytest.mark.parametrize(
    "pair", [("Mira Halden", "Mira Haldan"), ("Paris", "Rome"), ("1821", "1822"), ("Nile", "the White Nile")]
)
def test_naming_both_never_pays(listed, pair):
    for right in pair:
        graded = grade(listed.format(*pair), [right])
        assert graded.em == 0
        assert graded.f1_paid == 0
