"""Tools that come and go after an environment was made, and calls outside a step."""

import re

import pytest

from agentgym import ToolResult, UsageError
from agentgym.delegation.calls import calls_of_a_boss
from agentgym.protocols import Hermes
from agentgym.tasks import FrozenDict
from agentgym.tools import Tool, ToolCall
from tests.toys import Moves, Notes

RING = Tool("ring", "Ring the bell.", '{"type": "object", "properties": {}, "required": []}', "ring")
ONCE = Hermes().render_call(ToolCall("ring"))


def ring(call, next):
    return ToolResult("Ding.") if call.name == "ring" else next(call)


def started(env):
    env.reset(seed=0)
    return env


def test_a_tool_that_is_added_is_offered_read_checked_and_answered():
    env = Notes()
    env.add_tools((RING,), ring)
    assert '"name": "ring"' in started(env).system_prompt
    assert env.step(ONCE)[0] == "<tool_response>\nDing.\n</tool_response>"
    wrong = Hermes().render_call(ToolCall("ring", FrozenDict(loud=True)))
    assert "ring has no argument 'loud'" in env.step(wrong)[0]
    assert env.step(Hermes().render_call(ToolCall("read", FrozenDict(name="x"))))[0].count("no note 'x'") == 1
    assert "ring" not in [tool.name for tool in Notes().tools]


def test_beside_plain_moves_a_message_with_a_call_is_one():
    env = Moves()
    env.add_tools((RING,), ring)
    started(env)
    assert env.step(ONCE)[0] == "<tool_response>\nDing.\n</tool_response>"
    observation, *_, info = env.step("look at <tool_call> this")  # no call can be read: a move
    assert observation.startswith("look at <tool_call> this ")
    assert info["calls"][0].call.name == "act"
    assert env.step("win")[2]


def test_a_tool_that_is_dropped_does_not_exist():
    env = Notes()
    env.drop_tools(["write", "pile"])
    assert "write" not in [tool.name for tool in env.tools]
    observation, *_, info = started(env).step(
        Hermes().render_call(ToolCall("write", FrozenDict(name="a", text="b")))
    )
    assert "there is no tool 'write'" in observation
    assert info["invalid_action"]
    assert env.log == []


def test_a_call_outside_a_step_passes_the_middleware_and_takes_no_turn():
    env, seen = started(Notes()), []
    env.use(lambda call, next: (seen.append(call.name), next(call))[1])
    record = env.run_call(ToolCall("write", FrozenDict(name="a", text="b")))
    assert record.result.text == "ok"
    assert seen == ["write"]
    assert env.turns_left == env.max_turns
    assert env.episode.turns == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: Notes().add_tools(Notes().tools[:1], ring), "Notes has a tool 'write' of its own"),
        (lambda: Notes().drop_tools(["reed"]), "Notes has no tool 'reed'. Did you mean 'read'?"),
        (lambda: Moves(protocol="bash").add_tools(calls_of_a_boss(["x"]), ring), "needs a tool named bash"),
    ],
)
def test_bad_use_is_told(change, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        change()
