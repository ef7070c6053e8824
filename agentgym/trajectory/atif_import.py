"""Reading ATIF documents: our own exactly, others' as far as their data go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.errors import UsageError
from agentgym.messages import Conversation, Message, MessageCall
from agentgym.trajectory.records import Call, Reply, Sampled, Segment, Step, Trajectory
from agentgym.trajectory.segments import SegmentBuilder
from agentgym.trajectory.store import from_dict, messages_from_rows

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def from_atif(documents: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Trajectory:
    """The trajectory that ATIF documents hold.

    Args:
        documents: one document, or a root and those that continue it, in order.

    Returns:
        Of documents that `to_atif` made, the trajectory they were made of. Of others: messages, actions,
        calls, observations, token ids and log-probs where given; steps marked as copied are context and
        never trained; the reward is None, since ATIF has none.

    Raises:
        UsageError: not ATIF, or of another major version.
    """
    given = [documents] if isinstance(documents, Mapping) else list(documents)
    if not given:
        raise UsageError("expected at least one ATIF document, got none")
    for document in given:
        _check(document)
    ours = given[0].get("extra") or {}
    try:
        if "trajectory" in (ours.get("agentgym") or {}):
            return _own(given)
        return _foreign(given)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"not in the form of ATIF 1.7: {error!r}") from error


def _check(document: Any) -> None:
    version = document.get("schema_version") if isinstance(document, Mapping) else None
    if not isinstance(version, str) or not version.startswith("ATIF-v1."):
        raise UsageError(f"expected an ATIF document with schema_version 'ATIF-v1.7', got {version!r}")
    for number, step in enumerate(document.get("steps") or (), start=1):
        if not isinstance(step, Mapping) or step.get("source") not in _ROLES or "message" not in step:
            raise UsageError(f"step {number}: expected a source among {', '.join(_ROLES)} and a message")


# -- our own -------------------------------------------------------------------------------------------------


def _own(documents: list[Mapping[str, Any]]) -> Trajectory:
    row = dict(documents[0]["extra"]["agentgym"]["trajectory"])
    steps = {
        entry["index"]: {k: v for k, v in entry.items() if k != "index"} for entry in row.pop("other_steps")
    }
    retries = row.pop("retries")
    trajectory = from_dict(row | {"steps": [], "segments": retries})
    found = {segment.index: segment for segment in trajectory.segments}
    taken = {
        index: Step(**step | {"calls": [Call(**c) for c in step["calls"]]}) for index, step in steps.items()
    }
    for document in [d for root in documents for d in (root, *(root.get("subagent_trajectories") or ()))]:
        if "segment" in document["extra"]["agentgym"]:
            segment = _own_segment(document, taken)
            found[segment.index] = segment
    trajectory.segments = [found[index] for index in sorted(found)]
    trajectory.steps = [taken[index] for index in sorted(taken)]
    return trajectory


def _own_segment(document: Mapping[str, Any], taken: dict[int, Step]) -> Segment:
    meta = dict(document["extra"]["agentgym"]["segment"])
    dropped, rewards = meta.pop("dropped_messages"), meta.pop("rewards")
    segment = Segment(**meta, dropped=messages_from_rows(dropped))
    messages: list[Message] = []
    logprobs: list[tuple[int, list[float] | None]] = []
    for step in document["steps"]:
        extra = (step.get("extra") or {}).get("agentgym", {})
        messages.append(
            messages_from_rows([extra["message"]])[0]
            if "message" in extra
            else Message(_ROLES[step["source"]], step["message"])
        )
        if "sampled" not in extra:
            continue
        metrics = step["metrics"]
        segment.sampled += [Sampled(len(messages) - 1, **sampled) for sampled in extra["sampled"]]
        if "prompt_token_ids" in metrics:
            segment.token_ids = metrics["prompt_token_ids"] + metrics["completion_token_ids"]
        logprobs.append((segment.sampled[-len(extra["sampled"])].start, metrics.get("logprobs")))
        if "step" in extra:
            row = dict(extra["step"])
            index = row.pop("index")
            calls = [_own_call(call, step["observation"]) for call in step.get("tool_calls") or ()]
            costs = {
                "prompt_tokens": metrics["prompt_tokens"],
                "sampled_tokens": metrics["completion_tokens"],
            }
            taken[index] = Step(action=extra.get("action", step["message"]), calls=calls, **costs, **row)
        messages += messages_from_rows(extra["answers"])
    segment.messages = tuple(messages)
    _fill(segment, logprobs, rewards)
    return segment


def _own_call(call: Mapping[str, Any], observation: Mapping[str, Any]) -> Call:
    texts = {r["source_call_id"]: r["content"] for r in observation["results"] if "source_call_id" in r}
    rest = call["extra"]["agentgym"]
    return Call(call["function_name"], call["arguments"], texts[call["tool_call_id"]], **rest)


def _fill(segment: Segment, logprobs: list[tuple[int, list[float] | None]], rewards: list[list[Any]]) -> None:
    """Mask, log-probs and rewards of a segment whose token ids are known."""
    length = len(segment.token_ids)
    segment.mask = [0] * length
    segment.rewards = [0.0] * length
    for sampled in segment.sampled:
        if not (sampled.superseded or sampled.masked):
            segment.mask[sampled.start : sampled.stop] = [1] * (sampled.stop - sampled.start)
    if all(values is not None for _, values in logprobs):
        segment.logprobs = [0.0] * length
        for start, values in logprobs:
            segment.logprobs[start : start + len(values or ())] = values or ()
    for index, reward in rewards:
        segment.rewards[index] = reward


# -- somebody else's -----------------------------------------------------------------------------------------


def _foreign(documents: list[Mapping[str, Any]]) -> Trajectory:
    first = documents[0]
    builder = SegmentBuilder()
    trajectory = Trajectory(
        id=first.get("trajectory_id") or first.get("session_id") or "atif",
        policy=first["agent"].get("model_name") or first["agent"]["name"],
        reward=None,
        segments=builder.segments,
        events=builder.events,
        extra={
            "atif": {
                key: first[key] for key in ("session_id", "notes", "final_metrics", "extra") if first.get(key)
            }
        },
    )
    for number, document in enumerate(documents):
        _foreign_document(document, trajectory, builder, "policy", "compaction" if number else None)
    prompts = [step["message"] for step in first["steps"] if step["source"] == "user"]
    trajectory.prompt = _text(prompts[0]) if prompts else ""
    return trajectory


def _foreign_document(
    document: Mapping[str, Any], trajectory: Trajectory, builder: SegmentBuilder, agent: str, cause: Any
) -> None:
    conversation: Conversation = ()
    for step in document["steps"]:
        text = _text(step["message"])
        if step["source"] != "agent":
            conversation += (Message(_ROLES[step["source"]], text),)
            continue
        calls = [_call(call, step) for call in step.get("tool_calls") or ()]
        said = Message(
            "assistant", text, tool_calls=tuple(_message_call(c) for c in step.get("tool_calls") or ())
        )
        if not step.get("is_copied_context") and step.get("llm_call_count") != 0:
            reply = _reply(text, step.get("metrics") or {})
            index = len(trajectory.steps)
            segment = builder.add(
                conversation, reply, agent=agent, cause=cause, step=index, accepted=True, message=said
            )
            cause = None
            trajectory.steps.append(
                Step(
                    "turn",
                    agent,
                    text,
                    "\n".join(_contents(step)),
                    calls=calls,
                    info={"reasoning_content": step["reasoning_content"]}
                    if step.get("reasoning_content")
                    else {},
                    segment=segment,
                    prompt_tokens=reply.prompt_tokens,
                    sampled_tokens=reply.sampled_tokens,
                )
            )
        conversation = (*conversation, said, *_results(step))
    for embedded in document.get("subagent_trajectories") or ():
        _check(embedded)
        name = embedded.get("trajectory_id") or embedded["agent"]["name"]
        _foreign_document(embedded, trajectory, builder, name, "delegation")


def _reply(text: str, metrics: Mapping[str, Any]) -> Reply:
    prompt, sampled = metrics.get("prompt_token_ids"), metrics.get("completion_token_ids")
    if prompt is None or not sampled:
        counts = (metrics.get("prompt_tokens") or 0, metrics.get("completion_tokens") or 0)
        return Reply(text, prompt_tokens=counts[0], sampled_tokens=counts[1])
    logprobs = metrics.get("logprobs")
    return Reply(text, tuple(prompt), tuple(sampled), None if logprobs is None else tuple(logprobs))


def _call(call: Mapping[str, Any], step: Mapping[str, Any]) -> Call:
    results = (step.get("observation") or {}).get("results") or ()
    texts = [
        _text(r.get("content") or "") for r in results if r.get("source_call_id") == call["tool_call_id"]
    ]
    return Call(call["function_name"], dict(call["arguments"]), "\n".join(texts))


def _message_call(call: Mapping[str, Any]) -> MessageCall:
    return MessageCall(call["tool_call_id"], call["function_name"], json.dumps(call["arguments"]))


def _results(step: Mapping[str, Any]) -> list[Message]:
    """What the agent read after a step."""
    messages = []
    for result in (step.get("observation") or {}).get("results") or ():
        content = result.get("content")
        if content is not None:
            id_ = result.get("source_call_id") or ""
            messages.append(Message("tool" if id_ else "user", _text(content), tool_call_id=id_))
    return messages


def _contents(step: Mapping[str, Any]) -> list[str]:
    return [message.content for message in _results(step)]


def _text(content: Any) -> str:
    """The text of a message; pictures and sound are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")
