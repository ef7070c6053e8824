"""An episode of a game: the z-machine that prints the texts, and beside it the rules that say what can be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentgym.envs.textworld.files import GameFiles, read_game
from agentgym.envs.textworld.machine import Answer, Machine
from agentgym.envs.textworld.story import Scene, Story, load_story

_LONGEST_SOLUTION = 500  # commands; the longest challenge needs about 100


@dataclass(frozen=True, slots=True)
class Saved:
    """An episode at one moment, as values that can be pickled.

    Attributes:
        files: the game.
        said: the commands so far.
        trail: the events so far.
        score: points so far.
        won: whether it ended well.
        lost: whether it ended badly.
        machine: the state of the z-machine.
    """

    files: GameFiles
    said: tuple[str, ...]
    trail: tuple[str, ...]
    score: int
    won: bool
    lost: bool
    machine: Any


class Play:
    """One episode of one game.

    Args:
        files: the game.
        story: its rules, where they are known already.

    Attributes:
        story: the game's rules.
        scene: the present state of its world.
        said: the commands so far.
        trail: what was done so far, as the game's events.
        score: points so far.
        won: whether the game ended well.
        lost: whether it ended badly.
    """

    def __init__(self, files: GameFiles, story: Story | None = None) -> None:
        self._files = files
        self._machine = Machine(files.story)
        self.story: Story = load_story(files) if story is None else story
        self.restart()

    def restart(self) -> str:
        """Begin anew; returns the first text."""
        text = self._machine.restart()
        self.scene: Scene = self.story.start
        self.said: tuple[str, ...] = ()
        self.trail: tuple[str, ...] = ()
        self.score = 0
        self.won = self.lost = False
        return text

    def is_of(self, files: GameFiles) -> bool:
        """Whether this is an episode of that game."""
        return self._files == files

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.won or self.lost

    def send(self, command: str) -> Answer:
        """What the game answers to a command; see `Machine.send`."""
        answer = self._machine.send(command)
        self.said += (command,)
        for event in answer.events:
            if event in self.scene.events:
                self.scene = self.story.after(self.scene, event)
                self.trail += (event,)
        if answer.score is not None:
            self.score = answer.score
        self.won, self.lost = answer.won, answer.lost
        return answer

    def advice(self) -> str | None:
        """The next command of a way to win from here, as textworld knows it; else of the stored walkthrough.

        None where neither says any more.
        """
        if rest := self.story.rest(self.trail):
            return rest[0]
        plan = self.story.walkthrough
        done = 0
        for command in self.said:
            done += done < len(plan) and command == plan[done]
        return plan[done] if done < len(plan) else None

    def save(self) -> Saved:
        """The episode as it is now."""
        return Saved(
            self._files, self.said, self.trail, self.score, self.won, self.lost, self._machine.save()
        )

    def load(self, saved: Saved) -> None:
        """Go back to a `save` of this game."""
        self._machine.load(saved.machine)
        self.said, self.trail = saved.said, saved.trail
        self.score, self.won, self.lost = saved.score, saved.won, saved.lost
        self.scene = self.story.start
        for event in self.trail:
            self.scene = self.story.after(self.scene, event)

    def __getstate__(self) -> Saved:
        return self.save()

    def __setstate__(self, saved: Saved) -> None:
        Play.__init__(self, saved.files)
        self.load(saved)


def can_be_won(files: GameFiles) -> bool:
    """Whether following the advice wins.

    It does not in every game that textworld generates: where one thing is called "locker" and another "type 0 locker",
    the game never understands which one the shorter name means.
    """
    play = Play(files, Story(read_game(files.game)))  # these files may be about to move: nothing is kept
    while not play.over:
        command = play.advice()
        if command is None or len(play.said) > _LONGEST_SOLUTION:
            return False
        play.send(command)
    return play.won
