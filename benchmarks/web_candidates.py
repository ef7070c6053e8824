"""Pages of graded quality for six bundled web tasks: a page that meets the brief, with one function more cut at a time.

What a cut takes is written by hand, by reading the rubric, not measured: it is the truth scorers are compared with. All
but the stuffed page have the same length, so that a cut is not told by what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym.envs.web.pages import stuffed
from agentgym.envs.web.tasks import make
from agentgym.errors import TaskError
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.task import WebTask

STUFFED = "stuffed"
_SPARE = 100  # bytes that cuts may add


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page, and what it is worth: the share of the weight of functions that it has."""

    name: str
    html: str
    worth: float


@dataclass(frozen=True, slots=True)
class Cut:
    """What takes functions from a page.

    Attributes:
        lost: rubric items about functions that the page no longer meets.
        changes: pieces of the page, each there once, and what they become.
    """

    lost: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]


def _cut(lost: str, *changes: tuple[str, str]) -> Cut:
    return Cut(tuple(lost.split()), changes)


# By recipe. Each cut comes on top of those before it.
CUTS: Mapping[str, Sequence[Cut]] = {
    "calculator": (
        _cut("F7", ("click: () => { text = result; finished = true; draw(); } }", "click: () => {} }")),
        _cut("F6", ("if (event.ctrlKey || event.metaKey ||", "if (event.isTrusted ||")),
        _cut("F5", ('text = finished ? "" : text.slice(0, -1);', "text = text;")),
        _cut("F3", ("String(Number(value.toFixed(8)))", "String(value)")),
        # Every sign but plus is taken for minus.
        _cut("F2 F4", ('if ("*/".includes(signs[i])) {', "if (signs[i] === undefined) {")),
        _cut("F1", ("const result = evaluate(text);", "const result = text;")),
    ),
    "cart": (
        _cut("F7", ('  save("cart", cart);\n', "")),
        _cut("F6", ('at("coupon-error").hidden = valid;', 'at("coupon-error").hidden = true;')),
        _cut("F5", ("percent = valid ? DATA.percent : 0;", "percent = 0;")),
        _cut("F4", ("click: () => change(name, 0) }", "click: () => {} }")),
        _cut(
            "F3",
            ("change: event => change(name, Math.floor(Number(event.target.value)))", "change: () => {}"),
        ),
        _cut("F2", ("(cart[name] ?? 0) + 1", "1")),
    ),
    "kanban": (
        _cut("F7", ('  save("cards", cards);\n', "")),
        _cut("F5", ("if (!full) change(", "change(")),
        _cut("F6", ("click: () => change(cards.filter(card => card.id !== id))", "click: () => {}")),
        _cut("F3", ("if (dragged !== null) move(dragged, number);", "")),
        _cut("F4", ("click: () => move(id, column + by) }", "click: () => {} }")),
        _cut("F2", ('if (event.key !== "Enter" || !text) return;', 'if (event.key !== "Enter") return;')),
    ),
    "signup": (
        _cut(
            "F6",
            (
                'Math.max(0, DATA.length - at("password").value.length)',
                "DATA.length",
            ),
        ),
        _cut("F5", ('at("password").type = shown ? "password" : "text";', "")),
        _cut("F4", ('if (!problemOf(each)) show(each, "");', "each;")),
        _cut(
            "F3",
            (r"/^\S+@\S+\.\S+$/.test(value)", "value"),
            ("Number(value) >= DATA.age", "value"),
            ('value === at("password").value', "true"),
        ),
        _cut("F2", ('at("terms").checked', "true"), ("town: value => value ?", "town: value => true ?")),
        _cut("F1", ('  at("welcome").hidden = false;\n', "")),
    ),
    "table": (
        _cut("F6", ("{ page = 0; draw(); }", "draw()"), ("  page = Math.min(page, pages - 1);\n", "")),
        _cut("F4", ('(town === "All" || row.town === town)', "town")),
        _cut(
            "F1",
            (
                'typeof a === "number" ? a - b : a.localeCompare(b)',
                "String(a).localeCompare(String(b))",
            ),
        ),
        _cut("F3", ("row.name.toLowerCase().includes(wanted)", "row.name")),
        _cut("F5", ("{ page++; draw(); }", "{}")),
        _cut("F2", ("if (order) found.sort(", "if (!order) found.sort(")),
    ),
    "tabs": (
        _cut("F6", ("location.hash = topics[number];", 'location.replace("#" + topics[number]);')),
        _cut("F3", (", Home: 0, End: tabs.length - 1", "")),
        _cut("F4", ("length.textContent = event.target.value.length;", "")),
        _cut(
            "F2",
            (
                "ArrowRight: (number + 1) % tabs.length, ArrowLeft: (number + tabs.length - 1) % tabs.length",
                "",
            ),
        ),
        _cut(
            "F5",
            ('location.replace("#" + topics[number]);', "{ shown = number; draw(); }"),
            (
                "const chosen = () => Math.max(0, topics.indexOf(decodeURIComponent(location.hash.slice(1))));",
                "let shown = 0;\nconst chosen = () => shown;",
            ),
        ),
        _cut("F1", ("click: () => choose(number), ", "")),
    ),
}


def candidates(recipe: str, seed: int) -> tuple[WebTask, list[Candidate]]:
    """A task with eight pages: nothing cut, one to six functions cut, and one that only looks like a lot.

    Args:
        recipe: one of `CUTS`.
        seed: of the task.

    Raises:
        TaskError: the page has changed, so that a cut does not fit any more.
    """
    problem = make(recipe, seed)
    task = parse_task(problem.task)
    weights = {item.id: item.weight for item in task.items if item.category == "functionality"}
    html, left = problem.gold, sum(weights.values())
    length = len(html) + _SPARE
    pages = [Candidate("0 cut", html.ljust(length), 1.0)]
    for number, cut in enumerate(CUTS[recipe], 1):
        for old, new in cut.changes:
            if html.count(old) != 1:
                raise TaskError(
                    f"{recipe}: expected {old!r} once in the page, found it {html.count(old)} times"
                )
            html = html.replace(old, new)
        left -= sum(weights[item] for item in cut.lost)
        pages.append(Candidate(f"{number} cut", html.ljust(length), left / sum(weights.values())))
    return task, [*pages, Candidate(STUFFED, stuffed(task), 0.0)]
