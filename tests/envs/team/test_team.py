"""Team-v0: PettingZoo's own tests, rounds, views, credit, limits, breakage, snapshots."""

import functools
import re
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test

import agentgym.envs.team as team
from agentgym import InfrastructureError, UsageError, Verdict
from agentgym.check import check
from agentgym.core import INFO_KEYS
from agentgym.delegation import LEAD
from agentgym.envs.team import TeamEnv
from agentgym.envs.team.counterfactual import contributions
from agentgym.envs.team.env import IDLE, WAITING
from agentgym.wrappers import VerifierReward
from tests.wrappers.crews import Store, call

ONE, TWO = "worker_0", "worker_1"
LOOK = call("view", room="shelf")
PUT = call("put", room="hall", thing="key")
SUBMIT = call("submit")
WAIT = call("wait")
TO_TESTER = call("delegate", task="look", role="tester")
BASES = [
    "agentgym/SearchQA-v0",
    "agentgym/Relay-v0",
    "agentgym/ALFWorld-v0",
    "agentgym/WebShop-v0",
    "test/Store-v0",
]


def report(text):
    return call("report", text=text)


def store(**kwargs) -> TeamEnv:
    return TeamEnv(base="test/Store-v0", **kwargs)


def begun(*rounds: dict[str, str], **kwargs):
    """A team after some rounds: itself, and what the last of them returned."""
    env = store(**kwargs)
    env.reset(seed=0)
    return env, [env.step(actions) for actions in rounds][-1]


def texts(step) -> dict[str, str]:
    return {agent: observation["text"] for agent, observation in step[0].items()}


# -- PettingZoo --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["copy", "own", "shared"])
@pytest.mark.parametrize("base", BASES)
def test_pettingzoo_s_tests_pass(base, view):
    make = functools.partial(pettingzoo.make, "parallel", "agentgym/Team-v0", base=base, view=view)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for text in ("not a NumPy array", "probably should be"):  # texts are neither arrays nor boxes
            warnings.filterwarnings("ignore", f"(?s).*{text}")
        parallel_api_test(make(), num_cycles=20)
        parallel_seed_test(make, num_cycles=20)
        api_test(team.env(base=base, view=view), num_cycles=20)


@pytest.mark.slow  # the monitor's rules take seconds to load
def test_the_first_snippets_of_the_page_run():
    page = (Path(__file__).parents[3] / "docs" / "team.md").read_text()
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]:
        exec(snippet, {})


def test_it_lasts_as_many_rounds_as_allowed():
    max_cycles_test(team)


def test_our_quick_probes_pass():
    report = check("agentgym/Team-v0", only="info reset_options snapshot turn_limit pettingzoo".split())
    assert all(probe.ok for probe in report.probes), report


@pytest.mark.slow
def test_our_audit_passes():
    report = check("agentgym/Team-v0", resets=50)
    assert report.ok, report


def play(env: TeamEnv, seed: int, rounds: int = 12):
    """A random team that delegates often, and everything that it is told, beside the spaces."""
    rng = np.random.default_rng(seed)
    calls = [LOOK, PUT, WAIT, TO_TESTER, call("delegate", task="put", role="coder"), call("view", room="luck"),
             report("seen"), call("cancel", worker=ONE), call("message", worker=TWO, text="quick")]  # fmt: skip
    told = [env.reset(seed=seed)]
    while env.agents and len(told) < rounds:
        actions = {agent: str(rng.choice(calls)) for agent in env.agents}
        told.append(env.step(actions))
        for agent, observation in told[-1][0].items():
            assert observation in env.observation_space(agent)
        for info in told[-1][-1].values():
            assert info.keys() <= INFO_KEYS.keys()
            assert None not in info.values()
    return told


