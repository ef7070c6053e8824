"""A retriever on a real socket: what is sent, what is understood, and that failures are never a reward."""

from __future__ import annotations

import time

import pytest

from agentgym.core import Task, ToolCall
from agentgym.envs.search_qa import SearchQAEnv
from agentgym.envs.search_qa.documents import Document
from agentgym.envs.search_qa.remote import RemoteRetriever
from agentgym.errors import InfrastructureError, UsageError
from agentgym.tasks import FrozenDict
from tests.envs.search_qa.conftest import found


def test_request_and_answer(server):
    server.answer = lambda body: (200, found('"Oster"\nA river.\nLong.', "No text", "Third\nx"))
    documents = RemoteRetriever(server.url).search("rivers é", 2)
    assert server.asked == [("/retrieve", {"queries": ["rivers é"], "topk": 2, "return_scores": True})]
    assert documents == [Document('"Oster"', "A river.\nLong."), Document("No text", "")]


def test_half_of_a_surrogate_pair_is_replaced(server):
    server.answer = lambda body: (200, b'{"result": [[{"document": {"contents": "a\\ud800"}}]]}')
    assert RemoteRetriever(server.url).search("x", 1) == [Document("a?", "")]


@pytest.mark.parametrize("status", [500, 503, 429, 0])
def test_it_tries_again(server, status):
    answers = iter([(status, b"busy"), (status, b"busy")])
    server.answer = lambda body: next(answers, (200, found("T\nx")))
    assert RemoteRetriever(server.url, retries=2).search("x", 1) == [Document("T", "x")]
    assert len(server.asked) == 3


def test_it_gives_up(server):
    server.answer = lambda body: (502, b"")
    with pytest.raises(InfrastructureError, match=r"/retrieve: status 502"):
        RemoteRetriever(server.url, retries=1).search("x", 1)
    assert len(server.asked) == 2


def test_a_refusal_is_not_asked_again(server):
    server.answer = lambda body: (404, b"")
    with pytest.raises(InfrastructureError, match="status 404"):
        RemoteRetriever(server.url).search("x", 1)
    assert len(server.asked) == 1


def test_a_server_that_hangs(server):
    def wait(body):
        time.sleep(0.3)
        return 200, found("late")

    server.answer = wait
    with pytest.raises(InfrastructureError, match="timed out"):
        RemoteRetriever(server.url, timeout=0.05, retries=1).search("x", 1)
    assert len(server.asked) == 2


def test_it_waits_no_longer_than_it_may(server, monkeypatch):
    monkeypatch.setattr("agentgym.envs.search_qa.remote._WAIT_S", 0.2)

    def wait(body):
        time.sleep(0.3)
        return 200, found("late")

    server.answer = wait
    with pytest.raises(InfrastructureError, match=r"timed out; the episode had 0\.05 s left"):
        RemoteRetriever(server.url, timeout=60).search("x", 1, seconds=0.05)
    server.answer = lambda body: (503, b"")
    with pytest.raises(InfrastructureError, match=r"status 503; the episode had 0\.15 s left"):
        RemoteRetriever(server.url).search("x", 1, seconds=0.15)  # less than the pause
    assert len(server.asked) == 2


@pytest.mark.parametrize(("seconds", "asked"), [(0.2, 1), (1e-9, 0)])
def test_an_episode_with_little_time(server, seconds, asked):
    def wait(body):
        time.sleep(0.4)
        return 200, found("late")

    server.answer = wait
    task = Task("t", "Which river?", data={"answers": ["Oster"]})
    env = SearchQAEnv(tasks=[task], corpus=server.url, max_seconds=seconds, retriever_timeout=60)
    env.reset(seed=0)
    observation, _, _, truncated, info = env.step(
        env.protocol.render_call(ToolCall("search", FrozenDict(query="river")))
    )
    assert (truncated, len(server.asked)) == (True, asked)
    if asked:  # whose fault it is cannot be known
        assert "timed out; the episode had" in info["infrastructure_error"]
    else:  # the policy used up the time itself
        assert "the time for this task is over" in observation
        assert info["verdict"].score == 0.0


def test_nobody_there():
    with pytest.raises(InfrastructureError, match="refused"):
        RemoteRetriever("http://127.0.0.1:9/retrieve", retries=0).search("x", 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"result": []}',
        b'{"result": [[], []]}',
        b'{"result": [[{"contents": "x"}]]}',
        b'{"result": [[{"document": {"contents": 3}}]]}',
        b'{"result": [["x"]]}',
        b'{"result": null}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_malformed_answers(server, body):
    server.answer = lambda _: (200, body)
    with pytest.raises(InfrastructureError, match=r'expected \{"result": '):
        RemoteRetriever(server.url).search("x", 1)


def test_an_answer_without_end(server, monkeypatch):
    monkeypatch.setattr("agentgym.envs.search_qa.remote._MOST_BYTES", 100)
    server.answer = lambda body: (200, found("x" * 200))
    with pytest.raises(InfrastructureError, match="its answer has more than"):
        RemoteRetriever(server.url).search("x", 1)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"url": "file:///etc/passwd"}, "expected the address of a retriever"),
        ({"url": "http://"}, "expected the address of a retriever"),
        ({"url": "http://["}, "expected the address of a retriever"),
        ({"url": "http://a b/"}, "expected the address of a retriever"),
        ({"url": "http://h:port/"}, "expected the address of a retriever"),
        ({"url": "http://h/é"}, "expected the address of a retriever"),
        ({"timeout": 0}, "expected retriever_timeout > 0"),
        ({"timeout": "x"}, "expected retriever_timeout > 0"),
        ({"timeout": float("inf")}, "expected retriever_timeout > 0"),
        ({"retries": -1}, "expected retriever_retries"),
    ],
)
def test_bad_settings(keywords, said):
    with pytest.raises(UsageError, match=said):
        RemoteRetriever(**({"url": "http://127.0.0.1:9/"} | keywords))


def test_an_episode(server):
    server.answer = lambda body: (200, found("Oster\nA river."))
    task = Task("t", "Which river?", data={"answers": ["Oster"], "supporting": ['"oster"']})
    env = SearchQAEnv(tasks=[task], corpus=server.url, top_k=4, protocol="search-r1", retriever_retries=0)
    env.reset(seed=0)
    observation, *_ = env.step("<search>river</search>")
    assert observation == "\n\n<information>Doc 1(Title: Oster) A river.</information>\n\n"
    assert server.asked[0][1]["topk"] == 4
    *_, reward, terminated, _, info = env.step("<answer>oster</answer>")
    assert (reward, terminated) == (1.0, True)
    assert info["verdict"].components["supporting_recall"] == 1.0

    server.answer = lambda body: (500, b"")
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("<search>river</search>")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "status 500" in info["infrastructure_error"]
    assert "verdict" not in info
