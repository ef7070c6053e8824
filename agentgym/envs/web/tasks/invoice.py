"""An invoice: rows that are added, moved and checked, and sums with tax and discount."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, money, shows
from agentgym.envs.web.tasks.words import GOODS, PEOPLE


def make(seed: int) -> Draft:
    """Two first rows, the tax, and the discount are drawn; whole amounts keep all sums exact."""
    draw = generator("invoice", seed)
    names = draw.sample(GOODS, 2)
    quantities, prices = draw.sample(range(2, 9), 2), draw.sample(range(5, 60), 2)
    tax, rate, client = draw.choice((5, 10, 20)), draw.choice((10, 20)), draw.choice(PEOPLE)
    start = sum(q * p for q, p in zip(quantities, prices, strict=True))
    threshold = (start // 100 + 2) * 100
    rows = "; ".join(f"{n}, {q} pieces at {p}.00" for n, q, p in zip(names, quantities, prices, strict=True))
    prompt = (
        f"Build an invoice editor for {client}. It starts with the rows: {rows}. Each row is"
        " [data-testid=row] with the fields [data-testid=name], [data-testid=quantity] and"
        " [data-testid=price], the row's sum [data-testid=amount], and buttons [data-testid=up],"
        " [data-testid=down] (disabled at the ends) and [data-testid=remove]. [data-testid=add] adds an"
        " empty row with quantity 1 and price 0 at the end and focuses its name. Below:"
        f" [data-testid=subtotal]; [data-testid=discount], {rate}% of the subtotal when that is at least"
        f" {threshold}.00, else 0.00; [data-testid=tax], {tax}% of what is left; and [data-testid=total]."
        " All have two decimals, no thousands separators, and follow every keystroke. A quantity that is"
        " no whole number of at least 1, or a negative price or none, marks its field with"
        " aria-invalid=true and another background, counts as 0, and [data-testid=problem] says how many"
        " fields are wrong; it is empty or hidden when none is. [data-testid=currency], a select with"
        " EUR, USD and GBP (EUR first), puts its code behind the total. [data-testid=lock], a checkbox,"
        " disables all fields of the rows. The invoice survives a reload."
    )
    items = [
        item("F1", "functionality", 2, "Changed quantities and prices reach the row's sum and the total"),
        item("F2", "functionality", 2, "Rows are added and removed"),
        item("F3", "functionality", 1, "Rows move up and down"),
        item("F4", "functionality", 2, "The discount begins at its threshold, and tax is on what is left"),
        item("F5", "functionality", 2, "Wrong numbers are marked, told, and count as 0"),
        item("F6", "functionality", 1, "Locking disables the fields"),
        item("F7", "functionality", 2, "The invoice survives a reload"),
        item("C1", "content", 1, "The first rows and their sums are right", "F1"),
        item("C2", "content", 1, "The total shows the chosen currency"),
        item("V1", "visual", 1, "A wrong field differs in colour, background or left border", "F5"),
        item("V2", "visual", 1, "Fields and sums are readable", "F1"),
        item("L1", "layout", 1, "Rows fit a narrow screen", "F2"),
        item("U1", "ux", 1, "Fields have names, and a new row's name has the focus"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    def sums(script: Script, item: str, subtotal: int) -> None:
        cents = subtotal * 100
        less = cents * rate // 100 if subtotal >= threshold else 0
        taxed = (cents - less) * tax // 100
        for name, value in (
            ("subtotal", cents),
            ("discount", less),
            ("tax", taxed),
            ("total", cents - less + taxed),
        ):
            script.expect(item, "text", name, **shows(money(value)))

    def field(name: str, number: int) -> dict[str, object]:
        return at(name, within=at("row"), nth=number)

    main = Script("main")
    for number, name in enumerate(names):
        main.expect("C1", "value", field("name", number), equals=name)
        main.expect(
            "C1", "text", field("amount", number), **shows(money(100 * quantities[number] * prices[number]))
        )
    sums(main, "C1", start)
    sums(main, "F1", start)
    main.act("fill", field("quantity", 0), value=str(quantities[0] + 1))
    main.expect("F1", "text", field("amount", 0), **shows(money(100 * (quantities[0] + 1) * prices[0])))
    sums(main, "F1", start + prices[0])
    main.act("fill", field("quantity", 0), value=str(quantities[0]))
    main.readable("V2", "amount", "total", "name")
    main.clean("T1")
    sums(main, "F4", start)
    main.act("fill", field("price", 1), value=str(threshold))
    sums(main, "F4", quantities[0] * prices[0] + quantities[1] * threshold)
    main.expect("C2", "text", "total", contains="EUR")
    main.act("select", "currency", value="GBP")
    main.expect("C2", "text", "total", contains="GBP")

    rows_script = Script("rows", NARROW)
    rows_script.click("add")
    rows_script.expect("U1", "focused", field("name", 2))
    for name in ("name", "quantity", "price"):
        rows_script.expect("U1", "named", name)
    rows_script.act("fill", field("name", 2), value="{{t1}}")
    rows_script.act("fill", field("price", 2), value="4")
    rows_script.expect("F2", "count", "row", equals=3)
    sums(rows_script, "F2", start + 4)
    rows_script.fits("L1")
    rows_script.expect("L1", "inside_x", field("remove", 2))
    rows_script.expect("F3", "attr_bool", field("down", 2), key="disabled", equals=True)
    rows_script.click(field("up", 2))
    rows_script.expect("F3", "value", field("name", 1), equals="{{t1}}")
    rows_script.click(field("down", 0))
    rows_script.expect("F3", "value", field("name", 0), equals="{{t1}}")
    rows_script.act("reload")
    for number, name in enumerate(("{{t1}}", *names)):
        rows_script.expect("F7", "value", field("name", number), equals=name)
    sums(rows_script, "F7", start + 4)

    remove = Script("remove")
    remove.expect("F2", "count", "row", equals=2)
    remove.click(field("remove", 0))
    remove.expect("F2", "count", "row", equals=1)
    remove.expect("F2", "value", field("name", 0), equals=names[1])
    sums(remove, "F2", quantities[1] * prices[1])

    wrong = Script("wrong")
    wrong.expect("F5", "text_or_none", "problem", equals="")
    wrong.act("fill", field("quantity", 0), value="2.5")
    wrong.expect("F5", "attr", field("quantity", 0), key="aria-invalid", equals="true")
    wrong.expect("F5", "text", "problem", **shows(1))
    sums(wrong, "F5", quantities[1] * prices[1])
    wrong.act("fill", field("price", 1), value="-3")
    wrong.expect("F5", "text", "problem", **shows(2))
    sums(wrong, "F5", 0)
    # The second row's quantity is right.
    wrong.expect(
        "V1",
        "differs",
        css("[data-testid=quantity][aria-invalid=true]"),
        key="[data-testid=quantity]:not([aria-invalid=true])",
    )
    wrong.act("fill", field("price", 1), value=str(prices[1]))
    wrong.act("fill", field("quantity", 0), value="1")
    wrong.expect("F5", "text_or_none", "problem", equals="")
    wrong.expect("F6", "attr_bool", field("name", 0), key="disabled", equals=False)
    wrong.act("check", "lock")
    for name in ("name", "quantity", "price"):
        wrong.expect("F6", "attr_bool", field(name, 1), key="disabled", equals=True)
    data = {
        "client": client,
        "rows": [
            {"name": n, "quantity": str(q), "price": str(p)}
            for n, q, p in zip(names, quantities, prices, strict=True)
        ],
        "tax": tax,
        "rate": rate,
        "threshold": threshold,
    }
    return Draft(prompt, items, [main, rows_script, remove, wrong], data)
