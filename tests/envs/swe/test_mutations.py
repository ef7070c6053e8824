from __future__ import annotations

import json
import random
import textwrap
from pathlib import Path

import pytest

from agentgym.envs.swe.building.mutations import Site, apply, find_sites, overlap


def source(text: str) -> bytes:
    return textwrap.dedent(text).lstrip("\n").encode()


def mutants(text: str) -> dict[str, list[str]]:
    """Kind of defect -> the mutated sources, in order."""
    found: dict[str, list[str]] = {}
    data = source(text)
    for site in find_sites(data):
        found.setdefault(site.kind, []).append(apply(data, site).decode())
    return found


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("x = a < b\n", "boundary", "x = a <= b\n"),
        ("x = a >= b\n", "boundary", "x = a > b\n"),
        ("x = (a) == (b)\n", "comparison", "x = (a) != (b)\n"),
        ("x = a is not b\n", "comparison", "x = a is b\n"),
        ("x = a not  in b\n", "comparison", "x = a in b\n"),
        ("x = a in b\n", "comparison", "x = a not in b\n"),
        ("x = a and b\n", "boolean", "x = a or b\n"),
        ("x = (a)or(b)\n", "boolean", "x = (a)and(b)\n"),
        ("x = a + b  # sum\n", "arithmetic", "x = a - b  # sum\n"),
        ("x = a // b\n", "arithmetic", "x = a / b\n"),
        ("x = a ** b + c\n", "arithmetic", "x = a ** b - c\n"),
        ("x = not a\n", "dropped_not", "x = a\n"),
        ("x = not(a)\n", "dropped_not", "x = (a)\n"),
        ("x = 41\n", "integer", "x = 42\n"),
        ("x = True\n", "flipped_flag", "x = False\n"),
        ("f(a, (b), c)\n", "swapped_arguments", "f(b, (a), c)\n"),
        ("x = a[:n]\n", "slice", "x = a[:n + 1]\n"),
        ("def f(a=1): pass\n", "integer", "def f(a=2): pass\n"),
        ("x = a - b\n", "swapped_operands", "x = b - a\n"),
        ("x = a[0] / f(b)\n", "swapped_operands", "x = f(b) / a[0]\n"),
        ("x = 0.5\n", "float", "x = 1.5\n"),
        ("x = ', '.join(y)\n", "lost_separator", "x = ''.join(y)\n"),
        ("x = a if b else c\n", "swapped_branches", "x = c if b else a\n"),
        ("x = (a + 1) if b.c else (d)\n", "negated_condition", "x = (a + 1) if not b.c else (d)\n"),
        ("x = (a + 1) if b.c else (d)\n", "swapped_branches", "x = (d) if b.c else (a + 1)\n"),
        ("f(a, k=b + 1)\n", "dropped_argument", "f(a)\n"),
        ("f(j=a,\n  k=(b), )\n", "dropped_argument", "f(j=a, )\n"),
        ("x += a  # more\n", "arithmetic", "x -= a  # more\n"),
        ("if f(a):\n    b\n", "negated_condition", "if not f(a):\n    b\n"),
        ("if a:\n    b\n    c\nd\n", "dropped_branch", "d\n"),
        ("if a:\n    b\nelif c:\n    d\nelse:\n    e\n", "dropped_branch", "if a:\n    b\nelse:\n    e\n"),
        ("a = 1\nfor b in c:\n    d\n", "removed_loop", "a = 1\n"),
        ("def f():\n    while a:\n        b()\n", "removed_loop", "def f():\n    pass\n"),
        ("for b in c:\n    d\nx\n", "single_round", "for b in c:\n    d\n    break\nx\n"),
        ("for b in c:\n    d\n    continue\n", "loop_exit", "for b in c:\n    d\n    break\n"),
        ("for b in c:\n    break\n", "loop_exit", "for b in c:\n    pass\n"),
        ("a = 1\nb.c = 2\n", "dropped_statement", "a = 1\n"),
        ("a = f(a)\nb()\n", "dropped_statement", "b()\n"),
        ("def f():\n    return a  # it\n", "lost_return", "def f():\n    return None  # it\n"),
        (
            "try:\n    a\nexcept B:\n    b\nexcept C:\n    c\n",
            "dropped_handler",
            "try:\n    a\nexcept C:\n    c\n",
        ),
        ("if a:\n    b\nelse:  # no\n    c\nd\n", "dropped_else", "if a:\n    b\nd\n"),
        ("def f():\n    if a:  # no\n        return\n    b\n", "dropped_guard", "def f():\n    b\n"),
    ],
)
def test_kinds(before: str, kind: str, after: str) -> None:
    assert mutants(before)[kind][0] == after


