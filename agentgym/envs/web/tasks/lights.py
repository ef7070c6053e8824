"""The game of lights: a press switches a field and its neighbours; all must go out."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, mentions, shows

SIZE = 4


def make(seed: int) -> Draft:
    """The lights that are on at first, by the presses that put them out, are drawn."""
    draw = generator("lights", seed)
    presses = sorted(draw.sample(range(SIZE * SIZE), 5))
    start = _after(frozenset(), presses)
    rows = [
        "".join("#" if row * SIZE + column in start else "." for column in range(SIZE)) for row in range(SIZE)
    ]
    prompt = (
        f"Build the game of lights on a board of {SIZE} rows of {SIZE} fields. At first these are on (#),"
        f" the others off (.), row by row: {' '.join(rows)}. Each field is a button [data-testid=field],"
        " in this order and as the only children of their container, with aria-pressed=true while it is"
        " on, and a name such as 'Row 2, column 3'. Pressing one switches it and the fields left, right,"
        " above and below it. On and off look different. [data-testid=on] shows how many are on,"
        " [data-testid=moves] how many presses were made. [data-testid=undo] takes back the last press,"
        " and its move; it is disabled when there is none. When all are off, [data-testid=won] appears"
        " with the number of moves, and fields do nothing until [data-testid=restart] brings back the"
        " first lights and 0 moves. [data-testid=best] shows the fewest moves of a won game, '-' before"
        " there is one. Game and best survive a reload. Arrow keys move the focus between fields, and"
        " stop at the edges. The fields are squares of at least 44 px, in rows, on every screen."
    )
    items = [
        item("F1", "functionality", 2, "A press in the middle switches five fields"),
        item("F2", "functionality", 2, "Presses at edges and corners switch only what is there"),
        item("F3", "functionality", 1, "Lights and moves are counted", "F1"),
        item("F4", "functionality", 2, "Undo takes back presses, one by one"),
        item("F5", "functionality", 2, "The game is won when all are off, and then stands still"),
        item("F6", "functionality", 1, "Restart brings back the first lights"),
        item("F7", "functionality", 2, "The game survives a reload, and so does the best result"),
        item("C1", "content", 1, "The right lights are on at first", "F1"),
        item("V1", "visual", 1, "On and off look different", "F1"),
        item("L1", "layout", 1, "Fields stand in rows of four, big enough, on a narrow screen", "F1"),
        item("U1", "ux", 1, "Fields have names, and arrow keys and Enter play"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    def lit(script: Script, item: str, on: frozenset[int]) -> None:
        script.expect(item, "text", "on", **shows(len(on)))
        for field in range(SIZE * SIZE):
            script.expect(item, "checked", at("field", nth=field), equals=field in on)

    middle, corner, edge = 5, 15, 4
    press = Script("press")
    lit(press, "C1", start)
    press.click(at("field", nth=middle))
    lit(press, "F1", _after(start, [middle]))
    press.click(at("field", nth=corner))
    press.click(at("field", nth=edge))
    lit(press, "F2", _after(start, [middle, corner, edge]))
    press.expect("F3", "text", "moves", **shows(3))
    press.expect("F3", "text", "on", **shows(len(_after(start, [middle, corner, edge]))))
    press.expect(
        "V1",
        "differs",
        css("[data-testid=field][aria-pressed=true]"),
        key="[data-testid=field][aria-pressed=false]",
    )
    press.click("undo")
    press.click("undo")
    lit(press, "F4", _after(start, [middle]))
    press.expect("F4", "text", "moves", **shows(1))
    press.click("undo")
    press.expect("F4", "attr_bool", "undo", key="disabled", equals=True)
    press.click(at("field", nth=corner))
    press.expect("F6", "text", "moves", **shows(1))
    press.click("restart")
    press.expect("F6", "text", "moves", **shows(0))
    lit(press, "F6", start)
    press.click(at("field", nth=corner))
    press.act("reload")
    press.expect("F7", "text", "moves", **shows(1))
    press.expect("F7", "text", "on", **shows(len(_after(start, [corner]))))
    press.clean("T1")

    win = Script("win", NARROW)
    win.expect("F5", "hidden", "won")
    win.expect("F7", "text", "best", contains="-")
    win.expect("L1", "min_size", "field", min=44)
    win.expect("L1", "side_by_side", css(f"[data-testid=field]:nth-child(-n+{SIZE})"))
    win.expect("L1", "stacked", css(f"[data-testid=field]:nth-child({SIZE}n+1)"))
    win.fits("L1")
    for field in presses:
        win.click(at("field", nth=field))
    win.expect("F5", "text", "on", **shows(0))
    win.expect("F5", "text", "won", **mentions(len(presses)))
    win.click(at("field", nth=0))
    win.expect("F5", "text", "on", **shows(0))
    win.act("reload")
    win.expect("F7", "text", "best", **shows(len(presses)))

    keys = Script("keys")
    keys.expect("U1", "named", "field")
    keys.act("focus", at("field", nth=0))
    keys.press("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown")
    keys.expect("U1", "focused", at("field", nth=5))
    keys.press("Enter")
    keys.expect("U1", "text", "moves", **shows(1))
    keys.expect("U1", "focused", at("field", nth=5))
    return Draft(prompt, items, [press, win, keys], {"size": SIZE, "start": sorted(start)})


def _after(on: frozenset[int], presses: list[int]) -> frozenset[int]:
    """The lights that are on after some presses."""
    for field in presses:
        row, column = divmod(field, SIZE)
        near = ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        on = on ^ {r * SIZE + c for r, c in near if 0 <= r < SIZE and 0 <= c < SIZE}
    return on
