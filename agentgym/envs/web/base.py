"""What building a page over many turns and in one message have in common: tasks, grading, the audit's hooks."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.core import AgentEnv, Episode, Task, Verdict
from agentgym.envs.web import pages
from agentgym.envs.web.browsers import shared_pool
from agentgym.envs.web.records import bundled_tasks, secrets_of, tasks_of_files, web_task_of
from agentgym.errors import UsageError, flag, whole_number
from agentgym.tasks import TaskSource
from agentgym.verifiers.web.judge import judge, verdict_of
from agentgym.verifiers.web.task import WebTask

INDEX = "index.html"


class PageTasks(AgentEnv):
    """Pages are files in memory; they meet a browser only when they are looked at or judged, in this process.

    Args:
        tasks: the bundled ones, JSON files of the web task format, or tasks as they are.
        zero_on_network: a page that asks for anything from the network gets 0, unless it is but a missing image, style,
            script, font, medium or manifest of its own. The request fails in any case.
        browsers: how many pages this process judges at a time; environments with the same number share them.
        **kwargs: see `AgentEnv`.

    Attributes:
        files: the page so far: text by path.
    """

    files: dict[str, str]

    def __init__(
        self,
        *,
        tasks: TaskSource | None = None,
        zero_on_network: bool = True,
        browsers: int = 1,
        **kwargs: Any,
    ) -> None:
        self.zero_on_network = flag("zero_on_network", zero_on_network)
        self.browsers = whole_number("browsers", browsers, least=1)
        if tasks is None:
            tasks = self.tasks or bundled_tasks()
        super().__init__(tasks=tasks, **kwargs)

    def load_tasks(self, source: TaskSource) -> TaskSource:
        """Read JSON files of the web task format; other sources are taken as they are."""
        if isinstance(source, str | Path) and (Path(source).is_dir() or Path(source).suffix == ".json"):
            return tasks_of_files(Path(source))
        return source

    def begin(self, task: Task) -> str:
        """An empty page, and fresh words for the judge to type, which no page can know."""
        web_task_of(task)  # a task that cannot be judged is an error now, not at the end
        self.files = {}
        self._judge_seed = int(self.np_random.integers(2**31))
        return task.prompt

    def verify(self, episode: Episode) -> Verdict:
        """Use the page as the task's scripts say."""
        if INDEX not in self.files:
            return Verdict(0.0, False, evidence={"page": f"there is no {INDEX}"})
        task = self._web_task
        trace = shared_pool(self.browsers).run(task, self._content(), seed=self._judge_seed)
        verdict = verdict_of(judge(task, trace))
        if self.zero_on_network and trace.outward:
            asked = {"network": ", ".join(trace.outward)}
            return dataclasses.replace(
                verdict, score=0.0, passed=False, evidence={**verdict.evidence, **asked}
            )
        return verdict

    def gold(self) -> str:
        """Hand in the page that comes with the task."""
        return self.next_to_hand_in(self._gold_page())

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Pages that look right, say that they are right, or work where nobody can see it."""
        task, gold = self.episode.task, self._gold_page()
        tempting = {
            "only looks": pages.visual_only(gold),
            "stuffed with words": pages.stuffed(self._web_task),
            "forges what is read": pages.forged(gold, task.prompt),
            "works off-screen": pages.off_screen(gold),
            "works for automation only": pages.automation_only(gold),
            "sends what is typed": pages.exfiltrating(gold),
        }
        return {name: self.actions_to_hand_in(page) for name, page in tempting.items()}

    def secrets(self, task: Task) -> Sequence[str]:
        """Rubric, scripts and gold page."""
        return secrets_of(task)

    @abc.abstractmethod
    def actions_to_hand_in(self, page: str) -> Sequence[str]:
        """The actions that make this the page and end the task."""

    def next_to_hand_in(self, page: str) -> str:
        """The first of them that is still to be done."""
        actions = self.actions_to_hand_in(page)
        return actions[-1] if self.files.get(INDEX) == page else actions[0]

    @property
    def _web_task(self) -> WebTask:
        return web_task_of(self.episode.task)

    def _content(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self.files.items()}

    def _gold_page(self) -> str:
        gold = self.episode.task.data.get("gold")
        if not isinstance(gold, str):
            raise UsageError(f"task {self.episode.task.id!r} comes without a gold page")
        return gold
