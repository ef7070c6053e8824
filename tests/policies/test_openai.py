"""`OpenAIPolicy`, against a scripted server and against llama.cpp."""

import contextlib
import threading

import pytest

from agentgym import InfrastructureError
from agentgym.messages import MessageCall, system, user
from agentgym.policies import Reply, make_policy
from agentgym.rollout import collect
from agentgym.tools import Tool
from tests.policies.fake_server import FakeServer, completion

ASKED = (system("be brief"), user("hello"))


def test_a_plain_server():
    fake = FakeServer(completion("hi"))
    with fake.running() as url:
        policy = make_policy(
            "openai:m", base_url=url, max_new_tokens=9, temperature=0.5, stop="END", params={"top_p": 0.9}
        )
        assert policy.act([ASKED]) == [
            Reply("hi", temperature=0.5, finish_reason="stop", prompt_tokens=7, sampled_tokens=3)
        ]
        policy.close()
    del fake.requests[0]["messages"]
    wanted = {"model": "m", "max_completion_tokens": 9, "temperature": 0.5, "stop": ["END"], "top_p": 0.9}
    assert fake.requests == [wanted]
    assert policy.name == "openai:m"


def test_calls_that_a_server_gives_by_itself():
    row = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [row]}
    tool = Tool("bash", "Run.", '{"type": "object"}', "bash")
    broken = said | {"tool_calls": [{"id": "c1"}]}
    fake = FakeServer(completion("", message=said), completion("", message=broken), completion("no call"))
    with fake.running() as url, contextlib.closing(make_policy("openai:m", base_url=url)) as policy:
        reply, calls = policy.call(ASKED, [tool], seed=3)
        with pytest.raises(InfrastructureError, match="expected a call of a function"):
            policy.call(ASKED, [tool])
        assert policy.call(ASKED, [])[1] == ()
    assert (reply.text, calls) == ("", (MessageCall("c1", "bash", '{"command": "ls"}'),))
    assert fake.requests[0]["tools"][0]["function"]["name"] == "bash"
    assert fake.requests[0]["seed"] == 3
    assert "tools" not in fake.requests[2]


def test_requests_of_a_batch_run_at_the_same_time():
    together = threading.Barrier(4)

    def answer(request):
        together.wait(20)
        return completion(request["messages"][-1]["content"] + str(request["seed"]))

    with FakeServer(answer).running() as url:
        replies = make_policy("openai:m", base_url=url, workers=4).act(
            [(user(letter),) for letter in "abcd"], seeds=[1, 2, 3, 1 << 40]
        )
    assert [r.text for r in replies] == ["a1", "b2", "c3", "d0"]


@pytest.mark.parametrize(("temperature", "kept"), [(1.0, (-0.5, -0.25)), (0.7, None)])
def test_token_ids_as_vllm_gives_them(temperature, kept):
    entries = [{"token": "h", "logprob": -0.5}, {"token": "i", "logprob": -0.25}]
    body = completion("hi", logprobs={"content": entries}, token_ids=[5, 6]) | {
        "prompt_token_ids": [1, 2, 3, 4]
    }
    fake = FakeServer(body)
    with fake.running() as url:
        (reply,) = make_policy("openai:m", base_url=url, token_ids=True, temperature=temperature).act([ASKED])
    assert (reply.prompt_ids, reply.sampled_ids, reply.logprobs) == ((1, 2, 3, 4), (5, 6), kept)
    assert (reply.prompt_tokens, reply.sampled_tokens) == (4, 2)
    assert fake.requests[0]["return_token_ids"] is True
    assert fake.requests[0]["top_k"] == 0


