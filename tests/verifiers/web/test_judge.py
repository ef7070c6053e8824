"""From traces to verdicts."""

from __future__ import annotations

import json

from agentgym.verifiers.web.judge import judge, verdict_of
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.trace import Event, Trace

TASK = parse_task(
    {
        "id": "t",
        "prompt": "",
        "items": [
            {"id": "F1", "category": "functionality", "weight": 3, "text": ""},
            {"id": "F2", "category": "functionality", "weight": 1, "text": ""},
            {"id": "V1", "category": "visual", "weight": 2, "text": ""},
        ],
        "scenarios": [
            {
                "name": "s",
                "steps": [
                    {"op": "goto"},
                    {"op": "assert", "item": "F1", "kind": "title"},
                    {"op": "assert", "item": "F2", "kind": "title"},
                    {"op": "assert", "item": "V1", "kind": "title"},
                ],
            }
        ],
    }
)


def trace_of(*held: bool, **fields: object) -> Trace:
    events = [Event(0, 0, "goto", ok=True), *(Event(0, n, "assert", ok=ok) for n, ok in enumerate(held, 1))]
    return Trace("t", tuple(events), **fields)  # type: ignore[arg-type]


def test_shares_and_score() -> None:
    verdict = judge(TASK, trace_of(False, True, True, seconds=1.234))
    # F = 1/4 of 4, S = 1 of 2: raw 3/6; score (1 + 2 * 0.25/0.5) / 6
    assert (verdict.raw, verdict.score) == (0.5, 0.333)
    assert (verdict.functional, verdict.other) == (0.25, 1.0)
    assert verdict.categories == {"functionality": 0.25, "visual": 1.0}
    assert verdict.items == {"F1": False, "F2": True, "V1": True}


def test_json_has_the_fields_of_the_format_in_item_order() -> None:
    data = judge(
        TASK, trace_of(True, True, False, hung=1, blocked=("a",), errors=("e",), seconds=1.26)
    ).to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert list(data["items"]) == ["F1", "F2", "V1"]
    assert data["flags"] == {
        "hung": 1,
        "deadline": False,
        "popups": 0,
        "dialogs": 0,
        "blocked": ["a"],
        "errors": ["e"],
    }
    assert (data["task"], data["seconds"]) == ("t", 1.3)


def test_the_verdict_environments_give() -> None:
    part = verdict_of(judge(TASK, trace_of(True, True, False)))
    assert (part.score, part.passed) == (0.667, False)
    assert part.components == {"raw": 0.667, "functional": 1, "other": 0, "functionality": 1, "visual": 0}
    assert part.evidence == {"missed": "V1"}
    whole = verdict_of(judge(TASK, trace_of(True, True, True)))
    assert (whole.score, whole.passed, whole.evidence) == (1.0, True, {})
    slow = verdict_of(judge(TASK, trace_of(True, True, False, deadline=True, seconds=76.2)))
    assert slow == part
    assert slow.evidence == {
        "missed": "V1",
        "deadline": "the time for the page ran out (76 s); what was left did not count",
    }
