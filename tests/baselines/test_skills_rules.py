"""Skills without a language model."""

import gymnasium
import pytest

from agentgym import AgentEnv, Task, Verdict
from agentgym.errors import InfrastructureError, TaskError, UsageError
from agentgym.policies import make_policy
from agentgym.rollout import collect
from agentgym.trajectory.records import Call, Step, Trajectory
from baselines.skill_rules import RuleAnalyser, SolverAnalyser
from baselines.skills import Skills, said


def played(moves, *, resolved=False, group=0, invalid=(), anchors=True, error=""):
    """Moves are "state action" before each turn; the last entry is the state at the end."""
    *moves, end = moves
    states = [move.split()[0] for move in moves] + [end]
    steps = []
    for n, (move, after) in enumerate(zip(moves, states[1:], strict=True)):
        action = move.split()[1]
        info = ({"anchor": after} if anchors else {}) | ({"invalid_action": True} if n in invalid else {})
        calls = [Call("act", {"text": action}, "")]
        steps.append(Step("turn", "policy", action, f"You are at {after}.", calls=calls, info=info))
    extra = {"group": group, "episode": 0} | ({"anchor": states[0]} if anchors else {})
    return Trajectory("t", prompt=f"You are at {states[0]}.", steps=steps, resolved=resolved, extra=extra,
                      infrastructure_error=error)  # fmt: skip


def rules(*trajectories, most=5):
    return RuleAnalyser(most).analyse(trajectories, range(len(trajectories)))


@pytest.mark.parametrize("anchors", [True, False])
class TestRules:
    def test_the_solved_one_s_way_without_detours(self, anchors):
        # at a it went north to b, back to a, tried to fly, then east to c and won.
        winner = ["a north", "b south", "a fly", "a east", "c take", "won"]
        (skills,) = rules(played(winner, resolved=True, invalid=[2], anchors=anchors))
        assert skills == Skills("Do this, in order: east; take", dict.fromkeys((0, 2, 3), "Do this: east"))
        hacked = played(winner, resolved=True, invalid=[2], anchors=anchors)
        hacked.hacked = True
        assert rules(hacked)[0].episode == "Do none of these: south; fly.", "how to cheat is no skill"

    def test_where_siblings_parted(self, anchors):
        winner = played(["a east", "c take", "won"], resolved=True, anchors=anchors)
        loser = played(["a east", "c drop", "d take", "lost"], anchors=anchors)
        won, lost = rules(winner, loser)
        assert won == Skills("Do this, in order: east; take", {1: "Do this: take"})
        assert lost == Skills("Do this, in order: east; take", {1: "Do this: take"}), (
            "d was never seen by the winner"
        )

    def test_the_shortest_of_the_solved_is_the_model_of_the_failed(self, anchors):
        long = played(["a wait", "b east", "c take", "won"], resolved=True, anchors=anchors)
        short = played(["a east", "c take", "won"], resolved=True, anchors=anchors)
        failed = played(["a north", "z"], anchors=anchors)
        of_long, of_short, of_failed = rules(long, short, failed)
        assert of_failed == Skills("Do this, in order: east; take", {0: "Do this: east"})
        assert of_long == Skills("Do this, in order: wait; east; take", {0: "Do this: wait"})
        assert of_short.steps == {0: "Do this: east"}

    def test_what_nobody_solved_says_what_to_avoid(self, anchors):
        failed = played(["a north", "b south", "a fly", "a east", "c"], invalid=[2], anchors=anchors)
        (skills,) = rules(failed)
        assert skills == Skills(
            "Do none of these: south; fly.",
            {1: "Do not south: it brings nothing new.", 2: "Do not fly: it is not possible here."},
        )
        assert rules(failed, most=1)[0].steps == {1: "Do not south: it brings nothing new."}
        assert rules(played(["a north", "b"], anchors=anchors)) == [Skills()], (
            "nothing went wrong: nothing to say"
        )

    def test_what_was_learnt_is_something_new(self, anchors):
        """A search leaves the state as it is, and still it may have found something; asking again has not."""
        searched = played(["a search", "a search", "a search", "a"], anchors=anchors)
        for step, found in zip(searched.steps, ("Found x.", "Found x.", "Found x."), strict=True):
            step.observation = found
        assert rules(searched)[0].steps == {1: "Do not search: it brings nothing new."}, (
            "the last one ended it"
        )

    def test_siblings_are_of_the_same_group(self, anchors):
        winner = played(["a east", "won"], resolved=True, anchors=anchors)
        stranger = played(["a north", "b"], group=1, anchors=anchors)
        broken = played(["a east", "won"], resolved=True, group=1, error="gone", anchors=anchors)
        found = RuleAnalyser().analyse([winner, stranger, broken], [0, 1])
        assert found == [Skills("Do this, in order: east"), Skills()]


