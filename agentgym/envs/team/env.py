"""Team-v0: an orchestrator and its workers, in PettingZoo's parallel form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import pettingzoo  # type: ignore[import-untyped, unused-ignore]

from agentgym.core import AgentEnv, Task, Verdict
from agentgym.delegation import LEAD, Crew
from agentgym.delegation.places import View, agent_env_of, layer_of
from agentgym.delegation.roles import RoleSource
from agentgym.episode import expect_verdict
from agentgym.errors import InfrastructureError, UsageError, real_number, refuse_keywords, whole_number
from agentgym.parallel import Answer, TextParallelEnv
from agentgym.registration import require

Credit = Literal["team", "own"]
CREDITS: tuple[Credit, ...] = ("team", "own")

_OF_THE_BASE = frozenset({"tools", "anchor", "admissible_actions"})

IDLE = "You have no task. What you write is not read."
WAITING = "You wait."
_FOR_WORKERS = (
    "You work in a team. Until somebody gives you a task, what you write is not read. With a task you are told what you"
    " can call; when it is done, report."
)


class TeamEnv(TextParallelEnv):
    """An orchestrator and its workers over any environment of this package.

    ## Description
    The orchestrator ``lead_0`` plays the environment `base` as a single agent would, with its tools or its moves.
    Beside them it can give tasks to the workers ``worker_0``, ``worker_1``, ...: a worker sees nothing but the task's
    text, acts in a view of the environment, and reports. The episode ends when the orchestrator ends the base's task.

    ## Agents and rounds
    All agents are there from the beginning to the end. In a round first the workers act, in their order, then the
    orchestrator; everybody chose before seeing what the others do. A worker without a task, and whoever called
    ``wait``, has ``info["waits"]``: what it writes is not read and may be left out.

    ## Actions
    Of the orchestrator: the base's calls or moves; ``delegate(task, role)``, ``wait(worker)``,
    ``message(worker, text)`` and ``cancel(worker)``. Of a worker: those of the base's calls that its role allows,
    ``report(text)``, and, above the last level of `depth`, the four calls of the orchestrator. A message with several
    calls runs them in order.

    ## Observations
    ``{"text": ...}``: the answers to an agent's calls, and below them reports and messages that came for it. A worker
    that was given a task reads its instructions, its tools and the task.

    ## Where workers act
    `view` "copy": in a copy of the base as it was when the task was given. Nobody else sees what it changes there;
    where the base has files in a sandbox (SWE-v0), those of a role that merges are put into the giver's files with the
    report, all or, where they do not fit, none. "own": in an instance of its own that begins the same task; then
    `worker_kwargs` can give each other keywords. "shared": in the orchestrator's own; who ends the task there ends it
    with the orchestrator's next turn.

    ## Reward
    0 before the end. With credit "team" every agent gets the score of the base's verdict. With "own" the orchestrator
    does, and a worker gets the same score if a report of its reached whoever gave it the task, else 0, less `turn_cost`
    for each of its replies, at least 0. The verdict's components have both numbers for each worker. What a worker's
    reports were worth otherwise: see `agentgym.envs.team.counterfactual`.

    ## Episode end
    Terminated when the base's task ends; truncated when the orchestrator has used up the base's turns or after
    `max_cycles` rounds (default: four times those turns).

    Args:
        base: id of the environment.
        workers: how many.
        base_kwargs: keywords of the base.
        worker_kwargs: on top of these, of each worker's instance, in their order; with view "own".
        view: see above.
        roles: what a worker can be, see `agentgym.delegation.read_roles`; by default explorer, coder and tester.
        worker_turns: replies a worker may write for one task.
        worker_tokens: tokens of these replies together, each a quarter of its characters; None: any.
        report_chars: longest report; of a longer one the middle is cut.
        depth: how deep tasks may be handed on; with 1 workers have no workers.
        credit: "team" or "own".
        turn_cost: with credit "own", the price of a worker's reply.
        max_cycles: the episode is truncated after so many rounds.
        render_mode: "ansi" or None.

    ## Version history
    v0: first.
    """

    metadata = {**TextParallelEnv.metadata, "name": "agentgym/Team-v0"}
    snapshot_exclude = frozenset({"base", "crew", "inner", "credit", "turn_cost"})

    def __init__(
        self,
        *,
        base: str = "agentgym/SearchQA-v0",
        workers: int = 2,
        base_kwargs: Mapping[str, Any] | None = None,
        worker_kwargs: Sequence[Mapping[str, Any]] | None = None,
        view: View = "copy",
        roles: RoleSource = None,
        worker_turns: int = 8,
        worker_tokens: int | None = None,
        report_chars: int = 1000,
        depth: int = 1,
        credit: Credit = "team",
        turn_cost: float = 0.0,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords(type(self), TeamEnv, unknown)
        names = [f"worker_{n}" for n in range(whole_number("workers", workers, least=1))]
        if worker_kwargs is not None and not (
            isinstance(worker_kwargs, Sequence)
            and len(worker_kwargs) == workers
            and all(isinstance(each, Mapping) for each in worker_kwargs)
        ):
            raise UsageError(
                f"expected worker_kwargs, a mapping for each of {workers} workers, got {worker_kwargs!r:.60}"
            )
        if credit not in CREDITS:
            raise UsageError(f"expected credit to be one of {', '.join(CREDITS)}, got {credit!r}")
        self.credit = credit
        self.turn_cost = real_number("turn_cost", turn_cost, least=0, most=1)
        require(base)
        if base in pettingzoo.parallel_registry:
            raise UsageError(f"expected the id of an environment for one agent, got {base!r}")
        self.base = gymnasium.make(base, **(base_kwargs or {}))
        self.inner = agent_env_of(self.base)
        self.crew = Crew(
            self.base,
            names,
            roles=roles,
            view=view,
            worker_kwargs=None if worker_kwargs is None else dict(zip(names, worker_kwargs, strict=True)),
            worker_turns=worker_turns,
            worker_tokens=worker_tokens,
            report_chars=report_chars,
            depth=depth,
        )
        self.possible_agents = [LEAD, *names]
        cycles = 4 * self.inner.max_turns if max_cycles is None else max_cycles
        super().__init__(tasks=self.inner.task_set, split="all", max_cycles=cycles, render_mode=render_mode)
        self.task_pool = self.inner.task_pool

    def wrap_base(self, wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]) -> None:
        """Put a wrapper around the base, outside the workers: every call of the team passes its middleware.

        Where it has a method ``verify(episode)``, as `VerifierReward` does, that one judges the team's episodes.
        """
        self.base = wrap(self.base)

    # -- the episode -----------------------------------------------------------------------------------------------

    def begin(self, task: Task) -> dict[str, str]:
        """Begin the base's task; nobody has been given anything yet."""
        self._cut_off = False
        self._masked: frozenset[str] = frozenset()  # whose reply in this round takes no part in a loss
        self._verdict: Verdict | None = None
        text, self._lead_info = self.base.reset(
            seed=int(self.np_random.integers(1 << 31)), options={"task": task}
        )
        self.crew.reset(int(self.np_random.integers(1 << 31)))
        return {LEAD: str(text)} | dict.fromkeys(self.crew.workers, IDLE)

    def play(self, actions: Mapping[str, str]) -> dict[str, Answer]:
        """The workers act, then the orchestrator; then everybody reads."""
        given = len(self.crew.jobs)
        jobs = {job.worker: job for job in self.crew.running}
        # Who had nothing to decide when the round began, whatever it brings.
        waiting = {agent for agent in self.possible_agents if self.waits(agent)}
        answers: dict[str, Answer] = {}
        for worker in self.crew.workers:
            if worker in waiting or self.inner.episode.done:
                continue
            if not jobs[worker].over:  # else it is stopped, or has a new task since, which it has not read
                outcome = self.crew.act(worker, actions[worker])
                answers[worker] = Answer(outcome.text, outcome.invalid, outcome.calls)
        if LEAD not in waiting:
            answers[LEAD] = self._lead_acts(actions[LEAD])
        self._masked = self._masked_by(answers)
        return {agent: self._with_news(agent, answers.get(agent), given) for agent in self.possible_agents}

    def _lead_acts(self, action: str) -> Answer:
        text, _, terminated, truncated, info = self.base.step(action)
        if "infrastructure_error" in info:
            raise InfrastructureError(info["infrastructure_error"])
        self._lead_info = info
        self._verdict = info.get("verdict")
        self._cut_off = truncated
        if terminated:
            self.finish()
        return Answer(str(text), bool(info.get("invalid_action")), info["calls"])

    def _masked_by(self, answers: Mapping[str, Answer]) -> frozenset[str]:
        """Whose reply takes no part in a loss: who made a blocked call, and the orchestrator, who answers for all."""
        if not self.base.has_wrapper_attr("mask_blocked") or not self.base.get_wrapper_attr("mask_blocked"):
            return frozenset()
        blocked = {a for a, answer in answers.items() if any(c.result.blocked for c in answer.calls or ())}
        return frozenset({*blocked, LEAD} if blocked else ())

    def _with_news(self, agent: str, answer: Answer | None, given: int) -> Answer:
        """What an agent reads: the answers to its calls, a new task, reports, messages."""
        job = self.crew.job(agent)
        parts = [] if answer is None else [answer.text]
        if job is not None and job.number > given:
            parts += self.crew.briefing(job)
        if agent == LEAD or job is not None:
            parts.append(self.crew.collect_news(agent))
        elif answer is None:
            parts.append(IDLE)
        text = "\n\n".join(filter(None, parts)) or WAITING
        return Answer(text, calls=()) if answer is None else answer._replace(text=text)

    @property
    def rounds_left(self) -> int:
        """Rounds until truncation; none once the orchestrator has used up the base's turns."""
        return 0 if self._cut_off else super().rounds_left

    def verify(self) -> dict[str, Verdict]:
        """The base's verdict for the orchestrator; for workers according to `credit`."""
        found = self._verdict
        if found is None:  # a limit of rounds, or a worker's end: no step of the base has asked its layers
            judge = self.base.get_wrapper_attr("verify")  # the outermost one
            found = expect_verdict(judge(self.inner.episode), "the base's verify")
        parts = dict(found.components)
        turns = dict.fromkeys(self.crew.workers, 0)
        for job in self.crew.jobs:
            turns[job.worker] += job.turns
        verdicts = {}
        for worker in self.crew.workers:
            helped = self.crew.helped.get(worker, 0)
            parts |= {f"{worker}/reports": float(helped), f"{worker}/turns": float(turns[worker])}
            score = found.score
            if self.credit == "own":
                score = max(0.0, score * bool(helped) - self.turn_cost * turns[worker])
            verdicts[worker] = Verdict(score, found.passed)
        self.crew.dismiss()
        return {LEAD: Verdict(found.score, found.passed, parts, found.held_out, found.evidence)} | verdicts

    # -- what agents are told --------------------------------------------------------------------------------------

    def waits(self, agent: str) -> bool:
        """A worker without a task, and whoever called ``wait``."""
        return self.crew.waits(agent)

    def instructions_of(self, agent: str) -> str:
        """The base's for the orchestrator, with the calls of the team; workers are told more with their tasks."""
        return self.inner.system_prompt if agent == LEAD else _FOR_WORKERS

    def more_info(self, agent: str) -> dict[str, Any]:
        """What the base tells the orchestrator; a worker's tools and sensible moves while it has a task."""
        info: dict[str, Any] = {}
        if self.base.has_wrapper_attr("hacked"):  # a monitor watches: what one did counts as everybody's
            info["hacked"] = self.base.get_wrapper_attr("hacked")
        if agent in self._masked:
            info["masked"] = True
        if agent == LEAD:
            return info | {key: self._lead_info[key] for key in _OF_THE_BASE & self._lead_info.keys()}
        job = self.crew.job(agent)
        if job is None:
            return info
        info["tools"] = self.crew.tools_for(job)
        there = agent_env_of(self.crew.places.env(agent))
        if type(there).admissible_actions is not AgentEnv.admissible_actions:
            info["admissible_actions"] = there.admissible_actions()
        return info

    def gold(self, agent: str) -> str:
        """The orchestrator does all of it by the base's solver."""
        return self.inner.gold() if agent == LEAD else ""

    # -- state -----------------------------------------------------------------------------------------------------

    def save_workspace(self) -> Any:
        """The base and the workers."""
        return layer_of(self.base).snapshot(), self.crew.snapshot()

    def load_workspace(self, saved: Any) -> None:
        """Both as they were."""
        base, crew = saved
        layer_of(self.base).restore(base)
        self.crew.restore(crew)

    def close(self) -> None:
        """Close the base and the workers' instances."""
        self.agents = []
        self.crew.close()
        self.base.close()
