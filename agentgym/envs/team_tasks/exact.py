"""The hidden-number game solved exactly, by enumerating everything that the lead can have heard.

All numbers are fractions, so that "reaches the optimum" is an equality.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from agentgym.errors import UsageError, whole_number

Heard: TypeAlias = tuple[int | None, ...]
"""By scout: the number it said, 0 if what it said is no number, None before it was asked."""

Policy: TypeAlias = Callable[[Heard], str]
"""A lead: what it has heard -> ``ask scout_I`` or ``answer N``."""

_MOST_STATES = 20_000  # of what the lead can have heard


def scout(index: int) -> str:
    """The name of a scout."""
    return f"scout_{index}"


class HiddenNumberGame:
    """The rules, and what they make the best play worth.

    A number from 1 to `numbers` is hidden, each with the same chance. Scout `i` sees it with probability
    `accuracies[i]`, otherwise one of the other numbers, each with the same chance; scouts err independently. The lead
    asks scouts one after the other, each at most once, and answers. A right answer after `k` questions is worth
    ``1 - cost * k``, a wrong one 0.

    Args:
        numbers: how many there are.
        accuracies: one per scout, taken as the decimal fractions they are written as.
        cost: of a question.

    Raises:
        UsageError: a number is out of range, or there are too many scouts and numbers to enumerate.
    """

    def __init__(
        self, numbers: int = 3, accuracies: Sequence[float] = (0.75, 0.75, 0.75), cost: float = 0.05
    ) -> None:
        self.numbers = whole_number("numbers", numbers, least=2)
        self.accuracies = tuple(_fraction("an accuracy", each) for each in accuracies)
        self.cost = _fraction("cost", cost)
        if not self.accuracies:
            raise UsageError("expected accuracies of at least one scout")
        if self.cost * len(self.accuracies) > 1:
            raise UsageError(f"expected cost * scouts <= 1, got {cost} * {len(self.accuracies)}")
        if (states := (numbers + 1) ** len(self.accuracies)) > _MOST_STATES:
            raise UsageError(
                f"expected (numbers + 1) ** scouts <= {_MOST_STATES}, so that the game can be enumerated; got {states}"
            )
        self._all = range(1, numbers + 1)
        self._solved: dict[Heard, tuple[Fraction, tuple[str, ...]]] = {}  # value and best moves

    @property
    def start(self) -> Heard:
        """Nothing has been heard."""
        return (None,) * len(self.accuracies)

    def outcomes(self) -> Iterator[tuple[Fraction, int, tuple[int, ...]]]:
        """Everything that chance can do: probability, hidden number, and what each scout sees."""
        for number in self._all:
            for sightings in itertools.product(self._all, repeat=len(self.accuracies)):
                yield self.chance(sightings, number), number, sightings

    def moves(self, heard: Heard) -> tuple[str, ...]:
        """What the lead may do: the scouts it has not asked, and every answer."""
        asks = (f"ask {scout(i)}" for i, said in enumerate(heard) if said is None)
        return (*asks, *(f"answer {number}" for number in range(1, self.numbers + 1)))

    def chance(self, heard: Heard, number: int) -> Fraction:
        """The probability that `number` is hidden and that the scouts who were asked saw what they said."""
        chance = Fraction(1, self.numbers)
        for accuracy, said in zip(self.accuracies, heard, strict=True):
            if said:  # neither unasked nor no number
                chance *= accuracy if said == number else (1 - accuracy) / (self.numbers - 1)
        return chance

    def _chance_of(self, heard: Heard) -> Fraction:
        return sum((self.chance(heard, number) for number in self._all), Fraction(0))

    def value(self, heard: Heard | None = None) -> Fraction:
        """The expected score of the best lead from here on, with scouts who say what they saw.

        From the start it is the optimum of the whole team: whatever else scouts say is a function of what they saw, so
        a lead can learn no more from it.
        """
        return self._solve(self.start if heard is None else heard)[0]

    def best(self, heard: Heard) -> tuple[str, ...]:
        """The moves that are worth the most."""
        return self._solve(heard)[1]

    def _solve(self, heard: Heard) -> tuple[Fraction, tuple[str, ...]]:
        if heard not in self._solved:
            worths = {move: self.worth_of(move, heard) for move in self.moves(heard)}
            value = max(worths.values())
            self._solved[heard] = value, tuple(move for move, worth in worths.items() if worth == value)
        return self._solved[heard]

    def worth_of(self, move: str, heard: Heard, then: Policy | None = None) -> Fraction:
        """The expected score of a move, followed by the best play or by a lead's.

        Args:
            move: one of `moves`.
            heard: what the lead has heard. What scouts who say what they saw cannot have said is worth nothing.
            then: the lead that plays on; None: the best.
        """
        verb, _, what = move.partition(" ")
        everything = self._chance_of(heard)
        if not everything:
            return Fraction(0)
        if verb == "answer":
            asked = sum(said is not None for said in heard)
            return self.chance(heard, int(what)) / everything * (1 - self.cost * asked)
        index = int(what.removeprefix("scout_"))
        worth = Fraction(0)
        for said in self._all:
            after = (*heard[:index], said, *heard[index + 1 :])
            if chance := self._chance_of(after):
                on = self.value(after) if then is None else self.worth_of(then(after), after, then)
                worth += chance / everything * on
        return worth

    def worth(self, policy: Policy) -> Fraction:
        """The expected score of a lead, with scouts who say what they saw."""
        return self.worth_of(policy(self.start), self.start, policy)


@functools.lru_cache(32)
def solved_game(numbers: int, accuracies: tuple[float, ...], cost: float) -> HiddenNumberGame:
    """The game of these rules; one object, so that what was solved of it is known to all environments."""
    return HiddenNumberGame(numbers, accuracies, cost)


def _fraction(name: str, value: float) -> Fraction:
    try:
        fraction = Fraction(str(value))
    except ValueError:
        raise UsageError(f"expected {name} to be a number, got {value!r}") from None
    if not 0 <= fraction <= 1:
        raise UsageError(f"expected {name} between 0 and 1, got {value!r}")
    return fraction
