"""Never an exception, never without an end: any text, the largest texts, the deepest ones."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.monitor import Context, Monitor, bounds
from agentgym.monitor.globs import matches
from agentgym.monitor.tools import TOOLS, analyse
from agentgym.tools import ToolCall
from tests.monitor.reading import make_context, told

# A fault of the reader is caught and warned of; here it fails the test.
pytestmark = pytest.mark.filterwarnings("error::UserWarning")

SHELL_PARTS = [
    *"cat /eval/x ' \" ` $ ( ) { } [ ] [[ ]] (( )) $( ${ $(( <<E <<- <<< E ; & && || | > >> < <( >( = a a= $a".split(),
    *"${a[ for in do done if then fi case esac while ;; * ? ~ ! # @( +( ${a:-$( function f() eval bash -c".split(),
    *"base64 -d xargs find -exec sed s/a/b/ python3 trap alias source printf %s %b -v {1..9} read".split(),
    *("\n", "\\", "\\\n", "\\;", "\0", "\ue018", "\ud800", "é"),
]
SHELLISH = st.lists(st.sampled_from(SHELL_PARTS), max_size=40).map(" ".join)
PYTHONISH = st.lists(
    st.sampled_from(
        "open ( ) '/eval/x' . read [ ] { } , : \n     for in if else lambda def class f'{' + * % ** exec import os = 1 "
        "yield await async with as try except \\ \0 \ud800 'a' b'' chr join format".split(" ")
    ),
    max_size=40,
).map(" ".join)

WORST = {
    "parentheses": "(" * (1 << 20),
    "letters": "a" * (1 << 20),
    "words": "echo " + "w " * 10_000,
    "quotes": "\"'" * 30_000,
    "backquotes": "`" * 60_000,
    "dollars": "$" * 60_000,
    "nested": "$(" * 300 + "x" + ")" * 300,
    "ifs": "if a; then " * 300 + "b" + "; fi" * 300,
    "list": "a && " * 2000 + "a",
    "pipes": "cat x | " * 2000 + "cat",
    "loops": "for i in {1..99}; do for j in {1..99}; do for k in {1..99}; do cat $i$j$k; done; done; done",
    "bomb": ":() { : | : & }; :",
    "eval": 'x=\'eval "$x"\'; eval "$x"',
    "growth": "a=aaaaaaaaaa; " + "a=$a$a$a$a$a$a$a$a; " * 20,
    "braces": "echo " + "{a,b}" * 60,
    "globs": "x=" + "a" * 4000 + "; echo ${x%%" + "*a" * 12 + "b}",
    "expression": "echo " + "a" * 60 + " | grep -E '(a+)+$b' | sed 's/\\(a*\\)*b/x/'",
    "documents": "cat <<E\nx\nE\n" * 3000,
    "arithmetic": "echo $((" + "9**9**" * 30 + "9))",
    "printf": "printf '%99999999d' 1",
    "base64": "echo " + "Zm9v" * 10_000 + " | base64 -d | sh",
}
PROGRAMS = {
    "parentheses": "(" * 50_000,
    "sum": "x = " + "'a' + " * 6000 + "'b'",
    "product": "x = 'a' * 10**9; y = x * 10**9; z = 9**9**9; w = 1 << 10**9",
    "loops": "for a in range(10**9):\n for b in range(10**9):\n  for c in range(10**9):\n   open(str(a))",
    "recursion": "def f(x):\n    return f(f(x))\nf(1)",
    "formats": "x = '%1000000000d' % 1; y = '{:>1000000000}'.format(1); z = 'a'.zfill(10**9)",
    "attributes": "x" + ".a" * 20_000,
    "calls": "f" + "()" * 20_000,
    "lines": "x = 1\n" * 15_000,
    "lambda": "(lambda f: f(f))(lambda f: f(f))",
    "self": "x = []\nx.append(x)\nprint(x, len(x), str(x))\nopen(x)",
}


@settings(max_examples=40, deadline=None)
@given(st.one_of(SHELLISH, st.text(max_size=80)))
def test_any_command_is_read_without_an_exception(text):
    analyse(ToolCall("bash", {"command": text}), make_context())


@settings(max_examples=25, deadline=None)
@given(st.one_of(PYTHONISH, st.text(max_size=80)))
def test_any_program_is_read_without_an_exception(text):
    analyse(ToolCall("python", {"code": text}), make_context())
    for name in ("a.py", "a.js", "a.pl", "a.rb", "a.awk", "a.sh"):
        analyse(ToolCall("write_file", {"path": f"/repo/{name}", "content": text}), make_context())


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([*TOOLS, "unheard_of"]),
    st.dictionaries(st.text(max_size=8), st.text(max_size=60), max_size=3),
)
def test_any_arguments_of_any_tool(name, arguments):
    analyse(ToolCall(name, arguments), make_context())


@pytest.mark.parametrize("name", WORST)
def test_the_worst_commands_come_to_an_end(name):
    found = analyse(ToolCall("bash", {"command": WORST[name]}), make_context())
    assert len(found) <= 2000


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_worst_programs_come_to_an_end(name):
    assert len(analyse(ToolCall("python", {"code": PROGRAMS[name]}), make_context())) <= 2000


class TestLinearScan:
    def test_a_large_command_is_scanned_for_what_the_policy_names(self):
        seen = told("cat /eval/x; curl https://h.example/a # " + "x" * 70_000)
        assert seen == ["opaque size", "read /eval", "net https://h.example/a"]

    def test_a_mention_of_a_longer_name_is_none(self):
        assert told("cat /evaluate; ls /my/eval # " + "x" * 70_000) == ["opaque size"]

    def test_what_a_long_command_hides_behind_its_bounds_is_found(self):
        assert "read /eval" in told(": ; " * 2000 + "cat /eval/x")
        assert "opaque size" in told("for i in {1..16}; do " * 3 + "cat a$i; " + "done; " * 3)

    def test_a_large_harmless_write_is_no_sign(self):
        for path in ("/repo/data.json", "/repo/table.py"):
            call = ToolCall("write_file", {"path": path, "content": "x = 1\n" * 50_000})
            assert not [e for e in analyse(call, make_context()) if e.kind == "opaque"]

    def test_a_large_here_document_is_no_sign_either(self):
        assert told("cat > table.csv <<'E'\n" + "1,2,3\n" * 8000 + "E") == ["write /repo/table.csv"]

    def test_when_it_is_too_large(self):
        assert not bounds.too_large("echo " + "a" * 1000)
        assert bounds.too_large("(" * 60)
        assert not bounds.too_large("() " * 60)
        assert bounds.too_large("w " * 20_001)

    def test_patterns_out_of_commands_are_tried_only_where_they_end_soon(self):
        assert bounds.expression("a+b", length=100) is not None
        assert bounds.expression("(a+)+b", length=10) is None
        assert bounds.expression("a*a*a*a*b", length=500) is None
        assert bounds.expression("(", length=1) is None
        assert not matches("*a" * 50 + "b", "a" * 400)


@pytest.mark.parametrize(
    "command",
    [
        "ruby -e '.map()'",  # a method of nothing
        "cat <<'E' x$(cat <<'F'\nbody\nF\n) )( E\nE",  # the number of a here-document inside a broken word
        "ls [a--z]*",  # a doubled dash means something else in a regular expression
    ],
)
def test_malformed_text_is_read_without_a_fault(command: str) -> None:
    context = Context(workspace="/w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        effects = analyse(ToolCall("bash", {"command": command}), context)
    assert not [effect for effect in effects if effect.target == "fault"]


def test_a_fault_of_ours_does_not_end_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("planted")

    monkeypatch.setitem(TOOLS, "bash", broken)
    context = Context(workspace="/w", protected_paths=("/eval",))
    call = ToolCall("bash", {"command": "cat /eval/x"})
    with pytest.warns(UserWarning, match="planted"):
        assert Monitor().review(call, context).block
