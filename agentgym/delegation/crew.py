"""`Crew`: the workers of one environment, what they are told, what they do, what they report."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentgym.core import Next, ToolCall, ToolResult
from agentgym.delegation.calls import NAMES, REPORT, calls_of_a_boss
from agentgym.delegation.places import LEAD, Places, Stack, View, agent_env_of
from agentgym.delegation.roles import Role, RoleSource, read_roles
from agentgym.errors import ToolError, UsageError, nearest, whole_number
from agentgym.protocols import ParseError
from agentgym.tasks import FrozenDict
from agentgym.tools import CallRecord, Tool, checker_for

_MARK = re.compile(r"\[\s*(?=(?:report\s+of|message)\b)", re.IGNORECASE)  # how news begin
NOT_YOURS = "[That ends the task in your copy only. Report what you found.]"


@dataclass(slots=True)
class Job:
    """A task that a worker was given.

    Attributes:
        number: of the delegation, from 1, in order.
        worker: who works.
        boss: who gave the task.
        role: as whom it works.
        task: what it was told.
        depth: 1 below the lead.
        turns: replies it has written, and `tokens` their tokens.
        news: what it reads beside the next answer.
        waits: it does nothing until one of these workers is done.
    """

    number: int
    worker: str
    boss: str
    role: Role
    task: str
    depth: int
    turns: int = 0
    tokens: int = 0
    news: list[str] = field(default_factory=list)
    waits: frozenset[str] = frozenset()
    over: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker's reply led to.

    Attributes:
        text: the answers to its calls; beside them it reads what `Crew.collect_news` gives.
        calls: what it called.
        invalid: its reply could not be read.
        over: its task has ended.
    """

    text: str
    calls: tuple[CallRecord, ...] = ()
    invalid: bool = False
    over: bool = False