@pytest.mark.parametrize("view", ["copy", "own", "shared"])
def test_a_seed_gives_the_same_episode_with_workers_side_by_side(view):
    runs = [play(store(view=view, workers=3, depth=2), seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert any("[Report of" in text for told in runs[0][1:] for text in texts(told).values())


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_a_task_goes_out_and_its_report_comes_back():
    env = store()
    first, infos = env.reset(seed=0)
    assert first[ONE]["text"] == first[TWO]["text"] == IDLE
    assert [agent for agent in env.agents if "waits" in infos[agent]] == [ONE, TWO]
    assert '"name": "delegate"' in env.instructions_of(LEAD)

    told = env.step({LEAD: TO_TESTER})
    assert texts(told)[LEAD] == "<tool_response>\nworker_0 has begun.\n</tool_response>"
    assert texts(told)[ONE].startswith("You try things out for somebody")
    assert texts(told)[ONE].endswith("look")
    assert [tool.name for tool in told[-1][ONE]["tools"]] == ["view", "put", "submit", "report"]
    assert "waits" not in told[-1][ONE]

    told = env.step({LEAD: WAIT, ONE: LOOK})
    assert texts(told)[ONE] == "<tool_response>\ndust\n</tool_response>"
    assert told[-1][LEAD]["waits"]
    told = env.step({ONE: LOOK})
    assert texts(told)[LEAD] == WAITING
    turns = env.inner.turns_left
    told = env.step({LEAD: SUBMIT, ONE: report("dust")})  # what the lead writes meanwhile is not read
    assert texts(told)[LEAD] == "[Report of worker_0] dust"
    assert env.inner.turns_left == turns
    assert told[2] == {LEAD: False, ONE: False, TWO: False}

    told = env.step({LEAD: PUT + SUBMIT})
    assert told[1] == {LEAD: 1.0, ONE: 1.0, TWO: 1.0}
    assert set(told[2].values()) == {True}
    assert told[-1][LEAD]["verdict"].components == {
        "worker_0/reports": 1.0,
        "worker_0/turns": 3.0,
        "worker_1/reports": 0.0,
        "worker_1/turns": 0.0,
    }
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step({LEAD: LOOK})


def test_who_was_given_a_task_in_this_round_acts_in_the_next():
    env, told = begun({LEAD: TO_TESTER, ONE: PUT})  # it wrote before it had a task
    assert env.crew.job(ONE).turns == 0
    again = call("delegate", task="look on", role="tester")
    told = env.step({LEAD: again, ONE: report("x")})
    assert texts(told)[LEAD].endswith("[Report of worker_0] x")  # free again at once, and given the next task
    assert texts(told)[ONE].endswith("look on")
    assert texts(told)[ONE].startswith("<tool_response>\nYour report was taken.")


def test_what_was_written_for_a_task_that_was_cancelled_is_not_done_for_the_next():
    env = TeamEnv(base="test/Store-v0", workers=2, depth=2, view="shared")
    env.reset(seed=0)
    below = call("delegate", task="look", role="tester")
    env.step({LEAD: call("delegate", task="lead on", role="tester")})
    env.step({LEAD: LOOK, "worker_0": below})
    again = call("cancel", worker="worker_1") + call("delegate", task="look again", role="tester")
    told = env.step({LEAD: LOOK, "worker_0": again, "worker_1": PUT})
    assert env.inner.rooms["hall"] == ""
    assert told[0]["worker_1"]["text"].endswith("look again")
    assert told[-1]["worker_1"]["calls"] == ()
    assert env.crew.job("worker_1").turns == 0


def test_a_report_of_this_round_is_not_waited_for():
    env, told = begun({LEAD: TO_TESTER + TO_TESTER}, {LEAD: WAIT, ONE: report("x"), TWO: LOOK})
    assert "There is something to read." in texts(told)[LEAD]
    assert texts(told)[LEAD].endswith("[Report of worker_0] x")
    assert not env.waits(LEAD)


def test_workers_work_for_workers():
    env, _ = begun(
        {LEAD: TO_TESTER}, {LEAD: WAIT, ONE: call("delegate", task="sub", role="explorer") + WAIT}, depth=2
    )
    assert env.waits(LEAD)
    assert env.waits(ONE)
    told = env.step({TWO: report("sub is done")})
    assert texts(told)[ONE] == "[Report of worker_1] sub is done"
    told = env.step({ONE: report("all is done")})
    assert texts(told)[LEAD] == "[Report of worker_0] all is done"


@pytest.mark.parametrize(("view", "score"), [("copy", 0.0), ("own", 0.0), ("shared", 1.0)])
def test_what_a_worker_changes_is_where_it_acts(view, score):
    env, _ = begun({LEAD: TO_TESTER}, {LEAD: LOOK, ONE: PUT}, view=view)
    assert env.step({LEAD: SUBMIT, ONE: LOOK})[1][LEAD] == score


def test_each_worker_may_have_an_instance_with_keywords_of_its_own():
    env = store(view="own", base_kwargs={"shelf": "key"}, worker_kwargs=[{"shelf": "nail"}, {}])
    env.reset(seed=0)
    env.step({LEAD: TO_TESTER + TO_TESTER})
    told = env.step({LEAD: LOOK, ONE: LOOK, TWO: LOOK})
    assert [text.split("\n")[1] for text in texts(told).values()] == ["key", "nail", "key"]


# -- ends, credit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, {LEAD: 1.0, ONE: 1.0, TWO: 1.0}),
        ({"credit": "own"}, {LEAD: 1.0, ONE: 1.0, TWO: 0.0}),
        ({"credit": "own", "turn_cost": 0.25}, {LEAD: 1.0, ONE: 0.75, TWO: 0.0}),
    ],
)
def test_credit(kwargs, expected):
    both = TO_TESTER + TO_TESTER
    _, told = begun(
        {LEAD: both}, {LEAD: PUT, ONE: report("x"), TWO: LOOK}, {LEAD: SUBMIT, TWO: LOOK}, **kwargs
    )
    assert told[1] == expected


