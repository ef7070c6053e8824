"""The web task format: what is read, and what is refused with its place named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import TaskError
from agentgym.verifiers.web.reading import load_task, parse_task
from agentgym.verifiers.web.task import Action, Assert, Target, tokens_of, with_tokens

TODO = Path(__file__).resolve().parents[4] / "shared" / "cases" / "web" / "todo" / "task.json"


def small() -> dict[str, Any]:
    """A task that is right; each test breaks a copy."""
    return {
        "id": "small",
        "prompt": "A page with a button.",
        "items": [
            {"id": "F1", "category": "functionality", "weight": 2, "text": "it counts"},
            {"id": "V1", "category": "visual", "text": "it shows", "requires": ["F1"]},
        ],
        "scenarios": [
            {
                "name": "main",
                "steps": [
                    {"op": "goto"},
                    {"op": "click", "target": {"role": "button", "name": "Add", "exact": True}},
                    {"op": "fill", "target": {"css": "input", "within": {"css": "form"}}, "value": "{{t1}}"},
                    {"op": "assert", "item": "F1", "kind": "text", "target": {"css": "p"}, "equals": "1"},
                    {"op": "assert", "item": "V1", "kind": "overflow_x", "max": 0},
                ],
            }
        ],
    }


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


def broken(change: str) -> dict[str, Any]:
    """`small` after one statement about `task`."""
    task = copy.deepcopy(small())
    names = {"task": task, "steps": task["scenarios"][0]["steps"], "items": task["items"], "nested": nested}
    exec(change, names)
    return task


def test_a_task_is_read() -> None:
    task = parse_task(small())
    assert task.viewport == (1280, 800) == task.scenarios[0].viewport
    assert [(item.id, item.weight, item.requires) for item in task.items] == [
        ("F1", 2, ()),
        ("V1", 1, ("F1",)),
    ]
    steps = task.scenarios[0].steps
    assert steps[1] == Action("click", Target(role="button", name="Add", exact=True))
    assert steps[2] == Action("fill", Target(css="input", within=Target(css="form")), value="{{t1}}")
    assert steps[3] == Assert("F1", "text", Target(css="p"), predicates={"equals": "1"})


def test_defaults_of_steps() -> None:
    target = {"css": "a"}
    data = small()
    data["scenarios"][0]["steps"] = [
        {"op": "check", "target": target},
        {"op": "scroll"},
        {"op": "tab_to", "target": target},
    ]
    check, scroll, tab = parse_task(data).scenarios[0].steps
    assert check == Action("check", Target(css="a"), value=True, timeout_ms=2000)
    assert scroll == Action("scroll", dx=0, dy=600)
    assert tab == Action("tab_to", Target(css="a"), max=15)


@pytest.mark.skipif(not TODO.exists(), reason="the shared cases are not here")
def test_the_published_task_is_read() -> None:
    task = load_task(TODO)
    assert (len(task.items), len(task.scenarios), len(task.candidates)) == (12, 3, 10)
    assert task.scenarios[1].viewport == (360, 740)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("task['extra'] = 1", "unknown field 'extra'"),
        ("task['id'] = chr(0xd800)", "id: expected a text that can be encoded, got '\\ud800'"),
        ("task['viewport'] = [1280, True]", "viewport: expected [width, height]"),
        ("task['viewport'] = [10**9, 800]", "viewport: expected [width, height] in px, each from 1 to 10000"),
        ("items[0]['weight'] = 10**400", "items[0].weight: expected a number from -1e+15 to 1e+15, got 1000"),
        ("items[1]['requires'] = [1]", "items[1].requires: expected a list of texts, got [1]"),
        ("steps[2]['value'] = '{{ t1 }}'", "no token {{ t1 }}; there are {{t1}} to {{t8}}"),
        ("steps[2]['value'] = '{{t1.x}}'", "no token {{t1.x}}"),
        (
            "steps[1]['timeout_ms'] = 10**400",
            "scenarios[0].steps[1].timeout_ms: expected a number from 0 to 1e+15",
        ),
        ("steps[1]['target']['nth'] = float('inf')", "nth: expected a number from 0 to 1e+15, got inf"),
        ("steps[0] = {'op': 'resize', 'w': 10**9, 'h': 5}", "steps[0].w: expected a number from 1 to 10000"),
        ("steps[3]['equals'] = nested(65)", "steps[3]: expected at most 64 levels of lists and objects"),
        ("del task['prompt']", "the field 'prompt' is missing"),
        ("task['id'] = ' '", "id: expected a filled text"),
        ("task['items'] = []", "items: expected at least one item"),
        ("task['scenarios'] = []", "scenarios: expected at least one scenario"),
        ("task['viewport'] = [0, 800]", "viewport: expected [width, height]"),
        ("items[0]['colour'] = 1", "items[0]: unknown field 'colour'"),
        ("items[0]['category'] = 'functional'", "Did you mean 'functionality'?"),
        ("items[0]['weight'] = 0", "items[0].weight: expected a number above 0"),
        ("items[0]['weight'] = True", "items[0].weight: expected a number"),
        ("items[1]['id'] = 'F1'", "two items have the id 'F1'"),
        ("items[1]['requires'] = ['F2']", "items[1].requires: no item 'F2' here. Did you mean 'F1'?"),
        ("items[0]['requires'] = ['V1']", "the `requires` of 'F1', 'V1' lead in a circle"),
        ("items[1]['requires'] = ['V1']", "the `requires` of 'V1' lead in a circle"),
        ("del items[0]['text']", "items[0]: the field 'text' is missing"),
        ("steps[0]['op'] = 'clik'", "scenarios[0].steps[0].op: unknown op 'clik'. Did you mean 'click'"),
        ("del steps[0]['op']", "scenarios[0].steps[0]: the field 'op' is missing"),
        ("steps[0]['target'] = {'css': 'a'}", "scenarios[0].steps[0]: unknown field 'target'"),
        ("del steps[1]['target']", "scenarios[0].steps[1]: the field 'target' is missing"),
        ("del steps[2]['value']", "the field 'value' is missing"),
        ("steps[2]['value'] = 3", "scenarios[0].steps[2].value: expected a text, got 3"),
        ("steps[2]['value'] = '{{t9}}'", "no token {{t9}}"),
        ("steps[2]['target']['within']['css'] = '{{name}}'", "no token {{name}}"),
        ("steps[3]['in'] = ['x', '{{t0}}']", "no token {{t0}}"),
        ("steps[2]['target']['label'] = 'x'", "expected one of css, role, label, text, got css, label"),
        ("steps[2]['target']['name'] = 'x'", "scenarios[0].steps[2].target: unknown field 'name'"),
        ("steps[2]['target']['nth'] = -1", "expected a number >= 0"),
        ("steps[1]['timeout_ms'] = 'long'", "scenarios[0].steps[1].timeout_ms: expected a number"),
        ("steps[3]['item'] = 'F9'", "scenarios[0].steps[3].item: no item 'F9' here"),
        ("steps[3]['kind'] = 'txt'", "unknown kind 'txt'"),
        ("del steps[3]['target']", "the field 'target' is missing"),
        ("steps[3]['target'] = {'role': 'button'}", "expected one of css, got none"),
        ("steps[3]['equal'] = '1'", "unknown field 'equal'. Did you mean 'equals'?"),
        ("steps[3]['regex'] = '('", "scenarios[0].steps[3].regex: no regular expression"),
        ("steps[3]['min'] = '4'", "scenarios[0].steps[3].min: expected a number"),
        ("steps[3]['in'] = 'abc'", "scenarios[0].steps[3].in: expected a list"),
        ("steps[3]['kind'] = 'attr'", "the field 'key' is missing"),
        ("steps[4]['target'] = {'css': 'a'}", "scenarios[0].steps[4]: unknown field 'target'"),
        ("steps[4]['kind'] = 'no_errors'", "scenarios[0].steps[4]: unknown field 'max'"),
        ("steps[0] = 'goto'", "scenarios[0].steps[0]: expected an object"),
        ("steps[1] = {'op': 'tab_to', 'target': {'role': 'button'}}", "expected one of css, got none"),
    ],
)
def test_a_broken_task_is_refused(change: str, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(broken(change))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected a JSON object"),
        ("[]", "the file: expected an object"),
        ('{"extra": 1}', "broken.json: unknown field 'extra'"),
        ('{"id": "a", "id": "b"}', "the field 'id' stands twice"),
        ('{"id": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "expected a JSON object"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(TaskError, match=r"broken\.json") as caught:
        load_task(path)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nowhere\.json: No such file"):
        load_task(tmp_path / "nowhere.json")


def test_tokens_are_eight_different_words_fixed_by_the_seed() -> None:
    words = tokens_of(1)
    assert list(words) == [f"t{n}" for n in range(1, 9)]
    assert len(set(words.values())) == 8
    assert all(
        len(word) == 7 and word.isascii() and word.isalpha() and word.islower() for word in words.values()
    )
    assert words == tokens_of(1) != tokens_of(2)


def test_tokens_are_replaced_in_every_string_of_a_step() -> None:
    words = {"t1": "one", "t2": "two"}
    step = Assert(
        "F1",
        "texts",
        Target(css="[x='{{t1}}']", within=Target(css="p", has_text="{{t2}}")),
        predicates={"equals": ["a {{t1}}", ["{{t2}}"]], "in": ["{{t1}}{{t2}}", 3]},
    )
    assert with_tokens(step, words) == Assert(
        "F1",
        "texts",
        Target(css="[x='one']", within=Target(css="p", has_text="two")),
        predicates={"equals": ["a one", ["two"]], "in": ["onetwo", 3]},
    )
    assert json.dumps(with_tokens(["no {brace} {{}}"], {})) == '["no {brace} {{}}"]'
