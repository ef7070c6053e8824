"""Relay-v0: a tiny long-horizon memory task whose values can be computed exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym.core import AgentEnv, Episode, Task, TaskSet, Verdict
from agentgym.errors import TaskError, ToolError, UsageError, whole_number

WORDS = (
    "amber anchor basil beacon cedar cobalt copper coral falcon fennel garnet ginger harbor indigo jasper juniper "
    "lantern linden marble meadow mercury nectar nutmeg orchid pepper pewter quartz saffron timber velvet walnut willow"
).split()
DIRECTIONS = ("north", "east", "south", "west")
_SCENERY = (
    "A gull cries. ",
    "Wet grass. ",
    "Somebody has left a boot here. ",
    "The wind turns. ",
    "Gravel, then mud. ",
    "A dog barks. ",
)


class RelayEnv(AgentEnv):
    """Carry a word over many small decisions and deliver it at the end.

    ## Description
    The first turn reveals a word. Then come `hops` turns at which a signpost names a direction and the policy goes
    somewhere. At the last turn it has to deliver the word. What makes this hard is only the distance: the word stands
    in the answer to the first turn, not in the task, so a rewrite of the conversation that drops old answers loses it,
    and the reward for writing it into a summary comes many decisions later.

    ## Actions
    Plain text: ``take``, then ``go north|east|south|west``, then ``deliver WORD``. `info["admissible_actions"]` lists
    them. Anything else costs a turn, changes nothing and sets `info["invalid_action"]`.

    ## Observations
    The signpost and, with `scenery`, that many characters of irrelevant text, so that a context budget forces as many
    compactions as you want.

    ## Reward
    0 before the end. At the end ``delivered * (1 - slip * mistakes)``, where a mistake is a hop against the signpost.

    ## Episode end
    Terminated by any delivery; truncated after `max_turns` (default: hops + 5, three to spare).

    ## Exact values
    `value` gives the expected return from any state for a policy that errs and recalls with given probabilities;
    with no errors and sure recall it is the optimal value.

    Args:
        hops: decisions between learning the word and needing it.
        choices: how many words are possible (2 to 32); guessing is right with probability 1 / choices.
        slip: what a mistake costs; by default all hops together cost one half.
        scenery: characters of irrelevant text in every answer.
        **kwargs: see `AgentEnv`.

    ## Version history
    v0: first.
    """

    tasks = TaskSet(
        [Task(f"relay-{split}-{n:03}", split=split, data={"number": n + start})
         for split, start, count in (("train", 0, 256), ("test", 1000, 64)) for n in range(count)],
        name="relay",
    )  # fmt: skip

    def __init__(
        self, *, hops: int = 8, choices: int = 16, slip: float | None = None, scenery: int = 0, **kwargs: Any
    ) -> None:
        for name, value, least in (("hops", hops, 0), ("choices", choices, 2), ("scenery", scenery, 0)):
            whole_number(name, value, least=least)
        if choices > len(WORDS):
            raise UsageError(f"expected choices <= {len(WORDS)}, got {choices}")
        self.hops = hops
        self.words = WORDS[:choices]
        self.slip = 0.5 / max(hops, 1) if slip is None else slip
        if not 0.0 <= self.slip * hops <= 1.0:
            raise UsageError(f"expected 0 <= slip * hops <= 1, got slip={slip} with {hops} hops")
        self.scenery = scenery
        if kwargs.get("max_turns") is None:
            kwargs["max_turns"] = hops + 5
        super().__init__(**kwargs)

    def begin(self, task: Task) -> str:
        """Draw the task's word and signposts from its number."""
        number = task.data.get("number")
        if not isinstance(number, int) or number < 0:
            raise TaskError(
                f"expected a relay task with data={{'number': n}}, n >= 0; {task.id!r} has {number!r}"
            )
        rng = np.random.default_rng([number, self.hops, len(self.words)])
        self.word = self.words[rng.integers(len(self.words))]
        self.signs = tuple(DIRECTIONS[i] for i in rng.integers(len(DIRECTIONS), size=self.hops))
        self.taken = False
        self.hop = 0  # hops made
        self.mistakes = 0
        self.delivered = False
        return (
            f"You are a courier. Write 'take' to learn the word you carry. Then follow {self.hops} signposts, one a "
            "turn, with 'go north', 'go east', 'go south' or 'go west'. At the end write 'deliver WORD'. "
            f"The word is one of: {', '.join(self.words)}."
        )

    def respond(self, action: str) -> str:
        """One move."""
        move = " ".join(action.lower().split())
        if move not in self.admissible_actions():
            raise ToolError(f"That is not possible here. Expected: {self._expected()}.")
        verb, _, rest = move.partition(" ")
        if verb == "take":
            self.taken = True
            return self._walk(f"The word you carry is {self.word}.")
        if verb == "go":
            self.mistakes += rest != self.signs[self.hop]
            self.hop += 1
            return self._walk("You walk on.")
        self.delivered = rest == self.word
        self.finish()
        return "Delivered."

    def verify(self, episode: Episode) -> Verdict:
        """Delivered or not, less the mistakes; only a flawless run passes."""
        score = (1.0 - self.slip * self.mistakes) if self.delivered else 0.0
        return Verdict(
            score, components={"delivered": float(self.delivered), "mistakes": float(self.mistakes)}
        )

    def anchor(self) -> str:
        """Position and mistakes; not the word."""
        return f"taken={self.taken} hop={self.hop} mistakes={self.mistakes}"

    def admissible_actions(self) -> tuple[str, ...]:
        """The moves that are possible now."""
        if not self.taken:
            return ("take",)
        if self.hop < self.hops:
            return tuple(f"go {direction}" for direction in DIRECTIONS)
        return tuple(f"deliver {word}" for word in self.words)

    def gold(self) -> str:
        """Follow the signs, deliver the word."""
        self.episode  # noqa: B018  # before the first reset there is none: say so
        if not self.taken:
            return "take"
        return f"go {self.signs[self.hop]}" if self.hop < self.hops else f"deliver {self.word}"

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Skipping the walk, and naming every word at once."""
        walk = ["take", *(f"go {sign}" for sign in self.signs)]
        return {
            "deliver before taking": [f"deliver {self.word}"],
            "deliver before walking": [*walk[:-1], f"deliver {self.word}"],
            "deliver all words": [*walk, "deliver " + " ".join(self.words)],
        }

    def value(self, *, recall: float = 1.0, error: float = 0.0) -> float:
        """Expected return from the present state, exact if turns suffice.

        Args:
            recall: probability that the policy delivers the right word; 1 / choices for one that has forgotten it.
            error: probability of a mistake at each remaining hop.

        With the defaults this is the optimal value of a policy that remembers. Mistakes are independent of recall and
        enter linearly, so V = recall * (1 - slip * (mistakes + error * hops left)).
        """
        if self.episode.done:
            return 0.0  # the return lies behind
        return recall * (1.0 - self.slip * (self.mistakes + error * (self.hops - self.hop)))

    def _walk(self, text: str) -> str:
        if self.hop < self.hops:
            text += f" Signpost {self.hop + 1} of {self.hops} says {self.signs[self.hop]}."
        else:
            text += " You have arrived. Deliver the word."
        if self.scenery:
            start = int(self.np_random.integers(len(_SCENERY)))
            words = "".join(_SCENERY[start:] + _SCENERY[:start])
            text += " " + (words * (self.scenery // len(words) + 1))[: self.scenery]
        return text

    def _expected(self) -> str:
        actions = self.admissible_actions()
        if len(actions) == 1:
            return actions[0]
        return f"{actions[0].split()[0]} and one of {', '.join(action.split()[1] for action in actions)}"
