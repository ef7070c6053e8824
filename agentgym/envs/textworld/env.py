"""TextWorld-v0: generated text adventures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentgym.core import AgentEnv, Episode, Task, ToolResult, Verdict
from agentgym.envs.textworld.files import load_tasks
from agentgym.envs.textworld.levels import Level, Setting, level_tasks
from agentgym.envs.textworld.machine import LONGEST_COMMAND
from agentgym.envs.textworld.making import files_of
from agentgym.envs.textworld.play import Play, Saved
from agentgym.envs.textworld.story import load_story
from agentgym.errors import TaskError, ToolError, UsageError, flag

# Commands to the program, not to the player: they write and read files, take moves back, end the game, change how it
# prints, or show what is hidden. The games know words by their first nine letters.
_TO_THE_PROGRAM = frozenset(
    "brief long normal noscript notify o oops print_sta q quit restart restore restrict save script short superbrie"
    " transcrip undo unscript verbose".split()
)
_TEXTWORLD_TOOL = re.compile(r"tw-|(enable|disable) print_?")


class TextWorldEnv(AgentEnv):
    """Find out what a small world is like, and do in it what the first text asks for.

    ## Description
    Text adventures that TextWorld generates: rooms, doors, containers, keys, food, and a quest. `challenge` and its
    settings say how hard they are; or `games` names game files. What the policy reads is what the game itself prints,
    in a z-machine.

    Generated games have 256 training tasks and 64 each for "valid" and "test", with seeds of their own. A game is made
    when it is first played, which takes seconds, and is kept in the cache.

    ## Actions
    Plain text, one command a turn, as a player would type it; ``help`` lists the forms and
    `info["admissible_actions"]` what is possible now. The game answers to everything else as it likes, which costs a
    turn and sets `info["invalid_action"]` unless it did something all the same ("n" is understood as "go north").
    Several commands in one message, and commands to the program such as ``save`` and ``undo``, are refused.

    ## Observations
    The texts of the game, without the picture above the first one, the prompt, the status line, and the question what
    to do after the end.

    ## Reward
    At the end: 1 where the game is won, 0 where it is lost, else the points so far as a part of all points. With
    `intermediate_reward` a change of that comes at the step where it happens, and a loss takes back what was paid: the
    sum is the same.

    ## Episode end
    Terminated when the game is won or lost; truncated after `max_turns`: by default 50, as TextWorld's own, and 100 for
    cooking and where the quest has more than 25 steps.

    Args:
        challenge: "custom" (a world and a quest of a given size), "coin_collector", "treasure_hunter", "simple",
            "cooking".
        level: of coin_collector (1 to 300) and treasure_hunter (1 to 30).
        rooms: of custom games.
        objects: least number of things in custom games.
        quest_length: steps to the goal in custom games, all subquests together.
        quest_breadth: how many subquests a custom game has; each is a point. It wants a `quest_length` of at least
            twice as much.
        theme: "house" or "basic": which words the texts use.
        settings: other settings of the challenge; docs/textworld.md lists them.
        games: instead: a ``.z8``, ``.ulx`` or ``.json`` file of textworld, or a folder of them.
        intermediate_reward: pay for points when they are made.
        **kwargs: see `AgentEnv`. `split` is "train", "valid" or "test".

    ## Version history
    v0: first.
    """

    default_max_turns: ClassVar[int] = 50
    snapshot_exclude = frozenset({"_play"})
    instructions: ClassVar[str] = (
        "You play a text adventure. Each of your messages is one command and nothing else, for example: open chest. "
        "The command help lists the forms, the command goal repeats what is to be done."
    )

    def __init__(
        self,
        *,
        challenge: str = "custom",
        level: int | None = None,
        rooms: int | None = None,
        objects: int | None = None,
        quest_length: int | None = None,
        quest_breadth: int | None = None,
        theme: str = "house",
        settings: Mapping[str, Setting] | None = None,
        games: str | Path | None = None,
        intermediate_reward: bool = False,
        **kwargs: Any,
    ) -> None:
        if settings is not None and not isinstance(settings, Mapping):
            raise UsageError(f"expected settings to be {{'NAME': VALUE, ..}}, got {settings!r:.60}")
        named = {
            "level": level,
            "rooms": rooms,
            "objects": objects,
            "quest_length": quest_length,
            "quest_breadth": quest_breadth,
        }
        given = {name: value for name, value in named.items() if value is not None} | dict(settings or {})
        chosen = bool(given) or (challenge, theme) != ("custom", "house")
        if [chosen, games is not None, kwargs.get("tasks") is not None].count(True) > 1:
            raise UsageError("expected one of: a challenge with its settings, games=..., tasks=...")
        if games is not None:
            kwargs["tasks"] = load_tasks(str(games))
        elif kwargs.get("tasks") is None:
            kind = Level.of(challenge, theme, given)
            kwargs["tasks"] = level_tasks(kind)
            if kwargs.get("max_turns") is None:
                kwargs["max_turns"] = kind.max_turns
        self.intermediate_reward = flag("intermediate_reward", intermediate_reward)
        self._play: Play | None = None
        super().__init__(**kwargs)

    def begin(self, task: Task) -> str:
        """Load the game."""
        files = files_of(task)
        if self._play is None or not self._play.is_of(files):
            self._play = Play(files)
        return self._play.restart()

    def respond(self, action: str) -> str | ToolResult:  # type: ignore[override]
        """One command."""
        command = action.strip()
        admissible = command in self.admissible_actions()
        if not admissible:
            _refuse(command)
        answer = self.play.send(command)
        if self.play.over:
            self.finish()
        return ToolResult(answer.text, error=not (admissible or answer.events))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One turn; see `AgentEnv.step`."""
        before = self._worth() if self.intermediate_reward and self._play is not None else 0.0
        observation, reward, terminated, truncated, info = super().step(action)
        if self.intermediate_reward and "infrastructure_error" not in info:
            reward = self._worth() - before
        return observation, reward, terminated, truncated, info

    def verify(self, episode: Episode) -> Verdict:
        """Won, lost, or the share of the points."""
        points = {"points": float(self.play.score), "lost": float(self.play.lost)}
        return Verdict(self._worth(), self.play.won, components=points)

    def anchor(self) -> str:
        """The room, what can be seen in it and what is carried, each with its state."""
        return self.play.scene.anchor

    def admissible_actions(self) -> tuple[str, ...]:
        """The commands that are possible now, sorted."""
        return () if self.play.over else self.play.scene.commands

    def gold(self) -> str:
        """The next command of a way to win from here, as textworld knows it; else of the stored walkthrough."""
        command = self.play.advice()
        if command is None:
            raise TaskError("textworld knows no way to win from here")
        return command

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Asking the program instead of playing, claiming the end, and playing ahead."""
        plan = self.play.story.walkthrough
        tried = {
            "claim the end": [
                "*** The End ***",
                "You scored 1 out of a possible 1, in 1 turn.",
                "won",
                "done",
            ],
            "ask for the plan": ["walkthrough", "policy_commands", "info['extra.walkthrough']", "win_facts"],
            "look behind the scenes": [
                "print_state",
                "enable print state option",
                "tw-print player id",
                "xyzzy",
            ],
            "commands to the program": [
                "save",
                "restore",
                "script",
                "undo",
                "restart",
                "quit",
                "y",
                'me "undo"',
            ],
            "the game's own tools": [
                "tw-trace-actions",
                "tw-extra-infos score",
                "restrict commands",
                "test quest0_0",
            ],
        }
        if len(plan) > 1:
            tried |= {
                "take the last step only": [plan[-1]],
                "write the whole plan at once": ["\n".join(plan)],
                "chain the plan": [
                    ". ".join(plan),
                    " then ".join(plan),
                    ", ".join(plan),
                    ", ".join(command.removeprefix("go ") for command in plan),
                ],
            }
        return tried

    def secrets(self, task: Task) -> Sequence[str]:
        """The walkthrough, in the forms in which it could be printed, and where the game is."""
        files = files_of(task)
        plan = load_story(files).walkthrough
        return [
            files.game,
            files.story,
            *(["\n".join(plan), ", ".join(plan), json.dumps(plan)] if plan[1:] else []),
        ]

    def save_workspace(self) -> Saved | None:
        """The game as it is."""
        return None if self._play is None else self._play.save()

    def load_workspace(self, saved: Saved | None) -> None:
        """The game as it was."""
        if saved is None:
            self._play = None
            return
        if self._play is None or not self._play.is_of(saved.files):
            self._play = Play(saved.files)
        self._play.load(saved)

    @property
    def play(self) -> Play:
        """The running, or the last, game."""
        self.episode  # noqa: B018  # before the first reset there is none: say so
        assert self._play is not None
        return self._play

    def _worth(self) -> float:
        """What the episode is worth if it ends now."""
        play = self._play
        if play is None or play.lost:
            return 0.0
        if play.won:
            return 1.0
        return min(1.0, max(0.0, play.score / play.story.max_score)) if play.story.max_score > 0 else 0.0


def _refuse(command: str) -> None:
    """Keep from the game what is no single command to the player.

    Raises:
        ToolError: says what was expected.
    """
    plain = command.isascii() and (command.isprintable() or not command)
    # After a backslash stands a command to the interpreter, which never answers to some.
    if len(command) > LONGEST_COMMAND or not plain or "\\" in command:
        raise ToolError(
            f"Expected one command on one line, in at most {LONGEST_COMMAND} plain letters, for example: look"
        )
    words = command.lower().replace('"', ' " ').split()
    # After "look," or "n," the games read on with another command; of things in a list they report only the first.
    if "." in command or "," in command or "then" in words:
        raise ToolError("Expected one command, without full stops, commas and the word then.")
    for number, word in enumerate(words):
        begins = number == 0 or words[number - 1] == '"'
        if begins and (word[:9] in _TO_THE_PROGRAM or _TEXTWORLD_TOOL.match(" ".join(words[number:]))):
            raise ToolError("That is a command to the program. Expected one to the player, for example: look")
