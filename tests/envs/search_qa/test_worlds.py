"""Invented worlds. Texts are read back by patterns of their own, and every question is proved on what the texts say."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest

from agentgym.envs.search_qa.documents import Document
from agentgym.envs.search_qa.grading import normalise
from agentgym.envs.search_qa.invented import invented, invented_tasks
from agentgym.envs.search_qa.questions import Asker
from agentgym.envs.search_qa.reasoning import (
    Both,
    Compare,
    Count,
    Follow,
    Name,
    Reader,
    Reverse,
    answer,
    needed,
)
from agentgym.envs.search_qa.vocabulary import vocabulary
from agentgym.envs.search_qa.world import Thing, World, WorldOptions, make_world
from agentgym.envs.search_qa.writing import write_documents
from agentgym.errors import TaskError, UsageError
from agentgym.tasks import Task

# -- a small world by hand -----------------------------------------------------------------------------------------

HAND = World(
    [
        Thing("book", "Red Lamp", facts={"author": ("the Fox",), "published": ("1822",)}),
        Thing("book", "Blue Lamp", facts={"author": ("Bo Sel",), "published": ("1830",)}),
        Thing("person", "Ada Vor", "the Fox", {"born_in": ("Dunum",), "born_on": ("1790-05-01",)}),
        Thing("person", "Bo Sel", facts={"born_in": ("Dunor",), "born_on": ("1790-04-30",)}),
        Thing("person", "Cy Sel", facts={"born_on": ("1801-01-01",)}),
        Thing("town", "Dunum", facts={"population": ("900",), "region": ("Mar Land",)}),
        Thing("town", "Dunor", facts={"population": ("10000",)}),
        Thing("society", "Vor Club", facts={"members": ("Ada Vor", "Bo Sel")}),
        Thing("expedition", "Nor Survey", facts={"members": ("Bo Sel", "Cy Sel"), "year": ("1825",)}),
    ]
)
FOX = Follow("author", Name("Red Lamp"))
SEL = Follow("author", Name("Blue Lamp"))


@pytest.mark.parametrize(
    ("program", "right", "documents"),
    [
        (FOX, "the Fox", {"Red Lamp"}),
        (Follow("born_in", FOX), "Dunum", {"Red Lamp", "Ada Vor"}),
        (Follow("population", Follow("born_in", FOX)), "900", {"Red Lamp", "Ada Vor", "Dunum"}),
        # The book names its author by the alias, so who that is has to be read, too.
        (Follow("published", Reverse("book", "author", Name("Ada Vor"))), "1822", {"Red Lamp", "Ada Vor"}),
        (Follow("published", Reverse("book", "author", Name("the Fox"))), "1822", {"Red Lamp"}),
        (Compare("published", Name("Red Lamp"), Name("Blue Lamp"), "less"), "yes", {"Red Lamp", "Blue Lamp"}),
        (Compare("published", Name("Red Lamp"), Name("Blue Lamp"), "years"), "8", {"Red Lamp", "Blue Lamp"}),
        (Compare("born_on", FOX, SEL, "earlier"), "Bo Sel", {"Red Lamp", "Blue Lamp", "Ada Vor", "Bo Sel"}),
        (Compare("population", Name("Dunum"), Name("Dunor"), "more"), "Dunor", {"Dunum", "Dunor"}),
        (Both(Follow("members", Name("Vor Club")), Follow("members", Name("Nor Survey"))), "Bo Sel",
         {"Vor Club", "Nor Survey"}),
        (Count(Follow("members", Name("Nor Survey")), "born_on", 1800), "1", {"Nor Survey", "Bo Sel", "Cy Sel"}),
        (Count(Follow("members", Name("Nor Survey")), "born_on", 1700), "0", {"Nor Survey", "Bo Sel", "Cy Sel"}),
    ],
)  # fmt: skip
def test_programs_by_hand(program, right, documents):
    assert answer(HAND, program) == right
    assert set(needed(HAND, program)) == documents


@pytest.mark.parametrize(
    "program",
    [
        Follow("founded", Name("Dunum")),  # never written down
        Follow("born_in", Name("Cy Sel")),
        Follow("author", Name("Green Lamp")),
        Compare("published", Name("Red Lamp"), Name("Red Lamp"), "less"),  # equal
        Count(Follow("members", Name("Nor Survey")), "trade", 1800),
        Both(Follow("members", Name("Vor Club")), Follow("members", Name("Vor Club"))),  # two
    ],
)
def test_no_one_answer(program):
    assert answer(HAND, program) is None


# -- texts ---------------------------------------------------------------------------------------------------------


@cache
def patterns(kind: str) -> dict[str, list[re.Pattern[str]]]:
    """What each relation looks like in a text where the subject is always called by its short name."""
    subject = vocabulary().kinds[kind].short
    found = {}
    for name, relation in vocabulary().kinds[kind].relations.items():
        prose = [
            re.escape(each.format(s=subject, o="OBJECT")).replace("OBJECT", r"([^.\n]+?)")
            for each in relation.prose
        ]
        forms = [
            *(rf"(?:^|(?<=\. )){each}(?= |$)" for each in prose),
            rf"^{re.escape(relation.label)}: (.+)$",
        ]
        found[name] = [re.compile(form, re.MULTILINE | re.IGNORECASE) for form in forms]
    return found


def facts_in(document: Document, kind: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Alias and facts that a document states, by the patterns of its kind."""
    title = re.escape(document.title)
    alias = re.search(
        rf"{title}(?:, also known as |, whom many call | \(known as )(the [A-Z][A-Za-z ]+)", document.text
    )
    text = document.text.replace(document.title, vocabulary().kinds[kind].short)
    facts = {}
    for name, forms in patterns(kind).items():
        to = vocabulary().kinds[kind].relations[name].to
        for found in filter(None, (form.search(text) for form in forms)):
            facts[name] = tuple(re.split(", | and ", found[1])) if to == "people" else (plain(found[1], to),)
    return alias[1] if alias else "", facts


