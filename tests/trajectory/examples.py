"""A trajectory with something in every field, for the tests of files and formats."""

from agentgym.messages import Message, MessageCall, assistant, system, user
from agentgym.trajectory.records import Call, Event, Reply, Step, Trajectory
from agentgym.trajectory.segments import SegmentBuilder

E, U, A, S = 1, 3, 4, 2


def full(id="run/1"):
    """Two turns, a summary by the policy, a compaction, a rejected reply, a sub-agent, a blocked call."""
    b = SegmentBuilder()
    start = (system("s"), user("find the door"))
    ids = (S, 9, E, U, 10, E, A)
    b.add(start, Reply("look", ids, (20, E), (-0.5, -0.25), 0.7, "stop"), step=0, accepted=True)
    second = (*start, assistant("look"), user("a room"))
    ids2 = (*ids, 20, E, U, 11, E, A)
    b.add(second, Reply("no", ids2, (29, E), (-3.0, -0.1), 0.7, "stop"), step=1, accepted=False)
    b.add(
        second, Reply("sum: room", ids2, (21, 22, E), (-1.0, -0.5, -0.1), 0.7, "stop"), step=1, accepted=True
    )
    sub = (user("subtask"),)
    b.add(
        sub,
        Reply("sub", (U, 13, E, A), (25, E), (-1.0, -1.0), 1.0),
        agent="worker",
        cause="delegation",
        step=2,
    )
    compacted = (*start, user("Summary: room"))
    ids3 = (*ids[:-1], U, 70, E, A)
    b.add(compacted, Reply("open", ids3, (23, E), (-0.125, -0.1), 0.7, "stop"), cause="compaction", step=3)
    b.assign_reward(3, 1.0)
    b.events[-1].data |= {
        "strategy": "policy",
        "before_tokens": 19,
        "after_tokens": 11,
        "summary": "Summary: room",
    }
    b.events[-1].data["dropped_messages"] = [
        {"role": "assistant", "content": "look"},
        {"role": "user", "content": "a room"},
    ]
    calls = [Call("look", {"at": ["door", 1, None]}, "a room", exit_code=0, seconds=0.25)]
    blocked = [Call("open", {"what": "door"}, "", True, 1, True, "rule: doors", 0.5)]
    return Trajectory(
        id=id,
        env_id="agentgym/Door-v0",
        task_id="door-1",
        seed=2**70,
        policy="scripted",
        prompt="find the door",
        env_spec="{}",
        steps=[
            Step("turn", "policy", "look", "a room", 0.0, calls, {"context_tokens": 9}, 0, 7, 2, 0.5, 0.25),
            Step("summary", "policy", "sum: room", segment=0, prompt_tokens=13, sampled_tokens=3),
            Step("turn", "worker", "sub", "ok", segment=2, prompt_tokens=4, sampled_tokens=2),
            Step("turn", "policy", "open", "it opens", 1.0, blocked, {"invalid_action": True}, 3, 10, 2),
        ],
        segments=b.segments,
        events=[*b.events, Event("mine", 3, {"x": [1, 2.5, "three"]})],
        reward=1.0,
        terminated=True,
        verdict={
            "score": 1.0,
            "passed": True,
            "components": {"open": 1.0},
            "held_out": {"gently": 0.5},
            "evidence": {"door": "open"},
        },
        resolved=True,
        hacked=True,
        started=1_700_000_000.25,
        seconds=2.5,
        extra={"note": "x", "nested": {"a": [1, None, True]}},
    )


def rich_messages():
    """Every field of a message."""
    call = MessageCall("c1", "ls", '{"path": "."}')
    return (Message("assistant", "", "lead", (call,)), Message("tool", "a b", tool_call_id="c1"))
