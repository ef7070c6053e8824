"""The policy that knows the way: it keeps to the stored walkthrough, and plans anew for whoever has left it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentgym.envs.alfworld.native import load_game
from agentgym.envs.alfworld.planning import planner_of, what_counts
from agentgym.envs.alfworld.relations import State
from agentgym.envs.alfworld.sources import Source, read_game
from agentgym.errors import TaskError


@dataclass(frozen=True, slots=True)
class Guide:
    """One who has watched an episode and knows what to do next. A value, so a snapshot may hold it.

    Attributes:
        source: where the game comes from.
        seen: the commands so far.
        state: what they have led to.
        plan: commands that win from there; empty where none is known yet.
    """

    source: Source
    seen: tuple[str, ...]
    state: State
    plan: tuple[str, ...]

    @classmethod
    def at_start(cls, source: Source) -> Guide:
        """One who has seen nothing yet, and holds the walkthrough."""
        return cls(source, (), load_game(source).start, read_game(source).walkthrough)

    def after(self, commands: Sequence[str]) -> Guide:
        """One who has seen all that an episode's engine was told to do, and has a plan.

        Raises:
            TaskError: no plan wins from there, or the goal is of a kind that is not planned for.
        """
        known = len(self.seen)
        guide = self if tuple(commands[:known]) == self.seen else Guide.at_start(self.source)
        for command in commands[len(guide.seen) :]:
            guide = guide._watching(command)
        if guide.plan:
            return guide
        plan = planner_of(self.source).plan(guide.state)
        if not plan:
            raise TaskError(f"no plan wins the game from here, after {len(commands)} commands")
        return replace(guide, plan=plan)

    def _watching(self, command: str) -> Guide:
        game = load_game(self.source)
        state = game.world.apply(self.state, game.moves(self.state)[command])
        if self.plan and command == self.plan[0]:
            plan = self.plan[1:]
        else:  # who only looks around keeps to the plan
            plan = self.plan if what_counts(state) == what_counts(self.state) else ()
        return Guide(self.source, (*self.seen, command), state, plan)
