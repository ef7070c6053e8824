"""A language model as a second judge of a page: it may lower what the steps gave, and judge what no step can.

It reads the trace and a digest of the page, see `agentgym.verifiers.web.claims`. It never raises an item that steps
decide. The items that only it can judge count for at most 30% of the weight and, like all that is no function, only as
far as the page works. Without an answer the steps alone decide.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentgym.endpoint import Endpoint
from agentgym.errors import InfrastructureError, UnusableAnswer, UsageError, whole_number
from agentgym.verifiers.web.claims import Opinion, Question, material_of, question_of, read_ballot, steps_run
from agentgym.verifiers.web.judge import PageVerdict, category_shares
from agentgym.verifiers.web.score import score_of, with_required
from agentgym.verifiers.web.task import Item, WebTask
from agentgym.verifiers.web.trace import Trace

MOST_WEIGHT = 0.3  # of all weight, for items that only a language model judges
_TRIES = 2
_REMEMBERED = 4096  # reviews
_LONGEST = 200  # characters of a reason

Status: TypeAlias = Literal["given", "absent", "unusable", "canary"]


@dataclass(frozen=True, slots=True)
class Review:
    """What the model says of a page.

    Attributes:
        status: "given"; "absent": the endpoint gave no answer; "unusable": its answers were not what was asked for,
            which a page can bring about; "canary": it affirmed what is certainly false, so nothing it said counts.
        lowered: items that passed by steps and do not pass by the model, with its reason.
        items: of the items only a model can judge, whether each passes. Unless the status is "given", none does.
        refused: answers that were not taken since they cite no step that was run.
        problem: why there is no review; "" if there is one.
    """

    status: Status
    lowered: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[str, bool] = field(default_factory=dict)
    refused: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """As it stands in the flags of a verdict; what is empty is left out."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ({}, 0, "")}


@dataclass(slots=True)
class JudgeCounts:
    """What a `PageJudge` was asked, and what came of it.

    Attributes:
        pages: that were asked about; those remembered are no question.
        remembered: pages that were the same as one before, with the same trace.
        votes: answers that could be read.
        absent, unusable, canary: pages by the status of their review.
        malformed: answers that were JSON but not of the form asked for. Answers that were no JSON are counted by the
            endpoint, as ``parse_failures``.
        refused: opinions without evidence.
        lowered: items.
    """

    pages: int = 0
    remembered: int = 0
    votes: int = 0
    absent: int = 0
    unusable: int = 0
    canary: int = 0
    malformed: int = 0
    refused: int = 0
    lowered: int = 0


