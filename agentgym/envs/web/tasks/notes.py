"""A notebook that saves by itself, is searched, and takes back a deletion."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import SENTENCES, TOPICS


def make(seed: int) -> Draft:
    """Two first notes are drawn."""
    draw = generator("notes", seed)
    titles, bodies = draw.sample(TOPICS, 2), draw.sample(SENTENCES, 2)
    listed = " and ".join(
        f"{title!r} with the text {body!r}" for title, body in zip(titles, bodies, strict=True)
    )
    prompt = (
        f"Build a notebook. At first it holds two notes, in this order: {listed}. The list shows a button"
        " [data-testid=note] for each with its title alone; the first is open. The open note's button carries"
        " aria-current=true and looks different; its title and text stand in the fields"
        " [data-testid=title] and [data-testid=body] (a textarea). What is typed is stored at once"
        " (localStorage), with no button, and shows in the list; a reload keeps notes and which is open."
        " [data-testid=words] shows how many words the text has. [data-testid=new] puts an empty note at"
        " the top of the list, opens it and focuses its title; in the list it is called 'Untitled' until"
        " it has a title. [data-testid=delete] deletes the open note and opens the first that is left;"
        " [data-testid=undo], shown only after a deletion, brings it back to its place and opens it."
        " [data-testid=search] leaves in the list only notes with the text in title or body, whatever the"
        " case. [data-testid=pin] (aria-pressed) pins the open note: pinned notes stand before the"
        " others. On a wide screen the list, [data-testid=list], stands left of the open note,"
        " [data-testid=editor], on a narrow one above it."
    )
    items = [
        item("F1", "functionality", 2, "A new note is opened, edited and listed"),
        item("F2", "functionality", 2, "Choosing a note shows its title and text"),
        item("F3", "functionality", 2, "Notes and the choice survive a reload", "F1"),
        item("F4", "functionality", 2, "A note is deleted, and brought back to its place"),
        item("F5", "functionality", 2, "The search looks at titles and texts"),
        item("F6", "functionality", 1, "A pinned note stands first"),
        item("F7", "functionality", 1, "Words are counted"),
        item("C1", "content", 1, "The first notes are there", "F2"),
        item("V1", "visual", 1, "The open note looks different in the list", "F2"),
        item("V2", "visual", 1, "Fields and list are readable", "F2"),
        item("L1", "layout", 1, "List and note stand side by side on a wide screen", "F2"),
        item("L2", "layout", 1, "They stack on a narrow one, and a long title fits", "F1"),
        item("U1", "ux", 1, "A new note's title has the focus, and fields have names"),
        item("T1", "technical", 1, "No errors, requests or browser dialogs", "F4"),
    ]

    def note(title: str) -> dict[str, object]:
        return at("note", has_text=title)

    pair = {"css": "[data-testid=list], [data-testid=editor]"}
    main = Script("main")
    main.expect("C1", "texts", "note", equals=titles)
    main.expect("C1", "value", "body", equals=bodies[0])
    main.expect("L1", "side_by_side", pair)
    main.expect("F2", "attr", note(titles[0]), key="aria-current", equals="true")
    main.click(note(titles[1]))
    main.expect("F2", "value", "title", equals=titles[1])
    main.expect("F2", "value", "body", equals=bodies[1])
    main.expect("F2", "attr", note(titles[1]), key="aria-current", equals="true")
    main.expect("V1", "differs", note(titles[1]), key="[data-testid=note]:not([aria-current])")
    main.readable("V2", "note", "title", "body")
    main.click("new")
    main.expect("U1", "focused", "title")
    main.expect("U1", "named", "title")
    main.expect("U1", "named", "body")
    main.expect("U1", "named", "search")
    main.expect("F1", "texts", "note", equals=["Untitled", *titles])
    main.act("fill", "title", value="{{t1}}")
    main.act("fill", "body", value="{{t2}} {{t3}}  {{t4}}")
    main.expect("F1", "texts", "note", equals=["{{t1}}", *titles])
    main.expect("F7", "text", "words", **shows(3))
    main.act("fill", "body", value="{{t2}}")
    main.expect("F7", "text", "words", **shows(1))
    main.act("reload")
    main.expect("F3", "texts", "note", equals=["{{t1}}", *titles])
    main.expect("F3", "value", "title", equals="{{t1}}")
    main.expect("F3", "value", "body", equals="{{t2}}")

    delete = Script("delete")
    delete.click(note(titles[1]))
    delete.expect("F4", "hidden", "undo")
    delete.click("delete")
    delete.expect("F4", "texts", "note", equals=titles[:1])
    delete.expect("F4", "value", "body", equals=bodies[0])
    delete.click("undo")
    delete.expect("F4", "texts", "note", equals=titles)
    delete.expect("F4", "value", "body", equals=bodies[1])
    delete.expect("T1", "dialogs", equals=0)
    delete.clean("T1")

    search = Script("search")
    search.act("fill", "search", value=bodies[1][:24].upper())
    search.expect("F5", "texts", "note", equals=titles[1:])
    search.act("fill", "search", value=titles[0])
    search.expect("F5", "texts", "note", equals=titles[:1])
    search.act("fill", "search", value="{{t5}}")
    search.expect("F5", "count", "note", equals=0)
    search.act("fill", "search", value="")
    search.expect("F5", "texts", "note", equals=titles)
    search.click(note(titles[1]))
    search.click("pin")
    search.expect("F6", "texts", "note", equals=titles[::-1])
    search.expect("F6", "checked", "pin", equals=True)
    search.click("pin")
    search.expect("F6", "texts", "note", equals=titles)

    narrow = Script("narrow", NARROW)
    narrow.click("new")
    narrow.act("fill", "title", value="{{t1}}{{t2}}{{t3}}{{t4}}{{t5}}{{t6}}{{t7}}")
    narrow.expect("L2", "count", "note", equals=3)
    narrow.expect("L2", "stacked", pair)
    narrow.fits("L2")
    data = {"notes": [{"title": title, "body": body} for title, body in zip(titles, bodies, strict=True)]}
    return Draft(prompt, items, [main, delete, search, narrow], data)
