import copy
import pickle
import sys
import time
import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from agentgym.core import AgentEnv, Task, Verdict, tool
from agentgym.errors import MissingDependency, UsageError
from agentgym.messages import Message, assistant, system, to_openai, user
from agentgym.wrappers import ChatContext
from agentgym.wrappers.tokens import CallableCounter, HFCounter, _Templated, make_counter


class EchoEnv(AgentEnv):
    """Answers with a count; ends after `stop` moves."""

    tasks = [Task("a", prompt="Task a."), Task("b", prompt="Task b: é中🙂.")]
    instructions = "Say something."

    def __init__(self, stop=4, **kwargs):
        super().__init__(**kwargs)
        self.stop = stop

    def begin(self, task):
        self.moves = 0
        return task.prompt

    def respond(self, action):
        self.moves += 1
        if self.moves == self.stop:
            self.finish()
        return f"{self.moves}: {action}"

    def verify(self, episode):
        return Verdict(1.0)


class ToolEnv(EchoEnv):
    respond = AgentEnv.respond

    @tool
    def ping(self) -> str:
        """Ping."""
        return "pong"


gymnasium.register("test/Echo-v0", entry_point=f"{__name__}:EchoEnv")


def count_messages(conversation):
    return 10 * len(conversation)


def test_conversation_grows_by_action_and_answer():
    env = ChatContext(EchoEnv())
    first, info = env.reset(options={"task": "a"})
    assert first == (system("Say something."), user("Task a."))
    assert info["segment"] == 0
    assert "context_tokens" not in info
    second, reward, terminated, truncated, info = env.step("hé")
    assert second == (*first, assistant("hé"), user("1: hé"))
    assert (reward, terminated, truncated, info["segment"]) == (0.0, False, False, 0)
    env.step("x")
    env.step("y")
    *_, reward, terminated, truncated, info = env.step("z")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["verdict"].passed
    assert len(first) == 2
    assert len(second) == 4
    assert env.reset(options={"task": "a"})[0] == first


def test_system_prompt():
    assert ChatContext(EchoEnv(), system_prompt="Mine.").reset()[0][0] == system("Mine.")
    assert ChatContext(EchoEnv(), system_prompt="").reset()[0][0].role == "user"
    env = ToolEnv()
    assert ChatContext(env).reset()[0][0] == system(env.system_prompt)
    assert "ping" in env.system_prompt


def test_wants_text():
    with pytest.raises(UsageError, match="expected observations in UnicodeText, got the conversations of"):
        ChatContext(ChatContext(EchoEnv()))


def test_snapshot_copies_and_pickles():
    env = ChatContext(EchoEnv(), tokens="chars")
    env.reset(seed=1)
    env.step("a")
    saved = env.snapshot()
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = [env.step("b"), env.step("c")]
    env.restore(saved)
    assert [env.step("b"), env.step("c")] == expected
    assert all([twin.step("b"), twin.step("c")] == expected for twin in twins)


def test_spec_round_trip():
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("test/Echo-v0", stop=3))
    env = gymnasium.wrappers.ClipReward(ChatContext(env, "Mine.", f"{__name__}:count_messages"), 0.0, 0.5)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec
    assert again.reset(seed=3)[0] == env.reset(seed=3)[0]
    assert again.step("x")[-1]["context_tokens"] == 40


def test_check_env():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        check_env(ChatContext(gymnasium.make("test/Echo-v0"), tokens="chars"))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", [SyncVectorEnv, pytest.param(AsyncVectorEnv, marks=pytest.mark.slow)])
def test_vector_environments(mode, kind):
    vector = kind([lambda n=n: ChatContext(EchoEnv(stop=n)) for n in (2, 3)], autoreset_mode=mode)
    try:
        observations, _ = vector.reset(seed=0)
        starts = observations
        seen = []
        for _ in range(3):
            observations, *_, infos = vector.step(("x", "y"))
            seen.append([[m.content for m in o[1:]] for o in observations])
        prompt = starts[1][1].content
        assert seen[1][1] == [prompt, "y", "1: y", "y", "2: y"]
        if mode == AutoresetMode.SAME_STEP:
            assert [m.content for m in infos["final_obs"][1][2:]] == ["y", "1: y", "y", "2: y", "y", "3: y"]
            assert len(seen[1][0]) == 1
        else:
            assert seen[2][1] == [prompt, "y", "1: y", "y", "2: y", "y", "3: y"]
            assert len(seen[2][0]) == 1
    finally:
        vector.close()


