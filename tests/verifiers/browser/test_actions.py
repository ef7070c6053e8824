"""What each action does to a page, seen by what the page then shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentgym.verifiers.web.trace import Event, Trace

pytestmark = pytest.mark.slow

Steps = Callable[..., list[Event]]
LOG = "<pre id=log></pre><script>const say = (t) => log.textContent += t + ' '</script>"


def on(css: str, **more: Any) -> dict[str, Any]:
    return {"target": {"css": css}, **more}


def reads(kind: str, css: str, **more: Any) -> dict[str, Any]:
    return {"op": "assert", "kind": kind, "target": {"css": css}, "within_ms": 1000, **more}


def said(events: list[Event]) -> list[str]:
    """The words of the log that the last step read."""
    return str(events[-1].got).split()


LOGGED = {"op": "assert", "kind": "text_or_none", "target": {"css": "#log"}, "regex": "."}


def test_pointer(steps: Steps) -> None:
    page = f"""<button id=b>Press me</button>{LOG}<script>
    for (const t of ['mouseover', 'click', 'dblclick'])
      b.addEventListener(t, (e) => say(t + ':' + e.isTrusted))</script>"""
    target = on("#b")
    events = steps(
        page, [{"op": "hover", **target}, {"op": "click", **target}, {"op": "dblclick", **target}, LOGGED]
    )
    assert all(event.ok for event in events)
    assert said(events) == ["mouseover:true", *["click:true"] * 3, "dblclick:true"]


def test_fill_sets_at_once_and_type_presses_keys(steps: Steps) -> None:
    page = f"""{LOG}<input id=i value=old><div id=e contenteditable>x</div><script>
    for (const t of ['keydown', 'input']) i.addEventListener(t, (e) => say(t + ':' + e.isTrusted))</script>"""
    filled = steps(
        page, [{"op": "fill", **on("#i"), "value": "new"}, reads("value", "#i", equals="new"), LOGGED]
    )
    assert said(filled) == ["input:true"]
    assert filled[1].ok
    typed = steps(
        page,
        [{"op": "type", **on("#i"), "value": "ab"}, reads("value", "#i", regex="^(oldab|abold)$"), LOGGED],
    )
    assert said(typed) == ["keydown:true", "input:true"] * 2
    assert typed[1].ok
    editable = steps(page, [{"op": "fill", **on("#e"), "value": "new"}, reads("text", "#e", equals="new")])
    assert editable[1].ok


def test_keys_go_to_the_target_or_to_what_has_focus(steps: Steps) -> None:
    page = f"""{LOG}<input id=a><input id=b><script>
    document.onkeydown = (e) => say(e.target.id + ':' + (e.shiftKey ? 'Shift+' : '') + e.key)</script>"""
    events = steps(
        page,
        [
            {"op": "press", **on("#b"), "key": "Enter"},
            {"op": "press", "key": "ArrowLeft"},
            {"op": "press", "key": "Shift+Tab"},
            {"op": "press", "key": "Escape"},
            LOGGED,
        ],
    )
    assert said(events) == ["b:Enter", "b:ArrowLeft", "b:Shift+Shift", "b:Shift+Tab", "a:Escape"]


def test_tab_to(steps: Steps) -> None:
    page = "<input id=a><input id=b style='opacity:0'><button class=x>First One</button><button class=x>Second</button>"
    second = {"css": ".x", "has_text": "sec"}  # as in actions: without regard to case
    events = steps(
        page,
        [
            {"op": "tab_to", **on("#b")},
            reads("focused_any", "#b"),
            {"op": "tab_to", "target": second, "max": 2},
            reads("focused_any", ".x", equals=True),
            {"op": "tab_to", **on("#a"), "max": 1},
            {"op": "tab_to", **on("#missing")},
        ],
    )
    assert [event.ok for event in events] == [True, True, True, True, False, False]
    assert "1 presses of Tab" in events[4].error
    assert "nothing matches #missing" in events[5].error


def test_select_by_value_and_by_label_and_check(steps: Steps) -> None:
    page = """<select id=s><option value=1>One</option><option value=2>Two</option></select>
    <input id=c type=checkbox><label><input id=r type=radio name=r>R</label>
    <div id=w role=switch aria-checked=false tabindex=0
      onclick="this.setAttribute('aria-checked', this.getAttribute('aria-checked') !== 'true')">w</div>"""
    events = steps(
        page,
        [
            {"op": "select", **on("#s"), "value": "2"},
            reads("value", "#s", equals="2"),
            {"op": "select", **on("#s"), "value": "One"},
            reads("value", "#s", equals="1"),
            {"op": "check", **on("#c")},
            reads("checked", "#c", equals=True),
            {"op": "check", **on("#c"), "value": False},
            reads("checked", "#c", equals=False),
            {"op": "check", **on("#r")},
            reads("checked", "#r"),
            {"op": "check", **on("#w")},
            reads("checked", "#w"),
        ],
    )
    assert [event.ok for event in events] == [True] * 12


DRAG_HTML5 = """<div id=a draggable=true style='width:80px;height:40px;background:red'>a</div>
<div id=z style='width:200px;height:100px;margin-top:{gap}px;background:#ccc'></div><script>
a.ondragstart = (e) => e.dataTransfer.setData('text', 'a');
z.ondragover = (e) => e.preventDefault();
z.ondrop = (e) => {{ e.preventDefault();
  z.append(document.getElementById(e.dataTransfer.getData('text'))) }}</script>"""
DRAG_POINTER = """<div id=a style='position:absolute;left:0;top:0;width:80px;height:40px;background:red'>a</div>
<div id=z style='position:absolute;left:300px;top:200px;width:200px;height:100px;background:#ccc'></div><script>
let on = false; a.onpointerdown = () => on = true;
onpointermove = (e) => { if (on) { a.style.left = e.clientX - 40 + 'px'; a.style.top = e.clientY - 20 + 'px' } };
onpointerup = (e) => { on = false; const r = z.getBoundingClientRect();
  if (e.clientX > r.left && e.clientX < r.right && e.clientY > r.top && e.clientY < r.bottom)
    z.textContent = 'dropped' }
