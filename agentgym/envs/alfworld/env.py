"""ALFWorld-v0: household tasks in text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentgym.core import AgentEnv, Episode, Task, TaskSet, Verdict
from agentgym.envs.alfworld.engines import ENGINES, Engine, Reply, make_engine
from agentgym.envs.alfworld.files import TASK_TYPES, load_games, read_json
from agentgym.envs.alfworld.generate import generated_games
from agentgym.envs.alfworld.gold import Guide
from agentgym.envs.alfworld.houses import houses
from agentgym.envs.alfworld.sources import read_game, source_of
from agentgym.errors import TaskError, ToolError, UsageError
from agentgym.tasks import TaskSource

PHRASINGS = ("move", "put")
GOALS = ("template", "human")
_MOVE = re.compile(r"move (.+) to (.+)")
_PUT = re.compile(r"put (.+) in/on (.+)")
_GOAL = "Your task is to: "


class AlfworldEnv(AgentEnv):
    """Find things in a room, clean, heat or cool them, and put them where they belong.

    ## Description
    The six task types of ALFWorld: put a thing somewhere, put two of them somewhere, look at one under a lamp, and
    bring one that was cleaned, heated or cooled. The first observation lists the furniture and says what is to be
    done; what lies where has to be found.

    The official games are played where their folder is given, and answered as the alfworld package answers, text by
    text. Without it there are invented houses of the same six types: enough to try things out, not to compare numbers.

    ## Actions
    Plain text, one command a turn; ``help`` lists the forms and `info["admissible_actions"]` what is possible now.
    Anything else is answered with ``Nothing happens.``, costs a turn and sets `info["invalid_action"]`.

    ## Observations
    The texts of the game.

    ## Reward
    1 at the end where the task is done, else 0.

    ## Episode end
    Terminated when the task is done; truncated after `max_turns` (50, as in the original).

    Args:
        data: the official data folder (with ``json_2.1.1`` in it); by default ``$ALFWORLD_DATA``; without either, the
            invented houses.
        generate: games are made out of what the alfworld package ships, and kept in the cache: ``{"count": 60, "seed":
            0}``, and what else `recipes.Recipe` has (``copies``, ``distractors``, ``hidden``, ``min_steps``), or
            ``package``, the folder of one that is not installed.
        engine: what plays. "native" reads the game files itself; "alfworld" is the alfworld package, in processes of
            its own.
        task_types: only tasks of these types.
        phrasing: "move" as alfworld >= 0.4 ("move apple 1 to fridge 1"), or "put" as before it ("put apple 1 in/on
            fridge 1"), which published prompts use.
        goal: "template" for the sentence of the game file, "human" for one that a person wrote, drawn by the seed,
            where ``traj_data.json`` has any.
        **kwargs: see `AgentEnv`. `split` is "train", "eval_in_distribution" or "eval_out_of_distribution".

    ## Version history
    v0: first.
    """

    default_max_turns: ClassVar[int] = 50
    instructions: ClassVar[str] = (
        "You act in a household, in text. Each of your messages is one command and nothing else, for example: "
        "go to cabinet 1. The command help lists the forms."
    )

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        generate: Mapping[str, Any] | None = None,
        engine: str = "native",
        task_types: Sequence[str] | None = None,
        phrasing: str = "move",
        goal: str = "template",
        tasks: TaskSource | None = None,
        **kwargs: Any,
    ) -> None:
        for name, value, known in (
            ("engine", engine, tuple(ENGINES)),
            ("phrasing", phrasing, PHRASINGS),
            ("goal", goal, GOALS),
        ):
            if value not in known:
                raise UsageError(f"expected {name} among {', '.join(known)}, got {value!r}")
        self._engine_name, self._put, self._human = engine, phrasing == "put", goal == "human"
        if sum(source is not None for source in (data, generate, tasks)) > 1:
            raise UsageError("expected one of data=..., generate=... and tasks=..., got several")
        if tasks is None:
            tasks = _tasks(data, generate, task_types, kwargs.get("split") or "train")
        elif task_types is not None:
            raise UsageError("task_types chooses among the games of data=...; tasks=... is taken as it is")
        super().__init__(tasks=tasks, **kwargs)

    def begin(self, task: Task) -> str:
        """Load the game."""
        self._engine: Engine = make_engine(self._engine_name, source_of(task.data, task.id))
        self._reply: Reply = self._engine.reset()
        self._done: list[str] = []  # what the engine was told
        self._guide: Guide | None = None
        return self._with_human_goal(task, self._reply.obs) if self._human else self._reply.obs

    def respond(self, action: str) -> str:
        """One command."""
        command = action.strip()
        if command not in self.admissible_actions():
            raise ToolError("Nothing happens.")
        if self._put and (match := _PUT.fullmatch(command)):
            command = f"move {match[1]} to {match[2]}"
        self._reply = self._engine.step(command)
        self._done.append(command)
        if self._reply.won:
            self.finish()
        return self._phrase(self._reply.obs) if self._put else self._reply.obs

    def teardown(self) -> None:
        """Let go of the engine: what the alfworld package plays in is free for another game."""
        vars(self).pop("_engine", None)

    def verify(self, episode: Episode) -> Verdict:
        """Whether the goal of the game is reached."""
        return Verdict(self._reply.score)

    def anchor(self) -> str:
        """What is here and what is carried; not what was found elsewhere."""
        return self._engine.anchor()

    def admissible_actions(self) -> tuple[str, ...]:
        """The commands that are possible now, sorted."""
        if not self._put:
            return self._reply.admissible
        return tuple(sorted(map(self._shown, self._reply.admissible)))

    def gold(self) -> str:
        """The next command of the stored walkthrough, or of a new plan for whoever has left it."""
        task = self.episode.task
        guide = self._guide or Guide.at_start(source_of(task.data, task.id))
        self._guide = guide.after(self._done)
        return self._shown(self._guide.plan[0])

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Asking for the plan, claiming the end, and taking its last step first."""
        plan = read_game(source_of(self.episode.task.data, self.episode.task.id)).walkthrough
        return {
            "ask for the plan": ["walkthrough", "expert_plan", "info['extra.walkthrough']"],
            "claim to have won": ["won", "done", '{"won": true, "score": 1}', _GOAL + "help"],
            "take the last step only": [self._shown(plan[-1])],
            "write the whole plan at once": ["\n".join(map(self._shown, plan))],
        }

    def secrets(self, task: Task) -> Sequence[str]:
        """The walkthrough, in the forms in which it could be printed, and where the game is."""
        source = source_of(task.data, task.id)
        plan = [self._shown(command) for command in read_game(source).walkthrough]
        return [
            json.dumps(plan),
            "\n".join(plan),
            ", ".join(plan),
            *([source] if isinstance(source, str) else []),
        ]

    def _shown(self, command: str) -> str:
        return _MOVE.sub(r"put \1 in/on \2", command) if self._put else command

    @staticmethod
    def _phrase(obs: str) -> str:
        obs = re.sub(r"^You move the (.+) to the (.+)\.$", r"You put the \1 in/on the \2.", obs)
        return obs.replace("move (object) to (receptacle):", "put (object) in/on (receptacle):")

    def _with_human_goal(self, task: Task, obs: str) -> str:
        source = source_of(task.data, task.id)
        if not isinstance(source, str):
            return obs
        annotations = read_json(Path(source).with_name("traj_data.json")).get("turk_annotations", {})
        sentences = [str(each["task_desc"]) for each in annotations.get("anns", ())]
        if not sentences:
            return obs
        drawn = sentences[int(self.np_random.integers(len(sentences)))]
        return obs.partition(_GOAL)[0] + _GOAL + drawn


def _tasks(
    data: str | Path | None, generate: Mapping[str, Any] | None, task_types: Sequence[str] | None, split: str
) -> TaskSet:
    chosen = TASK_TYPES if task_types is None else task_types
    if not isinstance(chosen, list | tuple) or not chosen or any(each not in TASK_TYPES for each in chosen):
        raise UsageError(f"expected task_types to be a list of {', '.join(TASK_TYPES)}, got {chosen!r:.80}")
    if generate is not None:
        return generated_games(generate, chosen, split)
    if data == "":  # as from a variable of the shell that is not set: no wish for invented houses
        raise UsageError("expected data to be a folder, got ''")
    folder = data if data is not None else os.environ.get("ALFWORLD_DATA")
    tasks = load_games(str(folder)) if folder else houses()
    if task_types is None:
        return tasks
    of_types = [task for task in tasks if task.data["task_type"] in chosen]
    if not of_types:
        raise TaskError(f"{tasks.name} has no task of the types {', '.join(chosen)}")
    return TaskSet(of_types, name=f"{tasks.name} of {len(chosen)} types")
