"""HiddenNumber-v0: a lead and its scouts find a number; the best play is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from agentgym.envs.team_tasks.exact import Heard, scout, solved_game
from agentgym.episode import Verdict
from agentgym.errors import TaskError
from agentgym.parallel import Answer, TextParallelEnv
from agentgym.tasks import Task, TaskSet

LEAD = "lead_0"
_LONGEST_WORD = 20  # characters of a scout's message that the lead gets


class HiddenNumberEnv(TextParallelEnv):
    """Find a hidden number by asking scouts who may err, at a cost for each question.

    ## Description
    A number is hidden. Each scout has seen it, or, with a known chance, another one. The lead sees nothing: it asks
    scouts one after the other, each at most once, and answers. What makes this a team's game is that the lead depends
    on what the scouts say, and that nobody is told what to say.

    ## Actions
    Of `lead_0`: ``ask scout_1``, or ``answer 2``. Of each scout: any text. In each round all write at once; if the lead
    asks a scout, it reads what this scout wrote in that round, cut to 20 characters. A move of the lead that is not
    possible costs a round and changes nothing.

    ## Observations
    The lead reads the rules and then what the scouts say; each scout reads once what it saw, then whether it was asked.

    ## Reward
    The same for all: 0 before the end, then ``1 - cost * questions`` for a right answer, else 0. `resolved` is a right
    answer.

    ## Episode end
    Terminated by an answer; truncated after `max_cycles` (default: scouts + 4, three to spare).

    ## Exact values
    `game` is the solved game: `game.value()` is the expected score of the best team, `game.worth(policy)` that of any
    lead, both as fractions. By default the seed draws the number and what scouts see; a task with
    ``data={"number": 2, "sightings": [2, 2, 1]}`` fixes both, so that a team can be evaluated on all of
    `game.outcomes()`.

    Args:
        numbers: how many numbers there are.
        accuracies: of each scout, the chance that it saw the hidden number.
        cost: of a question.
        **kwargs: see `TextParallelEnv`.

    ## Version history
    v0: first.
    """

    metadata = {**TextParallelEnv.metadata, "name": "agentgym/HiddenNumber-v0"}
    tasks = TaskSet(  # the same in both splits: chance is the seed's
        [Task(f"hidden-number-{split}", split=split) for split in ("train", "test")], name="hidden number"
    )
    _settings = TextParallelEnv._settings | {"game"}

    def __init__(
        self,
        *,
        numbers: int = 3,
        accuracies: Sequence[float] = (0.75, 0.75, 0.75),
        cost: float = 0.05,
        max_cycles: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.game = solved_game(numbers, tuple(accuracies), cost)
        scouts = [scout(i) for i in range(len(self.game.accuracies))]
        self.possible_agents = [LEAD, *scouts]
        super().__init__(max_cycles=len(scouts) + 4 if max_cycles is None else max_cycles, **kwargs)

    def begin(self, task: Task) -> Mapping[str, str]:
        """Draw the number and what the scouts see, unless the task says it."""
        game, rng = self.game, self.np_random
        if task.data:
            self.number, self.sightings = self._said(task)
        else:
            self.number = 1 + int(rng.integers(game.numbers))
            self.sightings = tuple(self._look(accuracy, rng) for accuracy in game.accuracies)
        self.heard: dict[str, str] = {}  # scout -> what it said
        self._given: int | None = None  # the lead's answer
        percent = ", ".join(
            f"{scout(i)} is right {float(a):.0%} of the time" for i, a in enumerate(game.accuracies)
        )
        prompts = {
            LEAD: f"A number from 1 to {game.numbers} is hidden. Your scouts have seen it, but may err: {percent}. "
            "Write 'ask scout_0' to hear what a scout says, each scout once, or 'answer N' to end. A right answer is "
            f"worth 1, less {float(game.cost):g} for each question.",
        }
        for i, seen in enumerate(self.sightings):
            prompts[scout(i)] = (
                f"A number from 1 to {game.numbers} is hidden. You saw {seen}; you are right "
                f"{float(game.accuracies[i]):.0%} of the time. If the lead asks you, it reads what you write."
            )
        return prompts

    def _said(self, task: Task) -> tuple[int, tuple[int, ...]]:
        number, sightings = task.data.get("number"), task.data.get("sightings")
        possible = range(1, self.game.numbers + 1)
        if (
            not isinstance(number, int)
            or number not in possible
            or not isinstance(sightings, tuple)
            or len(sightings) != len(self.game.accuracies)
            or not all(seen in possible for seen in sightings)
        ):
            raise TaskError(
                f"expected data={{'number': n, 'sightings': [one for each of {len(self.game.accuracies)} scouts]}} with"
                f" numbers from 1 to {self.game.numbers}, or none; {task.id!r} has {dict(task.data)!r:.80}"
            )
        return number, sightings

    def _look(self, accuracy: Fraction, rng: np.random.Generator) -> int:
        if rng.random() < accuracy:
            return self.number
        return 1 + (self.number - 1 + int(rng.integers(1, self.game.numbers))) % self.game.numbers

    def play(self, actions: Mapping[str, str]) -> Mapping[str, str | Answer]:
        """The lead's move; the scouts' messages of this round are what it hears."""
        texts: dict[str, str | Answer] = dict.fromkeys(self.possible_agents, "Nobody asked you.")
        move = " ".join(actions[LEAD].lower().split())
        verb, _, what = move.partition(" ")
        if move not in self.admissible_actions(LEAD):
            texts[LEAD] = Answer(f"That is not possible. Expected: {self._expected()}.", invalid=True)
        elif verb == "ask":
            said = " ".join(actions[what].split())[:_LONGEST_WORD]
            self.heard[what] = said
            texts[LEAD] = f"{what} says: {said}" if said else f"{what} says nothing."
            texts[what] = "You were asked."
        else:
            self._given = int(what)
            self.finish()
            texts |= dict.fromkeys(self.possible_agents, f"The lead answered {what}.")
        return texts

    def verify(self) -> Mapping[str, Verdict]:
        """A right answer, less its questions; the same for everybody."""
        asked, right = len(self.heard), self._given == self.number
        score = float(1 - self.game.cost * asked) if right else 0.0
        parts = {"right": float(right), "questions": float(asked)}
        return dict.fromkeys(self.possible_agents, Verdict(score, passed=right, components=parts))

    def admissible_actions(self, agent: str) -> tuple[str, ...]:
        """The lead's moves; for a scout, the numbers, although it may say anything."""
        if agent == LEAD:
            return self.game.moves(
                tuple(0 if name in self.heard else None for name in self.possible_agents[1:])
            )
        return tuple(str(number) for number in range(1, self.game.numbers + 1))

    def more_info(self, agent: str) -> dict[str, Any]:
        """The anchor: what this agent knows."""
        if agent == LEAD:
            return {"anchor": "; ".join(f"{name}: {said}" for name, said in sorted(self.heard.items()))}
        return {"anchor": f"saw {self.sightings[self.possible_agents.index(agent) - 1]}"}

    def gold(self, agent: str) -> str:
        """The best play: scouts say what they saw, the lead makes the first of the best moves.

        That is the best on average; it is wrong where the scouts are.
        """
        self.task  # noqa: B018  # before the first reset there is none: say so
        if agent != LEAD:
            return str(self.sightings[self.possible_agents.index(agent) - 1])
        return self.game.best(self.understood())[0]

    def understood(self) -> Heard:
        """What the lead has heard, taken at its word; 0 for what is no number, which tells it nothing."""
        numbers = {str(number): number for number in range(1, self.game.numbers + 1)}
        return tuple(
            numbers.get(self.heard[name], 0) if name in self.heard else None
            for name in self.possible_agents[1:]
        )

    def _expected(self) -> str:
        return " or ".join(self.admissible_actions(LEAD))
