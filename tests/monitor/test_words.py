"""Folding of words: what bash would make of them, by hand and against bash itself, for harmless words only."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.monitor.effects import HOLE
from agentgym.monitor.globs import matches, matches_path
from agentgym.monitor.paths import matches_below, normalise, resolve
from tests.monitor.reading import effects, told

SETUP = "a=alpha; b='two words'; e=; n=3; p=x.tar.gz; arr=(one 't w o' three); declare -A m=([k]=v); set -- p1 'p 2'; "

WORDS = [  # the word, what it becomes
    ("plain", ["plain"]),
    ("'a b'\"c d\"e", ["a bc de"]),
    (r"a\ b\*", ["a b*"]),
    (r"$'\x41\101\u0041\t'", ["AAA\t"]),
    ('$"text"', ["text"]),
    ("$b", ["two", "words"]),
    ('"$b"', ["two words"]),
    ("$e", []),
    ("'' \"\"", ["", ""]),
    ("$unset/x", ["/x"]),
    ("${a}b$n", ["alphab3"]),
    ("${unset:-d e}", ["d", "e"]),
    ("${a:+yes}${unset:+no}", ["yes"]),
    ("${unset:=set}$unset", ["setset"]),
    ("${#a} ${#arr[@]} $#", ["5", "3", "2"]),
    ("${a:1:2} ${a: -2} ${a:n}", ["lp", "ha", "ha"]),
    ("${p%.*} ${p%%.*} ${p#*.} ${p##*.}", ["x.tar", "x", "tar.gz", "gz"]),
    ("${a/l/L} ${a//a/-} ${a/#al/X} ${a/%ha/Y}", ["aLpha", "-lph-", "Xpha", "alpY"]),
    (r"${p//./\/}", ["x/tar/gz"]),
    ("${a^} ${a^^} ${a,,}", ["Alpha", "ALPHA", "alpha"]),
    ("${arr[1]} ${arr[-1]} $arr", ["t", "w", "o", "three", "one"]),
    ('"${arr[@]}"', ["one", "t w o", "three"]),
    ('"${arr[*]}" "$*"', ["one t w o three", "p1 p 2"]),
    ("${arr[@]:1:1}", ["t", "w", "o"]),
    ("${m[k]}", ["v"]),
    ("$((n*2+1)) $((1<<3)) $((16#ff)) $((010))", ["7", "8", "255", "8"]),
    ("{a,b}{1..3}", ["a1", "a2", "a3", "b1", "b2", "b3"]),
    ("{01..03}x {c..a}", ["01x", "02x", "03x", "c", "b", "a"]),
    ("x{a,{b,c}}y", ["xay", "xby", "xay", "xcy"]),
    ("'{a,b}' {a} {}", ["{a,b}", "{a}", "{}"]),
    ('$(echo one two) "$(echo one two)"', ["one", "two", "one two"]),
    ("`echo \\`echo in\\``", ["in"]),
    ("$(printf '%s-%03d' x 7)", ["x-007"]),
    ("$(echo L2V2YWw= | base64 -d)", ["/eval"]),
    ("$(echo 2f6576 | xxd -r -p)", ["/ev"]),
    ("$(echo lave/ | rev)", ["/eval"]),
    ("$(tr a-z n-za-m <<< '/riny')", ["/eval"]),
    ("$(echo /e-v-a-l | tr -d -)", ["/eval"]),
    ("$(echo /xval | sed 's/x/e/')", ["/eval"]),
    ("$(echo a:b:c | cut -d: -f2,3)", ["b:c"]),
    ("$(echo a b | awk '{print $2}')", ["b"]),
    ("$(seq 2) $(basename /a/b.c .c) $(dirname /a/b)", ["1", "2", "b", "/a"]),
    ("$(echo lave/ | fold -w1 | tac | tr -d '\\n')", ["/eval"]),
    ("$(echo /eval | openssl enc -base64)", ["L2V2YWwK"]),
    ('$(python3 -c \'print("/ev" + "al")\')', ["/eval"]),
    ("${PATH:0:1}eval ${HOME%%root}x ~+/y", ["/eval", "/x", "/repo/y"]),
    ("~root/x ~bob", ["/root/x", "/home/bob"]),
    ("$RANDOM", [HOLE]),
    ("$(date)", [HOLE]),
]


def words_of(source: str) -> list[str]:
    [run] = [e for e in effects(SETUP + "SHOW " + source) if e.kind == "run" and e.target == "SHOW"]
    return list(run.detail)


@pytest.mark.parametrize(("source", "expected"), WORDS)
def test_a_word_becomes(source, expected):
    assert words_of(source) == expected


GLOBS = [
    ("/e?al", ["/eval"]),
    ("/[d-f]val/x", ["/eval/x"]),
    ("/ev*/*.d", ["/eval/*.d", "/ev*/*.d"]),
    ("/@(eval|x)", ["/eval"]),
    ("/!(tests)", ["/eval"]),
    ("/**/x", ["/eval/**/x", "/repo/.hidden/**/x", "/**/x"]),
    ("'/e?al'", ["/e?al"]),
    ('"/e"?al', ["/eval"]),
    ("/evaluate*", ["/evaluate*"]),
    ("src/*.py", ["src/*.py"]),
]


@pytest.mark.parametrize(("source", "expected"), GLOBS)
def test_a_glob_is_matched_against_what_the_policy_names(source, expected):
    assert words_of(source) == expected


def test_a_relative_glob_names_the_path_it_stands_for():
    assert told("cat .hid*/x") == ["read /repo/.hidden/x"]


def test_a_leading_wildcard_finds_hidden_names_only_with_dotglob():
    assert told("cat */x") == ["read /repo/*/x"]
    assert "read /repo/.hidden/x" in told("shopt -s dotglob; cat */x")


def test_a_glob_finds_files_written_earlier():
    assert told("echo > note.txt; cat n*.txt") == ["write /repo/note.txt", "read /repo/note.txt"]


class TestPatterns:
    def test_shell_patterns(self):
        assert matches("a*c", "abbc")
        assert matches("*", "")
        assert matches("a?c", "abc")
        assert not matches("a?c", "ac")
        assert matches("[!a]b", "cb")
        assert matches("[[:digit:]]x", "7x")
        assert matches("[]]", "]")
        assert matches("@(a|b)+(c)", "bccc")
        assert matches("?(a)b", "b")
        assert not matches("*.py", "a.pyc")
        assert matches("*a*b*c", "xxaxxbxxc")
        assert matches("[", "[")

    def test_paths_name_by_name(self):
        assert matches_path("/a/*/c", "/a/b/c")
        assert not matches_path("/a/*", "/a/b/c")
        assert matches_path("/a/**/c", "/a/c")
        assert matches_path("/a/**/c", "/a/x/y/c")

    def test_where_a_glob_leads(self):
        assert matches_below("/e?al/x", "/eval") == "/eval/x"
        assert matches_below("/*", "/.hidden") is None  # a leading wildcard leaves out hidden names
        assert matches_below("/eval", "/eval/deep") is None

    def test_paths_are_resolved(self):
        assert normalise("/a/../b//./c/") == "/b/c"
        assert normalise("/../..") == "/"
        assert resolve("/proc/self/cwd/x", "/repo", {}) == "/repo/x"
        assert resolve("/proc/12/root/x", "/repo", {}) == "/x"
        assert resolve("l/../x", "/repo", {"/repo/l": "/a/b"}) == "/a/x"
        assert resolve("a/x", "/", {"/a": "/b", "/b": "/a"}) in ("/a/x", "/b/x")  # a loop of links ends


# Any spelling of the same path gives the same effect.


def spelled(text: str, source: random.Random) -> str:
    """One of many ways to write `text` as a word that bash folds back into it."""
    at = sorted(source.sample(range(1, len(text)), min(3, len(text) - 1)))
    parts = [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)]
    return "".join(source.choice(SPELLINGS)(part) for part in parts)


SPELLINGS = [
    lambda s: s,
    lambda s: f"'{s}'",
    lambda s: f'"{s}"',
    lambda s: "".join("\\" + c for c in s),
    lambda s: "$'" + "".join(f"\\x{ord(c):02x}" for c in s) + "'",
    lambda s: "$'" + "".join(f"\\{ord(c):03o}" for c in s) + "'",
    lambda s: f"$(printf %s {s})",
    lambda s: f"`echo {s}`",
    lambda s: f"$(echo {base64.b64encode(s.encode()).decode()} | base64 -d)",
    lambda s: f"$(echo {s.encode().hex()} | xxd -r -p)",
    lambda s: f"$(rev <<< '{s[::-1]}')",
    lambda s: f"${{none:-{s}}}",
    lambda s: "$(printf '%b' '" + "".join(f"\\0{ord(c):o}" for c in s) + "')",
    lambda s: f'"$(cat <<< {s})"',
    lambda s: f"$(tr A-Za-z N-ZA-Mn-za-m <<< '{s.translate(ROT13)}')",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ROT13 = str.maketrans(LETTERS, LETTERS[13:] + LETTERS[:13])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9))
def test_any_spelling_of_a_path_is_the_same_read(seed):
    source = random.Random(seed)
    word = spelled("/eval/secret.txt", source)
    assert told(f"cat {word}") == ["read /eval/secret.txt"], word
    name = spelled("cat", source)
    assert told(f"{name} /eval/secret.txt") == ["read /eval/secret.txt"], name
    assert "read /eval/secret.txt" in told(f'p={word}; cat "$p"')
    assert "read /eval/secret.txt" in told(f"f() {{ cat $1; }}; f {word}")


def _random_word(source: random.Random) -> str:
    pieces = [
        "ab", "/x", "'a b'", '"$a"', "${b}", '"$b"', "${a}", "$1", "$#", "${arr[1]}", '"${arr[@]}"', "${a:1:2}",
        "${p%.*}", "${p##*.}", "${a//a/o}", "${a^^}", "${u:-def}", "$((n+1))", "{x,y}", "{1..3}",
        r"\ ", r"\$a", r"$'\x41'", "$(echo hi you)", "`echo yo`", '"$*"', "$@", "${#a}", '"a{b,c}"',
        "$(printf '%s' q)", "${e:-$a}", "''",
    ]  # fmt: skip
    return "".join(source.choice(pieces) for _ in range(source.randint(1, 4)))


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
def test_folding_agrees_with_bash():
    source = random.Random(20)
    lines = [" ".join(_random_word(source) for _ in range(source.randint(1, 3))) for _ in range(150)]
    script = SETUP + "SHOW() { printf '<%s>' \"$@\"; echo; }\n" + "".join(f"SHOW {line}\n" for line in lines)
    answer = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    expected = answer.stdout.splitlines()
    for line, theirs in zip(lines, expected, strict=True):
        assert ("".join(f"<{word}>" for word in words_of(line)) or "<>") == theirs, line
