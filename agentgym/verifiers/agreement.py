"""How well scorers agree: with the truth, with each other, and with what should not matter, such as length.

All functions are about scores of candidates by task: ``scores[j][k]`` is what candidate k of task j got. Candidates of
different tasks are never compared, since some tasks are easier than others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentgym.errors import MissingDependency, UsageError, whole_number

ByTask: TypeAlias = Sequence[Sequence[float]]
_Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's tau-b, averaged over tasks.

    Attributes:
        tau: the mean, in [-1, 1]; None where no task allows one.
        tasks: how many it is over.
        skipped: how many tasks have the same value for every candidate on either side, so that there is no order.
    """

    tau: float | None
    tasks: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What choosing the best of n by a scorer gives.

    Attributes:
        accuracy: share of tasks in which the candidate with the highest score is one of the truly best. Of candidates
            that tie for the highest score, each counts by its share.
        regret: what the truth of the best candidate exceeds that of the chosen one by, mean over tasks; ties as above.
        random: the regret of choosing blindly.
        tasks: how many.
    """

    accuracy: float
    regret: float
    random: float
    tasks: int


@dataclass(frozen=True, slots=True)
class LengthCheck:
    """Whether a scorer pays for length.

    Attributes:
        pooled: Spearman's correlation of score and length over all candidates; mixes how hard tasks are with the rest.
        within: the same by ranks within each task. None where nothing varies.
        beyond: as `within`, of the part of the score that the trusted one does not explain; None without a trusted one.
        p_value: of `beyond`, or of `within` where there is no trusted score: the share of shuffles within tasks that
            correlate as much or more.
        alarm: that correlation is at least `ALARM` and the p-value at most `SIGNIFICANCE`.
        pages: how many candidates of tasks with at least two.
    """

    pooled: float | None
    within: float | None
    beyond: float | None
    p_value: float | None
    alarm: bool
    pages: int


ALARM = 0.3
SIGNIFICANCE = 0.01
_SHUFFLES = 2000


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two scorers on the same candidates; None where either has one value for all.

    Raises:
        UsageError: they are not about equally many candidates, or a score is not finite.
        MissingDependency: scipy is not installed.
    """
    a, b = _pair(first, second)
    if _constant(a) or _constant(b):
        return None
    return float(_stats().kendalltau(a, b).statistic)


def rank_agreement(truth: ByTask, scores: ByTask) -> RankAgreement:
    """Kendall's tau-b per task, averaged; tasks without an order on either side are left out and counted.

    Raises:
        UsageError, MissingDependency: as `kendall_tau`.
    """
    taus = [kendall_tau(a, b) for a, b in _tasks(truth, scores)]
    there = [tau for tau in taus if tau is not None]
    return RankAgreement(_mean(there), len(there), len(taus) - len(there))


def best_of_n(truth: ByTask, scores: ByTask) -> Selection:
    """How good the candidates are that a scorer would choose.

    Args:
        truth: how good they are.
        scores: what the scorer says.

    Raises:
        UsageError: there is no task, a task has no candidate, or the two do not fit together.
    """
    hits, regrets, blind = [], [], []
    for good, said in _tasks(truth, scores):
        a, b = _pair(good, said)
        chosen = a[b == b.max()]
        hits.append(float(np.mean(chosen == a.max())))
        regrets.append(float(a.max() - chosen.mean()))
        blind.append(float(a.max() - a.mean()))
    return Selection(float(np.mean(hits)), float(np.mean(regrets)), float(np.mean(blind)), len(hits))


