"""Agreement of scorers, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agentgym.errors import UsageError

pytest.importorskip("scipy")
from agentgym.verifiers.agreement import best_of_n, kendall_tau, length_check, rank_agreement


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        # pairs: 5 agree, 1 does not
        ([1, 2, 3, 4], [1, 3, 2, 4], 4 / 6),
        # one tie in the second: 5 agree of 6 pairs, 5 of them untied there: 5 / sqrt(6 * 5)
        ([1, 2, 3, 4], [1, 2, 2, 4], 5 / math.sqrt(30)),
        ([1, 2, 3], [5, 5, 5], None),
        ([7, 7], [1, 2], None),
        ([1], [1], None),
    ],
)
def test_kendall_tau(first: list[float], second: list[float], tau: float | None) -> None:
    found = kendall_tau(first, second)
    assert found is None if tau is None else found == pytest.approx(tau)


def test_tasks_without_an_order_are_counted_and_left_out() -> None:
    found = rank_agreement([[1, 2], [1, 2], [0, 0]], [[1, 2], [2, 1], [1, 2]])
    assert (found.tau, found.tasks, found.skipped) == (0.0, 2, 1)
    nothing = rank_agreement([[0, 0]], [[1, 2]])
    assert (nothing.tau, nothing.tasks, nothing.skipped) == (None, 0, 1)


def test_the_best_of_n() -> None:
    truth = [[1.0, 0.5, 0.0], [0.2, 0.8, 0.8]]
    found = best_of_n(truth, [[3, 1, 2], [9, 1, 2]])
    # the first is right; the second takes 0.2 where 0.8 was to be had
    assert found.accuracy == 0.5
    assert found.regret == pytest.approx(0.3)
    # blind: 1 - 0.5 and 0.8 - 0.6
    assert found.random == pytest.approx(0.35)
    assert found.tasks == 2


def test_of_tied_candidates_each_counts_by_its_share() -> None:
    found = best_of_n([[1.0, 0.5, 0.0]], [[7, 7, 1]])
    assert found.accuracy == 0.5
    assert found.regret == pytest.approx(0.25)
    either = best_of_n([[1.0, 1.0, 0.0]], [[1, 2, 0]])
    assert (either.accuracy, either.regret) == (1.0, 0.0)


def test_length_that_pays_is_an_alarm() -> None:
    lengths = [[float(n) for n in range(10)], [float(n * n) for n in range(10)]]
    found = length_check(lengths, lengths)
    assert found.within == pytest.approx(1.0)
    assert found.alarm
    assert found.p_value == pytest.approx(1 / 2001)
    assert found.pages == 20


def test_length_that_does_not_pay_is_none() -> None:
    rng = np.random.default_rng(1)
    found = length_check(rng.random((4, 10)).tolist(), rng.random((4, 10)).tolist())
    assert found.within is not None
    assert abs(found.within) < 0.3
    assert not found.alarm


def test_a_weak_correlation_is_no_alarm_however_certain() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.random(1500)
    scores = 0.2 * lengths + rng.random(1500)
    found = length_check([scores.tolist()], [lengths.tolist()])
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert found.within is not None
    assert 0.1 < found.within < 0.3
    assert not found.alarm


def test_a_task_with_longer_and_better_pages_is_no_correlation_within() -> None:
    # Within each task the longer page is the worse one; pooled, long pages come from the easy task.
    found = length_check([[0.2, 0.1], [0.9, 0.8]], [[1, 2], [10, 20]])
    assert found.within == pytest.approx(-1.0)
    assert found.pooled == pytest.approx(0.6)  # ranks 2 1 4 3 and 1 2 3 4


def test_what_the_trusted_score_explains_is_no_alarm() -> None:
    worth = [[float(n) for n in range(10)], [float(n) for n in range(10)]]
    lengths = [[2 * n for n in row] for row in worth]
    assert length_check(worth, lengths).alarm
    explained = length_check(worth, lengths, trusted=worth)
    assert not explained.alarm
    assert explained.beyond is None  # nothing is left over
    nothing = [[0.0] * 10] * 2
    unexplained = length_check(worth, lengths, trusted=nothing)
    assert unexplained.beyond == pytest.approx(1.0)
    assert unexplained.alarm


def test_single_pages_say_nothing() -> None:
    found = length_check([[0.5], [0.1]], [[3], [9]])
    assert (found.pooled, found.within, found.p_value, found.pages) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("truth", "scores", "said"),
    [
        ([], [], "at least one"),
        ([[1]], [[1], [2]], "1 and 2 tasks"),
        ([[1, 2]], [[1]], "same candidates"),
        ([[]], [[]], "at least one"),
        ([[math.nan]], [[1]], "finite"),
    ],
)
def test_what_does_not_fit_is_refused(truth: list[list[float]], scores: list[list[float]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        best_of_n(truth, scores)
