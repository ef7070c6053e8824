"""A tree of folders and files, walked by keyboard."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, shows
from agentgym.envs.web.tasks.words import GOODS, TOPICS


def make(seed: int) -> Draft:
    """Two folders with two files each, one of them with a folder inside, are drawn."""
    draw = generator("tree", seed)
    outer, other, inner = draw.sample(TOPICS, 3)
    files = [f"{name}.txt" for name in draw.sample(GOODS, 5)]
    tree = {
        outer: {inner: {files[0]: None}, files[1]: None, files[2]: None},
        other: {files[3]: None, files[4]: None},
    }
    prompt = (
        f"Build a file tree. Folder '{outer}' holds the folder '{inner}' (which holds {files[0]}),"
        f" {files[1]} and {files[2]}; folder '{other}' holds {files[3]} and {files[4]}; in this order. It"
        " is an element [data-testid=tree] with role=tree and a name; every folder and file is an element"
        " [data-testid=node] with role=treeitem, its own name in [data-testid=label], and aria-level;"
        " folders carry aria-expanded, false at first, and what they hold is only shown while they are"
        " expanded. Exactly one node has tabindex 0, the others -1. A click on a label selects its node,"
        " and expands or collapses a folder. ArrowDown and ArrowUp move the focus over shown nodes;"
        " ArrowRight expands a folder, or goes to its first child when it is expanded; ArrowLeft"
        " collapses it, or goes from a node to its folder; Home and End go to the first and last shown"
        " node; Enter selects the focused node. The selected node carries aria-selected=true, looks"
        " different, and [data-testid=path] shows its path, as in 'a/b/c.txt'. [data-testid=name] with"
        " the button [data-testid=add] puts a file into the selected folder (or the folder of the"
        " selected file), last, and expands the folder; with nothing selected, at the end of the top"
        " level. A name that is taken there is refused in [data-testid=problem]. [data-testid=remove]"
        " removes the selected node. [data-testid=files] shows how many files there are in all. The tree"
        " survives a reload."
    )
    items = [
        item("F1", "functionality", 2, "A click expands and collapses folders"),
        item("F2", "functionality", 2, "A click selects a node and shows its path"),
        item("F3", "functionality", 2, "Arrow keys walk, expand and collapse"),
        item("F4", "functionality", 1, "Home, End and Enter work"),
        item("F5", "functionality", 2, "A file is added to the selected folder, and a taken name refused"),
        item("F6", "functionality", 1, "Removing takes out the node and corrects the number of files"),
        item("F7", "functionality", 1, "The tree survives a reload", "F5"),
        item("C1", "content", 1, "Folders and files are where they belong", "F1"),
        item("V1", "visual", 1, "The selected node looks different", "F2"),
        item("V2", "visual", 1, "Labels are readable", "F1"),
        item("L1", "layout", 1, "The expanded tree with a long name fits a narrow screen", "F5"),
        item("U1", "ux", 1, "Roles, levels, aria-expanded and tabindex are right", "F1"),
        item("T1", "technical", 1, "No errors and no requests", "F5"),
    ]

    def label(name: str) -> dict[str, object]:
        return at("label", has_text=name)

    def node(name: str) -> dict[str, object]:
        return at("node", has_text=name)

    def shown(script: Script, item: str, *names: str) -> None:
        script.expect(item, "texts", "label", equals=list(names))

    focused = css("[data-testid=node][tabindex='0']")
    mouse = Script("mouse")
    mouse.expect("U1", "attr", "tree", key="role", equals="tree")
    mouse.expect("U1", "attr", node(outer), key="aria-expanded", equals="false")
    shown(mouse, "F1", outer, other)
    mouse.click(label(outer))
    shown(mouse, "F1", outer, inner, files[1], files[2], other)
    shown(mouse, "C1", outer, inner, files[1], files[2], other)
    mouse.expect("U1", "attr", node(outer), key="aria-expanded", equals="true")
    # A folder's node may or may not contain its children's: levels are asked of the files.
    mouse.expect("U1", "count", css("[data-testid=node][aria-level='2']", has_text=files[1]), equals=1)
    mouse.expect("U1", "count", css("[data-testid=node][aria-level='1']"), equals=2)
    mouse.expect("F2", "text", "path", equals=outer)
    mouse.click(label(inner))
    shown(mouse, "C1", outer, inner, files[0], files[1], files[2], other)
    mouse.click(label(files[0]))
    mouse.expect("F2", "text", "path", equals=f"{outer}/{inner}/{files[0]}")
    mouse.expect(
        "V1",
        "differs",
        css("[data-testid=node][aria-selected=true]"),
        key="[data-testid=node][aria-level='1']:not([aria-selected=true])",
    )
    mouse.readable("V2", "label", "path")
    mouse.expect("U1", "count_all", focused, equals=1)
    mouse.click(label(outer))
    shown(mouse, "F1", outer, other)

    keys = Script("keys")
    keys.act("tab_to", focused)
    keys.press("ArrowRight")
    shown(keys, "F3", outer, inner, files[1], files[2], other)
    keys.press("ArrowRight", "ArrowDown", "Enter")
    keys.expect("F4", "text", "path", equals=f"{outer}/{files[1]}")
    keys.press("ArrowLeft", "ArrowLeft")
    shown(keys, "F3", outer, other)
    keys.press("ArrowDown", "ArrowRight")
    shown(keys, "F3", outer, other, files[3], files[4])
    keys.press("End", "Enter")
    keys.expect("F4", "text", "path", equals=f"{other}/{files[4]}")
    keys.press("ArrowUp", "Enter")
    keys.expect("F3", "text", "path", equals=f"{other}/{files[3]}")
    keys.press("Home", "Enter")
    keys.expect("F4", "text", "path", equals=outer)

    edit = Script("edit", NARROW)
    edit.expect("F6", "text", "files", **shows(5))
    edit.click(label(other))
    edit.act("fill", "name", value="{{t1}}.txt")
    edit.click("add")
    shown(edit, "F5", outer, other, files[3], files[4], "{{t1}}.txt")
    edit.expect("F5", "text_or_none", "problem", equals="")
    edit.act("fill", "name", value=files[3])
    edit.click("add")
    edit.expect("F5", "text", "problem")
    shown(edit, "F5", outer, other, files[3], files[4], "{{t1}}.txt")
    edit.expect("F6", "text", "files", **shows(6))
    edit.click(label(files[3]))
    edit.click("remove")
    shown(edit, "F6", outer, other, files[4], "{{t1}}.txt")
    edit.expect("F6", "text", "files", **shows(5))
    edit.click(label(files[4]))
    edit.act("fill", "name", value="{{t2}}{{t3}}{{t4}}{{t5}}{{t6}}{{t7}}.txt")
    edit.click("add")
    edit.expect("L1", "count", label("{{t2}}"), equals=1)
    edit.fits("L1")
    edit.clean("T1")
    edit.act("reload")
    edit.expect("F7", "count", label(other), equals=1)
    edit.expect("F7", "text", "files", **shows(6))
    return Draft(prompt, items, [mouse, keys, edit], {"tree": tree})
