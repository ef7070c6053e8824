"""A month's calendar with appointments, by mouse and arrow keys."""

import calendar
import datetime

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, shows


def make(seed: int) -> Draft:
    """The first month shown is drawn: not January or December, so that a year is turned on purpose."""
    draw = generator("calendar", seed)
    year, month = draw.randrange(2021, 2034), draw.randrange(3, 11)
    day = draw.randrange(9, 20)
    first = datetime.date(year, month, day)
    title = f"{calendar.month_name[month]} {year}"
    prompt = (
        f"Build a calendar that opens at {title}, whatever today's date is. [data-testid=title] shows the"
        " month and year like this. The days of the month are buttons [data-testid=day] with the"
        " attribute data-date (YYYY-MM-DD), in weeks that start on Monday; [data-testid=weekday] elements"
        " head the seven columns, and every day stands in its weekday's column. Only the month's own days"
        " are shown. [data-testid=next] and [data-testid=previous] turn the months, years too. A click on"
        " a day selects it: aria-pressed=true, a different look, and [data-testid=selected] shows its"
        " date as YYYY-MM-DD; none is selected at first. [data-testid=text], a field, and"
        " [data-testid=add] (or Enter in the field) add an appointment to the selected day; without a"
        " selected day or text, [data-testid=problem] says why not. Appointments of the selected day are"
        " listed as [data-testid=entry] elements with a button [data-testid=delete], in the order in"
        " which they were added. A day with appointments has the attribute data-busy and shows"
        " [data-testid=mark], how many, inside it. [data-testid=all] shows the number of appointments of"
        " the month shown. They survive a reload. ArrowLeft, ArrowRight, ArrowUp and ArrowDown on a day"
        " move the focus by a day or a week, into the next or previous month too."
    )
    items = [
        item("F1", "functionality", 2, "Months turn, over the end of the year too"),
        item("F2", "functionality", 2, "A click selects a day and shows its date"),
        item("F3", "functionality", 2, "Appointments are added to the selected day and listed"),
        item("F4", "functionality", 1, "Days with appointments are marked with their number", "F3"),
        item("F5", "functionality", 1, "An appointment is deleted", "F3"),
        item(
            "F6",
            "functionality",
            2,
            "Appointments stay with their days, through other months and a reload",
            "F3",
        ),
        item("F7", "functionality", 2, "Arrow keys move the focus, into the next month too"),
        item("C1", "content", 1, "Months have all their days, beginning in the right column", "F1"),
        item("C2", "content", 1, "Adding without a day or text is refused with a message", "F3"),
        item("V1", "visual", 1, "The selected day looks different", "F2"),
        item("V2", "visual", 1, "Days, heads and title are readable", "F2"),
        item("L1", "layout", 1, "Seven columns fit a narrow screen", "F2"),
        item("U1", "ux", 1, "aria-pressed follows, fields have names, and a day is chosen by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]

    def date(which: datetime.date) -> dict[str, object]:
        return css(f"[data-testid=day][data-date='{which}']")

    def days_of(script: Script, which: datetime.date) -> None:
        script.expect("C1", "count", "day", equals=calendar.monthrange(which.year, which.month)[1])
        # The first Monday and the Sunday before the next one are the ends of a row.
        monday = which.replace(day=1) + datetime.timedelta(days=(7 - which.replace(day=1).weekday()) % 7)
        week = ", ".join(f"[data-date='{monday + datetime.timedelta(days=n)}']" for n in range(7))
        script.expect("C1", "side_by_side", css(f"[data-testid=day]:is({week})"))
        column = ", ".join(f"[data-date='{monday + datetime.timedelta(days=7 * n)}']" for n in range(3))
        script.expect("C1", "stacked", css(f"[data-testid=day]:is({column})"))

    def name(which: datetime.date) -> str:
        return f"{calendar.month_name[which.month]} {which.year}"

    january = datetime.date(year + 1, 1, 1)
    turn = Script("turn")
    turn.expect("F1", "text", "title", equals=title)
    turn.expect("C1", "count", "weekday", equals=7)
    days_of(turn, first)
    turn.click("next")
    turn.expect("F1", "text", "title", equals=name(first.replace(day=1, month=month + 1)))
    days_of(turn, first.replace(day=1, month=month + 1))
    for _ in range(12 - month):
        turn.click("next")
    turn.expect("F1", "text", "title", equals=name(january))
    days_of(turn, january)
    turn.click("previous")
    turn.expect("F1", "text", "title", equals=f"December {year}")
    turn.clean("T1")

    other = first + datetime.timedelta(days=3)
    plan = Script("appointments")
    plan.expect("F2", "text_or_none", "selected", not_contains=str(first))
    plan.expect("C2", "text_or_none", "problem", equals="")
    plan.act("fill", "text", value="{{t1}}")
    plan.click("add")
    plan.expect("C2", "text", "problem")
    plan.click(date(first))
    plan.expect("F2", "text", "selected", contains=str(first))
    plan.expect("U1", "checked", date(first), equals=True)
    plan.expect("U1", "checked", date(other), equals=False)
    plan.expect("V1", "differs", date(first), key=f"[data-date='{other}']")
    plan.readable("V2", "title", "weekday", date(other))
    plan.expect("F3", "count", "entry", equals=0)
    plan.enter("text", "{{t1}}")
    plan.act("fill", "text", value="{{t2}}")
    plan.click("add")
    plan.expect("F3", "count", "entry", equals=2)
    plan.expect("F3", "text", at("entry", nth=0), contains="{{t1}}")
    plan.expect("F3", "text", at("entry", nth=1), contains="{{t2}}")
    plan.expect("F4", "text", at("mark", within=date(first)), **shows(2))
    plan.expect("F4", "attr_bool", date(first), key="data-busy", equals=True)
    plan.expect("F4", "attr_bool", date(other), key="data-busy", equals=False)
    plan.click(date(other))
    plan.expect("F2", "text", "selected", contains=str(other))
    plan.expect("F3", "count", "entry", equals=0)
    plan.enter("text", "{{t3}}")
    plan.expect("F4", "text", "all", **shows(3))
    plan.click("next")
    plan.expect("F6", "text", "all", **shows(0))
    plan.act("reload")
    plan.expect("F6", "text", "all", **shows(3))
    plan.click(date(first))
    plan.expect("F6", "count", "entry", equals=2)

    delete = Script("delete")
    delete.click(date(first))
    for word in ("{{t4}}", "{{t5}}"):
        delete.enter("text", word)
    delete.expect("F5", "count", "entry", equals=2)
    delete.click(at("delete", within=at("entry", has_text="{{t4}}")))
    delete.expect("F5", "count", "entry", equals=1)
    delete.expect("F5", "text", "entry", contains="{{t5}}")
    delete.expect("F5", "text", "all", **shows(1))

    last = (first.replace(day=1, month=month + 1)) - datetime.timedelta(days=1)
    keys = Script("keys", NARROW)
    keys.expect("U1", "named", "text")
    keys.act("focus", date(first))
    keys.press("ArrowRight", "ArrowDown")
    keys.expect("F7", "focused", date(first + datetime.timedelta(days=8)))
    keys.press("ArrowUp", "ArrowLeft", "ArrowLeft", "Enter")
    keys.expect("F7", "focused", date(first - datetime.timedelta(days=1)))
    keys.expect("U1", "text", "selected", contains=str(first - datetime.timedelta(days=1)))
    keys.act("focus", date(last))
    keys.press("ArrowRight")
    keys.expect("F7", "text", "title", equals=name(last + datetime.timedelta(days=1)))
    keys.expect("F7", "focused", date(last + datetime.timedelta(days=1)))
    keys.press("ArrowUp")
    keys.expect("F7", "focused", date(last - datetime.timedelta(days=6)))
    keys.expect("L1", "count", "weekday", equals=7)
    keys.expect("L1", "inside_x", at("weekday", nth=6))
    keys.fits("L1")
    return Draft(prompt, items, [turn, plan, delete, keys], {"year": year, "month": month})
