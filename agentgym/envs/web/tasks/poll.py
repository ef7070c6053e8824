"""A poll: one vote each, which may be changed, with bars that say the shares."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, rounded, shows
from agentgym.envs.web.tasks.words import PLACES


def make(seed: int) -> Draft:
    """The choices and the votes cast before are drawn."""
    draw = generator("poll", seed)
    names = draw.sample(PLACES, 3)
    votes = draw.sample(range(3, 40), 3)
    listed = ", ".join(f"{name} {number}" for name, number in zip(names, votes, strict=True))
    prompt = (
        f"Build a poll: 'Where shall we meet?' Choices and the votes they already have: {listed}. Each is"
        " an element [data-testid=option] with its name, a radio button [data-testid=choice] named by it,"
        " its number of votes [data-testid=votes], its share in whole percent [data-testid=percent], as"
        " in '25%', and a bar [data-testid=bar] with role=progressbar, a name and aria-valuenow equal to"
        " the percent, whose filled part, [data-testid=fill], is that part of the bar's width."
        " [data-testid=vote] casts the vote for the chosen option; without a choice,"
        " [data-testid=problem] says so. [data-testid=mine] then tells for what, and [data-testid=total]"
        " counts all votes. Voting again moves the vote, it never adds a second one;"
        " [data-testid=withdraw], shown only after a vote, takes it back. The vote survives a reload."
        " [data-testid=new-option] with [data-testid=add] adds an option without votes, at the end; blank"
        " names and names that are there already (whatever the case) are refused in the same"
        " [data-testid=problem]. The leading option, or options when several are equal, have the"
        " attribute data-leader and look different. [data-testid=sort] (aria-pressed) orders the options"
        " by votes, most first, and back."
    )
    items = [
        item("F1", "functionality", 2, "A vote is counted for the chosen option and told"),
        item("F2", "functionality", 2, "Voting again moves the vote", "F1"),
        item("F3", "functionality", 1, "A vote can be taken back"),
        item("F4", "functionality", 2, "Percents and bars follow the votes"),
        item("F5", "functionality", 2, "Options are added; blank and double names are refused"),
        item("F6", "functionality", 1, "The vote survives a reload, and still counts once", "F1"),
        item("F7", "functionality", 1, "Options are sorted by votes, and back"),
        item("C1", "content", 1, "Choices and their votes are right at first", "F1"),
        item("C2", "content", 1, "Voting without a choice is refused with a message", "F1"),
        item("V1", "visual", 1, "The leading option looks different", "F4"),
        item("V2", "visual", 1, "Names, votes and percents are readable", "F1"),
        item("L1", "layout", 1, "Options with long names fit a narrow screen", "F5"),
        item("U1", "ux", 1, "Radio buttons and bars have names, and voting works by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]
    total = sum(votes)

    def option(number: int) -> dict[str, object]:
        return at("option", has_text=names[number])

    def voted(script: Script, item: str, number: int, count: int) -> None:
        script.expect(item, "text", at("votes", within=option(number)), **shows(count))

    main = Script("main")
    for number, count in enumerate(votes):
        voted(main, "C1", number, count)
    main.expect("F1", "text", "total", **shows(total))
    main.expect("F3", "hidden", "withdraw")
    main.expect("C2", "text_or_none", "problem", equals="")
    main.click("vote")
    main.expect("C2", "text", "problem")
    main.expect("F1", "text", "total", **shows(total))
    main.expect(
        "F4",
        "text",
        at("percent", within=option(0)),
        **{"in": [f"{n}%" for n in rounded(100 * votes[0], total)]},
    )
    main.act("check", at("choice", within=option(0)))
    main.click("vote")
    voted(main, "F1", 0, votes[0] + 1)
    main.expect("F1", "text", "total", **shows(total + 1))
    main.expect("F1", "text", "mine", contains=names[0])
    main.readable("V2", "option", "votes", "percent")
    main.act("check", at("choice", within=option(1)))
    main.click("vote")
    voted(main, "F2", 0, votes[0])
    voted(main, "F2", 1, votes[1] + 1)
    main.expect("F2", "text", "total", **shows(total + 1))
    main.act("reload")
    voted(main, "F6", 1, votes[1] + 1)
    main.expect("F6", "text", "mine", contains=names[1])
    main.act("check", at("choice", within=option(2)))
    main.click("vote")
    voted(main, "F6", 1, votes[1])
    main.expect("F3", "visible", "withdraw")
    main.click("withdraw")
    voted(main, "F3", 2, votes[2])
    main.expect("F3", "text", "total", **shows(total))
    main.expect("F3", "hidden", "withdraw")
    main.clean("T1")

    shares = Script("shares")
    shares.act("check", at("choice", within=option(2)))
    shares.click("vote")
    after = [votes[0], votes[1], votes[2] + 1]
    for number, count in enumerate(after):
        numbers = [str(share) for share in rounded(100 * count, total + 1)]
        shown, told = at("percent", within=option(number)), at("bar", within=option(number))
        shares.expect("F4", "text", shown, **{"in": [f"{share}%" for share in numbers]})
        shares.expect("F4", "attr", told, key="aria-valuenow", **{"in": numbers})
    voted(shares, "F4", 2, after[2])
    leader = max(range(3), key=lambda number: after[number])
    shares.expect("V1", "text", css("[data-testid=option][data-leader]"), contains=names[leader])
    shares.expect(
        "V1",
        "differs",
        css("[data-testid=option][data-leader]"),
        key="[data-testid=option]:not([data-leader])",
    )
    shares.expect("U1", "named", "choice")
    shares.expect("U1", "named_box", "bar")
    ranked = sorted(range(3), key=lambda number: -after[number])
    shares.click("sort")
    shares.expect("F7", "checked", "sort", equals=True)
    for place, number in enumerate(ranked):
        shares.expect("F7", "text", at("option", nth=place), contains=names[number])
    shares.click("sort")
    for number in range(3):
        shares.expect("F7", "text", at("option", nth=number), contains=names[number])

    add = Script("add", NARROW)
    add.act("fill", "new-option", value="{{t1}}{{t2}}{{t3}}{{t4}}{{t5}}")
    add.click("add")
    add.expect("F5", "count", "option", equals=4)
    add.expect("F5", "text", at("votes", within=at("option", has_text="{{t1}}")), **shows(0))
    for name in ("   ", names[1].upper()):
        add.act("fill", "new-option", value=name)
        add.click("add")
        add.expect("F5", "text", "problem")
        add.expect("F5", "count", "option", equals=4)
    add.fits("L1")

    keys = Script("keys")
    keys.act("tab_to", "choice")
    keys.press("Space")
    keys.act("tab_to", "vote")
    keys.expect("U1", "text", "total", **shows(total))
    keys.press("Enter")
    keys.expect("U1", "text", "total", **shows(total + 1))
    return Draft(
        prompt,
        items,
        [main, shares, add, keys],
        {"options": [{"name": n, "votes": v} for n, v in zip(names, votes, strict=True)]},
    )
