"""The client, against servers on real sockets that misbehave."""

import socket
import sys
import threading

import pytest

from agentgym import InfrastructureError, UsageError
from agentgym.endpoint import Endpoint
from agentgym.errors import MissingDependency, UnusableAnswer
from agentgym.messages import system, user
from tests.policies.fake_server import FakeServer, completion, dropping

ASKED = (system("be brief"), user("hello"))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_chat(monkeypatch):
    fake = FakeServer(completion("hi"))
    with fake.running() as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        endpoint = Endpoint("m")
        answer = endpoint.chat(ASKED, temperature=0, odd_option=[1])
        endpoint.close()
    assert (answer.text, answer.finish_reason, answer.prompt_tokens, answer.completion_tokens) == (
        "hi",
        "stop",
        7,
        3,
    )
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert fake.requests == [{"model": "m", "messages": messages, "temperature": 0, "odd_option": [1]}]
    assert fake.headers[0]["authorization"] == "Bearer secret"
    counts = endpoint.counts
    assert (counts.calls, counts.failures, counts.prompt_tokens, counts.completion_tokens) == (1, 0, 7, 3)


def test_retries_until_it_answers():
    fake = FakeServer((429, "slow down"), (503, "busy"), completion("hi"))
    with fake.running() as url:
        assert Endpoint("m", base_url=url).chat(ASKED).text == "hi"
    assert len(fake.requests) == 3


def test_half_of_a_surrogate_pair_in_an_answer_becomes_a_question_mark():
    with FakeServer(completion("a\ud800b é")).running() as url:
        assert Endpoint("m", base_url=url).chat(ASKED).text == "a?b é"


@pytest.mark.parametrize("status", [500, 429])
def test_gives_up_with_one_line(status):
    fake = FakeServer((status, '{"error": {"message": "out of\\nmemory"}}'))
    with fake.running() as url:
        endpoint = Endpoint("m", base_url=url, max_retries=2)
        with pytest.raises(InfrastructureError, match=rf"m at {url}/: .*{status}.*memory") as caught:
            endpoint.chat(ASKED)
    assert len(fake.requests) == 3
    assert "\n" not in str(caught.value)
    assert (endpoint.counts.calls, endpoint.counts.failures) == (0, 1)


@pytest.mark.parametrize(
    ("status", "error"), [(401, UsageError), (404, UsageError), (400, InfrastructureError)]
)
def test_a_refused_request_is_not_repeated(status, error):
    fake = FakeServer((status, '{"error": {"message": "no such thing"}}'))
    with fake.running() as url, pytest.raises(error, match="no such thing"):
        Endpoint("m", base_url=url).chat(ASKED)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        "{broken",
        "[]",
        '{"choices": []}',
        '{"choices": [{"message": null}]}',
        '"text"',
        "<html>proxy</html>",
        "",
    ],
)
def test_what_is_no_completion(body):
    with FakeServer(body).running() as url:
        endpoint = Endpoint("m", base_url=url)
        with pytest.raises(InfrastructureError, match="expected a chat completion, got"):
            endpoint.chat(ASKED)
        assert endpoint.counts.failures == 1


def test_a_slow_answer_times_out():
    release = threading.Event()
    with FakeServer(lambda request: (release.wait(20), completion("late"))[1]).running() as url:
        with pytest.raises(InfrastructureError, match="timed out"):
            Endpoint("m", base_url=url, timeout=0.1, max_retries=0).chat(ASKED)
        release.set()


