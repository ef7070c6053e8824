"""Our BM25 against hand-computed scores and, where the recorded rankings are, against Lucene's own."""

from __future__ import annotations

import json
import math
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from agentgym.errors import InfrastructureError, UsageError
from agentgym.retrieval import Index, analyse, building, open_index, tokenize
from agentgym.retrieval.building import coded_lengths, length_codes
from agentgym.retrieval.porter import stem

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

DOCUMENTS = [
    ("d1", "red running shoes"),
    ("d2", "blue shoes"),
    ("d3", "a red red hat with a feather"),
    ("d4", "the"),  # nothing to find it by
]


# -- words ---------------------------------------------------------------------------------------------------------

# The examples of Porter's paper (1980), and of the changes he published later ("possibly", "archaeology").
STEMS = """
caresses caress ponies poni ties ti caress caress cats cat feed feed agreed agre plastered plaster bled bled
motoring motor sing sing conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss
fizzed fizz failing fail filing file happy happi sky sky relational relat conditional condit rational ration
valenci valenc hesitanci hesit digitizer digit conformabli conform radicalli radic differentli differ vileli vile
analogousli analog vietnamization vietnam predication predic operator oper feudalism feudal decisiveness decis
hopefulness hope callousness callous formaliti formal sensitiviti sensit sensibiliti sensibl triplicate triplic
formative form formalize formal electriciti electr electrical electr hopeful hope goodness good revival reviv
allowance allow inference infer airliner airlin gyroscopic gyroscop adjustable adjust defensible defens irritant irrit
replacement replac adjustment adjust dependent depend adoption adopt homologou homolog communism commun activate activ
angulariti angular homologous homolog effective effect bowdlerize bowdler probate probat rate rate cease ceas
controll control roll roll possibly possibl archaeology archaeolog is is
"""


def test_stems_of_the_paper():
    words = STEMS.split()
    wrong = {w: (stem(w), s) for w, s in zip(words[::2], words[1::2], strict=True) if stem(w) != s}
    assert not wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wi-fi 6.5 oz. 1,000 pcs", ["wi", "fi", "6.5", "oz", "1,000", "pcs"]),
        (
            "o'neil's c++ a.b.c. e:f x;y",
            ["o'neil's", "c", "a.b.c", "e:f", "x", "y"],
        ),  # the full stop at the end goes
        ("snake_case _x_ ___", ["snake_case", "_x_"]),
        ("3d 10x12 5.x 1.2.3", ["3d", "10x12", "5", "x", "1.2.3"]),
        ("café naïve", ["café", "naïve"]),
        (
            "cafe\u0301 ²½",
            ["cafe\u0301"],
        ),  # a mark stays with its letter; superscripts and fractions are no digits
        ("★new★ ♥ ™ ☺\ufe0f", ["★", "new", "★", "♥", "™", "☺\ufe0f"]),
        ("👩\u200d🚀 👍🏽👍 🇩🇪🇫🇷", ["👩\u200d🚀", "👍🏽", "👍", "🇩🇪", "🇫🇷"]),
        ("北京 カタカナ ひら 한국어", ["北", "京", "カタカナ", "ひ", "ら", "한국어"]),
        (
            "a\u00adb x\u200by",
            ["a\u00adb", "x", "y"],
        ),  # a soft hyphen is ignored, a zero width space separates
        ("", []),
        ("... !", []),
    ],
)
def test_word_rules(text, words):
    assert tokenize(text) == words


def test_both_word_patterns_agree_on_ascii():
    rng = np.random.default_rng(0)
    signs = list("aB3_.',:;- \"#+")
    for _ in range(2000):
        text = "".join(rng.choice(signs, size=12))
        assert tokenize(text) == tokenize(text + " é")[:-1], text


def test_long_words_are_cut():
    assert [len(word) for word in tokenize("x" * 600)] == [255, 255, 90]


def test_analysis():
    # Possessives go before stop words do: "it's" is "it", which is one.
    assert analyse("It's the Women's RUNNING shoes, and JOHN’S") == ["women", "run", "shoe", "john"]


# -- scores --------------------------------------------------------------------------------------------------------


def test_scores_by_hand():
    index = Index.build(DOCUMENTS)
    # Three documents have terms: red run shoe; blue shoe; red red hat feather. Average length 9 / 3.
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))

    def part(frequency, length):
        return idf * frequency / (frequency + 0.9 * (0.6 + 0.4 * length / 3))

    expected = {"d3": part(2, 4), "d1": part(1, 3)}
    assert {hit.id: hit.score for hit in index.search("red")} == pytest.approx(expected, abs=1e-6)
    assert [hit.id for hit in index.search("red")] == ["d3", "d1"]
    both = index.search("shoes red")[0]
    assert both.id == "d1"
    assert both.score == pytest.approx(2 * part(1, 3), abs=1e-6)
    # A word that stands twice counts twice.
    assert index.search("red red")[0].score == pytest.approx(2 * expected["d3"], abs=1e-6)


