"""What is read out of a game's answers. The raw texts are what jericho 3.3.1 prints for a game of textworld 1.7."""

from __future__ import annotations

from agentgym.envs.textworld.machine import Answer, read_answer, read_opening

PROMPT = "\n>" + 128 * " " + "-= Studio =-0/4"


def test_text_events_and_score() -> None:
    raw = (
        "\n[going south]\n\n-= Spare Room =-\nA standard kind of place.\n\nYou can make out a closed cabinet here.\n\n"
        "[going south - succeeded]\n" + "\n>" + 128 * " " + "-= Spare Room =-2/3"
    )
    text = "-= Spare Room =-\nA standard kind of place.\n\nYou can make out a closed cabinet here."
    assert read_answer(raw) == Answer(text, ("going south",), 2)


def test_what_failed_is_no_event_and_steps_of_an_action_are_none() -> None:
    raw = (
        "\n[taking all]\nYou have to be more specific!\n[taking all - failed the Check taking all]\n" + PROMPT
    )
    assert read_answer(raw) == Answer("You have to be more specific!", (), 0)
    raw = (
        "\n[opening the box]\n[(1) looking]\nA room.\n[(1) looking - succeeded]\n[opening the box - succeeded]\n"
        + PROMPT
    )
    assert read_answer(raw) == Answer("A room.", ("opening the box",), 0)


def test_a_negative_score() -> None:
    assert read_answer("Ouch.\n>   -= Studio =--3/4").score == -3


def test_the_end() -> None:
    raw = (
        "\n[taking the book]\nYou take the book from the cuboid locker.\n\n[taking the book - succeeded]\n\n\n"
        "Your score has just gone up by one point.\n\n\n" + 55 * " " + "*** The End ***\n\n"
        "You scored 3 out of a possible 3, in 5 turns.\n\n\n"
        "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?" + PROMPT
    )
    answer = read_answer(raw)
    assert answer.text.startswith("You take the book from the cuboid locker.\n\n\n\nYour score")
    assert answer.text.endswith("*** The End ***\n\nYou scored 3 out of a possible 3, in 5 turns.")
    assert (answer.events, answer.score, answer.won, answer.lost) == (("taking the book",), 3, True, False)


def test_a_bad_end() -> None:
    raw = (
        "You eat the egg.\n\n    *** You lost! ***\n\nYou scored 1 out of a possible 4, in 9 turns.\n"
        + PROMPT
    )
    answer = read_answer(raw)
    assert (answer.score, answer.won, answer.lost) == (1, False, True)


def test_words_of_the_end_within_a_line_end_nothing() -> None:
    answer = read_answer("The note says *** The End *** and no more.\n" + PROMPT)
    assert not answer.won


def test_the_opening_without_the_picture() -> None:
    raw = (
        "\n\n\n                    ________  ________  __    __  ________        \n"
        "                   |        \\|        \\|  \\  |  \\|        \\       \n"
        "                    \\$$$$$$$$| $$$$$$$$| $$  | $$ \\$$$$$$$$       \n\n"
        "Hey, thanks for coming over!\n\n-= Bedchamber =-\nAn usual kind of place.\n" + PROMPT
    )
    assert read_opening(raw) == "Hey, thanks for coming over!\n\n-= Bedchamber =-\nAn usual kind of place."
