"""From a rubric in words to a task: what is asked, what of an answer is taken, what the trial drops."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import TaskError, UnusableAnswer
from agentgym.verifiers.web.plan import Plan, plan, reviewed
from agentgym.verifiers.web.planning_prompt import MEANINGS, prompt_of
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.rubric import load_rubric, parse_rubric
from agentgym.verifiers.web.task import ACTIONS, KINDS, Action
from agentgym.verifiers.web.trace import Event, Trace

pytest.importorskip("openai")
pytest.importorskip("uvicorn")
from agentgym.endpoint import Endpoint

_PLACE = Path(__file__).resolve().parents[2] / "policies" / "fake_server.py"
_SPEC = importlib.util.spec_from_file_location("fake_server", _PLACE)
assert _SPEC is not None
assert _SPEC.loader is not None
fake_server: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fake_server)


def rubric_file() -> dict[str, Any]:
    return {
        "id": "counter",
        "prompt": "A button [data-testid=add] and a number [data-testid=sum].",
        "viewport": [800, 600],
        "rubric": [
            {
                "id": "F1",
                "category": "functionality",
                "weight": 3,
                "text": "Add counts.",
                "expected": "0, then 1",
            },
            {"id": "T1", "category": "technical", "text": "No errors"},
            {"id": "V1", "category": "visual", "text": "It looks calm", "judge": "llm"},
        ],
    }


SUM = {"css": "[data-testid=sum]"}
COUNTS = {
    "name": "counts",
    "steps": [
        {"op": "goto"},
        {"op": "assert", "item": "F1", "kind": "text", "target": SUM, "equals": "0"},
        {"op": "click", "target": {"css": "[data-testid=add]"}},
        {"op": "assert", "item": "F1", "kind": "text", "target": SUM, "equals": "1"},
    ],
}
CLEAN = {"name": "clean", "steps": [{"op": "goto"}, {"op": "assert", "item": "T1", "kind": "no_errors"}]}
WRONG = {"name": "wrong", "steps": [{"op": "goto"}, {"op": "tap", "target": SUM}]}


def answer(*scenarios: Any, **requires: Any) -> dict[str, Any]:
    body: dict[str, Any] = fake_server.completion(json.dumps({"scenarios": scenarios, "requires": requires}))
    return body


@pytest.fixture
def draw() -> Iterator[Callable[..., tuple[Plan, Any]]]:
    """A plan of a model that answers as scripted, and its server."""
    running = []

    def run(*script: Any, tries: int = 3) -> tuple[Plan, Any]:
        server = fake_server.FakeServer(*script)
        context = server.running()
        running.append(context)
        endpoint = Endpoint("planner", base_url=context.__enter__(), max_retries=0)
        return plan(parse_rubric(rubric_file()), endpoint, tries=tries), server

    yield run
    for context in running:
        context.__exit__(None, None, None)


def test_a_rubric_becomes_a_task(draw: Callable[..., tuple[Plan, Any]]) -> None:
    drawn, server = draw(answer(COUNTS, CLEAN, T1=["F1"]))
    task = parse_task(drawn.task)
    assert (task.id, task.viewport, len(task.scenarios)) == ("counter", (800, 600), 2)
    assert [(i.id, i.category, i.weight, i.requires) for i in task.items] == [
        ("F1", "functionality", 3, ()),
        ("T1", "technical", 1, ("F1",)),
    ]
    assert task.items[0].text == "Add counts. Expected: 0, then 1"
    assert [(i.id, i.text) for i in task.llm_items] == [("V1", "It looks calm")]
    assert task.data == {"plan": {"model": "planner", "dropped": {}}}
    assert (dict(drawn.dropped), drawn.faults) == ({}, ())
    assert len(server.requests) == 1  # the whole plan at once


def test_the_model_learns_what_was_wrong(draw: Callable[..., tuple[Plan, Any]]) -> None:
    drawn, server = draw(answer(COUNTS, WRONG), answer(COUNTS, CLEAN))
    assert drawn.faults == ()
    told = server.requests[1]["messages"][-1]["content"]
    assert "scenarios[1].steps[1].op: unknown op 'tap'" in told
    assert "no assert names the item T1" in told
    assert [message["role"] for message in server.requests[1]["messages"]][2:] == ["assistant", "user"]


def test_what_stays_wrong_is_left_out_and_told(draw: Callable[..., tuple[Plan, Any]]) -> None:
    drawn, server = draw(answer(COUNTS, WRONG, T1="F1", X=["F1"]), tries=2)
    assert len(server.requests) == 2
    assert [item["id"] for item in drawn.task["items"]] == ["F1"]
    assert dict(drawn.dropped) == {"T1": "the plan has no assert for it"}
    assert drawn.task["data"]["plan"]["dropped"] == dict(drawn.dropped)
    assert len(drawn.faults) == 4  # the op, two wrong requirements, no assert for T1
    parse_task(drawn.task)


def test_a_circle_of_requirements_is_not_taken(draw: Callable[..., tuple[Plan, Any]]) -> None:
    drawn, _ = draw(answer(COUNTS, CLEAN, T1=["F1"], F1=["T1"]), tries=1)
    assert [item.requires for item in parse_task(drawn.task).items] == [(), ("F1",)]
    assert "circle" in drawn.faults[0]


@pytest.mark.parametrize("body", [answer(), answer(WRONG), answer("main")])
def test_nothing_usable_is_no_plan(draw: Callable[..., tuple[Plan, Any]], body: Any) -> None:
    with pytest.raises(UnusableAnswer, match="no scenario"):
        draw(body, tries=1)


def test_prose_is_no_plan(draw: Callable[..., tuple[Plan, Any]]) -> None:
    with pytest.raises(UnusableAnswer):
        draw(fake_server.completion("First click the button."))


def test_the_prompt_tells_the_whole_format() -> None:
    assert set(MEANINGS) == set(KINDS)
    system, user = prompt_of(parse_rubric(rubric_file()))
    for word in (*ACTIONS, *KINDS):
        assert f"\n- {word}" in system.content
    assert "Add counts" in user.content
    assert "calm" not in user.content  # only a language model judges that


def by_hand(*scenarios: dict[str, Any], **requires: list[str]) -> Plan:
    items = [
        {"id": id, "category": "functionality", "weight": 1, "text": id}
        | ({"requires": requires[id]} if id in requires else {})
        for id in ("A", "B", "C")
    ]
    return Plan(
        {
            "id": "t",
            "prompt": "",
            "viewport": [800, 600],
            "items": items,
            "scenarios": list(scenarios),
            "data": {"plan": {"model": "m", "dropped": {"Z": "earlier"}}},
        },
        {"Z": "earlier"},
    )


def asserting(*items: str) -> dict[str, Any]:
    steps = [{"op": "assert", "item": item, "kind": "count", "target": SUM} for item in items]
    return {"name": "".join(items), "steps": [{"op": "goto"}, *steps]}


def held(task: dict[str, Any] | Any, *items: str) -> Trace:
    """A run in which exactly the asserts for these items hold."""
    events = []
    for s, scenario in enumerate(parse_task(task).scenarios):
        for n, step in enumerate(scenario.steps):
            ok = isinstance(step, Action) or step.item in items
            events.append(Event(s, n, step.op if isinstance(step, Action) else "assert", ok=ok))
    return Trace("t", tuple(events))


def test_what_fails_on_the_good_page_or_passes_on_the_blank_one_is_dropped() -> None:
    drawn = by_hand(asserting("A", "B"), asserting("C"))
    found = reviewed(drawn, good=held(drawn.task, "A", "C"), blank=held(drawn.task, "C"))
    assert dict(found.dropped) == {
        "Z": "earlier",
        "B": "it fails on the good page",
        "C": "it passes on the blank page",
    }
    task = parse_task(found.task)
    assert [item.id for item in task.items] == ["A"]
    assert [scenario.name for scenario in task.scenarios] == ["AB"]  # the other decides nothing
    assert len(task.scenarios[0].steps) == 2
    assert found.task["data"]["plan"] == {
        "model": "m",
        "dropped": dict(found.dropped),
        "reviewed": ["good", "blank"],
    }


def test_a_wrong_item_does_not_take_what_requires_it_along() -> None:
    drawn = by_hand(asserting("A", "B", "C"), B=["A"], C=["A"])
    found = reviewed(drawn, good=held(drawn.task, "B", "C"), blank=held(drawn.task, "C"))
    # A is wrong. C held on the blank page and failed there only for A, so it says nothing by itself.
    assert [(item.id, item.requires) for item in parse_task(found.task).items] == [("B", ())]
    assert found.dropped["C"] == "it passes on the blank page"


def test_what_is_empty_by_nature_passes_by_what_it_requires() -> None:
    drawn = by_hand(asserting("A", "B", "C"), C=["A"])
    found = reviewed(drawn, good=held(drawn.task, "A", "B", "C"), blank=held(drawn.task, "C"))
    assert [item.id for item in parse_task(found.task).items] == ["A", "B", "C"]


def test_without_a_good_page_only_the_blank_one_decides() -> None:
    drawn = by_hand(asserting("A", "B", "C"))
    found = reviewed(drawn, blank=held(drawn.task, "A"))
    assert [item.id for item in parse_task(found.task).items] == ["B", "C"]
    assert found.task["data"]["plan"]["reviewed"] == ["blank"]


def test_nothing_left_is_an_error() -> None:
    drawn = by_hand(asserting("A", "B", "C"))
    with pytest.raises(TaskError, match="no item of the plan"):
        reviewed(drawn, blank=held(drawn.task, "A", "B", "C"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scenarios": []}, "unknown field 'scenarios'"),
        ({"rubric": []}, "at least one item"),
        ({"id": " "}, "filled"),
        ({"rubric": [{"id": "A", "category": "looks", "text": "x"}]}, "unknown category"),
        ({"rubric": [{"id": "A", "category": "ux", "text": "x", "judge": "human"}]}, "unknown judge"),
        ({"rubric": [{"id": "A", "category": "ux", "text": "x", "weight": 0}]}, "above 0"),
        ({"rubric": [{"id": "A", "category": "ux", "text": "x"}] * 2}, "two items"),
        ({"rubric": [{"id": "A", "category": "ux", "text": "x", "steps": []}]}, "unknown field"),
    ],
)
def test_a_rubric_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "rubric.json"
    path.write_text(json.dumps({**rubric_file(), **change}))
    with pytest.raises(TaskError, match=said) as caught:
        load_rubric(path)
    assert str(path) in str(caught.value)


def test_a_rubric_without_steps_needs_no_plan() -> None:
    file = rubric_file()
    file["rubric"] = [{**item, "judge": "llm"} for item in file["rubric"]]
    with pytest.raises(TaskError, match="nothing to plan"):
        plan(parse_rubric(file), Endpoint("m", base_url="http://127.0.0.1:9/v1"))
