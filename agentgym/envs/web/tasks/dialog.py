"""An address book whose entries are made and changed in a modal dialog."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item
from agentgym.envs.web.tasks.words import PEOPLE, PLACES


def make(seed: int) -> Draft:
    """Two people and their towns are drawn."""
    draw = generator("dialog", seed)
    people = list(zip(draw.sample(PEOPLE, 2), draw.sample(PLACES, 2), strict=True))
    listed = " and ".join(f"{name} from {town}" for name, town in people)
    prompt = (
        f"Build an address book. At first it holds {listed}. Each entry is [data-testid=entry] and shows"
        " name and town, with buttons [data-testid=edit] and [data-testid=delete]. The button"
        " [data-testid=new] opens a modal dialog [data-testid=dialog] (role=dialog or a <dialog>, with an"
        " accessible name) with the fields [data-testid=name] and [data-testid=town] and buttons"
        " [data-testid=save] and [data-testid=cancel]; edit opens it with that entry's values. While it"
        " is open, focus starts in the name field and Tab does not reach the page behind it. Escape and"
        " cancel close it and change nothing; focus then returns to the button that opened it. Save, or"
        " Enter in a field, stores the entry and closes it; with an empty name it stays open and shows"
        " [data-testid=name-error]. Delete asks in a second dialog [data-testid=confirm] with the buttons"
        " [data-testid=yes] and [data-testid=no] and the entry's name in its text. Only one dialog is"
        " shown at a time, none at first."
    )
    items = [
        item("F1", "functionality", 2, "The dialog opens empty and saves a new entry"),
        item("F2", "functionality", 1, "Without a name it stays open and says why"),
        item("F3", "functionality", 2, "Edit opens with the entry's values and changes that entry"),
        item("F4", "functionality", 2, "Escape and cancel change nothing", "F1"),
        item("F5", "functionality", 2, "Delete asks first, with the name; no keeps, yes deletes"),
        item("C1", "content", 1, "The first entries are there, with name and town", "F1"),
        item("V1", "visual", 1, "Entries and dialog are readable", "F1"),
        item("L1", "layout", 1, "The open dialog fits a narrow screen", "F1"),
        item("U1", "ux", 2, "Focus starts in the dialog, stays in it, and returns", "F1"),
        item("U2", "ux", 1, "The dialog and its fields have names", "F1"),
        item("T1", "technical", 1, "No errors, requests or browser dialogs", "F5"),
    ]
    (first, town), (second, _) = people

    def entry(name: str) -> dict[str, object]:
        return at("entry", has_text=name)

    new = Script("new")
    for name, place in people:
        new.expect("C1", "text", entry(name), contains=place)
    new.expect("F1", "hidden", "dialog")
    new.click("new")
    new.expect("F1", "visible", "dialog")
    new.expect("F1", "value", "name", equals="")
    new.expect("U2", "named_box", "dialog")
    new.expect("U2", "named", "name")
    new.expect("U2", "named", "town")
    new.readable("V1", "entry", "save", "cancel")
    new.expect("F2", "hidden", "name-error")
    new.click("save")
    new.expect("F2", "visible", "name-error")
    new.expect("F2", "visible", "dialog")
    new.act("fill", "name", value="{{t1}}")
    new.act("fill", "town", value="{{t2}}")
    new.click("save")
    new.expect("F1", "hidden", "dialog")
    new.expect("F1", "text", entry("{{t1}}"), contains="{{t2}}")
    new.expect("F1", "count", "entry", equals=3)
    new.click("new")
    new.expect("F1", "value", "name", equals="")

    leave = Script("leave")
    leave.click("new")
    leave.expect("F4", "visible", "dialog")
    leave.act("fill", "name", value="{{t3}}")
    leave.press("Escape")
    leave.expect("F4", "hidden", "dialog")
    leave.click(at("edit", within=entry(first)))
    leave.expect("F4", "visible", "dialog")
    leave.act("fill", "name", value="{{t4}}")
    leave.click("cancel")
    leave.expect("F4", "hidden", "dialog")
    leave.expect("F4", "count", "entry", equals=2)
    leave.expect("F4", "count", entry(first), equals=1)

    edit = Script("edit")
    edit.click(at("edit", within=entry(first)))
    edit.expect("F3", "value", "name", equals=first)
    edit.expect("F3", "value", "town", equals=town)
    edit.enter("town", "{{t5}}")
    edit.expect("F3", "text", entry(first), contains="{{t5}}")
    edit.expect("F3", "count", "entry", equals=2)
    edit.expect("F3", "hidden", "dialog")

    delete = Script("delete")
    delete.expect("F5", "hidden", "confirm")
    delete.click(at("delete", within=entry(second)))
    delete.expect("F5", "text", "confirm", contains=second)
    delete.click("no")
    delete.expect("F5", "hidden", "confirm")
    delete.expect("F5", "count", "entry", equals=2)
    delete.click(at("delete", within=entry(second)))
    delete.click("yes")
    delete.expect("F5", "count", entry(second), equals=0)
    delete.expect("F5", "count", entry(first), equals=1)
    delete.expect("T1", "dialogs", equals=0)
    delete.clean("T1")

    focus = Script("focus", NARROW)
    focus.act("focus", "new")
    focus.press("Enter")
    focus.expect("U1", "focused", "name")
    focus.expect("L1", "visible", "save")
    focus.expect("L1", "inside_x", "dialog")
    focus.fits("L1")
    for _ in range(6):
        focus.press("Tab")
        focus.expect("U1", "focused_within_or_chrome", "dialog")
    focus.press("Escape")
    focus.expect("U1", "focused", "new")
    return Draft(
        prompt,
        items,
        [new, leave, edit, delete, focus],
        {"people": [{"name": n, "town": t} for n, t in people]},
    )
