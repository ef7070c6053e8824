"""A chart on a canvas with the table behind it, which is edited."""

from collections.abc import Sequence

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, rounded, shows
from agentgym.envs.web.tasks.words import PLACES


def make(seed: int) -> Draft:
    """Four places and their numbers are drawn."""
    draw = generator("chart", seed)
    labels, values = draw.sample(PLACES, 4), draw.sample(range(10, 200), 4)
    listed = ", ".join(f"{label} {value}" for label, value in zip(labels, values, strict=True))
    prompt = (
        f"Build a page with a chart of visitors: {listed}. The chart is a canvas [data-testid=chart] with"
        " role=img, redrawn at every change; its aria-label is its text alternative: it names the kind of"
        " chart ('bar' or 'line') and lists every label with its value in the order shown, as in 'bar"
        " chart: Arlen 12, Oakham 30'. Beside it is a table with an element [data-testid=row] for each"
        " label: the label [data-testid=label], a number field [data-testid=value] and"
        " [data-testid=share], its share of the sum in whole percent, as in '25%'. [data-testid=sum]"
        " shows the sum, [data-testid=largest] the label of the largest value. A changed value (when the"
        " field is left) changes all of these; a negative one or none is not taken: [data-testid=problem]"
        " says so, and the old value comes back. [data-testid=new-label], [data-testid=new-value] and"
        " [data-testid=add] add a row; each row's [data-testid=delete] deletes it. [data-testid=bar] and"
        " [data-testid=line] choose the kind of chart, aria-pressed tells which (bar at first);"
        " [data-testid=sort] sorts rows by value, largest first."
    )
    items = [
        item("F1", "functionality", 2, "A changed value changes sum and shares"),
        item("F2", "functionality", 2, "The text alternative follows the values", "F1"),
        item("F3", "functionality", 2, "Rows are added and deleted"),
        item("F4", "functionality", 1, "The kind of chart is chosen, and told"),
        item(
            "F5",
            "functionality",
            1,
            "Sorting puts the largest first, in the table and in the text alternative",
        ),
        item("F6", "functionality", 1, "A negative value is not taken"),
        item("C1", "content", 1, "Labels, values, sum and largest are right at first", "F1"),
        item("V1", "visual", 1, "The chosen kind looks different", "F4"),
        item("V2", "visual", 1, "Table and buttons are readable", "F1"),
        item("L1", "layout", 1, "Chart and table fit a narrow screen", "F1"),
        item("L2", "layout", 1, "The chart has a size at which it can be read", "F1"),
        item("U1", "ux", 1, "The canvas has a role, and all fields have names", "F1"),
        item("T1", "technical", 1, "No errors and no requests", "F3"),
    ]

    def row(label: str) -> dict[str, object]:
        return at("row", has_text=label)

    def alternative(rows: Sequence[tuple[str, int]]) -> str:
        return ".*".join(rf"{label}\D{{0,4}}{value}\b" for label, value in rows)

    def share(value: int, of: int) -> dict[str, list[str]]:
        return {"in": [f"{number}%" for number in rounded(100 * value, of)]}

    rows = list(zip(labels, values, strict=True))
    total, raised = sum(values), 700 + draw.randrange(100)
    changed = [(label, raised if n == 1 else value) for n, (label, value) in enumerate(rows)]
    new_total = sum(value for _, value in changed)

    main = Script("main")
    main.expect("C1", "texts", "label", equals=labels)
    main.expect("C1", "text", "sum", **shows(total))
    main.expect("C1", "text", "largest", contains=max(rows, key=lambda pair: pair[1])[0])
    main.expect("F1", "text", at("share", within=row(labels[0])), **share(values[0], total))
    main.expect("F2", "attr", "chart", key="aria-label", regex=alternative(rows))
    main.expect("U1", "attr", "chart", key="role", equals="img")
    main.expect("U1", "named", "value")
    main.expect("U1", "named", "new-label")
    main.expect("U1", "named", "new-value")
    main.expect("L2", "min_size", "chart", min=100)
    main.fill(at("value", within=row(labels[1])), raised)
    main.expect("F1", "text", "sum", **shows(new_total))
    for number in (0, 1):
        main.expect(
            "F1", "text", at("share", within=row(labels[number])), **share(changed[number][1], new_total)
        )
    main.expect("F1", "text", "largest", contains=labels[1])
    main.expect("F2", "attr", "chart", key="aria-label", regex=alternative(changed))
    main.expect("F5", "texts", "label", equals=labels)
    main.click("sort")
    ranked = sorted(changed, key=lambda pair: -pair[1])
    main.expect("F5", "texts", "label", equals=[label for label, _ in ranked])
    main.expect("F5", "attr", "chart", key="aria-label", regex=alternative(ranked))
    main.readable("V2", "label", "sum", "sort", "add")
    main.fill(at("value", within=row(labels[2])), -4)
    main.expect("F6", "text", "problem")
    main.expect("F6", "value", at("value", within=row(labels[2])), equals=str(values[2]))
    main.expect("F6", "text", "sum", **shows(new_total))
    main.clean("T1")

    rows_script = Script("rows")
    rows_script.act("fill", "new-label", value="{{t1}}")
    rows_script.act("fill", "new-value", value="50")
    rows_script.click("add")
    rows_script.expect("F3", "texts", "label", equals=[*labels, "{{t1}}"])
    rows_script.expect("F3", "text", "sum", **shows(total + 50))
    rows_script.click(at("delete", within=row(labels[0])))
    rows_script.expect("F3", "texts", "label", equals=[*labels[1:], "{{t1}}"])
    rows_script.expect("F3", "text", "sum", **shows(total + 50 - values[0]))
    rows_script.expect(
        "F3", "attr", "chart", key="aria-label", regex=alternative([*rows[1:], ("{{t1}}", 50)])
    )

    kind = Script("kind", NARROW)
    kind.expect("F4", "checked", "bar", equals=True)
    kind.expect("F4", "attr", "chart", key="aria-label", regex="(?i)bar")
    kind.act("focus", "line")
    kind.press("Enter")
    kind.expect("F4", "checked", "line", equals=True)
    kind.expect("F4", "checked", "bar", equals=False)
    kind.expect("F4", "attr", "chart", key="aria-label", regex="(?i)line")
    kind.expect("V1", "differs", "line", key="[data-testid=bar]")
    kind.expect("L1", "inside_x", "chart")
    kind.expect("L1", "inside_x", at("delete", nth=0))
    kind.fits("L1")
    return Draft(
        prompt, items, [main, rows_script, kind], {"rows": [{"label": n, "value": v} for n, v in rows]}
    )
