"""A memory game: turn two cards, keep pairs, count moves."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item, mentions, shows
from agentgym.envs.web.tasks.words import GOODS


def make(seed: int) -> Draft:
    """Four words and the places of the eight cards are drawn."""
    draw = generator("memory", seed)
    words = draw.sample(GOODS, 4)
    cards = words * 2
    draw.shuffle(cards)
    prompt = (
        f"Build a memory game of eight cards, which lie in this order: {', '.join(cards)}. Each is a"
        " button [data-testid=card]; face down it shows '?' and has the aria-label 'Card 3, face down'"
        " (with its number), face up it shows its word, which is then its aria-label. A click turns a"
        " card up. When two are up and differ, they stay up for about a second and are turned down again;"
        " until then clicks on other cards do nothing. When they are the same, they stay up, get the"
        " attribute data-matched, and look different from other cards. Clicking a card that is up does"
        " nothing. [data-testid=moves] counts pairs of cards turned up, [data-testid=pairs] shows the"
        " pairs found, as in '1 / 4'. When all are found, [data-testid=won] appears and names the number"
        " of moves. [data-testid=restart] turns all cards down, in the same places, and sets the counts"
        " to 0. [data-testid=best] shows the fewest moves of a won game ('-' before the first) and"
        " survives a reload. The cards stand in rows of four on every screen; Arrow keys move the focus"
        " between cards."
    )
    items = [
        item("F1", "functionality", 2, "A click turns a card up"),
        item("F2", "functionality", 2, "Two different cards are turned down again after a moment"),
        item("F3", "functionality", 2, "A pair stays up and counts"),
        item("F4", "functionality", 1, "A third card cannot be turned meanwhile, nor a card twice", "F2"),
        item("F5", "functionality", 2, "The game is won with all pairs, and the moves are told"),
        item("F6", "functionality", 1, "Restart turns all down and sets counts to 0", "F3"),
        item("F7", "functionality", 1, "The best result survives a reload", "F5"),
        item("C1", "content", 1, "Eight cards lie face down and show no word at first", "F1"),
        item("V1", "visual", 1, "Matched cards look different", "F3"),
        item("L1", "layout", 1, "Cards stand in rows of four on a narrow screen", "F1"),
        item("U1", "ux", 1, "Names tell face down from face up", "F1"),
        item("U2", "ux", 1, "The game is played by keyboard"),
        item("T1", "technical", 1, "No errors and no requests", "F5"),
    ]
    places = {word: [n for n, card in enumerate(cards) if card == word] for word in words}
    order = [n for word in words for n in places[word]]
    first, mate = places[words[0]]
    other, third = places[words[1]][0], places[words[2]][0]

    def card(number: int) -> dict[str, object]:
        return at("card", nth=number)

    main = Script("main")
    main.expect("C1", "texts", "card", equals=["?"] * 8)
    main.expect("C1", "page_text", not_contains=words[0])
    main.expect("U1", "attr", card(first), key="aria-label", contains="face down")
    main.expect("F1", "text", card(first), equals="?")
    main.click(card(first))
    main.expect("F1", "text", card(first), equals=words[0])
    main.click(card(first))
    main.expect("F4", "text", "moves", **shows(0))
    main.click(card(other))
    main.expect("F2", "text", card(other), equals=words[1])
    main.click(card(third))
    main.expect("F4", "text", card(third), equals="?")
    main.expect("F2", "text", card(first), within_ms=3000, equals="?")
    main.expect("F2", "text", card(other), equals="?")
    main.expect("F2", "text", "moves", **shows(1))
    main.expect("F4", "text", "moves", **shows(1))
    main.expect("F3", "text", "pairs", contains="0 / 4")
    main.click(card(first))
    main.click(card(mate))
    main.expect("F3", "text", "pairs", contains="1 / 4")
    main.act("wait", ms=1600)
    main.expect("F3", "text", card(first), equals=words[0])
    main.expect("F3", "text", card(mate), equals=words[0])
    main.expect("F3", "attr_bool", card(mate), key="data-matched", equals=True)
    main.expect("U1", "attr", card(mate), key="aria-label", not_contains="face down")
    main.expect("V1", "differs", card(first), key="[data-testid=card]:not([data-matched])")
    main.click("restart")
    main.expect("F6", "texts", "card", equals=["?"] * 8)
    main.expect("F6", "text", "moves", **shows(0))
    main.expect("F6", "text", "pairs", contains="0 / 4")

    win = Script("win", NARROW)
    win.expect("F5", "hidden", "won")
    win.expect("F7", "text", "best", contains="-")
    win.fits("L1")
    for number in order:
        win.click(card(number))
    win.expect("F5", "text", "won", **mentions(4))
    win.expect("F5", "text", "pairs", contains="4 / 4")
    win.expect("F7", "text", "best", **shows(4))
    # Two of one row are at one height, the first of the next row is below.
    win.expect("L1", "side_by_side", css("[data-testid=card]:nth-child(-n+4)"))
    win.expect("L1", "stacked", css("[data-testid=card]:nth-child(4n+1)"))
    win.clean("T1")
    win.act("reload")
    win.expect("F7", "text", "best", **shows(4))

    keys = Script("keys")
    keys.act("focus", card(0))
    keys.press("ArrowRight", "ArrowDown", "ArrowLeft")
    keys.expect("U2", "focused", card(4))
    keys.press("ArrowUp")
    keys.expect("U2", "focused", card(0))
    keys.press("Enter")
    keys.expect("U2", "text", card(0), equals=cards[0])
    prompt += " The eight buttons are the only children of their container."
    return Draft(prompt, items, [main, win, keys], {"cards": cards})
