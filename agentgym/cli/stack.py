"""The flags that describe an environment and the wrappers around it, the same wherever episodes are played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from agentgym.cli.arguments import read_pairs
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Stack:
    """The environment's keywords, its context, its monitor."""

    set: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")]] = ()
    """A keyword of the environment; the value is JSON or text."""
    tasks: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """A file of tasks instead of the environment's own."""
    split: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Which tasks to draw from: train, test, ..., all."""
    max_turns: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Truncate episodes after this many turns."""
    compact: Annotated[int | None, tyro.conf.arg(metavar="TOKENS")] = None
    """Keep the conversation under this budget."""
    reply_tokens: Annotated[int | None, tyro.conf.arg(metavar="TOKENS")] = None
    """With --compact: room kept for the next reply. Default: a quarter of the budget."""
    keep_last: Annotated[int | None, tyro.conf.arg(metavar="TURNS")] = None
    """With --compact: turns that stay as they are. Default: 2."""
    tokens: Annotated[str | None, tyro.conf.arg(metavar="HOW")] = None
    """With --compact: how tokens are counted: chars, hf:NAME, module:attribute. Default: the model's own for a policy
    hf:NAME, else chars, a quarter of the characters."""
    summarizer: Annotated[str | None, tyro.conf.arg(metavar="HOW")] = None
    """With --compact: rule (the default), drop, last, policy (the player), hf:NAME, vllm:NAME, openai:MODEL,
    module:name."""

    prompts: Annotated[str | None, tyro.conf.arg(metavar="FORM")] = None
    """Phrase each turn as one prompt, as published agents' are: alfworld, webshop, search, or text for other worlds."""
    prompt_history: Annotated[int | None, tyro.conf.arg(metavar="TURNS")] = None
    """With --prompts: earlier turns shown. Default: as published, 5, 2 and 4."""
    prompt_template: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """With --prompts: a Python file that assigns the texts, such as a published one. It is read, not run."""

    delegate: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Give the player up to N workers at a time, whom it hands tasks to."""
    worker_policy: Annotated[str | None, tyro.conf.arg(metavar="P")] = None
    """With --delegate: who plays the workers. Default: the player, whose replies as a worker are recorded as well."""
    worker_turns: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """With --delegate: messages a worker may write for one task. Default: 8."""
    worker_view: Annotated[Literal["copy", "own", "shared"] | None, tyro.conf.arg(metavar="VIEW")] = None
    """With --delegate: workers act in a copy of the environment (the default), in one of their own, or in the same."""

    anti_hack: Annotated[Literal["block", "audit"] | None, tyro.conf.arg(metavar="block|audit")] = None
    """Watch every tool call; block: what crosses a line does not run and is answered as if it had found nothing."""
    penalty: Annotated[float | None, tyro.conf.arg(metavar="X")] = None
    """With --anti-hack block: taken off the reward for each blocked call. Default: 0."""
    mask_blocked: bool = False
    """With --anti-hack block: leave replies with a blocked call out of the loss."""

    def keywords(self, policy: str) -> dict[str, Any]:
        """These flags as keywords of `agentgym.rollout.make_env`.

        Models stay texts: `agentgym.rollout.with_models` loads them.

        Args:
            policy: who plays; a budget of tokens is counted as ``hf:NAME`` counts them, where nothing else is said.

        Raises:
            UsageError: flags that contradict each other, or one that means nothing without another.
        """
        return {
            "env_kwargs": self.environment(),
            **self._context(policy),
            **self._prompts(),
            **self._delegation(),
            **self._monitor(),
        }

    def environment(self) -> dict[str, Any]:
        """The keywords of the environment itself.

        Raises:
            UsageError: a keyword that is given twice.
        """
        kwargs = read_pairs(self.set)
        flags = self._given("tasks", "split", "max_turns")
        for twice in kwargs.keys() & flags.keys():
            raise UsageError(f"{twice} is given both by --set and by a flag of its own")
        return kwargs | flags

    def _context(self, policy: str) -> dict[str, Any]:
        details = self._given("reply_tokens", "keep_last", "summarizer", "tokens")
        if self.compact is None:
            for name in details:
                raise UsageError(f"--{name.replace('_', '-')} means something only with --compact TOKENS")
            return {}
        if policy.startswith("hf:"):  # the budget is that model's
            details.setdefault("tokens", policy)
        return {"compact": self.compact} | details

    def _prompts(self) -> dict[str, Any]:
        details = self._given("prompt_history", "prompt_template")
        if self.prompts is None:
            for name in details:
                raise UsageError(f"--{name.replace('_', '-')} means something only with --prompts FORM")
            return {}
        keywords = {name.removeprefix("prompt_"): value for name, value in details.items()}
        return {"prompts": {"form": self.prompts} | keywords}

    def _delegation(self) -> dict[str, Any]:
        details = self._given("worker_policy", "worker_turns", "worker_view")
        if self.delegate is None:
            for name in details:
                raise UsageError(f"--{name.replace('_', '-')} means something only with --delegate N")
            return {}
        if "worker_view" in details:
            details["view"] = details.pop("worker_view")
        return {"delegation": {"max_workers": self.delegate} | details}

    def _monitor(self) -> dict[str, Any]:
        details = self._given("penalty") | ({"mask_blocked": True} if self.mask_blocked else {})
        if self.anti_hack is None:
            for name in details:
                raise UsageError(f"--{name.replace('_', '-')} means something only with --anti-hack block")
            return {}
        return {"anti_hack": self.anti_hack} | details

    def _given(self, *names: str) -> dict[str, Any]:
        """The flags among `names` that the user gave."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}
