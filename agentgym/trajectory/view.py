"""A trajectory as one HTML page for people: self-contained, no network, light and dark.

Everything a policy, a tool or a verifier wrote is escaped text in the page, never markup and never script
data. The page's content security policy allows its one script by hash, so that even an escaping mistake
would run nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from agentgym.errors import MissingDependency
from agentgym.trajectory.records import Call, Event, Segment, Step, Trajectory

COLORS = 8  # segment colors in the template
MOST_CHARACTERS = 100_000  # of one text in the page; the middle of a longer one is left out
_PREVIEW_LINES, _PREVIEW_CHARACTERS = 12, 1200

# What reads as a tool call inside an action, in any of the package's protocols.
_TOOL_CALL = re.compile(
    r"<tool_call>.*?(?:</tool_call>|\Z)|```.*?(?:```|\Z)|^Action(?: Input)?:[^\n]*", re.S | re.M
)
_OUTCOMES = {
    "clean_resolved": ("good", "Resolved"),
    "hacked_resolved": ("bad", "Resolved by a hack"),
    "clean_unresolved": ("plain", "Not resolved"),
    "hacked_unresolved": ("bad", "Not resolved, hacked"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """A text for the page: whole, or its beginning with the rest folded away."""

    full: str
    preview: str  # "" where the text is short enough to be shown whole
    length: int


def render_html(trajectory: Trajectory) -> str:
    """The page.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    script = _resource("view.js.jinja")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page: str = _template().render(
        t=trajectory,
        outcome=_outcome(trajectory),
        facts=_facts(trajectory),
        verdict=_verdict(trajectory),
        prompt=_text(trajectory.prompt),
        bars=_bars(trajectory),
        rows=_rows(trajectory),
        segments=[_segment(trajectory, segment) for segment in trajectory.segments],
        metadata=_metadata(trajectory),
        script=script,
        script_hash=digest,
    )
    return page


@functools.cache
def _template() -> Any:
    """The page's template. Compiling it takes longer than filling it in, and a report has many pages."""
    try:
        import jinja2
    except ImportError:
        raise MissingDependency(
            "the page of a trajectory needs jinja2: pip install 'agentgym-suite[report]'"
        ) from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"count": _count, "seconds": _seconds, "percent": _percent, "plain": _plain}
    return environment.from_string(_resource("view.html.jinja"))


def _resource(name: str) -> str:
    return (resources.files("agentgym.trajectory") / name).read_text(encoding="utf-8")


