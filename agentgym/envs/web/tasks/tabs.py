"""Tabs as assistive technology expects them: one panel shown, arrow keys, an address for each."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import SENTENCES, TOPICS


def make(seed: int) -> Draft:
    """Four topics and their texts are drawn."""
    draw = generator("tabs", seed)
    topics, texts = draw.sample(TOPICS, 4), draw.sample(SENTENCES, 4)
    listed = " ".join(f"{topic}: {text!r}" for topic, text in zip(topics, texts, strict=True))
    prompt = (
        f"Build a page with four tabs, in this order, and the text of each panel: {listed} The tabs are"
        " buttons [data-testid=tab] with role=tab in an element with role=tablist and a name; the chosen"
        " one has aria-selected=true and the only tabindex of 0, the others -1. Only the chosen tab's"
        " panel, [data-testid=panel] with role=tabpanel, is shown; the first at first. ArrowRight and"
        " ArrowLeft choose and focus the next and the previous tab, around the ends too; Home and End the"
        " first and the last. Each panel also has a text field [data-testid=note] whose text is kept"
        " while other tabs are looked at, and [data-testid=length] with the number of characters in it."
        " The address' fragment is the chosen topic (#topic): a reload and the browser's Back bring that"
        " tab back. The chosen tab looks different from the others."
    )
    items = [
        item("F1", "functionality", 2, "A click shows that tab's panel and hides the others"),
        item("F2", "functionality", 2, "ArrowRight and ArrowLeft choose tabs, around the ends"),
        item("F3", "functionality", 1, "Home and End choose the first and the last"),
        item("F4", "functionality", 2, "Each panel's note is kept, with its own length"),
        item("F5", "functionality", 2, "The address names the tab, and a reload brings it back", "F1"),
        item("F6", "functionality", 1, "Back goes to the tab before", "F1"),
        item("C1", "content", 1, "Every panel shows its text", "F1"),
        item("V1", "visual", 1, "The chosen tab looks different", "F1"),
        item("V2", "visual", 1, "Tabs and panel are readable", "F1"),
        item("L1", "layout", 1, "The tabs fit a narrow screen", "F1"),
        item("U1", "ux", 1, "Roles, aria-selected and tabindex are right, before and after", "F1"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]
    tabs = [at("tab", has_text=topic) for topic in topics]

    mouse = Script("mouse")
    mouse.expect("U1", "attr", {"css": "[role=tablist]"}, key="role", equals="tablist")
    mouse.expect("U1", "attr", tabs[0], key="aria-selected", equals="true")
    mouse.expect("F1", "text", "panel", contains=texts[0])
    mouse.expect("C1", "text", "panel", contains=texts[0])
    for number in (2, 1, 3):
        mouse.click(tabs[number])
        mouse.expect("F1", "text", "panel", contains=texts[number])
        mouse.expect("F1", "count", "panel", equals=1)
        mouse.expect("C1", "text", "panel", contains=texts[number])
    mouse.expect("U1", "attr", tabs[3], key="aria-selected", equals="true")
    mouse.expect("U1", "attr", tabs[3], key="tabindex", equals="0")
    mouse.expect("U1", "attr", tabs[0], key="tabindex", equals="-1")
    mouse.expect("U1", "count", "tab", equals=4)
    mouse.expect("V1", "differs", tabs[3], key="[data-testid=tab][aria-selected=false]")
    mouse.readable("V2", "tab", "panel")
    mouse.expect("F5", "hash", contains=topics[3])
    mouse.act("reload")
    mouse.expect("F5", "text", "panel", contains=texts[3])
    mouse.clean("T1")

    back = Script("back")
    back.click(tabs[1])
    back.expect("F6", "text", "panel", contains=texts[1])
    back.click(tabs[2])
    back.expect("F6", "text", "panel", contains=texts[2])
    back.act("back")
    back.expect("F6", "text", "panel", contains=texts[1])
    back.expect("F6", "hash", contains=topics[1])

    keys = Script("keys", NARROW)
    keys.act("focus", tabs[0])
    keys.press("ArrowRight")
    keys.expect("F2", "focused", tabs[1])
    keys.expect("F2", "text", "panel", contains=texts[1])
    keys.press("ArrowLeft", "ArrowLeft")
    keys.expect("F2", "focused", tabs[3])
    keys.expect("F2", "text", "panel", contains=texts[3])
    keys.press("Home")
    keys.expect("F3", "text", "panel", contains=texts[0])
    keys.press("End")
    keys.expect("F3", "focused", tabs[3])
    keys.expect("F3", "text", "panel", contains=texts[3])
    keys.expect("L1", "inside_x", tabs[3])
    keys.fits("L1")

    notes = Script("notes")
    notes.expect("F4", "text", "length", **shows(0))
    notes.act("fill", "note", value="{{t1}}")
    notes.expect("F4", "text", "length", **shows(7))
    notes.click(tabs[1])
    notes.expect("F4", "value", "note", equals="")
    notes.act("fill", "note", value="{{t2}} {{t3}}")
    notes.click(tabs[0])
    notes.expect("F4", "value", "note", equals="{{t1}}")
    notes.expect("F4", "text", "length", **shows(7))
    data = {"tabs": [{"topic": topic, "text": text} for topic, text in zip(topics, texts, strict=True)]}
    return Draft(prompt, items, [mouse, back, keys, notes], data)
