"""OPID's skill advantage beside one written out in plain torch; what has none; what never sees a skill."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from agentgym.errors import UsageError
from agentgym.trajectory.records import Trajectory
from baselines import grpo, opid
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from baselines.skills import Skills
from baselines.tiny import make_model
from tests.baselines import test_run
from tests.baselines.conftest import EVEN, TRAINERS, lines
from tests.baselines.test_grpo import ONE, trajectory
from tests.baselines.toys import TEXTS
from tests.wrappers.test_prompts import Room, Shop

TRAINERS["opid"] = (opid, opid.OPID)
WORDS = "Do this, in order: ; Do none of these. Do not: it is not possible here, brings nothing new."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Knows the words of ``Even-v0`` and of advice."""
    texts = [*TEXTS, WORDS, opid.EPISODE, opid.STEP]
    return make_model(tmp_path_factory.mktemp("even"), texts, hidden=32, context=512)


def flags(*words):
    from baselines.flags import arguments

    return arguments(opid.Args, "opid", "", [str(word) for word in words])


def learner_of(model, *words):
    args = flags(*EVEN, "--model", model, "--group-size", 4, "--device", "cpu", "--out", "x", *words)
    learner = opid.OPID(args, Ranks("cpu"))
    learner.optimizer = torch.optim.SGD(learner.actor.parameters(), 0.5)
    return learner


def played(learner, groups=2, **stack):
    rollouts = Rollouts(learner.args.env, stack, learner.actor.policy, Ranks("cpu"), seed=3, group_size=4)
    return batch_of(rollouts.play(groups))


class Says:
    """An analyser that always says the same."""

    def __init__(self, *skills):
        self.skills = skills

    def analyse(self, trajectories, chosen):
        return [self.skills[n % len(self.skills)] for n in chosen]


def terms(learner, batch, *skills):
    """A_skill of each kind, per segment (T_k,), and the numbers."""
    learner.analyser = Says(*skills)
    found, _ = learner.skills(batch)
    readings, lost = learner.readings(batch, found)
    by_kind, numbers = learner.skill_advantages(batch, readings)
    return by_kind, numbers | lost


BOTH = Skills("Do this, in order: red; grey", {1: "Do this: blue"})


def by_hand(learner, segment, reply, message, block):
    """log p(reply | history with the block at the end of a message) - log p(reply | history), one pass a history."""
    tokenizer = learner.actor.tokenizer
    sampled = segment.token_ids[reply.start : reply.stop]

    def score(prompt):
        ids = torch.tensor([[*prompt, *sampled]])
        with torch.no_grad():
            logits = learner.actor.model(input_ids=ids).logits[0].double()  # (T, V)
        logp = torch.log_softmax(logits / learner.args.temperature, -1)
        return [logp[len(prompt) + n - 1, token].item() for n, token in enumerate(sampled)]

    old = segment.token_ids[: reply.start]
    ends = [at for at, token in enumerate(old) if token == tokenizer.eos_token_id]
    # This tokenizer cuts no word in two, so ids can be put in before the token that ends the message.
    at = ends[message]
    return np.array(score([*old[:at], *tokenizer.encode(block), *old[at:]])) - np.array(score(old))


@pytest.mark.parametrize("words", [[], ["--temperature", 0.7, "--pack-tokens", 200]])
def test_the_same_tokens_under_both_histories(model, words):
    learner = learner_of(model, *words)
    batch = played(learner)
    found, numbers = terms(learner, batch, BOTH)
    compared = 0
    for k, segment in enumerate(batch.segments):
        for reply in segment.sampled:
            kind, message, block = (
                ("step", reply.message - 1, f"\n\n{opid.STEP}{BOTH.steps[1]}")
                if reply.step == 1
                else ("episode", 0, f"\n\n{opid.EPISODE}{BOTH.episode}")
            )
            tokens = slice(reply.start, reply.stop)
            wanted = by_hand(learner, segment, reply, message, block)
            assert found[kind][k][tokens] == pytest.approx(wanted, abs=1e-5)
            assert np.abs(wanted).max() > 1e-4, "the model does read the skill"
            other = found["episode" if kind == "step" else "step"].get(k, np.zeros(len(segment.token_ids)))
            assert not other[tokens].any(), "critical first"
            compared += 1
        for of_segments in found.values():
            assert k not in of_segments or not of_segments[k][~batch.masks[k]].any()
    assert compared > 10
    assert numbers["skill/tokens"] == 1.0
    assert numbers["skill/unplaced"] == numbers["skill/too_long"] == 0.0


