"""What of a session an agent sees: one of four observation modes, with history before it where that is wanted."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from agentgym.envs.webshop import html, pages
from agentgym.envs.webshop.session import Session
from agentgym.errors import UsageError, whole_number

ObservationMode = Literal["html", "text", "text_rich", "url"]
OBSERVATION_MODES: tuple[str, ...] = get_args(ObservationMode)


class Reply(NamedTuple):
    """What a step comes to; see `Outcome` for the last three."""

    observation: str
    reward: float
    done: bool
    valid: bool


class Screen:
    """Observations of one session.

    Args:
        mode: "html", "text", "text_rich" or "url".
        num_prev_obs: how many earlier observations stand before the present one.
        num_prev_actions: how many earlier actions.
    """

    session: Session

    def __init__(self, mode: str, *, num_prev_obs: int = 0, num_prev_actions: int = 0) -> None:
        if mode not in OBSERVATION_MODES:
            raise UsageError(f"expected an observation mode of {', '.join(OBSERVATION_MODES)}, got {mode!r}")
        self.mode = mode
        self.num_prev_obs = whole_number("num_prev_obs", num_prev_obs, least=0)
        self.num_prev_actions = whole_number("num_prev_actions", num_prev_actions, least=0)

    def start(self, session: Session) -> str:
        """Show a new session; the first observation."""
        self.session = session
        self._observations = [self.observation]
        self._actions: list[str] = []
        return self._observations[0]

    def step(self, action: str) -> Reply:
        """One action.

        Raises:
            ToolError: where the original breaks; nothing has changed on the screen.
        """
        outcome = self.session.act(action)
        shown = self.observation
        history = max(self.num_prev_obs, self.num_prev_actions)
        if not history:
            return Reply(shown, *outcome)
        self._actions.append(action)
        parts = [shown]
        for back in range(1, 1 + history):
            if back <= min(self.num_prev_actions, len(self._actions)):
                parts.append(self._actions[-back])
            if back <= min(self.num_prev_obs, len(self._observations)):
                parts.append(self._observations[-back])
        self._observations.append(shown)
        return Reply(pages.SEPARATOR.join(reversed(parts)), *outcome)

    @property
    def observation(self) -> str:
        """The page as it stands."""
        session = self.session
        if self.mode == "text":
            return pages.plain_text(session.page)
        if self.mode == "text_rich":
            return pages.rich_text(session.page, session.url, session.visited)
        return html.render(session.page) if self.mode == "html" else session.url
