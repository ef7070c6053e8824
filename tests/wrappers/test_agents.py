"""`wrap_agents`: the single-agent wrappers on a team, agent by agent."""

import functools
import json
import threading

import pytest

from agentgym import UsageError
from agentgym.delegation import LEAD
from agentgym.envs.team import TeamEnv
from agentgym.messages import Message, assistant, user
from agentgym.wrappers import ChatContext, ContextCompaction, RecordTrajectory, VerifierReward, wrap_agents
from tests.wrappers.crews import call
from tests.wrappers.desk import SECRET

ONE = "worker_0"
LOOK = call("view", room="shelf")
PUT = call("put", room="hall", thing="key")
SUBMIT = call("submit")
WAIT = call("wait")
TO_TESTER = call("delegate", task="look", role="tester")
REPORT = call("report", text="dust")


def team(base="test/Store-v0", **kwargs) -> TeamEnv:
    return TeamEnv(base=base, workers=1, **kwargs)


def answer(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def test_each_agent_has_a_conversation_of_its_own():
    env = wrap_agents(team(), {LEAD: [ChatContext], ONE: [ChatContext]})
    first, infos = env.reset(seed=0)
    assert [message.role for message in first[LEAD]] == ["system", "user"]
    assert infos[ONE]["waits"]
    told = env.step({LEAD: TO_TESTER})
    task = told[0][ONE]
    assert [message.role for message in task] == ["system", "user"]  # begun when it has something to do
    assert task[1].content.endswith("look")
    told = env.step({LEAD: WAIT, ONE: LOOK})
    assert told[0][ONE] == (*task, assistant(LOOK), user(answer("dust")))
    assert told[-1][LEAD] == {"waits": True}
    told = env.step({ONE: REPORT})
    # What it read while it waited is the answer to `wait`.
    assert told[0][LEAD][-2:] == (
        assistant(WAIT),
        user(answer("You wait.") + "\n\n[Report of worker_0] dust"),
    )
    told = env.step({LEAD: PUT + SUBMIT})
    assert told[1] == {LEAD: 1.0, ONE: 1.0}
    assert told[2] == {LEAD: True, ONE: True}
    assert told[0][ONE][-2] == assistant(REPORT)
    assert env.agents == []
    for agent in env.possible_agents:
        assert told[0][agent] in env.observation_space(agent)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("agentgym-worker")]


def test_agents_that_are_not_named_stay_as_they_are():
    bare, wrapped = team(), wrap_agents(team(), {})
    assert bare.reset(seed=3) == wrapped.reset(seed=3)
    assert bare.step({LEAD: TO_TESTER}) == wrapped.step({LEAD: TO_TESTER})


@pytest.mark.parametrize("mode", ["ansi", None])
def test_rendering_is_the_environments(mode):
    env = wrap_agents(team(render_mode=mode), {LEAD: [ChatContext]})
    env.reset(seed=3)
    env.step({LEAD: TO_TESTER})
    assert env.render_mode == mode
    assert env.render() == env.unwrapped.render()
    assert (f"{LEAD} > {TO_TESTER}" in env.render()) if mode else env.render() is None


def test_compaction_by_rule_for_one_agent():
    small = functools.partial(
        ContextCompaction, max_tokens=1100, reply_tokens=100, summarizer="last", keep_last=1
    )
    env = wrap_agents(team(base_kwargs={"shelf": "dust " * 90, "max_turns": 30}), {LEAD: [small]})
    env.reset(seed=0)
    told = [env.step({LEAD: LOOK}) for _ in range(8)]
    assert told[-1][-1][LEAD]["segment"] > 0
    assert max(step[-1][LEAD]["context_tokens"] for step in told) <= 1000
    assert env.step({LEAD: PUT + SUBMIT})[1][LEAD] == 1.0