def test_additive_sums_both(model):
    learner, summed = learner_of(model), learner_of(model, "--routing", "additive")
    batch = played(learner)
    first, _ = terms(learner, batch, BOTH)
    both, _ = terms(summed, batch, BOTH)
    alone, _ = terms(learner, batch, Skills(BOTH.episode))
    assert first["step"].keys() == both["step"].keys()
    for k in alone["episode"]:
        assert np.allclose(both["episode"][k], alone["episode"][k], atol=1e-6)
    for k in first["step"]:
        assert np.allclose(both["step"][k], first["step"][k], atol=1e-6)


def test_without_step_skills_every_reply_has_the_episode_skill(model):
    learner = learner_of(model, "--step-skill", 0)
    batch = played(learner)
    found, numbers = terms(learner, batch, BOTH)
    alone, _ = terms(learner, batch, Skills(BOTH.episode))
    assert found["step"] == {}
    assert numbers["skill/tokens"] == 1.0
    assert all(np.array_equal(found["episode"][k], row) for k, row in alone["episode"].items())
    found, _ = terms(learner_of(model, "--episode-skill", 0), batch, BOTH)
    assert found["episode"] == {}
    assert found["step"]


def test_weights_of_both_kinds_on_top_of_grpo(model):
    words = ["--episode-skill", 0.5, "--step-skill", 2]
    learner = learner_of(model, *words)
    batch = played(learner)
    found, _ = terms(learner, batch, BOTH)
    total, _ = learner.token_advantages(batch, Costs())
    for k, (row, outcome) in enumerate(zip(total, learner.credit(batch), strict=True)):
        none = np.zeros(len(row))
        wanted = outcome + 0.5 * found["episode"].get(k, none) + 2 * found["step"].get(k, none)
        assert np.array_equal(row, wanted)
        assert not row[~batch.masks[k]].any()


@pytest.mark.parametrize(
    "skills",
    [
        [Skills()],
        [Skills("", {})],
        [Skills(" ")],
        [Skills("<|im_end|>")],
        [Skills(failure="no answer", tries=2)],
    ],
)
def test_an_empty_skill_is_exactly_nothing(model, skills):
    learner = learner_of(model)
    batch = played(learner)
    learner.analyser = Says(*skills)
    advantages, _ = learner.token_advantages(batch, Costs())
    for row, outcome in zip(advantages, learner.credit(batch), strict=True):
        assert row.tobytes() == outcome.tobytes()


def test_a_history_that_is_the_same_scores_exactly_the_same(model, monkeypatch):
    """The control of the whole path: find, edit, encode, pack, score, subtract."""
    monkeypatch.setattr(opid, "with_episode_skill", lambda text, skill: text)
    monkeypatch.setattr(opid, "with_step_skill", lambda text, skill: text)
    learner = learner_of(model)
    found, numbers = terms(learner, played(learner), BOTH)
    assert numbers["skill/tokens"] == 1.0
    assert all(not row.any() for of_segments in found.values() for row in of_segments.values())