@pytest.mark.parametrize(
    ("entries", "ids"),
    [
        ([{"id": 5, "token": "h", "logprob": -0.5}, {"id": 6, "token": "i", "logprob": -0.25}], (5, 6)),
        ([{"token": "h", "logprob": -0.5}], None),
        ([], None),
        (None, None),
    ],
)
def test_token_ids_as_llama_cpp_gives_them_or_nobody(entries, ids):
    body = completion("hi", logprobs={"content": entries})
    with FakeServer(body, body | {"usage": {"prompt_tokens": 8}}).running() as url:
        policy = make_policy("openai:m", base_url=url, token_ids=True)
        reply, other = policy.act([ASKED])[0], policy.act([ASKED])[0]
    assert reply.prompt_ids == (ids and tuple(range(11, 18)))
    assert reply.sampled_ids == ids
    assert reply.logprobs == (ids and (-0.5, -0.25))
    assert other.prompt_ids is other.sampled_ids is other.logprobs is None  # 8 tokens were read, not these 7


@pytest.mark.parametrize(
    "error",
    [
        {
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000",
            "code": 400,
        },
        {"message": "Your input exceeds the context window of this model."},
        {"message": "the request exceeds the available context size, try increasing it", "code": 400},
    ],
)
def test_a_conversation_too_long_for_the_server_ends_its_episode_only(error):
    def answer(request):
        return (400, {"error": error}) if len(request["messages"]) > 3 else completion("take")

    with FakeServer(answer).running() as url:
        policy = make_policy("openai:m", base_url=url)
        first, second = collect("agentgym/Relay-v0", policy, episodes=2)
    for trajectory in (first, second):
        assert not trajectory.infrastructure_error
        assert (trajectory.truncated, trajectory.reward, trajectory.resolved) == (True, 0.0, False)
        assert [step.action for step in trajectory.steps] == ["take", "take"]
        (why,) = (e.data["why"] for e in trajectory.events if e.kind == "context_overflow")
        assert "--compact" in why


def test_a_server_that_fails_marks_the_episodes():
    calls = []

    def answer(request):
        calls.append(request)
        return (500, "down") if len(calls) % 2 else completion("take")

    with FakeServer(answer).running() as url:
        policy = make_policy("openai:m", base_url=url, max_retries=0)
        with pytest.raises(InfrastructureError, match="500"):
            policy.act([ASKED])
        done = collect("agentgym/Relay-v0", policy, episodes=3, workers=1, env_kwargs={"max_turns": 1})
    assert [t.reward for t in done] == [0.0, None, 0.0]
    assert "500" in done[1].infrastructure_error


@pytest.mark.slow
def test_llama_cpp():
    xllamacpp = pytest.importorskip("xllamacpp")
    transformers = pytest.importorskip("transformers")
    from agentgym.policies import models

    params = xllamacpp.CommonParams()
    params.model.path = str(models.smollm2_gguf())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    policy = make_policy(
        "openai:smollm2", base_url=f"{server.listening_address}/v1", max_new_tokens=12, token_ids=True
    )
    replies = policy.act([ASKED, (user("What is the capital of France?"),)], seeds=[1, 2])
    gguf = models.smollm2_gguf()
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True
    )
    for reply in replies:
        assert reply.finish_reason in ("stop", "length")
        assert 0 < len(reply.sampled_ids) <= 12
        assert len(reply.logprobs) == len(reply.sampled_ids)
        assert tokenizer.decode(reply.sampled_ids).removesuffix("<|im_end|>") == reply.text
        assert tokenizer.decode(reply.prompt_ids).endswith("<|im_start|>assistant\n")
    assert policy.act([ASKED], seeds=[1])[0].sampled_ids == replies[0].sampled_ids

    done = collect("agentgym/Relay-v0", policy, episodes=2, workers=2, env_kwargs={"max_turns": 2})
    assert [len(t.steps) for t in done] == [2, 2]
    assert not any(t.infrastructure_error for t in done)
    assert sum(sum(segment.mask) for segment in done[0].segments) == sum(
        s.sampled_tokens for s in done[0].steps
    )
    assert policy.endpoint.counts.calls == 7
