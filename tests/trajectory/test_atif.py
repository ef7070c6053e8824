import json

import pytest

from agentgym.errors import UsageError
from agentgym.messages import assistant, system, user
from agentgym.trajectory import Reply, SegmentBuilder, Step, Trajectory
from agentgym.trajectory.atif import from_atif, read_atif, to_atif, write_atif
from tests.trajectory.examples import full, rich_messages
from tests.trajectory.test_segments_property import EVERYTHING, History

# The fields of ATIF 1.7, as Harbor's models have them; nothing else is allowed there.
FIELDS = {
    "document": "schema_version session_id trajectory_id agent steps notes final_metrics continued_trajectory_ref extra"
    " subagent_trajectories",
    "agent": "name version model_name tool_definitions extra",
    "step": "step_id timestamp source model_name reasoning_effort message reasoning_content tool_calls observation"
    " metrics extra llm_call_count is_copied_context",
    "metrics": "prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids completion_token_ids logprobs"
    " extra",
    "final_metrics": "total_prompt_tokens total_completion_tokens total_cached_tokens total_cost_usd total_steps extra",
    "tool_call": "tool_call_id function_name arguments extra",
    "result": "source_call_id content subagent_trajectory_ref extra",
    "ref": "trajectory_id trajectory_path session_id extra",
}
AGENT_ONLY = {
    "model_name",
    "reasoning_effort",
    "reasoning_content",
    "tool_calls",
    "metrics",
    "llm_call_count",
}


def check_fields(row, kind):
    assert row.keys() <= set(FIELDS[kind].split()), f"{kind}: {row.keys() - set(FIELDS[kind].split())}"


def check_document(document):
    """Harbor's rules, written out: the test needs none of its packages."""
    check_fields(document, "document")
    check_fields(document["agent"], "agent")
    check_fields(document.get("final_metrics", {}), "final_metrics")
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for step in document["steps"]:
        check_fields(step, "step")
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not AGENT_ONLY & step.keys()
        check_fields(step.get("metrics", {}), "metrics")
        ids = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        for call in step.get("tool_calls", ()):
            check_fields(call, "tool_call")
            assert isinstance(call["arguments"], dict)
        for result in step.get("observation", {"results": ()})["results"]:
            check_fields(result, "result")
            assert result.get("source_call_id", ids[0] if ids else None) in (ids or [None])
            for ref in result.get("subagent_trajectory_ref", ()):
                check_fields(ref, "ref")
    subs = document.get("subagent_trajectories", ())
    assert len({sub["trajectory_id"] for sub in subs}) == len(subs)
    for sub in subs:
        check_document(sub)


def through_json(documents):
    return json.loads(json.dumps(documents, allow_nan=False))


def test_a_round_trip_is_exact():
    trajectory = full()
    assert from_atif(through_json(to_atif(trajectory))) == trajectory


def test_documents_of_the_example():
    root, continued = to_atif(full())
    for document in (root, continued):
        check_document(document)
    assert root["continued_trajectory_ref"] == "run_1.segment-3-45ed3268.json"
    assert "continued_trajectory_ref" not in continued
    assert [sub["trajectory_id"] for sub in root["subagent_trajectories"]] == ["run/1.segment-2"]
    assert root["steps"][3]["observation"]["results"][-1] == {
        "subagent_trajectory_ref": [{"trajectory_id": "run/1.segment-2"}]
    }
    look = root["steps"][2]
    assert look["metrics"]["completion_token_ids"] == [20, 1]
    assert look["metrics"]["logprobs"] == [-0.5, -0.25]
    assert look["tool_calls"][0]["function_name"] == "look"
    assert look["observation"]["results"][0] == {"source_call_id": "0.0", "content": "a room"}
    assert root["final_metrics"]["total_completion_tokens"] == 9
    assert root["final_metrics"]["extra"]["agentgym"] == {"reward": 1.0, "resolved": True}


def test_the_summary_is_kept_and_what_was_copied_is_marked():
    _, continued = to_atif(full())
    marks = [(s["message"], s.get("is_copied_context", False)) for s in continued["steps"]]
    assert marks == [("s", True), ("find the door", True), ("Summary: room", False), ("open", False)]
    assert continued["steps"][2]["extra"]["agentgym"] == {"summary": True}
    meta = continued["extra"]["agentgym"]["segment"]
    assert meta["cause"] == "compaction"
    assert [m["content"] for m in meta["dropped_messages"]] == ["look", "a room", "sum: room"]
    assert meta["rewards"] == [[11, 1.0]]


def trainable(document):
    """The tokens a consumer that follows ATIF's rules trains on."""
    ids = []
    for step in document["steps"]:
        if step["source"] == "agent" and not step.get("is_copied_context"):
            ids += step["metrics"]["completion_token_ids"]
    for sub in document.get("subagent_trajectories", ()):
        ids += trainable(sub)
    return ids


def recorded(seed, turns):
    """A random history as a trajectory."""
    history = History(seed, SegmentBuilder(), moves=EVERYTHING)
    for _ in range(turns):
        history.turn()
    b = history.builder
    steps = [
        Step("turn", "policy", f"a{k}", f"o{k}", segment=b.segment_of(k), sampled_tokens=len(ids))
        for k, (ids, _) in history.sampled.items()
    ]
    for k in history.sampled:
        if k not in history.superseded:
            b.assign_reward(k, k / 8)
    return Trajectory(f"h{seed}", prompt="p", steps=steps, segments=b.segments, events=b.events), history


