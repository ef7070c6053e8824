"""Export to and import from ATIF, the Agent Trajectory Interchange Format of the Harbor framework, version 1.7.

A segment becomes a document. The main agent's first one is the root; a segment that continues it after a
compaction or a fork is a document of its own, which `continued_trajectory_ref` points to; a sub-agent's
segments are embedded in `subagent_trajectories`. What was copied into a segment from before has
`is_copied_context`; so has every reply that must not be trained for another reason. What ATIF has no field
for is in `extra` under "agentgym": rewards, verdict, dropped messages, how tokens lie in the segment. A file
of somebody else's, which has none of this, is read as far as it goes (`atif_import.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError
from agentgym.messages import Conversation, Message
from agentgym.texts import safe_label
from agentgym.trajectory.atif_import import from_atif
from agentgym.trajectory.records import Call, Sampled, Segment, Step, Trajectory
from agentgym.trajectory.store import messages_to_rows, to_dict
from agentgym.version import __version__

__all__ = ["from_atif", "read_atif", "to_atif", "write_atif"]

SCHEMA = "ATIF-v1.7"


def to_atif(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The trajectory as ATIF documents: the root first, then those that continue it, in order."""
    subs = _sub_agents(trajectory)
    documents = {s.index: _document(trajectory, s) for s in trajectory.segments if s.cause != "retry"}
    roots: list[dict[str, Any]] = []
    ends: dict[tuple[str, bool], dict[str, Any]] = {}  # the latest document of each agent
    for index, document in documents.items():
        segment, is_sub = trajectory.segments[index], index in subs
        before = ends.get((segment.agent, is_sub))
        if before is not None and segment.cause in ("compaction", "fork"):
            id_ = document["trajectory_id"]
            before["continued_trajectory_ref"] = id_ if is_sub else _file_name(id_)
        ends[segment.agent, is_sub] = document
        if not is_sub:
            roots.append(document)
        else:
            host = documents[segment.parent] if segment.parent is not None else roots[0]
            host = host if any(host is root for root in roots) else roots[0]
            _embed(host, document, first_step=min((s.step or 0 for s in segment.sampled), default=0))
    if not roots:  # nothing but empty replies
        roots = [_document(trajectory, Segment(0, messages=(Message("user", trajectory.prompt),)))]
        roots[0]["extra"]["agentgym"].pop("segment")
    roots[0]["final_metrics"] = _final_metrics(trajectory)
    roots[0]["extra"]["agentgym"]["trajectory"] = _rest(trajectory)
    return roots


def write_atif(trajectory: Trajectory, folder: str | Path) -> list[Path]:
    """Write one file per document into a folder; the first is the root. Returns the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for document in to_atif(trajectory):
        path = folder / _file_name(document["trajectory_id"])
        path.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
        paths.append(path)
    return paths


def read_atif(path: str | Path) -> Trajectory:
    """Read a file and the files that continue it.

    Raises:
        UsageError: a file is missing or is no ATIF document.
    """
    documents: list[Any] = []
    next_path: Path | None = Path(path)
    seen: set[Path] = set()
    while next_path is not None and next_path not in seen:
        seen.add(next_path)
        try:
            documents.append(json.loads(next_path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {next_path} as ATIF: {error}") from None
        ref = documents[-1].get("continued_trajectory_ref") if isinstance(documents[-1], Mapping) else None
        next_path = next_path.parent / ref if ref else None
    return from_atif(documents)


def _sub_agents(trajectory: Trajectory) -> set[int]:
    """Segments that are not the main agent's, which is the one that began."""
    subs: set[int] = set()
    for segment in trajectory.segments:
        delegated = segment.cause == "delegation" or segment.agent != trajectory.segments[0].agent
        if delegated or (segment.cause in ("compaction", "fork") and segment.parent in subs):
            subs.add(segment.index)
    return subs


def _document(trajectory: Trajectory, segment: Segment) -> dict[str, Any]:
    own = asdict(segment)
    kept = ("index", "agent", "parent", "cause", "copied_messages", "copied_tokens")
    meta = {name: own[name] for name in kept}
    meta["dropped_messages"] = messages_to_rows(segment.dropped)
    meta["rewards"] = [[index, reward] for index, reward in enumerate(segment.rewards) if reward]
    agent = {
        "name": trajectory.policy or segment.agent,
        "version": __version__,
        "extra": {"agent": segment.agent},
    }
    return {
        "schema_version": SCHEMA,
        "session_id": trajectory.id,
        "trajectory_id": trajectory.id if segment.index == 0 else f"{trajectory.id}.segment-{segment.index}",
        "agent": agent,
        "steps": [{"step_id": k} | step for k, step in enumerate(_steps(trajectory, segment), start=1)],
        "extra": {"agentgym": {"segment": meta}},
    }


def _steps(trajectory: Trajectory, segment: Segment) -> list[dict[str, Any]]:
    """The messages of a segment as steps; an environment's answer goes into the step it answers."""
    parent = () if segment.parent is None else trajectory.segments[segment.parent].messages
    copies = Counter(parent)
    replies: dict[int, list[Sampled]] = {}
    for sampled in segment.sampled:
        replies.setdefault(sampled.message, []).append(sampled)
    first = min(replies, default=len(segment.messages))
    steps: list[dict[str, Any]] = []
    index = 0
    while index < len(segment.messages):
        message = segment.messages[index]
        if index in replies:
            answers = _answers(segment.messages, index)
            steps.append(_agent_step(trajectory, segment, message, replies[index], answers))
            index += 1 + len(answers)
            continue
        copied = message.role == "assistant" or (index < first and copies[message] > 0)
        copies[message] -= 1
        written = segment.cause == "compaction" and index < first and not copied
        steps.append(_context_step(message, copied=copied, summary=written))
        index += 1
    return steps


