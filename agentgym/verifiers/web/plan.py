"""From a rubric in words to a task: a language model plans the steps once, then the plan is tried.

The plan is made for the task, not for a page, so every page is judged by the same steps. An item whose steps fail on a
page that is known to be good, or hold on a blank one, says nothing and is dropped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.endpoint import Endpoint
from agentgym.errors import TaskError, UnusableAnswer, whole_number
from agentgym.messages import Message
from agentgym.verifiers.web.planning_prompt import prompt_of
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.rubric import Rubric
from agentgym.verifiers.web.score import passed_items
from agentgym.verifiers.web.task import Item
from agentgym.verifiers.web.trace import Trace

BLANK_PAGE = {"index.html": b"<!doctype html><html lang=en><title></title><body></body></html>"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A task as planned.

    Attributes:
        task: a JSON object of the task format.
        dropped: items of the rubric that it lacks, each with the reason.
        faults: what was wrong with the model's last answer and left out; empty where nothing was.
    """

    task: Mapping[str, Any]
    dropped: Mapping[str, str]
    faults: tuple[str, ...] = ()


def plan(rubric: Rubric, endpoint: Endpoint, *, tries: int = 3) -> Plan:
    """Ask a model for the steps of all items at once.

    What is wrong with an answer is told to the model, which may answer again. What is still wrong in its last answer
    is left out; items that no assert decides then are dropped.

    Args:
        rubric: in words.
        endpoint: of the model.
        tries: how often the model may answer.

    Raises:
        TaskError: the rubric has no item that steps could decide.
        UnusableAnswer: nothing in the answers could be used.
        InfrastructureError: the endpoint gave none.
    """
    whole_number("tries", tries, least=1)
    items = rubric.judged_by("steps")
    if not items:
        raise TaskError(
            f"the rubric {rubric.id!r} has no item with judge: steps, so there is nothing to plan"
        )
    messages = list(prompt_of(rubric))
    for _ in range(tries):
        answer = endpoint.json(messages, {"scenarios": list, "requires": dict}, temperature=0)
        scenarios, requires, faults = _usable(rubric, answer)
        if not faults:
            break
        told = "These places are wrong:\n" + "\n".join(f"- {fault}" for fault in faults)
        messages += [
            Message("assistant", json.dumps(answer)),
            Message("user", told + "\nAnswer again with the whole plan."),
        ]
    if not scenarios:
        raise UnusableAnswer(f"{endpoint.model}: no scenario of its plan can be used; {faults[0]}")
    named = _asserted(scenarios)
    dropped = {item.id: "the plan has no assert for it" for item in items if item.id not in named}
    task = _task_of(rubric, scenarios, requires, {"model": endpoint.model})
    return Plan(_without(task, dropped), dropped, tuple(faults))


def reviewed(drawn: Plan, *, blank: Trace, good: Trace | None = None) -> Plan:
    """A plan without the items that say nothing: those that fail on the good page or pass on the blank one.

    Args:
        drawn: the plan.
        blank: of its task on a page without content.
        good: of its task on a page that does all that is asked for, where there is one.

    Raises:
        TaskError: no item is left.
    """
    task = parse_task(drawn.task)
    dropped: dict[str, str] = {}
    while True:
        kept = [item for item in task.items if item.id not in dropped]
        known = {item.id for item in kept}
        gated = tuple(
            dataclasses.replace(item, requires=tuple(each for each in item.requires if each in known))
            for item in kept
        )
        found: dict[str, str] = {}
        if good is not None:
            # Without what they require: one wrong item shall not take others with it.
            alone = tuple(dataclasses.replace(item, requires=()) for item in kept)
            on_good = passed_items(dataclasses.replace(task, items=alone), good.held())
            found |= {id: "it fails on the good page" for id, passed in on_good.items() if not passed}
        on_blank = passed_items(dataclasses.replace(task, items=gated), blank.held())
        found |= {id: "it passes on the blank page" for id, passed in on_blank.items() if passed}
        if not found:
            break
        dropped |= found  # what required one of them may pass on the blank page now
    told = {"reviewed": ["blank"] if good is None else ["good", "blank"]}
    cleaned = _without(drawn.task, dropped)
    noted = {**cleaned, "data": {"plan": {**cleaned["data"]["plan"], **told}}}
    return Plan(noted, {**drawn.dropped, **dropped}, drawn.faults)


