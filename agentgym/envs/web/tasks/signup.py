"""A registration form that checks what is entered and says what is wrong."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, generator, item, shows
from agentgym.envs.web.tasks.words import PLACES


def make(seed: int) -> Draft:
    """The least age, the least length of a password and the towns are drawn."""
    draw = generator("signup", seed)
    age, length = draw.choice((14, 16, 18, 21)), draw.choice((8, 9, 10, 12))
    towns = draw.sample(PLACES, 4)
    prompt = (
        "Build a registration form with the fields [data-testid=name], [data-testid=email],"
        " [data-testid=age] (whole number), [data-testid=password], [data-testid=repeat] (the password"
        " again), [data-testid=town], a select that starts with an empty choice followed by"
        f" {', '.join(towns)}, the checkbox [data-testid=terms] and the button [data-testid=submit]."
        f" Rules: a name; an address with text, @ and a dot after it; an age of at least {age}; a password"
        f" of at least {length} characters with at least one digit; the same again; a town; the terms"
        " accepted. Submitting (also by Enter) with a mistake shows a message for each mistake, next to"
        " the field, in [data-testid=error-FIELD] (error-name, error-email and so on; empty or hidden"
        " where there is none), sets aria-invalid=true on wrong fields only, and focuses the first wrong"
        " field. A message goes away as soon as its field is right. Entries are kept. When all is right,"
        " the form is hidden and [data-testid=welcome] greets by name and tells the town."
        " [data-testid=show], a button with aria-pressed, shows the password as plain text and hides it"
        " again; [data-testid=left] tells how many characters the password still lacks. The browser's own"
        " validation bubbles are off (novalidate)."
    )
    items = [
        item("F1", "functionality", 2, "Right entries lead to a greeting with name and town"),
        item("F2", "functionality", 2, "An empty form is refused with a message for every field", "F1"),
        item("F3", "functionality", 2, "Each rule is checked: address, age, password, repetition"),
        item("F4", "functionality", 1, "A message goes away when its field is right"),
        item("F5", "functionality", 1, "The password can be shown and hidden"),
        item("F6", "functionality", 1, "What the password lacks is counted while typing"),
        item("C1", "content", 1, "Every field has a label that is seen", "F1"),
        item("V1", "visual", 1, "Messages are readable", "F2"),
        item("L1", "layout", 1, "The form with all its messages fits a narrow screen", "F2"),
        item("U1", "ux", 2, "Focus goes to the first wrong field, which is marked as invalid"),
        item("T1", "technical", 1, "No errors and no requests, and nothing is sent", "F1"),
    ]
    fields = ("name", "email", "age", "password", "repeat", "town", "terms")
    good = "abcdefghijkl"[: length - 1] + "7"

    def fill_right(script: Script) -> None:
        for field, value in (
            ("name", "{{t1}}"),
            ("email", "{{t2}}@example.org"),
            ("age", age),
            ("password", good),
            ("repeat", good),
        ):
            script.act("fill", field, value=str(value))
        script.act("select", "town", value=towns[2])
        script.act("check", "terms")

    right = Script("right")
    for field in fields[:-1]:
        right.expect("C1", "label_visible", field)
    right.expect("F1", "text_or_none", "welcome", not_contains="{{t1}}")
    fill_right(right)
    right.click("submit")
    right.expect("F1", "text", "welcome", contains="{{t1}}")
    right.expect("F1", "text", "welcome", contains=towns[2])
    right.expect("F1", "hidden", "email")
    right.clean("T1")

    empty = Script("empty", NARROW)
    for field in fields:
        empty.expect("F2", "text_or_none", f"error-{field}", equals="")
    empty.act("focus", "email")
    empty.press("Enter")
    for field in fields:
        if field != "repeat":  # an empty repetition of an empty password is the same
            empty.expect("F2", "text", f"error-{field}")
    empty.expect("F2", "visible", "submit")
    empty.expect("U1", "focused", "name")
    empty.readable("V1", "error-name", "error-town")
    empty.fits("L1")
    empty.expect("L1", "inside_x", "error-terms")
    empty.act("fill", "name", value="{{t3}}")
    empty.expect("F4", "text", "error-email")
    empty.expect("F4", "text_or_none", "error-name", equals="")

    wrong_values = {
        "email": ("{{t2}}", "{{t2}}@example.org"),
        "age": (str(age - 1), str(age)),
        "password": ("x" * length, good),
        "repeat": (good + "x", good),
    }
    rules = Script("rules")
    fill_right(rules)
    for field, (wrong, fixed) in wrong_values.items():
        if field == "password":
            rules.act("fill", "repeat", value=wrong)
        rules.act("fill", field, value=wrong)
        rules.click("submit")
        rules.expect("F3", "text", f"error-{field}")
        rules.expect("F3", "visible", "submit")
        rules.expect("F3", "text_or_none", "error-name", equals="")
        rules.expect("U1", "focused", field)
        rules.expect("U1", "attr", field, key="aria-invalid", equals="true")
        rules.expect("U1", "count_all", {"css": "[aria-invalid=true]"}, equals=1)
        rules.act("fill", field, value=fixed)
        if field == "password":
            rules.act("fill", "repeat", value=fixed)
    rules.click("submit")
    rules.expect("F3", "text", "welcome", contains="{{t1}}")

    peek = Script("password")
    peek.expect("F6", "text", "left", **shows(length))
    peek.act("type", "password", value="ab1")
    peek.expect("F6", "text", "left", **shows(length - 3))
    peek.expect("F5", "attr", "password", key="type", equals="password")
    peek.click("show")
    peek.expect("F5", "attr", "password", key="type", equals="text")
    peek.expect("F5", "checked", "show", equals=True)
    peek.expect("F5", "value", "password", equals="ab1")
    peek.click("show")
    peek.expect("F5", "attr", "password", key="type", equals="password")
    return Draft(prompt, items, [right, empty, rules, peek], {"age": age, "length": length, "towns": towns})
