"""An environment whose agent, a random model, gives tasks about half of the time, and whose workers report as often."""

from gymnasium.envs.registration import register

from agentgym import AgentEnv, Task, TaskSet, Verdict, tool
from agentgym.protocols import Protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall

WORDS = "red green blue grey"


class Letters(Protocol):
    """Every message is a call; which, is told by whether its number of letters is even."""

    name = "letters"

    def describe(self, tools):
        return "Say something."

    def parse(self, action, checker):
        even = len(action) % 2 == 0
        if checker.problem(ToolCall("report", {"text": action})) is None:  # a worker's tools
            return [ToolCall("report" if even else "answer", FrozenDict(text=action))]
        if not even:
            return [ToolCall("answer", FrozenDict(text=action))]
        task = FrozenDict(task="Say red.", role="tester")
        return [ToolCall("delegate", task), ToolCall("wait", FrozenDict())]

    def render_call(self, call):
        raise NotImplementedError


class AskEnv(AgentEnv):
    """Pays for an answer of 1, 5, 9, ... letters; others have 3, 7, 11, ..."""

    tasks = TaskSet(
        [Task(f"{split}-{n}", split=split) for split in ("train", "test") for n in range(12)], name="ask"
    )
    default_max_turns = 4

    def __init__(self, **kwargs):
        super().__init__(protocol=Letters(), **kwargs)

    def begin(self, task):
        self.paid = 0.0
        return "Say red."

    @tool
    def answer(self, text: str) -> str:
        """Answer.

        Args:
            text: the answer.
        """
        self.paid = float(len(text) % 4 == 1)
        self.finish()
        return "Yes."

    def verify(self, episode):
        return Verdict(self.paid)


register("Ask-v0", entry_point=f"{__name__}:AskEnv")
TEXTS = [
    "Say red. Say something. Yes. You wait. worker_0 has begun. You have no task.",
    "[Report of worker_0] red (no report: it ran out of turns)",
    "You do a part of somebody's larger task. What you change in your copy is thrown away.",
    WORDS,
    *WORDS.split(),
]
