"""What a policy is: conversations in, replies out."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentgym.errors import UsageError
from agentgym.messages import Conversation
from agentgym.trajectory.records import Reply

__all__ = ["Policy", "Reply"]


def replies(policy: Policy, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[Reply]:
    """What a policy answers, checked, so that its mistake is told where it is made.

    Args:
        policy: asked once.
        conversations: at least one.
        seeds: one for each, used where the policy takes them.

    Raises:
        UsageError: not one `Reply` for each conversation.
    """
    act: Any = policy.act
    answer = act(conversations, seeds=seeds) if policy.takes_seeds else act(conversations)
    wrong: object = None
    if not isinstance(answer, list | tuple):
        wrong = type(answer).__name__
    elif len(answer) != len(conversations):
        wrong = len(answer)
    else:
        for reply in answer:
            if not isinstance(reply, Reply):
                wrong = f"one of {type(reply).__name__}"
    if wrong is not None:
        raise UsageError(
            f"policy {policy.name!r}: expected a list of {len(conversations)} Reply, got {wrong}"
        )
    return list(answer)


class Policy(abc.ABC):
    """Answers conversations. One object serves many episodes at once, in batches.

    Attributes:
        name: what trajectories and reports call it.
        max_batch: how many conversations `act` should be given at once; 1 if batching brings nothing.
        takes_seeds: `act` has a keyword `seeds`, one int for each conversation, and samples each reply from its own.
        workers: how many episodes to run at once by default; None leaves it to `collect`.
        settings: what replies depend on beside the name, as JSON values; a run resumes only with equal settings.
    """

    name: str = "policy"
    max_batch: int = 1
    takes_seeds: bool = False
    workers: int | None = None
    settings: Mapping[str, Any] = {}

    @abc.abstractmethod
    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply for each conversation, in order.

        Raises:
            InfrastructureError: the model or its server failed; the episodes are marked, never rewarded.
            ContextOverflow: a conversation leaves no room for a reply; says which, before any is answered. Its
                episode ends truncated, the other conversations are asked again.
        """

    def for_episode(self, env: gymnasium.Env[Any, Any], rng: np.random.Generator) -> Policy:
        """The policy to use for one episode of `env`, called after each reset.

        Models return themselves. Scripted policies that look at the environment or keep state return a fresh object.
        """
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """One model serves everybody: a wrapper that holds a policy is copied without it."""
        return self

    def close(self) -> None:
        """Release the model or connection."""