def write_html(trajectory: Trajectory, path: str | Path) -> Path:
    """Write the page to a file and return its path. A lone surrogate becomes a question mark."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_html(trajectory), encoding="utf-8", errors="replace")
    return path


# -- the top of the page -------------------------------------------------------------------------------------


def _outcome(t: Trajectory) -> tuple[str, str]:
    if t.infrastructure_error:
        return "warn", "Infrastructure failed"
    if t.outcome is not None:
        return _OUTCOMES[t.outcome]
    return "plain", "No verdict"


def _facts(t: Trajectory) -> list[tuple[str, str, str]]:
    """Label, value and small print of the figures at the top."""
    calls = [call for step in t.steps for call in step.calls]
    blocked = sum(call.blocked for call in calls)
    summaries = sum(step.kind == "summary" for step in t.steps)
    prompt = sum(step.prompt_tokens for step in t.steps)
    sampled = sum(step.sampled_tokens for step in t.steps)
    rewrites = sum(event.kind == "compaction" for event in t.events)
    ended = "terminated" if t.terminated else "truncated" if t.truncated else "cut off"
    environment = sum(step.seconds for step in t.steps)
    policy = sum(step.policy_seconds for step in t.steps)
    return [
        ("Reward", "none" if t.reward is None else f"{t.reward:g}", ended),
        ("Turns", _count(t.turns), f"and {_many(summaries, 'summary', 'summaries')}" if summaries else ""),
        ("Segments", _count(len(t.segments)), _many(rewrites, "compaction") if rewrites else "no compaction"),
        ("Calls", _count(len(calls)), f"{_count(blocked)} blocked" if blocked else "none blocked"),
        ("Tokens", _count(sampled), f"sampled; {_count(prompt)} in prompts"),
        ("Time", _seconds(t.seconds), f"policy {_seconds(policy)}, environment {_seconds(environment)}"),
    ]


def _verdict(t: Trajectory) -> dict[str, Any] | None:
    if not t.verdict:
        return None
    return {
        "score": float(t.verdict.get("score", 0.0)),
        "passed": bool(t.verdict.get("passed", False)),
        "components": sorted(dict(t.verdict.get("components", {})).items()),
        "held_out": sorted(dict(t.verdict.get("held_out", {})).items()),
        "evidence": [(name, _text(str(text))) for name, text in dict(t.verdict.get("evidence", {})).items()],
    }


def _metadata(t: Trajectory) -> list[tuple[str, str]]:
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(t.started)) if t.started else ""
    rows = [
        ("Trajectory", t.id),
        ("Environment", t.env_id),
        ("Task", t.task_id),
        ("Seed", "" if t.seed is None else str(t.seed)),
        ("Policy", t.policy),
        ("Started", started),
        ("Environment stack", _pretty(t.env_spec)),
        ("Extra", json.dumps(t.extra, indent=2, ensure_ascii=False) if t.extra else ""),
    ]
    return [(label, value) for label, value in rows if value]


# -- turns ---------------------------------------------------------------------------------------------------


def _bars(t: Trajectory) -> list[dict[str, Any]]:
    """The strip: one bar per step, as high as its prompt was long, in its segment's color."""
    titles = _titles(t)
    sizes = [step.prompt_tokens or int(step.info.get("context_tokens", 0)) for step in t.steps]
    largest = max(sizes, default=0)
    rewritten = {event.step for event in t.events if event.kind == "compaction"}
    bars = []
    for index, (step, size) in enumerate(zip(t.steps, sizes, strict=True)):
        hint = f"{titles[index]}, segment {step.segment}" + (
            f", {_count(size)} tokens of context" if size else ""
        )
        bars.append(
            {
                "index": index,
                "height": round(25 + 75 * size / largest) if largest else 70,
                "color": _color(step.segment),
                "blocked": any(call.blocked for call in step.calls),
                "rewarded": bool(step.reward),
                "summary": step.kind == "summary",
                "rewritten": index in rewritten,
                "hint": hint,
            }
        )
    return bars


def _rows(t: Trajectory) -> list[dict[str, Any]]:
    """Steps and what happened between them, in order."""
    between: dict[int, list[Event]] = {}
    for event in t.events:
        if event.kind != "append":
            between.setdefault(event.step, []).append(event)
    rows = []
    for index, (step, title) in enumerate(zip(t.steps, _titles(t), strict=True)):
        rows += [_event(event) for event in between.pop(index, ())]
        rows.append(_step(index, step, title))
    return rows + [_event(event) for events in between.values() for event in events]


def _step(index: int, step: Step, title: str) -> dict[str, Any]:
    calls = [call for call in step.calls if not _is_plain_move(call, step)]
    answers = [call.text for call in calls]
    return {
        "is": "step",
        "index": index,
        "title": title,
        "step": step,
        "color": _color(step.segment),
        "action": _action_parts(step.action),
        "calls": [_call(call) for call in calls],
        # What the calls' answers say already is folded away, or left out where it is nothing else.
        "observation": None if step.observation.strip() in ("", *answers) else _text(step.observation),
        "observation_folded": bool(calls) and all(answer in step.observation for answer in answers),
        "invalid": bool(step.info.get("invalid_action")),
        "blocked": any(call.blocked for call in step.calls),
        "error": any(call.error or call.exit_code for call in step.calls),
    }


def _titles(t: Trajectory) -> list[str]:
    titles, turns = [], 0
    for step in t.steps:
        turns += step.kind == "turn"
        named = {"turn": f"Turn {turns}", "summary": "Summary", "delegated": f"In turn {turns}: {step.agent}"}
        titles.append(named[step.kind])
    return titles