@pytest.mark.parametrize(
    "kwargs", [{"max_cycles": 2}, {"base_kwargs": {"max_turns": 2}}], ids=["rounds", "turns of the base"]
)
def test_limits_truncate(kwargs):
    _, told = begun({LEAD: PUT}, {LEAD: LOOK}, **kwargs)
    assert set(told[2].values()) == {False}
    assert set(told[3].values()) == {True}
    assert told[1][LEAD] == 1.0  # the base gives its verdict at a limit, too


def full(episode):
    """A verifier that likes everything, and says how many turns it saw."""
    return Verdict(1.0, components={"seen": len(episode.turns)})


@pytest.mark.parametrize(
    ("rounds", "seen", "kwargs"),
    [
        ([{LEAD: LOOK}, {LEAD: LOOK}], 2, {"max_cycles": 2}),
        ([{LEAD: LOOK}, {LEAD: LOOK}], 2, {"base_kwargs": {"max_turns": 2}}),
        ([{LEAD: TO_TESTER}, {LEAD: WAIT, ONE: LOOK}, {ONE: LOOK}], 2, {"max_cycles": 3}),  # the lead waits
    ],
)
def test_the_outermost_layer_of_the_base_gives_the_verdict(rounds, seen, kwargs):
    env = store(**kwargs)  # whose own verdict is 0 here
    env.wrap_base(functools.partial(VerifierReward, verifier=full))
    env.reset(seed=0)
    told = [env.step(actions) for actions in rounds][-1]
    assert set(told[3].values()) == {True}
    assert told[1] == {LEAD: 1.0, ONE: 1.0, TWO: 1.0}
    assert told[-1][LEAD]["verdict"].components["seen"] == seen


def test_a_round_counts_also_where_everybody_waits():
    env, _ = begun({LEAD: TO_TESTER}, {LEAD: WAIT, ONE: LOOK}, max_cycles=3)
    told = env.step({ONE: LOOK})
    assert set(told[3].values()) == {True}
    assert told[-1][LEAD]["verdict"].score == 0.0


def test_broken_infrastructure_is_never_a_reward(monkeypatch):
    def gone(self, room, thing):
        raise InfrastructureError("the disk is gone")

    env, _ = begun({LEAD: TO_TESTER})
    monkeypatch.setattr(Store, "put", gone)
    told = env.step({LEAD: LOOK, ONE: PUT})
    assert told[1] == dict.fromkeys([LEAD, ONE, TWO], 0.0)
    assert set(told[2].values()) == {False}
    assert set(told[3].values()) == {True}
    assert {info["infrastructure_error"] for info in told[-1].values()} == {"the disk is gone"}
    assert env.agents == []


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["copy", "own", "shared"])
def test_snapshots(view):
    env, _ = begun({LEAD: TO_TESTER + TO_TESTER}, {LEAD: LOOK, ONE: PUT, TWO: LOOK}, view=view, workers=2)
    saved = env.snapshot()
    luck = call("view", room="luck")
    rest = [
        {LEAD: luck, ONE: luck, TWO: report("x")},
        {LEAD: WAIT, ONE: luck},
        {ONE: report("y")},
        {LEAD: SUBMIT},
    ]
    runs = []
    for other in (0, 1, 2):
        if other == 2:  # another episode in between
            play(env, 7)
        env.restore(saved)
        runs.append([env.step(actions) for actions in rest])
    assert runs[0] == runs[1] == runs[2]
    assert texts(runs[0][2])[LEAD] == "[Report of worker_0] y"