def length_check(
    scores: ByTask, lengths: ByTask, *, trusted: ByTask | None = None, seed: int = 0
) -> LengthCheck:
    """Whether longer candidates get higher scores.

    Good work is often longer than none, so a correlation alone proves nothing. With a score that is trusted, what it
    explains is taken out first (by ranks within each task, linearly).

    Args:
        scores: of the scorer that is looked at.
        lengths: in any unit; only their order counts.
        trusted: what the candidates are worth.
        seed: of the shuffles that give the p-value.

    Raises:
        UsageError: the three do not fit together, or a value is not finite.
        MissingDependency: scipy is not installed.
    """
    whole_number("seed", seed, least=0)
    pairs = [_pair(a, b) for a, b in _tasks(scores, lengths)]
    worth = [a for a, _ in pairs] if trusted is None else [_pair(t, s)[0] for t, s in _tasks(trusted, scores)]
    kept = [number for number, (a, _) in enumerate(pairs) if len(a) > 1]
    if not kept:
        return LengthCheck(None, None, None, None, alarm=False, pages=0)
    said = [_centred_ranks(pairs[number][0]) for number in kept]
    long = [_centred_ranks(pairs[number][1]) for number in kept]
    within = _correlation(np.concatenate(said), np.concatenate(long))
    beyond = None
    if trusted is not None:
        known = np.concatenate([_centred_ranks(worth[number]) for number in kept])
        rest = _residual(np.concatenate(said), known)
        said = np.split(rest, np.cumsum([len(part) for part in said])[:-1])
        beyond = _correlation(rest, np.concatenate(long))
    tested = within if trusted is None else beyond
    p_value = None if tested is None else _p_value(said, long, tested, seed)
    alarm = tested is not None and p_value is not None and tested >= ALARM and p_value <= SIGNIFICANCE
    pooled = [np.concatenate(part) for part in zip(*(pairs[number] for number in kept), strict=True)]
    return LengthCheck(
        _correlation(_ranks(pooled[0]), _ranks(pooled[1])),
        within,
        beyond,
        p_value,
        alarm,
        sum(map(len, said)),
    )


def _tasks(first: ByTask, second: ByTask) -> Iterable[tuple[Sequence[float], Sequence[float]]]:
    if not first or len(first) != len(second):
        raise UsageError(
            f"expected scores of the same tasks, at least one; got {len(first)} and {len(second)} tasks"
        )
    return zip(first, second, strict=True)


def _pair(first: Sequence[float], second: Sequence[float]) -> tuple[_Array, _Array]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or not a.size:
        raise UsageError(
            f"expected scores of the same candidates, at least one; got shapes {a.shape} and {b.shape}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise UsageError("expected finite scores, got NaN or infinity")
    return a, b


def _stats() -> ModuleType:
    try:
        import scipy.stats
    except ImportError:
        raise MissingDependency(
            "rank correlations need scipy: pip install 'agentgym-suite[report]'"
        ) from None
    module: ModuleType = scipy.stats
    return module


def _constant(values: _Array) -> bool:
    return bool((values == values[0]).all())


def _ranks(values: _Array) -> _Array:
    ranks: _Array = _stats().rankdata(values)
    return ranks


def _centred_ranks(values: _Array) -> _Array:
    """Ranks within a task, in (-1/2, 1/2), so that tasks with many candidates do not outweigh the others."""
    ranks: _Array = (_ranks(values) - (len(values) + 1) / 2) / len(values)
    return ranks


def _correlation(a: _Array, b: _Array) -> float | None:
    a, b = a - a.mean(), b - b.mean()
    spread = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / spread if spread > 1e-12 else None


def _residual(values: _Array, known: _Array) -> _Array:
    """`values` without what a line through `known` explains; both have mean 0 in every task."""
    spread = float(known @ known)
    rest: _Array = values - known * (float(values @ known) / spread if spread else 0.0)
    return rest


def _p_value(said: Sequence[_Array], long: Sequence[_Array], found: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    fixed = np.concatenate(long)
    more = 0
    for _ in range(_SHUFFLES):
        shuffled = _correlation(np.concatenate([rng.permutation(part) for part in said]), fixed)
        more += shuffled is not None and shuffled >= found - 1e-12
    return (more + 1) / (_SHUFFLES + 1)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
