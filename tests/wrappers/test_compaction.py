import copy
import pickle
import re
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.core import AgentEnv, Task, Verdict, tool
from agentgym.errors import ContextOverflow, InfrastructureError, ToolError, UsageError
from agentgym.messages import assistant, user
from agentgym.trajectory.records import Compaction, Reply
from agentgym.wrappers import ContextCompaction
from agentgym.wrappers.summaries import DROPPED, LEFT_OUT, SUMMARIZED, SUMMARY_REQUEST, cut
from agentgym.wrappers.tokens import make_counter

ALPHABET = np.array(list("abc abc\n.<>é中🙂"))
CALL = '<tool_call>{{"name": "{}", "arguments": {}}}</tool_call>'


class NoisyEnv(AgentEnv):
    """Answers of any length; the state depends on everything that was called."""

    tasks = [Task(f"t{n}", prompt=f"Task {n}: look around, then stop. " + "é" * 20 * n) for n in range(3)]
    default_max_turns = 12

    def begin(self, task):
        self.state = int(self.np_random.integers(1000))
        return task.prompt

    @tool
    def look(self, size: int) -> str:
        """Look."""
        self.state = (self.state * 31 + size) % 1009
        if self.state % 7 == 0:
            raise ToolError("error: it is dark")
        return "".join(self.np_random.choice(ALPHABET, size=size))

    @tool
    def stop(self) -> str:
        """Stop."""
        self.finish()
        return "bye"

    def anchor(self):
        return str(self.state)

    def verify(self, episode):
        return Verdict((self.state % 101) / 100, passed=self.state % 2 == 0)


def look(*sizes, text=""):
    return text + "".join(CALL.format("look", f'{{"size": {size}}}') for size in sizes)


STOP = CALL.format("stop", "{}")


def toy_tokens(conversation):
    """A tokenizer with merges that overlap, so that pieces do not simply add up."""
    return 3 + sum(2 + len(re.findall(r"abc|ab|bc|ca|.", m.content, re.DOTALL)) for m in conversation)


def utf8_tokens(conversation):
    return sum(3 + len(m.content.encode()) for m in conversation)


def long_summary(conversation):
    """A summarizer that never knows when to stop, and writes like a call."""
    return f"seen {len(conversation)} messages " + STOP + "x" * 5000


class SummaryPolicy:
    name = "canned"

    def act(self, conversations):
        assert all(c[-1].content.endswith(SUMMARY_REQUEST) for c in conversations)
        return [Reply("  canned  ") for _ in conversations]


def make(summarizer="drop", max_tokens=700, reply_tokens=60, env=None, **options):
    env = env or NoisyEnv()
    return ContextCompaction(
        env, max_tokens, reply_tokens, summarizer=summarizer, system_prompt="Be good.", **options
    )


SUMMARIZERS = ["drop", "last", "rule", "policy", f"{__name__}:long_summary", SummaryPolicy()]


def play(env, actions, seed=0, summary="summary " + STOP):
    """Every step as (action, was it a summary, outcome of step)."""
    yield None, False, (*env.reset(seed=seed), None, None, None)
    for action in actions:
        while getattr(env, "summary_requested", False):
            observation, reward, terminated, truncated, info = env.step(summary)
            yield summary, True, (observation, info, reward, terminated, truncated)
        observation, reward, terminated, truncated, info = env.step(action)
        yield action, False, (observation, info, reward, terminated, truncated)
        if terminated or truncated:
            return


def final(env, actions, seed):
    """What must not depend on compaction."""
    rewards, ends, facts = [], [], []
    for action, is_summary, (_, info, reward, terminated, truncated) in play(env, actions, seed):
        if is_summary:
            assert (reward, terminated, truncated, info["calls"]) == (0.0, False, False, ())
        elif action is not None:
            rewards.append(reward)
            ends.append((terminated, truncated))
        if not is_summary:
            facts.append(
                {k: info.get(k) for k in ("calls", "anchor", "verdict", "resolved", "invalid_action")}
            )
    inner = env.unwrapped
    return rewards, ends, facts, inner.episode.turns, inner.state, inner.turns_left


