"""A stopwatch with laps and a countdown."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, css, generator, item


def make(seed: int) -> Draft:
    """The countdown's presets and the word it ends with are drawn."""
    draw = generator("timer", seed)
    presets = sorted(draw.sample(range(20, 180, 5), 2))
    word = draw.choice(("Ready", "Done", "Over", "Finished"))
    shown = [f"{seconds // 60}:{seconds % 60:02}" for seconds in presets]
    prompt = (
        "Build a page with a stopwatch and a countdown. Stopwatch: [data-testid=time] shows minutes,"
        " seconds and tenths as 0:00.0; [data-testid=start] starts it and, when it runs, stops it, its"
        " text being 'Start' or 'Stop'; after a stop it goes on from where it stood. [data-testid=lap]"
        " puts the present time on top of the list of laps, elements [data-testid=lap-time] with the text"
        " of the time alone, also while it stands. [data-testid=reset] stops it, shows 0:00.0 and empties"
        " the list. The key s does what start does, while no field has the focus. Countdown: the field"
        " [data-testid=seconds] takes whole seconds; the buttons [data-testid=preset], labelled"
        f" {shown[0]} and {shown[1]}, put {presets[0]} and {presets[1]} into it. [data-testid=go] starts;"
        " [data-testid=rest] shows the rest as minutes and seconds, 0:00, rounded up; before the start it"
        " follows the field. [data-testid=pause] holds it and, with a second click, lets it go on;"
        f" aria-pressed tells. At the end [data-testid=alarm] (role=alert) shows '{word}', which is empty"
        " or hidden before. A number below 1 is refused in [data-testid=problem]."
    )
    items = [
        item("F1", "functionality", 2, "The stopwatch runs and can be stopped"),
        item("F2", "functionality", 2, "It stands still when stopped, and goes on from there", "F1"),
        item("F3", "functionality", 2, "Laps are listed, newest first"),
        item("F4", "functionality", 1, "Reset shows zero and empties the laps", "F3"),
        item("F5", "functionality", 2, "The countdown ends with the alarm"),
        item("F6", "functionality", 1, "Presets fill the field, and the rest follows it"),
        item("F7", "functionality", 1, "The countdown can be held", "F5"),
        item("C1", "content", 1, "The presets are labelled, and zero seconds are refused with a message"),
        item("V1", "visual", 1, "Times and buttons are readable", "F1"),
        item("L1", "layout", 1, "Everything fits a narrow screen", "F3"),
        item("U1", "ux", 1, "The key s starts and stops, and the field has a name"),
        item("T1", "technical", 1, "No errors and no requests", "F5"),
    ]
    zero = "^0:00[.]0$"

    watch = Script("stopwatch")
    watch.expect("F1", "text", "time", regex=zero)
    watch.expect("F1", "text", "start", equals="Start")
    watch.click("start")
    watch.expect("F1", "text", "start", equals="Stop")
    watch.expect("F1", "text", "time", within_ms=2000, regex=r"^0:0[1-9][.]\d$")
    watch.expect("F3", "count", "lap-time", equals=0)
    watch.click("lap")
    watch.act("wait", ms=300)
    watch.click("lap")
    watch.expect("F3", "count", "lap-time", equals=2)
    watch.expect("F3", "texts", "lap-time", regex=r"^\['(0:\d\d[.]\d)', '(?!\1)0:\d\d[.]\d'\]$")
    watch.click("start")
    watch.expect("F1", "text", "start", equals="Start")
    watch.click("lap")
    watch.act("wait", ms=400)
    watch.click("lap")
    # The two newest laps were taken while it stood.
    watch.expect("F2", "texts", "lap-time", regex=r"^\['(0:\d\d[.]\d)', '\1', ")
    watch.click("start")
    watch.act("wait", ms=300)
    watch.click("lap")
    watch.expect("F2", "texts", "lap-time", regex=r"^\['(0:\d[1-9][.]\d)', '(?!\1)")
    watch.readable("V1", "time", "start", "lap-time")
    watch.click("reset")
    watch.expect("F4", "text", "time", regex=zero)
    watch.expect("F4", "count", "lap-time", equals=0)
    watch.act("wait", ms=300)
    watch.expect("F4", "text", "time", regex=zero)

    count = Script("countdown")
    for number in range(2):
        count.expect("C1", "text", at("preset", nth=number), contains=shown[number])
    count.expect("F5", "text_or_none", "alarm", equals="")
    count.act("fill", "seconds", value="0")
    count.click("go")
    count.expect("C1", "text", "problem")
    count.act("fill", "seconds", value="2")
    count.click("go")
    count.expect("F5", "text", "alarm", within_ms=4000, contains=word)
    count.expect("F5", "text", "rest", contains="0:00")
    count.clean("T1")

    hold = Script("hold")
    hold.click(at("preset", nth=1))
    hold.expect("F6", "value", "seconds", equals=str(presets[1]))
    hold.expect("F6", "text", "rest", contains=shown[1])
    hold.click(at("preset", nth=0))
    hold.expect("F6", "text", "rest", contains=shown[0])
    hold.act("fill", "seconds", value="1")
    hold.expect("F7", "text", "rest", contains="0:01")
    hold.click("go")
    hold.click("pause")
    hold.expect("F7", "checked", "pause", equals=True)
    hold.act("wait", ms=1500)
    hold.expect("F7", "text", "rest", contains="0:01")
    hold.click("pause")
    hold.expect("F7", "text", "alarm", within_ms=3000, contains=word)

    keys = Script("keys", NARROW)
    keys.expect("U1", "named", "seconds")
    keys.press("s")
    keys.expect("U1", "text", "start", equals="Stop")
    keys.expect("U1", "text", "time", within_ms=1500, regex=r"[1-9]$")
    keys.press("s")
    keys.expect("U1", "text", "start", equals="Start")
    keys.act("type", "seconds", value="s")
    keys.expect("U1", "text", "start", equals="Start")
    keys.click("lap")
    keys.expect("L1", "count", "lap-time", equals=1)
    keys.expect("L1", "inside_x", "go")
    keys.expect("L1", "count", css("h1"), min=1)
    keys.fits("L1")
    data = {
        "presets": [{"label": label, "seconds": s} for label, s in zip(shown, presets, strict=True)],
        "word": word,
    }
    return Draft(prompt, items, [watch, count, hold, keys], data)
