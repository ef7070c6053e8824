from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from agentgym.cli import charts
from agentgym.cli.report import _short_names
from agentgym.trajectory.records import Event, Segment, Step, Trajectory
from agentgym.trajectory.store import TrajectoryStore
from tests.cli.test_run import KEYS
from tests.cli.tiny import TINY

DOCUMENTED = {*KEYS, "hack_gap", "monitor", "value", "cost", "symptoms"}


def write(folder, trajectories):
    store = TrajectoryStore(folder / "trajectories.jsonl")
    folder.mkdir()
    for trajectory in trajectories:
        store.append(trajectory)
    store.close()
    return folder


def episode(number, **fields):
    steps = [Step("turn", "policy", "act", "seen", sampled_tokens=10 + number, prompt_tokens=100)]
    known = {"env_id": TINY, "policy": "p", "task_id": "<t>", "steps": steps, "segments": [Segment(0)]}
    return Trajectory(f"e{number}", **(known | fields))


@pytest.fixture
def mixed(tmp_path):
    """One episode of every outcome."""
    dropped = {
        "strategy": "rule",
        "before_tokens": 900,
        "after_tokens": 300,
        "dropped_messages": [{}],
        "kept": 2,
    }
    return write(
        tmp_path / "mixed",
        [
            episode(0, reward=1.0, resolved=True, hacked=False, events=[Event("compaction", 0, dropped)]),
            episode(1, reward=1.0, resolved=True, hacked=True),
            episode(2, reward=0.25, resolved=False, hacked=False, truncated=True),
            episode(3, reward=0.0, resolved=False, hacked=True),
            episode(4, reward=0.5),
            episode(5, reward=None, infrastructure_error="Traceback\n<the disk> is full"),
        ],
    )


def test_json(call, mixed):
    (answer,) = call("report", mixed, "--json").json
    assert set(answer) == DOCUMENTED
    assert (answer["id"], answer["policy"], answer["out"]) == (TINY, "p", str(mixed))
    assert (answer["episodes"], answer["clean_resolved"], answer["hacked_resolved"]) == (6, 1, 1)
    assert answer["value"] is None
    assert answer["monitor"] is not None


def test_what_was_not_recorded_is_null(call, tmp_path):
    run = write(tmp_path / "run", [episode(n, reward=0.0, resolved=False) for n in range(4)])
    (answer,) = call("report", run, "--json").json
    assert answer["hack_gap"] is answer["monitor"] is answer["value"] is None
    assert answer["cost"]["sampled_tokens"] is None
    assert any("all 4 episodes have reward 0.000" in symptom for symptom in answer["symptoms"])


def test_text_compares_runs(call, mixed, tmp_path):
    other = write(tmp_path / "other", [episode(0, reward=0.0, resolved=False)])
    out = call("report", mixed, other).out
    assert out.splitlines()[0].split() == ["mixed", "other"]
    assert "mean reward" in out


