"""A gallery of pictures with a viewer, favourites and captions."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import PLACES, TOPICS


def make(seed: int) -> Draft:
    """Six pictures: colour, shape and caption are drawn."""
    draw = generator("gallery", seed)
    colours = draw.sample(
        ("crimson", "teal", "goldenrod", "slateblue", "seagreen", "orchid", "sienna", "navy"), 6
    )
    captions = [
        f"{topic} in {place}"
        for topic, place in zip(draw.sample(TOPICS, 6), draw.sample(PLACES, 6), strict=True)
    ]
    shapes = [draw.choice(("circle", "square")) for _ in range(6)]
    listed = "; ".join(
        f"a {c} {s}, {caption!r}" for c, s, caption in zip(colours, shapes, captions, strict=True)
    )
    prompt = (
        "Build a gallery of six pictures, drawn as inline SVG (role=img, named by the caption), in this"
        f" order: {listed}. Each is [data-testid=thumb], a button with picture and caption. A click opens"
        " the viewer [data-testid=viewer] (a modal dialog with a name), which shows the picture large,"
        " its caption [data-testid=caption] and its place [data-testid=place], as in '2 / 6'. Buttons"
        " [data-testid=next] and [data-testid=previous] and the keys ArrowRight and ArrowLeft go on and"
        " back, around the ends too; Escape and [data-testid=close] close the viewer, and the focus"
        " returns to the picture's thumb that was opened. [data-testid=favourite] (aria-pressed) in the"
        " viewer marks the picture; marked thumbs have the attribute data-favourite and look different."
        " [data-testid=only] (aria-pressed) shows marked thumbs only, the viewer then goes through these"
        " alone; [data-testid=number] tells how many are marked, marks survive a reload,"
        " [data-testid=none] tells when there are none to show. [data-testid=edit], a field in the"
        " viewer, changes the caption, in the thumb too. Thumbs stand in rows of three on a wide screen,"
        " two on a narrow one; they are the only children of their container."
    )
    items = [
        item("F1", "functionality", 2, "A thumb opens the viewer with its picture's caption and place"),
        item("F2", "functionality", 2, "Next and previous go through all pictures, around the ends"),
        item("F3", "functionality", 1, "The arrow keys do the same"),
        item("F4", "functionality", 1, "Escape and close close the viewer", "F1"),
        item("F5", "functionality", 2, "Marked pictures can be shown alone, and survive a reload"),
        item("F6", "functionality", 1, "A changed caption shows in the viewer and in the thumb"),
        item("C1", "content", 1, "All pictures are there with their captions", "F1"),
        item("C2", "content", 1, "Without marks there is a note", "F5"),
        item("V1", "visual", 1, "Marked thumbs look different", "F5"),
        item("V2", "visual", 1, "Captions are readable, in the viewer too", "F1"),
        item("L1", "layout", 1, "Three in a row on a wide screen, two on a narrow one", "F1"),
        item("L2", "layout", 1, "The viewer fits a narrow screen", "F1"),
        item("U1", "ux", 1, "The viewer takes the focus, keeps it, and gives it back", "F1"),
        item("T1", "technical", 1, "No errors and no requests", "F2"),
    ]

    def thumb(number: int) -> dict[str, object]:
        return at("thumb", nth=number)

    view = Script("viewer")
    for caption in captions:
        view.expect("C1", "count", at("thumb", has_text=caption), equals=1)
    view.expect("C1", "count", {"css": "svg[role=img]", "within": at("thumb")}, equals=6)
    view.expect("L1", "side_by_side", {"css": "[data-testid=thumb]:nth-child(-n+3)"})
    view.expect("L1", "stacked", {"css": "[data-testid=thumb]:nth-child(3n+1)"})
    view.expect("F1", "hidden", "viewer")
    view.click(thumb(4))
    view.expect("F1", "visible", "viewer")
    view.expect("F1", "text", "caption", equals=captions[4])
    view.expect("F1", "text", "place", contains="5 / 6")
    view.expect("U1", "named_box", "viewer")
    view.readable("V2", "caption", "place")
    for place in (5, 0):
        view.click("next")
        view.expect("F2", "text", "caption", equals=captions[place])
    view.click("previous")
    view.expect("F2", "text", "caption", equals=captions[5])
    view.expect("F2", "text", "place", contains="6 / 6")
    view.press("ArrowRight", "ArrowRight")
    view.expect("F3", "text", "caption", equals=captions[1])
    view.press("ArrowLeft")
    view.expect("F3", "text", "caption", equals=captions[0])
    view.click("close")
    view.expect("F4", "hidden", "viewer")
    view.clean("T1")

    focus = Script("focus")
    focus.act("focus", thumb(2))
    focus.press("Enter")
    for _ in range(4):
        focus.press("Tab")
        focus.expect("U1", "focused_within_or_chrome", "viewer")
    focus.press("Escape")
    focus.expect("F4", "hidden", "viewer")
    focus.expect("U1", "focused", thumb(2))

    marks = Script("favourites")
    marks.expect("F5", "text", "number", **shows(0))
    marks.click("only")
    marks.expect("C2", "visible", "none")
    marks.expect("C2", "count", "thumb", equals=0)
    marks.click("only")
    for number in (1, 3):
        marks.click(thumb(number))
        marks.click("favourite")
        marks.expect("F5", "checked", "favourite", equals=True)
        marks.click("close")
    marks.expect("F5", "text", "number", **shows(2))
    marks.expect("V1", "differs", thumb(1), key="[data-testid=thumb]:not([data-favourite])")
    marks.act("reload")
    marks.expect("F5", "text", "number", **shows(2))
    marks.click("only")
    marks.expect("F5", "count", "thumb", equals=2)
    marks.click(at("thumb", has_text=captions[3]))
    marks.expect("F5", "text", "place", contains="2 / 2")
    marks.click("next")
    marks.expect("F5", "text", "caption", equals=captions[1])

    narrow = Script("narrow", NARROW)
    narrow.expect("L1", "side_by_side", {"css": "[data-testid=thumb]:nth-child(-n+2)"})
    narrow.expect("L1", "stacked", {"css": "[data-testid=thumb]:nth-child(2n+1)"})
    narrow.fits("L1")
    narrow.click(thumb(0))
    narrow.act("fill", "edit", value="{{t1}}")
    narrow.expect("F6", "text", "caption", equals="{{t1}}")
    narrow.expect("L2", "visible", "next")
    narrow.expect("L2", "inside_x", "viewer")
    narrow.fits("L2")
    narrow.click("close")
    narrow.expect("F6", "text", thumb(0), contains="{{t1}}")
    data = {
        "pictures": [
            {"colour": c, "shape": s, "caption": t} for c, s, t in zip(colours, shapes, captions, strict=True)
        ]
    }
    return Draft(prompt, items, [view, focus, marks, narrow], data)
