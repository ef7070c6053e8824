"""A converter between invented units, both ways, with a table and a history."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item


def make(seed: int) -> Draft:
    """Three units and what they are worth are drawn."""
    draw = generator("converter", seed)
    names = draw.sample(("zib", "quon", "lorp", "mave", "trell", "yard-o", "ploon", "gerb"), 3)
    factors = [1, draw.choice((4, 5, 8)), draw.choice((20, 25, 40))]
    prompt = (
        f"Build a converter for lengths. One {names[1]} is {factors[1]} {names[0]}, one {names[2]} is"
        f" {factors[2]} {names[0]}. Selects [data-testid=from] and [data-testid=to] offer the three units,"
        f" {', '.join(names)}, at first {names[0]} and {names[1]}. [data-testid=left] and"
        " [data-testid=right] are text fields: typing a number into one shows the converted one in the"
        " other at once, from left to right and from right to left, rounded to at most 4 decimals without"
        " trailing zeros. A decimal comma is taken as a point. Changing a unit converts the left number"
        " anew. What is no number shows a message in [data-testid=problem] and empties the other field;"
        " an empty field empties the other without a message. [data-testid=swap] exchanges the units, the"
        f" left number staying. [data-testid=sentence] says it in words, as in '3 {names[1]} ="
        f" {3 * factors[1]} {names[0]}' (empty or hidden without a number). [data-testid=keep] adds that"
        " sentence on top of a list of elements [data-testid=kept] with the sentence alone, which"
        " survives a reload; the same sentence is never kept twice. A table with elements"
        " [data-testid=table-row] shows 1, 5 and 10 of the left unit and what they are in the right one,"
        " each in a cell of its own (td)."
    )
    items = [
        item("F1", "functionality", 2, "The left number is converted at once"),
        item("F2", "functionality", 2, "The right number is converted back"),
        item("F3", "functionality", 2, "Changing and swapping units converts anew"),
        item("F4", "functionality", 1, "What is no number is told, and the other field emptied", "F1"),
        item("F5", "functionality", 1, "A decimal comma is a point, and results are rounded"),
        item("F6", "functionality", 2, "Sentences are kept once each, newest first, and survive a reload"),
        item("C1", "content", 1, "The table follows the units", "F3"),
        item("C2", "content", 1, "The sentence says it in words", "F1"),
        item("V1", "visual", 1, "Fields, sentence and table are readable", "F1"),
        item("L1", "layout", 1, "Everything fits a narrow screen", "F6"),
        item("U1", "ux", 1, "Fields and selects have names, and swapping works by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    def plain(number: float) -> str:
        return f"{round(number, 4):.4f}".rstrip("0").rstrip(".")

    amount = draw.randrange(3, 90) * factors[1]
    first = f"{amount} {names[0]} = {amount // factors[1]} {names[1]}"
    main = Script("main")
    main.expect("F1", "value", "right", equals="")
    main.act("fill", "left", value=str(amount))
    main.expect("F1", "value", "right", equals=str(amount // factors[1]))
    main.expect("C2", "text", "sentence", equals=first)
    main.act("fill", "right", value="7")
    main.expect("F2", "value", "left", equals=str(7 * factors[1]))
    main.act("fill", "left", value="{{t1}}")
    main.expect("F4", "text", "problem")
    main.expect("F4", "value", "right", equals="")
    main.act("fill", "left", value="")
    main.expect("F4", "text_or_none", "problem", equals="")
    main.act("fill", "left", value="2,5")
    main.expect("F5", "value", "right", equals=plain(2.5 / factors[1]))
    main.act("fill", "left", value="0.3333")
    main.expect("F5", "value", "right", equals=plain(0.3333 / factors[1]))
    main.readable("V1", "sentence", "left", css("[data-testid=table-row] td"))
    main.clean("T1")

    units = Script("units")
    units.act("fill", "left", value="10")
    units.expect(
        "C1", "texts", css("td", within=at("table-row", nth=2)), equals=["10", plain(10 / factors[1])]
    )
    units.act("select", "to", value=names[2])
    units.expect("F3", "value", "right", equals=plain(10 / factors[2]))
    units.click("swap")
    units.expect("F3", "value", "left", equals="10")
    units.expect("F3", "value", "right", equals=str(10 * factors[2]))
    units.expect("C2", "text", "sentence", equals=f"10 {names[2]} = {10 * factors[2]} {names[0]}")
    units.expect("C1", "count", "table-row", equals=3)
    for number, n in enumerate((1, 5, 10)):
        units.expect(
            "C1", "texts", css("td", within=at("table-row", nth=number)), equals=[str(n), str(n * factors[2])]
        )

    keep = Script("keep", NARROW)
    keep.act("fill", "left", value=str(amount))
    keep.click("keep")
    keep.expect("F6", "texts", "kept", equals=[first])
    keep.act("fill", "left", value=str(2 * amount))
    second = f"{2 * amount} {names[0]} = {2 * amount // factors[1]} {names[1]}"
    keep.click("keep")
    keep.click("keep")
    keep.expect("F6", "texts", "kept", equals=[second, first])
    keep.fits("L1")
    keep.expect("L1", "inside_x", "right")
    keep.act("reload")
    keep.expect("F6", "texts", "kept", equals=[second, first])

    keys = Script("keys")
    for field in ("left", "right", "from", "to"):
        keys.expect("U1", "named", field)
    keys.act("fill", "left", value=str(factors[1]))
    keys.expect("U1", "value", "right", equals="1")
    keys.act("tab_to", "swap")
    keys.press("Enter")
    keys.expect("U1", "value", "right", equals=str(factors[1] ** 2))
    units_data = [{"name": name, "factor": factor} for name, factor in zip(names, factors, strict=True)]
    return Draft(prompt, items, [main, units, keep, keys], {"units": units_data})
