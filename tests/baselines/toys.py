"""An environment in which a random model gets something, but not the same every time."""

from gymnasium.envs.registration import register

from agentgym import AgentEnv, Task, TaskSet, ToolError, Verdict

WORDS = "red green blue grey"


class EvenEnv(AgentEnv):
    """Pays for every turn whose message has an even number of characters; ends with the word "grey"."""

    tasks = TaskSet(
        [
            Task(f"{split}-{n}", split=split, data={"word": n % 4})
            for split in ("train", "test")
            for n in range(12)
        ],
        name="even",
    )
    default_max_turns = 3

    def __init__(self, *, padding=0, **kwargs):
        super().__init__(**kwargs)
        self.padding = padding  # words, so that a budget is soon spent

    def begin(self, task):
        self.even = 0
        self.word = WORDS.split()[task.data["word"]]
        return f"Say {self.word}."

    def respond(self, action):
        if "blue" in action and "red" not in action:
            raise ToolError("No.")
        self.even += len(action) % 2 == 0
        if "grey" in action:
            self.finish()
        return f"Yes, say {self.word}." + " red" * self.padding

    def anchor(self):
        return f"even={self.even}"

    def verify(self, episode):
        return Verdict(self.even / self.max_turns)

    def gold(self):
        return self.word


register("Even-v0", entry_point=f"{__name__}:EvenEnv")
TEXTS = ["Say red, green, blue, grey. Yes, say red. No.", WORDS, *WORDS.split()]
