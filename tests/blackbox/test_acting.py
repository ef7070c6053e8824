"""Environments without a workspace: a command in the program's sandbox takes actions to them."""

from __future__ import annotations

import pytest

from agentgym import AgentEnv, Episode, InfrastructureError, Task, Verdict
from agentgym.blackbox import Program, ProgramPlayer
from agentgym.gateway import Gateway
from agentgym.rollout import collect

from .toys import AGENT, Spelled, bash


class Doors(AgentEnv):
    """Open the doors a, b, c in turn."""

    tasks = [Task("doors", "Open a, b, c in turn.")]
    default_max_turns = 5
    instructions = "Say open X."

    def begin(self, task: Task) -> str:
        self.opened: list[str] = []
        return task.prompt

    def respond(self, action: str) -> str:
        if action == "break":
            raise InfrastructureError("the house burnt down")
        if action == "fault":
            raise RuntimeError("a fault of the environment's")
        self.opened.append(action.removeprefix("open "))
        if self.opened == ["a", "b", "c"]:
            self.finish()
        return f"You did {action!r}."

    def verify(self, episode: Episode) -> Verdict:
        right = sum(a == b for a, b in zip(self.opened, "abc", strict=False))
        return Verdict(right / 3)


def play(*commands: str, env=Doors, **program):
    policy = Spelled([*map(bash, commands), "Done."])
    with Gateway(policy) as gateway:
        player = ProgramPlayer(Program(str(AGENT), **program), gateway)
        (trajectory,) = collect(env, policy, episodes=1, player=player)
    return trajectory


def answers(trajectory) -> list[str]:
    return [step.calls[0].text.removesuffix("[status 0]") for step in trajectory.steps[:-1]]


def test_a_game_is_played_to_its_end():
    t = play(
        "/agentgym/act open a",
        "echo -n 'open b' | /agentgym/act",
        "/agentgym/act 'open c'; /agentgym/act more",
    )
    assert answers(t) == [
        "You did 'open a'.\n",
        "You did 'open b'.\n",
        "You did 'open c'.\n[The task is over.]\n[The task is over.]\n",
    ]
    assert (t.reward, t.resolved, t.terminated, t.truncated) == (1.0, True, True, False)
    assert t.extra["actions"] == [
        {"action": "open a", "observation": "You did 'open a'.", "reward": 0.0},
        {"action": "open b", "observation": "You did 'open b'.", "reward": 0.0},
        {"action": "open c", "observation": "You did 'open c'.", "reward": 1.0},
    ]


def test_it_is_told_how():
    t = play("cat $AGENTGYM_TASK_FILE; ls -A")
    told = answers(t)[0]
    assert told.startswith(
        "Say open X.\n\nOpen a, b, c in turn.\n\nYou act by a command: run `/agentgym/act ACTION`"
    )


def test_a_program_that_stops_is_judged_by_how_things_stand():
    t = play("/agentgym/act open a")
    assert t.reward == pytest.approx(1 / 3)
    assert (t.resolved, t.terminated, t.truncated) == (False, True, False)


def test_turns_are_actions():
    t = play("for i in 1 2 3 4 5 6 7; do /agentgym/act open $i; done")
    assert [taken["action"] for taken in t.extra["actions"]] == [f"open {i}" for i in range(1, 6)]
    assert (t.reward, t.terminated, t.truncated) == (0.0, False, True)


@pytest.mark.parametrize(
    ("action", "says"), [("break", "the house burnt down"), ("fault", "RuntimeError: a fault")]
)
def test_what_breaks_is_no_reward(action, says):
    t = play("/agentgym/act open a", f"/agentgym/act {action}", "/agentgym/act open b")
    assert t.reward is None
    assert says in t.infrastructure_error
    assert len(t.extra["actions"]) == 1


def test_callers_who_hang_up_take_no_turn():
    hang_up = "import socket; socket.socket(socket.AF_UNIX).connect('/agentgym/socket')"
    rude = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/agentgym/socket');"
        "s.sendall(b'open a'); s.close()"
    )
    t = play(
        f'for i in $(seq 5); do python3 -c "{hang_up}"; done; /agentgym/act open a', f'python3 -c "{rude}"'
    )
    assert answers(t)[0].endswith("You did 'open a'.\n")
    assert t.infrastructure_error == ""


def test_an_environment_with_tools():
    """Relay's tools, in the form that its system prompt tells."""
    seen = []

    def follow(conversation):
        seen.append(conversation[-1].content)
        return bash("/agentgym/act 'no call'")

    policy = Spelled([follow, "Done."])
    with Gateway(policy) as gateway:
        player = ProgramPlayer(Program(str(AGENT)), gateway)
        (t,) = collect("agentgym/Relay-v0", policy, episodes=1, player=player)
    assert "/agentgym/act ACTION" in seen[0]
    assert t.infrastructure_error == ""
    assert len(t.extra["actions"]) == 1
