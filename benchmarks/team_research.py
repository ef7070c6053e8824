"""A scripted team and a scripted loner on ResearchTeam-v0.

Both are told which documents to look for and what to compute from them, but must get each document before they may use
it: what they answer is the value of the question's program on what they have read and nothing else. So what the loner
misses is not skill.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pettingzoo  # type: ignore[import-untyped, unused-ignore]

from agentgym.core import Task, ToolCall
from agentgym.envs.search_qa.invented import invented, solution
from agentgym.envs.search_qa.reasoning import Compare, Reader
from agentgym.tasks import FrozenDict

ID = "agentgym/ResearchTeam-v0"
LEAD = "lead_0"
UNKNOWN = "I do not know"
_FOUND = re.compile(
    r"^Doc \d+\(Title: (.*?)\) (.*?)$(?=\nDoc \d+\(Title: |\n</tool_response>)", re.DOTALL | re.MULTILINE
)


class ScriptedTeam:
    """Plays one episode, each agent on what it has read itself.

    The lead gives every worker the titles and searches for them itself; a worker searches and reports what it found;
    the lead waits for all reports, then answers.

    Args:
        env: ResearchTeam-v0, just reset.
        alone: the lead gives no tasks.
    """

    def __init__(self, env: Any, *, alone: bool = False) -> None:
        self.env = env
        question, _ = invented(env.task)
        self.titles = question.supporting
        self.workers = [] if alone else env.possible_agents[1:]
        self.heard: dict[str, list[str]] = defaultdict(list)

    def act(self, agent: str, text: str) -> str:
        """The agent's next message, after it has read `text`."""
        self.heard[agent].append(text)
        return self._lead() if agent == LEAD else self._worker(agent)

    def _lead(self) -> str:
        said = self.heard[LEAD]
        if len(said) == 1:
            task = "\n".join(self.titles)
            return self._write(
                *(("delegate", {"task": task, "role": "explorer"}) for _ in self.workers), *self._searches()
            )
        if "\n".join(said).count("[Report of ") < len(self.workers):
            return self._write(("wait", {}))
        world, program = solution(self.env.task)
        known = [title for title in self.titles if f"(Title: {title})" in "\n".join(said)]
        answers = Reader(world, known).answers(program)
        return self._write(("answer", {"text": next(iter(answers)) if len(answers) == 1 else UNKNOWN}))

    def _worker(self, agent: str) -> str:
        text = self.heard[agent][-1]
        if "<tool_response>" not in text:  # its task
            return self._write(*self._searches())
        found = {title: document for title, document in _FOUND.findall(text) if title in self.titles}
        report = "\n".join(f"(Title: {title}) {document}" for title, document in found.items())
        return self._write(("report", {"text": report or "Nothing."}))

    def _searches(self) -> list[tuple[str, dict[str, str]]]:
        return [("search", {"query": title}) for title in self.titles]

    def _write(self, *calls: tuple[str, dict[str, str]]) -> str:
        render = self.env.inner.protocol.render_call
        return "\n".join(render(ToolCall(name, FrozenDict(arguments))) for name, arguments in calls)


def play(env: Any, task: Task, *, alone: bool = False) -> float:
    """The score of the scripted team, or of its lead alone, on one task."""
    observations, infos = env.reset(seed=0, options={"task": task})
    team = ScriptedTeam(env, alone=alone)
    rewards = {LEAD: 0.0}
    while env.agents:
        actions = {
            agent: team.act(agent, observations[agent]["text"])
            for agent in env.agents
            if "waits" not in infos[agent]
        }
        observations, rewards, _, _, infos = env.step(actions)
    return rewards[LEAD]


def enough(task: Task, parts: int) -> int:
    """How many of the parts that a task's documents are divided into state its answer, each for itself."""
    question, corpus = invented(task)
    world, program = solution(task)
    right = frozenset({question.answers[0]})
    shards = [corpus.shard(question.supporting, part, parts) for part in range(parts)]
    return sum(
        Reader(world, {each.title for each in shard.documents}).answers(program) == right for shard in shards
    )


def guessing(tasks: Sequence[Task]) -> float:
    """What somebody gets who reads nothing but the questions, and knows how often which answer is right.

    One of the two where the question names both; otherwise the most frequent answer to questions of that form.
    """
    frequent: dict[str, Counter[str]] = defaultdict(Counter)
    named = 0
    for task in tasks:
        question, _ = invented(task)
        _, program = solution(task)
        if isinstance(program, Compare) and program.how in ("earlier", "more"):
            named += 1
        else:
            frequent[f"{question.kind} {question.text.split()[0]}"][question.answers[0]] += 1
    return (named / 2 + sum(max(answers.values()) for answers in frequent.values())) / len(tasks)


def research(every: int = 1, workers: int = 2) -> dict[str, Any]:
    """Both on each `every`-th bundled task of all splits."""
    env = pettingzoo.make("parallel", ID, workers=workers, base_kwargs={"split": "all"})
    tasks = list(env.task_set)[::every]
    return {
        "tasks": len(tasks),
        "workers": workers,
        "team": sum(play(env, task) for task in tasks) / len(tasks),
        "alone": sum(play(env, task, alone=True) for task in tasks) / len(tasks),
        "parts that state the answer": sum(enough(task, workers + 1) for task in tasks),
        "guessing": guessing(tasks),
    }
