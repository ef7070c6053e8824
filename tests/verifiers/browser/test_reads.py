"""What each kind of assert reads. Expected values are written by hand from the page's source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentgym.verifiers.web.trace import Event
from tests.verifiers.browser.tasks import task_of

pytestmark = pytest.mark.slow

STYLE = """
* { margin: 0; padding: 0; box-sizing: border-box }
body { font: 16px/20px sans-serif; color: rgb(0, 0, 0); background: rgb(255, 255, 255) }
.box { width: 100px; height: 20px }
"""
# selector -> element; the selector is the element's id.
PAGE = f"""<!doctype html><html lang="en-GB"><head><title>A page</title><style>{STYLE}</style></head><body>
<div id="plain" class="box" data-x="1" aria-label="  " style="text-transform: uppercase">  Hello <b>you</b> </div>
<div id="none" class="box seen" style="display: none">gone</div>
<div id="invisible" class="box seen" style="visibility: hidden">gone</div>
<div id="skipped" style="content-visibility: hidden"><div id="in-skipped" class="box seen">gone</div></div>
<div style="opacity: 0.3"><div id="faint" class="box seen" style="opacity: 0.45">0.135</div></div>
<div style="opacity: 0.4"><div id="pale" class="box seen" style="opacity: 0.4">0.16</div></div>
<div id="thin" class="seen" style="width: 100px; height: 2px"></div>
<div id="flat" class="seen" style="width: 100px; height: 3px"></div>
<div id="away" class="box seen" style="position: absolute; left: -9999px">away</div>
<div id="above" class="box seen" style="position: absolute; top: -500px">away</div>
<div id="tiny" class="box seen" style="font-size: 5px">tiny</div>
<div id="small" class="box seen" style="font-size: 6px">small</div>
<div id="camouflaged" class="box seen" style="color: rgb(250, 250, 250)">white on white</div>
<div id="on-image" class="box seen" style="color: white; background: linear-gradient(white, white)">can't tell</div>
<div id="camouflaged-parent" class="box seen" style="color: rgb(255, 255, 255)"><i>x</i></div>
<div id="grey" class="box c" style="color: rgb(118, 118, 118)">grey</div>
<div id="half" class="box" style="color: rgba(0, 0, 0, 0.5)">half black is grey 127.5</div>
<div style="background: rgb(0, 0, 0)"><div style="background: rgba(255, 255, 255, 0.5)">
  <div id="layers" class="box c2" style="color: rgb(0, 0, 0)">on grey 127.5</div></div></div>
<div id="oklch" class="box" style="color: oklch(0 0 0); background: color(srgb 1 1 1)">black on white</div>
<div style="position: relative; width: 100px; height: 20px"><button id="covered" class="box">x</button>
  <div id="cover" style="position: absolute; inset: 0; background: grey"></div></div>