def test_ties_go_by_id_and_k_cuts():
    index = Index.build([(name, "same words") for name in ("b", "a", "d", "c")])
    assert [hit.id for hit in index.search("words", k=3)] == ["a", "b", "c"]
    assert [hit.id for hit in index.search("words", k=9)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("query", ["", "the and", "unknown", "!!"])
def test_nothing_found(query):
    assert Index.build(DOCUMENTS).search(query) == []
    assert Index.build([]).search(query) == []


def test_best_of_many_equals_sorting_all():
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(50)]
    documents = [(f"{n:04}", " ".join(rng.choice(words, size=rng.integers(1, 30)))) for n in range(500)]
    index = Index.build(documents)
    everything = index.search("w1 w2 w3", k=500)
    ordered = sorted(everything, key=lambda hit: (-hit.score, hit.id))
    assert everything == ordered
    for k in (1, 7, 50, 499):
        assert index.search("w1 w2 w3", k=k) == ordered[:k]


def test_lengths_in_a_byte():
    # Lucene's SmallFloat.byte4ToInt: exact below 40, then steps of 2, 4, ... for eight codes each.
    coded = coded_lengths().tolist()
    assert coded[:40] == list(range(40))
    assert coded[40:50] == [40, 42, 44, 46, 48, 50, 52, 54, 56, 60]
    assert coded[255] == 2013265944
    assert length_codes(np.array([0, 39, 41, 55, 59, 60], np.int32)).tolist() == [0, 39, 40, 47, 48, 49]


# -- building, files -----------------------------------------------------------------------------------------------


def test_chunks_make_no_difference(monkeypatch):
    whole = Index.build(DOCUMENTS)
    monkeypatch.setattr(building, "_CHUNK", 2)
    pieces = Index.build(reversed(DOCUMENTS))
    for query in ("red", "shoes hat", "feather blue"):
        assert pieces.search(query) == whole.search(query)


def test_an_id_twice():
    with pytest.raises(UsageError, match="'d1' stands twice"):
        Index.build([*DOCUMENTS, ("d1", "again")])


def test_k_must_be_a_number():
    with pytest.raises(UsageError, match="expected k"):
        Index.build(DOCUMENTS).search("red", k=0)


def test_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    asked = []

    def documents():
        asked.append(1)
        return DOCUMENTS

    first = open_index("corpus", documents)
    second = open_index("corpus", documents)
    assert len(asked) == 1
    assert isinstance(second._documents.base, np.memmap)
    assert (
        first.search("red shoes") == second.search("red shoes") == Index.build(DOCUMENTS).search("red shoes")
    )
    again = pickle.loads(pickle.dumps(second))
    assert again.search("red") == first.search("red")
    assert len(pickle.dumps(second)) < 500  # the place, not the pages
    assert [path.name for path in (tmp_path / "indexes").iterdir()] == [
        second.folder.name
    ]  # nothing half made


def test_a_failed_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    with pytest.raises(UsageError):
        open_index("corpus", lambda: [("a", "x"), ("a", "y")])
    assert list((tmp_path / "indexes").iterdir()) == []


def test_a_broken_file(tmp_path):
    with pytest.raises(InfrastructureError, match="cannot be read"):
        Index(tmp_path)


def test_memory_copies_can_be_pickled():
    index = pickle.loads(pickle.dumps(Index.build(DOCUMENTS)))
    assert [hit.id for hit in index.search("red")] == ["d3", "d1"]


def test_threads():
    index = Index.build(DOCUMENTS)
    expected = index.search("red shoes")
    found = []
    threads = [threading.Thread(target=lambda: found.append(index.search("red shoes"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


# -- Lucene --------------------------------------------------------------------------------------------------------


def test_rankings_of_lucene(webshop_index):
    traces = SHARED / "cases" / "webshop_traces.jsonl"
    compared = 0
    for line in traces.read_text(encoding="utf-8").splitlines():
        words = ""
        for step in json.loads(line)["steps"]:
            if step["action"].startswith("search["):
                words = step["action"][7:].rpartition("]")[0].lower()
            if "hits" not in step:
                continue
            compared += 1
            found = webshop_index.search(words, k=50)
            assert [hit.id for hit in found] == [asin for asin, _ in step["hits"]], words
            assert [hit.score for hit in found] == pytest.approx(
                [score for _, score in step["hits"]], abs=1e-3
            )
    assert compared > 100


@pytest.fixture
def webshop_index():
    rows = SHARED / "data" / "webshop" / "items_shuffle_1000.json"
    if not rows.is_file():
        pytest.skip("the recorded rankings are not here")
    texts: dict[str, str] = {}
    for row in json.loads(rows.read_text(encoding="utf-8")):
        if row["asin"] == "nan" or len(row["asin"]) > 10 or row["asin"] in texts:
            continue
        options = [
            f"{name.lower()}: " + ", ".join(o["value"].strip().replace("/", " | ").lower() for o in contents)
            for name, contents in (row["customization_options"] or {}).items()
            if contents is not None
        ]
        bullets = row["small_description"]
        first = bullets[0] if isinstance(bullets, list) else bullets
        text = " ".join([row["name"], row["full_description"], first, ", and ".join(options)])
        texts[row["asin"]] = text.lower()
    return Index.build(texts.items())
