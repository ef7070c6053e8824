"""Search as you type: a combobox with highlighted suggestions that works by keyboard."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import GOODS, PLACES


def make(seed: int) -> Draft:
    """Twenty-four names are drawn, and the letters that are looked for."""
    draw = generator("search", seed)
    names = sorted(f"{place} {thing}" for place in draw.sample(PLACES, 6) for thing in draw.sample(GOODS, 4))
    most = draw.choice((4, 5, 6))
    target = draw.choice(names)
    word = target.split()[1]
    letters = word[:3]
    hits = [name for name in names if letters in name.lower()]
    prompt = (
        f"Build a product search. Products: {', '.join(names)}. Typing into [data-testid=search]"
        " (role=combobox) shows the matching products below it, each [data-testid=option], its name"
        " alone, with role=option inside an element with role=listbox: those that contain the text"
        f" anywhere, whatever the case, in the given order, at most {most}. The matching part is wrapped"
        " in a <mark>. [data-testid=hits] shows how many products match altogether. Empty text shows no"
        " options. Without a match [data-testid=none] says so and repeats the text. ArrowDown and ArrowUp"
        " move the marked option (aria-selected=true, at first none), focus stays in the field,"
        " aria-activedescendant names the option's id; Enter chooses it, a click too. The chosen product"
        " stands in [data-testid=chosen] and in the field, and the options close. Escape closes the"
        " options and keeps the text. aria-expanded says whether they are open. [data-testid=recent]"
        " elements list the chosen products, newest first, each once, and survive a reload."
    )
    items = [
        item("F1", "functionality", 2, "Typing shows the products that contain the text, whatever the case"),
        item(
            "F2",
            "functionality",
            1,
            "There are never more options than allowed, and the number of hits is told",
        ),
        item("F3", "functionality", 2, "A click chooses a product and closes the options"),
        item("F4", "functionality", 2, "Arrows and Enter choose a product"),
        item("F5", "functionality", 1, "Escape closes the options and keeps the text"),
        item(
            "F6",
            "functionality",
            2,
            "Chosen products are listed, newest first, each once, and survive a reload",
            "F3",
        ),
        item("C1", "content", 1, "A search without a match says so and repeats the text"),
        item("V1", "visual", 1, "The matching part is marked", "F1"),
        item("V2", "visual", 1, "Options and the field are readable", "F1"),
        item("L1", "layout", 1, "Field and options fit a narrow screen", "F1"),
        item("U1", "ux", 1, "Roles, aria-expanded and aria-activedescendant are right", "F4"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    mouse = Script("mouse")
    mouse.expect("F1", "count", "option", equals=0)
    mouse.act("type", "search", value=letters.upper())
    mouse.expect("F1", "texts", "option", equals=hits[:most])
    mouse.expect("V1", "text", {"css": "mark", "within": at("option")}, regex=f"(?i)^{letters}$")
    mouse.readable("V2", "option", "search")
    mouse.act("fill", "search", value="e")
    many = [name for name in names if "e" in name.lower()]
    mouse.expect("F2", "texts", "option", equals=many[:most])
    mouse.expect("F2", "text", "hits", **shows(len(many)))
    mouse.act("fill", "search", value=word)
    mouse.click(at("option", has_text=target))
    mouse.expect("F3", "text", "chosen", contains=target)
    mouse.expect("F3", "value", "search", equals=target)
    mouse.expect("F3", "count", "option", equals=0)
    other = next(name for name in names if word not in name)
    mouse.act("fill", "search", value=other)
    mouse.click(at("option", has_text=other))
    mouse.expect("F6", "texts", "recent", equals=[other, target])
    mouse.act("fill", "search", value=target)
    mouse.click(at("option", has_text=target))
    mouse.expect("F6", "texts", "recent", equals=[target, other])
    mouse.act("reload")
    mouse.expect("F6", "texts", "recent", equals=[target, other])
    mouse.clean("T1")

    keys = Script("keys", NARROW)
    keys.expect("U1", "named", "search")
    keys.expect("U1", "attr", "search", key="role", equals="combobox")
    keys.expect("U1", "attr", "search", key="aria-expanded", equals="false")
    keys.act("type", "search", value="e")
    keys.expect("U1", "attr", "search", key="aria-expanded", equals="true")
    keys.expect("U1", "attr", "option", key="role", equals="option")
    keys.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp")
    keys.expect("U1", "attr", "search", key="aria-activedescendant")
    keys.expect("F4", "text", {"css": "[data-testid=option][aria-selected=true]"}, equals=many[1])
    keys.expect("F4", "focused", "search")
    keys.expect("L1", "inside_x", at("option", nth=0))
    keys.fits("L1")
    keys.press("Enter")
    keys.expect("F4", "text", "chosen", contains=many[1])
    keys.act("fill", "search", value="{{t1}}")
    keys.expect("C1", "text", "none", contains="{{t1}}")
    keys.expect("C1", "count", "option", equals=0)
    keys.act("fill", "search", value=letters)
    keys.expect("F5", "count", "option", min=1)
    keys.press("Escape")
    keys.expect("F5", "count", "option", equals=0)
    keys.expect("F5", "value", "search", equals=letters)
    return Draft(prompt, items, [mouse, keys], {"names": names, "most": most})
