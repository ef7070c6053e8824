"""An order in three steps, checked at each, with a summary and a draft that survives a reload."""

from agentgym.envs.web.tasks.script import (
    NARROW,
    Draft,
    Script,
    at,
    css,
    generator,
    item,
    mentions,
    money,
    shows,
)
from agentgym.envs.web.tasks.words import GOODS


def make(seed: int) -> Draft:
    """The product, its price and three ways of delivery with their prices are drawn."""
    draw = generator("wizard", seed)
    product, cents = draw.choice(GOODS), draw.randrange(505, 4000, 7)
    ways = list(
        zip(
            draw.sample(("Post", "Courier", "Pigeon", "Bicycle", "Barge"), 3),
            draw.sample(range(110, 990, 13), 3),
            strict=True,
        )
    )
    listed = ", ".join(f"{name} {money(price)}" for name, price in ways)
    prompt = (
        f"Build an order form in three steps for one product: {product}, {money(cents)} a piece. Step 1"
        " asks for [data-testid=name] and [data-testid=email]; step 2 for [data-testid=pieces] (a number,"
        " 1 to 9, at first 1) and the delivery, radio buttons [data-testid=delivery] with labels that"
        f" name way and price: {listed} (none chosen at first); step 3 is a summary,"
        " [data-testid=summary], with name, address, pieces, way and [data-testid=total] = pieces times"
        " price plus delivery, two decimals. Buttons [data-testid=next] and [data-testid=back] go on and"
        " back (hidden or disabled where there is no such step); only the present step's fields are"
        " shown. Next refuses an empty name, an address without @, pieces out of range, and no delivery,"
        " with a message in [data-testid=problem], which is otherwise empty or hidden. Entries are kept"
        " when going back, and step and entries survive a reload. [data-testid=step] elements, one for"
        " each step, show the way; the present one carries aria-current=step and looks different. In step"
        " 3 [data-testid=order] ends with [data-testid=thanks], which repeats name and total; a reload"
        " then starts anew. When the step changes, focus moves to the new step's heading or first field."
    )
    items = [
        item("F1", "functionality", 2, "Step 1 refuses an empty name and a wrong address, and then goes on"),
        item("F2", "functionality", 2, "Step 2 refuses wrong pieces and no delivery, and then goes on"),
        item("F3", "functionality", 2, "The summary shows all entries and the right total"),
        item("F4", "functionality", 2, "Going back keeps entries, and a change reaches the total"),
        item("F5", "functionality", 1, "Step and entries survive a reload"),
        item("F6", "functionality", 1, "Ordering ends with thanks, and a reload starts anew", "F3"),
        item("C1", "content", 1, "The ways of delivery are named with their prices", "F1"),
        item("V1", "visual", 1, "The present step looks different", "F1"),
        item("V2", "visual", 1, "Fields, buttons and summary are readable", "F1"),
        item("L1", "layout", 1, "Every step fits a narrow screen", "F1"),
        item("U1", "ux", 1, "aria-current follows, and focus moves into the new step", "F1"),
        item("T1", "technical", 1, "No errors and no requests", "F3"),
    ]

    def first_step(script: Script) -> None:
        script.act("fill", "name", value="{{t1}}")
        script.act("fill", "email", value="{{t2}}@example.org")
        script.click("next")

    def way(number: int) -> dict[str, object]:
        return {"label": ways[number][0]}

    main = Script("main")
    main.expect("F1", "visible", "name")
    main.expect("F1", "hidden", "pieces")
    main.expect("U1", "attr", {"css": "[aria-current=step]"}, key="data-testid", equals="step")
    main.expect("V1", "differs", at("step", nth=0), key="[data-testid=step]:not([aria-current])")
    main.click("next")
    main.expect("F1", "text", "problem")
    main.act("fill", "name", value="{{t1}}")
    main.act("fill", "email", value="{{t2}}")
    main.click("next")
    main.expect("F1", "visible", "email")
    main.act("fill", "email", value="{{t2}}@example.org")
    main.click("next")
    main.expect("F1", "visible", "pieces")
    main.expect("F1", "hidden", "name")
    main.expect("F1", "text_or_none", "problem", equals="")
    main.expect("U1", "attr", at("step", nth=1), key="aria-current", equals="step")
    for name, price in ways:
        main.expect("C1", "page_text", contains=name)
        main.expect("C1", "page_text", **mentions(money(price)))
    main.click("next")
    main.expect("F2", "text", "problem")
    main.expect("F2", "visible", "pieces")
    main.expect("F2", "hidden", "summary")
    main.act("check", way(0))
    main.act("fill", "pieces", value="12")
    main.click("next")
    main.expect("F2", "text", "problem")
    main.act("fill", "pieces", value="3")
    main.readable("V2", "next", "pieces")
    main.click("next")
    main.expect("F2", "visible", "summary")
    for text in ("{{t1}}", "{{t2}}@example.org", ways[0][0]):
        main.expect("F3", "text", "summary", contains=text)
    main.expect("F3", "text", "total", **shows(money(3 * cents + ways[0][1])))
    main.readable("V2", "summary")
    main.click("back")
    main.expect("F4", "value", "pieces", equals="3")
    main.act("check", way(2))
    main.act("fill", "pieces", value="2")
    main.click("next")
    main.expect("F4", "text", "total", **shows(money(2 * cents + ways[2][1])))
    main.click("order")
    main.expect("F6", "text", "thanks", contains="{{t1}}")
    main.expect("F6", "text", "thanks", **mentions(money(2 * cents + ways[2][1])))
    main.clean("T1")
    main.act("reload")
    main.expect("F6", "value", "name", equals="")

    keep = Script("reload", NARROW)
    keep.fits("L1")
    first_step(keep)
    keep.expect("L1", "visible", "pieces")
    keep.fits("L1")
    keep.act("check", way(1))
    keep.act("fill", "pieces", value="4")
    keep.click("next")
    keep.expect("L1", "visible", "summary")
    keep.fits("L1")
    keep.click("back")
    keep.expect("F5", "value", "pieces", equals="4")
    keep.act("reload")
    keep.expect("F5", "value", "pieces", equals="4")
    keep.click("next")
    keep.expect("F5", "text", "summary", contains="{{t1}}")
    keep.expect("F5", "text", "total", **shows(money(4 * cents + ways[1][1])))

    focus = Script("focus")
    first_step(focus)
    focus.expect("U1", "visible", "pieces")
    focus.expect(
        "U1", "focused_any", css("h1, h2, h3, h4, legend, [data-testid=pieces], [data-testid=delivery]")
    )
    data = {
        "product": product,
        "cents": cents,
        "ways": [{"name": name, "cents": price} for name, price in ways],
    }
    return Draft(prompt, items, [main, keep, focus], data)