def test_without_weights_it_is_grpo_bit_for_bit(model):
    learner = learner_of(model, "--episode-skill", 0, "--step-skill", 0)
    learner.analyser = None  # is not asked
    plain = grpo.GRPO(
        flags(*EVEN, "--model", model, "--group-size", 4, "--device", "cpu", "--out", "x"), Ranks("cpu")
    )
    plain.optimizer = torch.optim.SGD(plain.actor.parameters(), 0.5)
    batch = played(learner)
    assert learner.update(batch, Costs()) == plain.update(batch, Costs())
    for ours, theirs in zip(learner.actor.parameters(), plain.actor.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_skills_from_and_until(model):
    learner = learner_of(model, "--skill-from", 1, "--skill-until", 2)
    learner.analyser = Says(BOTH)
    batch = played(learner)
    assert ["skill/tokens" in learner.update(batch, Costs()) for _ in range(4)] == [False, True, False, False]


def test_scale_and_clip(model):
    learner = learner_of(model)
    gained = [np.array([1.0, -3.0]), np.array([5.0, -3.0])]  # mean 0, squares 44 / 4
    learner.args = flags(*EVEN, "--out", "x", "--skill-scale", "std")
    assert np.allclose(np.concatenate(learner._tamed(gained)) * 11**0.5, [1, -3, 5, -3])
    learner.args = flags(*EVEN, "--out", "x", "--skill-clip", 2)
    assert np.concatenate(learner._tamed(gained)).tolist() == [1, -2, 2, -2]
    learner.args = flags(*EVEN, "--out", "x", "--skill-scale", "std", "--skill-clip", 1)
    assert np.allclose(np.concatenate(learner._tamed(gained)), [11**-0.5, -3 * 11**-0.5, 1, -3 * 11**-0.5])
    learner.args = flags(*EVEN, "--out", "x", "--skill-scale", "std")
    assert learner._tamed([np.zeros(2)])[0].tolist() == [0, 0]
    equal = [np.array([0.3, 0.1 + 0.2])]  # but for rounding: divided by that they would be 1e16
    assert learner._tamed(equal)[0].tolist() == equal[0].tolist()


def test_groups_over_steps(model):
    """Returns 1 and 0 of 3 and 1 steps. Over steps: mean 3/4, deviation with n - 1: sqrt((3/16 + 9/16) / 3) = 1/2."""
    batch = batch_of([trajectory(0, 1.0, ONE, ONE, ONE), trajectory(0, 0.0, ONE)])

    def credit(*words):
        learner = opid.OPID.__new__(opid.OPID)
        learner.args = flags(*EVEN, "--out", "x", *words)
        return [row[-1] for row in learner.credit(batch)]

    assert credit("--statistics", "steps") == pytest.approx([0.5] * 3 + [-1.5], abs=1e-5)
    assert credit("--statistics", "steps", "--estimator", "dr_grpo") == pytest.approx([0.25] * 3 + [-0.75])
    assert credit() == pytest.approx([0.5**0.5] * 3 + [-(0.5**0.5)], abs=1e-5)


# -- what gets lost ----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_dropped_and_counted(model):
    """A row bounded at its own length has no room for a skill; nothing is cut to make some."""
    learner = learner_of(model)
    batch = played(learner)
    lengths = [len(row.ids) for row in batch.rows]
    learner.analyser = Says(BOTH)
    found, _ = learner.skills(batch)
    learner.args = flags(*EVEN, "--out", "x", "--pack-tokens", max(lengths))
    readings, lost = learner.readings(batch, found)
    assert lost["skill/too_long"] > 0
    assert all(len(reading.row.ids) <= max(lengths) for reading in readings)
    covered = {(reading.segment, at) for reading in readings for at in reading.at.tolist()}
    replies = [(k, reply.start) for k, segment in enumerate(batch.segments) for reply in segment.sampled]
    assert lost["skill/too_long"] == sum(reply not in covered for reply in replies)
    learner.args = flags(*EVEN, "--out", "x", "--pack-tokens", 20)
    assert learner.readings(batch, found)[1]["skill/too_long"] > lost["skill/too_long"]


def test_the_early_replies_of_a_conversation_fit_although_the_late_ones_do_not(model):
    learner = learner_of(model)
    batch = played(learner)
    k = max(range(len(batch.rows)), key=lambda k: len(batch.segments[k].sampled))
    learner.analyser = Says(Skills("Do this, in order: red"))
    found, _ = learner.skills(batch)
    whole, _ = learner.readings(batch, found)
    (before,) = [reading for reading in whole if reading.segment == k]
    learner.args = flags(*EVEN, "--out", "x", "--pack-tokens", len(before.row.ids) - 1)
    cut, lost = learner.readings(batch, found)
    (after,) = [reading for reading in cut if reading.segment == k]
    last = batch.segments[k].sampled[-1]
    assert lost["skill/too_long"] >= 1
    assert after.at.tolist() == [at for at in before.at.tolist() if at < last.start]
    assert after.row.ids.tolist() == before.row.ids[: len(after.row.ids)].tolist()


def test_a_message_that_is_not_found_is_counted(model):
    learner = learner_of(model)
    batch = played(learner)
    for segment in batch.segments:
        segment.messages = tuple(type(m)(m.role, "red grey") for m in segment.messages)
    found, numbers = terms(learner, batch, BOTH)
    assert found == {"episode": {}, "step": {}}
    assert numbers["skill/unplaced"] == sum(len(segment.sampled) for segment in batch.segments)


def test_summaries_and_broken_episodes_have_no_skill(model):
    learner = learner_of(model, "--max-turns", 6)
    stack = {"compact": 300, "reply_tokens": 5, "summarizer": "policy", "keep_last": 1,
             "env_kwargs": {"padding": 60, "max_turns": 6}}  # fmt: skip
    batch = played(learner, **stack)
    kinds = {(n, i): step.kind for n, t in enumerate(batch.trajectories) for i, step in enumerate(t.steps)}
    assert "summary" in kinds.values()
    found, _ = terms(learner, batch, Skills("Do this, in order: red"))
    for k, segment in enumerate(batch.segments):
        row = found["episode"].get(k, np.zeros(len(segment.token_ids)))
        for reply in segment.sampled:
            has = row[reply.start : reply.stop].any()
            assert has == (kinds[batch.rollouts[k], reply.step] == "turn")
    broken = batch.trajectories[0]
    broken.infrastructure_error, broken.reward = "gone", None
    assert 0 not in learner.skills(batch_of(batch.trajectories))[0]


def test_sub_agents_have_no_skill(model):
    learner = learner_of(model)
    batch = played(learner)
    batch.chains[0] = batch.chains[0]._replace(leads=False)
    found, _ = terms(learner, batch, Skills("Do this, in order: red"))
    assert not set(batch.chains[0].segments) & found["episode"].keys()
    assert set(batch.chains[1].segments) <= found["episode"].keys()


# -- who sees what -----------------------------------------------------------------------------------------------------


def test_the_reference_and_the_ratios_never_see_a_skill(model, monkeypatch):
    learner = learner_of(model, "--kl-coef", 0.01, "--epochs", 2)
    learner.analyser = Says(BOTH)
    batch = played(learner)
    asked = []
    rescore = learner.rescore

    def watched(rows, *, reference=False):
        asked.append(
            (reference, learner.updates, learner.actor.model.training, [row.ids.tolist() for row in rows])
        )
        return rescore(rows, reference=reference)

    monkeypatch.setattr(learner, "rescore", watched)
    before = copy.deepcopy(learner.actor.model.state_dict())
    steps = []
    step = learner.optimizer.step
    monkeypatch.setattr(learner.optimizer, "step", lambda: steps.append(len(asked)) or step())
    learner.update(batch, Costs())
    plain = [row.ids.tolist() for row in batch.rows]
    skilled, old, first = asked
    assert (old[0], old[3]) == (False, plain)
    assert (first[0], first[3]) == (True, plain)
    assert not skilled[0]
    assert len(skilled[3]) > len(plain)
    assert not any(training for _, _, training, _ in asked), "dropout would be noise of the size of A_skill"
    assert steps == [3, 3], "everything was scored before the first step"
    assert any(not torch.equal(before[name], now) for name, now in learner.actor.model.state_dict().items())


def test_the_policy_analyses_itself(model):
    learner = learner_of(model, "--analyser", "policy", "--analyser-tokens", 8)
    numbers = learner.update(played(learner), Costs())
    assert numbers["skill/failed"] == numbers["skill/second_tries"] == 1.0, "random weights write no JSON"
    assert numbers["skill/tokens"] == 0.0


@pytest.mark.parametrize("name", ["rules", "oracle", "none"])
def test_analysers_by_name(model, name):
    learner = learner_of(model, "--analyser", name)
    numbers = learner.update(played(learner), Costs())
    assert (numbers["skill/tokens"] > 0.5) == (name != "none")
    assert numbers["skill/failed"] == 0.0


def test_names_that_are_none(model, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match=r"unknown analyser 'rule'\. Did you mean 'rules'"):
        learner_of(model, "--analyser", "rule")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        learner_of(model, "--analyser", "openai:gpt")
    with pytest.raises(UsageError, match="lists none"):
        learner_of(model, "--analyser", "random")
    with pytest.raises(UsageError, match="--also gives more"):
        learner_of(model, "--analyser", "oracle", "--also", "agentgym/Relay-v0")
    for flag, value in (
        ("--skill-clip", -1),
        ("--step-skills", -1),
        ("--analyser-tokens", 0),
        ("--step-skill", "nan"),
    ):
        with pytest.raises(UsageError, match=flag):
            learner_of(model, flag, value)


# -- places ------------------------------------------------------------------------------------------------------------


def shown(env, *actions):
    conversation, _ = env.reset(seed=0)
    for action in actions:
        conversation, *_ = env.step(action)
    return conversation[-1].content


@pytest.mark.parametrize(
    ("form", "inner", "task"),
    [("alfworld", Room, "put a {cup} on shelf."), ("webshop", Shop, None), ("text", Room, None)],
)
@pytest.mark.parametrize("actions", [(), ("<think></think><action>look</action>",)])
def test_places_in_published_prompts(form, inner, task, actions):
    from agentgym.wrappers.prompts import PublishedPrompts

    prompt = shown(PublishedPrompts(inner(), form), *actions)
    episode = opid.with_episode_skill(prompt, "Be quick.").splitlines()
    at = episode.index(f"{opid.EPISODE}Be quick.")
    assert "ask" in episode[at - 1], "the line of the task"
    if task:
        assert task in episode[at - 1]
    assert "\n".join(episode[:at] + episode[at + 1 :]) == prompt
    step = opid.with_step_skill(prompt, "Look.")
    before, asking = prompt.split("Choose what to do now.")
    assert step == f"{before}{opid.STEP}Look.\n\nChoose what to do now.{asking}"


def test_places_in_other_texts():
    assert opid.with_step_skill("A room.", "x") == f"A room.\n\n{opid.STEP}x"
    assert opid.with_episode_skill("A room.", "x") == f"A room.\n\n{opid.EPISODE}x"
    asked = "You see a cup.\nNow it's your turn to act."
    assert (
        opid.with_episode_skill(asked, "x")
        == f"You see a cup.\n{opid.EPISODE}x\n\nNow it's your turn to act."
    )
    question = "Question: who?\n\nSay what to do now."
    assert opid.with_episode_skill(question, "x") == f"Question: who?\n{opid.EPISODE}x\n\nSay what to do now."


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra", ["--analyser rules --kl-coef 0.1", "--analyser oracle --skill-scale std --routing additive"]
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(extra, train, model, tmp_path, monkeypatch):
    test_run.test_a_killed_run_goes_on_as_if_nothing_had_happened(
        "opid",
        f"{extra} --episode-skill 0.1 --step-skill 0.1 --epochs 2",
        train,
        model,
        tmp_path,
        monkeypatch,
    )


def test_every_number_is_documented(train, model, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "opid.md").read_text(encoding="utf-8")
    words = [*EVEN, "--model", model, "--groups", 2, "--group-size", 3, "--steps", 1, "--eval-every", 0]
    train("opid", *words, "--out", tmp_path)
    logged = {name for line in lines(tmp_path) for name in line if name.startswith("skill/")}
    assert {name for name in logged if f"`{name}`" not in text} == set()


def test_a_trajectory_without_turns_is_asked_nothing():
    from baselines.skill_rules import RuleAnalyser

    empty = Trajectory("t", prompt="p", extra={"group": 0})
    assert RuleAnalyser().analyse([empty], [0]) == [Skills()]


def test_a_keyword_that_the_environment_does_not_take_is_told(model):
    with pytest.raises(UsageError, match="takes no keyword 'colour'"):
        learner_of(model, "--set", "colour=red", "--analyser", "oracle")


@pytest.mark.slow
def test_the_packaged_model_analyses_rollouts():
    """The same weights give the same skills; whatever it writes is a skill or a counted failure."""
    from agentgym.errors import MissingDependency
    from agentgym.policies import make_policy
    from agentgym.rollout import collect
    from baselines.skills import LanguageAnalyser, ask_policy

    try:
        policy = make_policy("hf:smollm2", max_new_tokens=48, temperature=0.0, device="cpu", cache_tokens=0)
    except MissingDependency as error:
        pytest.skip(str(error))
    (trajectory,) = collect("agentgym/Relay-v0", "gold", episodes=1, env_kwargs={"hops": 1})
    (skills,) = LanguageAnalyser(ask_policy(policy)).analyse([trajectory], [0])
    assert skills.tries in (1, 2)
    assert bool(skills.failure) != bool(skills.episode)
    assert set(skills.steps) <= {0, 1, 2}


@pytest.mark.slow
def test_the_study_runs(tmp_path, capsys):
    pytest.importorskip("textworld")
    from benchmarks.opid import main

    words = [
        "--quick",
        "--seeds",
        "0",
        "--arms",
        "GRPO",
        "oracle 1",
        "--json",
        str(tmp_path / "figures.json"),
    ]
    assert main(words) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures.keys() == {"signs", "trap", "training"}
    assert figures["signs"]["none, step skills"]["0"]["replies"] == 0.0
    assert figures["signs"]["oracle, step skills"]["0"]["replies"] > 10
    assert figures["training"].keys() == {"GRPO", "oracle 1"}
    assert (
        figures["training"]["GRPO"]["0"]["A_skill"] == 0.0 < figures["training"]["oracle 1"]["0"]["A_skill"]
    )
    assert "oracle, step skills" in capsys.readouterr().out