def test_who_writes_a_summary_is_waited_for():
    small = functools.partial(
        ContextCompaction, max_tokens=1500, reply_tokens=100, summarizer="policy", keep_last=1
    )
    inner = team(base_kwargs={"shelf": "dust " * 90, "max_turns": 30})
    env = wrap_agents(inner, {LEAD: [small], ONE: [ChatContext]})
    env.reset(seed=0)
    told = env.step({LEAD: TO_TESTER})
    while "summary_requested" not in told[-1][LEAD]:
        told = env.step({LEAD: LOOK, ONE: LOOK})
    rounds, read = len(inner.rounds), told[0][ONE]
    told = env.step({LEAD: "Only dust.", ONE: REPORT})
    assert len(inner.rounds) == rounds  # nobody's turn of the environment
    assert told[0][ONE] == read
    assert told[-1][ONE] == {"waits": True}
    told = env.step({LEAD: LOOK, ONE: "what it writes now is not read"})
    assert len(inner.rounds) == rounds + 1
    assert inner.rounds[-1].actions[ONE] == REPORT
    assert "[Report of worker_0] dust" in told[0][LEAD][-1].content


def test_each_agent_is_recorded(tmp_path):
    def recorded(agent):
        return [
            ChatContext,
            functools.partial(RecordTrajectory, path=tmp_path / f"{agent}.jsonl", policy=agent),
        ]

    env = wrap_agents(team(), {agent: recorded(agent) for agent in (LEAD, ONE)})
    env.reset(seed=0)
    for actions in ({LEAD: TO_TESTER}, {LEAD: WAIT, ONE: LOOK}, {ONE: REPORT}, {LEAD: PUT + SUBMIT}):
        env.step(actions)
    env.close()
    rows = {agent: json.loads((tmp_path / f"{agent}.jsonl").read_text()) for agent in (LEAD, ONE)}
    assert [step["action"] for step in rows[LEAD]["steps"]] == [TO_TESTER, WAIT, PUT + SUBMIT]
    assert [step["action"] for step in rows[ONE]["steps"]] == [LOOK, REPORT]
    assert rows[LEAD]["reward"] == rows[ONE]["reward"] == 1.0
    assert rows[LEAD]["verdict"]["score"] == 1.0
    assert rows[ONE]["env_id"] == "agentgym/Team-v0"
    assert not any(event["kind"] == "fork" for row in rows.values() for event in row["events"])


CROSS = call("bash", command=f"cat {SECRET}")


@pytest.mark.parametrize("mode", ["block", "audit"])
def test_one_monitor_watches_everybody(mode):
    env = wrap_agents(team("test/Desk-v0"), {LEAD: [ChatContext]}, anti_hack=mode)
    env.reset(seed=0)
    env.step({LEAD: TO_TESTER})
    told = env.step({LEAD: call("bash", command="cd sub"), ONE: CROSS})
    crossed = told[-1][ONE]["calls"][0].result
    assert crossed.blocked == (mode == "block")
    assert ("42" in crossed.text) == (mode == "audit")
    hacked = {agent: info["hacked"] for agent, info in told[-1].items()}
    assert hacked == dict.fromkeys([LEAD, ONE], mode == "audit")  # the delegator's and the worker's
    memory = env.unwrapped.base._context.history
    assert [record.name for record, _, _ in memory] == ["delegate", "bash", "bash"]


def test_a_blocked_call_is_masked_for_who_made_it_and_who_gave_the_task():
    env = wrap_agents(team("test/Desk-v0"), {}, anti_hack={"mode": "block", "mask_blocked": True})
    env.reset(seed=0)
    assert "masked" not in env.step({LEAD: TO_TESTER})[-1][LEAD]
    told = env.step({LEAD: LOOK, ONE: CROSS})
    assert [info.get("masked") for info in told[-1].values()] == [True, True]
    told = env.step({LEAD: LOOK, ONE: LOOK})
    assert [info.get("masked") for info in told[-1].values()] == [None, None]


def test_what_a_wrapper_raises_reaches_the_caller_and_the_next_episode_begins_anew():
    class Picky(ChatContext):
        def step(self, action):
            if action == "bad":
                raise UsageError("no bad words")
            return super().step(action)

    env = wrap_agents(team(), {LEAD: [ChatContext], ONE: [Picky]})
    env.reset(seed=0)
    env.step({LEAD: TO_TESTER})
    with pytest.raises(UsageError, match="no bad words"):
        env.step({LEAD: LOOK, ONE: "bad"})
    env.reset(seed=0)
    assert env.step({LEAD: LOOK})[0][LEAD][-1] == Message("user", answer("dust"))