class Page(HTMLParser):
    """Collects what a page loads and links to, and checks that tags are balanced."""

    void = {"meta", "link", "br", "img", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.loaded = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in self.void:
            self.open.append(tag)
        if tag == "a":
            self.links.append(given["href"])
        if "src" in given or tag == "link":
            self.loaded.append(given)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_escaped_and_links_to_episodes(call, mixed, tmp_path):
    page = tmp_path / "pages" / "report.html"
    assert call("report", mixed, "--html", page, "--views", 2).code == 0
    text = page.read_text()
    parsed = Page(text)
    assert parsed.loaded == []
    assert not re.search(r"url\(|@import|https?://", text)
    assert [(page.parent / link).resolve().is_file() for link in parsed.links] == [True, True]
    assert "&lt;t&gt;" in text
    assert "<t>" not in text
    assert "&lt;the disk&gt; is full" in text
    assert "What compaction dropped" in text


def test_page_of_several_runs(call, mixed, tmp_path):
    other = write(tmp_path / "other", [episode(0, reward=None, infrastructure_error="down")])
    page = tmp_path / "report.html"
    assert call("report", mixed, other, mixed, "--html", page, "--views", 0).code == 0
    text = page.read_text()
    Page(text)
    assert "mixed (2)" in text
    assert "no valid episode" in text


def test_page_without_jinja_is_one_line(call, mixed, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    called = call("report", mixed, "--html", tmp_path / "report.html")
    assert called.code == 3
    assert "agentgym-suite[report]" in called.complaint
    assert not (mixed / "views").exists()
    assert not (tmp_path / "report.html").exists()


def test_an_episode_that_was_run_again_counts_once(call, tmp_path):
    run = write(
        tmp_path / "run",
        [episode(0, reward=None, infrastructure_error="down"), episode(0, reward=1.0, resolved=True)],
    )
    (answer,) = call("report", run, "--json").json
    assert (answer["episodes"], answer["infrastructure_errors"]) == (1, 0)


def test_a_torn_last_line_is_a_warning(call, mixed):
    file = mixed / "trajectories.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    called = call("report", mixed, "--json")
    assert called.code == 0
    assert called.json[0]["episodes"] == 5
    assert called.err.startswith("agentgym: warning: ")
    assert called.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["report", "view"])
def test_bad_paths(call, tmp_path, verb):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "trajectories.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text("{broken\n{}\n")
    (tmp_path / "other.txt").write_text("")
    for path in ("nowhere", "empty", "broken.jsonl", "other.txt"):
        called = call(verb, tmp_path / path, "--json")
        assert called.code == 2
        assert path in called.complaint


def test_report_needs_a_run(call):
    assert call("report").code == 2


def test_view(call, mixed, tmp_path):
    called = call("view", mixed)
    assert called.out == f"{mixed / 'views' / 'e0.html'}\n"
    assert (mixed / "views" / "e0.html").is_file()
    answer = call(
        "view", mixed / "trajectories.jsonl", "--index", -1, "--out", tmp_path / "a" / "x.html", "--json"
    ).json
    assert answer == {"id": "e5", "path": str(tmp_path / "a" / "x.html")}
    assert call("view", mixed, "--id", "e3", "--json").json["id"] == "e3"


def test_ids_that_look_alike_have_pages_of_their_own(call, tmp_path):
    run = write(tmp_path / "run", [Trajectory(id, env_id=TINY) for id in ("m/a:1", "m_a_1", "..")])
    assert call("report", run, "--html", tmp_path / "report.html").code == 0
    # Digests as sha256sum prints them.
    names = ["5ec1f7e7.html", "m_a_1-0b55ab4d.html", "m_a_1.html"]
    assert sorted(page.name for page in (run / "views").iterdir()) == names
    assert call("view", run, "--id", "m/a:1").out == f"{run / 'views' / 'm_a_1-0b55ab4d.html'}\n"


def test_files_in_one_folder_have_pages_of_their_own(call, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, [episode(0, prompt=f"from {name}")]).joinpath("trajectories.jsonl").rename(
            tmp_path / f"{name}.jsonl"
        )
    page = tmp_path / "report.html"
    assert call("report", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--html", page).code == 0
    for name in ("a", "b"):
        assert (tmp_path / "views" / name / "e0.html").is_file()


@pytest.mark.parametrize("verb", ["report", "view"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward": "x"}, "expected reward of a trajectory to be a number or null, got 'x'"),
        ({"seconds": None}, "expected seconds of a trajectory to be a number, got None"),
        ({"resolved": 1}, "expected resolved of a trajectory to be true or false or null, got 1"),
        ({"verdict": {"score": "x"}}, "expected verdict.score to be a number, got 'x'"),
    ],
)
def test_wrong_types_are_bad_input_that_names_line_and_field(call, tmp_path, verb, change, says):
    run = write(tmp_path / "run", [episode(0), episode(1)])
    file = run / "trajectories.jsonl"
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{json.dumps(json.loads(second) | change)}\n")
    called = call(verb, run)
    assert called.code == 2
    assert f"{file}, line 2: " in called.complaint
    assert says in called.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--id", "e9"], "Did you mean"),
        (["--index", 6], "6 trajectories"),
        (["--id", "e1", "--index", 1], "not both"),
    ],
)
def test_bad_choice_of_a_trajectory(call, mixed, words, says):
    called = call("view", mixed, *words)
    assert called.code == 2
    assert says in called.complaint
    assert not (mixed / "views").exists()


def test_names_are_short_and_apart(tmp_path):
    files = [tmp_path / "a" / "x" / "trajectories.jsonl", tmp_path / "b" / "x" / "trajectories.jsonl"]
    assert _short_names(files) == ["a/x", "b/x"]
    assert _short_names([tmp_path / "x" / "trajectories.jsonl", tmp_path / "y.jsonl"]) == ["x", "y"]


@pytest.mark.parametrize(
    "values", [[0.0], [3, 4, 4], [0.1, 0.93], [-2.5, 1e6], [5.0, 5.0], [0.0] * 4, [1e-9, 2e-9]]
)
def test_bins_cover_the_values(values):
    edges = charts.bins(values)
    assert edges == sorted(set(edges))
    assert edges[0] <= min(values)
    assert max(values) <= edges[-1]
    assert 1 <= len(edges) - 1 <= 25
    Page(charts.histogram({"a": values, "b": []}, unit="things"))


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (12, "12"), (3400, "3.4k"), (1.2e6, "1.2M"), (0, "0")]
)
def test_numbers_on_axes(value, text):
    assert charts.number(value) == text