@dataclass
class PageJudge:
    """Asks a language model about pages. May be used from many threads.

    Attributes:
        endpoint: of the model.
        votes: how often it is asked when its first answer would lower an item; the majority decides each.
        counts: of all pages.
    """

    endpoint: Endpoint
    votes: int = 3
    counts: JudgeCounts = field(default_factory=JudgeCounts)
    _remembered: dict[str, Review] = field(default_factory=dict, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole_number("votes", self.votes, least=1)

    def review(
        self,
        task: WebTask,
        trace: Trace,
        verdict: PageVerdict,
        files: Mapping[str, bytes],
        *,
        shown: str = "",
    ) -> Review:
        """The model's opinion of a page, asked for once for equal pages, traces and tasks.

        Args:
            task: what was run.
            trace: what came of it.
            verdict: what the steps say of it.
            files: of the page.
            shown: its rendered text, where at hand.

        Raises:
            UsageError: the server refuses the key or does not know the model.
        """
        asked = [item for item in task.items if verdict.items[item.id]]
        material = material_of(task, trace, files, shown)
        claims = {item.id: item.text for item in (*asked, *task.llm_items)}
        if not claims:
            return Review("given")
        key = hashlib.sha256(json.dumps([self.endpoint.model, claims, material]).encode()).hexdigest()
        with self._lock:
            if known := self._remembered.get(key):
                self.counts.remembered += 1
                return known
            self.counts.pages += 1
        review = self._ask(claims, material, task, steps_run(trace))
        with self._lock:
            self._count(review)
            if review.status in ("given", "canary"):  # others may go better the next time
                while len(self._remembered) >= _REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[key] = review
        return review

    def _ask(
        self, claims: Mapping[str, str], material: Mapping[str, Any], task: WebTask, steps: Collection[str]
    ) -> Review:
        only = tuple(item.id for item in task.llm_items)
        nothing = dict.fromkeys(only, False)
        ballots: list[dict[str, Opinion]] = []
        try:
            while len(ballots) < self.votes:
                question = question_of(claims, material)
                ballot = self._vote(question, steps)
                if ballot.pop(question.canary).passes:
                    return Review("canary", items=nothing, problem="the model affirmed a false claim")
                ballots.append({question.items[claim]: opinion for claim, opinion in ballot.items()})
                if not _lowers(ballots[0], only):
                    break
        except UnusableAnswer as error:
            return Review("unusable", items=nothing, problem=str(error))
        except InfrastructureError as error:
            return Review("absent", items=nothing, problem=str(error))
        return _majority(ballots, only)

    def _vote(self, question: Question, steps: Collection[str]) -> dict[str, Opinion]:
        """One answer, by claim; asked again if it has not the form asked for.

        Raises:
            UnusableAnswer: it never has.
        """
        problem = ""
        for _ in range(_TRIES):
            answer = self.endpoint.json(question.messages, {"answers": list}, temperature=0)
            try:
                ballot = read_ballot(answer["answers"], question.claims, steps)
            except ValueError as error:
                problem = str(error)
                with self._lock:
                    self.counts.malformed += 1
                continue
            with self._lock:
                self.counts.votes += 1
            return ballot
        raise UnusableAnswer(f"{self.endpoint.model}: {problem}")

    def _count(self, review: Review) -> None:
        match review.status:
            case "absent":
                self.counts.absent += 1
            case "unusable":
                self.counts.unusable += 1
            case "canary":
                self.counts.canary += 1
        self.counts.refused += review.refused
        self.counts.lowered += len(review.lowered)


def page_judge(model: str | None, base_url: str | None) -> PageJudge | None:
    """The judge that flags ``--judge`` and ``--endpoint`` name; None without a model.

    Raises:
        UsageError: there is an address without a model, or a model and neither address nor key.
        MissingDependency: the package openai is not installed.
    """
    if model is not None:
        return PageJudge(Endpoint(model, base_url=base_url))
    if base_url is not None:
        raise UsageError("expected --judge MODEL beside --endpoint, there is none")
    return None


def combine(task: WebTask, verdict: PageVerdict, review: Review) -> PageVerdict:
    """A verdict by steps, with what a language model says.

    Items it lowers fail, and so does what requires them. Unless the endpoint was absent, the items that only it can
    judge join the score on the side of what is no function, scaled to `MOST_WEIGHT` of all weight where they weigh
    more. So the result is never above what the steps and these items can give, and 0 without function.

    Args:
        task: with its rubric.
        verdict: by steps.
        review: of the same page.

    Returns:
        The verdict; its flag "llm" tells the review.
    """
    upheld = {item: passed and item not in review.lowered for item, passed in verdict.items.items()}
    items = with_required(task.items, upheld)
    further = () if review.status == "absent" else _scaled(task)
    score = score_of((*task.items, *further), {**items, **review.items})
    return dataclasses.replace(
        verdict,
        score=score.score,
        raw=score.raw,
        items=items,
        functional=score.functional,
        other=score.other,
        categories=category_shares(task.items, items),
        flags={**verdict.flags, "llm": review.to_json()},
    )


def _scaled(task: WebTask) -> tuple[Item, ...]:
    """The items of the model: none of them opens the gate, together at most `MOST_WEIGHT` of all weight."""
    most = sum(item.weight for item in task.items) * MOST_WEIGHT / (1 - MOST_WEIGHT)
    weight = sum(item.weight for item in task.llm_items)
    scale = min(1.0, most / weight) if weight else 1.0
    return tuple(
        dataclasses.replace(item, category="content", weight=item.weight * scale) for item in task.llm_items
    )


def _lowers(ballot: Mapping[str, Opinion], only: Collection[str]) -> bool:
    return any(opinion.cited and not opinion.passes for item, opinion in ballot.items() if item not in only)


def _majority(ballots: Sequence[Mapping[str, Opinion]], only: Collection[str]) -> Review:
    """What more than half of the votes say; opinions without evidence lower nothing and pass nothing."""
    lowered, passed = {}, {}
    for item in ballots[0]:
        opinions = [ballot[item] for ballot in ballots]
        if item in only:
            passed[item] = 2 * sum(each.cited and each.passes for each in opinions) > len(opinions)
            continue
        against = [each for each in opinions if each.cited and not each.passes]
        if 2 * len(against) > len(opinions):
            lowered[item] = " ".join(against[0].reason.split())[:_LONGEST]
    refused = sum(not opinion.cited for ballot in ballots for opinion in ballot.values())
    return Review("given", lowered, passed, refused)