def _answers(messages: Conversation, index: int) -> Conversation:
    """What answers the reply at `index`: the tool results after it, or one user message."""
    end = index + 1
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    if end == index + 1 and end < len(messages) and messages[end].role == "user":
        end += 1
    return messages[index + 1 : end]


def _context_step(message: Message, *, copied: bool, summary: bool) -> dict[str, Any]:
    source = {"system": "system", "assistant": "agent"}.get(message.role, "user")
    step: dict[str, Any] = {"source": source, "message": message.content}
    if copied:
        step["is_copied_context"] = True
    extra: dict[str, Any] = {}
    if summary:
        extra["summary"] = True  # what the rewrite put in place of the dropped messages
    if message.name or message.tool_calls or message.role == "tool":
        extra["message"] = messages_to_rows((message,))[0]
    if extra:
        step["extra"] = {"agentgym": extra}
    return step


def _agent_step(
    trajectory: Trajectory, segment: Segment, message: Message, replies: list[Sampled], answers: Conversation
) -> dict[str, Any]:
    """A reply that was sampled here, with its tokens, calls and answer."""
    index = _step_of(replies)
    taken = trajectory.steps[index] if index is not None else None
    step: dict[str, Any] = {
        "source": "agent",
        "message": message.content,
        "llm_call_count": len(replies),
        "metrics": _metrics(segment, replies, taken),
    }
    extra: dict[str, Any] = {"sampled": [_without(asdict(r), "message") for r in replies]}
    if message.name or message.tool_calls:
        extra["message"] = messages_to_rows((message,))[0]
    if all(reply.superseded or reply.masked for reply in replies):
        step["is_copied_context"] = True  # never acted on, or left out on purpose: nobody is to train on it
    results: list[dict[str, Any]] = []
    if taken is not None and taken.calls:
        ids = [f"{index}.{k}" for k in range(len(taken.calls))]
        step["tool_calls"] = [_tool_call(id_, call) for id_, call in zip(ids, taken.calls, strict=True)]
        results = [
            {"source_call_id": id_, "content": call.text} for id_, call in zip(ids, taken.calls, strict=True)
        ]
    elif answers:
        results = [{"content": answer.content} for answer in answers]
    elif taken is not None and taken.kind == "turn":
        results = [{"content": taken.observation}]
    if results:
        step["observation"] = {"results": results}
    extra["answers"] = messages_to_rows(answers)
    if taken is not None:
        extra["step"] = {"index": index} | _step_row(taken)
        if taken.action != message.content:  # the reply continued a message that was begun
            extra["action"] = taken.action
    step["extra"] = {"agentgym": extra}
    return step


def _step_of(replies: Sequence[Sampled]) -> int | None:
    """The step behind a message: of several replies that continue one message, the first one's."""
    return next((reply.step for reply in replies if reply.step is not None), None)


def _metrics(segment: Segment, replies: list[Sampled], step: Step | None) -> dict[str, Any]:
    start, stop = replies[0].start, replies[-1].stop
    known = bool(segment.token_ids)
    metrics: dict[str, Any] = {
        "prompt_tokens": step.prompt_tokens if step is not None else start,
        "completion_tokens": step.sampled_tokens if step is not None else stop - start,
    }
    if known:
        metrics["prompt_token_ids"] = segment.token_ids[:start]
        metrics["completion_token_ids"] = segment.token_ids[start:stop]
    if segment.logprobs:
        metrics["logprobs"] = segment.logprobs[start:stop]
    return metrics


def _tool_call(id_: str, call: Call) -> dict[str, Any]:
    rest = _without(asdict(call), "name", "arguments", "text")
    return {
        "tool_call_id": id_,
        "function_name": call.name,
        "arguments": call.arguments,
        "extra": {"agentgym": rest},
    }


def _step_row(step: Step) -> dict[str, Any]:
    return _without(asdict(step), "action", "calls", "prompt_tokens", "sampled_tokens")


def _embed(host: dict[str, Any], document: dict[str, Any], first_step: int) -> None:
    """Put a sub-agent's document into its parent's, and a reference into the reply that came before it."""
    host.setdefault("subagent_trajectories", []).append(document)
    before = [s for s in host["steps"] if _step_index(s) is not None and _step_index(s) < first_step]  # type: ignore[operator]
    if before:
        results = before[-1].setdefault("observation", {"results": []})["results"]
        results.append({"subagent_trajectory_ref": [{"trajectory_id": document["trajectory_id"]}]})


def _step_index(step: Mapping[str, Any]) -> int | None:
    index: int | None = step.get("extra", {}).get("agentgym", {}).get("step", {}).get("index")
    return index


def _final_metrics(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "total_prompt_tokens": sum(step.prompt_tokens for step in trajectory.steps),
        "total_completion_tokens": sum(step.sampled_tokens for step in trajectory.steps),
        "total_steps": len(trajectory.steps),
        "extra": {"agentgym": {"reward": trajectory.reward, "resolved": trajectory.resolved}},
    }


def _rest(trajectory: Trajectory) -> dict[str, Any]:
    """Everything of the trajectory that no step and no segment's document holds."""
    row = to_dict(trajectory)
    told = {
        _step_of([r for r in s.sampled if r.message == m])
        for s in trajectory.segments
        if s.cause != "retry"
        for m in {r.message for r in s.sampled}
    }
    steps: Sequence[dict[str, Any]] = row.pop("steps")
    row["other_steps"] = [{"index": k} | step for k, step in enumerate(steps) if k not in told]
    row["retries"] = [segment for segment in row.pop("segments") if segment["cause"] == "retry"]
    return row


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}


def _file_name(trajectory_id: str) -> str:
    return f"{safe_label(trajectory_id)}.json"
