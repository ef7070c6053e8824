"""A board of cards that are dragged, and moved by buttons, between columns."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import TOPICS


def make(seed: int) -> Draft:
    """Column names and the limit of the middle column are drawn."""
    draw = generator("kanban", seed)
    names = [
        draw.choice(each)
        for each in (("Ideas", "To do", "Backlog"), ("Doing", "Busy", "Now"), ("Done", "Shipped", "Ready"))
    ]
    first, limit = draw.choice(TOPICS), draw.choice((2, 3))
    prompt = (
        f"Build a board with the columns {', '.join(names)}, in this order; each is an element"
        " [data-testid=column] with its name as a heading and [data-testid=column-count], the number of"
        " its cards. A card is [data-testid=card] and shows its text; at first there is one card,"
        f" {first!r}, in {names[0]}. The field [data-testid=new-card] adds a card to {names[0]} on Enter"
        " and becomes empty; blank text adds none. Cards can be dragged from column to column; each also"
        " has buttons [data-testid=move-right] and [data-testid=move-left], disabled where there is no"
        f" such column, and [data-testid=delete]. {names[1]} holds at most {limit} cards: a further one"
        " stays where it was, and [data-testid=notice] says that the column is full. The board survives a"
        " reload (localStorage). Columns stand side by side on a wide screen and below each other on a"
        " narrow one."
    )
    items = [
        item("F1", "functionality", 2, "Enter adds a card to the first column and empties the field"),
        item("F2", "functionality", 1, "Blank text adds no card", "F1"),
        item("F3", "functionality", 3, "A card can be dragged to another column, and the counts follow"),
        item("F4", "functionality", 2, "The buttons move a card, and are disabled at the ends"),
        item("F5", "functionality", 2, "The full column refuses a further card with a notice"),
        item("F6", "functionality", 1, "Delete removes exactly that card"),
        item("F7", "functionality", 2, "The board survives a reload"),
        item("C1", "content", 1, "Columns have their names in order, and the first card is there", "F1"),
        item("V1", "visual", 1, "Cards and headings are readable", "F1"),
        item("L1", "layout", 1, "Columns stand side by side when there is room", "F1"),
        item("L2", "layout", 1, "Columns stack on a narrow screen, and a long text fits", "F1"),
        item("U1", "ux", 1, "The field is labelled, and a card moves by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]
    columns = [at("column", nth=number) for number in range(3)]

    def card(text: str, column: int) -> dict[str, object]:
        return at("card", has_text=text, within=columns[column])

    main = Script("main")
    for number, name in enumerate(names):
        main.expect("C1", "text", columns[number], contains=name)
    main.expect("C1", "count", card(first, 0), equals=1)
    main.expect("L1", "side_by_side", "column")
    main.expect("F1", "count", at("card", has_text="{{t1}}"), equals=0)
    main.enter("new-card", "{{t1}}")
    main.expect("F1", "count", card("{{t1}}", 0), equals=1)
    main.expect("F1", "value", "new-card", equals="")
    main.enter("new-card", "   ")
    main.expect("F2", "count", "card", equals=2)
    main.expect("F3", "text", at("column-count", within=columns[2]), **shows(0))
    main.act("drag", card("{{t1}}", 0), to=columns[2])
    main.expect("F3", "count", card("{{t1}}", 2), equals=1)
    main.expect("F3", "count", card("{{t1}}", 0), equals=0)
    main.expect("F3", "text", at("column-count", within=columns[2]), **shows(1))
    main.readable("V1", "card", at("column-count"))
    main.act("reload")
    main.expect("F7", "count", card("{{t1}}", 2), equals=1)
    main.expect("F7", "count", "card", equals=2)
    main.clean("T1")

    delete = Script("delete")
    delete.enter("new-card", "{{t2}}")
    delete.expect("F6", "count", "card", equals=2)
    delete.click(at("delete", within=card(first, 0)))
    delete.expect("F6", "count", at("card", has_text=first), equals=0)
    delete.expect("F6", "count", card("{{t2}}", 0), equals=1)

    buttons = Script("buttons")
    buttons.expect("F4", "attr_bool", at("move-left", within=card(first, 0)), key="disabled", equals=True)
    buttons.click(at("move-right", within=card(first, 0)))
    buttons.expect("F4", "count", card(first, 1), equals=1)
    buttons.click(at("move-right", within=card(first, 1)))
    buttons.expect("F4", "count", card(first, 2), equals=1)
    buttons.expect("F4", "attr_bool", at("move-right", within=card(first, 2)), key="disabled", equals=True)
    buttons.click(at("move-left", within=card(first, 2)))
    buttons.expect("F4", "count", card(first, 1), equals=1)

    full = Script("limit")
    for number in range(1, limit + 1):
        full.enter("new-card", f"{{{{t{number}}}}}")
    for number in range(1, limit + 1):
        full.click(at("move-right", within=card(f"{{{{t{number}}}}}", 0)))
    full.expect("F5", "count", at("card", within=columns[1]), equals=limit)
    full.expect("F5", "text_or_none", "notice", equals="")
    full.click(at("move-right", within=card(first, 0)))
    full.expect("F5", "text", "notice")
    full.expect("F5", "count", at("card", within=columns[1]), equals=limit)
    full.expect("F5", "count", card(first, 0), equals=1)

    narrow = Script("narrow", NARROW)
    narrow.enter("new-card", "{{t1}}{{t2}}{{t3}}{{t4}}{{t5}}{{t6}}{{t7}}")
    narrow.expect("L2", "count", "card", equals=2)
    narrow.expect("L2", "stacked", "column")
    narrow.fits("L2")

    keyboard = Script("keyboard")
    keyboard.expect("U1", "named", "new-card")
    keyboard.act("focus", "new-card")
    keyboard.act("tab_to", at("move-right", within=card(first, 0)))
    keyboard.press("Enter")
    keyboard.expect("U1", "count", card(first, 1), equals=1)
    return Draft(
        prompt,
        items,
        [main, delete, buttons, full, narrow, keyboard],
        {"columns": names, "first": first, "limit": limit},
    )
