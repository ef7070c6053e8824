"""Folding: from the syntax tree of a word to the fields it becomes when bash runs it.

Everything that follows from the text and the state is computed: quotes, variables with their operators, command
substitution of commands whose output is known, arithmetic, braces, tilde, ANSI-C strings. What is not known becomes a
`HOLE`; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from agentgym.monitor import arithmetic, fields, parameters
from agentgym.monitor.effects import HOLE
from agentgym.monitor.syntax import inside_quotes, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from agentgym.monitor.state import ShellState

MAX_WORD = 64 * 1024
"""Characters one word may grow to; a longer one is cut and ends in a hole."""

_ESCAPE = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_STRING_ESCAPE = re.compile(r'\\(?:\n|([$`"\\]))')
_ANSI_C = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_NAMES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}
_SIMPLE = re.compile(r"[\w./:=,+@%^-]*\Z", re.ASCII)
_FRAGMENT = re.compile(r"[$`\"'\\]")


class Runner(Protocol):
    """What folding needs of the shell it is part of."""

    state: ShellState
    positional: tuple[str, ...]

    def parse(self, text: str) -> Node:
        """The syntax tree of shell source."""
        ...

    def capture(self, node: Node) -> str:
        """The output of the commands in a substitution, without trailing newlines."""
        ...

    def substitute_process(self, node: Node) -> str:
        """The path under which the commands of ``<(..)`` or ``>(..)`` are reached."""
        ...

    def expand_glob(self, pattern: str) -> list[str]:
        """The paths that an encoded glob stands for."""
        ...


def ansi_c(text: str) -> str:
    r"""The inside of ``$'..'`` (and of echo -e, printf): escapes such as ``\x41`` replaced."""
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        octal, hexa, short, long, control, other = match.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        digits = hexa or short or long
        if digits:
            code = int(digits, 16)
            return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else HOLE
        if control:
            return chr(ord(control) & 0x1F)
        return _ANSI_NAMES.get(other, other if other in "\\'\"?" else "\\" + other)

    return _ANSI_C.sub(one, text)


class Words:
    """Folds the words of one shell.

    Args:
        shell: gives state and runs what stands in substitutions.
    """

    def __init__(self, shell: Runner) -> None:
        self.shell = shell

    def fields(self, node: Node) -> list[str]:
        """The words that `node` becomes as an argument."""
        if node.type == "word":
            text = text_of(node)
            if _SIMPLE.match(text):
                return [text]
        encoded = self.encode(node)
        if not fields.is_special(encoded):
            return [encoded] if encoded else []
        out: list[str] = []
        for part in fields.split(encoded):
            part = self._tilde(part)
            out.extend(self.shell.expand_glob(part) if fields.is_glob(part) else [fields.plain(part)])
        return out

    def text(self, node: Node) -> str:
        """`node` as one string, as on the right of ``=`` or in a here-document: no splitting, no globs."""
        if node.type == "word":
            text = text_of(node)
            if _SIMPLE.match(text):
                return text
        return fields.plain(self._tilde(self.encode(node)))

    def encode(self, node: Node, quoted: bool = False) -> str:
        """`node` in the encoding of `fields`."""
        fold = _FOLDS.get(node.type)
        encoded = fold(self, node, quoted) if fold else self._children(node, quoted)
        return encoded if len(encoded) <= MAX_WORD else encoded[:MAX_WORD] + HOLE

    def fragment(self, text: str, quoted: bool = False) -> str:
        """Source text inside ``${..}`` or ``$((..))``, in the encoding."""
        if not _FRAGMENT.search(text):
            return fields.literal(text) if quoted else text
        if quoted:
            return self._source('"' + re.sub(r'(?<!\\)"', r"\"", text) + '"')
        if re.search(r"[\s(){}<>;&|#]", text):
            return self._source('"' + text.replace('"', "") + '"')
        return self._source(text)

    def here_document(self, body: str) -> str:
        """The text of a here-document whose delimiter was not quoted; a quote is no more than a character in it."""
        if "$" not in body and "`" not in body and "\\" not in body:
            return body
        return fields.plain(self._source(f'"{inside_quotes(body)}"'))

    def _source(self, source: str) -> str:
        node = self.shell.parse(": " + source)
        while node.type != "command":
            if not node.named_children:
                return HOLE
            node = node.named_children[0]
        return "".join(self.encode(child) for child in node.named_children[1:])

    def _word(self, node: Node, quoted: bool) -> str:
        text = text_of(node)
        if "\\" in text:
            return _ESCAPE.sub(
                lambda m: fields.literal(m.group(1)) + fields.EMPTY if m.group(1) else "", text
            )
        return text

    def _children(self, node: Node, quoted: bool) -> str:
        """A node with no rule of its own: its parts, or its text where it has none (``{``, ``$``, a regex)."""
        if not node.named_child_count:
            return text_of(node)
        return "".join(self.encode(child, quoted) for child in node.children)

    def _raw_string(self, node: Node, quoted: bool) -> str:
        return fields.literal(text_of(node)[1:-1]) + fields.EMPTY

    def _ansi_c_string(self, node: Node, quoted: bool) -> str:
        return fields.literal(fields.clean(ansi_c(text_of(node)[2:-1]))) + fields.EMPTY

    def _string_content(self, node: Node, quoted: bool) -> str:
        return self._unescape(text_of(node))

    def _process_substitution(self, node: Node, quoted: bool) -> str:
        return fields.literal(self.shell.substitute_process(node))

    def _string(self, node: Node, quoted: bool) -> str:
        """A double-quoted string. The grammar drops white space between parts, so gaps are read from the source."""
        source = text_of(node)
        whole = node.text or b""
        start, end = node.start_byte, node.end_byte
        if source.startswith('"'):
            start, end = start + 1, end - 1
        out: list[str] = []
        at = start
        for child in node.named_children:
            if child.start_byte > at:
                out.append(
                    self._unescape(_slice(whole, at - node.start_byte, child.start_byte - node.start_byte))
                )
            text = text_of(child)
            if text[:1].isspace() and child.type != "string_content":  # the grammar counts it to what follows
                out.append(text[: len(text) - len(text.lstrip())])
            out.append(self.encode(child, True))
            at = child.end_byte
        if at < end:
            out.append(self._unescape(_slice(whole, at - node.start_byte, end - node.start_byte)))
        return "".join(out) + fields.EMPTY

    def _unescape(self, text: str) -> str:
        return fields.literal(_STRING_ESCAPE.sub(r"\1", text) if "\\" in text else text)

    def _simple_expansion(self, node: Node, quoted: bool) -> str:
        return self._value(parameters.value(text_of(node).lstrip()[1:], self.shell, self), quoted)

    def _expansion(self, node: Node, quoted: bool) -> str:
        return self._value(parameters.value(text_of(node).lstrip()[2:-1], self.shell, self, quoted), quoted)

    def _value(self, value: str | tuple[str, ...], quoted: bool) -> str:
        separators = self.shell.state.variables.get("IFS", " \t\n")
        if isinstance(value, tuple):
            return fields.SPLIT.join(
                fields.literal(v) + fields.EMPTY if quoted else fields.splitting(v, separators) for v in value
            )
        return fields.literal(value) if quoted else fields.splitting(value, separators)

    def _command_substitution(self, node: Node, quoted: bool) -> str:
        return self._value(fields.clean_output(self.shell.capture(node)), quoted)

    def _arithmetic(self, node: Node, quoted: bool) -> str:
        text = text_of(node).strip()
        inside = text[3:-2] if text.startswith("$((") else text[2:-1]
        return arithmetic.evaluate(
            fields.plain(self.fragment(inside, quoted=True)), self.shell.state.variables
        )

    def _tilde(self, encoded: str) -> str:
        if not encoded.startswith("~"):
            return encoded
        name, slash, rest = encoded[1:].partition("/")
        variables = self.shell.state.variables
        if name == "":
            home = variables.get("HOME", HOLE)
        elif name == "+":
            home = self.shell.state.cwd
        elif name == "-":
            home = self.shell.state.previous
        elif name.isidentifier():
            home = "/root" if name == "root" else f"/home/{name}"
        else:
            return encoded
        return home + slash + rest


def _slice(raw: bytes, start: int, end: int) -> str:
    return raw[start:end].decode("utf-8", "replace")


_FOLDS: dict[str, Callable[[Words, Node, bool], str]] = {
    "word": Words._word,
    "raw_string": Words._raw_string,
    "string": Words._string,
    "string_content": Words._string_content,
    "ansi_c_string": Words._ansi_c_string,
    "simple_expansion": Words._simple_expansion,
    "expansion": Words._expansion,
    "command_substitution": Words._command_substitution,
    "process_substitution": Words._process_substitution,
    "arithmetic_expansion": Words._arithmetic,
}