</script>"""


@pytest.mark.parametrize(
    "page", [DRAG_HTML5.format(gap=50), DRAG_HTML5.format(gap=1500)], ids=["near", "far"]
)
def test_drag_html5(steps: Steps, page: str) -> None:
    events = steps(
        page, [{"op": "drag", **on("#a"), "to": {"css": "#z"}}, reads("count_all", "#z > #a", equals=1)]
    )
    assert [event.ok for event in events] == [True, True], events[0].error


def test_drag_of_code_that_follows_the_pointer(steps: Steps) -> None:
    events = steps(
        DRAG_POINTER, [{"op": "drag", **on("#a"), "to": {"css": "#z"}}, reads("text", "#z", equals="dropped")]
    )
    assert [event.ok for event in events] == [True, True], events[0].error


def test_drag_to_what_is_missing_fails(steps: Steps) -> None:
    (event,) = steps("<p id=a>a</p>", [{"op": "drag", **on("#a"), "to": {"css": "#z"}}])
    assert not event.ok
    assert "nothing matches #z" in event.error


def test_scroll_resize_and_wait(steps: Steps) -> None:
    page = f"""{LOG}<div style='height:5000px;background:linear-gradient(red,blue)'></div><script>
    onscrollend = () => say('y' + scrollY); onresize = () => say(innerWidth + 'x' + innerHeight)</script>"""
    moved = steps(
        page, [{"op": "scroll", "dy": 300}, {"op": "wait", "ms": 700}, {"op": "assert", "kind": "page_text"}]
    )
    assert moved[-1].got.split() == ["y300"]
    sized = steps(page, [{"op": "resize", "w": 500, "h": 400}, {"op": "assert", "kind": "page_text"}])
    assert sized[-1].got.split() == ["500x400"]


def test_reload_keeps_storage_and_the_hash_and_loses_script_state(steps: Steps) -> None:
    page = """<p id=p></p><script>let n = +(localStorage.n || 0); p.textContent = n; let state = 0;
    onclick = () => { state++; localStorage.n = n + 1; location.hash = 'a%20b'; p.textContent = 'clicked ' + state }
    </script><button>b</button>"""
    hashed = {"op": "assert", "kind": "hash", "equals": "a b"}
    click = {"op": "click", **on("button")}
    events = steps(page, [click, reads("text", "p", equals="clicked 1"), hashed, {"op": "reload"},
                          reads("text", "p", equals="1"), hashed, {"op": "assert", "kind": "storage_len", "equals": 1},
                          click, reads("text", "p", equals="clicked 1")])  # fmt: skip
    assert [event.ok for event in events] == [True] * 9
    assert events[3].url == "/#a%20b"


def test_history(steps: Steps) -> None:
    page = """<a href="#/two">two</a><button onclick="history.pushState({}, '', '#/three')">3</button><p id=p></p>
    <script>const show = () => p.textContent = location.hash; onpopstate = show; onhashchange = show; show()</script>"""
    events = steps(
        page,
        [
            {"op": "back"},
            {"op": "forward"},
            {"op": "click", **on("a")},
            {"op": "click", **on("button")},
            {"op": "back"},
            reads("text", "#p", equals="#/two"),
            {"op": "back"},
            {"op": "assert", "kind": "hash", "equals": ""},
            {"op": "back"},
            {"op": "forward"},
            {"op": "assert", "kind": "hash", "equals": "/two"},
        ],
    )
    assert [e.ok for e in events] == [False, False, True, True, True, True, True, True, False, True, True]
    assert "nothing to go back to" in events[0].error


def test_dialogs_five_are_accepted(steps: Steps) -> None:
    page = f"""{LOG}<button id=b onclick="say(confirm('?') + ',' + JSON.stringify(prompt('?', 'given')))">b</button>"""
    events = steps(page, [*[{"op": "click", **on("#b")}] * 3, LOGGED, {"op": "assert", "kind": "dialogs"}])
    assert str(events[3].got).split() == ['true,""', 'true,""', "true,null"]
    assert events[-1].got == 6


def test_beforeunload_is_accepted_and_counted(steps: Steps) -> None:
    page = "<input id=i><script>onbeforeunload = (e) => e.preventDefault()</script>"
    events = steps(
        page,
        [
            {"op": "type", **on("#i"), "value": "x"},
            {"op": "reload"},
            {"op": "assert", "kind": "dialogs", "equals": 1},
        ],
    )
    assert [event.ok for event in events] == [True] * 3


def test_targets_of_actions(steps: Steps) -> None:
    page = f"""{LOG}<main><section class=s><h2>One</h2><button onclick=say(1)>Go</button></section>
    <section class=s><h2>Two</h2><button onclick=say(2)>Go</button><button onclick=say(3)>Go on</button></section>
    <button id=e onclick=say(4)>Finish</button></main><label>Full name <input onfocus=say(5)></label>"""
    two = {"css": ".s", "has_text": "TWO"}
    click = "click"
    events = steps(
        page,
        [
            {"op": click, "target": {"css": "button"}},
            {"op": click, "target": {"css": "button", "within": two}},
            {"op": click, "target": {"css": "main button", "within": two, "nth": 1}},
            {"op": click, "target": {"css": "button", "has_text": " go  ON "}},
            {"op": click, "target": {"role": "button", "name": "fin"}},
            {"op": click, "target": {"role": "button", "name": "Go", "exact": True, "within": two}},
            {"op": click, "target": {"label": "full name"}},
            {"op": click, "target": {"text": "Finish"}},
            LOGGED,
            {"op": click, "target": {"role": "button", "name": "fin", "exact": True}, "timeout_ms": 200},
        ],
    )
    assert [event.ok for event in events] == [True] * 9 + [False]
    assert said(events[:9]) == list("12334254")
    assert [event.resolved for event in events[:4]] == [4, 2, 1, 1]


def test_a_failed_action_does_not_stop_the_scenario(steps: Steps) -> None:
    page = "<button id=b disabled>b</button><p>p</p>"
    events = steps(
        page,
        [{"op": "click", **on("#none")}, {"op": "click", **on("#b"), "timeout_ms": 300}, reads("text", "p")],
    )
    assert [event.ok for event in events] == [False, False, True]
    assert not any(event.skipped for event in events)


def test_a_selector_that_css_does_not_know_is_a_failed_action(steps: Steps) -> None:
    page = "<button>Go on</button>"
    events = steps(
        page,
        [
            {"op": "tab_to", **on("button:has-text('Go')")},
            {"op": "tab_to", **on("button:visible")},
            reads("count", "button"),
        ],
    )
    assert [event.ok for event in events] == [False, False, True]
    assert "not a valid selector" in events[0].error


def test_no_patience_is_not_endless_patience(steps: Steps) -> None:
    page = f"""<button id=b disabled onclick=say('late')>b</button><button id=c onclick=say('ready')>c</button>{LOG}
    <script>setTimeout(() => b.disabled = false, 3000)</script>"""
    events = steps(
        page,
        [
            {"op": "click", **on("#b"), "timeout_ms": 0},
            {"op": "click", **on("#c"), "timeout_ms": 0},
            LOGGED,
            {"op": "click", **on("#b"), "timeout_ms": 10**10},
            reads("text", "#log", equals="ready late"),
        ],
    )
    assert [event.ok for event in events] == [False, True, True, True, True]
    assert said(events[:3]) == ["ready"]


def test_tab_to_filters_text_as_other_actions_do(steps: Steps) -> None:
    page = "<button>other</button><button>zero\u200b wi\u00addth</button>"
    (event,) = steps(page, [{"op": "tab_to", "target": {"css": "button", "has_text": "Zero Width"}}])
    assert event.ok


def test_screenshots(steps: Steps) -> None:
    events = steps("<p>p</p>", [{"op": "screenshot"}, {"op": "hover", **on("p")}], screenshots=True)
    assert all(event.screenshot.startswith(b"\x89PNG") for event in events)
    assert steps("<p>p</p>", [{"op": "hover", **on("p")}])[0].screenshot is None


def test_tokens_are_the_seeds_and_the_same_in_all_scenarios(play: Callable[..., Trace]) -> None:
    scenario = [{"op": "fill", **on("#i"), "value": "a {{t1}}"}, reads("value", "#i", equals="a {{t1}}")]
    trace = play("<input id=i>", scenario, scenario, seed=5)
    first, second = (event.got for event in trace.events if event.op == "assert")
    assert first == second
    assert first.startswith("a ")
    assert len(first) == 9
    other = play("<input id=i>", scenario, seed=6).events[-1].got
    assert other != first


def test_scenarios_share_nothing(play: Callable[..., Trace]) -> None:
    page = """<p id=p></p><script>p.textContent = localStorage.x + document.cookie; localStorage.x = 1;
    document.cookie = 'a=b'; console.error('once more')</script>"""
    look = [reads("text", "#p", equals="undefined"), {"op": "assert", "kind": "no_errors"}]
    trace = play(page, look, look)
    assert [event.ok for event in trace.events] == [True, True, False] * 2
    assert trace.errors == ("once more",)


def test_a_page_that_prints_goes_on(steps: Steps) -> None:
    events = steps(
        "<button onclick=print()>p</button>", [{"op": "click", **on("button")}, reads("count", "button")]
    )
    assert [event.ok for event in events] == [True, True]
