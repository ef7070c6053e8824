"""Policies without a model, and `make_policy`."""

import dataclasses
import io
import re
import subprocess
import sys
from typing import Literal

import numpy as np
import pytest

from agentgym import AgentEnv, Task, UsageError, Verdict, tool
from agentgym.envs.relay import RelayEnv
from agentgym.messages import user
from agentgym.policies import Gold, Human, Null, Policy, Random, Repeat, Replay, Reply, Scripted, make_policy
from agentgym.policies.scripted import SUMMARY
from agentgym.protocols import PROTOCOLS
from agentgym.rollout import collect
from agentgym.trajectory.store import TrajectoryStore

ASKED = (user("go on"),)


class Tools(AgentEnv):
    tasks = (Task("a"),)
    default_max_turns = 200

    def begin(self, task):
        return "begin"

    @tool
    def bash(self, command: str) -> str:
        """Run."""
        return command

    @tool
    def mix(
        self,
        number: int,
        share: float,
        flag: bool,
        names: list[str],
        more: dict,
        kind: Literal["x", "y"],
        maybe: int | None,
        optional: str = "",
    ) -> str:
        """Take everything."""
        return "ok"

    def verify(self, episode):
        return Verdict(0.0)


class Plain(Tools):
    bash = mix = None  # type: ignore[assignment]  # withdrawn

    def respond(self, action):
        return action


def play(policy, env, seed=0, turns=100):
    """Actions of one episode, and how many were invalid."""
    env.reset(seed=seed)
    player = policy.for_episode(env, np.random.default_rng(seed))
    actions, invalid = [], 0
    for _ in range(turns):
        actions += [player.act((ASKED,))[0].text]
        *_, terminated, truncated, info = env.step(actions[-1])
        invalid += info.get("invalid_action", False)
        if terminated or truncated:
            break
    return actions, invalid


@pytest.mark.parametrize("protocol", ["hermes", "xml", "react"])
def test_random_calls_are_well_formed(protocol):
    assert protocol in PROTOCOLS
    actions, invalid = play(Random(), Tools(protocol=protocol))
    assert invalid == 0
    assert len(set(actions)) > 90
    assert play(Random(), Tools(protocol=protocol))[0] == actions
    assert play(Random(), Tools(protocol=protocol), seed=1)[0] != actions


class Shell(Tools):
    """Of its two tools the protocol bash can write one, without its second argument."""

    default_max_turns = 60

    @tool
    def bash(self, command: str, seconds: int = 5) -> str:
        """Run."""
        return ""


@pytest.mark.parametrize("policy", [Random(), Repeat()])
def test_random_calls_are_of_tools_that_the_protocol_can_write(policy):
    assert [tool.name for tool in Shell().tools] == ["bash", "mix"]
    actions, invalid = play(policy, Shell(protocol="bash"))
    assert invalid == 0
    assert len(actions) == 60
    assert all(re.fullmatch("```bash\n[a-z]{1,8}\n```", action) for action in actions)


def test_random_without_tools():
    actions, invalid = play(Random(), RelayEnv())
    assert actions[0] == "take"
    assert invalid == 0
    actions, _ = play(Random(), Plain())
    assert len(set(actions)) > 90
    with pytest.raises(UsageError, match="for_episode"):
        Random().act((ASKED,))


def test_repeat_and_null():
    actions, _ = play(Repeat(), Tools())
    assert len(set(actions)) == 1
    assert actions[0] == play(Random(), Tools())[0][0]
    assert set(play(Null(), Tools())[0]) == {""}
    assert [r.text for r in Null().act((ASKED, ASKED))] == ["", ""]


def test_gold():
    assert play(Gold(), RelayEnv())[1] == 0
    env = Tools()
    env.reset(seed=0)
    with pytest.raises(UsageError, match="no gold solver"):
        Gold().for_episode(env, np.random.default_rng())


def test_scripted():
    policy = Scripted(["a", "b"])
    assert [policy.act((ASKED,))[0].text for _ in range(2)] == ["a", "b"]
    with pytest.raises(UsageError, match="all 2 actions are used up"):
        policy.act((ASKED,))
    with pytest.raises(UsageError, match="all 2 actions are used up"):
        play(policy, Plain())


class Asking:
    """Stands in for the context wrapper at the moment it asks."""

    def __init__(self):
        self.summary_requested = False

    @property
    def unwrapped(self):
        return self.inner


@pytest.mark.parametrize("policy", [Scripted(["a", "b"]), Random(), Null()])
def test_a_request_for_a_summary_does_not_advance(policy):
    env = Asking()
    env.inner = Plain()
    env.inner.reset(seed=0)
    player = policy.for_episode(env, np.random.default_rng(0))
    undisturbed = policy.for_episode(env, np.random.default_rng(0))
    env.summary_requested = True
    assert player.act((ASKED,))[0].text == SUMMARY
    env.summary_requested = False
    for _ in range(2):
        assert player.act((ASKED,))[0] == undisturbed.act((ASKED,))[0]


# -- replay ----------------------------------------------------------------------------------------------------


def test_replay(tmp_path):
    kwargs = {"hops": 6, "scenery": 200}
    recorded = collect("agentgym/Relay-v0", "random", episodes=4, out=tmp_path, env_kwargs=kwargs, seed=2)
    for source in (tmp_path, tmp_path / "trajectories.jsonl", recorded, TrajectoryStore(tmp_path)):
        again = collect("agentgym/Relay-v0", Replay(source), episodes=4, env_kwargs=kwargs, seed=2)
        assert [t.reward for t in again] == [t.reward for t in recorded]
        assert [[s.action for s in t.steps] for t in again] == [[s.action for s in t.steps] for t in recorded]
    one = make_policy(f"replay:{tmp_path}")
    assert len(collect("agentgym/Relay-v0", one, episodes=1, env_kwargs=kwargs, seed=2)) == 1