def plain(text: str, to: str) -> str:
    text = re.sub("^The ", "the ", text)  # an alias at the beginning of a sentence
    if to == "number":
        return text.replace(",", "")
    for form in ("%d %B %Y", "%B %d, %Y") if to == "date" else ():
        try:
            return datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    return text


def read_back(world: World, rng: random.Random) -> World:
    """The world that the texts describe."""
    things = []
    for document in write_documents(world, rng):
        kind = world.things[document.title].kind
        things.append(Thing(kind, document.title, *facts_in(document, kind)))
    return World(things)


@pytest.mark.parametrize("number", range(4))
def test_texts_state_the_facts_and_nothing_else(number):
    rng = random.Random(number)
    world = make_world(WorldOptions(aliases=0.6), "train", rng)
    again = read_back(world, rng)
    for name, thing in world.things.items():
        assert (again.things[name].alias, again.things[name].facts) == (thing.alias, thing.facts)


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_questions_hold_on_what_the_texts_say(hops):
    """One answer; without any one of the documents another or none; with these alone the same."""
    for number in range(2):
        rng = random.Random(number)
        world = make_world(WorldOptions(), "test", rng)
        texts = read_back(world, rng)
        asker = Asker(world, rng)
        everything = set(texts.things)
        for _ in range(8):
            question, program = asker.question(hops)
            right = Reader(texts, everything).answers(program)
            assert len(right) == 1
            assert {normalise(each) for each in right} <= {normalise(each) for each in question.answers}
            assert len(set(question.supporting)) == hops
            for title in question.supporting:
                assert Reader(texts, everything - {title}).answers(program) != right
            assert Reader(texts, set(question.supporting)).answers(program) == right
            for each in question.answers:
                assert f" {normalise(each)} " not in f" {normalise(question.text)} "


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_unanswerable_questions_have_no_answer_in_the_texts(hops):
    rng = random.Random(hops)
    world = make_world(WorldOptions(), "train", rng)
    texts = read_back(world, rng)
    asker = Asker(world, rng)
    for _ in range(4):
        question, program = asker.question(hops, answerable=False)
        assert Reader(texts, set(texts.things)).answers(program) == frozenset()
        assert question.answers[0] == "unanswerable"
        assert len(question.supporting) == hops
        assert isinstance(program, Follow)
        reached = Reader(texts, set(question.supporting)).answers(program.of)  # up to the missing fact
        assert len(reached) == 1


def test_a_world_too_small_says_so(monkeypatch):
    monkeypatch.setattr("agentgym.envs.search_qa.questions._TRIES", 300)
    world = World([Thing("town", f"Dun{letter}", facts={"population": ("900",)}) for letter in "abc"])
    asker = Asker(world, random.Random(0))
    assert {asker.question(1)[0].supporting[0] for _ in range(3)} == {"Duna", "Dunb", "Dunc"}
    with pytest.raises(TaskError, match="found no further question over 1 documents"):
        asker.question(1)


