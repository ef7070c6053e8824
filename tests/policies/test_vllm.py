"""`VLLMPolicy`: against a scripted server, against llama.cpp, and over a stand-in for vLLM's own class."""

import json
import shutil
import sys
import types

import pytest

from agentgym.errors import ContextOverflow, InfrastructureError, MissingDependency, UsageError
from agentgym.messages import assistant, system, user
from agentgym.policies import make_policy, models
from agentgym.rollout import collect
from agentgym.trajectory.segments import SegmentBuilder
from tests.policies.fake_server import FakeServer

pytest.importorskip("transformers")
ASKED = (system("be brief"), user("hello"))
NEXT = user("more")


@pytest.fixture
def tokenizer(tiny_model):
    return models.tokenizer(tiny_model)


@pytest.fixture
def connect(tokenizer):
    """A policy that asks a scripted server."""

    def make(url, **options):
        return make_policy("vllm:m", base_url=url, tokenizer=tokenizer, **options)

    return make


def answer(tokenizer, text, ids=None, prompt=None, **more):
    """What vLLM answers: the text without the end of turn, the ids with it."""
    ids = [*tokenizer.encode(text), tokenizer.eos_token_id] if ids is None else ids
    choice = {
        "index": 0,
        "text": text,
        "token_ids": ids,
        "prompt_token_ids": prompt,
        "logprobs": {"token_logprobs": [-0.5] * len(ids)},
        "finish_reason": "stop",
    }
    return {"choices": [choice | more], "usage": {"prompt_tokens": len(prompt or ())}}


def echo(tokenizer, text, **more):
    return lambda request: answer(tokenizer, text, prompt=request["prompt"], **more)


def test_ids_go_out_and_come_in(connect, tokenizer):
    fake = FakeServer(echo(tokenizer, "hi"))
    with fake.running() as url:
        policy = connect(url, max_new_tokens=9, stop="END", version="7")
        (reply,) = policy.act([ASKED], seeds=[(1 << 31) + 5])
        (second,) = policy.act([(*ASKED, assistant(reply.text), NEXT)])
        policy.close()
    prompt = tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in ASKED], add_generation_prompt=True, return_dict=False
    )
    sampled = (*tokenizer.encode("hi"), tokenizer.eos_token_id)
    assert (reply.text, list(reply.prompt_ids), reply.sampled_ids) == ("hi", prompt, sampled)
    assert (reply.logprobs, reply.temperature, reply.policy_version) == ((-0.5,) * 3, 1.0, "7")
    assert reply.end_of_turn == (tokenizer.eos_token_id,)
    assert second.prompt_ids[: len(prompt) + 3] == (*prompt, *sampled)
    wanted = {"model": "m", "prompt": prompt, "max_tokens": 9, "temperature": 1.0, "seed": 5, "stop": ["END"]}
    assert {key: fake.requests[0][key] for key in wanted} == wanted
    assert fake.requests[0]["return_token_ids"] is True


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"temperature": 0.6}, None),
        ({"temperature": 0.6, "processed_logprobs": True}, (-0.5,) * 3),
        ({"temperature": 0}, None),
    ],
)
def test_log_probs_are_of_the_sampling_distribution_or_missing(connect, tokenizer, options, kept):
    with FakeServer(echo(tokenizer, "hi")).running() as url:
        (reply,) = connect(url, **options).act([ASKED])
    assert reply.logprobs == kept


def test_answers_that_are_not_what_was_asked_are_refused(connect, tokenizer):
    def said(step):
        with FakeServer(step).running() as url, pytest.raises((InfrastructureError, UsageError)) as caught:
            connect(url, max_retries=0).act([ASKED])
        return str(caught.value)

    assert "read another prompt than was sent" in said(
        lambda request: answer(tokenizer, "hi", prompt=request["prompt"][1:])
    )
    assert "gave ids of the text 'ho</s>' with the text 'hi'" in said(
        echo(tokenizer, "hi", token_ids=[*tokenizer.encode("ho"), tokenizer.eos_token_id])
    )
    assert "tells no token ids" in said(echo(tokenizer, "hi", token_ids=None))
    assert "500" in said((500, "down"))


