"""A calculator with keypad, keyboard and history."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item


def make(seed: int) -> Draft:
    """The numbers of the sums are drawn."""
    draw = generator("calculator", seed)
    a, b, c = (draw.randrange(12, 99) for _ in range(3))
    d, e = draw.randrange(3, 9), draw.randrange(11, 30)
    prompt = (
        "Build a calculator. Keys are buttons: [data-testid=key-0] to [data-testid=key-9], key-dot,"
        " key-plus, key-minus, key-times, key-divide, key-equals, key-clear (C, empties everything but"
        " the history) and key-back (deletes the last character). [data-testid=display] shows what is"
        " typed and, after equals, the result; at first and after C it shows 0. Multiplication and"
        " division bind more tightly than plus and minus (2 + 3 * 4 is 14). Results are rounded to at"
        " most 8 decimals, so 0.1 + 0.2 is 0.3. Dividing by zero shows Error; C recovers from it. The"
        " keyboard works too: digits, . + - * / Enter = Escape (C) Backspace. Each finished sum becomes"
        " an entry [data-testid=history-item], newest first, that shows sum and result; clicking an entry"
        " puts its result into the display. Keys stand in rows of at least 44 px height."
    )
    items = [
        item("F1", "functionality", 2, "Adding and subtracting with the keys"),
        item("F2", "functionality", 2, "Multiplication binds more tightly than addition"),
        item("F3", "functionality", 1, "Decimals are rounded: 0.1 + 0.2 is 0.3"),
        item("F4", "functionality", 1, "Dividing by zero shows Error, and C recovers", "F1"),
        item("F5", "functionality", 1, "Backspace deletes the last digit"),
        item("F6", "functionality", 2, "The keyboard works like the keys"),
        item("F7", "functionality", 2, "The history lists sums, newest first, and gives results back"),
        item("C1", "content", 1, "All 18 keys are there and have names", "F1"),
        item("V1", "visual", 1, "Keys and display are readable", "F1"),
        item("L1", "layout", 1, "The calculator fits a narrow screen", "F1"),
        item("U1", "ux", 1, "Keys are at least 44 px high and wide enough to hit", "F1"),
        item("T1", "technical", 1, "No errors and no requests, after a division by zero too", "F4"),
    ]

    def tap(script: Script, keys: str) -> None:
        names = {
            "+": "plus",
            "-": "minus",
            "*": "times",
            "/": "divide",
            "=": "equals",
            ".": "dot",
            "C": "clear",
        }
        for key in keys:
            # There are many, and a page without them should not take long to judge.
            script.act("click", f"key-{names.get(key, key)}", timeout_ms=1000)

    keypad = Script("keypad")
    keypad.expect("C1", "count", css("[data-testid^=key-]"), equals=18)
    keypad.expect("C1", "named", css("[data-testid^=key-]"))
    keypad.expect("F1", "text", "display", equals="0")
    tap(keypad, f"{a}+{b}")
    keypad.expect("F1", "text", "display", contains=str(b))
    tap(keypad, "=")
    keypad.expect("F1", "text", "display", equals=str(a + b))
    tap(keypad, f"C{a}-{b}=")
    keypad.expect("F1", "text", "display", regex=_whole(a - b))
    keypad.readable("V1", "display", "key-7", "key-plus", "key-equals")
    keypad.expect("U1", "min_size", css("[data-testid^=key-]"), min=44)
    tap(keypad, f"C{a}+{b}*{d}=")
    keypad.expect("F2", "text", "display", equals=str(a + b * d))

    small = Script("decimals and errors")
    tap(small, "0.1+0.2=")
    small.expect("F3", "text", "display", equals="0.3")
    tap(small, "C")
    small.expect("F5", "text", "display", equals="0")
    tap(small, f"{c}{d}")
    small.click("key-back")
    small.expect("F5", "text", "display", equals=str(c))
    tap(small, "/0=")
    small.expect("F4", "text", "display", contains="Error")
    tap(small, "C")
    small.expect("F4", "text", "display", equals="0")
    tap(small, f"{d}+1=")
    small.expect("F4", "text", "display", equals=str(d + 1))
    small.clean("T1")

    typed = Script("keyboard", NARROW)
    typed.press(*str(e), "*", *str(d), "Enter")
    typed.expect("F6", "text", "display", equals=str(e * d))
    typed.press("Escape")
    typed.expect("F6", "text", "display", equals="0")
    typed.press(*str(c), "Backspace", "-", "4", "=")
    typed.expect("F6", "text", "display", regex=_whole(c // 10 - 4))
    typed.expect("L1", "visible", "key-equals")
    typed.fits("L1")

    history = Script("history")
    history.expect("F7", "count", "history-item", equals=0)
    tap(history, f"{a}+{c}=C{e}*{d}=")
    history.expect("F7", "count", "history-item", equals=2)
    history.expect("F7", "text", at("history-item", nth=0), contains=str(e * d))
    history.expect("F7", "text", at("history-item", nth=1), contains=str(a + c))
    history.click(at("history-item", nth=1))
    history.expect("F7", "text", "display", equals=str(a + c))
    return Draft(prompt, items, [keypad, small, typed, history], {})


def _whole(number: int) -> str:
    """A pattern for exactly this number, with a hyphen or a true minus sign."""
    return rf"^{'[-−]' if number < 0 else ''}{abs(number)}$"
