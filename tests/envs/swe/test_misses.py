"""What a policy is told when the text it wants to replace is not there once."""

from __future__ import annotations

from agentgym.envs.swe.misses import explain_miss

TEXT = "def f(x):\n    if x:\n\t\treturn 1\n    return 2\n\n\ndef g(x):\n    return 2 * x\n"


def test_several_occurrences_are_told_by_line() -> None:
    said = explain_miss("a.py", TEXT, "return 2")
    assert "2 times, at lines 4, 8;" in said
    assert "(x)" not in said


def test_only_the_white_space_differs() -> None:
    said = explain_miss("a.py", TEXT, "    if x:\n        return 1\n")
    assert "lines 2-3 differ from it in white space only" in said
    assert r"line 3: the file has '\t\treturn 1', the old text '        return 1'" in said
    assert "line 2:" not in said


def test_line_ends_differ() -> None:
    said = explain_miss("a.py", "a = 1\r\nb = 2\r\n", "a = 1\nb = 2\n")
    assert "line breaks differ" in said


def test_lines_are_numbered_as_in_the_file() -> None:
    """A form feed and U+2028 stand within lines: the fourth of them is the one, not the sixth."""
    said = explain_miss("a.py", "a = 1\n\x0cb = 2\nc = '\u2028'\nresult = a + b\n", "result = a + c")
    assert said.endswith("the closest is lines 4:\n     4\tresult = a + b")


def test_the_closest_lines_are_shown() -> None:
    said = explain_miss("a.py", TEXT, "def g(x):\n    return 3 * x\n")
    assert said.splitlines() == [
        "the old text does not occur in a.py; the closest is lines 7-8:",
        "     7\tdef g(x):",
        "     8\t    return 2 * x",
    ]
    said = explain_miss("a.py", TEXT, "    return 3 * x")
    assert said.endswith("closest is lines 8:\n     8\t    return 2 * x")


def test_nothing_like_it() -> None:
    assert explain_miss("a.py", TEXT, "zzz qqq").endswith("nor anything like it")
    assert explain_miss("a.py", "", "zzz").endswith("nor anything like it")
    assert "use create" in explain_miss("a.py", TEXT, "")
    assert explain_miss("a.py", TEXT, "\n \n").endswith("nor anything like it")


def test_a_large_file_takes_no_long_time() -> None:
    text = "".join(f"value_{number} = {number}\n" for number in range(20_000))
    assert "value_4 = 4" in explain_miss("a.py", text, "valu_4 = 4\n")
