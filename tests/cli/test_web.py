"""`agentgym web plan|preview|gallery`, and the language model of `web judge`."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.verifiers.web.judge import judge
from agentgym.verifiers.web.measures import JudgedPage, measures
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.trace import Event, Trace

Call = Callable[..., Any]

COUNTER = """<!doctype html><html lang=en><title>Counter</title><h1>Counter</h1>
<button data-testid=add>Add</button> <span data-testid=sum>0</span>
<script>
const sum = document.querySelector("[data-testid=sum]");
document.querySelector("button").addEventListener("click", () => { sum.textContent = Number(sum.textContent) + 1; });
console.log("ready");
</script>"""
STILL = (
    "<!doctype html><html lang=en><title>Counter</title><h1>Counter</h1><button>Add</button> <span>0</span>"
)
SUM = {"css": "[data-testid=sum]"}
SCENARIOS: list[dict[str, Any]] = [
    {
        "name": "counts",
        "steps": [
            {"op": "goto"},
            {"op": "assert", "item": "F1", "kind": "text", "target": SUM, "equals": "0"},
            {"op": "click", "target": {"css": "[data-testid=add]"}},
            {"op": "assert", "item": "F1", "kind": "text", "target": SUM, "equals": "1"},
        ],
    },
    {
        "name": "other",
        "steps": [
            {"op": "goto"},
            {"op": "assert", "item": "F2", "kind": "count", "target": {"css": "canvas"}, "equals": 1},
            {"op": "assert", "item": "T1", "kind": "no_errors"},
        ],
    },
]
ITEMS = [
    {"id": "F1", "category": "functionality", "weight": 2, "text": "Add counts"},
    {"id": "F2", "category": "functionality", "text": "There is a chart"},
    {"id": "T1", "category": "technical", "text": "No errors"},
]


def task_file(folder: Path) -> Path:
    path = folder / "task.json"
    path.write_text(
        json.dumps({"id": "counter", "prompt": "A counter.", "items": ITEMS, "scenarios": SCENARIOS})
    )
    return path


def pages(folder: Path) -> tuple[Path, Path]:
    good, still = folder / "good.html", folder / "still.html"
    good.write_text(COUNTER)
    still.write_text(STILL)
    return good, still


@pytest.fixture
def browser() -> None:
    pytest.importorskip("playwright", reason="playwright is not installed")
    from agentgym.verifiers.browser import launch

    if not any(map(shutil.which, launch.NAMES)):
        pytest.skip("no browser: apt-get install chromium-headless-shell")


class TestBadUse:
    @pytest.mark.parametrize("size", ["wide", "1280", "0x9", "1280x", "-5x5", "10000x800"])
    def test_a_size_that_is_none(self, call: Call, size: str) -> None:
        called = call("web", "preview", "page.html", f"--viewport={size}")
        assert called.code == 2
        assert "--viewport WIDTHxHEIGHT" in called.complaint

    @pytest.mark.parametrize(
        ("steps", "said"),
        [
            ("click", "JSON list"),
            ("{}", "expected a list"),
            ('[{"op": "tap"}]', "unknown op 'tap'"),
            ('[{"op": "assert", "item": "A", "kind": "title"}]', "unknown op 'assert'"),
            ('[{"op": "click"}]', "'target' is missing"),
        ],
    )
    def test_steps_that_are_none(self, call: Call, steps: str, said: str) -> None:
        called = call("web", "preview", "page.html", "--steps", steps)
        assert called.code == 2
        assert said in called.complaint

    def test_an_address_without_a_model(self, call: Call, tmp_path: Path) -> None:
        for verb in (["judge", "x.html"], ["gallery", "x.html"]):
            called = call("web", *verb, "--task", task_file(tmp_path), "--endpoint", "http://127.0.0.1:9/v1")
            assert called.code == 2
            assert "--judge MODEL" in called.complaint

    def test_a_page_given_twice(self, call: Call, tmp_path: Path) -> None:
        good, _ = pages(tmp_path)
        called = call("web", "gallery", good, good, "--task", task_file(tmp_path))
        assert called.code == 2
        assert "given twice" in called.complaint

    def test_a_task_in_place_of_a_rubric(self, call: Call, tmp_path: Path) -> None:
        called = call("web", "plan", task_file(tmp_path), "--out", tmp_path / "x.json", "--model", "m")
        assert called.code == 2
        assert "unknown field 'items'" in called.complaint


def test_the_gallery_shows_text_as_text() -> None:
    pytest.importorskip("jinja2")
    image = pytest.importorskip("PIL.Image")
    from agentgym.cli.web.gallery import Shown
    from agentgym.cli.web.gallery_page import render

    task = parse_task({"id": "<b>t", "prompt": "<i>p", "items": ITEMS, "scenarios": SCENARIOS})
    trace = Trace("<b>t", (Event(0, 0, "goto", ok=True),), blocked=("https://evil.test/<u>",))
    buffer = io.BytesIO()
    image.new("RGB", (1280, 800), "red").save(buffer, "PNG")
    judged = JudgedPage(
        "<s>name", judge(task, trace), 12, {"source": 0.5}, "<script>alert(1)</script>", ("F1",)
    )
    text = render(task, [Shown(judged, buffer.getvalue(), (None, buffer.getvalue()))], measures([judged]))
    for raw in ("<b>t", "<i>p", "<s>name", "/<u>", "<script>"):
        assert raw not in text
    assert text.count('src="data:image/webp;base64,') == 2
    assert "differs in an automated browser: F1" in text
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)  # one file, nothing loaded


@pytest.mark.slow
def test_a_preview(call: Call, tmp_path: Path, browser: None) -> None:
    good, _ = pages(tmp_path)
    picture = tmp_path / "shot.png"
    steps = json.dumps([{"op": "click", "target": {"role": "button", "name": "Add"}}] * 2)
    called = call("web", "preview", good, "--steps", steps, "--screenshot", picture, "--json")
    assert called.code == 0
    assert 'button "Add"' in called.json["aria"]
    assert called.json["text"].split() == ["Counter", "Add", "2"]
    assert called.json["console"] == ["log: ready"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    failing = call("web", "preview", good, "--steps", json.dumps([{"op": "click", "target": {"css": "#no"}}]))
    assert failing.code == 1
    assert "Did not work" in failing.out


@pytest.mark.slow
def test_a_gallery(call: Call, tmp_path: Path, browser: None) -> None:
    out = tmp_path / "gallery.html"
    words = ["web", "gallery", *pages(tmp_path), "--task", task_file(tmp_path), "--out", out, "--plain", 1]
    called = call(*words, "--json")
    assert called.code == 0
    assert [(page["page"], page["score"], page["raw"]) for page in called.json["pages"]] == [
        ("good", 0.75, 0.75),  # 2 + 1 of 4; F is 2/3
        ("still", 0.0, 0.25),
    ]
    assert called.json["measures"]["flags"]["profiles_compared"] == 1
    text = out.read_text()
    assert text.count("data:image/webp") == 6  # two pages, each when loaded and after two scenarios


@pytest.mark.slow
def test_a_plan_and_its_trial(call: Call, tmp_path: Path, browser: None) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("uvicorn")
    place = Path(__file__).resolve().parents[1] / "policies" / "fake_server.py"
    spec = importlib.util.spec_from_file_location("fake_server", place)
    assert spec is not None
    assert spec.loader is not None
    fake_server: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake_server)
    rubric, out = tmp_path / "rubric.json", tmp_path / "planned.json"
    rubric.write_text(json.dumps({"id": "counter", "prompt": "A counter.", "rubric": ITEMS}))
    answer = fake_server.completion(json.dumps({"scenarios": SCENARIOS, "requires": {}}))
    refusal = fake_server.completion("I cannot help with that.")
    good, _ = pages(tmp_path)
    with fake_server.FakeServer(answer, refusal).running() as url:
        where = ["--endpoint", url, "--json"]
        called = call("web", "plan", rubric, "--out", out, "--model", "m", "--good", good, *where)
        judged = call("web", "judge", "--task", out, good, "--judge", "m", *where)
    assert called.code == 1
    assert called.json["kept"] == ["F1"]
    assert called.json["dropped"] == {
        "F2": "it fails on the good page",
        "T1": "it passes on the blank page",
    }
    assert judged.code == 0
    assert judged.json["score"] == 1.0  # what the steps say stands
    assert judged.json["flags"]["llm"]["status"] == "unusable"