class Crew:
    """The workers of an environment.

    It offers the calls ``delegate``, ``wait``, ``message`` and ``cancel`` beside the environment's own tools, and to
    workers ``report``. Who drives it lets the lead act by the environment's `step` and the workers by `act`. Every
    call of a worker passes the middleware of the lead's environment, so that a monitor there sees the whole team as
    one, and is then carried out where the worker acts.

    Args:
        env: the environment, with the wrappers inside of which the crew stands.
        workers: names of those who can be given tasks.
        roles: as which, see `read_roles`.
        view: where they act, see `Places`.
        worker_kwargs: likewise.
        worker_turns: replies a worker may write for one task.
        worker_tokens: tokens of them, together; None: any.
        report_chars: longest report, and longest list of what was taken over; the middle of a longer one is cut.
        depth: how deep tasks may be handed on; with 1 workers have no workers.

    Raises:
        UsageError: an argument makes no sense, or the environment has tools of these names.
    """

    def __init__(
        self,
        env: Stack,
        workers: Sequence[str],
        *,
        roles: RoleSource = None,
        view: View = "copy",
        worker_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        worker_turns: int = 8,
        worker_tokens: int | None = None,
        report_chars: int = 1000,
        depth: int = 1,
    ) -> None:
        self.workers = tuple(workers)
        self.roles = read_roles(roles)
        self.worker_turns = whole_number("worker_turns", worker_turns, least=1)
        self.worker_tokens = (
            None if worker_tokens is None else whole_number("worker_tokens", worker_tokens, least=1)
        )
        self.report_chars = whole_number("report_chars", report_chars, least=1)
        self.depth = whole_number("depth", depth, least=1)
        self.places = Places(env, view, worker_kwargs)
        self._inner = agent_env_of(env)
        if REPORT.name in {tool.name for tool in self._inner.tools}:
            raise UsageError(f"{type(self._inner).__name__} has a tool {REPORT.name!r} of its own")
        self._base_tools = self._inner.tools
        self._boss_tools = calls_of_a_boss(self.roles)
        self._inner.add_tools(self._boss_tools, self.handle)
        self.withheld: frozenset[str] = frozenset()
        self._job_of: dict[str, Job] = {}  # that a worker has now
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget all tasks: a new episode.

        Args:
            seed: of what workers' own instances draw.
        """
        self.dismiss()
        self._seeds = np.random.default_rng(seed)
        self.jobs: list[Job] = []
        self._lead_news: list[str] = []
        self._lead_waits: frozenset[str] = frozenset()
        self.helped: dict[str, int] = {}  # reports that reached a boss, by worker
        self._acting = LEAD

    def dismiss(self) -> None:
        """Stop all workers; what their instances hold is let go."""
        for worker in list(self._job_of):
            self.places.leave(worker)
        self._job_of = {}

    def close(self) -> None:
        """Close the workers' instances."""
        self.places.close()

    # -- who is doing what -----------------------------------------------------------------------------------------

    @property
    def running(self) -> list[Job]:
        """Tasks that are not done, in the order of the workers."""
        return [self._job_of[worker] for worker in self.workers if worker in self._job_of]

    def job(self, worker: str) -> Job | None:
        """What a worker works at; None where it has no task."""
        return self._job_of.get(worker)

    def waits(self, agent: str) -> bool:
        """Whether an agent has nothing to decide now."""
        if agent == LEAD:
            return bool(self._lead_waits) and not self._inner.episode.done
        job = self._job_of.get(agent)
        return job is None or bool(job.waits)

    def collect_news(self, agent: str) -> str:
        """What an agent has not read yet: reports and messages; "" if nothing. It is then read."""
        news = self._news_of(agent)
        text = "\n\n".join(news)
        news.clear()
        return text

    def tools_for(self, job: Job) -> tuple[Tool, ...]:
        """What a worker may call."""
        return (
            *job.role.tools_of(self._base_tools),
            *(self._boss_tools if job.depth < self.depth else ()),
            REPORT,
        )

    def briefing(self, job: Job) -> tuple[str, str]:
        """System prompt and first message of a worker's conversation."""
        inner = self._inner
        lines = [job.role.instructions, inner.protocol.describe(self.tools_for(job))]
        if self._takes_moves(job):
            lines.append("Or write a move of the game, without a call.")
        budget = f"You have {self.worker_turns} messages for this task; end it with report."
        return "\n\n".join([*lines, budget]), job.task

    # -- acting ----------------------------------------------------------------------------------------------------

    def act(self, worker: str, action: str, tokens: int | None = None) -> Outcome:
        """One reply of a worker that has a task.

        Args:
            worker: who.
            action: its message.
            tokens: of the message; by default a quarter of its characters.

        Raises:
            InfrastructureError: what its calls need is broken.
        """
        job = self._job_of[worker]
        job.turns += 1
        job.tokens += -(-len(action) // 4) if tokens is None else tokens
        self._acting = worker
        try:
            text, calls, invalid = self._run(job, action)
        finally:
            self._acting = LEAD
        out_of = "turns" if job.turns >= self.worker_turns else ""
        if self.worker_tokens is not None and job.tokens >= self.worker_tokens:
            out_of = "tokens"
        if not job.over and not self._inner.episode.done and out_of:
            self._end(job, f"(no report: it ran out of {out_of})", helped=False)
        return Outcome(text, calls, invalid, job.over)

    def stop(self, worker: str, why: str) -> None:
        """End a worker's task from outside, with a report that says why."""
        self._end(self._job_of[worker], f"(no report: {why})", helped=False)

    def handle(self, call: ToolCall, next: Next) -> ToolResult:
        """Middleware of the lead's environment: answers the calls of this module, and carries out workers' calls."""
        acting = self._acting
        if call.name in NAMES:
            try:
                return ToolResult(self._calls[call.name](self, acting, **call.arguments))
            except ToolError as error:
                return ToolResult(str(error), error=True)
        if acting == LEAD or self.places.view == "shared":
            return next(call)
        there = agent_env_of(self.places.env(acting))
        result = there.run_call(call).result
        if there.episode.done:  # who ends the task is the lead, in its own
            there.episode.done = False
            result = result._replace(text=f"{result.text}\n{NOT_YOURS}")
        return result

    # -- snapshots -------------------------------------------------------------------------------------------------

    _kept = tuple("jobs _job_of _lead_news _lead_waits _seeds helped withheld".split())

    def snapshot(self) -> dict[str, Any]:
        """All tasks and where the workers act."""
        state = copy.deepcopy({name: getattr(self, name) for name in self._kept})
        return {"state": state, "places": self.places.snapshot(list(self._job_of))}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go back to a `snapshot`."""
        self.places.restore(saved["places"])
        for name, value in copy.deepcopy(saved["state"]).items():
            setattr(self, name, value)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _takes_moves(self, job: Job) -> bool:
        """Whether the worker may write moves, in an environment that takes them."""
        return not self._base_tools and not (job.role.looks_only and self.places.view == "shared")

    def _run(self, job: Job, action: str) -> tuple[str, tuple[CallRecord, ...], bool]:
        """Read a worker's calls and run them; nothing runs unless all are well formed."""
        protocol, checker = self._inner.protocol, checker_for(self.tools_for(job))
        try:
            calls = protocol.parse(action, checker)
        except ParseError as error:
            if not self._takes_moves(job):
                return protocol.render_invalid(str(error)), (), True
            record = self._inner.run_call(ToolCall("act", FrozenDict(text=action)))
            return record.result.text, (record,), record.result.error and not record.result.blocked
        problems = [problem for call in calls if (problem := checker.problem(call))]
        if problems:
            return protocol.render_invalid("; ".join(problems)), (), True
        records = []
        for call in calls:
            records.append(self._inner.run_call(call))
            if job.over or self._inner.episode.done:
                break
        return protocol.render_results(records), tuple(records), False

    def _news_of(self, agent: str) -> list[str]:
        return self._lead_news if agent == LEAD else self._job_of[agent].news

    def _worker_of(self, boss: str, worker: str) -> Job:
        mine = {job.worker: job for job in self.running if job.boss == boss}
        if worker not in mine:
            raise ToolError(
                f"nobody called {worker!r} works for you now; there are: {', '.join(mine) or 'none'}"
            )
        return mine[worker]

    def _delegate(self, boss: str, task: str, role: str) -> str:
        if role not in self.roles:
            raise ToolError(f"there is no role {role!r}.{nearest(role, self.roles)}")
        above = 0 if boss == LEAD else self._job_of[boss].depth
        worker = next((name for name in self.workers if name not in self._job_of), None)
        if worker is None:
            raise ToolError(f"all {len(self.workers)} workers have a task; wait for one, or cancel one")
        job = Job(len(self.jobs) + 1, worker, boss, self.roles[role], task, above + 1)
        self.places.open(worker, boss, int(self._seeds.integers(1 << 31)), merges=job.role.merges)
        self.jobs.append(job)
        self._job_of[worker] = job
        return f"{worker} has begun."

    def _wait(self, boss: str, worker: str | None = None) -> str:
        if worker is None and self._news_of(boss):  # it came in this very round
            return "There is something to read."
        if worker is not None:
            awaited = frozenset({self._worker_of(boss, worker).worker})
        else:
            awaited = frozenset(job.worker for job in self.running if job.boss == boss)
        if not awaited:
            raise ToolError("nobody works for you now")
        if boss == LEAD:
            self._lead_waits = awaited
        else:
            self._job_of[boss].waits = awaited
        return "You wait."

    def _message(self, boss: str, worker: str, text: str) -> str:
        self._worker_of(boss, worker).news.append(f"[Message] {unmarked(text)}")
        return f"{worker} will read it."

    def _cancel(self, boss: str, worker: str) -> str:
        self._close(self._worker_of(boss, worker))
        return f"{worker} was stopped."

    def _report(self, worker: str, text: str) -> str:
        if worker == LEAD:
            raise ToolError("report is for workers")
        self._end(self._job_of[worker], text, helped=True)
        return "Your report was taken."

    _calls: dict[str, Callable[..., str]] = {
        "delegate": _delegate,
        "wait": _wait,
        "message": _message,
        "cancel": _cancel,
        "report": _report,
    }

    def _end(self, job: Job, text: str, *, helped: bool) -> None:
        """A worker is done: bring its report, and its changes where its role says so."""
        if job.worker in self.withheld:
            text, helped = "(no report)", False
        elif helped:
            self.helped[job.worker] = self.helped.get(job.worker, 0) + 1
        report = [f"[Report of {job.worker}] {cut(unmarked(text), self.report_chars)}"]
        if helped and job.role.merges and (line := self.places.merge(job.worker, job.boss)):
            report.append(cut(unmarked(line), self.report_chars))  # it names files, as the worker called them
        self._close(job)
        self._news_of(job.boss).append("\n".join(report))

    def _close(self, job: Job) -> None:
        """Stop a worker and those that work for it; who waits for it waits no more."""
        for below in [each for each in self.running if each.boss == job.worker]:
            self._close(below)
        job.over = True
        del self._job_of[job.worker]
        self.places.leave(job.worker)
        if job.boss == LEAD and job.worker in self._lead_waits:
            self._lead_waits = frozenset()
        elif job.boss != LEAD and job.boss in self._job_of and job.worker in self._job_of[job.boss].waits:
            self._job_of[job.boss].waits = frozenset()


def unmarked(text: str) -> str:
    """The text so that nothing in it looks like a report or a message of somebody else: ``[quoted Report of ...``."""
    return _MARK.sub("[quoted ", text)


def cut(text: str, most: int) -> str:
    """The text with at most `most` characters, and a mark that says how many are missing from its middle."""
    if len(text) <= most:
        return text
    head = (most + 1) // 2
    return f"{text[:head]}[... {len(text) - most} characters cut ...]{text[len(text) - (most - head) :]}"