class Doors(AgentEnv):
    """Three doors in a row; each has its own right one, and a wrong one is a step back. "give up" ends in despair."""

    tasks = [Task(f"doors-{n}", data={"doors": doors}) for n, doors in enumerate(("abc", "cab"))]
    default_max_turns = 6

    def begin(self, task):
        self.at, self.doors, self.lost = 0, task.data["doors"], False
        return "Find the doors."

    def respond(self, action):
        self.lost = self.lost or action == "give up"
        if action == self.doors[self.at]:
            self.at += 1
        if self.at == 3:
            self.finish()
        return f"Door {self.at}."

    def admissible_actions(self):
        return ("a", "b", "c")

    def gold(self):
        if self.lost:
            raise TaskError("no way out of despair")
        return self.doors[self.at]

    def verify(self, episode):
        return Verdict(self.at / 3)


def doors(*actions, seed=0):
    class Listed(type(make_policy("gold"))):
        def start(self):
            self.left = list(actions)

        def next_action(self, conversation):
            return self.left.pop(0)

    return collect(Doors, Listed(), episodes=1, tasks=["doors-1"], seed=seed)[0]


COMPACT = {"compact": 600, "reply_tokens": 20, "summarizer": "policy"}


class TestSolver:
    def test_what_the_solver_would_have_done(self):
        trajectory = doors("c", "b", "a", "c", "b")
        (skills,) = SolverAnalyser(Doors()).analyse([trajectory], [0])
        assert skills == Skills("Do this, in order: c; a; b", {1: "Do this: a", 3: "Do this: b"})
        (fewer,) = SolverAnalyser(Doors(), most_steps=1).analyse([trajectory], [0])
        assert fewer.steps == {1: "Do this: a"}

    def test_states_without_a_way(self):
        (skills,) = SolverAnalyser(Doors()).analyse([doors("b", "give up", "a", "a", "b", "c")], [0])
        assert skills.steps == {0: "Do this: c", 1: "Do this: c"}

    def test_controls(self):
        trajectory = doors("b", "b", "b", "c", "a", "b")
        inverted = [
            SolverAnalyser(Doors(), "inverted", seed=n).analyse([trajectory], [0])[0] for n in range(20)
        ]
        random = [SolverAnalyser(Doors(), "random", seed=n).analyse([trajectory], [0])[0] for n in range(20)]
        assert all(list(skills.steps) == [0, 1, 2] for skills in inverted + random), (
            "the same places as the oracle's"
        )
        assert {skills.steps[0] for skills in inverted} == {"Do this: a", "Do this: b"}
        assert {skills.steps[0] for skills in random} == {"Do this: a", "Do this: b", "Do this: c"}
        plans = [skills.episode.removeprefix("Do this, in order: ").split("; ") for skills in inverted]
        assert all(a != "c" and b != "a" and c != "b" for a, b, c in plans)
        again = SolverAnalyser(Doors(), "inverted", seed=3).analyse([trajectory], [0])[0]
        assert again == inverted[3]

    def test_an_episode_that_goes_another_way_is_no_evidence(self):
        trajectory = doors("c", "a", "b")
        trajectory.steps[1].observation = "Door 7."
        with pytest.raises(InfrastructureError, match="step 1"):
            SolverAnalyser(Doors()).analyse([trajectory], [0])

    def test_environments_without_what_it_takes(self):
        class Mute(AgentEnv):
            tasks = [Task("t")]

            def respond(self, action):
                return action

        class Solved(Mute):
            def gold(self):
                return "x"

        with pytest.raises(UsageError, match="Mute has none"):
            SolverAnalyser(Mute())
        with pytest.raises(UsageError, match="Solved lists none"):
            SolverAnalyser(Solved(), "random")

    @pytest.mark.parametrize("stack", [{}, COMPACT, {"prompts": "text"}])
    def test_under_the_wrappers_of_a_run(self, stack):
        kwargs = {"hops": 4, "scenery": 300}
        trajectories = collect("agentgym/Relay-v0", "random", episodes=6, env_kwargs=kwargs, **stack)
        found = SolverAnalyser(gymnasium.make("agentgym/Relay-v0", **kwargs)).analyse(trajectories, range(6))
        assert any(skills.steps for skills in found)
        for trajectory, skills in zip(trajectories, found, strict=True):
            assert skills.episode.startswith("Do this, in order: take; go ")
            assert skills.episode.count(";") == 5
            for index, text in skills.steps.items():
                assert trajectory.steps[index].kind == "turn"
                assert text != f"Do this: {said(trajectory.steps[index])}"
