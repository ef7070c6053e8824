"""SearchQA-v0 as a user has it. What every environment must do is tested in tests/test_all_envs.py."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from pathlib import Path

import gymnasium
import pytest

from agentgym.check import check
from agentgym.core import Task
from agentgym.envs.search_qa import SearchQAEnv
from agentgym.envs.search_qa.tags import Tags
from agentgym.errors import TaskError, UsageError
from agentgym.messages import Message
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall
from agentgym.wrappers import ChatContext
from tests.envs.search_qa.test_records import HOTPOTQA, MUSIQUE, write

pytestmark = pytest.mark.usefixtures("global_rngs_untouched")

ID = "agentgym/SearchQA-v0"
LAMPS = Task(
    "lamps",
    "Where was the author of Red Lamp born?",
    data={
        "answers": ["Dunum Hill", "the Old Hill"],
        "supporting": ["Red Lamp", "Ada Vor"],
        "documents": [
            {"title": "Red Lamp", "text": "A book by Ada Vor."},
            {"title": "Ada Vor", "text": "Born in Dunum Hill. " + "She wrote. " * 200 + "The end."},
            {"title": "Blue Lamp", "text": "A book by Bo Sel."},
            {"title": "Bo Sel", "text": "Born in Dunor."},
        ],
    },
)


def lamps(**keywords) -> SearchQAEnv:
    env = SearchQAEnv(tasks=[LAMPS], **keywords)
    env.reset(seed=0)
    return env


def step(env: SearchQAEnv, name: str, **arguments: str):
    return env.step(env.protocol.render_call(ToolCall(name, FrozenDict(arguments))))


def answered(env: SearchQAEnv, text: str):
    *_, reward, terminated, truncated, info = step(env, "answer", text=text)
    assert (terminated, truncated) == (True, False)
    return reward, info["verdict"]


def play(env: SearchQAEnv, task: str):
    env.reset(seed=0, options={"task": task})
    while True:
        last = env.step(env.gold())
        if last[2] or last[3]:
            return last


# -- an episode ----------------------------------------------------------------------------------------------------


def test_an_episode_by_hand():
    env = SearchQAEnv(tasks=[LAMPS], top_k=2, max_chars=30)
    observation, info = env.reset(seed=0)
    assert observation == "Where was the author of Red Lamp born?"
    assert [tool.name for tool in info["tools"]] == ["search", "read", "answer"]
    assert info["anchor"] == "found: "

    observation, *_ = step(env, "search", query="red lamp")
    assert observation == (
        "<tool_response>\n"
        "Doc 1(Title: Red Lamp) A book by Ada Vor.\n"
        "Doc 2(Title: Blue Lamp) A book by Bo Sel.\n"
        "</tool_response>"
    )
    *_, info = step(env, "search", query="ada vor")
    assert info["calls"][0].result.text.splitlines() == [
        "Doc 1(Title: Red Lamp) A book by Ada Vor.",  # both words, and short
        "Doc 2(Title: Ada Vor) Born in Dunum Hill. She wrote....",
    ]
    assert info["anchor"] == "found: Ada Vor; Blue Lamp; Red Lamp"
    observation, *_ = step(env, "read", title=" Ada Vor")
    assert observation.endswith("The end.\n</tool_response>")
    reward, verdict = answered(env, "dunum hill.")
    assert reward == 1.0
    assert verdict.passed
    assert verdict.components == {
        "answered": 1.0, "searches": 2.0, "supporting_recall": 1.0, "em": 1.0, "f1": 1.0,
    }  # fmt: skip


def test_only_what_a_search_found_can_be_read():
    env = lamps()
    for title in ("Bo Sel", "/etc/passwd", "../corpus.jsonl", ""):
        observation, *_, info = step(env, "read", title=title)
        assert info["calls"][0].result.error
        assert "no search has found a document with this title" in observation
    step(env, "search", query="dunor")
    assert "Born in Dunor." in step(env, "read", title="Bo Sel")[0]


def test_searches_are_bounded():
    env = lamps()
    observation, *_ = step(env, "search", query="x" * 1001)
    assert "expected a query of at most 1000 characters, got 1001" in observation
    for query in ("", " \n", "zebra", "the of and"):
        assert "Nothing was found." in step(env, "search", query=query)[0]


def test_no_answer_is_worth_nothing():
    env = SearchQAEnv(tasks=[LAMPS], max_turns=1)
    env.reset(seed=0)
    *_, reward, terminated, truncated, info = step(env, "search", query="red lamp")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["verdict"].components == {
        "answered": 0.0, "searches": 1.0, "supporting_recall": 0.5, "em": 0.0, "f1": 0.0,
    }  # fmt: skip
    assert info["resolved"] is False


def test_the_first_answer_counts():
    env = lamps()
    two = [ToolCall("answer", FrozenDict(text=text)) for text in ("Dunor", "Dunum Hill")]
    _, reward, terminated, _, info = env.step("\n".join(map(env.protocol.render_call, two)))
    assert (reward, terminated) == (0.0, True)
    assert len(info["calls"]) == 1


@pytest.mark.parametrize(
    ("text", "em", "f1"),
    [
        ("The Old Hill", 1.0, 1.0),  # another name
        ("Dunum", 0.0, 2 / 3),
        ("Dunor Hill", 0.0, 0.5),
        ("Dunum Hill or Dunor", 0.0, 0.0),  # longer than the answer
        ("Dunum Hill, Dunor, Ada Vor, Bo Sel", 0.0, 0.0),
        ("I think that it is Dunum Hill", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_scores(text, em, f1):
    reward, verdict = answered(lamps(), text)
    assert reward == em
    reward, verdict = answered(lamps(score="f1"), text)
    assert reward == pytest.approx(f1)
    assert verdict.passed is (em == 1.0)


# -- tags and instructions -----------------------------------------------------------------------------------------


def test_the_tag_form_is_search_r1s_text_for_text():
    """The pieces put end to end are what Search-R1 feeds its model."""
    prompt = "Use <search> and <answer>. Question: {question}\n"
    env = ChatContext(
        gymnasium.make(ID, tasks=[LAMPS], protocol="search-r1", instructions=prompt, top_k=1, max_turns=5)
    )
    conversation, _ = env.reset(seed=0)
    assert conversation == (
        Message("user", "Use <search> and <answer>. Question: Where was the author of Red Lamp born?\n"),
    )
    first = "<think>I need the author.</think>\n<search>red lamp</search>"
    env.step(first)
    *_, reward, terminated, _, _ = env.step("<think>Clear.</think><answer> Dunum Hill </answer>")
    assert (reward, terminated) == (1.0, True)
    assert "".join(message.content for message in env._messages[1:3]) == (
        first + "\n\n<information>Doc 1(Title: Red Lamp) A book by Ada Vor.</information>\n\n"
    )


def test_a_message_without_tags_costs_a_turn():
    env = lamps(protocol="search-r1")
    before = env.turns_left
    *_, info = env.step("<think>Dunum Hill</think> Dunum Hill")
    assert info["invalid_action"] is True
    assert env.turns_left == before - 1


def test_system_prompts():
    assert "a thing can have a second name" in lamps().system_prompt
    assert "<tools>" in lamps().system_prompt
    assert "<search>query</search>" in lamps(protocol="search-r1").system_prompt
    assert lamps(instructions="Find it.").system_prompt == "Find it."
    env = SearchQAEnv(tasks=[LAMPS], instructions="Find it: {question}")
    assert env.system_prompt == ""
    assert env.reset(seed=0)[0] == "Find it: Where was the author of Red Lamp born?"


def test_a_protocol_object():
    assert lamps(protocol=Tags.of(SearchQAEnv._tool_methods)).protocol.name == "search-r1"


# -- corpora and files ---------------------------------------------------------------------------------------------


def test_files_of_questions(tmp_path):
    path = write(tmp_path / "q.jsonl", HOTPOTQA, MUSIQUE)
    env = gymnasium.make(ID, tasks=str(path)).unwrapped
    for task in env.task_set:
        *_, reward, _, _, info = play(env, task.id)
        assert reward == 1.0
        assert info["verdict"].components["supporting_recall"] == 1.0
    env.reset(options={"task": "5a8b57f2"})
    assert "Nothing was found." in step(env, "search", query="taught Bo Sel")[0]  # in the other record

    shared = SearchQAEnv(tasks=path, corpus="shared")
    shared.reset(options={"task": "5a8b57f2"})
    assert "Taught by Bo Sel." in step(shared, "search", query="taught Bo Sel")[0]


def test_environments_share_what_a_file_holds(tmp_path):
    """So a vector of many takes no more memory than one."""
    path = write(tmp_path / "q.jsonl", HOTPOTQA, MUSIQUE)
    first, second = (SearchQAEnv(tasks=str(path), corpus="shared") for _ in range(2))
    assert first.task_set is second.task_set
    assert first._common is second._common
    write(path, HOTPOTQA)  # another file now
    assert len(SearchQAEnv(tasks=str(path)).task_set) == 1
    assert len(first.task_set) == 2


def test_a_corpus_in_a_file(tmp_path):
    corpus = write(tmp_path / "wiki.jsonl", {"id": 1, "contents": '"Red Lamp"\nBy Ada Vor of Dunum Hill.'})
    env = lamps(corpus=corpus)
    assert 'Doc 1(Title: "Red Lamp") By Ada Vor of Dunum Hill.' in step(env, "search", query="lamp")[0]
    _, verdict = answered(env, "x")
    assert verdict.components["supporting_recall"] == 0.5  # by title, quotes or not


@pytest.mark.parametrize(
    ("keywords", "error", "said"),
    [
        ({"score": "bleu"}, UsageError, "expected score among em, f1, got 'bleu'"),
        ({"top_k": 0}, UsageError, "expected top_k"),
        ({"max_chars": 0}, UsageError, "expected max_chars"),
        ({"hops": [7]}, UsageError, "expected hops from 1 to 4"),
        ({"tasks": [LAMPS], "hops": [2]}, UsageError, "are for invented worlds"),
        ({"corpus": "shared"}, UsageError, "an invented world is a corpus of its own"),
        ({"corpus": "ownn"}, TaskError, "there is no file 'ownn'"),
        ({"corpus": None}, UsageError, "expected corpus to be a text or a path, got None"),
        ({"instructions": 5}, UsageError, "expected instructions to be a text, got 5"),
        ({"protocol": "search-r2"}, UsageError, "unknown protocol 'search-r2'"),
        ({"protocol": "bash"}, UsageError, "needs a tool named bash"),
        ({"corpus": "http://127.0.0.1:9/", "retriever_timeout": 0}, UsageError, "retriever_timeout > 0"),
        ({"tasks": "nowhere.jsonl"}, TaskError, "cannot read nowhere.jsonl"),
    ],
)
def test_bad_keywords(keywords, error, said):
    with pytest.raises(error, match=said):
        SearchQAEnv(**keywords)


def test_a_question_without_documents():
    alone, said = Task("x", "Who?", data={"answers": ["me"]}), "task 'x' came without documents; .* corpus="
    with pytest.raises(TaskError, match=said):  # at once: not when an episode comes to it
        SearchQAEnv(tasks=[LAMPS, alone])
    with pytest.raises(TaskError, match=said):
        SearchQAEnv(tasks=[LAMPS]).reset(seed=0, options={"task": alone})


def test_a_task_without_answers():
    env = SearchQAEnv(tasks=[Task("x", "Who?", data={"documents": [{"title": "T", "text": "x"}]})])
    with pytest.raises(
        TaskError, match="task 'x': expected 'answers' to be a text or a list of texts, got None"
    ):
        env.reset(seed=0)


# -- audits --------------------------------------------------------------------------------------------------------


def test_nothing_marks_what_supports():
    """Which documents a search finds, in which order, and what it shows do not depend on what supports."""
    other = Task(
        "lamps", LAMPS.prompt, data=dict(LAMPS.data) | {"supporting": ["Bo Sel"], "answers": ["Dunor"]}
    )
    said = []
    for task in (LAMPS, other):
        env = SearchQAEnv(tasks=[task])
        observation, info = env.reset(seed=0)
        said.append([observation, env.system_prompt, repr(info)])
        said[-1] += [step(env, "search", query=query)[0] for query in ("lamp", "born", "book vor sel")]
    assert said[0] == said[1]


@pytest.mark.slow
def test_gold_on_every_bundled_task():
    """It gets 1 by searching: every supporting document is found by its title."""
    env = SearchQAEnv()
    lost = []
    for task in env.task_set:
        *_, reward, terminated, _, info = play(env, task.id)
        if not (reward == 1.0 and terminated and info["verdict"].components["supporting_recall"] == 1.0):
            lost.append(task.id)
    assert lost == []


@pytest.mark.slow
def test_the_audit():
    report = check(ID, resets=1000)
    assert report.ok, report


@pytest.mark.slow
def test_the_audit_of_other_settings():
    keywords = {"score": "f1", "protocol": "search-r1", "hops": [2, 4], "documents": 60, "unanswerable": 0.5}
    report = check(ID, kwargs=keywords, only=["floor", "gold", "cheats", "secrets", "snapshot", "last_turn"])
    assert report.ok, report


def play_some(cache_and_corpus: tuple[str, str]) -> list[float]:
    """For a process of its own: episodes over a file's corpus."""
    env = SearchQAEnv(tasks=[LAMPS], corpus=cache_and_corpus[1])
    rewards = []
    for _ in range(5):
        env.reset(seed=0)
        step(env, "search", query="red lamp by ada vor")
        rewards.append(answered(env, "Dunum Hill")[0])
    return rewards


def digest(folder: Path) -> dict[str, str]:
    """Every file with its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_eight_processes_leave_files_as_they_are(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("AGENTGYM_CACHE", str(cache))
    corpus = tmp_path / "data" / "corpus.jsonl"
    corpus.parent.mkdir()
    corpus.write_text("".join(json.dumps(dict(row)) + "\n" for row in LAMPS.data["documents"]))
    before = digest(corpus.parent)
    arguments = (str(cache), str(corpus))
    with multiprocessing.get_context("spawn").Pool(8) as pool:  # at first all of them make the index
        assert pool.map(play_some, [arguments] * 8, chunksize=1) == [[1.0] * 5] * 8
        made = digest(cache)
        assert pool.map(play_some, [arguments] * 8, chunksize=1) == [[1.0] * 5] * 8
    assert digest(cache) == made
    assert len({Path(path).parent for path in made}) == 1  # one index, nothing left over
    assert digest(corpus.parent) == before