def test_what_does_not_fit(connect, tokenizer):
    def step(request):
        if len(request["prompt"]) > 60:
            return 400, {"error": {"message": "This model's maximum context length is 60 tokens"}}
        return echo(tokenizer, "hi")(request)

    with FakeServer(step).running() as url:
        policy = connect(url)
        with pytest.raises(ContextOverflow, match="--compact") as caught:
            policy.act([(user("hi"),), (user("x" * 99),)])
        done = collect("agentgym/Relay-v0", policy, episodes=2, env_kwargs={"max_turns": 2})
    assert caught.value.position == 1
    assert [t.truncated for t in done] == [True, True]


def test_weights_and_sleep(connect, tokenizer):
    fake = FakeServer(echo(tokenizer, "hi"))
    with fake.running() as url:
        policy = connect(url)
        policy.sleep(2)
        policy.wake()
        policy.update_weights("/shared/step-3", "3")
        (reply,) = policy.act([ASKED])
        with pytest.raises(UsageError, match="a server reads weights from a folder"):
            policy.update_weights([("weight", None)], "4")
    assert reply.policy_version == policy.version == "3"
    rpc = {"method": "reload_weights", "kwargs": {"weights_path": "/shared/step-3"}}
    assert fake.controls == [
        ("/sleep?level=2", {}),
        ("/wake_up", {}),
        ("/collective_rpc", rpc),
        ("/reset_prefix_cache", {}),
    ]
    with FakeServer(vllm=False).running() as url, pytest.raises(UsageError, match="VLLM_SERVER_DEV_MODE=1"):
        connect(url).sleep()


class StandIn:
    """As much of `vllm.LLM` as its documentation says of what is used here."""

    def __init__(self, model, **options):
        self.options = {"model": model} | options
        self.log = []
        self.llm_engine = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=70))

    def generate(self, prompts, params, use_tqdm):
        self.log += zip(prompts, params, strict=True)
        logprob = types.SimpleNamespace(logprob=-0.25)
        done = types.SimpleNamespace(
            token_ids=[5, 6, 1],
            logprobs=[{5: logprob}, {6: logprob, 9: None}, {1: logprob}],
            finish_reason="stop",
        )
        return [types.SimpleNamespace(outputs=[done])] * len(prompts)

    def collective_rpc(self, method, args=(), kwargs=None):
        if callable(method):
            model = types.SimpleNamespace(load_weights=lambda weights: self.log.append(("loaded", weights)))
            method(types.SimpleNamespace(model_runner=types.SimpleNamespace(model=model)), *args)
        else:
            self.log.append((method, kwargs))

    def reset_prefix_cache(self):
        self.log.append("reset")

    def sleep(self, level):
        self.log.append(("sleep", level))

    def wake_up(self):
        self.log.append("wake")


def test_the_engine_in_this_process(monkeypatch, tokenizer):
    made = types.SimpleNamespace(LLM=StandIn, SamplingParams=lambda **options: options)
    monkeypatch.setitem(sys.modules, "vllm", made)
    policy = make_policy(
        "vllm:m", tokenizer=tokenizer, temperature=0.6, max_new_tokens=30, engine={"enforce_eager": True}
    )
    llm = policy.engine._llm
    assert llm.options == {
        "model": "m",
        "enable_sleep_mode": True,
        "logprobs_mode": "processed_logprobs",
        "enforce_eager": True,
    }
    one, two = policy.act([ASKED, (user("hi"),)], seeds=[3, 4])
    assert (one.sampled_ids, one.logprobs, one.text) == ((5, 6, 1), (-0.25,) * 3, tokenizer.decode([5, 6]))
    (asked, params), (_, other) = llm.log
    assert asked == {"prompt_token_ids": list(one.prompt_ids)}
    room = 70 - len(one.prompt_ids)
    assert room < 30 <= 70 - len(two.prompt_ids)
    assert (params["max_tokens"], params["seed"], params["temperature"], params["logprobs"]) == (
        room,
        3,
        0.6,
        0,
    )
    assert other["max_tokens"] == 30
    with pytest.raises(ContextOverflow) as caught:
        policy.act([ASKED, (user("x" * 99),)])
    assert caught.value.position == 1
    llm.log.clear()
    policy.update_weights([("weight", 1)], "1")
    policy.update_weights("folder", "2")
    policy.sleep()
    policy.wake()
    assert llm.log == [
        ("loaded", [("weight", 1)]),
        "reset",
        ("reload_weights", {"weights_path": "folder"}),
        "reset",
        ("sleep", 1),
        "wake",
    ]
    assert policy.act([ASKED])[0].policy_version == "2"


