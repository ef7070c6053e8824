"""A table that is sorted, filtered and paged."""

from typing import Any

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import PEOPLE, PLACES


def make(seed: int) -> Draft:
    """Eighteen rows are drawn: all names and amounts differ, towns repeat."""
    draw = generator("table", seed)
    towns = draw.sample(PLACES, 4)
    people = draw.sample(PEOPLE, 18)
    amounts = draw.sample(range(15, 990), 18)
    rows: list[dict[str, Any]] = [
        {"name": n, "town": towns[i % 4], "amount": a}
        for i, (n, a) in enumerate(zip(people, amounts, strict=True))
    ]
    draw.shuffle(rows)
    size = draw.choice((5, 6, 7))
    listed = "; ".join(f"{row['name']}, {row['town']}, {row['amount']}" for row in rows)
    prompt = (
        f"Build a table of members. Rows (name, town, amount): {listed}. Each is an element"
        " [data-testid=row] with its cells [data-testid=name], [data-testid=town] and"
        f" [data-testid=amount]; {size} rows to a page. Buttons in the column heads,"
        " [data-testid=sort-name], [data-testid=sort-town] and [data-testid=sort-amount], sort ascending,"
        " a second click descending; the head cell (th) carries aria-sort. Amounts sort as numbers. At"
        " first rows stand in the given order. [data-testid=search] filters by name and"
        " [data-testid=town-filter], a select with the option 'All' and the towns, by town; both"
        " together. Filtering goes back to the first page. Buttons [data-testid=previous] and"
        " [data-testid=next] turn pages and are disabled at the ends; [data-testid=page] shows 'Page 1 of"
        " N', [data-testid=matches] the number of matching rows. Without a match [data-testid=none] says"
        " so."
    )
    items = [
        item(
            "F1", "functionality", 2, "A click on the amount's head sorts as numbers, a second one descending"
        ),
        item("F2", "functionality", 1, "Names sort as text"),
        item("F3", "functionality", 2, "The search filters by name"),
        item("F4", "functionality", 2, "The town filter filters, together with the search too"),
        item("F5", "functionality", 2, "Paging turns pages and stops at the ends"),
        item("F6", "functionality", 2, "Filtering on a later page goes back to the first", "F3"),
        item("C1", "content", 1, "The first page shows the given rows in order", "F5"),
        item("C2", "content", 1, "A search without a match says so", "F3"),
        item("V1", "visual", 1, "Cells and heads are readable", "F1"),
        item("L1", "layout", 1, "The table fits a narrow screen with all its columns", "F1"),
        item("U1", "ux", 1, "aria-sort tells the order, and fields have labels", "F1"),
        item("U2", "ux", 1, "Sorting works by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]
    pages = -(-18 // size)
    by_amount = sorted(rows, key=lambda row: row["amount"])
    by_name = sorted(rows, key=lambda row: row["name"])

    sort = Script("sort")
    sort.expect("C1", "texts", "name", equals=[row["name"] for row in rows[:size]])
    sort.expect("C1", "text", at("amount", nth=0), **shows(rows[0]["amount"]))
    sort.click("sort-amount")
    sort.expect("F1", "texts", "name", equals=[row["name"] for row in by_amount[:size]])
    sort.expect(
        "U1", "attr", {"css": "th[aria-sort]:not([aria-sort=none])"}, key="aria-sort", equals="ascending"
    )
    sort.click("sort-amount")
    sort.expect("F1", "texts", "name", equals=[row["name"] for row in by_amount[::-1][:size]])
    sort.expect(
        "U1", "attr", {"css": "th[aria-sort]:not([aria-sort=none])"}, key="aria-sort", equals="descending"
    )
    sort.click("sort-name")
    sort.expect("F2", "texts", "name", equals=[row["name"] for row in by_name[:size]])
    sort.expect("U1", "named", "search")
    sort.expect("U1", "named", "town-filter")
    sort.readable("V1", "name", "amount", "sort-amount", "page")
    sort.clean("T1")

    person, town = rows[-1]["name"], towns[1]
    in_town = [row["name"] for row in rows if row["town"] == town]
    find = Script("filter")
    find.expect("F3", "text", "matches", **shows(18))
    find.act("fill", "search", value=person)
    find.expect("F3", "texts", "name", contains=person)
    find.expect("F3", "text", "matches", **shows(sum(person.lower() in row["name"].lower() for row in rows)))
    find.act("fill", "search", value="{{t1}}")
    find.expect("C2", "visible", "none")
    find.expect("C2", "count", "row", equals=0)
    find.act("fill", "search", value="")
    find.act("select", "town-filter", value=town)
    find.expect("F4", "texts", "name", equals=in_town[:size])
    find.expect("F4", "text", "matches", **shows(len(in_town)))
    find.act("fill", "search", value=in_town[-1])
    find.expect(
        "F4", "texts", "name", equals=[name for name in in_town if in_town[-1].lower() in name.lower()]
    )
    find.act("select", "town-filter", value=next(each for each in towns if each != town))
    find.expect("F4", "texts", "name", not_contains=in_town[-1])

    turn = Script("pages")
    turn.expect("F5", "attr_bool", "previous", key="disabled", equals=True)
    turn.expect("F5", "text", "page", contains=f"1 of {pages}")
    turn.click("next")
    turn.expect("F5", "texts", "name", equals=[row["name"] for row in rows[size : 2 * size]])
    turn.expect("F5", "text", "page", contains=f"2 of {pages}")
    for _ in range(pages - 2):
        turn.click("next")
    turn.expect("F5", "texts", "name", equals=[row["name"] for row in rows[(pages - 1) * size :]])
    turn.expect("F5", "attr_bool", "next", key="disabled", equals=True)
    # Many match: a page that only stays within bounds would show the last of their pages.
    letter = max("aeio", key=lambda each: sum(each in row["name"].lower() for row in rows))
    many = [row["name"] for row in rows if letter in row["name"].lower()]
    turn.act("fill", "search", value=letter)
    turn.expect("F6", "text", "page", contains=f"1 of {-(-len(many) // size)}")
    turn.expect("F6", "texts", "name", equals=many[:size])

    narrow = Script("narrow", NARROW)
    narrow.expect("L1", "inside_x", at("amount", nth=0))
    narrow.expect("L1", "inside_x", "sort-amount")
    narrow.fits("L1")

    keyboard = Script("keyboard")
    keyboard.act("tab_to", "sort-name")
    keyboard.press("Enter")
    keyboard.expect("U2", "texts", "name", equals=[row["name"] for row in by_name[:size]])
    return Draft(
        prompt, items, [sort, find, turn, narrow, keyboard], {"rows": rows, "towns": towns, "size": size}
    )
