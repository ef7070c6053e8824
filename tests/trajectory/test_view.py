import dataclasses
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

from agentgym.errors import MissingDependency
from agentgym.messages import user
from agentgym.trajectory import Call, Event, Segment, Step, Trajectory
from agentgym.trajectory.view import MOST_CHARACTERS, _template, render_html, write_html
from tests.trajectory.examples import full

ATTACK = (
    "</script></style></pre><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">{{ 7*7 }}"
)


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.texts, self.scripts = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        (self.scripts if self.tags[-1:] in (["script"], ["style"]) else self.texts).append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def replaced(value):
    """The value with the attack in place of every text that somebody could have written."""
    if isinstance(value, str):
        return ATTACK
    if isinstance(value, dict):
        return {(k if k in KEYS else ATTACK): replaced(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(replaced(v) for v in value)
    if dataclasses.is_dataclass(value):
        changes = {
            f.name: replaced(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in KEPT
        }
        return dataclasses.replace(value, **changes)
    return value


KEPT = {"kind", "cause", "schema_version", "role"}  # closed lists of the format
KEYS = {
    "components",
    "held_out",
    "evidence",
    "score",
    "passed",
    "before_tokens",
    "after_tokens",
    "dropped_messages",
}
KEYS |= {"role", "content", "summary", "strategy", "segment", "invalid_action", "context_tokens"}


def test_the_page_says_what_happened():
    page = Page(render_html(full()))
    for words in (
        "door-1",
        "Resolved by a hack",
        "agentgym/Door-v0 · policy scripted · seed 1180591620717411303424",
        "Held out: the policy is never paid for these and never sees them gently 0.5",
        "Turn 1 segment 0",
        "History rewritten by “policy”, 19 to 11 tokens, 2 messages dropped",
        "The summary in their place Summary: room",
        "Not shown to the policy: rule: doors",
        "A sub-agent began",
        "Turn 3 segment 3 invalid action blocked reward 1",
        "3 policy compaction (3 dropped) segment 0 4 1 12 6 2",
    ):
        assert words in page.text


def test_what_anybody_wrote_is_inert_text():
    attacked = replaced(full())
    assert attacked.steps[0].action == ATTACK
    page = Page(render_html(attacked))
    assert page.tags.count("script") == 1
    assert page.tags.count("style") == 1
    assert not {"img", "iframe", "svg", "object", "link", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not any("owned" in script for script in page.scripts)
    assert sum(text.count("owned") for text in page.texts) > 20
    assert "{{ 7*7 }}" in page.text
    assert not [
        value for name, value in page.attributes if name in ("href", "src") and not value.startswith("#")
    ]


def test_the_page_needs_no_network():
    html = render_html(full())
    assert not re.findall(r"https?://|@import|url\(", html)
    assert "default-src 'none'" in html


def test_long_texts_are_folded_and_huge_ones_cut():
    long, huge = "\n".join(f"line {k}" for k in range(400)), "x" * (10 * MOST_CHARACTERS) + "THE END"
    trajectory = Trajectory(
        "t", steps=[Step("turn", "policy", "a", long), Step("turn", "policy", huge, huge)]
    )
    html = render_html(trajectory)
    assert html.count("line 399") == 1
    assert html.count("line 5\n") == 2  # in the preview and in the whole
    assert "THE END" in html
    assert "900,007 characters are left out" in html
    assert len(html) < 6 * MOST_CHARACTERS


def test_tool_calls_inside_an_action_stand_out():
    action = "I look.\n<tool_call>\n{}\n</tool_call>\nThen:\n```bash\nls\n```\nAction: go\nbye <tool_call>cut"
    html = render_html(Trajectory("t", steps=[Step("turn", "policy", action)]))
    marked = re.findall(r'<div class="said call">\s*<pre class="">(.*?)</pre>', html, re.S)
    assert marked == [
        "&lt;tool_call&gt;\n{}\n&lt;/tool_call&gt;",
        "```bash\nls\n```",
        "Action: go",
        "&lt;tool_call&gt;cut",
    ]


def test_answers_are_not_shown_twice():
    def rows(observation, *calls):
        page = Page(
            render_html(Trajectory("t", steps=[Step("turn", "policy", "a", observation, calls=list(calls))]))
        )
        return page.text.count("answer")

    assert rows("answer") == 1
    assert rows("answer", Call("act", {"text": "a"}, "answer")) == 1  # a plain move: no call is shown
    assert rows("answer", Call("look", {}, "answer")) == 1
    assert rows("<r>answer</r>", Call("look", {}, "answer")) == 2  # the second is folded away
    assert rows("<r>answer</r>", Call("act", {"text": "a"}, "answer", blocked=True)) == 2


@pytest.mark.parametrize(
    "trajectory",
    [
        Trajectory("bare"),
        Trajectory("broken", reward=None, infrastructure_error="the server is gone", truncated=True),
        Trajectory("empty reply", steps=[Step("turn", "policy", "")]),
        Trajectory(
            "no ids",
            steps=[Step("turn", "policy", "a", segment=0)],
            segments=[Segment(0, messages=(user("q"),))],
        ),
        Trajectory("odd", events=[Event("mine", 7, {"x": 1}), Event("compaction", 0), Event("fork", 2)]),
        Trajectory("surrogate \ud800", prompt="\ud800\x00\x1b[31m", verdict={"score": 0.5}),
    ],
    ids=lambda t: t.id.encode(errors="replace").decode(),
)
def test_every_trajectory_has_a_page(trajectory, tmp_path):
    path = write_html(trajectory, tmp_path / "deep" / "page.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    if trajectory.infrastructure_error:
        assert "Infrastructure failed" in page.text
        assert "the server is gone" in page.text
        assert "Reward none" in page.text


def test_without_jinja2_the_command_is_named(monkeypatch):
    _template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[report\]'"):
        render_html(full())


def large(turns):
    """Many turns with long answers, in segments of 25."""
    steps = [
        Step(
            "turn",
            "policy",
            f"<tool_call>{k}</tool_call> " + "why " * 80,
            "",
            0.0,
            [],
            {},
            k // 25,
            1000 + 40 * (k % 25),
        )
        for k in range(turns)
    ]
    for step in steps:
        answer = "\n".join(
            "some output of a command, eighty characters wide or so, more or less" for _ in range(60)
        )
        step.calls = [Call("bash", {"command": "cat file"}, answer, exit_code=0)]
        step.observation = f"<tool_response>\n{answer}\n</tool_response>"
    events = [Event("compaction", k, {"segment": k // 25}) for k in range(25, turns, 25)]
    return Trajectory(
        "large", steps=steps, events=events, segments=[Segment(k) for k in range((turns + 24) // 25)]
    )


def test_five_hundred_turns_are_rendered_quickly():
    start = time.process_time()
    html = render_html(large(500))
    assert time.process_time() - start < 2
    assert html.count('class="row card turn') == 500


def browse(path, script):
    """The page's DOM after a script ran in it; the page's own policy is lifted for that script only."""
    html = path.read_text(encoding="utf-8")
    html = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", html)
    path.write_text(html.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    command = [
        "chromium",
        *flags.split(),
        f"--user-data-dir={path.parent / 'profile'}",
        "--dump-dom",
        path.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_in_a_browser_the_controls_work(tmp_path):
    script = """
        const out = [];
        const shown = () => all("#rows > .row").filter((row) => !row.hidden).length;
        const pick = (value) => { kind.value = value; kind.dispatchEvent(new Event("change")); };
        out.push(shown());
        pick("blocked"); out.push(shown());
        pick("event"); out.push(shown());
        document.querySelector(".bars a").click(); out.push(shown());
        document.querySelector("[data-tab=segments]").click();
        out.push(byId("panel-turns").hidden, byId("panel-segments").hidden);
        byId("fold").click(); out.push(all("#rows details:not([open])").length);
        document.title = out.join(" ");
    """
    dom = browse(write_html(full(), tmp_path / "page.html"), script)
    assert "<title>8 1 4 8 true false 0</title>" in dom


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_in_a_browser_an_attack_does_nothing_even_without_the_policy(tmp_path):
    dom = browse(write_html(replaced(full()), tmp_path / "page.html"), "document.title += ' fine'")
    title = re.search(r"<title>(.*?)</title>", dom, re.S)[1]
    assert title.endswith("fine")
    assert title != "owned fine"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_in_a_browser_five_hundred_turns_load_in_two_seconds(tmp_path):
    script = "addEventListener('load', () => { document.title = 'loaded ' + Math.round(performance.now()); })"
    dom = browse(write_html(large(500), tmp_path / "page.html"), script)
    assert int(re.search(r"loaded (\d+)", dom)[1]) < 2000
