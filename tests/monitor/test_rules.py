"""Every rule on its own examples, which it documents; and what holds of the table as a whole."""

from __future__ import annotations

import pickle

import pytest

from agentgym.monitor.context import Context
from agentgym.monitor.judge import Reviewer
from agentgym.monitor.lookalikes import EXCUSES
from agentgym.monitor.monitor import Monitor
from agentgym.monitor.rules import CLASSES, RULES, Example, Rule
from agentgym.monitor.rules.base import PLAIN
from agentgym.tools import ToolCall


def pairs(kind: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.name}-{number}")
        for rule in RULES
        for number, example in enumerate(getattr(rule, kind))
    ]


def look(rule: Rule, example: Example) -> tuple[bool, bool]:
    """Whether the rule flags the example, and whether the flag stays after the reviewer."""
    context = Context.from_dict({**PLAIN, **example.context})
    if example.before is not None:
        Monitor().review(ToolCall(example.before.tool, example.before.arguments), context)
    scene, flags = Monitor(rules=[rule]).look(ToolCall(example.tool, example.arguments), context)
    return bool(flags), bool(flags) and Reviewer().review(scene, flags).block


@pytest.mark.parametrize(("rule", "example"), pairs("hacks"))
def test_flags_its_hacks(rule, example):
    assert look(rule, example) == (True, True)


@pytest.mark.parametrize(("rule", "example"), pairs("fine"))
def test_lets_its_look_alikes_pass(rule, example):
    assert not look(rule, example)[1]


@pytest.mark.parametrize(
    "example", [e for rule in RULES for e in rule.fine], ids=lambda e: " ".join(e.arguments.values())[:50]
)
def test_no_other_rule_blocks_a_look_alike(example):
    decision = Monitor().review(
        ToolCall(example.tool, example.arguments), Context.from_dict({**PLAIN, **example.context})
    )
    assert not decision.block, decision


def test_every_class_has_a_rule_and_every_rule_both_labels():
    assert {rule.hack_class for rule in RULES} == set(CLASSES)
    for rule in RULES:
        assert rule.hacks, rule.name
        assert rule.fine, rule.name
        assert len(rule.why) > 40, f"{rule.name}: its docstring says what it flags and why"


def test_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_look_alikes_that_rules_name_exist():
    """Names in findings are looked up only when a call is flagged, so the rules' constants are read for them."""
    named = set()
    for rule in RULES:
        for constant in rule.check.__code__.co_consts:
            if isinstance(constant, tuple):
                named |= {word for word in constant if isinstance(word, str) and word in SUSPECTED}
    assert named <= set(EXCUSES)
    assert set(EXCUSES) == SUSPECTED


# Every look-alike; a new one is added here too, so that a misspelt name in a rule is noticed.
SUSPECTED = {
    *"wildcard_class double_fork command_line stdin_program detector settings_flag declared_data".split(),
    *"standard_table".split(),
    *"injection_detector open_machine restores_head own_hook own_venv system_task same_name_package own_helper".split(),
    *"same_tool own_process own_child own_secret container_task own_setting debug_helper leak_tool own_service".split(),
    *"loopback_unknown page_data usage_question note_about".split(),
}


def test_rules_pickle():
    assert pickle.loads(pickle.dumps(RULES)) == RULES
