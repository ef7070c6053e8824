"""Questions and answers that fold, one at a time, with a filter and votes."""

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import SENTENCES, TOPICS


def make(seed: int) -> Draft:
    """Five questions and their answers are drawn."""
    draw = generator("faq", seed)
    topics, answers = draw.sample(TOPICS, 5), draw.sample(SENTENCES, 5)
    questions = [f"What about {topic}?" for topic in topics]
    listed = " ".join(f"{question} {answer}" for question, answer in zip(questions, answers, strict=True))
    prompt = (
        f"Build a page of frequent questions, in this order, each followed by its answer: {listed} Each"
        " question is a button [data-testid=question] with the question alone, inside a heading, with"
        " aria-expanded and aria-controls; its answer is [data-testid=answer], hidden at first. A click"
        " opens the answer and closes any other; another click closes it. The button [data-testid=all]"
        " opens all answers at once; its text is 'Open all', or 'Close all' when all are open, and then"
        " it closes them. ArrowDown and ArrowUp move the focus to the next and the previous question, End"
        " and Home to the last and the first. [data-testid=filter] leaves only questions with the text in"
        " question or answer, whatever the case; [data-testid=count] shows how many are left, as in '3 of"
        " 5'; without any, [data-testid=none] says so. Each answer, open or not, has a button"
        " [data-testid=useful] in it; [data-testid=votes] beside it counts the clicks, and the counts"
        " survive a reload. Opening a question sets the fragment to its number from 1 (#q3), and a reload"
        " then opens it. An open question looks different."
    )
    items = [
        item("F1", "functionality", 2, "A click opens the answer and closes any other"),
        item("F2", "functionality", 1, "Another click closes it", "F1"),
        item("F3", "functionality", 2, "All are opened and closed at once"),
        item(
            "F4", "functionality", 2, "The filter looks at questions and answers, and tells how many are left"
        ),
        item("F5", "functionality", 2, "Votes are counted for each answer and survive a reload"),
        item("F6", "functionality", 1, "The address names the open question, and a reload opens it", "F1"),
        item("C1", "content", 1, "All questions are there, in order, with the right answers", "F3"),
        item("C2", "content", 1, "A filter without a match says so", "F4"),
        item("V1", "visual", 1, "An open question looks different", "F1"),
        item("V2", "visual", 1, "Questions and answers are readable", "F1"),
        item("L1", "layout", 1, "Open answers fit a narrow screen", "F3"),
        item("U1", "ux", 1, "aria-expanded follows, and questions stand in headings", "F1"),
        item("U2", "ux", 1, "Arrow keys, Home and End move between questions, Enter opens"),
        item("T1", "technical", 1, "No errors and no requests", "F1"),
    ]
    asked = [at("question", has_text=question) for question in questions]

    main = Script("main")
    main.expect("F1", "count", "answer", equals=0)
    main.expect("U1", "attr", asked[2], key="aria-expanded", equals="false")
    main.click(asked[1])
    main.expect("F1", "text", "answer", contains=answers[1])
    main.click(asked[2])
    main.expect("F1", "text", "answer", contains=answers[2])
    main.expect("F1", "count", "answer", equals=1)
    main.expect("U1", "attr", asked[2], key="aria-expanded", equals="true")
    main.expect("U1", "attr", asked[1], key="aria-expanded", equals="false")
    main.expect("U1", "count", {"css": ":is(h2, h3, h4) [data-testid=question]"}, equals=5)
    main.expect("V1", "differs", asked[2], key="[data-testid=question][aria-expanded=false]")
    main.readable("V2", "question", "answer")
    main.expect("F6", "hash", equals="q3")
    main.act("reload")
    main.expect("F6", "text", "answer", contains=answers[2])
    main.expect("F6", "count", "answer", equals=1)
    main.clean("T1")

    close = Script("close")
    close.click(asked[3])
    close.expect("F2", "text", "answer", contains=answers[3])
    close.click(asked[3])
    close.expect("F2", "count", "answer", equals=0)

    every = Script("all", NARROW)
    every.expect("F3", "text", "all", equals="Open all")
    every.expect("F3", "count", "answer", equals=0)
    every.click("all")
    every.expect("F3", "count", "answer", equals=5)
    every.expect("F3", "text", "all", equals="Close all")
    every.expect("C1", "texts", "question", equals=questions)
    for number, answer in enumerate(answers):
        every.expect("C1", "text", at("answer", nth=number), contains=answer)
    every.fits("L1")
    every.click("all")
    every.expect("F3", "count", "answer", equals=0)

    find = Script("filter")
    find.expect("F4", "text", "count", contains="5 of 5")
    find.act("fill", "filter", value=answers[3][:22].upper())
    find.expect("F4", "texts", "question", equals=[questions[3]])
    find.expect("F4", "text", "count", contains="1 of 5")
    find.act("fill", "filter", value=topics[4])
    find.expect("F4", "texts", "question", equals=[questions[4]])
    find.expect("C2", "hidden", "none")
    find.act("fill", "filter", value="{{t1}}")
    find.expect("C2", "visible", "none")
    find.expect("C2", "count", "question", equals=0)

    votes = Script("votes")
    for number, clicks in ((0, 2), (3, 1)):
        votes.click(asked[number])
        votes.expect("F5", "text", "votes", **shows(0))
        for _ in range(clicks):
            votes.click(at("useful", nth=number))
        votes.expect("F5", "text", "votes", **shows(clicks))
    votes.act("reload")
    votes.click(asked[0])
    votes.expect("F5", "text", "votes", **shows(2))

    keys = Script("keys")
    keys.act("focus", asked[0])
    keys.press("ArrowDown", "ArrowDown")
    keys.expect("U2", "focused", asked[2])
    keys.press("ArrowUp")
    keys.expect("U2", "focused", asked[1])
    keys.press("End")
    keys.expect("U2", "focused", asked[4])
    keys.press("Home", "Enter")
    keys.expect("U2", "text", "answer", contains=answers[0])
    return Draft(
        prompt,
        items,
        [main, close, every, find, votes, keys],
        {"entries": [{"question": q, "answer": a} for q, a in zip(questions, answers, strict=True)]},
    )