def _is_plain_move(call: Call, step: Step) -> bool:
    """The one call that a text move is; the action says it already."""
    return call.name == "act" and call.arguments == {"text": step.action} and not (call.blocked or call.note)


def _call(call: Call) -> dict[str, Any]:
    arguments = [
        (name, _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
        for name, value in call.arguments.items()
    ]
    return {"call": call, "arguments": arguments, "result": _text(call.text)}


def _action_parts(action: str) -> list[tuple[bool, Text]]:
    """The action cut into prose and what reads as a tool call."""
    text, parts, end = _shortened(action), [], 0
    for match in _TOOL_CALL.finditer(text):
        parts += [(False, text[end : match.start()]), (True, match[0])]
        end = match.end()
    parts.append((False, text[end:]))
    return [(is_call, _text(part.strip())) for is_call, part in parts if part.strip()]


def _event(event: Event) -> dict[str, Any]:
    # What others keep in events of their own may have any form; it is shown as JSON.
    data = event.data if event.kind == "compaction" else {}
    dropped = data.get("dropped_messages", [])
    summary = data.get("summary", "")
    return {
        "is": "event",
        "kind": event.kind,
        "what": _sentence(event),
        "summary": _text(summary) if summary else None,
        "dropped": [(message.get("role", ""), _text(message.get("content", ""))) for message in dropped],
        "color": _color(event.data.get("segment")),
    }


def _sentence(event: Event) -> str:
    data = event.data
    if event.kind == "compaction":
        parts = [f"History rewritten by “{data['strategy']}”" if "strategy" in data else "History rewritten"]
        if "before_tokens" in data:
            parts.append(f"{_count(data['before_tokens'])} to {_count(data.get('after_tokens', 0))} tokens")
        gone = len(data["dropped_messages"]) if "dropped_messages" in data else data.get("dropped", 0)
        return ", ".join([*parts, f"{_many(gone, 'message')} dropped"])
    known = {
        "delegation": "A sub-agent began",
        "fork": "The history was rewritten and nobody announced it",
        "realign": "The prompt encodes the same messages in other tokens; the sampled ones stay",
        "superseded": "A reply was thrown away",
        "empty_reply": "The reply was empty",
        "context_overflow": f"The model's context was full: {data.get('why', '')}",
    }
    return (
        known.get(event.kind) or f"{event.kind} {json.dumps(data, ensure_ascii=False)[:200] if data else ''}"
    )


# -- segments ------------------------------------------------------------------------------------------------


def _segment(t: Trajectory, segment: Segment) -> dict[str, Any]:
    total, trained = len(segment.token_ids), sum(segment.mask)
    copied = min(segment.copied_tokens, total - trained)
    return {
        "segment": segment,
        "color": _color(segment.index),
        "total": total,
        "trained": trained,
        "copied": copied,
        "share": trained / total if total else 0.0,
        "copied_share": copied / total if total else 0.0,
        "superseded": sum(sampled.superseded for sampled in segment.sampled),
        "reward": sum(segment.rewards),
    }


# -- texts and numbers ---------------------------------------------------------------------------------------


def _text(text: str) -> Text:
    length = len(text)
    text = _shortened(text)
    lines = text.split("\n")
    preview = "\n".join(lines[:_PREVIEW_LINES])[:_PREVIEW_CHARACTERS]
    # Folding away a line or two hides more than it saves.
    whole = len(lines) <= _PREVIEW_LINES + 4 and len(text) <= _PREVIEW_CHARACTERS + 400
    return Text(text, "" if whole else preview, length)


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half, gone = MOST_CHARACTERS // 2, len(text) - MOST_CHARACTERS
    return f"{text[:half]}\n[... {gone:,} characters are left out of this page ...]\n{text[-half:]}"


def _color(segment: Any) -> str:
    return str(segment % COLORS) if isinstance(segment, int) else "none"


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _count(value: int) -> str:
    return f"{value:,}"


def _many(count: int, one: str, more: str = "") -> str:
    return f"{_count(count)} {one if count == 1 else more or one + 's'}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _seconds(value: float) -> str:
    if value >= 100:
        return f"{int(value // 60)} min {value % 60:.0f} s"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
