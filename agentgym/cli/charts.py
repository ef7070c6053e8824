"""Small SVG charts for the report page, as text: they take their colors from the page, so light and dark both work.

Each function returns one ``<svg>`` with a ``<title>`` for every mark, which browsers show on hover.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_LABELS = 150  # width of the column of row labels
_ROW = 30

TENTHS = tuple(step / 10 for step in range(11))  # bins of a reward in [0, 1]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its confidence interval; all None where there was nothing to average."""

    label: str
    value: float | None
    low: float | None
    high: float | None


def intervals(rows: Sequence[Interval], *, width: int = 570) -> str:
    """One row per run: a dot at the value, a line over the interval."""
    known = [x for row in rows for x in (row.value, row.low, row.high) if x is not None]
    ticks = _ticks(min([0.0, *known]), max([1.0, *known]), 5)
    scale = _Scale(ticks[0], ticks[-1], _LABELS, width - 70)
    height = _ROW * len(rows) + 28
    parts = [_axis(scale, ticks, 4, height - 22)]
    for index, row in enumerate(rows):
        y = _ROW * index + _ROW / 2 + 4
        parts.append(_row_label(row.label, y))
        if row.value is None:
            parts.append(
                f'<text class="dim" x="{scale(ticks[0]) + 8:.1f}" y="{y + 4:.1f}">no valid episode</text>'
            )
            continue
        low, high = (row.value if x is None else x for x in (row.low, row.high))
        hint = f"{row.label}: {row.value:.3f}, 95% interval {low:.3f} to {high:.3f}"
        parts.append(
            f'<g class="run-{index % 8}"><title>{escape(hint)}</title>'
            f'<line class="whisker" x1="{scale(low):.1f}" x2="{scale(high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle class="fill" cx="{scale(row.value):.1f}" cy="{y:.1f}" r="5.5"/></g>'
            f'<text class="value" x="{width - 58}" y="{y + 4:.1f}">{row.value:.3f}</text>'
        )
    return _svg(width, height, parts, "mean reward of each run with its 95% interval")


def stacked(rows: Mapping[str, Mapping[str, int]], *, width: int = 570) -> str:
    """One row per run: a bar of full width divided in proportion to the counts; keys become classes ``part-KEY``."""
    height = _ROW * len(rows) + 6
    scale_width = width - _LABELS - 70
    parts = []
    for index, (label, counts) in enumerate(rows.items()):
        y = _ROW * index + 8
        total = sum(counts.values())
        parts.append(_row_label(label, y + 9))
        x = float(_LABELS)
        for key, count in counts.items():
            if not count:
                continue
            share = count / total
            words = key.replace("_", " ")
            parts.append(
                f'<g class="part-{key}"><title>{escape(label)}: {count} of {total} {words}</title>'
                f'<rect class="fill" x="{x:.1f}" y="{y}" height="18" rx="2"'
                f' width="{max(share * scale_width - 1.5, 1):.1f}"/>'
            )
            if share * scale_width > 34:
                parts.append(
                    f'<text class="inside" x="{x + share * scale_width / 2:.1f}" y="{y + 13}">{count}</text>'
                )
            parts.append("</g>")
            x += share * scale_width
        parts.append(f'<text class="value" x="{width - 58}" y="{y + 13}">n = {total}</text>')
    return _svg(width, height, parts, "outcomes of each run")


