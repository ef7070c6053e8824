"""Protected paths that a program is handed in a way its row says nothing of: whoever is handed one reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis
    from agentgym.monitor.command import Command

_MENTIONING = frozenset(
    "echo printf basename dirname grep egrep fgrep rg ag ack sed awk gawk mawk jq find fd fdfind expr test [ [[ export "
    "declare local typeset readonly set unset alias eval let read mapfile logger notify-send say true false : "
    "gh glab seq yes return exit trap".split()
)
"""Programs whose words may speak of a path without opening it; those of them that open files say so themselves."""
_SCRIPTED = frozenset(
    "sqlite3 duckdb psql mysql mariadb emacs vim vi nvim ex gdb lldb tclsh expect wish bc dc gnuplot octave R ghci "
    "ocaml elixir osascript erl julia scala groovy kotlinc Rscript guile sbcl racket clojure jshell irb iex mongosh "
    "yq gcc cc g++ cpp clang m4 as ghc swipl nano mutt".split()
)
"""Programs that are given scripts of their own, where a path among the words is opened."""
_PATHS = re.compile(r"(?:^|(?<=[\s'\"(=,;:@<>|\[]))/[^\s'\"(),;:<>|&\]]+")
_SINGLE = re.compile(r"[^\s'\"()]+\Z")
"""A word that is no text and no program."""
_GLUED = re.compile(r"-[A-Za-z](/.*)")
_LEAVES_OUT = re.compile(r"--?[\w-]*(?:exclu|ignor|skip|omit|deselect|prune|without)")
_MESSAGES = frozenset("--message --grep --author --body --title --trailer --format --pretty".split())
_SHORT_MESSAGES = {
    "git": ("-m", "-S", "-G"),
    "hg": ("-m",),
    "svn": ("-m",),
    "pytest": ("-k", "-m"),
    "curl": ("-d", "-H", "-A", "-X", "--data", "--data-raw", "--data-binary", "--json", "--header"),
}
_LOADS = re.compile(
    r"\w*PATH\Z|LD_\w+|BASH_ENV\Z|ENV\Z|\w*STARTUP\Z|\w+OPT(?:ION)?S?\Z|HISTFILE\Z|RUBYLIB\Z|PERL5\w+|GIT_\w+|\w*CONFIG\w*\Z"
)
_COMMANDS = re.compile(
    r"(?:GIT_)?(?:PAGER|EDITOR|SEQUENCE_EDITOR)\Z|GIT_\w*(?:DIFF|COMMAND|ASKPASS)\Z|PROMPT_COMMAND\Z|LESSOPEN\Z"
)


def follow(command: Command, start: int) -> None:
    """Says of the protected paths among the arguments, which no effect from `start` on names, that they are read."""
    context = command.analysis.context
    if command.name in _MENTIONING or not context.protected_paths:
        return
    words = list(_opened(command)) if any("/" in word for word in command.arguments) or command.stdin else []
    if not words:
        return
    said = {effect.target for effect in command.analysis.effects[start:]}
    for word in words:
        target = command.analysis.locate(word)[0]
        if target not in said and context.protection_of(target) == "protected":
            said.add(target)
            command.read(word)


def _opened(command: Command) -> Iterator[str]:
    """The words, and parts of words, that the program would open if they are paths."""
    scripted = command.name in _SCRIPTED
    before = ""
    spoken = _SHORT_MESSAGES.get(command.name, ())
    for word in command.arguments:
        last, before = before, word
        if "/" not in word or "://" in word or last in _MESSAGES or last in spoken or leaves_out(last, word):
            continue
        if word.partition("=")[0] in _MESSAGES or word[:2] in spoken:
            continue
        single = _SINGLE.match(word) is not None
        if single and word[0] not in "-/":
            yield word
        if single or scripted:
            yield from _PATHS.findall(word)
        if single and (glued := _GLUED.match(word)):
            yield glued.group(1)
    if scripted and command.stdin and command.stdin != HOLE and "/" in command.stdin:
        yield from _PATHS.findall(command.stdin)


def leaves_out(before: str, word: str) -> bool:
    """Whether `word`, which follows `before`, names what a program is to leave out."""
    return _LEAVES_OUT.match(before) is not None or _LEAVES_OUT.match(word) is not None


def by_variable(analysis: Analysis, name: str, text: str) -> None:
    """A variable that programs look at is set: they load what lies in the paths it names, or run it as a command."""
    if "/" not in text or not analysis.context.protected_paths:
        return
    if _COMMANDS.match(name) and " " in text:
        with analysis.deeper() as possible:
            if possible:
                analysis.make_shell(("sh",), "").run_text(text)
    elif _LOADS.match(name):
        for path in re.findall(r"/[^\s:,;'\"]+", text):
            if analysis.context.protection_of(analysis.locate(path)[0]) == "protected":
                analysis.read(path, name)