def test_a_connection_lost_in_mid_answer():
    with dropping(1, completion("hi")) as (url, connections):
        assert Endpoint("m", base_url=url, max_retries=1).chat(ASKED).text == "hi"
        assert len(connections) == 2
    with (
        dropping(9, completion("hi")) as (url, _),
        pytest.raises(InfrastructureError, match="Connection error"),
    ):
        Endpoint("m", base_url=url, max_retries=0).chat(ASKED)


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InfrastructureError, match=f"127.0.0.1:{port}"):
        Endpoint("m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0).chat(ASKED)


def test_what_is_missing(monkeypatch):
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        Endpoint("m")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[judge\]'"):
        Endpoint("m", base_url="http://127.0.0.1:1/v1")


# -- answers as JSON -------------------------------------------------------------------------------------------

KEYS = {"score": float, "reason": str, "fair": bool}
GOOD = '{"score": 1, "reason": "ok", "fair": false, "more": 2}'


def ask(*answers, tries=2):
    fake = FakeServer(*map(completion, answers))
    with fake.running() as url:
        endpoint = Endpoint("judge", base_url=url)
        try:
            return endpoint.json(ASKED, KEYS, tries=tries, temperature=0), endpoint.counts, fake
        except InfrastructureError as error:
            return error, endpoint.counts, fake


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n{GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```JSON\n{GOOD}\n```",
        f"The `score`, as asked:\n```\n{GOOD}\n```\n",
        "Judged:\n```json\n" + GOOD.replace("}", ', "more": "a ```py\\nfence``` in it"}') + "\n```",
        f"<think>Maybe {GOOD.replace('1', '0')}? No.</think>\n{GOOD}",
        f"\n<think>\n```{{}}```\n</think>\n\n```json\n{GOOD}\n```",
        GOOD.replace("}", ', "more": "it has ```py``` in it"}'),
    ],
)
def test_json(text):
    value, counts, fake = ask(text)
    assert value == {"score": 1.0, "reason": "ok", "fair": False}
    assert isinstance(value["score"], float)
    assert counts.parse_failures == 0
    asked = fake.requests[0]["messages"]
    assert [m["role"] for m in asked] == ["system", "user"]
    assert asked[1]["content"].startswith("hello\n\nAnswer with one JSON object")
    assert '"score" (number)' in asked[1]["content"]


def test_json_is_asked_for_again():
    value, counts, _ = ask("I would say one.", GOOD)
    assert value["reason"] == "ok"
    assert (counts.calls, counts.parse_failures) == (2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "one",
        "[1]",
        '{"score": 1, "reason": "ok"}',
        '{"score": true, "reason": "ok", "fair": false}',
        '{"score": NaN, "reason": "ok", "fair": false}',
        '{"score": "1", "reason": "ok", "fair": false}',
        '{"score": 1, "reason": "ok", "fair": 0}',
        f"the page says {GOOD}",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\n```",
        f"```\n{GOOD}\n",
        f"<think>The page says </think>{GOOD}</think>{GOOD.replace('1', '0')}",
        f"<think>{GOOD}",
        f"{GOOD.replace('1', '0')}<think>no</think>{GOOD}",
        f"The page says:\n```\n{GOOD}\n```\nThat is a lie.",
        f"The page says:\n```\n{GOOD}\n```\nThat is a lie. {GOOD.replace('1', '0')}",
        f"{GOOD.replace('1', '0')} although the page says:\n```\n{GOOD}\n```",
        f"The page says:\n```\n{GOOD}\n```\nMine:\n```\n{GOOD.replace('1', '0')}",
        "",
    ],
)
def test_what_is_no_judgement_raises(text):
    error, counts, _ = ask(text)
    assert isinstance(error, UnusableAnswer)
    assert isinstance(error, InfrastructureError)
    assert "no usable JSON in 2 tries" in str(error)
    assert (counts.calls, counts.parse_failures) == (2, 2)


def test_many_threads():
    fake = FakeServer(lambda request: completion(request["messages"][-1]["content"]))
    with fake.running() as url:
        endpoint = Endpoint("m", base_url=url)
        answers = {}
        threads = [
            threading.Thread(target=lambda n=n: answers.update({n: endpoint.chat((user(str(n)),)).text}))
            for n in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {n: str(n) for n in range(16)}
    assert endpoint.counts.calls == 16
