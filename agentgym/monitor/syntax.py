"""From shell text to a syntax tree, with what tree-sitter-bash gets wrong taken out of its way first.

The grammar ends a word too early after ``$a/$b`` and before a backquote, loses a space after a backslash, and stumbles
over here-documents and here-strings that share a line with a pipe, a redirection or each other, over ``<>``, ``$".."``
and extended globs. `prepare` replaces them by forms it reads well; the bodies of here-documents are kept aside.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentgym.errors import MissingDependency
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

MARK = "\ue018"
"""Around the number of a here-document in prepared text, after ``<``."""
STRING_MARK = "\ue01c"
"""Before the word of a here-string in prepared text, after ``<``."""
_OPEN, _BAR, _CLOSE, _HOLE = "\ue019", "\ue01a", "\ue01b", "\ue01d"
_BACK = str.maketrans({_OPEN: "(", _BAR: "|", _CLOSE: ")", _HOLE: HOLE})
_WANTS_PREPARING = re.compile(r'<<|<>|\$["\w@*#?!$-]|[?*+@!]\(|[`\\]')
_TOKEN = re.compile(
    r"""\\.|\$'(?:\\.|[^'\\])*'|'|\$"|"|\$(?P<name>[A-Za-z_]\w*|[0-9@*#?!$-])|\$\(\(|\$\(|\$\{|\(\(|[?*+@!]\(|[()}`|]|<<<|<<-?|<>|\#|\n""",
    re.DOTALL,
)
_BACKQUOTE = re.compile(r"((?:\\.|[^`\\])*)`", re.DOTALL)
_DELIMITER = re.compile(r"""[ \t]*((?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s'"\\;&|<>()])+)""")
_COMMAND_START = re.compile(r"(?:^|[;&|({\n]|\b(?:if|while|until|then|do|else|elif))[ \t]*\Z")

_parser: Parser | None = None


class HereDocument(NamedTuple):
    """The body of a here-document, and whether it is expanded (its delimiter was not quoted)."""

    body: str
    expands: bool


class Prepared(NamedTuple):
    """Shell text that the grammar reads well; ``< MARK n MARK`` stands for `documents[n]`."""

    text: str
    documents: list[HereDocument]


def parse(text: str) -> Tree:
    """The syntax tree of prepared shell text."""
    return require().parse(text.encode("utf-8", "replace"))


def require() -> Parser:
    """The parser.

    Raises:
        MissingDependency: tree-sitter is not installed.
    """
    global _parser
    if _parser is None:
        _parser = _load()
    return _parser


def _load() -> Parser:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise MissingDependency(
            f"reading shell commands needs tree-sitter ({error}); run: pip install 'agentgym-suite[monitor]'"
        ) from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def text_of(node: Node) -> str:
    """The source of `node`, with what `prepare` put stand-ins for: parentheses of extended globs, holes."""
    raw = node.text or b""
    text = raw.decode("utf-8", "replace")
    return text.translate(_BACK) if b"\xee\x80" in raw else text


def inside_quotes(body: str) -> str:
    """The body of a here-document that expands, as it stands between double quotes: there a quote is escaped."""
    escaped = {'"': r"\"", r"\"": r"\\\"", r"\\": r"\\"}
    return re.sub(r'\\\\|\\"|"', lambda match: escaped[match.group()], body)


def restored(text: str, documents: Sequence[HereDocument]) -> str:
    """Prepared `text` as source: here-documents become here-strings."""

    def back(match: re.Match[str]) -> str:
        document = documents[int(match.group(1))]
        body = document.body.removesuffix("\n")
        return f'<<< "{inside_quotes(body)}"' if document.expands else f"<<< {shlex.quote(body)}"

    return re.sub(f"< {MARK}([0-9]+){MARK}", back, text.replace(f"< {STRING_MARK}", "<<< "))


def prepare(text: str, first: int = 0) -> Prepared:
    """`text` for `parse`, its here-documents numbered from `first`. It must not hold private characters."""
    text = text.replace(HOLE, _HOLE)
    if not _WANTS_PREPARING.search(text):
        return Prepared(text, [])
    return _Preparer(text, first).run()


def _quoted(char: str) -> str:
    """What stands for a character after a backslash outside quotes; a backslash ends a line without ending it."""
    if char == "\n":
        return ""
    return '"\'"' if char == "'" else f"'{char}'"


class _Preparer:
    """One pass over shell text that knows quotes, substitutions and comments, nothing more."""

    def __init__(self, text: str, first: int) -> None:
        self.text = text
        self.first = first
        self.out: list[str] = []
        self.copied = 0
        self.documents: list[HereDocument] = []
        self.waiting: list[tuple[int, str, bool]] = []  # number, delimiter, strips tabs
        # What is open: "(" and "$(" hold commands, "((" arithmetic, '"' text, "${" a parameter, "@" a glob.
        self.stack: list[str] = []

    def run(self) -> Prepared:
        at = 0
        while match := _TOKEN.search(self.text, at):
            at = self._step(match)
        self.out.append(self.text[self.copied :])
        return Prepared("".join(self.out), self.documents)

    def _replace(self, start: int, end: int, by: str) -> None:
        self.out.append(self.text[self.copied : start])
        self.out.append(by)
        self.copied = end

    def _step(self, match: re.Match[str]) -> int:
        token, start, end = match.group(), match.start(), match.end()
        top = self.stack[-1] if self.stack else ""
        if token == "\n" and self.waiting:
            return self._read_bodies(end)
        if token[0] == "\\":
            if top not in ('"', "${", "(("):
                self._replace(start, end, _quoted(token[1]))
            return end
        if len(token) > 2 and token[1] == "'":
            return end
        if token == "`":
            return self._backquotes(start, end)
        if (name := match.group("name")) is not None:
            self._replace(start, end, f"${{{name}}}")
            return end
        if top == '"':
            self._inside_string(token)
            return start + 1 if token == "$'" else end
        if token == "'":
            close = self.text.find("'", end)
            return len(self.text) if close < 0 else close + 1
        if token in ('"', '$"'):
            if len(token) == 2:
                self._replace(start, end, '"')
            self.stack.append('"')
        elif token == "#":
            before = self.text[start - 1 : start]
            if (not before or before in " \t\n;&|(") and top not in ("${", "(("):
                line_end = self.text.find("\n", end)
                return len(self.text) if line_end < 0 else line_end
        elif token in ("<<", "<<-", "<>", "<<<"):
            return self._redirect(token, start, end, top)
        else:
            self._bracket(token, start, end, top)
        return end

    def _inside_string(self, token: str) -> None:
        if token in ('"', '$"'):
            self.stack.pop()
        elif token in ("$(", "$((", "${"):
            self.stack.append("((" if token == "$((" else token)

    def _backquotes(self, start: int, end: int) -> int:
        """`` `..` `` becomes ``$(..)``, one level of backslashes taken off."""
        closing = _BACKQUOTE.match(self.text, end)
        inside = closing.group(1) if closing else self.text[end:]
        inner = prepare(re.sub(r"\\([`$\\])", r"\1", inside), self.first + len(self.documents))
        self.documents.extend(inner.documents)
        stop = closing.end() if closing else len(self.text)
        self._replace(start, stop, f"$({inner.text})")
        return stop

    def _bracket(self, token: str, start: int, end: int, top: str) -> None:
        if token in ("$(", "${", "("):
            self.stack.append(token)
        elif token in ("$((", "(("):
            self.stack.append("((")
        elif token == "|":
            if top == "@":
                self._replace(start, end, _BAR)
        elif token == ")":
            if top == "((" and self.text.startswith(")", end):
                self.stack[-1] = "("  # the second parenthesis closes it
            elif top in ("(", "$(", "@", "(("):
                if top == "@":
                    self._replace(start, end, _CLOSE)
                self.stack.pop()
        elif token == "}":
            if top == "${":
                self.stack.pop()
        elif len(token) == 2 and token[1] == "(":
            self._extended_glob(token, start, end, top)

    def _extended_glob(self, token: str, start: int, end: int, top: str) -> None:
        before = self.text[max(0, start - 40) : start]
        if top in ("${", "((") or (token[0] == "!" and _COMMAND_START.search(before)):
            self.stack.append("(")
            return
        self._replace(start + 1, end, _OPEN)
        self.stack.append("@")

    def _redirect(self, token: str, start: int, end: int, top: str) -> int:
        if top == "((" or top == "${":
            return end
        if token == "<<<":
            while self.text[end : end + 1] in (" ", "\t"):
                end += 1
            self._replace(start, end, f"< {STRING_MARK}")
            return end
        if token == "<>":
            self._replace(start, end, "< ")  # a file opened both ways can be read; that is what matters
            return end
        delimiter = _DELIMITER.match(self.text, end)
        if delimiter is None:
            return end
        word = delimiter.group(1)
        quoted = any(c in word for c in "'\"\\")
        name = re.sub(r"\\(.)", r"\1", word).replace("'", "").replace('"', "") if quoted else word
        self.waiting.append((len(self.documents), name, token == "<<-"))
        self._replace(start, delimiter.end(), f"< {MARK}{self.first + len(self.documents)}{MARK}")
        self.documents.append(HereDocument("", not quoted))
        return delimiter.end()

    def _read_bodies(self, at: int) -> int:
        """Takes the bodies of the waiting here-documents out of the text; returns where the next command starts."""
        start = at
        for number, delimiter, strips in self.waiting:
            lines: list[str] = []
            while at < len(self.text):
                line_end = self.text.find("\n", at)
                line_end = len(self.text) if line_end < 0 else line_end
                line = self.text[at:line_end]
                at = line_end + 1
                line = line.lstrip("\t") if strips else line
                if line == delimiter:
                    break
                lines.append(line + "\n")
            document = self.documents[number]
            self.documents[number] = document._replace(body="".join(lines))
        self.waiting.clear()
        self._replace(start, min(at, len(self.text)), "")
        return min(at, len(self.text))