def test_costs_less_than_twice_a_bare_step():
    def seconds(env):
        start = time.process_time()
        for _ in range(20):
            env.reset()
            for _ in range(20):
                env.step("hello there")
        return time.process_time() - start

    bare, chat = EchoEnv(stop=99), ChatContext(EchoEnv(stop=99))
    pairs = [
        (seconds(bare), seconds(chat)) for _ in range(25)
    ]  # interleaved, so that both see the same noise
    assert min(chat for _, chat in pairs) < 2 * min(bare for bare, _ in pairs)


# -- token counters ------------------------------------------------------------------------------------------


def test_chars():
    counter = make_counter("chars")
    assert counter.count(()) == 4
    assert counter.count((user(""), user("12345"))) == 4 + 4 + 4 + 2
    conversation = (user("12345"), assistant("é" * 8), user("x"))
    assert counter.extend(counter.count(conversation[:1]), conversation, 2) == counter.count(conversation)


def test_running_count_equals_a_full_one():
    for tokens in ("chars", count_messages, f"{__name__}:count_messages"):
        env = ChatContext(EchoEnv(), tokens=tokens)
        messages, info = env.reset()
        assert info["context_tokens"] == make_counter(tokens).count(messages)
        for _ in range(4):
            messages, *_, info = env.step("some text")
            assert info["context_tokens"] == make_counter(tokens).count(messages)


def test_names_are_checked():
    assert isinstance(make_counter(count_messages), CallableCounter)
    assert isinstance(make_counter("hf:smollm2"), HFCounter)
    with pytest.raises(UsageError, match="expected tokens to be 'chars', 'hf:NAME', 'module:attribute' or a"):
        make_counter("words")
    with pytest.raises(
        UsageError, match="tokens='no_such_module:x': expected module:attribute to import, but"
    ):
        make_counter("no_such_module:x")
    with pytest.raises(UsageError, match="tokens='sys:no_such_thing'"):
        make_counter("sys:no_such_thing")


def test_missing_transformers_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    env = ChatContext(EchoEnv(), tokens="hf:missing-for-this-test")  # nothing is loaded yet
    with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[train\]'"):
        env.reset()


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def trained_tokenizer(**options):
    """A tokenizer trained here, on nothing much, so that merges matter."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    byte_level = options.pop("byte_level", True)
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Metaspace()
    )
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(
        ["the cat sat on the mat, the end <tool_call> user assistant\n\n"] * 20,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", **options)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


TALK = (
    system("the cat"),
    user("the mat é中🙂 <|im_end|> the"),
    assistant(" the <tool_call>\n"),
    user(""),
    Message("user", "\n\nthe end "),
)


@pytest.mark.slow  # importing transformers
@pytest.mark.parametrize("byte_level", [True, False])
def test_templated_count_is_exact(byte_level):
    tokenizer = trained_tokenizer(byte_level=byte_level)
    counter = _Templated("test", tokenizer)
    assert (counter._special is not None) == byte_level
    for end in range(1, len(TALK) + 1):
        conversation = TALK[:end]
        text = tokenizer.apply_chat_template(
            to_openai(conversation), tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer.apply_chat_template(
            to_openai(conversation), add_generation_prompt=True, return_dict=False
        )
        assert text.endswith("<|im_start|>assistant\n")
        assert counter.count(conversation) == len(ids)


@pytest.mark.slow
def test_tokenizer_by_path(tmp_path):
    trained_tokenizer().save_pretrained(tmp_path)
    env = ChatContext(EchoEnv(), tokens=f"hf:{tmp_path}")
    messages, info = env.reset()
    expected = _Templated("test", trained_tokenizer()).count(messages)
    assert info["context_tokens"] == expected
    assert pickle.loads(pickle.dumps(env)).step("x")[-1]["context_tokens"] > expected


@pytest.mark.slow
def test_tokenizer_that_cannot_be_used(tmp_path):
    with pytest.raises(UsageError, match=r"tokens='hf:.*no model .* on this machine"):
        make_counter(f"hf:{tmp_path}").count((user("x"),))
    tokenizer = trained_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UsageError, match="has no chat template"):
        _Templated("test", tokenizer)
