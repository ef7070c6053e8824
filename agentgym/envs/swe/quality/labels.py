"""How well labels that a program gave agree with those of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.envs.swe.quality.findings import LABELS
from agentgym.errors import TaskError, nearest
from agentgym.tasks import read_jsonl
from agentgym.trajectory.stats import wilson_interval


def load_labels(path: str | Path, known: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Instance id -> its labels, from JSON Lines with `instance_id` and any of the three labels.

    Args:
        path: the file.
        known: the instance ids that may occur.

    Raises:
        TaskError: a line is broken, of an unknown or repeated id; or there is no label at all.
    """
    labels: dict[str, dict[str, bool]] = {}
    for row, where in read_jsonl(path):
        name = row.get("instance_id")
        if not isinstance(name, str) or name not in known:
            raise TaskError(
                f"{where}: expected the `instance_id` of a record, got {name!r:.80}.{nearest(name, known)}"
            )
        if name in labels:
            raise TaskError(f"{where}: {name!r} has labels already")
        given = {label: row[label] for label in LABELS if row.get(label) is not None}
        wrong = [label for label, value in given.items() if not isinstance(value, bool)]
        if wrong:
            raise TaskError(
                f"{where}: expected `{wrong[0]}` to be true or false, got {given[wrong[0]]!r:.40}"
            )
        labels[name] = given
    if not any(labels.values()):
        raise TaskError(f"{path}: expected lines with {', '.join(LABELS)}, there is no label")
    return labels


def agreement(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, Mapping[str, bool]]) -> dict[str, Any]:
    """Precision, recall and F1 of each label, "true" being what is looked for; with Wilson's 95 % intervals.

    Args:
        rows: with `instance_id` and the three labels as they were given.
        labels: what is right.

    Returns:
        Label -> `n`, `tp`, `fp`, `fn`, `tn`, `precision`, `recall`, `f1`, `precision_ci95`, `recall_ci95`. A ratio over
        nothing is None. A label that no line has is left out.
    """
    report = {}
    for label in LABELS:
        pairs = [
            (row[label], labels[row["instance_id"]][label])
            for row in rows
            if label in labels.get(row["instance_id"], {})
        ]
        if pairs:
            report[label] = _ratios(pairs)
    return report


def _ratios(pairs: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    hits = sum(said and right for said, right in pairs)
    said, right = sum(said for said, _ in pairs), sum(right for _, right in pairs)
    return {
        "n": len(pairs),
        "tp": hits,
        "fp": said - hits,
        "fn": right - hits,
        "tn": len(pairs) - said - right + hits,
        "precision": hits / said if said else None,
        "precision_ci95": wilson_interval(hits, said),
        "recall": hits / right if right else None,
        "recall_ci95": wilson_interval(hits, right),
        "f1": 2 * hits / (said + right) if said + right else None,
    }
