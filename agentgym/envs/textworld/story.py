"""A game's rules: which actions a state allows, what they do to it, and what of it can be seen."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from agentgym.envs.textworld.files import GameFiles, read_game
from agentgym.envs.textworld.package import GameProgression, Inform7Game, State

CACHED_GAMES = 64
_MOST_SCENES = 5000  # kept of a game; then they are made anew

_PLAYER, _INVENTORY = "P", "I"  # as every game of textworld calls them
_SPOKEN = {_PLAYER: "you", _INVENTORY: "inventory"}


class Scene:
    """A state of the world. It never changes, so any number of episodes and threads share it.

    Attributes:
        facts: what is true.
        commands: what can be done, sorted.
        events: the action that the game means where it reports an event, by the event's text.
        anchor: what can be seen from where the player is, and what is carried: a fact a line, sorted.
    """

    def __init__(self, story: Story, facts: frozenset[Any]) -> None:
        actions = story.actions(facts)
        self.facts = facts
        self.commands = tuple(sorted(set(story.phrase(actions))))
        self.anchor = story.describe(facts)
        # Of several actions that one event may mean it is the most demanding, as textworld has it.
        self.events: dict[str, Any] = {}
        for action in sorted(actions, key=lambda each: -len(each.preconditions)):
            self.events.setdefault(story.event(action), action)


class Story:
    """The rules of a game, shared by all who play it.

    Args:
        game: a ``textworld.Game``.
    """

    def __init__(self, game: Any) -> None:
        self.game = game
        self._names = {key: info.name or _SPOKEN.get(key, key) for key, info in game.infos.items()} | _SPOKEN
        self._phrases = Inform7Game(game)
        self._rules = list(game.kb.rules.values())
        self._changing = {
            each.name for rule in self._rules for each in set(rule.preconditions) ^ set(rule.postconditions)
        }
        self._scenes: dict[frozenset[Any], Scene] = {}
        self.start = self.scene(frozenset(game.world.state.facts))

    @functools.cached_property
    def max_score(self) -> float:
        """The sum of what the quests pay; infinite where one can be done again and again."""
        return float(self.game.max_score)

    @functools.cached_property
    def walkthrough(self) -> tuple[str, ...]:
        """Commands that win from the start; empty where textworld knows none."""
        return tuple(self.game.walkthrough or ())

    def scene(self, facts: frozenset[Any]) -> Scene:
        """The scene of these facts."""
        scene = self._scenes.get(facts)
        if scene is None:
            if len(self._scenes) >= _MOST_SCENES:
                self._scenes.clear()
            scene = self._scenes[facts] = Scene(self, facts)
        return scene

    def after(self, scene: Scene, event: str) -> Scene:
        """The scene after an event that `scene.events` has."""
        action = scene.events[event]
        return self.scene((scene.facts - action.removed) | action.added)

    def rest(self, trail: Iterable[str]) -> list[str]:
        """Commands that win after these events; empty where textworld knows none."""
        progression = GameProgression(self.game)
        scene = self.start
        for event in trail:
            progression.update(scene.events[event])
            scene = self.after(scene, event)
        return self.phrase(progression.winning_policy or ())

    def phrase(self, actions: Iterable[Any]) -> list[str]:
        """The commands of actions."""
        return list(self._phrases.gen_commands_from_actions(actions))

    def actions(self, facts: frozenset[Any]) -> list[Any]:
        """What can be done where these facts are true."""
        state = State(self.game.kb.logic, facts)
        return list(state.all_applicable_actions(self._rules, self.game.kb.types.constants_mapping))

    def event(self, action: Any) -> str:
        """What the game's trace says where the action is done."""
        filled = self.game.kb.rules[action.name].match(action)
        names = {slot.name: self._names[thing.name] for slot, thing in filled.items()}
        return str(self.game.kb.inform7_events[action.name]).format(**names).lower()

    def describe(self, facts: frozenset[Any]) -> str:
        """What `Scene.anchor` says."""
        content = defaultdict(list)
        shut = set()
        here = ""
        for fact in facts:
            names = fact.names
            if fact.name in ("at", "in", "on"):
                content[names[1]].append(names[0])
                if names[0] == _PLAYER:
                    here = names[1]
            elif fact.name in ("closed", "locked"):
                shut.add(names[0])
        doors = [fact.names[1] for fact in facts if fact.name == "link" and fact.names[0] == here]
        seen = {here, _INVENTORY, *doors}
        holders = [here, _INVENTORY]
        while holders:
            inside = content[holders.pop()]
            seen.update(inside)
            holders += [thing for thing in inside if thing not in shut]
        return "\n".join(
            sorted(
                f"{fact.name}({', '.join(self._names[name] for name in fact.names)})"
                for fact in facts
                if fact.name in self._changing and seen.issuperset(fact.names)
            )
        )


@functools.lru_cache(CACHED_GAMES)
def load_story(files: GameFiles) -> Story:
    """The rules in a game's files. The last ones are kept, so a file that is changed is not read again."""
    return Story(read_game(files.game))