# -- properties, over random episodes ------------------------------------------------------------------------

actions = st.lists(
    st.one_of(
        st.builds(look, st.integers(0, 300), text=st.text(max_size=20)),
        st.builds(look, st.integers(0, 90), st.integers(0, 2500), st.integers(0, 9)),
        st.builds(
            lambda n: "thinking 中 " * n + look(5), st.integers(0, 200)
        ),  # longer than reply_tokens allows
        st.sampled_from(["", "no call at all", "<tool_call>{", STOP]),
    ).map(lambda text: text.encode("utf-8", "replace").decode()),
    max_size=14,
)
settings_of_wrapper = st.fixed_dictionaries(
    {
        "summarizer": st.sampled_from(SUMMARIZERS),
        "max_tokens": st.integers(500, 1500),
        "reply_tokens": st.integers(1, 60),
        "keep_last": st.integers(1, 4),
        "max_compactions": st.integers(0, 3),
    }
)


def check_episode(options, tokens, actions, seed, summary):
    env = make(**options, tokens=tokens)
    count = make_counter(tokens).count
    limit = options["max_tokens"] - options["reply_tokens"]
    handed_out, before, segment, requests = [], (), 0, 0
    for action, is_summary, (messages, info, _, terminated, truncated) in play(env, actions, seed, summary):
        handed_out.append((messages, [(m.role, m.content) for m in messages]))
        over = terminated or truncated
        turns = env.unwrapped.episode.turns
        assert messages in env.observation_space

        # the goal survives, verbatim
        assert messages[0].content == "Be good."
        assert messages[1].role == "user"
        assert messages[1].content.startswith(env.unwrapped.episode.prompt)

        # turns stay whole and in order
        body = messages[2:]
        if env.summary_requested:
            answer = body[-1].content.removesuffix(f"\n\n{SUMMARY_REQUEST}")
            body = (*body[:-1], user(answer))
        assert [m.role for m in body] == ["assistant", "user"] * (len(body) // 2)
        for turn, said, answer in zip(
            turns[len(turns) - len(body) // 2 :], body[::2], body[1::2], strict=True
        ):
            assert said.content == turn.action or " characters cut ..." in said.content
            assert answer.content in (turn.observation, DROPPED) or " characters cut ..." in answer.content
        if turns:
            assert body[-1].content != DROPPED  # the policy reads every answer once

        # the budget
        assert info["context_tokens"] == count(messages)
        if not over:
            assert info["context_tokens"] <= limit
        elif len(turns[-1].action) < options["reply_tokens"]:
            assert info["context_tokens"] <= options["max_tokens"]

        # between rewrites the conversation only grows, by what was sampled
        if "compaction" in info:
            record = info["compaction"]
            old = len(before) if is_summary else len(before) + 2
            changed_task = messages[1] != before[1]
            assert record.kept + len(record.dropped) + changed_task == old
            assert record.after_tokens == info["context_tokens"]
            assert record.segment == (segment := segment + 1)
            assert not over
        else:
            assert messages[: len(before)] == before
            if action is not None and not is_summary:
                assert messages[len(before)] == assistant(action)
            assert not is_summary
        assert info["segment"] == segment

        # requests
        assert info.get("summary_requested", False) == env.summary_requested
        assert messages[-1].content.endswith(SUMMARY_REQUEST) == env.summary_requested
        requests += env.summary_requested
        assert not (over and env.summary_requested)
        before = messages
    assert requests <= options["max_compactions"]
    assert all([(m.role, m.content) for m in messages] == copied for messages, copied in handed_out)


@given(settings_of_wrapper, actions, st.integers(0, 2**31), st.text(max_size=900))
@settings(max_examples=60, deadline=None)
def test_invariants(options, actions, seed, summary):
    check_episode(options, "chars", actions, seed, summary)


@given(settings_of_wrapper, actions, st.integers(0, 2**31), st.sampled_from([toy_tokens, utf8_tokens]))
@settings(max_examples=40, deadline=None)
def test_invariants_under_other_tokenizers(options, actions, seed, tokens):
    options = options | {"max_tokens": options["max_tokens"] * 5}
    check_episode(options, tokens, actions, seed, "a summary " * 30)


@pytest.mark.slow
@given(settings_of_wrapper, actions, st.integers(0, 2**31), st.text(max_size=3000))
@settings(max_examples=1000, deadline=None)
def test_invariants_at_length(options, actions, seed, summary):
    check_episode(options, "chars", actions, seed, summary)
    options = options | {"max_tokens": options["max_tokens"] * 5}
    check_episode(options, toy_tokens, actions, seed, summary)


@given(settings_of_wrapper, actions, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_environment_does_not_notice(options, actions, seed):
    assert final(make(**options), actions, seed) == final(NoisyEnv(), actions, seed)


@pytest.mark.parametrize("summarizer", SUMMARIZERS)
def test_environment_does_not_notice_many_rewrites(summarizer):
    plan = [look(size, 3) for size in range(300, 330)] + [STOP]
    env = make(summarizer, max_tokens=800, env=NoisyEnv(max_turns=40))
    assert final(env, plan, 2) == final(NoisyEnv(max_turns=40), plan, 2)
    assert len(rewrites(env, plan)) > 5


# -- strategies ----------------------------------------------------------------------------------------------


def rewrites(env, actions, **options):
    return [out for _, _, out in play(env, actions, **options) if "compaction" in out[1]]


def test_drop_marks_the_oldest_answers_and_no_more_than_needed():
    env = make("drop", max_tokens=760, keep_last=2)
    steps = list(play(env, [look(300), *[look(200)] * 8], seed=4))
    first = next(i for i, (_, _, out) in enumerate(steps) if "compaction" in out[1])
    before, (messages, info) = steps[first - 1][2][0], steps[first][2][:2]
    assert [m.content == DROPPED for m in messages[3::2]] == [True] + [False] * (first - 1)
    assert info["compaction"].dropped == (before[3],)
    assert info["compaction"].kept == len(messages) - 1
    assert messages[4 : len(before)] == before[4:]
    assert messages[:3] == before[:3]


def test_last_keeps_only_the_last_turns():
    messages, info = rewrites(make("last", keep_last=2), [look(400)] * 8)[0][:2]
    assert len(messages) == 2 + 2 * 2
    assert messages[1].content.endswith(LEFT_OUT)
    assert info["compaction"].strategy == "last"
    assert info["compaction"].summary == ""


def test_rule_lists_the_calls_that_are_gone():
    plan = [look(3), look(41, 42)] + [look(500)] * 6
    messages, info = rewrites(make("rule", keep_last=1), plan)[0][:2]
    summary = info["compaction"].summary
    assert f"{SUMMARIZED}\n{summary}" in messages[1].content
    assert [line.split(" -> ")[0] for line in summary.splitlines()[:3]] == [
        "- look(size=3)",
        "- look(size=41)",
        "- look(size=42)",
    ]


def test_rule_covers_all_turns_since_the_start_as_far_as_there_is_room():
    found = rewrites(make("rule", keep_last=1), [look(7), *map(look, range(600, 610))])
    assert len(found) > 2
    assert "look(size=7)" in found[1][1]["compaction"].summary
    long = rewrites(
        make("rule", keep_last=1, max_tokens=500, env=NoisyEnv(max_turns=90)), map(look, range(100, 180))
    )
    assert re.match(r"\(\d+ turns before these are not listed\)\n- look", long[-1][1]["compaction"].summary)


def test_policy_writes_the_summary_in_a_turn_of_its_own():
    env = make("policy", max_tokens=900)
    env.reset(seed=1)
    while not env.summary_requested:
        messages, reward, terminated, truncated, info = env.step(look(200))
    assert info["summary_requested"] is True
    assert "compaction" not in info
    assert messages[-1].content.endswith(SUMMARY_REQUEST)
    assert [m.role for m in messages[-2:]] == ["assistant", "user"]  # the roles alternate
    left, state, anchor = env.unwrapped.turns_left, env.unwrapped.state, info["anchor"]

    after, reward, terminated, truncated, info = env.step("  I called <b>.\n" + STOP)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert type(reward) is float
    assert (env.unwrapped.turns_left, env.unwrapped.state) == (left, state)
    assert info["anchor"] == anchor
    assert info["tools"] == env.unwrapped.tools
    assert info["calls"] == ()
    assert "summary_requested" not in info
    assert "invalid_action" not in info
    assert not env.summary_requested
    assert after[0] == messages[0]
    assert after[1].content == f"{messages[1].content}\n\n{SUMMARIZED}\nI called <b>.\n{STOP}"
    answer = messages[-1].content.removesuffix(f"\n\n{SUMMARY_REQUEST}")
    assert after[2:] == (*messages[-4:-1], user(answer))  # the last two turns; the request is gone
    assert info["compaction"].summary == "I called <b>.\n" + STOP
    assert info["compaction"].strategy == "policy"
    assert info["segment"] == 1


def test_an_empty_summary_leaves_the_former_in_force():
    env = make("policy", max_tokens=900)
    env.reset(seed=1)
    texts = iter(["the first", " \n"])
    summaries = []
    for size in range(400, 412):
        if env.summary_requested:
            summaries.append(env.step(next(texts))[-1]["compaction"].summary)
        if len(summaries) == 2:
            break
        env.step(look(size))
    assert summaries == ["the first", "the first"]


def test_no_more_requests_than_allowed():
    env = make("policy", max_tokens=800, max_compactions=1, env=NoisyEnv(max_turns=40))
    found = rewrites(env, [look(200)] * 40, summary="kept")
    assert [info["compaction"].strategy for _, info, *_ in found][:3] == ["policy", "last", "last"]
    assert all("kept" in messages[1].content for messages, *_ in found)


def test_long_summary_is_cut():
    found = rewrites(make("policy", max_tokens=900), map(look, range(400, 410)), summary="x" * 9000)
    summary = found[0][1]["compaction"].summary
    assert "characters cut" in summary
    assert 150 < len(summary) / 4 < 900 / 3  # near, and at most, a third of what the task leaves


def test_given_summarizers():
    messages, info = rewrites(make(SummaryPolicy(), max_tokens=900), [look(200)] * 9)[0][:2]
    assert messages[1].content.endswith(f"{SUMMARIZED}\ncanned")
    assert info["compaction"].strategy == "canned"
    name = f"{__name__}:long_summary"
    messages, info = rewrites(make(name, max_tokens=900), [look(200)] * 9)[0][:2]
    assert info["compaction"].strategy == name
    with pytest.raises(UsageError, match="expected a text from the summarizer none, got NoneType"):
        rewrites(make(none), [look(400)] * 9)


def none(conversation):
    return None


class SeededSummaries(SummaryPolicy):
    takes_seeds = True

    def act(self, conversations, *, seeds):
        return [Reply(f"seed {seed}") for seed in seeds]


def test_a_model_gets_seeds_that_follow_from_the_episode():
    def summaries(env, actions, **reset):
        env.reset(**reset)
        infos = [env.step(action)[-1] for action in actions]
        return [info["compaction"].summary for info in infos if "compaction" in info]

    env, actions = make(SeededSummaries(), max_tokens=900, env=NoisyEnv(max_turns=40)), [look(200)] * 30
    first = summaries(env, actions, seed=5)
    assert len(set(first)) == len(first) >= 2
    other = summaries(env, actions, seed=6)
    assert set(other).isdisjoint(first)
    assert set(summaries(env, actions)).isdisjoint(other)  # without a seed: a new episode
    assert summaries(env, actions, seed=5) == first

    env.reset(seed=5)
    env.step(actions[0])
    before = env.snapshot()
    for _ in range(2):
        env.restore(before)
        infos = [env.step(action)[-1] for action in actions[1:]]
        assert [info["compaction"].summary for info in infos if "compaction" in info] == first


def overflows(conversation):
    raise ContextOverflow("too long for me")


def test_a_conversation_too_long_for_a_given_model_is_cut_to_its_last_turns():
    found = rewrites(make(overflows, max_tokens=900), [look(200)] * 9)
    assert found[0][1]["compaction"].strategy == "last"
    assert found[0][1]["compaction"].summary == ""


def broken(conversation):
    raise InfrastructureError("the server is gone")


def test_broken_summarizer_ends_the_episode_as_infrastructure():
    *_, (_, _, (_, info, reward, terminated, truncated)) = play(make(broken), [look(400)] * 9)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["infrastructure_error"] == "the server is gone"
    assert info["context_tokens"] <= 700


def test_answer_larger_than_the_window_is_cut_first():
    for summarizer in SUMMARIZERS:
        env = make(summarizer, max_tokens=700)
        env.reset(seed=3)
        messages, *_, info = env.step(look(20_000))
        assert len(messages) == 4
        assert "compaction" not in info
        assert re.search(r"\n\[\.\.\. \d{5} characters cut \.\.\.\]\n", messages[-1].content)
        assert messages[-1].content.startswith("<tool_response>")
        assert info["context_tokens"] <= 640
        assert env.unwrapped.episode.turns[0].observation not in messages[-1].content


def test_action_larger_than_the_window_is_a_rewrite():
    env = make("policy", max_tokens=700)
    env.reset(seed=3)
    messages, *_, info = env.step("x" * 20_000 + look(5))
    assert "characters cut" in messages[2].content
    assert info["compaction"].dropped == (assistant("x" * 20_000 + look(5)),)
    assert not env.summary_requested


def test_final_answer_is_appended_and_nothing_else():
    for summarizer in SUMMARIZERS:
        env = make(summarizer, env=NoisyEnv(max_turns=2))
        env.reset(seed=3)
        before, *_ = env.step(look(100))
        messages, _, _, truncated, info = env.step(look(20_000))
        assert truncated
        assert messages[: len(before)] == before
        assert info["context_tokens"] <= 700
        assert not env.summary_requested
        assert "verdict" in info


def test_arguments_are_checked():
    with pytest.raises(UsageError, match=r"unknown summarizer 'rules'. Did you mean 'rule'"):
        make("rules")
    with pytest.raises(UsageError, match=r"summarizer='no_such:thing'"):
        make("no_such:thing")
    with pytest.raises(UsageError, match="expected keep_last >= 1, got 0"):
        make(keep_last=0)
    with pytest.raises(UsageError, match="expected observations in UnicodeText, got the conversations of"):
        make(env=make())
    with pytest.raises(
        UsageError,
        match=r"expected max_tokens >= \d+ for this task with reply_tokens=\d+, got 100: system prompt and",
    ):
        make(max_tokens=100).reset()
    with pytest.raises(UsageError, match="asking for a summary"):
        make("policy", max_tokens=300).reset()
    with pytest.raises(UsageError, match="expected the summary as text, got int"):
        list(play(make("policy"), [look(300)] * 9, summary=3))


def test_the_smallest_window_that_is_accepted_works():
    for summarizer in SUMMARIZERS:
        needed = 1
        try:
            make(summarizer, max_tokens=1).reset(seed=0)
        except UsageError as error:
            needed = int(re.search(r">= (\d+)", str(error))[1])
        plan = [look(3), look(900), "", "x" * 900, look(50), look(2)] * 2
        options = {"summarizer": summarizer, "max_tokens": needed, "reply_tokens": 60, "max_compactions": 3}
        check_episode(options, "chars", plan, 0, "s" * 300)


def test_cut_says_how_much_is_gone_and_never_lengthens():
    text = "abcdefghij" * 20
    assert cut(text, 5) == "abc\n[... 195 characters cut ...]\nij"
    assert cut(text, 0) == "\n[... 200 characters cut ...]\n"
    assert cut(text, 199) == text
    assert cut("short", 0) == "short"
    assert [len(cut(text, k)) for k in range(201)] == sorted(len(cut(text, k)) for k in range(201))


# -- Gymnasium -----------------------------------------------------------------------------------------------

PLAN = [look(300), look(10, 500), "nonsense", look(3000), look(400), look(1), look(350), look(200), STOP]


def strip(outcome):
    messages, info, *rest = outcome
    return messages, {k: v for k, v in info.items() if k not in ("tools",)}, rest


@pytest.mark.parametrize("summarizer", SUMMARIZERS)
def test_snapshot_and_copies_in_mid_episode(summarizer):
    def continue_from(env, start):
        outcomes = []
        for action in PLAN[start:]:
            if env.summary_requested:
                outcomes.append(env.step("sum"))
            outcomes.append(env.step(action))
        return outcomes

    env = make(summarizer, max_tokens=600)
    env.reset(seed=5)
    requested = False
    for at, action in enumerate(PLAN[:-2]):
        saved = env.snapshot()
        twins = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
        expected = continue_from(env, at)
        env.restore(saved)
        assert continue_from(env, at) == expected
        env.restore(saved)
        assert all(continue_from(twin, at) == expected for twin in twins)
        requested |= env.summary_requested
        if env.summary_requested:
            env.step("sum")
        env.step(action)
    assert requested == (summarizer == "policy")


gymnasium.register("test/Noisy-v0", entry_point=f"{__name__}:NoisyEnv")


def test_spec_round_trip():
    env = gymnasium.make("test/Noisy-v0", max_turns=5)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = ContextCompaction(env, 800, 60, keep_last=3, summarizer=f"{__name__}:long_summary")
    env = gymnasium.wrappers.ClipReward(env, 0.0, 0.5)
    spec = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    again = gymnasium.make(spec)
    assert again.spec == env.spec
    assert again.env.keep_last == 3
    a, b = ([strip(out)[0] for _, _, out in play(e, PLAN)] for e in (env, again))
    assert a == b


@pytest.mark.parametrize("summarizer", SUMMARIZERS)
def test_check_env(summarizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        check_env(make(summarizer, env=gymnasium.make("test/Noisy-v0")))


def single_run(summarizer, plan, seed, mode):
    """What a vector environment with that autoreset mode must show."""
    env = make(summarizer)
    observations = [env.reset(seed=seed)[0]]
    resetting = False
    for action in plan:
        if resetting:
            observations.append(env.reset()[0])
            resetting = False
            continue
        messages, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        if over and mode == AutoresetMode.SAME_STEP:
            messages = env.reset()[0]
        resetting = over and mode != AutoresetMode.SAME_STEP
        observations.append(messages)
        if over and mode == AutoresetMode.DISABLED:
            observations[-1] = env.reset()[0]
            resetting = False
    return observations


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("summarizer", ["drop", "policy"])
@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_vector_environments(mode, summarizer, kind):
    plan = [look(300), look(10, 500), look(3000), look(400), look(1), look(350), STOP] * 3
    vector = gymnasium.make_vec(
        "test/Noisy-v0",
        num_envs=2,
        vectorization_mode=kind,
        vector_kwargs={"autoreset_mode": mode},
        wrappers=[lambda env: make(summarizer, env=env)],
    )
    try:
        seen = [vector.reset(seed=[7, 8])[0]]
        for action in plan:
            observations, _, terminated, truncated, infos = vector.step((action, action))
            over = terminated | truncated
            if over.any() and mode == AutoresetMode.SAME_STEP:
                assert infos["final_obs"][0] is not None
            if over.any() and mode == AutoresetMode.DISABLED:
                observations, _ = vector.reset(options={"reset_mask": over})
            seen.append(observations)
    finally:
        vector.close()
    for index, seed in enumerate((7, 8)):
        assert [observations[index] for observations in seen] == single_run(summarizer, plan, seed, mode)


def test_info_has_the_types_of_the_table():
    for _, _, (_, info, *_) in play(make("policy"), PLAN):
        assert type(info["segment"]) is int
        assert type(info["context_tokens"]) is int
        assert isinstance(info.get("compaction", None), Compaction | None)
