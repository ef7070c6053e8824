"""Four families of tasks, one word each: who knows the word of one knows nothing of the others."""

from gymnasium.envs.registration import register

from agentgym import AgentEnv, Task, TaskSet, Verdict

WORDS = {"north": "red", "east": "green", "south": "blue", "west": "grey"}


class FamiliesEnv(AgentEnv):
    """One turn: the door of each side opens to a word of its own, which the task does not say.

    Args:
        side: only tasks of this side.
    """

    default_max_turns = 1

    def __init__(self, *, side=None, **kwargs):
        tasks = [
            Task(f"{split}-{name}-{n}", split=split, data={"side": name, "word": word})
            for split in ("train", "test")
            for name, word in WORDS.items()
            for n in range(2)
            if side in (None, name)
        ]
        super().__init__(tasks=TaskSet(tasks, name="families"), **kwargs)

    def begin(self, task):
        self.word, self.right = task.data["word"], False
        return f"The {task.data['side']} door is shut. Say a word."

    def respond(self, action):
        self.right = action == self.word
        self.finish()
        return "It opens." if self.right else "Nothing."

    def verify(self, episode):
        return Verdict(float(self.right))

    def gold(self):
        return self.word


register("Families-v0", entry_point=f"{__name__}:FamiliesEnv")