def histogram(
    series: Mapping[str, Sequence[float]],
    *,
    unit: str,
    edges: Sequence[float] | None = None,
    width: int = 372,
    height: int = 190,
) -> str:
    """Share of episodes in each bin, one bar per run and bin; all runs share the bins.

    Args:
        series: the values of each run's episodes.
        unit: what the values count.
        edges: of the bins; by default chosen by `bins`.
        width: in pixels.
        height: in pixels.
    """
    known = [x for values in series.values() for x in values]
    edges = edges or bins(known)
    shares = {name: _shares(values, edges) for name, values in series.items()}
    top = max(max(values, default=0.0) for values in shares.values()) or 1.0
    left, right, bottom, ceiling = 38, width - 14, height - 34, 10
    across = _Scale(edges[0], edges[-1], left, right)
    up = _Scale(0.0, top, bottom, ceiling)
    parts = []
    for tick in _ticks(0.0, top, 3):
        if tick <= top * 1.001:
            parts.append(
                f'<line class="grid" x1="{left}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
                f'<text class="tick end" x="{left - 6}" y="{up(tick) + 4:.1f}">{tick:.0%}</text>'
            )
    # Bins one wide hold one whole number each: it is written under the middle of its bars.
    whole = all(x == int(x) for x in known) and edges[1] - edges[0] == 1
    if whole:
        every = max(1, math.ceil((len(edges) - 1) / 8))
        marks = [(low + 0.5, f"{low + 0.5:.0f}") for low in edges[:-1:every]]
    else:
        marks = [
            (x, number(x)) for x in _ticks(edges[0], edges[-1], 4) if edges[0] <= x <= edges[-1] * 1.0001
        ]
    parts += [f'<text class="tick" x="{across(x):.1f}" y="{bottom + 15}">{text}</text>' for x, text in marks]
    for position, (low, high) in enumerate(itertools.pairwise(edges)):
        slot = across(high) - across(low)
        bar = max((slot * 0.84) / len(series), 1.0)
        for index, (name, values) in enumerate(shares.items()):
            if not values or not values[position]:
                continue
            x = across(low) + slot * 0.08 + bar * index
            y = up(values[position])
            what = f"{low + 0.5:.0f}" if whole else f"{number(low)} to {number(high)}"
            hint = f"{name}: {values[position]:.0%} of episodes at {what} {unit}"
            parts.append(
                f'<g class="run-{index % 8}"><title>{escape(hint)}</title>'
                f'<rect class="fill" x="{x:.1f}" y="{y:.1f}" rx="1.5"'
                f' width="{bar * 0.94:.1f}" height="{bottom - y:.1f}"/></g>'
            )
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick" x="{(left + width) / 2:.1f}" y="{height - 3}">{escape(unit)}</text>')
    return _svg(width, height, parts, f"distribution of {unit}")


def bins(values: Sequence[float]) -> list[float]:
    """Edges: around each whole number where values are a few whole numbers, else about twelve round steps."""
    low, high = min(values), max(values)
    if all(value == int(value) for value in values) and high - low <= 24:
        return [low - 0.5 + step for step in range(int(high - low) + 2)]
    ticks = _ticks(low, high, 10)
    return ticks if len(ticks) > 1 else [low - 0.5, low + 0.5]


def number(value: float) -> str:
    """A number as people write it on an axis: 0.25, 12, 3.4k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round steps (1, 2 or 5 times a power of ten) that cover the range, about `count` of them."""
    if high <= low:
        high = low + 1.0
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if raw <= factor * power * 1.0001)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts = [0] * (len(edges) - 1)
    for value in values:
        index = next((i for i in range(len(counts)) if value < edges[i + 1]), len(counts) - 1)
        counts[index] += 1
    return [count / len(values) for count in counts] if values else []


def _axis(scale: _Scale, ticks: Sequence[float], top: float, bottom: float) -> str:
    parts = []
    for tick in ticks:
        x = f"{scale(tick):.1f}"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}">{number(tick)}</text>')
    return "".join(parts)


def _row_label(label: str, y: float) -> str:
    shown = label if len(label) <= 21 else "…" + label[-20:]
    place = f'x="{_LABELS - 14}" y="{y + 4:.1f}"'
    return f'<text class="label" {place}>{escape(shown)}<title>{escape(label)}</title></text>'


def _svg(width: int, height: float, parts: Sequence[str], what: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(what)}">{"".join(parts)}</svg>'
    )