def test_every_token_that_ends_a_reply_of_the_model_ends_one_here(
    monkeypatch, tokenizer, tiny_model, tmp_path
):
    monkeypatch.setitem(sys.modules, "vllm", types.SimpleNamespace(LLM=StandIn, SamplingParams=dict))
    folder = tmp_path / "chat"  # as a chat model has it: the tokenizer's own end, and that of a turn
    shutil.copytree(tiny_model, folder)
    more, bare = folder / "generation_config.json", folder / "config.json"
    more.write_text(json.dumps({"eos_token_id": [1, 9]}))
    assert make_policy("hf:" + str(folder)).end_ids == make_policy(f"vllm:{folder}").end_ids == {1, 9}

    def ended(last, **options):
        """What is read of a server's reply with `last` as its last token."""
        said = echo(tokenizer, "hi", token_ids=[*tokenizer.encode("hi"), last])
        with FakeServer(said).running() as url:
            (reply,) = make_policy("vllm:served", base_url=url, **options).act([ASKED])
        return reply.text, reply.end_of_turn

    assert ended(9, tokenizer=str(folder)) == ("hi", (1, 9))
    assert ended(9, tokenizer=tokenizer, end_ids=[9]) == ("hi", (1, 9))
    assert ended(9, tokenizer=tokenizer) == ("hi" + tokenizer.decode([9]), (1,))
    more.unlink()
    bare.write_text(json.dumps(json.loads(bare.read_text()) | {"eos_token_id": [1, 8]}))
    assert ended(8, tokenizer=str(folder)) == ("hi", (1, 8))
    assert make_policy("hf:" + str(folder)).end_ids == {1, 8}


def test_without_vllm(monkeypatch, tokenizer):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingDependency, match=r"needs vLLM: pip install 'agentgym-suite\[vllm\]'"):
        make_policy("vllm:m", tokenizer=tokenizer)


@pytest.mark.slow
def test_llama_cpp():
    """A real server on the CPU that takes and tells token ids."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(models.smollm2_gguf())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    policy = make_policy("vllm:smollm2", base_url=f"{server.listening_address}/v1", max_new_tokens=12)
    builders = [SegmentBuilder(), SegmentBuilder()]
    live = [ASKED, (user("What is the capital of France?"),)]
    first = []
    for turn in range(3):
        replies = policy.act(live, seeds=[turn, turn + 10])
        first = first or replies
        for builder, conversation, reply in zip(builders, live, replies, strict=True):
            builder.add(conversation, reply)
            assert len(reply.logprobs) == len(reply.sampled_ids) <= 12
        live = [(*c, assistant(r.text), NEXT) for c, r in zip(live, replies, strict=True)]
    for builder in builders:
        assert [event.kind for event in builder.events] == ["append"] * 2
    assert policy.act([ASKED], seeds=[0])[0].sampled_ids == first[0].sampled_ids
    done = collect("agentgym/Relay-v0", policy, episodes=2, workers=2, env_kwargs={"max_turns": 2})
    assert not any(t.infrastructure_error for t in done)
    assert [[e.kind for e in t.events] for t in done] == [["append"]] * 2
    policy.close()