# -- options, splits, determinism ----------------------------------------------------------------------------------


def test_names_of_splits_are_disjoint_and_unique():
    names = {}
    for split in ("train", "dev", "test"):
        words = set()
        for number in range(6):
            world = make_world(WorldOptions(), split, random.Random(number))
            assert len(world.things) == 120
            assert not set(world.things) & set(world.aliases)
            for thing in world.things.values():
                last = thing.name.split()[-1] if thing.kind in ("person", "river", "town") else thing.name
                words |= {last, thing.alias} - {""}
        names[split] = words
    assert not names["train"] & names["dev"]
    assert not names["train"] & names["test"]
    assert not names["dev"] & names["test"]


def test_options_do_what_they_say():
    def count(**options):
        world = make_world(WorldOptions(**options), "train", random.Random(0))
        people = [thing.name for thing in world.by_kind["person"]]
        near = sum(a[:-2] == b[:-2] or a[:-3] == b[:-3] for a in people for b in people if a < b)
        return len(world.things), len(world.aliases), near

    assert count(documents=40)[0] == 40
    assert count(aliases=0.0)[1] == 0
    assert count(aliases=1.0)[1] > 80
    assert count(distractors=0.5)[2] > count(distractors=0.0)[2] + 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hops": 2}, r"expected hops as a list such as \[2, 3\], got 2"),
        ({"hops": []}, "expected hops as a list"),
        ({"hops": [5]}, "expected hops from 1 to 4, got 5"),
        ({"hops": [0]}, "expected hops to be a whole number >= 1"),
        ({"documents": 20}, "expected documents to be a whole number >= 40"),
        ({"documents": 10**9}, "expected documents <= 20000, got 1000000000"),
        ({"distractors": 0.9}, "expected distractors to be a share from 0 to 0.5"),
        ({"aliases": -1}, "expected aliases to be a share"),
        ({"unanswerable": float("nan")}, "expected unanswerable to be a share"),
        ({"seed": -1}, "expected world_seed"),
    ],
)
def test_bad_options(options, said):
    with pytest.raises(UsageError, match=said):
        WorldOptions(**options)


def test_equal_options_make_equal_worlds():
    """1 and 1.0 are equal, so whoever comes second gets the world that is kept for the first."""
    assert str(WorldOptions(aliases=1, distractors=-0.0)) == str(WorldOptions(aliases=1.0, distractors=0))


def test_task_sets():
    tasks = invented_tasks(WorldOptions())
    assert [len(tasks.split(split)) for split in ("train", "dev", "test")] == [800, 120, 200]
    dev = tasks.split("dev")[:64]
    kinds = {invented(task)[0].kind for task in dev}
    assert kinds == {"lookup", "bridge", "comparison", "intersection", "count", "unanswerable"}
    assert len({invented(task)[0].text for task in dev}) == 64
    hops = invented_tasks(WorldOptions(hops=(3,), unanswerable=1.0))
    assert {len(invented(task)[0].supporting) for task in hops[:24]} == {3}
    assert {invented(task)[0].kind for task in hops[:24]} == {"unanswerable"}


@pytest.mark.parametrize(
    "world",
    [None, {}, {"split": "train", "number": 0, "nonsense": 1}, {"split": "valid", "number": 0},
     {"split": "train", "number": "0"}, {"split": "train", "number": 0, "documents": 3}],
)  # fmt: skip
def test_tasks_that_name_no_world(world):
    with pytest.raises(TaskError, match="task 'x' names no invented world"):
        invented(Task("x", data={"world": world, "question": 0}))


def fingerprint() -> str:
    """Questions and documents of some worlds, as one digest."""
    digest = hashlib.sha256()
    for task in invented_tasks(WorldOptions(seed=3)).split("test")[:24]:
        question, corpus = invented(task)
        digest.update(repr((question, [document.searchable for document in corpus.documents])).encode())
    return digest.hexdigest()


@pytest.mark.slow
def test_the_same_in_other_processes_with_other_hash_seeds():
    code = "from tests.envs.search_qa.test_worlds import fingerprint; print(fingerprint())"
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).resolve().parents[3],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout.strip() == fingerprint()
