"""Requests that no honest program sends: each gets a typed error in its format, and the gateway goes on."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from agentgym.gateway import Gateway, Limits
from tests.gateway.toy import ToyPolicy

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
LIMITS = Limits(body_bytes=200_000, call_seconds=5)


@pytest.fixture(scope="module")
def gateway():
    with Gateway(ToyPolicy(), limits=LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def http():
    with httpx.Client(timeout=30) as client:
        yield client


@pytest.fixture
def session(gateway):
    opened = gateway.open()
    yield opened
    gateway.close_session(opened.key)


@pytest.fixture
def post(gateway, session, http):
    def send(path, body, key=session.key):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = http.post(gateway.url + path, content=content, headers={"x-api-key": key})
        return answer.status_code, answer.json()

    return send


def good(path, **more):
    """A request that is answered."""
    field = "input" if path == "/v1/responses" else "messages"
    body = {"model": "m", field: [{"role": "user", "content": "go"}]}
    return body | ({"max_tokens": 5} if path == "/v1/messages" else {}) | more


def message_of(path, body):
    """What an error says, in the form of its format."""
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert set(body["error"]) == {"type", "message"}
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1, 2]",
        b'"text"',
        b"\xff\xfe{}",
        b'{"model": NaN}',
        b'{"model": "m", "max_tokens": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"model": "\\ud800"}',
        b'{"n": ' + b"9" * 5_000 + b"}",
    ],
    ids=range(12),
)
def test_what_is_no_json_object(post, path, body):
    status, answer = post(path, body)
    assert status == 400
    assert "expected" in message_of(path, answer)
    assert post(path, good(path))[0] == 200


FIELDS = """
    model messages input instructions system tools tool_choice stream max_tokens stream_options n response_format text
    previous_response_id temperature