<label id="wrapping" class="box" style="display: block">tick <input id="tick" type="checkbox" checked></label>
<div id="switch" class="box" role="switch" aria-checked="true">s</div>
<button id="pressed" class="box" aria-pressed="true">p</button>
<button id="unpressed" class="box" aria-pressed="false">u</button>
<label for="field" id="field-label">Name</label><input id="field" class="box" value="v" placeholder="p">
<input id="held" class="box" placeholder="only this">
<label for="hid" style="display: none">hidden label</label><input id="hid" class="box">
<input id="titled" class="box" title="t"><span id="names" style="display: none">words</span>
<div id="region" class="box" aria-labelledby="nobody names" role="dialog">r</div>
<div id="region2" class="box" aria-labelledby="nobody" role="dialog">r</div>
<select id="choice" class="box"><option value="a">A</option><option value="b" selected>B</option></select>
<p id="done" class="box"><span><s>old</s></span></p><p id="open" class="box">new</p>
<div style="text-decoration: line-through"><p id="inside-struck" class="box">outside of it</p></div>
<ul><li class="row" style="height: 20px">one</li><li class="row" style="height: 30px">two</li>
<li class="row" style="height: 20px; display: none">three</li></ul>
<div style="display: flex"><i class="cell box">1</i><i class="cell box">2</i></div>
<div id="wide" style="width: 1500px; height: 10px"></div>
<svg width="100" height="20"><text id="drawn" x="0" y="15">drawn</text></svg>
<div id="lines" class="box">a<br>b</div>
</body></html>"""

# (kind, css, more fields of the assert, value)
VALUES: list[tuple[str, str, dict[str, Any], Any]] = [
    # seen
    *(
        ("count", f"#{css}", {}, seen)
        for css, seen in {
            **{"plain": 1, "none": 0, "invisible": 0, "in-skipped": 0, "faint": 0, "pale": 1},
            **{"thin": 0, "flat": 1, "away": 0, "above": 0, "tiny": 0, "small": 1},
            **{"camouflaged": 0, "on-image": 1, "camouflaged-parent": 1, "covered": 1, "drawn": 1},
        }.items()
    ),
    ("count", ".seen", {}, 5),
    ("count_all", ".seen", {}, 14),
    ("count_all", "#nothing", {}, 0),
    ("hidden", "#plain", {}, False),
    ("hidden", "#none", {}, True),
    ("hidden", "#nothing", {}, True),
    ("visible", "#plain", {}, True),
    ("visible", "#covered", {}, False),
    ("visible", "#cover", {}, True),
    ("visible", "#none", {}, False),
    ("visible", "#nothing", {}, False),
    # text
    ("text", "#plain", {}, "HELLO YOU"),
    ("text", "#nothing", {}, None),
    ("text", "#lines", {}, "a\nb"),
    ("text", "#drawn", {}, "drawn"),
    ("texts", ".row", {}, ["one", "two"]),
    ("texts", "#nothing", {}, []),
    ("text_or_none", "#none", {}, ""),
    ("text_or_none", "#open", {}, "new"),
    # form fields and attributes
    ("value", "#field", {}, "v"),
    ("value", "#choice", {}, "b"),
    ("value", "#plain", {}, None),
    ("checked", "#tick", {}, True),
    ("checked", "#switch", {}, True),
    ("checked", "#pressed", {}, True),
    ("checked", "#unpressed", {}, False),
    ("checked", "#nothing", {}, None),
    ("attr", "#plain", {"key": "data-x"}, "1"),
    ("attr", "#plain", {"key": "data-y"}, None),
    ("attr", "#none", {"key": "id"}, None),
    ("attr_any", "#none", {"key": "id"}, "none"),
    ("attr_bool", "#tick", {"key": "checked"}, True),
    ("attr_bool", "#tick", {"key": "disabled"}, False),
    # names
    ("named", "#nothing", {}, None),
    ("named", "#plain", {}, True),
    ("named", "#tick", {}, True),
    ("named", "#field", {}, True),
    ("named", "#held", {}, False),
    ("named", "#field, #held", {}, False),
    ("named", "#titled", {}, True),
    ("named", "#region", {}, True),
    ("named_box", "#region", {}, True),
    ("named_box", "#region2", {}, False),
    ("named_box", "#plain", {}, False),
    ("label_visible", "#field", {}, True),
    ("label_visible", "#tick", {}, True),
    ("label_visible", "#hid", {}, False),
    ("label_visible", "#region", {}, False),
    # looks
    ("style", "#grey", {"key": "color"}, "rgb(118, 118, 118)"),
    ("style", "#plain", {"key": "text-transform"}, "uppercase"),
    ("style", "#plain", {"key": "textTransform"}, "uppercase"),
    ("style", "#plain", {"key": "cssFloat"}, "none"),
    ("style", "#plain", {"key": "webkitLineClamp"}, "none"),
    ("style", "#plain", {"key": "WebkitLineClamp"}, "none"),
    ("style", "#plain", {"key": "noSuchThing"}, ""),
    ("font_px", "#small", {}, 6),
    ("struck", "#done", {}, True),
    ("struck", "#open", {}, False),
    ("struck", "#inside-struck", {}, False),
    ("contrast", "#on-image", {}, None),
    ("contrast", "#nothing", {}, None),
    ("differs", "#grey", {"key": "#plain"}, True),
    ("differs", "#done", {"key": "#open"}, False),
    ("differs", "#grey", {"key": "#none"}, None),
    # geometry
    ("min_size", ".row", {}, 20),
    ("min_size", "#nothing", {}, None),
    ("rect", "#plain", {}, {"x": 0, "y": 0, "w": 100, "h": 20}),
    ("inside_x", "#plain", {}, True),
    ("inside_x", "#wide", {}, False),
    ("stacked", ".row", {}, True),
    ("stacked", ".cell", {}, False),
    ("stacked", "#plain", {}, False),
    ("side_by_side", ".cell", {}, True),
    ("side_by_side", ".row", {}, False),
    # targets
    ("count", ".row", {"has_text": "wo"}, 1),
    ("count", ".row", {"has_text": "TWO"}, 0),
    ("count_all", ".row", {"within": {"css": "ul"}}, 3),
    ("count_all", "ul .row", {"within": {"css": "ul"}}, 3),
    ("count_all", "ul", {"within": {"css": "ul"}}, 0),
    ("count_all", "span", {"within": {"css": "p", "has_text": "old"}}, 1),
    ("text", ".row", {"nth": 1}, "two"),
    ("text", ".row", {"nth": 2}, None),
    ("count_all", ".row", {"has_text": "o", "nth": 1}, 1),
]
WITHOUT_TARGET = [
    ("title", "A page"),
    ("lang", "en-GB"),
    ("hash", ""),
    ("storage_len", 0),
    ("dialogs", 0),
    ("overflow_x", 220),
    ("no_errors", True),
    ("no_network", True),
]
TARGET_FIELDS = ("has_text", "within", "nth")


def wanted(kind: str, css: str, more: dict[str, Any]) -> dict[str, Any]:
    target = {"css": css, **{name: more[name] for name in TARGET_FIELDS if name in more}}
    rest = {name: value for name, value in more.items() if name not in TARGET_FIELDS}
    return {"op": "assert", "kind": kind, "target": target, "within_ms": 0, **rest}


@pytest.fixture(scope="module")
def events(pool: Any) -> list[Event]:
    """All of them read in one run."""
    asserts = [wanted(kind, css, more) for kind, css, more, _ in VALUES]
    asserts += [{"op": "assert", "kind": kind, "within_ms": 0} for kind, _ in WITHOUT_TARGET]
    trace = pool.run(task_of(asserts), {"index.html": PAGE.encode()})
    return list(trace.events[1:])


@pytest.mark.parametrize("n", range(len(VALUES)), ids=[f"{v[0]} {v[1]} {v[2] or ''}" for v in VALUES])
def test_value(events: list[Event], n: int) -> None:
    value = VALUES[n][3]
    assert events[n].error == ""
    assert events[n].got == value
    assert type(events[n].got) is type(value) or isinstance(value, int)
    assert events[n].ok == bool(value)


@pytest.mark.parametrize("n", range(len(WITHOUT_TARGET)), ids=[kind for kind, _ in WITHOUT_TARGET])
def test_value_without_target(events: list[Event], n: int) -> None:
    assert events[len(VALUES) + n].got == WITHOUT_TARGET[n][1]


def test_contrast_by_the_formula_of_wcag(steps: Callable[..., list[Event]]) -> None:
    read = [wanted("contrast", css, {}) for css in ("#grey", "#half", "#layers", "#oklch", "#grey, #oklch")]
    got = [event.got for event in steps(PAGE, read)]
    # 118/255 is luminance 0.18116 and 127.5/255 is 0.21404: 1.05 / 0.23116, 1.05 / 0.26404, 0.26404 / 0.05.
    assert got == pytest.approx([4.5424, 3.9767, 5.2808, 21.0, 4.5424], abs=1e-3)


def test_page_text_is_what_is_rendered(steps: Callable[..., list[Event]]) -> None:
    page = "<p>shown <b>bold</b></p><p style='display:none'>hidden</p><script>var x = 'code'</script>"
    (event,) = steps(page, [{"op": "assert", "kind": "page_text"}])
    assert event.got.strip() == "shown bold"


def test_what_is_below_the_fold_is_seen_and_scrolled_to(steps: Callable[..., list[Event]]) -> None:
    page = "<div style='height: 3000px'></div><button id=b>far</button>"
    target = {"css": "#b"}
    count, visible, rect = steps(
        page, [{"op": "assert", "kind": kind, "target": target} for kind in ("count", "visible", "rect")]
    )
    assert (count.got, visible.got) == (1, True)
    assert 0 < rect.got["y"] < 800


def test_first_means_first_seen_one(steps: Callable[..., list[Event]]) -> None:
    page = "<p style='display:none' class=x>a</p><p class=x>b</p>"
    assert steps(page, [wanted("text", ".x", {})])[0].got == "b"


def test_focus(steps: Callable[..., list[Event]]) -> None:
    page = "<div id=d><button id=b>b</button></div><button id=o>o</button><input id=h style='opacity:0'>"
    kinds = ("focused", "focused_within", "focused_within_or_chrome", "focused_any")

    def look(css: str) -> list[dict[str, Any]]:
        return [wanted(kind, css, {}) for kind in kinds]

    def focus(css: str) -> list[dict[str, Any]]:
        return [{"op": "focus", "target": {"css": css}}]

    got = [
        event.got
        for event in steps(
            page,
            [*look("#d"), *look("body"), *focus("#b"), *look("#d"), *look("#o"), *focus("#h"), *look("#h")],
        )
        if event.op == "assert"
    ]
    in_chrome, body, inside, beside, unseen = (got[n : n + 4] for n in range(0, 20, 4))
    assert in_chrome == [False, False, True, False]
    assert body == [True, False, True, True]
    assert inside == [True, True, True, False]
    assert beside == [False, False, False, False]
    assert unseen == [False, False, False, True]


def test_struck_looks_no_higher_than_the_element(steps: Callable[..., list[Event]]) -> None:
    page = "<ul style='text-decoration:line-through'><li>a</li></ul><s id=s>b</s>"
    assert [e.got for e in steps(page, [wanted("struck", "li", {}), wanted("struck", "#s", {})])] == [
        False,
        True,
    ]


def test_a_value_may_come_true_later(steps: Callable[..., list[Event]]) -> None:
    page = "<p id=p>0</p><script>setTimeout(() => p.textContent = '1', 1000)</script>"
    target = {"css": "#p"}
    early, late = steps(
        page,
        [
            {"op": "assert", "kind": "text", "target": target, "equals": "1", "within_ms": 0},
            {"op": "assert", "kind": "text", "target": target, "equals": "1", "within_ms": 10_000},
        ],
    )
    assert (early.ok, late.ok) == (False, True)


def test_reads_follow_the_page_to_its_next_documents(steps: Callable[..., list[Event]]) -> None:
    page = "<p>x</p><script>setTimeout(() => location.reload(), 200)</script>"
    events = steps(page, [wanted("text", "p", {}) | {"equals": "x", "within_ms": 3000}] * 40)
    assert all(event.ok for event in events)


def test_what_cannot_be_read_does_not_hold(steps: Callable[..., list[Event]]) -> None:
    bad, number, empty, regex = steps(
        "<p>word</p>",
        [
            wanted("count", "p[", {}) | {"min": 0},
            wanted("text", "p", {}) | {"min": 1},
            wanted("text", "#no", {}) | {"not_contains": "x"},
            wanted("text", "p", {}) | {"regex": "\\{{t1}}"},
        ],
        seed=1,  # {{t1}} begins with an h: there is no escape of that letter
    )
    assert not bad.ok
    assert "SyntaxError" in bad.error
    assert not number.ok
    assert number.got == "word"
    assert number.error
    assert not empty.ok
    assert empty.got is None
    assert not regex.ok
    assert "bad escape" in regex.error


FORGED = """<!doctype html><title>t</title><body><p id="p">true text</p>
<form id="f"><input name="innerText" value="x"><input name="getBoundingClientRect">
<input name="value"><b>form</b></form>
<img name="querySelectorAll"><img name="body"><img name="title"><img name="activeElement"><img name="documentElement">
<script>
Object.defineProperty(HTMLElement.prototype, 'innerText', {get: () => 'forged'});
Element.prototype.getBoundingClientRect = () => ({left: 1, right: 9, top: 1, bottom: 9, width: 8, height: 8});
window.getComputedStyle = () => ({fontSize: '99px'});
Document.prototype.querySelectorAll = () => [document.all[0], document.all[1]];
Array.prototype.filter = () => []; Array.prototype.find = () => null; JSON.stringify = () => '1';
window.read = () => ({value: 'forged', matched: 1, nodes: 1});
Object.defineProperty(window, 'localStorage', {value: {length: 7}});
</script></body>"""


def test_reads_cannot_be_forged_nor_clobbered(steps: Callable[..., list[Event]]) -> None:
    read = [
        wanted("text", "p", {}),
        wanted("count_all", "p", {}),
        wanted("font_px", "p", {}),
        wanted("text", "#f", {}),
        wanted("value", "#f", {}),
        wanted("focused_any", "body", {}),
        {"op": "assert", "kind": "title"},
        {"op": "assert", "kind": "storage_len", "equals": 0},
        {"op": "assert", "kind": "overflow_x", "max": 0},
    ]
    events = steps(FORGED, read)
    assert [event.got for event in events[:-1]] == ["true text", 1, 16, "form", None, True, "t", 0]
    assert events[-1].ok


def test_the_page_cannot_see_the_reading_world(steps: Callable[..., list[Event]]) -> None:
    page = """<p id=p>-</p><script>const before = Object.getOwnPropertyNames(window).length;
    setInterval(() => p.textContent = Object.getOwnPropertyNames(window).length - before + ' ' +
      document.querySelectorAll('*').length, 50)</script>"""
    events = steps(page, [wanted("count", "p", {}), {"op": "wait", "ms": 200}, wanted("text", "p", {})])
    assert events[2].got == "0 5"  # html, head, body, p, script: nothing was added


@pytest.mark.parametrize("doctype", ["<!doctype html>", ""], ids=["standards", "quirks"])
def test_the_document_area(steps: Callable[..., list[Event]], doctype: str) -> None:
    page = (
        doctype
        + """<style>body { margin: 0 } p { position: absolute; width: 50px; height: 20px; margin: 0 }</style>
    <p id=low style='top: 3000px'>x</p><p id=right style='top: 0; left: 2000px'>x</p>
    <p id=off style='top: 0; left: -9999px'>x</p><p id=fixed style='position: fixed; left: 2100px; top: 0'>x</p>"""
    )
    read = [wanted("count", f"#{css}", {}) for css in ("low", "right", "off", "fixed")]
    events = steps(page, [*read, wanted("visible", "#low", {}), {"op": "assert", "kind": "overflow_x"}])
    # The area is 2050 px wide, as far as #right: what is fixed does not widen it.
    assert [event.got for event in events] == [1, 1, 0, 0, True, 2050 - 1280]


def test_a_large_table_is_read_in_time(steps: Callable[..., list[Event]]) -> None:
    page = """<div><div><div><div id=g></div></div></div></div><script>
    g.innerHTML = '<table>' + ('<tr>' + '<td>1</td>'.repeat(100)).repeat(100) + '</table>'</script>"""
    events = steps(
        page, [wanted("count", "td", {}), wanted("contrast", "td", {}), wanted("hidden", "td", {})]
    )
    assert [event.got for event in events] == [10_000, 21, False]


def test_half_of_a_surrogate_pair_is_read_as_it_is_shown(steps: Callable[..., list[Event]]) -> None:
    page = "<p id=p></p><script>p.textContent = 'a\\ud800b'; console.error('\\udc00 half')</script>"
    text, errors = steps(page, [wanted("texts", "p", {}), {"op": "assert", "kind": "no_errors"}])
    assert text.got == ["a\ufffdb"]
    assert errors.errors == () == errors.blocked
    assert not errors.ok
