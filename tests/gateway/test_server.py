"""The gateway as programs meet it: over sockets, by the official clients of OpenAI and Anthropic."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from agentgym.errors import ContextOverflow, InfrastructureError, UsageError
from agentgym.gateway import Gateway, Limits, Screened
from agentgym.policies.base import Policy, Reply
from agentgym.policies.openai import OpenAIPolicy
from agentgym.policies.scripted import Gold, Scripted
from agentgym.tools import ToolCall
from agentgym.trajectory.store import TrajectoryStore
from tests.gateway.toy import PROGRAMS, SCHEMA, Says, ToyPolicy, call_text, decode

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

TEXT = "I look,  twice.\n" + call_text("bash", command="ls  -l", n=2) + call_text("bash", command="é\n")
ARGUMENTS = [{"command": "ls  -l", "n": 2}, {"command": "é\n"}]
CHAT_TOOL = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "bash", "parameters": SCHEMA}
ANTHROPIC_TOOL = {"name": "bash", "input_schema": SCHEMA}
GO = [{"role": "user", "content": "go"}]


def openai_client(gateway, key):
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=2)


def anthropic_client(gateway, key):
    return anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=2)


@pytest.fixture
def serve():
    """Start a gateway; it is stopped after the test."""
    running = []

    def start(policy, **more):
        running.append(Gateway(policy, **more).__enter__())
        return running[-1]

    yield start
    for gateway in running:
        gateway.__exit__(None, None, None)


def test_chat_completions(serve):
    gateway = serve(Says(TEXT, TEXT, "all  is\nwell "))
    session = gateway.open()
    create = openai_client(gateway, session.key).chat.completions.create
    rows = [{"role": "system", "content": "s"}, *GO]
    answer = create(model="m", messages=rows, tools=[CHAT_TOOL])
    message = answer.choices[0].message
    assert (answer.choices[0].finish_reason, message.content) == ("tool_calls", "I look,  twice.")
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == ARGUMENTS

    stream = create(
        model="m", messages=rows, tools=[CHAT_TOOL], stream=True, stream_options={"include_usage": True}
    )
    content, calls, finish, usage = "", {}, [], []
    for chunk in stream:
        usage += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
            for part in choice.delta.tool_calls or []:
                known = calls.setdefault(part.index, ["", "", ""])
                known[0] += part.id or ""
                known[1] += part.function.name or ""
                known[2] += part.function.arguments or ""
    assert (content, finish, len(usage)) == ("I look,  twice.", ["tool_calls"], 1)
    assert [(name, json.loads(text)) for _, name, text in calls.values()] == [("bash", a) for a in ARGUMENTS]
    assert usage[0].completion_tokens > len(TEXT) / 2

    rows_of_calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        for id, name, text in calls.values()
    ]
    row = {"role": "assistant", "content": content, "tool_calls": rows_of_calls}
    answers = [{"role": "tool", "tool_call_id": id, "content": "x"} for id, _, _ in calls.values()]
    end = create(model="m", messages=[*rows, row, *answers], tools=[CHAT_TOOL])
    assert (end.choices[0].finish_reason, end.choices[0].message.content) == ("stop", "all  is\nwell ")
    trajectory = gateway.close_session(session.key)
    assert [s.cause for s in trajectory.segments] == ["start", "retry"]


def test_the_page_of_the_documentation_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
    assert capsys.readouterr().out == "Paris.\nParis. 1.0\n"


def test_responses(serve):
    gateway = serve(Says(TEXT, TEXT, "all  is\nwell "))
    session = gateway.open()
    client = openai_client(gateway, session.key)
    answer = client.responses.create(model="m", instructions="s", input="go", tools=[RESPONSES_TOOL])
    assert answer.output_text == "I look,  twice."
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == ARGUMENTS

    with client.responses.stream(model="m", instructions="s", input="go", tools=[RESPONSES_TOOL]) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()
    assert streamed.output_text == answer.output_text
    assert [json.loads(i.arguments) for i in streamed.output if i.type == "function_call"] == ARGUMENTS
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3
    assert kinds.count("response.function_call_arguments.done") == 2

    items = [i.model_dump(exclude_none=True) for i in streamed.output]
    outputs = [{"type": "function_call_output", "call_id": i["call_id"], "output": "x"} for i in items[1:]]
    end = client.responses.create(
        model="m", instructions="s", input=[*GO, *items, *outputs], tools=[RESPONSES_TOOL]
    )
    assert (end.output_text, end.status) == ("all  is\nwell ", "completed")
    trajectory = gateway.close_session(session.key)
    assert [s.cause for s in trajectory.segments] == ["start", "retry"]


def test_messages(serve):
    gateway = serve(Says(TEXT, TEXT, "all  is\nwell "))
    session = gateway.open()
    messages = anthropic_client(gateway, session.key).messages
    asked = {"model": "m", "max_tokens": 10, "system": "s", "tools": [ANTHROPIC_TOOL]}
    answer = messages.create(messages=GO, **asked)
    assert [block.type for block in answer.content] == ["text", "tool_use", "tool_use"]
    assert (answer.content[0].text, answer.stop_reason) == ("I look,  twice.", "tool_use")
    assert [block.input for block in answer.content[1:]] == ARGUMENTS

    with messages.stream(messages=GO, **asked) as stream:
        kinds = [event.type for event in stream if event.type not in ("text", "input_json")]
        streamed = stream.get_final_message()
    assert [b.model_dump(exclude={"id"}) for b in streamed.content[1:]] == [
        b.model_dump(exclude={"id"}) for b in answer.content[1:]
    ]
    assert streamed.content[0].text == answer.content[0].text
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    counted = [streamed.usage.output_tokens, answer.usage.output_tokens]

    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "x"}]}
        for block in streamed.content[1:]
    ]
    said = {"role": "assistant", "content": streamed.content}
    end = messages.create(messages=[*GO, said, {"role": "user", "content": results}], **asked)
    assert (end.content[0].text, end.stop_reason) == ("all  is\nwell ", "end_turn")
    trajectory = gateway.close_session(session.key)
    assert counted == [step.sampled_tokens for step in trajectory.steps[1::-1]]
    assert [s.cause for s in trajectory.segments] == ["start", "retry"]


def test_a_server_that_gives_calls_by_itself(serve):
    """One gateway in front of another: both record the same tokens, and the calls pass through."""
    sampler = Says(TEXT, "done")
    sampler.greedy = True
    far = serve(sampler)
    inner = far.open(policy=sampler)
    policy = OpenAIPolicy("m", base_url=f"{far.url}/v1", api_key=inner.key, token_ids=True)
    near = serve(policy, protocol="native")
    outer = near.open()
    create = openai_client(near, outer.key).chat.completions.create
    rows = [{"role": "system", "content": "s"}, *GO]
    message = create(model="x", messages=rows, tools=[CHAT_TOOL]).choices[0].message
    assert message.content == "I look,  twice."
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == ARGUMENTS
    answers = [{"role": "tool", "tool_call_id": call.id, "content": call.id} for call in message.tool_calls]
    again = message.model_dump(exclude_none=True) | {"content": None}
    end = create(model="x", messages=[*rows, again, *answers], tools=[CHAT_TOOL])
    assert end.choices[0].message.content == "done"
    policy.close()
    (seen,), (sampled,) = near.close_session(outer.key).segments, far.close_session(inner.key).segments
    assert (seen.token_ids, seen.mask, seen.logprobs) == (sampled.token_ids, sampled.mask, sampled.logprobs)
    assert [m.role for m in seen.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]


def test_only_a_server_gives_calls_by_itself():
    with pytest.raises(UsageError, match="for policies such as openai:MODEL"):
        Gateway(Says("x"), protocol="native")


class Fails(Policy):
    name = "fails"

    def act(self, conversations):
        text = conversations[0][-1].content
        raise {"down": InfrastructureError, "long": ContextOverflow, "bug": ZeroDivisionError}[text](text)


def test_errors_are_the_formats_own(serve):
    gateway = serve(Fails(), models=["small"])
    key = gateway.open().key

    def ask_openai(key, text="down", model="small"):
        return openai_client(gateway, key).chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}]
        )

    def ask_anthropic(key, text="down", model="small"):
        return anthropic_client(gateway, key).messages.create(
            model=model, max_tokens=1, messages=[{"role": "user", "content": text}]
        )

    for client, ask in ((openai, ask_openai), (anthropic, ask_anthropic)):
        with pytest.raises(client.AuthenticationError, match="no open session"):
            ask("wrong")
        with pytest.raises(client.NotFoundError, match=r"no model 'smal' here\. Did you mean 'small'"):
            ask(key, model="smal")
        with pytest.raises(client.InternalServerError, match="down") as caught:
            ask(key)
        assert caught.value.status_code == 503
        with pytest.raises(client.InternalServerError, match="ZeroDivisionError: bug"):
            ask(key, "bug")
    with pytest.raises(openai.BadRequestError) as caught:
        ask_openai(key, "long")
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        ask_anthropic(key, "long")
    session = gateway.session(key)
    assert session.calls == 6, "the clients do not send a refused call again"
    gateway.close_session(key)
    with pytest.raises(openai.AuthenticationError):
        ask_openai(key)


def test_a_limit_is_told_once(serve):
    gateway = serve(Says("one", "two"), limits=Limits(calls=1))
    session = gateway.open()
    client = anthropic_client(gateway, session.key)
    client.messages.create(model="m", max_tokens=1, messages=GO)
    with pytest.raises(anthropic.PermissionDeniedError, match="all 1 calls"):
        client.messages.create(model="m", max_tokens=1, messages=GO)
    assert session.exhausted == "calls"


def test_a_request_id_in_the_header(serve):
    gateway = serve(ToyPolicy())
    session = gateway.open()
    create = openai_client(gateway, session.key).chat.completions.create
    first, again = (
        create(model="m", messages=GO, extra_headers={"Idempotency-Key": "k"}).choices[0].message.content
        for _ in range(2)
    )
    assert first == again
    assert session.calls == 1


def test_ids_reach_who_asks_for_them(serve):
    gateway = serve(Says("yes"))
    session = gateway.open()
    body = openai_client(gateway, session.key).chat.completions.create(
        model="m", messages=GO, extra_body={"return_token_ids": True, "logprobs": True}
    )
    (segment,) = gateway.close_session(session.key).segments
    sampled = body.choices[0].token_ids
    assert [*body.prompt_token_ids, *sampled] == segment.token_ids
    assert decode(segment.token_ids) == [("user", "go"), ("assistant", "yes")]
    assert [e.logprob for e in body.choices[0].logprobs.content] == segment.logprobs[-len(sampled) :]


def test_how_long_a_prompt_is(serve):
    """It is counted as the policy would read it, and is no call."""
    gateway = serve(Says("yes"), tokens=lambda conversation: sum(len(m.content) for m in conversation))
    session = gateway.open()
    count = anthropic_client(gateway, session.key).messages.count_tokens
    assert count(model="m", system="sys", messages=GO).input_tokens == 5
    told = count(model="m", system="sys", messages=GO, tools=[ANTHROPIC_TOOL]).input_tokens
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].role"):
        count(model="m", messages=[{"role": "judge", "content": "x"}])
    with pytest.raises(anthropic.AuthenticationError):
        anthropic_client(gateway, "other").messages.count_tokens(model="m", messages=GO)
    assert session.calls == 0
    anthropic_client(gateway, session.key).messages.create(
        model="m", max_tokens=1, system="sys", messages=GO, tools=[ANTHROPIC_TOOL]
    )
    (step,) = gateway.close_session(session.key).steps
    assert told == sum(len(text) for _, text in decode(session._pending[0].reply.prompt_ids))
    assert (step.action, step.kind) == ("yes", "turn")


def test_models(serve):
    gateway = serve(Says("yes"), models=["a", "b"])
    listed = openai_client(gateway, gateway.open().key).models.list()
    assert [model.id for model in listed] == ["a", "b"]


# -- many at once, and those who go --------------------------------------------------------------------------


class Batched(ToyPolicy):
    """Answers with what it was asked, in batches."""

    name = "batched"
    max_batch = 8

    def __init__(self):
        self.largest = 0

    def act(self, conversations, *, seeds):
        self.largest = max(self.largest, len(conversations))
        return super().act(conversations, seeds=seeds)

    def reply(self, conversation, rng):
        return self.saying(f"{conversation[-1].content} is heard", conversation, rng)


@pytest.mark.slow
def test_sixty_four_sessions_at_once_do_not_mix(serve):
    gateway = serve(policy := Batched())
    keys = [gateway.open(task_id=f"t{n}").key for n in range(64)]

    def play(n):
        program = PROGRAMS[n % 3](f"system {n}", f"session {n}, turn 0")
        for turn in range(4):
            for _ in range(1 + (turn == 2)):  # one request is sent twice
                answer = http.post(
                    program.form.path, json=program.body(tools=False), headers={"x-api-key": keys[n]}
                )
            assert program.text(answer.json()) == f"session {n}, turn {turn} is heard"
            program.take(answer.json(), None)
            program.say(f"session {n}, turn {turn + 1}")

    keep = httpx.Limits(
        max_connections=64, max_keepalive_connections=64
    )  # none is closed under another thread
    with (
        httpx.Client(base_url=gateway.url, timeout=60, limits=keep) as http,
        ThreadPoolExecutor(64) as threads,
    ):
        list(threads.map(play, range(64)))
    assert policy.largest > 1
    for n, key in enumerate(keys):
        trajectory = gateway.close_session(key)
        segment, retried = trajectory.segments
        assert (trajectory.task_id, retried.cause, sum(retried.mask)) == (f"t{n}", "retry", 0)
        said = [m.content for m in segment.messages]
        assert said[::2][0] == f"system {n}"
        assert said[1::2] == [f"session {n}, turn {turn}" for turn in range(4)]
        assert decode(segment.token_ids) == [(m.role, m.content) for m in segment.messages]


class Slow(Says):
    """Answers when it is let."""

    name = "slow"

    def __init__(self, *texts):
        super().__init__(*texts)
        self.asked_of, self.let = threading.Event(), threading.Event()

    def for_episode(self, env, rng):
        return self

    def act(self, conversations, **more):
        self.asked_of.set()
        assert self.let.wait(30)
        return super().act(conversations, **more)


def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")


def test_who_goes_before_the_answer_has_not_got_it(serve):
    gateway = serve(policy := Slow("one"))
    session = gateway.open()
    body = json.dumps({"model": "m", "messages": GO}).encode()
    connection = raw_request(gateway, session.key, body)
    assert policy.asked_of.wait(30)
    connection.close()
    wait_for(lambda: session._pending[0].lost)
    policy.let.set()
    wait_for(lambda: session._pending[0].settled)
    trajectory = gateway.close_session(session.key)
    assert [step.info for step in trajectory.steps] == [{"lost": True}]
    assert sum(trajectory.segments[0].mask) == 0


def test_who_goes_in_the_middle_of_a_stream_has_not_got_it(serve):
    gateway = serve(Says("word " * 60_000))
    session = gateway.open()
    body = json.dumps({"model": "m", "messages": GO, "stream": True}).encode()
    connection = raw_request(gateway, session.key, body)
    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    connection.close()
    wait_for(lambda: session._pending[0].lost)
    assert sum(gateway.close_session(session.key).segments[0].mask) == 0


def test_a_call_that_takes_too_long(serve):
    gateway = serve(policy := Slow("one"), limits=Limits(call_seconds=0.2))
    session = gateway.open()
    with pytest.raises(openai.InternalServerError, match=r"no reply in 0.2 seconds") as caught:
        openai_client(gateway, session.key).chat.completions.create(model="m", messages=GO)
    assert caught.value.status_code == 504
    assert session.exhausted == "call_seconds"
    policy.let.set()


def raw_request(gateway, key, body, head=""):
    connection = socket.create_connection((gateway.host, gateway.port), timeout=30)
    lines = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{head}"
    connection.sendall(f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


# -- sessions ------------------------------------------------------------------------------------------------


def test_a_player_begins_anew_in_each_session(serve):
    gateway = serve(Scripted(["one", "two"]))
    for _ in range(2):
        create = openai_client(gateway, gateway.open().key).chat.completions.create
        said = [create(model="m", messages=GO).choices[0].message.content for _ in range(2)]
        assert said == ["one", "two"]


def test_a_screen_that_breaks_lets_nothing_pass(serve):
    def screen(call, session):
        raise RuntimeError("no idea")

    gateway = serve(Says(TEXT), screen=screen)
    session = gateway.open()
    with pytest.raises(openai.InternalServerError, match="RuntimeError: no idea"):
        openai_client(gateway, session.key).chat.completions.create(model="m", messages=GO, tools=[CHAT_TOOL])
    trajectory = gateway.close_session(session.key, reward=1.0)
    assert (trajectory.reward, trajectory.steps, bool(trajectory.infrastructure_error)) == (None, [], True)


def test_a_session_of_its_own(serve):
    """A session may have its own policy, screen, protocol and limits."""
    screen = lambda call, session: Screened(ToolCall("bash", {"command": "true"}))  # noqa: E731
    gateway = serve(Says("hidden"))
    session = gateway.open(
        policy=Says("```bash\nls\n```"), screen=screen, protocol="bash", limits=Limits(calls=1), seed=5
    )
    body = openai_client(gateway, session.key).chat.completions.create(model="m", messages=GO)
    assert body.choices[0].message.content == "```bash\ntrue\n```"
    trajectory = gateway.close_session(session.key, end="truncated")
    assert (trajectory.seed, trajectory.policy, trajectory.truncated) == (5, "says", True)


def test_opening_is_checked(serve):
    gateway = serve(Says("yes"), limits=Limits(sessions=2))
    gateway.open("a", id="x")
    for wrong, why in (
        ({"seed": -1}, "seed to be a whole number >= 0"),
        ({"key": "a"}, "no open session has"),
        ({"id": "x"}, "no trajectory has"),
        ({"key": " "}, "ASCII"),
        ({"key": "c", "id": "y", "protocol": "nope"}, "unknown protocol 'nope'"),
    ):
        with pytest.raises(UsageError, match=why):
            gateway.open(**wrong)
    gateway.open("b", id="y")  # which the wrong protocol has not used up
    with pytest.raises(UsageError, match="at most 2 sessions"):
        gateway.open()
    gateway.close_session("b")
    gateway.open("b")
    with pytest.raises(UsageError, match="no open session"):
        gateway.close_session("c")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"port": 70_000}, "port <= 65535"),
        ({"port": -1}, "port"),
        ({"host": ""}, "host"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_gateway_is_checked(wrong, why):
    with pytest.raises(UsageError, match=why):
        Gateway(Says("yes"), **wrong)


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), Gateway(Says("yes"), out=tmp_path / "file"):
        raise AssertionError("sessions would be lost")


@pytest.mark.parametrize("key", ["a/b", "a?b%2F#", ".."])
def test_any_key_can_be_ended_from_outside(serve, key):
    gateway = serve(Says("yes"), admin_token="token")
    gateway.open(key)
    url = f"{gateway.url}/sessions/{urllib.parse.quote(key, safe='').replace('.', '%2E')}"
    assert httpx.delete(url, headers={"Authorization": "Bearer token"}).status_code == 200
    assert gateway.sessions == ()


@pytest.mark.parametrize("seed", ["-1", '"x"', "1.5", "true"])
def test_a_seed_from_outside(serve, seed):
    gateway = serve(Says("yes"), admin_token="token")
    answer = httpx.post(
        f"{gateway.url}/sessions", content=f'{{"seed": {seed}}}', headers={"Authorization": "Bearer token"}
    )
    assert (answer.status_code, "whole number" in answer.json()["error"]["message"]) == (400, True)


def test_a_full_disk_loses_no_session(serve, tmp_path, monkeypatch):
    gateway = serve(Says("yes"), out=tmp_path)
    session = gateway.open(id="x")
    openai_client(gateway, session.key).chat.completions.create(model="m", messages=GO)

    def full(self, trajectory):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(TrajectoryStore, "append", full)
        with pytest.raises(OSError, match="No space"):
            gateway.close_session(session.key, reward=0.5)
    gateway.close_session(session.key)
    (written,) = TrajectoryStore(tmp_path)
    assert (written.id, written.reward, len(written.steps)) == ("x", 0.5, 1)


def test_a_policy_that_looks_at_its_environment_needs_one():
    with pytest.raises(UsageError, match="must be an AgentEnv, got Env; hf:NAME"):
        Gateway(Gold()).open()


def test_a_port_that_is_taken(serve):
    gateway = serve(Says("yes"))
    with pytest.raises(InfrastructureError, match="cannot listen on"), Gateway(Says("x"), port=gateway.port):
        pass


def test_small_packets_are_sent_at_once(serve):
    """Asyncio sets TCP_NODELAY on sockets that name their protocol; without it an answer waits 40 ms."""
    gateway = serve(Says("yes"))
    (server,) = gateway._running._server.servers
    assert server.sockets[0].proto == socket.IPPROTO_TCP


def test_it_stops(serve):
    before = set(threading.enumerate())
    with Gateway(Batched()) as gateway:
        session = gateway.open()
        assert gateway.alive
    assert not gateway.alive
    wait_for(lambda: set(threading.enumerate()) <= before)
    assert session.finish().steps == []


def test_a_reply_without_ids(serve):
    class Plain(Policy):
        name = "plain"

        def act(self, conversations):
            return [Reply("said", prompt_tokens=3, sampled_tokens=1) for _ in conversations]

    gateway = serve(Plain())
    session = gateway.open()
    body = openai_client(gateway, session.key).chat.completions.create(model="m", messages=GO)
    assert (body.usage.prompt_tokens, body.usage.completion_tokens) == (3, 1)
    (segment,) = gateway.close_session(session.key).segments
    assert segment.token_ids == []