""".split()
WRONG = [None, 7, True, "text", [], {}, [None], [[]], [7], [{}], {"role": "user"}, "\x00", 1.5]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", FIELDS)
def test_wrong_types_anywhere(post, path, field):
    """No value of any field brings the gateway down; what is refused says which field."""
    for value in WRONG:
        status, answer = (
            (0, {}) if (field, value) == ("stream", True) else post(path, good(path, **{field: value}))
        )
        assert status in (0, 200, 400, 404), (value, answer)
        if status == 400:
            assert message_of(path, answer)


def function(name):
    return {"type": "function", "function": {"name": name}}


def allowed(mode, *tools):
    """As chat completions have it."""
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}}


REFUSED = {
    "/v1/chat/completions": [
        ({"messages": []}, "expected the last message to be a user's"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"n": 2}, "n=2"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "web"}]}, "tools[0].type"),
        ({"tools": [function("a b")]}, "tools[0].function.name"),
        ({"tools": 2 * [function("a")]}, "listed twice"),
        ({"tool_choice": function("a")}, "not among the tools"),
        ({"tool_choice": "none at all"}, "expected tool_choice to be an object"),
        (
            {"tool_choice": {"type": "none"}},
            "expected tool_choice.type among function, allowed_tools, got 'none'",
        ),
        ({"tool_choice": {"type": "custom", "custom": {"name": "a"}}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools"}}, "expected tool_choice.tools, a list; it is missing"),
        (allowed("auto", function("a")), "tool_choice names 'a', which is not among the tools"),
        (allowed("auto", {"type": "custom"}), "tool_choice.allowed_tools.tools[0].type='custom'"),
        (allowed("none"), "expected tool_choice.allowed_tools.mode among auto, required, got 'none'"),
    ],
    "/v1/responses": [
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}}, "tool_choice.tools[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"background": True}, "background=true"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ],
    "/v1/messages": [
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "content[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"max_tokens": None}, "expected max_tokens"),
    ],
}


@pytest.mark.parametrize(
    ("path", "more", "says"), [(path, *case) for path, cases in REFUSED.items() for case in cases]
)
def test_what_is_refused_is_named(post, session, path, more, says):
    status, answer = post(path, good(path, **more))
    assert status == 400
    assert says in message_of(path, answer)
    assert session.calls == 0


def test_arguments_of_a_call_that_are_no_object(post):
    call = {"id": "x", "type": "function", "function": {"name": "a", "arguments": "[1]"}}
    rows = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "y"},
    ]
    status, answer = post("/v1/chat/completions", {"model": "m", "messages": rows})
    assert (status, "JSON object" in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize("path", PATHS)
def test_a_large_body(post, session, path):
    status, answer = post(path, b" " * 1_000_000)
    assert status == 413
    assert "at most 200000 bytes" in message_of(path, answer)
    assert session.exhausted == "body_bytes"


@pytest.mark.parametrize("path", PATHS)
def test_any_unicode_comes_through(post, session, path):
    text = "\u202e\u0000\ufeff𝔘 \U0010ffff é é 日本語 \u2028 </tool_call> <|im_end|>"
    body = good(
        path, **{"input" if path == "/v1/responses" else "messages": [{"role": "user", "content": text}]}
    )
    assert post(path, body)[0] == 200
    assert session._pending[-1].placed.conversation[-1].content == text


@pytest.mark.parametrize("key", ["", "x", b"\xc3\xa9", "a" * 5_000])
def test_an_unknown_key(post, key):
    for path in PATHS:
        assert post(path, good(path), key=key)[0] == 401


def test_routes_and_methods(gateway, http):
    assert http.get(gateway.url + "/v1/chat/completions").status_code == 405
    answer = http.post(gateway.url + "/v1/embeddings", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert http.post(gateway.url + "/sessions", json={}).status_code == 404, "nobody has an admin token"


@pytest.mark.parametrize("agent", ["x" * 100, "a<b", "a\tb"])
def test_a_strange_agent(gateway, session, http, agent):
    headers = {"x-api-key": session.key, "X-Agentgym-Agent": agent}
    assert http.post(gateway.url + PATHS[0], json=good(PATHS[0]), headers=headers).status_code == 400


@pytest.mark.slow
def test_a_slow_program_keeps_nobody_waiting():
    with Gateway(ToyPolicy(), limits=Limits(call_seconds=1)) as gateway:
        key = gateway.open().key
        slow = [socket.create_connection((gateway.host, gateway.port), timeout=30) for _ in range(50)]
        for connection in slow:
            head = (
                f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\nx-api-key: {key}\r\nContent-Length: 1000\r\n\r\n{{"
            )
            connection.sendall(head.encode())
        answer = httpx.post(gateway.url + PATHS[0], json=good(PATHS[0]), headers={"x-api-key": key})
        assert answer.status_code == 200
        assert all(c.recv(100).startswith(b"HTTP/1.1 504") for c in slow)
        for connection in slow:
            connection.close()


def test_garbage_on_the_socket(gateway, post):
    for garbage in (b"\x16\x03\x01\x02\x00\x01" * 100, b"GET " + b"/" * 100_000, b"POST / HTTP/9.9\r\n\r\n"):
        with socket.create_connection((gateway.host, gateway.port), timeout=5) as connection:
            connection.sendall(garbage)
            connection.settimeout(5)
            assert not connection.recv(100).startswith(b"HTTP/1.1 5")
    assert post(PATHS[0], good(PATHS[0]))[0] == 200


def test_a_request_inside_of_another_is_none(gateway, session):
    """Where a body ends is not left to guessing: what claims two lengths is refused, and the rest is not read."""
    body = json.dumps(good(PATHS[0])).encode()
    head = f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\nx-api-key: {session.key}\r\n".encode()
    inner = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for lengths in (
        b"Content-Length: 4\r\nContent-Length: %d\r\n\r\n" % len(inner),
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
    ):
        with socket.create_connection((gateway.host, gateway.port), timeout=5) as connection:
            connection.sendall(head + lengths + inner)
            assert connection.recv(100).startswith(b"HTTP/1.1 400"), lengths
            while connection.recv(1000):  # it is closed, or else the inner request would be answered
                pass
    assert session.calls == 0


def test_a_reply_that_is_sent_back_twice_is_trained_once(post, session):
    """A program may write its history as it likes; no place of a reply but where it was sampled is trained."""
    rows = [{"role": "user", "content": "go"}]
    said = post(PATHS[0], good(PATHS[0], messages=rows))[1]["choices"][0]["message"]["content"]
    reply = {"role": "assistant", "content": said}
    twice = [*rows, reply, {"role": "user", "content": "again"}, reply, {"role": "user", "content": "x"}]
    foreign = [
        *rows,
        reply,
        reply,
        {"role": "assistant", "content": "never said"},
        {"role": "user", "content": said},
    ]
    for history in (twice, foreign, [reply, *rows]):
        assert post(PATHS[0], good(PATHS[0], messages=history))[0] == 200
    trajectory = session.finish()
    sampled = sum(len(pending.reply.sampled_ids) for pending in session._pending)
    assert sum(sum(segment.mask) for segment in trajectory.segments) == sampled
    places = [place.step for segment in trajectory.segments for place in segment.sampled]
    assert sorted(places) == [0, 1, 2, 3]