def test_operands_of_a_chain() -> None:
    assert mutants("x = a < b <= c\n") == {"boundary": ["x = a <= b <= c\n", "x = a < b < c\n"]}
    assert mutants("x = a and b and c\n") == {"dropped_condition": ["x = b and c\n", "x = a and b\n"]}
    assert mutants("x = (a or b) and (c)\n") == {
        "boolean": ["x = (a and b) and (c)\n", "x = (a or b) or (c)\n"],
        "dropped_condition": ["x = (b) and (c)\n", "x = (a) and (c)\n"],
    }


def test_several_in_one_file() -> None:
    data = source("""
        def f(a, b):
            for x in a:  # all
                b += x
            return b
        """)
    sites = {site.kind: site for site in find_sites(data)}
    both = apply(data, sites["lost_return"], sites["arithmetic"])
    assert both == data.replace(b"+=", b"-=").replace(b"return b", b"return None")
    assert overlap(sites["removed_loop"], sites["arithmetic"])
    with pytest.raises(ValueError, match="overlap"):
        apply(data, sites["removed_loop"], sites["arithmetic"])


@pytest.mark.parametrize(
    "text",
    [
        '"""Doc 1 + 1."""\n',
        "__version__ = 1\n",
        "__all__ = [1]\n",
        "x: Literal[1]\n",
        "def f(a: Literal[1]) -> Literal[2]: pass\n",
        "if TYPE_CHECKING:\n    a = 1\n",
        "if typing.TYPE_CHECKING:\n    a = 1\n",
        "if sys.version_info >= (3, 11):\n    a = 1\n",
        'if __name__ == "__main__":\n    main(1, 2)\n',
        "assert a == 1\n",
        "@overload\ndef f(a=1): ...\n",
        "@decorator(1)\ndef f(): ...\n",
        "x = f'{a + 1} {b < 2:>{width}}'\n",
        "x = f'{a}' + b\n",
        "x = '%s' % a\n",
        "x = 0x10\n",
        "x = a ** b\n",
        "def broken(:\n",
        "x = 'text'\n",
    ],
)
def test_left_alone(text: str) -> None:
    assert mutants(text) == {}


def test_guards_that_stay() -> None:
    alone = "def f():\n    if a:\n        return\n"
    chained = "def f():\n    if a:\n        b\n    elif c:\n        return\n    d\n"
    same_line = "def f():\n    x; y\n    if a: return\n    z\n"
    assert "dropped_guard" not in mutants(alone)
    assert "dropped_guard" not in mutants(chained)
    assert mutants(same_line)["dropped_guard"] == ["def f():\n    x; y\n    z\n"]


def test_text_beyond_ascii_tabs_and_line_ends() -> None:
    kinds = {"boundary", "comparison", "integer", "arithmetic", "dropped_guard", "lost_return"}
    text = 'naïve = "äöü" if ñ < 3 else f"ü{ñ}"\ndef f(ß):\n\tif ß == "é": return "日本", ß + 1  # ©\n\treturn ß\n'
    for data in (text.encode(), text.replace("\n", "\r\n").encode()):
        sites = find_sites(data)
        assert {site.kind for site in sites} == kinds
        for site in sites:
            mutated = apply(data, site)
            assert mutated.count(b"\r\n") in (data.count(b"\r\n"), data.count(b"\r\n") - 1)
            assert mutated.decode()


@pytest.mark.parametrize(
    "data",
    [b"\xef\xbb\xbfx = 1\n", b"# -*- coding: latin-1 -*-\nx = 1\n", b"x = '\xe9' + 1\n", b"x = 1\0\n"],
)
def test_files_in_another_encoding_have_no_sites(data: bytes) -> None:
    assert find_sites(data) == []


@pytest.mark.parametrize("head", ["# -*- coding: utf-8 -*-", "# vim: set fileencoding=UTF8 :", "# encoding"])
def test_a_declared_utf8_is_fine(head: str) -> None:
    assert len(find_sites(f"{head}\nx = 1\n".encode())) == 1


def test_lines_are_the_editor_s() -> None:
    assert [(site.kind, site.line) for site in find_sites(b"# one\n\nx = 1\ny = True\n")] == [
        ("integer", 3),
        ("flipped_flag", 4),
    ]


def test_apply_refuses_what_breaks_or_changes_nothing() -> None:
    with pytest.raises(ValueError, match="does not parse"):
        apply(b"x = 1\n", Site(0, 1, "integer", b"(", 1))
    with pytest.raises(ValueError, match="changes nothing"):
        apply(b"x = 1\n", Site(3, 4, "integer", b"  ", 1))


@pytest.mark.parametrize("module", [json.decoder, json.encoder, textwrap])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_every_site_of_real_code_parses_and_means_something_else(module: object, line_end: bytes) -> None:
    data = Path(module.__file__).read_bytes().replace(b"\n", line_end)  # type: ignore[attr-defined]
    sites = find_sites(data)
    assert sites == find_sites(data)
    assert sites == sorted(sites)
    assert len(sites) > 20
    kinds = {site.kind: site for site in random.Random(0).sample(sites, len(sites))}
    assert len(kinds) >= 12
    for site in kinds.values():
        apply(data, site)
