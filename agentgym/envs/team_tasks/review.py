"""Review-v0: an author repairs a repository, a reviewer lets the change in or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium

from agentgym.delegation.crew import cut
from agentgym.delegation.places import agent_env_of, layer_of
from agentgym.episode import Verdict
from agentgym.errors import InfrastructureError, UsageError, refuse_keywords, whole_number
from agentgym.parallel import Answer, TextParallelEnv
from agentgym.registration import require
from agentgym.tasks import FrozenDict, Task
from agentgym.tools import Next, ToolCall, ToolResult, tool, tools_of

AUTHOR, REVIEWER = "author_0", "reviewer_0"

_WRITES = ("edit", "create", "submit")  # what the reviewer is not offered
_LONGEST_COMMENT = 2000  # characters of it that the author reads
_IDLE = "There is nothing to review yet. What you write is not read."
_PENDING = "Your change is being reviewed. What you write is not read."
_FOR_AUTHOR = (
    "What you submit is first read by a reviewer, who lets it in or refuses it with a comment. Refused, you go on from "
    "where you are."
)
_FOR_REVIEWER = (
    "You review changes to a repository before they are let in. You read what was to be done and what was changed; you "
    "can look around and run commands in a copy of the author's folder, which nobody sees but you. Accept a change "
    "that does what was asked and breaks nothing; veto any other, and say why. The repository's tests may not show it."
)


class Review(NamedTuple):
    """One submission, judged twice.

    Attributes:
        verdict: what the hidden tests say. Neither agent sees it before the end.
        accepted: what the reviewer said; None if it did not say.
    """

    verdict: Verdict
    accepted: bool | None

    @property
    def right(self) -> bool:
        """Whether the reviewer said what the tests say."""
        return self.accepted is self.verdict.passed


class _Decision:
    """The two calls by which the reviewer decides; a new one for each review."""

    def __init__(self) -> None:
        self.accepted: bool | None = None
        self.comment = ""

    @tool
    def accept(self, comment: str = "") -> str:
        """Let the change in. This ends the task.

        Args:
            comment: for the author.
        """
        self.accepted, self.comment = True, comment
        return "The change is let in."

    @tool
    def veto(self, comment: str) -> str:
        """Refuse the change.

        Args:
            comment: what is wrong; the author reads it.
        """
        self.accepted, self.comment = False, comment
        return "The change is refused."


class ReviewEnv(TextParallelEnv):
    """Repair a repository under review: two agents, of whom the second has a veto.

    ## Description
    The author works on a task of SWE-v0. When it submits, the reviewer reads the problem and the change, may look
    around and run commands in a copy of the author's folder, and accepts or vetoes. After a veto the author reads the
    comment and goes on. Hidden tests judge every submission; nobody learns their verdict before the end.

    ## Agents and rounds
    `author_0` and `reviewer_0`. One of them acts in each round; the other has ``info["waits"]``.

    ## Actions
    Of the author: the calls of the base environment; ``submit`` asks for a review. Of the reviewer: those of the base's
    calls that do not write (``bash``, ``view``, ``search``), ``accept(comment)`` and ``veto(comment)``. What the
    reviewer's commands change is thrown away after the review.

    ## Observations
    ``{"text": ...}``: what the tools answer; for the reviewer also the change as a diff, cut in the middle where it is
    longer than `diff_chars`; for the author also the reviewer's comment.

    ## Reward
    0 before the end. The author gets the score of its submission if it was accepted, else 0. The reviewer gets the
    share of its decisions that were right: a change accepted that passes the hidden tests, or vetoed that does not. Not
    to decide within `review_turns` turns lets nothing in, and is not right.

    ## Episode end
    Terminated when a change is accepted, or the last of `submissions` refused. An author whose turns or time run out
    has submitted what is there; a veto is then the last word. Truncated after `max_cycles` rounds.

    Args:
        base: id of the environment, whose verdict has the change in its evidence, as `patch`.
        base_kwargs: its keywords, for both agents; `max_turns` and `max_seconds` are the author's.
        submissions: how many the author has.
        review_turns: turns the reviewer has for each.
        diff_chars: longest diff that the reviewer is shown.
        max_cycles: the episode is truncated after so many rounds (default: as many as all these turns).
        render_mode: "ansi" or None.

    ## Version history
    v0: first.
    """

    metadata = {**TextParallelEnv.metadata, "name": "agentgym/Review-v0"}
    possible_agents = [AUTHOR, REVIEWER]
    snapshot_exclude = frozenset("_stacks author reviewer submissions review_turns diff_chars".split())

    def __init__(
        self,
        *,
        base: str = "agentgym/SWE-v0",
        base_kwargs: Mapping[str, Any] | None = None,
        submissions: int = 2,
        review_turns: int = 8,
        diff_chars: int = 20_000,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords(type(self), TextParallelEnv, unknown)
        self.submissions = whole_number("submissions", submissions, least=1)
        self.review_turns = whole_number("review_turns", review_turns, least=1)
        self.diff_chars = whole_number("diff_chars", diff_chars, least=200)
        require(base)
        keywords = dict(base_kwargs or {})
        author = gymnasium.make(base, **keywords)
        # One turn more than it can use: the reviewer's own instance never ends, and grades nothing.
        turns = submissions * review_turns + 1
        reviewer = gymnasium.make(base, **keywords | {"max_turns": turns, "max_seconds": None})
        self._stacks = {AUTHOR: author, REVIEWER: reviewer}
        self.author, self.reviewer = agent_env_of(author), agent_env_of(reviewer)
        offered = {each.name for each in self.reviewer.tools}
        if "bash" not in offered:
            raise UsageError(
                f"expected a base with a repository and the tool 'bash', {base} has {sorted(offered)}"
            )
        if self.reviewer.protocol.name == "bash":
            raise UsageError(
                "expected a protocol in which accept and veto can be written; 'bash' knows one tool only"
            )
        self.reviewer.drop_tools([name for name in _WRITES if name in offered])
        self.reviewer.add_tools(tools_of(_Decision), self._decide)
        cycles = self.author.max_turns + submissions * review_turns if max_cycles is None else max_cycles
        super().__init__(tasks=self.author.task_set, split="all", max_cycles=cycles, render_mode=render_mode)
        self.task_pool = self.author.task_pool

    def wrap_base(self, wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]) -> None:
        """Put a wrapper around each agent's base: its calls pass the wrapper's middleware."""
        self._stacks = {agent: wrap(env) for agent, env in self._stacks.items()}

    # -- the episode -----------------------------------------------------------------------------------------------

    def begin(self, task: Task) -> Mapping[str, str]:
        """Both get a copy of the task's repository."""
        self.reviews: list[Review] = []
        self._decision: _Decision | None = None  # of the review that is going on
        self._verdict: Verdict | None = None  # of the submission that is reviewed
        self._review_turn = 0
        self._marks: dict[str, dict[str, Any]] = {AUTHOR: {}, REVIEWER: {}}
        seed = int(self.np_random.integers(1 << 31))
        for env in self._stacks.values():
            env.reset(seed=seed, options={"task": task})
        return {AUTHOR: self.author.episode.prompt, REVIEWER: _IDLE}

    def waits(self, agent: str) -> bool:
        """The author while it is reviewed, the reviewer otherwise."""
        return (agent == AUTHOR) == (self._decision is not None)

    def play(self, actions: Mapping[str, str]) -> Mapping[str, str | Answer]:
        """A turn of the author or of the reviewer."""
        return self._write(actions[AUTHOR]) if self._decision is None else self._review(actions[REVIEWER])

    def verify(self) -> Mapping[str, Verdict]:
        """The author's change if it was let in; the reviewer's decisions."""
        reviews = [*self.reviews]
        # Rounds ran out in the middle of a review
        if self._decision is not None and self._verdict is not None:
            reviews.append(Review(self._verdict, None))
        counts = {
            "submissions": float(len(reviews)),
            "vetoes": float(sum(r.accepted is False for r in reviews)),
        }
        author = Verdict(0.0, components=counts)
        if reviews:
            last = reviews[-1]
            author = Verdict(
                last.verdict.score if last.accepted else 0.0,
                passed=bool(last.accepted) and last.verdict.passed,
                components={**last.verdict.components, **counts},
                held_out=last.verdict.held_out,
                evidence=last.verdict.evidence,
            )
        right = sum(review.right for review in reviews)
        score = right / len(reviews) if reviews else 0.0
        return {AUTHOR: author, REVIEWER: Verdict(score, components=counts | {"right": float(right)})}

    def _write(self, action: str) -> Mapping[str, str | Answer]:
        answer, info = self._step(AUTHOR, action)
        if "verdict" not in info:
            return {AUTHOR: answer, REVIEWER: _IDLE}
        self._verdict, self._decision, self._review_turn = info["verdict"], _Decision(), 0
        self.reviewer.load_workspace(self.author.save_workspace())
        return {AUTHOR: answer._replace(text=f"{answer.text}\n{_PENDING}"), REVIEWER: self._asked()}

    def _step(self, agent: str, action: str) -> tuple[Answer, Mapping[str, Any]]:
        """A turn of an agent in its own environment.

        Raises:
            InfrastructureError: that environment broke.
        """
        text, _, _, _, info = self._stacks[agent].step(action)
        if "infrastructure_error" in info:
            raise InfrastructureError(info["infrastructure_error"])
        for marks in self._marks.values():
            marks.pop("masked", None)  # said of the last reply only
        self._marks[agent] |= {key: info[key] for key in ("hacked", "masked") if key in info}
        return Answer(text, info.get("invalid_action", False), info["calls"]), info

    def _asked(self) -> str:
        """What the reviewer reads of a submission."""
        assert self._verdict is not None
        patch = self._verdict.evidence.get("patch", "")
        change = f"```diff\n{cut(patch, self.diff_chars)}\n```" if patch else "Nothing was changed."
        return (
            f"Submission {len(self.reviews) + 1} of at most {self.submissions}. Accept or veto it within "
            f"{self.review_turns} turns.\n\nThe problem:\n{self.author.episode.prompt}\n\nThe change:\n{change}"
        )

    def _review(self, action: str) -> Mapping[str, str | Answer]:
        decision = self._decision
        assert decision is not None
        assert self._verdict is not None
        answer, _ = self._step(REVIEWER, action)
        self.reviewer.reopen()  # `submit` as a command of bash ends nothing here
        self._review_turn += 1
        if decision.accepted is None and self._review_turn < self.review_turns:
            return {AUTHOR: _PENDING, REVIEWER: answer}
        self.reviews.append(Review(self._verdict, decision.accepted))
        self._decision = None
        self.author.reopen()
        exhausted = self.author.turns_left <= 0 or self.author.seconds_left <= 0
        if decision.accepted or len(self.reviews) == self.submissions or exhausted:
            self.finish()
        return {AUTHOR: self._told(decision), REVIEWER: answer}

    def _told(self, decision: _Decision) -> str:
        """What the author reads of a decision."""
        if decision.accepted is None:
            return "The reviewer did not decide in time, so the change is not let in."
        said = "accepted" if decision.accepted else "refused"
        comment = cut(decision.comment, _LONGEST_COMMENT).strip()
        return f"The reviewer has {said} the change" + (f": {comment}" if comment else ".")

    def _decide(self, call: ToolCall, next: Next) -> ToolResult:
        """Answer the reviewer's own two calls."""
        decision = self._decision
        if decision is not None and decision.accepted is not None:
            return ToolResult("You have decided already.", error=True)
        if call.name not in ("accept", "veto"):
            return next(call)
        assert decision is not None
        return ToolResult(getattr(decision, call.name)(**call.arguments))

    # -- what else an agent is told ------------------------------------------------------------------------------------

    def more_info(self, agent: str) -> dict[str, Any]:
        """What the agent can call, and what a monitor says of it where one watches."""
        env = self.author if agent == AUTHOR else self.reviewer
        return {"tools": env.tools, **self._marks[agent]}

    def instructions_of(self, agent: str) -> str:
        """The base's for the author, and that there is a review; the reviewer's task and its calls."""
        if agent == AUTHOR:
            return f"{self.author.system_prompt}\n\n{_FOR_AUTHOR}"
        return f"{_FOR_REVIEWER}\n\n{self.reviewer.protocol.describe(self.reviewer.tools)}"

    def gold(self, agent: str) -> str:
        """The author's is the base's; the reviewer knows what the hidden tests say."""
        self.task  # noqa: B018  # before the first reset there is none: say so
        if self.waits(agent):
            return ""
        if agent == AUTHOR:
            return self.author.gold()
        assert self._verdict is not None
        if self._verdict.passed:
            call = ToolCall("accept", FrozenDict())
        else:
            call = ToolCall("veto", FrozenDict(comment="The hidden tests do not pass."))
        return self.reviewer.protocol.render_call(call)

    # -- keeping and releasing -----------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Close both sandboxes."""
        self.author.teardown()
        self.reviewer.teardown()

    def save_workspace(self) -> Any:
        """Both agents' environments."""
        return {agent: layer_of(env).snapshot() for agent, env in self._stacks.items()}

    def load_workspace(self, saved: Any) -> None:
        """Both as they were."""
        for agent, env in self._stacks.items():
            layer_of(env).restore(saved[agent])
