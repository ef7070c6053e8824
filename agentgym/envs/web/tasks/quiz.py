"""A quiz with feedback, a score, a review, and a best score that is kept."""

from typing import Any

from agentgym.envs.web.tasks.script import NARROW, Draft, Script, at, generator, item, shows
from agentgym.envs.web.tasks.words import PLACES, TOPICS


def make(seed: int) -> Draft:
    """Four questions, their choices and answers are drawn."""
    draw = generator("quiz", seed)
    questions: list[dict[str, Any]] = []
    for topic in draw.sample(TOPICS, 4):
        choices = draw.sample(PLACES, 3)
        questions.append(
            {"question": f"Where is the museum of {topic}?", "choices": choices, "answer": draw.randrange(3)}
        )
    listed = " ".join(
        f"({n}) {q['question']} {', '.join(q['choices'])}; right: {q['choices'][q['answer']]}."
        for n, q in enumerate(questions, 1)
    )
    prompt = (
        f"Build a quiz with these questions, in this order: {listed} It shows one question at a time in"
        " [data-testid=question], with a button [data-testid=choice] for each choice in the given order,"
        " with that text alone, and [data-testid=progress], '1 / 4' and so on. A click on a choice locks"
        " the answer: all choices become disabled, [data-testid=feedback] says 'Right' or 'Wrong' and in"
        " the second case names the right answer, and [data-testid=next] appears, which was hidden"
        " before. After the last question [data-testid=score] shows '3 / 4' or what it is, and"
        " [data-testid=review] elements, one for each question, show the question, the given and the"
        " right answer; those answered wrongly have the attribute data-wrong and look different."
        " [data-testid=restart] starts anew with a score of 0. [data-testid=best] shows the best score so"
        " far ('0' at first) and survives a reload. The keys 1, 2, 3 choose; Enter goes on."
    )
    items = [
        item("F1", "functionality", 2, "A choice is locked and answered with right or wrong"),
        item("F2", "functionality", 2, "The quiz goes on to the next question, and the progress follows"),
        item("F3", "functionality", 3, "The score counts the right answers"),
        item("F4", "functionality", 1, "The review shows given and right answers and marks the wrong ones"),
        item("F5", "functionality", 1, "Restart begins anew", "F3"),
        item("F6", "functionality", 1, "The best score survives a reload and a worse round", "F3"),
        item("C1", "content", 1, "Every question has its text and choices", "F2"),
        item("V1", "visual", 1, "Wrong answers look different in the review", "F4"),
        item("V2", "visual", 1, "Question, choices and feedback are readable", "F1"),
        item("L1", "layout", 1, "The quiz fits a narrow screen", "F1"),
        item("U1", "ux", 1, "The keys 1 to 3 and Enter play the quiz"),
        item("T1", "technical", 1, "No errors and no requests", "F3"),
    ]
    wrong_at = draw.randrange(1, 4)  # the first is answered rightly

    def pick(number: int, right: bool) -> int:
        answer: int = questions[number]["answer"]
        return answer if right else (answer + 1) % 3

    main = Script("main")
    main.expect("F3", "hidden", "score")
    for number, question in enumerate(questions):
        right = number != wrong_at
        main.expect("C1", "text", "question", contains=question["question"])
        main.expect("C1", "texts", "choice", equals=question["choices"])
        main.expect("F2", "text", "progress", contains=f"{number + 1} / 4")
        main.expect("F1", "hidden", "next")
        main.click(at("choice", nth=pick(number, right)))
        main.expect("F1", "text", "feedback", contains="Right" if right else "Wrong")
        if not right:
            main.expect("F1", "text", "feedback", contains=question["choices"][pick(number, True)])
        main.expect("F1", "attr_bool", at("choice", nth=0), key="disabled", equals=True)
        if number == 0:
            main.readable("V2", "question", "feedback", "next")
        main.click("next")
    main.expect("F2", "hidden", "question")
    main.expect("F3", "text", "score", contains="3 / 4")
    main.expect("F4", "count", "review", equals=4)
    main.expect("F4", "count", {"css": "[data-testid=review][data-wrong]"}, equals=1)
    given, answer = (questions[wrong_at]["choices"][pick(wrong_at, right)] for right in (False, True))
    main.expect("F4", "text", at("review", nth=wrong_at), contains=given)
    main.expect("F4", "text", at("review", nth=wrong_at), contains=answer)
    main.expect("V1", "differs", at("review", nth=wrong_at), key="[data-testid=review]:not([data-wrong])")
    main.expect("F6", "text", "best", **shows(3))
    main.click("restart")
    main.expect("F5", "text", "question", contains=questions[0]["question"])
    main.expect("F5", "text", "progress", contains="1 / 4")
    main.expect("F5", "hidden", "score")
    main.clean("T1")

    best = Script("best", NARROW)
    best.expect("F6", "text", "best", **shows(0))
    for rights in (2, 0):
        for number in range(4):
            best.click(at("choice", nth=pick(number, number < rights)))
            best.click("next")
        if rights:  # the second round needs the restart, which is another item
            best.expect("F3", "text", "score", contains=f"{rights} / 4")
        best.expect("F6", "text", "best", **shows(2))
        best.fits("L1")
        best.click("restart")
    best.act("reload")
    best.expect("F6", "text", "best", **shows(2))
    best.expect("L1", "inside_x", at("choice", nth=2))

    keys = Script("keys")
    keys.expect("U1", "text_or_none", "feedback", not_contains="Right")
    keys.press(str(pick(0, True) + 1))
    keys.expect("U1", "text", "feedback", contains="Right")
    keys.press("Enter")
    keys.expect("U1", "text", "question", contains=questions[1]["question"])
    return Draft(prompt, items, [main, best, keys], {"questions": questions})