class Team:
    """The lead asks both for where the key belongs, and puts it where the first answer that it gets says."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, observations, infos):
        self.step += 1
        told = observations[LEAD]["text"]
        if self.step == 1:
            return {LEAD: TO_TESTER + TO_TESTER}
        if self.step == 2:
            return {LEAD: WAIT, ONE: report("hall"), TWO: LOOK}
        if self.step == 3:
            self.place = "hall" if "[Report of worker_0] hall" in told else "cellar"
            return {LEAD: call("put", room=self.place, thing="key"), TWO: report("dust")}
        return {LEAD: SUBMIT}


def test_what_reports_were_worth():
    env = store()
    assert contributions(env, Team(), seed=0) == {ONE: 1.0, TWO: 0.0}
    assert env.crew.withheld == frozenset()


def test_a_withheld_report_brings_no_change_either():
    env, _ = begun({LEAD: TO_TESTER})
    env.crew.withheld = frozenset({ONE})
    told = env.step({LEAD: LOOK, ONE: report("dust")})
    assert texts(told)[LEAD].endswith("[Report of worker_0] (no report)")
    assert env.crew.helped == {}


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"base": "agentgym/Relay-v9"}, "no environment 'agentgym/Relay-v9' is registered"),
        ({"workers": 0}, "expected workers to be a whole number >= 1, got 0"),
        ({"base": 5}, "expected the id of an environment, got 5"),
        (
            {"base": "agentgym/Team-v0"},
            "expected the id of an environment for one agent, got 'agentgym/Team-v0'",
        ),
        ({"worker_kwargs": [{}]}, "expected worker_kwargs, a mapping for each of 2 workers, got [{}]"),
        (
            {"worker_kwargs": [{}, 5], "view": "own"},
            "expected worker_kwargs, a mapping for each of 2 workers",
        ),
        ({"turn_cost": "x"}, "expected turn_cost to be a finite number, got 'x'"),
        (
            {"worker_kwargs": [{}, {"shelf": "x"}]},
            "keywords of the workers' own instances are for view='own'",
        ),
        ({"credit": "all"}, "expected credit to be one of team, own, got 'all'"),
        ({"turn_cost": 2}, "expected turn_cost from 0 to 1, got 2"),
        ({"view": "both"}, "expected view to be one of copy, own, shared, got 'both'"),
        ({"base": "CartPole-v1"}, "expected an environment of this package, got CartPoleEnv"),
    ],
)
def test_bad_use_is_told(kwargs, says):
    with pytest.raises(UsageError) as told:
        TeamEnv(**({"base": "test/Store-v0"} | kwargs))
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (None, "expected a mapping from agents to texts, got None"),
        ([SUBMIT], "expected a mapping from agents to texts, got ["),
        ({1: "x", "nobody": "y"}, "expected actions of lead_0, worker_0, worker_1; got one of 1"),
    ],
)
def test_what_is_no_mapping_of_actions_is_refused(actions, says):
    env = TeamEnv(base="test/Store-v0")
    env.reset(seed=0)
    with pytest.raises(UsageError) as told:
        env.step(actions)
    assert says in str(told.value)


def test_a_wrong_keyword_of_a_worker_is_told_before_any_episode():
    with pytest.raises(TypeError, match=r"Store takes no keyword 'shlef'\. Did you mean 'shelf'"):
        TeamEnv(base="test/Store-v0", view="own", worker_kwargs=[{}, {"shlef": "x"}])


def test_an_unknown_keyword_is_told_with_the_nearest():
    with pytest.raises(TypeError, match=r"TeamEnv takes no keyword 'worker'\. Did you mean 'workers'"):
        TeamEnv(worker=2)
