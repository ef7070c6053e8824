"""`VerifierReward`: a verifier of your own pays in place of the environment's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, SupportsFloat, TypeAlias

import gymnasium

from agentgym.core import AgentWrapper, Episode, Verdict
from agentgym.episode import expect_verdict
from agentgym.errors import InfrastructureError, UsageError
from agentgym.wrappers.tokens import load_attribute

Verifier: TypeAlias = Callable[[Episode], Verdict]


class VerifierReward(AgentWrapper):
    """Judges each finished episode with `verifier`, and pays that instead of the environment's own verdict.

    The verifier sees the episode as the environment's own does: task, turns, workspace. It is asked once, when the
    episode ends for any reason but a broken dependency, after the environment has given its verdict. Where another
    wrapper cuts the episode off, such as Gymnasium's ``TimeLimit``, the environment gives none.

    **Observation, action, ends.** Those of the wrapped environment.

    **Reward.** At the end the environment's, less the score of its verdict where it gave one, plus that of the
    verifier's; before the end the environment's.

    **Info.** ``verdict`` and ``resolved`` are the verifier's. Where it raises `InfrastructureError`, the episode ends
    truncated with ``infrastructure_error`` and reward 0.0.

    Args:
        env: an environment, before the wrappers that make conversations out of it; or an agent's seat, see
            `wrap_agents`.
        verifier: a function from an `Episode` to a `Verdict`, or ``"module:attribute"`` naming one.

    Raises:
        UsageError: `verifier` is none, or the environment keeps no episode.
    """

    snapshot_exclude: ClassVar[frozenset[str]] = frozenset({"_verifier"})

    def __init__(self, env: gymnasium.Env[Any, Any], verifier: Verifier | str) -> None:
        found: Any = load_attribute(verifier, "verifier") if isinstance(verifier, str) else verifier
        if not callable(found):
            raise UsageError(
                f"expected verifier to be a function or 'module:attribute' naming one, got {verifier!r:.60}"
            )
        if not hasattr(type(env.unwrapped), "episode"):
            raise UsageError(
                f"expected an environment of this package, whose episodes can be read; "
                f"{type(env.unwrapped).__name__} keeps none"
            )
        super().__init__(env, verifier=verifier)
        self._verifier: Verifier = found

    def verify(self, episode: Episode) -> Verdict:
        """What the verifier says of an episode, for whoever ends one without a step, as Team-v0 in its last round."""
        return expect_verdict(self._verifier(episode), "the verifier")

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn; the last is paid by the verifier."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated) or "infrastructure_error" in info:
            return observation, reward, terminated, truncated, info
        own = info["verdict"].score if "verdict" in info else 0.0
        try:
            verdict = self.verify(self.unwrapped.episode)  # type: ignore[attr-defined]
        except InfrastructureError as error:
            info = {key: info[key] for key in info.keys() - {"verdict", "resolved"}}
            return observation, 0.0, False, True, info | {"infrastructure_error": str(error)}
        info |= {"verdict": verdict, "resolved": verdict.passed}
        return observation, float(reward) - own + verdict.score, terminated, truncated, info
