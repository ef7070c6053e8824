"""A good environment of plain text moves, without gold, cheats, anchor or secrets; registers an id."""

import gymnasium

from agentgym import AgentEnv, Episode, Task, ToolError, Verdict


class Guess(AgentEnv):
    """Name the number the task hides."""

    tasks = [Task(f"n{number}", data={"number": number}) for number in (17, 42, 99)]
    default_max_turns = 5

    def begin(self, task: Task) -> str:
        return "Which number from 0 to 99?"

    def respond(self, action: str) -> str:
        if not action.strip().isdecimal():
            raise ToolError("Expected a number.")
        number = self.episode.task.data["number"]
        guess = int(action.strip()[:20])
        if guess == number:
            self.finish()
        return "Right." if guess == number else "More." if guess < number else "Less."

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(1.0 if episode.done else 0.0)


gymnasium.register("tests/Guess-v0", "tests.check.good_plain:Guess")  # with Gymnasium's default wrappers