def test_replay_of_a_run_that_was_resumed(tmp_path):
    (good,) = collect("agentgym/Relay-v0", "gold", episodes=1, env_kwargs={"hops": 2})
    broken = dataclasses.replace(good, steps=[], segments=[], reward=None, infrastructure_error="it died")
    other = dataclasses.replace(broken, id="never run again")
    store = TrajectoryStore(tmp_path)
    for line in (broken, other, good):
        store.append(line)
    assert list(store.latest().values()) == [good, other]
    for source in (tmp_path, [broken, good]):
        again = collect("agentgym/Relay-v0", Replay(source), episodes=2, env_kwargs={"hops": 2}, group_size=2)
        assert [t.infrastructure_error for t in again] == ["", ""]
        assert [[s.action for s in t.steps] for t in again] == [[s.action for s in good.steps]] * 2


def test_replay_with_the_policys_own_summaries():
    stack = {
        "compact": 500,
        "reply_tokens": 50,
        "summarizer": "policy",
        "env_kwargs": {"hops": 8, "scenery": 300},
    }
    recorded = collect("agentgym/Relay-v0", "gold", episodes=1, **stack)[0]
    summaries = [s for s in recorded.steps if s.kind == "summary"]
    assert summaries
    summaries[0].action = "my own words"
    again = collect("agentgym/Relay-v0", Replay(recorded), episodes=1, **stack)[0]
    assert [s.action for s in again.steps] == [s.action for s in recorded.steps]


def test_replay_says_what_is_wrong(tmp_path):
    recorded = collect("agentgym/Relay-v0", "gold", episodes=1, env_kwargs={"hops": 3})[0]

    def again(**kwargs):
        return collect("agentgym/Relay-v0", Replay(recorded), episodes=1, **kwargs)

    with pytest.raises(UsageError, match=r"diverged at turn 0: expected .* got"):
        again(env_kwargs={"hops": 4})
    with pytest.raises(UsageError, match="no recording of task 'relay-train-"):
        again(
            env_kwargs={"hops": 3}, tasks=["relay-train-000" if recorded.task_id != "relay-train-000" else 1]
        )
    del recorded.steps[2:]
    with pytest.raises(UsageError, match="all 2 turns are played"):
        again(env_kwargs={"hops": 3})
    recorded.steps[0].observation = "something else"
    with pytest.raises(UsageError, match="diverged at turn 1: expected 'something else'"):
        again(env_kwargs={"hops": 3})
    with pytest.raises(UsageError, match=r"expected a trajectories\.jsonl"):
        Replay(tmp_path)


# -- human and by name -----------------------------------------------------------------------------------------


def test_human(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\nsecond\n.\nhalf"))
    assert Human().act((ASKED,))[0] == Reply("first\nsecond")
    assert "go on" in capsys.readouterr().out
    with pytest.raises(UsageError, match="input ended"):
        Human().act((ASKED,))


def own_policy(greeting="hello"):
    return Scripted([greeting], name="own")


INSTANCE = Null()


def test_make_policy(monkeypatch):
    for name in ("random", "gold", "null", "repeat", "human"):
        assert make_policy(name).name == name
    monkeypatch.setitem(sys.modules, "some_policies", sys.modules[__name__])
    assert make_policy("some_policies:own_policy", greeting="x").actions == ("x",)
    assert make_policy("some_policies:INSTANCE") is INSTANCE
    assert isinstance(make_policy("some_policies:Scripted", actions=["a"]), Policy)


def test_make_policy_finds_modules_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "policies_of_mine.py").write_text("from agentgym.policies import Null\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_policy("policies_of_mine:Null").name == "null"


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("randon", {}, "Did you mean 'random'"),
        ("hf", {}, "Did you mean 'hf:NAME_OR_PATH'|Known"),
        ("hf:", {}, "after the colon"),
        ("vllm:m", {"temprature": 0.5}, "Did you mean 'temperature'"),
        ("no_such_module:x", {}, "no module 'no_such_module'"),
        ("agentgym.policies:Nul", {}, "Did you mean 'Null'"),
        ("agentgym.policies.scripted:zzzz", {}, "Known: '[^_]"),
        ("agentgym.policies:Null", {"temperature": 1}, "no option 'temperature'"),
        ("agentgym.policies.scripted:SUMMARY", {}, "got str"),
        ("collections:Counter", {}, "to return a Policy, got Counter"),
        ("gold", {"temperature": 0.5}, "Gold takes no option 'temperature'"),
        ("hf:smollm2", {"temprature": 0.5}, "Did you mean 'temperature'"),
        ("openai:m", {"temprature": 0.5}, "Did you mean 'temperature'"),
        ("replay:/nowhere", {}, "expected a trajectories"),
    ],
)
def test_make_policy_says_what_is_wrong(spec, options, said):
    with pytest.raises((UsageError, TypeError), match=said):
        make_policy(spec, **options)


def test_importing_policies_is_light():
    heavy = "[m for m in ('torch', 'transformers', 'openai', 'gguf', 'vllm') if m in sys.modules]"
    names = ("hf", "models", "openai", "vllm", "engines", "bridge")
    modules = ", ".join(["agentgym.policies", *(f"agentgym.policies.{name}" for name in names)])
    code = f"import sys, {modules}, agentgym.rollout; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
