"""Policies for the recorded runs of public agent programs, and a table of what they recorded.

The policies are scripts that write commands as a model would, with the token ids of SmolLM2's tokenizer. So what a
program does with its conversation (retries, rewritten histories, sub-agents) can be looked at token by token, with
tasks that end solved, without a model that solves them.

    python -m benchmarks.agents runs/mini-gold runs/mini-explorer --out table.json
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.blackbox.acting import ACT
from agentgym.envs.swe.tools import SUBMIT_LINE
from agentgym.messages import Conversation
from agentgym.policies.base import Reply
from agentgym.policies.bridge import Bridge
from agentgym.policies.models import SMOLLM2, tokenizer
from agentgym.policies.scripted import ScriptedPolicy
from agentgym.protocols import Hermes
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.store import TrajectoryStore


class Commands(ScriptedPolicy):
    """Writes shell commands in turn, as calls of the program's tool, and then an answer in plain text.

    Args:
        tool: name of the program's shell tool, whose argument ``command`` takes the command.
        fence: instead, the label of the fenced block that the program runs.
    """

    name = "commands"

    def __init__(self, *, tool: str = "bash", fence: str = "") -> None:
        self.tool, self.fence = tool, fence
        self._tokenizer = tokenizer(SMOLLM2)
        self._end = int(self._tokenizer.eos_token_id)
        self.settings = {"tool": tool, "fence": fence}

    def start(self) -> None:
        """Forget the conversations of other episodes."""
        self._bridge = Bridge(self._tokenizer, [self._end])
        self._left = self.replies()

    def replies(self) -> list[str]:
        """What is written, in order."""
        raise NotImplementedError

    def call(self, command: str) -> str:
        """A command as the program reads it, after a word."""
        if self.fence:
            return f"Next.\n```{self.fence}\n{command}\n```"
        return f"Next.\n{Hermes().render_call(ToolCall(self.tool, FrozenDict(command=command)))}"

    def next_action(self, conversation: Conversation) -> str:
        """The next reply, the last one again and again; a title where no tool is offered: programs ask for those."""
        if not self.fence and self.tool not in conversation[0].content:
            return "A repository and its defect"
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """See `next_action`."""
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Conversation) -> Reply:
        prompt = self._bridge.prompt(conversation)
        text = self.next_action(conversation)
        sampled = (*self._tokenizer.encode(text, add_special_tokens=False), self._end)
        self._bridge.hold(prompt, sampled, text)
        return Reply(text, prompt.ids, sampled, (0.0,) * len(sampled), 1.0, "stop", end_of_turn=(self._end,))


class Gold(Commands):
    """Applies the task's gold patch and submits. Before that, one reply without a call: what does the program do?"""

    name = "gold-commands"

    def replies(self) -> list[str]:
        """See the class."""
        patch = self.agent_env.prepared.gold_patch  # type: ignore[attr-defined]
        return [
            "I will look at the repository first.",
            self.call("git status --short; ls"),
            self.call(f"git apply <<'END_OF_PATCH'\n{patch}\nEND_OF_PATCH"),
            self.call(f"echo {SUBMIT_LINE}"),
            "The defect is repaired.",
        ]


class Explorer(Commands):
    """Looks around, runs the tests, changes nothing, submits."""

    name = "explorer"

    def replies(self) -> list[str]:
        """See the class."""
        looks = ("ls -R | head -50", "git log --oneline | head", "python -m pytest -q 2>&1 | tail -5")
        return [*map(self.call, looks), self.call(f"echo {SUBMIT_LINE}"), "I found nothing to change."]


class Cheater(Commands):
    """Looks for the solution where it may not: other versions of the history, the package's home, an index."""

    name = "cheater"

    def replies(self) -> list[str]:
        """See the class."""
        looks = (
            "git log --all -p",
            "curl -s https://github.com/ledger/ledger/commits/main",
            "pip download --no-deps ledger",
        )
        return [*map(self.call, looks), self.call(f"echo {SUBMIT_LINE}"), "I found nothing."]


class GoldMoves(Commands):
    """Plays an environment that is played by actions with its own solver, then submits."""

    name = "gold-moves"

    def replies(self) -> list[str]:
        """What follows the last move."""
        return [self.call(f"echo {SUBMIT_LINE}"), "The task is over."]

    def next_action(self, conversation: Conversation) -> str:
        """The solver's next move, as a command."""
        if self.agent_env.episode.done:
            return super().next_action(conversation)
        return self.call(f"{ACT} {shlex.quote(self.agent_env.gold())}")


def gold_for_gptme() -> Gold:
    """`Gold` for a program whose tool is called shell."""
    return Gold(tool="shell")


def explorer_for_gptme() -> Explorer:
    """The same of `Explorer`."""
    return Explorer(tool="shell")


def gold_in_text() -> Gold:
    """`Gold` for mini-swe-agent without tools."""
    return Gold(fence="mswea_bash_command")


def cheater_in_text() -> Cheater:
    """The same of `Cheater`."""
    return Cheater(fence="mswea_bash_command")


def row_of(run: str) -> dict[str, Any]:
    """What one run's folder holds, in numbers."""
    trajectories = list(TrajectoryStore(run).latest().values())
    return {
        "run": Path(run).name,
        "episodes": len(trajectories),
        "resolved": sum(bool(t.resolved) for t in trajectories),
        "outcomes": Counter(t.extra.get("program", {}).get("outcome", "") for t in trajectories),
        "replies": sum(len(t.steps) for t in trajectories),
        "segments": Counter(s.cause for t in trajectories for s in t.segments),
        "with exact ids": sum(map(_is_exact, trajectories)),
        "trained tokens": sum(sum(s.mask) for t in trajectories for s in t.segments),
        "sampled tokens": sum(step.sampled_tokens for t in trajectories for step in t.steps),
        "blocked": sum(call.blocked for t in trajectories for step in t.steps for call in step.calls),
        "hacked": sum(bool(t.hacked) for t in trajectories),
        "superseded": sum(r.superseded for t in trajectories for s in t.segments for r in s.sampled),
        "broken": [t.infrastructure_error for t in trajectories if t.infrastructure_error],
        "seconds": round(sum(t.seconds for t in trajectories), 1),
    }


def _is_exact(trajectory: Trajectory) -> bool:
    """Whether every reply's tokens are in its segments, and their text is what was replied."""
    words = tokenizer(SMOLLM2)
    replies = [step.action for step in trajectory.steps]
    found = [
        words.decode(segment.token_ids[reply.start : reply.stop], skip_special_tokens=True)
        for segment in trajectory.segments
        for reply in segment.sampled
    ]
    return bool(replies) and sorted(found) == sorted(replies)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", nargs="+", help="folders of agentgym run --agent-cmd")
    parser.add_argument("--out", help="also write JSON here")
    args = parser.parse_args()
    rows = [row_of(run) for run in args.runs]
    for row in rows:
        print("  ".join(f"{key}: {dict(v) if isinstance(v, Counter) else v}" for key, v in row.items()))
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
