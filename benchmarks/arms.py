"""What studies that train have in common: trainers run in this process, and means over seeds with their intervals."""

from __future__ import annotations

import importlib
import io
import math
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from baselines.logs import METRICS, read_lines

__all__ = ["mean_and_half", "shown", "train"]


def train(trainer: str, out: Path, *words: object) -> list[dict[str, Any]]:
    """Run ``python -m baselines.TRAINER`` in this process; a run that is there already goes on where it stopped.

    Args:
        trainer: name of the module.
        out: folder of the run.
        *words: flags; a text is split at blanks.

    Returns:
        The lines of its metrics.
    """
    module = importlib.import_module(f"baselines.{trainer}")
    flags = [part for word in words for part in str(word).split()]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that many replies were cut off, and the like
        module.main([*flags, "--out", str(out)])
    return read_lines(out / METRICS)


def mean_and_half(numbers: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % t interval; NaN for a single number."""
    from scipy import stats

    array = np.asarray(numbers, dtype=np.float64)
    if len(array) < 2:
        return float(array.mean()), math.nan
    half = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return float(array.mean()), float(half)


def shown(numbers: Sequence[float]) -> str:
    """The same as a cell of a table."""
    return "{:.2f}±{:.2f}".format(*mean_and_half(numbers))
