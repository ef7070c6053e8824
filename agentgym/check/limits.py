"""Probes: how episodes end, and what happens to actions that make no sense."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium

from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Failed,
    Step,
    Subject,
    actions_of,
    advance,
    expect,
    play,
    replay,
    short,
    start,
)
from agentgym.core import AgentEnv
from agentgym.errors import UsageError
from agentgym.protocols import Protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import Tool, ToolCall

# No protocol reads a call out of these.
_UNREADABLE = (
    "",
    " \n\t ",
    "\0",
    "I will think about it.",
    "x" * 200_000,
    "\u65e5\u672c\u8a9e \U0001f642 \u202e",
    '<tool_call>{"name": "',
    "</tool_call>",
    "<tool_call>[1, 2]</tool_call>",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": []}</tool_call>',
    "<tool_call>" + "[" * 50_000 + "</tool_call>",
    "<function=",
    "```bash\n",
    "Action: a\nAction Input: {",
)
_ODD_TEXTS = ("", "\0", "x" * 100_000, "\ud800", "\u65e5\u672c\u8a9e \U0001f642", "../../..", "</tool_call>")
_ODD_VALUES: dict[str, tuple[Any, ...]] = {
    "string": _ODD_TEXTS,
    "integer": (-1, 0, 2**63),
    "number": (-1.5, 0, 1e300),
    "boolean": (True,),
    "object": ({}, {"a": {"b": None}}),
    "array": ([],),
}


def invalid_actions(subject: Subject) -> str:
    """Unreadable and odd actions cost one turn each, are answered with text, and crash nothing."""
    subject.require_agent_env()
    with subject.make(max_turns=10**6) as env:
        agent_env = env.unwrapped
        assert isinstance(agent_env, AgentEnv)
        start(env, seed=subject.seed)
        tools, protocol = agent_env.tools, agent_env.protocol
        for action in _UNREADABLE:
            step = _costs_a_turn(
                env, agent_env, action, f"the unreadable action {short(action, 40)}", subject.seed
            )
            if tools:
                _is_invalid(step, f"the unreadable action {short(action, 40)}")
        for what, action in _written(_wrong_calls(tools), protocol):
            _is_invalid(_costs_a_turn(env, agent_env, action, what, subject.seed), what)
        odd = list(_written(_odd_calls(tools), protocol))
        for what, action in odd:
            _costs_a_turn(env, agent_env, action, what, subject.seed)
        for not_text in (None, 3, b"take"):
            try:
                env.step(not_text)
            except (UsageError, TypeError):
                continue
            raise Failed(
                f"expected the action {not_text!r}, which is no text, to be refused with an error; it was taken"
            )
        _refused_or_answered(env, "\ud800")
        start(env, seed=subject.seed)  # still usable
    return f"{len(_UNREADABLE)} unreadable actions, {len(odd)} calls with odd arguments"


def _costs_a_turn(env: Env, agent_env: AgentEnv, action: str, what: str, seed: int) -> Step:
    before = agent_env.turns_left
    try:
        step = advance(env, action)
    except Exception as error:
        raise Failed(
            f"{what}: expected an answer, got {type(error).__name__}: {short(str(error), 120)}"
        ) from error
    expect(
        step.observation in env.observation_space,
        f"{what}: expected an answer in {env.observation_space}, got {short(step.observation)}",
    )
    after = agent_env.turns_left
    expect(
        after == before - 1, f"{what}: expected it to cost one turn, turns_left went from {before} to {after}"
    )
    if step.ended:
        start(env, seed=seed)
    return step


def _refused_or_answered(env: Env, action: str) -> None:
    """A text that cannot be encoded is outside the action space; it must at least do no harm."""
    try:
        step = advance(env, action)
    except UsageError:
        return
    expect(
        step.observation in env.observation_space,
        f"the action {action!r}, which cannot be encoded: expected an error or an answer in {env.observation_space}, "
        f"got {short(step.observation)}",
    )


def _is_invalid(step: Step, what: str) -> None:
    got = step.info.get("invalid_action", "no such key")
    expect(got is True, f"{what}: expected info['invalid_action'] to be True, got {got!r}")


def _wrong_calls(tools: tuple[Tool, ...]) -> Iterator[tuple[str, ToolCall]]:
    """Calls that fit no tool: each must be answered as invalid."""
    if not tools:
        return
    yield "a call with an unknown tool", ToolCall("no_such_tool")
    for tool in tools:
        arguments = _plain_arguments(tool)
        yield (
            f"a call with an unknown argument of {tool.name}",
            ToolCall(tool.name, FrozenDict(arguments | {"no_such": 1})),
        )
        for missing in json.loads(tool.schema)["required"]:
            rest = {key: value for key, value in arguments.items() if key != missing}
            yield f"a call with {tool.name} without {missing!r}", ToolCall(tool.name, FrozenDict(rest))


def _odd_calls(tools: tuple[Tool, ...]) -> Iterator[tuple[str, ToolCall]]:
    """Calls that fit the schema and hold odd values, and some that miss its types: anything but a crash will do."""
    for tool in tools:
        for name, entry in json.loads(tool.schema)["properties"].items():
            kind = entry["type"][0] if isinstance(entry["type"], list) else entry["type"]
            for value in () if "enum" in entry else (*_ODD_VALUES[kind], None, ["x"]):
                call = ToolCall(tool.name, FrozenDict(_plain_arguments(tool) | {name: value}))
                yield f"{tool.name} with {name}={short(value, 30)}", call


def _written(calls: Iterable[tuple[str, ToolCall]], protocol: Protocol) -> Iterator[tuple[str, str]]:
    """The calls as actions; those that the protocol cannot even write are left out."""
    for what, call in calls:
        try:
            action = protocol.render_call(call)
        except UsageError:
            continue
        # A lone surrogate can only arrive escaped, inside JSON
        yield what, action.replace("\ud800", "\\ud800")


def _plain_arguments(tool: Tool) -> dict[str, Any]:
    schema = json.loads(tool.schema)
    plain = {"string": "x", "integer": 1, "number": 1.0, "boolean": True, "object": {}, "array": []}
    arguments = {}
    for name in schema["required"]:
        entry = schema["properties"][name]
        kind = entry["type"][0] if isinstance(entry["type"], list) else entry["type"]
        arguments[name] = entry["enum"][0] if "enum" in entry else plain[kind]
    return arguments


def turn_limit(subject: Subject) -> str:
    """An unsolved episode is truncated, not terminated, after `max_turns` or `max_seconds`; then only reset helps."""
    subject.require_agent_env()
    with subject.make(max_turns=3) as env:
        _needs_reset(env, "a step before the first reset")
        trace = play(env, subject.null(), seed=subject.seed)
        _check_end(trace, 3, "max_turns=3, the null policy")
        _needs_reset(env, "a step after the end")
        start(env, seed=subject.seed)
    with subject.make() as env:
        assert isinstance(env.unwrapped, AgentEnv)
        env.unwrapped.max_seconds = 1e-9
        _check_end(
            play(env, subject.null(), seed=subject.seed, steps=2), 1, "max_seconds=1e-9, the null policy"
        )
    note = ""
    if trace[-1].terminated:  # was that the task, or the limit under the wrong name?
        with subject.make(max_turns=4) as env:
            later = play(env, subject.null(), seed=subject.seed)
        expect(
            len(later) == len(trace) and bool(later[-1].terminated),
            f"the null policy: terminated at step {len(trace) - 1} with max_turns=3, but not with max_turns=4; a limit "
            "is truncated=True, terminated=False",
        )
        note = " (the null policy ended the task itself)"
    return f"max_turns=3, max_seconds=1e-9, steps before reset and after the end{note}"


def _check_end(trace: list[Step], limit: int, what: str) -> None:
    for index, step in enumerate(trace):
        expect(
            not (step.terminated and step.truncated),
            f"{what}, step {index}: terminated and truncated at once; a win on the last turn is terminated only",
        )
    last = trace[-1]
    expect(
        bool(last.terminated) or (bool(last.truncated) and len(trace) - 1 == limit),
        f"{what}: expected truncated=True at step {limit}, got terminated={last.terminated}, "
        f"truncated={last.truncated} at step {len(trace) - 1}",
    )


def _needs_reset(env: Env, what: str) -> None:
    try:
        env.step("")
    except gymnasium.error.ResetNeeded:
        return
    except Exception as error:
        raise Failed(
            f"{what}: expected gymnasium.error.ResetNeeded, got {type(error).__name__}: {error}"
        ) from None
    raise Failed(f"{what}: expected gymnasium.error.ResetNeeded, it was answered")


def last_turn(subject: Subject) -> str:
    """A win on the last allowed turn is terminated, with reward 1; one turn fewer is truncated."""
    if not subject.overrides("gold"):
        raise DoesNotApply("the environment has no gold(), so nobody can win on the last turn")
    with subject.make() as env:
        actions = actions_of(play(env, subject.gold(), seed=subject.seed))
    with subject.make(max_turns=len(actions)) as env:
        last = play(env, replay(actions), seed=subject.seed)[-1]
    got = (last.terminated, last.truncated, last.reward)
    expect(
        got == (True, False, 1.0),
        f"gold wins on turn {len(actions)} of {len(actions)}: expected terminated=True, truncated=False, reward 1.0, "
        f"got terminated={got[0]}, truncated={got[1]}, reward {got[2]}",
    )
    if len(actions) > 1:
        with subject.make(max_turns=len(actions) - 1) as env:
            trace = play(env, replay(actions), seed=subject.seed)
        flags = (trace[-1].terminated, trace[-1].truncated, len(trace) - 1)
        expect(
            flags == (False, True, len(actions) - 1),
            f"gold with a turn too few: expected terminated=False, truncated=True at step {len(actions) - 1}, got "
            f"terminated={flags[0]}, truncated={flags[1]} at step {flags[2]}",
        )
    return f"gold needs {len(actions)} turns; with exactly that many it wins"
