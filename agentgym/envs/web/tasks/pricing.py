"""A page of plans: a menu that folds on narrow screens, monthly and yearly prices, a theme that is kept."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, shows
from agentgym.envs.web.tasks.words import PLACES


def make(seed: int) -> Draft:
    """Three plans, their prices and seats, and the yearly discount are drawn."""
    draw = generator("pricing", seed)
    names = draw.sample(PLACES, 3)
    prices = sorted(draw.sample(range(4, 40), 3))
    seats = [draw.choice((2, 3)), draw.choice((5, 6)), draw.choice((10, 12))]
    months = draw.choice((9, 10))
    sections = ("Plans", "Compare", "Contact")
    listed = ", ".join(f"{n} {p} (up to {s} seats)" for n, p, s in zip(names, prices, seats, strict=True))
    prompt = (
        f"Build a page of plans with the price of a seat for a month: {listed}. Each plan is"
        " [data-testid=plan] with its name, [data-testid=price] and a button [data-testid=choose]; they"
        " stand side by side on a wide screen and below each other on a narrow one. The switch"
        " [data-testid=yearly] (a checkbox, or role=switch) changes all prices to a seat's for a year,"
        f" which is {months} times the month's; [data-testid=period] in each plan says 'month' or 'year'."
        " [data-testid=seats], a number field (1 at first), and buttons [data-testid=more] and"
        " [data-testid=fewer] set the seats, at least 1; plans that allow fewer seats have a disabled"
        " choose button, the attribute data-full and look different. Choosing shows [data-testid=summary]"
        " with the plan's name and [data-testid=total], seats times price, which follows seats and"
        " period; if the chosen plan becomes too small, the summary disappears. The menu,"
        f" [data-testid=menu], has links to {', '.join(sections)}, sections of the page with these ids in"
        " lower case (#plans and so on). On a narrow screen (below 600 px) it is hidden, and the button"
        " [data-testid=menu-button], which is only there then, with aria-expanded, shows and hides it;"
        " Escape and choosing a link hide it. [data-testid=theme] (aria-pressed) switches to a dark"
        " theme, light text on a body whose background has no RGB value above 79, which survives a"
        " reload. Section Compare holds a table whose cells [data-testid=cell] give, for each plan in"
        " turn, its price for the seats and period chosen, or '-' where it allows too few."
    )
    items = [
        item("F1", "functionality", 2, "The switch changes all prices and periods, and back"),
        item("F2", "functionality", 2, "Choosing shows plan and total, which follow seats and period"),
        item("F3", "functionality", 2, "Plans that are too small cannot be chosen"),
        item("F4", "functionality", 1, "Seats never fall below 1"),
        item("F5", "functionality", 2, "The menu folds and unfolds on a narrow screen"),
        item("F6", "functionality", 1, "The dark theme is readable and survives a reload"),
        item("C1", "content", 1, "Plans and prices are right at first", "F1"),
        item("C2", "content", 1, "The table compares for the seats and period chosen", "F3"),
        item("V1", "visual", 1, "A plan that is too small looks different", "F3"),
        item("V2", "visual", 1, "Plans and menu are readable", "F1"),
        item("L1", "layout", 1, "Plans stand side by side when wide, and stack when narrow", "F1"),
        item("L2", "layout", 1, "The menu's button is only there on a narrow screen", "F5"),
        item("U1", "ux", 1, "aria-expanded follows; Escape and a link close the menu", "F5"),
        item("U2", "ux", 1, "The switch and the seats have names and work by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F2"),
    ]

    def plan(number: int) -> dict[str, object]:
        return at("plan", nth=number)

    def price(number: int) -> dict[str, object]:
        return at("price", within=plan(number))

    wide = Script("wide")
    for number, name in enumerate(names):
        wide.expect("C1", "text", plan(number), contains=name)
        wide.expect("C1", "text", price(number), **shows(prices[number]))
    wide.expect("L1", "side_by_side", "plan")
    wide.expect("L2", "hidden", "menu-button")
    wide.expect("L2", "visible", "menu")
    wide.expect("F1", "text", "period", contains="month")
    wide.act("check", "yearly")
    for number in range(3):
        wide.expect("F1", "text", price(number), **shows(months * prices[number]))
    wide.expect("F1", "text", "period", contains="year")
    wide.act("check", "yearly", value=False)
    wide.expect("F1", "text", price(1), **shows(prices[1]))
    wide.readable("V2", "plan", "price", css("[data-testid=menu] a"))
    wide.expect("F2", "hidden", "summary")
    wide.click(at("choose", within=plan(1)))
    wide.expect("F2", "text", "summary", contains=names[1])
    wide.expect("F2", "text", "total", **shows(prices[1]))
    wide.fill("seats", 4)
    wide.expect("F2", "text", "total", **shows(4 * prices[1]))
    wide.act("check", "yearly")
    wide.expect("F2", "text", "total", **shows(4 * months * prices[1]))
    wide.expect("F3", "attr_bool", at("choose", within=plan(0)), key="disabled", equals=True)
    wide.expect("F3", "attr_bool", at("choose", within=plan(1)), key="disabled", equals=False)
    wide.expect(
        "V1", "differs", css("[data-testid=plan][data-full]"), key="[data-testid=plan]:not([data-full])"
    )
    wide.expect("C2", "count", "cell", equals=3)
    wide.expect("C2", "text", at("cell", nth=0), equals="-")
    wide.expect("C2", "text", at("cell", nth=2), **shows(4 * months * prices[2]))
    wide.fill("seats", seats[1] + 1)
    wide.expect("F3", "hidden", "summary")
    wide.expect("F3", "attr_bool", at("choose", within=plan(1)), key="disabled", equals=True)
    wide.clean("T1")

    theme = Script("theme")
    theme.expect("F6", "checked", "theme", equals=False)
    theme.click("theme")
    theme.expect("F6", "checked", "theme", equals=True)
    theme.expect("F6", "style", css("body"), key="backgroundColor", regex=_DARK)
    theme.expect("F6", "contrast", css("h1"), min=4.5)
    theme.expect("F6", "contrast", "plan", min=4.5)
    theme.act("reload")
    theme.expect("F6", "style", css("body"), key="backgroundColor", regex=_DARK)

    seat = Script("seats")
    seat.expect("U2", "named", "seats")
    seat.expect("U2", "named", "yearly")
    seat.click("more")
    seat.click("more")
    seat.expect("F4", "value", "seats", equals="3")
    for _ in range(3):
        seat.click("fewer")  # the last one may find it disabled
    seat.expect("F4", "value", "seats", equals="1")
    seat.expect("U2", "text", "period", contains="month")
    seat.expect("U2", "text", "period", not_contains="year")
    seat.act("focus", "yearly")
    seat.press("Space")
    seat.expect("U2", "text", "period", contains="year")

    narrow = Script("narrow", NARROW)
    narrow.expect("L1", "stacked", "plan")
    narrow.fits("L1")
    narrow.expect("F5", "hidden", "menu")
    narrow.expect("U1", "attr", "menu-button", key="aria-expanded", equals="false")
    narrow.click("menu-button")
    narrow.expect("F5", "visible", css("[data-testid=menu] a"))
    narrow.expect("U1", "attr", "menu-button", key="aria-expanded", equals="true")
    narrow.click("menu-button")
    narrow.expect("F5", "hidden", "menu")
    narrow.click("menu-button")
    narrow.press("Escape")
    narrow.expect("U1", "hidden", "menu")
    narrow.click("menu-button")
    narrow.click(css("[data-testid=menu] a", has_text=sections[2]))
    narrow.expect("U1", "hidden", "menu")
    narrow.expect("U1", "hash", equals="contact")
    narrow.act("resize", w=900, h=800)
    narrow.expect("L2", "visible", "menu")
    narrow.expect("L1", "side_by_side", "plan")
    data = {
        "months": months,
        "plans": [{"name": n, "price": p, "seats": s} for n, p, s in zip(names, prices, seats, strict=True)],
    }
    return Draft(prompt, items, [wide, theme, seat, narrow], data)


_DARK = r"^rgb\((\d|[1-7]\d), (\d|[1-7]\d), (\d|[1-7]\d)\)$"