@pytest.mark.parametrize("seed", range(40))
def test_any_history_survives_and_nothing_copied_is_trained(seed, tmp_path):
    trajectory, history = recorded(seed, 1 + seed % 12)
    documents = to_atif(trajectory)
    for document in documents:
        check_document(document)
    assert from_atif(through_json(documents)) == trajectory
    accepted = [ids for step, (ids, _) in history.sampled.items() if step not in history.superseded]
    expected = sorted(token for ids in accepted for token in ids)
    assert sorted(token for document in documents for token in trainable(document)) == expected
    paths = write_atif(trajectory, tmp_path)
    assert len(paths) == len(documents)
    assert read_atif(paths[0]) == trajectory


def test_a_superseded_reply_is_not_for_training():
    b = SegmentBuilder()
    b.add((user("q"),), Reply("x", (1,), (2,)))
    b.add((user("q"),), Reply("y", (1,), (3,)))
    b.add(
        (user("q"), assistant("x"), user("o")), Reply("z", (1, 2, 4), (5,))
    )  # so "x" was acted on, "y" was not
    trajectory = Trajectory("t", segments=b.segments, events=b.events)
    documents = to_atif(trajectory)
    assert sorted(token for document in documents for token in trainable(document)) == [2, 5]
    assert from_atif(through_json(documents)) == trajectory


def test_messages_with_structured_calls_survive():
    call, result = rich_messages()
    b = SegmentBuilder()
    b.add((system("s"), user("q")), Reply("raw"), message=call, step=0)
    b.add((system("s"), user("q"), call, result), Reply("end"), step=1)
    trajectory = Trajectory("t", steps=[Step("turn", "policy", "raw"), Step("turn", "policy", "end")])
    trajectory.segments, trajectory.events = b.segments, b.events
    assert from_atif(through_json(to_atif(trajectory))) == trajectory


@pytest.mark.parametrize(
    "trajectory",
    [
        Trajectory("nothing", prompt="p"),
        Trajectory("empty", prompt="p", steps=[Step("turn", "policy", "", "what?")]),
        Trajectory("broken", reward=None, infrastructure_error="x"),
    ],
    ids=lambda t: t.id,
)
def test_trajectories_without_segments(trajectory):
    documents = to_atif(trajectory)
    check_document(documents[0])
    assert from_atif(through_json(documents)) == trajectory


# -- somebody else's ------------------------------------------------------------------------------------------------

FOREIGN = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s-1",
    "agent": {"name": "other", "version": "2", "model_name": "m"},
    "notes": "n",
    "steps": [
        {"step_id": 1, "source": "system", "message": "be good"},
        {
            "step_id": 2,
            "source": "user",
            "message": [{"type": "text", "text": "list"}, {"type": "image", "source": {}}],
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "I look",
            "reasoning_content": "hm",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"p": "."}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "a b"}]},
            "metrics": {
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [3, 4],
                "logprobs": [-0.5, -0.25],
            },
        },
        {"step_id": 4, "source": "agent", "message": "copied", "is_copied_context": True},
        {"step_id": 5, "source": "agent", "message": "tool", "llm_call_count": 0},
        {
            "step_id": 6,
            "source": "agent",
            "message": "done",
            "metrics": {"prompt_token_ids": [1, 2, 3, 4, 5], "completion_token_ids": [6]},
        },
    ],
}


def test_a_foreign_file_is_read_as_far_as_it_goes():
    t = from_atif(FOREIGN)
    assert (t.id, t.policy, t.prompt, t.reward, t.resolved) == ("s-1", "m", "list", None, None)
    assert [step.action for step in t.steps] == ["I look", "done"]
    assert t.steps[0].observation == "a b"
    assert (t.steps[0].calls[0].name, t.steps[0].calls[0].text) == ("ls", "a b")
    assert t.steps[0].info == {"reasoning_content": "hm"}
    assert t.extra["atif"]["notes"] == "n"
    (segment,) = t.segments
    assert [m.role for m in segment.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
    ]
    assert segment.token_ids == [1, 2, 3, 4, 5, 6]
    assert segment.mask == [0, 0, 1, 1, 0, 1]


def test_a_foreign_continuation_is_a_compaction_and_a_foreign_sub_agent_a_delegation():
    def agent(message):
        return {"source": "agent", "message": message}

    first = {
        **FOREIGN,
        "continued_trajectory_ref": "next.json",
        "steps": [{"source": "user", "message": "q"}, agent("a")],
        "subagent_trajectories": [
            {**FOREIGN, "trajectory_id": "sub", "steps": [{"source": "user", "message": "sq"}, agent("sa")]}
        ],
    }
    second = {**FOREIGN, "steps": [{"source": "user", "message": "summary"}, agent("b")]}
    t = from_atif([first, second])
    assert [(s.agent, s.cause, s.parent) for s in t.segments] == [
        ("policy", "start", None),
        ("sub", "delegation", 0),
        ("policy", "compaction", 0),
    ]
    assert t.segments[2].messages == (user("summary"), assistant("b"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "got None"),
        ([], "expected an ATIF document"),
        ({"schema_version": "ATIF-v2.0"}, "got 'ATIF-v2.0'"),
        ({**FOREIGN, "steps": [{"source": "robot", "message": "x"}]}, "step 1: expected a source"),
        ({**FOREIGN, "agent": None}, "not in the form"),
    ],
)
def test_other_documents_are_refused(document, message):
    with pytest.raises(UsageError, match=message):
        from_atif([document])


def test_a_missing_continuation_is_named(tmp_path):
    paths = write_atif(full(), tmp_path)
    paths[1].unlink()
    with pytest.raises(UsageError, match=r"run_1\.segment-3-45ed3268\.json"):
        read_atif(paths[0])