def _usable(
    rubric: Rubric, answer: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, list[str]], list[str]]:
    """What of an answer can be used, and what is wrong with the rest."""
    known = [item.id for item in rubric.judged_by("steps")]
    faults: list[str] = []
    scenarios: list[dict[str, Any]] = []
    for number, scenario in enumerate(answer["scenarios"]):
        try:
            parse_task(_task_of(rubric, [scenario], {}, {}))
            scenarios.append(scenario)
        except TaskError as error:
            faults.append(str(error).replace("scenarios[0]", f"scenarios[{number}]", 1))
    requires: dict[str, list[str]] = {}
    for item, needed in answer["requires"].items():
        trial = {**requires, item: needed}
        try:
            if not isinstance(needed, list) or item not in known:
                raise TaskError(f"expected an item with a list of items, got {item!r}: {needed!r:.60}")
            parse_task(_task_of(rubric, scenarios or [_NOTHING], trial, {}))
            requires = trial
        except TaskError as error:
            faults.append(f"requires: {error}")
    if not answer["scenarios"]:
        faults.append("scenarios: expected at least one")
    named = _asserted(scenarios)
    faults += [f"no assert names the item {id}" for id in known if id not in named]
    return scenarios, requires, faults


def _asserted(scenarios: Sequence[Mapping[str, Any]]) -> set[str]:
    return {step["item"] for scenario in scenarios for step in scenario["steps"] if step["op"] == "assert"}


_NOTHING = {"name": "nothing", "steps": [{"op": "goto"}]}


def _task_of(
    rubric: Rubric,
    scenarios: Sequence[Mapping[str, Any]],
    requires: Mapping[str, Sequence[str]],
    told: Mapping[str, Any],
) -> dict[str, Any]:
    def row(item: Item) -> dict[str, Any]:
        return {"id": item.id, "category": item.category, "weight": item.weight, "text": item.text}

    items = [
        {**row(item), **({"requires": list(requires[item.id])} if requires.get(item.id) else {})}
        for item in rubric.judged_by("steps")
    ]
    llm_items = [row(item) for item in rubric.judged_by("llm")]
    return {
        "id": rubric.id,
        "prompt": rubric.prompt,
        "viewport": list(rubric.viewport),
        "items": items,
        **({"llm_items": llm_items} if llm_items else {}),
        "scenarios": list(scenarios),
        "data": {"plan": dict(told)},
    }


def _without(task: Mapping[str, Any], dropped: Mapping[str, str]) -> dict[str, Any]:
    """A task's JSON without some items, their asserts, and scenarios that decide nothing any more."""
    items = []
    for item in task["items"]:
        if item["id"] not in dropped:
            needs = [each for each in item.get("requires", ()) if each not in dropped]
            bare = {name: value for name, value in item.items() if name != "requires"}
            items.append({**bare, "requires": needs} if needs else bare)
    if not items:
        reasons = "; ".join(f"{id}: {why}" for id, why in dropped.items())
        raise TaskError(f"no item of the plan for {task['id']!r} is left: {reasons}")
    scenarios = []
    for scenario in task["scenarios"]:
        steps = [step for step in scenario["steps"] if step.get("item") not in dropped]
        if any(step["op"] == "assert" for step in steps):
            scenarios.append({**scenario, "steps": steps})
    earlier = task["data"]["plan"].get("dropped", {})
    told = {**task["data"]["plan"], "dropped": {**earlier, **dropped}}
    return {**task, "items": items, "scenarios": scenarios, "data": {"plan": told}}