def test_who_judges_wrongly_at_the_end_stops_nothing_after_it():
    judge = functools.partial(VerifierReward, verifier=lambda episode: 1 / 0)
    env = wrap_agents(team(), {LEAD: [judge, ChatContext], ONE: [ChatContext]})
    for _ in range(2):  # the reset after it waits for nobody
        env.reset(seed=0)
        with pytest.raises(ZeroDivisionError):
            env.step({LEAD: SUBMIT})
    env.close()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({LEAD: LOOK, ONE: 5}, "expected a text as action of 'worker_0', got 5"),
        ({LEAD: LOOK}, "expected a text as action of 'worker_0', got None"),
        (
            {LEAD: LOOK, ONE: LOOK, "worker_9": LOOK},
            "expected actions of lead_0, worker_0; got one of 'worker_9'",
        ),
        (LOOK, "expected a mapping from agents to texts"),
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_after_an_action_that_is_none_the_round_can_be_played(bad, says, wrapped):
    env = wrap_agents(team(), {LEAD: [ChatContext]} | ({ONE: [ChatContext]} if wrapped else {}))
    env.reset(seed=0)
    env.step({LEAD: TO_TESTER})
    before = set(threading.enumerate())
    with pytest.raises(UsageError) as told:
        env.step(bad)
    assert says in str(told.value)
    assert set(threading.enumerate()) <= before
    observations = env.step({LEAD: PUT, ONE: LOOK})[0]
    assert observations[LEAD][-1] == Message("user", answer("Done."))
    assert len(env.unwrapped.rounds) == 2


def test_what_one_wrapper_raises_keeps_what_the_others_gave():
    class Once(ChatContext):
        raised = False

        def step(self, action):
            if not self.raised:
                self.raised = True
                raise UsageError("not now")
            return super().step(action)

    env = wrap_agents(team(), {LEAD: [Once], ONE: [ChatContext]})
    env.reset(seed=0)
    env.stacks[LEAD].raised = True
    env.step({LEAD: TO_TESTER})
    env.stacks[LEAD].raised = False
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="not now"):
        env.step({LEAD: LOOK, ONE: LOOK})
    assert len(set(threading.enumerate()) - before) == 1  # the worker's, which waits for the round
    env.step({LEAD: LOOK, ONE: PUT})
    assert env.unwrapped.rounds[-1].actions == {LEAD: LOOK, ONE: LOOK}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: wrap_agents(team(), {"worker_9": []}),
            "there is no agent 'worker_9'. Did you mean 'worker_0'?",
        ),
        (
            lambda: wrap_agents(team(), {LEAD: ChatContext}),
            "expected a list of wrappers for 'lead_0', got <class",
        ),
        (
            lambda: wrap_agents(team(), {LEAD: ["chat"]}),
            "expected a list of wrappers for 'lead_0', got ['chat']",
        ),
        (lambda: wrap_agents(object(), {}), "expected a parallel environment of this package, got object"),
        (lambda: wrap_agents(team(), {}, anti_hack={"penalty": 1}), "expected no penalty"),
        (lambda: wrap_agents(team(), {}, anti_hack="watch"), "expected mode to be one of block, audit"),
        (lambda: _unwatched(), "needs calls that pass a chain, as in Team-v0"),
        (lambda: _silent(), "expected a text as action of 'lead_0', got None"),
    ],
)
def test_bad_use_is_told(make, says):
    with pytest.raises(UsageError) as told:
        make()
    assert says in str(told.value)


def _unwatched():
    import pettingzoo

    wrap_agents(pettingzoo.make("parallel", "agentgym/HiddenNumber-v0"), {}, anti_hack="block")


def _silent():
    env = wrap_agents(team(), {LEAD: [ChatContext]})
    env.reset(seed=0)
    env.step({ONE: LOOK})
