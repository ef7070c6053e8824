"""Languages without a parser of their own: strings are folded, calls that reach outside become effects.

One pass over the tokens. It knows strings with interpolation, concatenation, names bound to strings, lists that are
joined, and calls; whatever else a language has is stepped over. That is enough for JavaScript, Perl, Ruby, PHP, awk,
Lua and kin as far as the outside is concerned, and it cannot loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentgym.monitor import paths
from agentgym.monitor.code.verbs import Arguments, Value, called, text_of
from agentgym.monitor.effects import HOLE
from agentgym.monitor.words import ansi_c

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

MAX_TOKENS = 3000
MAX_DEPTH = 30
MAX_STRING = 4096

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/|\#!?\s[^\n]*)|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`)"""
    r"""|(?P<name>[$@%&]?[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*[!?]?)|(?P<number>\d+)"""
    r"""|(?P<other>\.\.|->|=>|==+|!=|<=|>=|>>|:=|[+.]=|\|\||&&|[^\s\w])|(?P<line>\n)""",
    re.DOTALL,
)
_JOINS = {"perl": ".", "php": ".", "lua": "..", "sql": "||", "r": "%+%", "awk": ""}
_INTERPOLATED = {
    "javascript": re.compile(r"\$\{([^{}]*)\}"),
    "ruby": re.compile(r"#\{([^{}]*)\}"),
    "perl": re.compile(r"\$\{?(\w+)\}?"),
    "php": re.compile(r"\{?\$(\w+)\}?"),
    "groovy": re.compile(r"\$\{?(\w+)\}?"),
    "julia": re.compile(r"\$\(?(\w+)\)?"),
}
_KEYWORDS = frozenset(
    "my our local const let var return new await async not if unless while foreach for of in".split()
)
_COMMAND_CALLS = frozenset("perl ruby awk lua tcl r sql".split())
_PRINTS = frozenset(
    "print printf println puts say echo console.log process.stdout.write io.write putstrln cat".split()
)
_INCLUDES = frozenset("include include_once require_once from import".split())
# What Perl and Ruby let stand between delimiters of the writer's choice, each ended by its own.
_DELIMITED = r"(?:\{([^{}]*)\}|\(([^()]*)\)|\[([^\[\]]*)\]|<([^<>]*)>|\|([^|]*)\||/([^/]*)/|!([^!]*)!)"
_QUOTED_COMMAND = re.compile(rf"`([^`]+)`|(?<![\w$@%&>])(?:qx\s*|%x){_DELIMITED}")
_QUOTED_STRING = re.compile(rf"(?<![\w$@%&>])q[qw]?\s*{_DELIMITED}")


_MODULE = r"(?:require|import)\(\s*['\"`](?:node:)?([\w./-]+)['\"`]\s*\)"
_DESTRUCTURED = re.compile(
    rf"\{{([^{{}}]*)\}}\s*=\s*(?:await\s+)?{_MODULE}|import\s*\{{([^{{}}]*)\}}\s*from\s*['\"](?:node:)?([\w./-]+)"
)
_MEMBER = re.compile(rf"\b(\w+)\s*=\s*(?:{_MODULE}|\w+)\.([A-Za-z]\w*)\s*(?:[;,\n]|$)")
_REQUIRED = re.compile(
    rf"\b(\w+)\s*=\s*(?:await\s+)?{_MODULE}|import\s+(?:\*\s*as\s+)?(\w+)\s+from\s*['\"](?:node:)?([\w./-]+)"
)
_ARGUMENT_NAMES = re.compile(r"\[([\w\s,]+)\]\s*=\s*process\.argv")


class Token(NamedTuple):
    """One word of a program: kind "string", "name", "number", "other" or "line"."""

    kind: str
    text: str


def scan(analysis: Analysis, language: str, code: str, given: Sequence[str] = ()) -> str:
    """Emits what a program's calls read, write, run and contact, as far as its strings say; returns what it prints.

    Args:
        analysis: what the call shares.
        language: as `languages.language_of` names it.
        code: the program.
        given: names bound from outside, as ``name=value`` (awk's -v).
    """
    if language == "perl":
        code = _QUOTED_STRING.sub(lambda m: _as_string(next(filter(None, m.groups()), "")), code)
    scanner = Scanner(analysis, language, code)
    for text in given:
        name, equals, value = text.partition("=")
        if equals:
            scanner.bound[name] = value
    if analysis.file:
        scanner.bound["__dirname"] = scanner.bound["__dir__"] = paths.parent(analysis.file)
        scanner.bound["__filename"] = scanner.bound["__FILE__"] = analysis.file
    if language == "c":
        for path in re.findall(r"(?m)^[ \t]*#[ \t]*include[ \t]*[\"<](/[^\">\n]+)", code):
            called(analysis, language, "include", [path])
    if language == "perl":
        for path in re.findall(r"@ARGV\s*=\s*\(?\s*[\"']([^\"']+)|<\s*[\"']?(/[^<>\"'\s]*)[\"']?\s*>", code):
            called(analysis, language, "dir.glob", [path[0] or path[1]])
    if language == "javascript":
        _requested(analysis, code)
    if language == "javascript" and "process.argv" in code:
        words = ["node", *([analysis.file] if analysis.file else []), *given]
        scanner.bound["process.argv"] = list[Value](words)
        for names in _ARGUMENT_NAMES.findall(code):
            scanner.bound.update(zip(map(str.strip, names.split(",")), words, strict=False))
    scanner.run()
    if language in ("perl", "ruby", "php"):
        for match in _QUOTED_COMMAND.finditer(code):
            called(analysis, language, "system", [next(filter(None, match.groups()), "")])
    return "".join(scanner.printed) or HOLE


_HOST = re.compile(r"\bhost(?:name)?\s*:\s*(['\"`])([\w.-]+)\1")
_PATH = re.compile(r"\bpath\s*:\s*(['\"`])(/[^'\"`]*)\1")
_REQUEST = re.compile(r"\b(?:get|request|connect|createConnection)\(\s*\{")


def _requested(analysis: Analysis, code: str) -> None:
    """A request whose host and path are given as an object."""
    host, path = _HOST.search(code), _PATH.search(code)
    if host and _REQUEST.search(code):
        analysis.emit("net", f"https://{host.group(2)}{path.group(2) if path else ''}", "javascript")


def _as_string(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


def _renames(code: str) -> Iterator[tuple[str, str]]:
    """The names under which a script uses functions of its modules: new name, old name."""
    for first, module, second, source in _DESTRUCTURED.findall(code):
        for part in (first or second).split(","):
            old, _, new = re.sub(r"\s*(?::|\bas\b)\s*", " ", part.strip()).partition(" ")
            yield new or old, f"{module or source}.{old}"
    for new, _, old in _MEMBER.findall(code):
        yield new, old
    for first, module, second, source in _REQUIRED.findall(code):
        yield first or second, module or source


class Scanner:
    """One pass over one program."""

    def __init__(self, analysis: Analysis, language: str, code: str) -> None:
        self.analysis = analysis
        self.language = language
        self.join = _JOINS.get(language, "+")
        self.bound: dict[str, Value] = {}
        self.tokens: list[Token] = []
        self.renamed = dict(_renames(code)) if language == "javascript" else {}
        self.printed: list[str] = []
        self.at = 0
        self.depth = 0
        self._read(code)

    def _read(self, code: str) -> None:
        keeps_lines = self.language in _COMMAND_CALLS
        for match in _TOKEN.finditer(code):
            kind = match.lastgroup or ""
            if kind == "comment" and (
                match.group()[0] != "#" or self.language not in ("javascript", "sql", "go", "c")
            ):
                continue
            if kind != "line" or keeps_lines:
                self.tokens.append(Token(kind, match.group()))
            if len(self.tokens) >= MAX_TOKENS:
                break

    def run(self) -> None:
        """Goes through the program."""
        while self.at < len(self.tokens):
            before = self.at
            self._expression()
            if self.at == before:
                self.at += 1

    def _peek(self, offset: int = 0) -> Token:
        at = self.at + offset
        return self.tokens[at] if at < len(self.tokens) else Token("other", "")

    def _takes(self, text: str) -> bool:
        if self._peek() == ("other", text):
            self.at += 1
            return True
        return False

    def _expression(self) -> Value:
        """One expression: parts that are joined. Steps over nothing where none starts here."""
        if self.depth >= MAX_DEPTH:
            return None
        self.depth += 1
        start = self.at
        value = self._primary()
        while self.at > start and self.at < len(self.tokens):
            if self.join == "":  # awk: side by side
                if self._peek().kind not in ("string", "name") or self._peek().text in ("getline", "in"):
                    break
            elif self._peek() != ("other", self.join):
                break
            else:
                self.at += 1
            before = self.at
            right = self._primary()
            if self.at == before:
                break
            value = (text_of(value) + text_of(right))[:MAX_STRING]
        if self.join == "" and isinstance(value, str) and self._takes("|"):  # awk: command | getline
            self._takes("&")
            if self._peek().text == "getline":
                self._called("system", [value])
        self.depth -= 1
        return value

    def _primary(self) -> Value:
        token = self._peek()
        value: Value = None
        if token.kind == "string":
            self.at += 1
            value = self._string(token.text)
        elif token.kind == "name":
            value = self._name(token.text)
        elif token.kind == "number":
            self.at += 1
            return token.text
        elif token.text in ("(", "["):
            self.at += 1
            items = self._arguments(")" if token.text == "(" else "]")
            value = items if token.text == "[" or len(items) != 1 else items[0]
        else:
            return None
        return self._methods(value)

    def _called(self, name: str, arguments: Arguments) -> Value:
        if name.lower() in _PRINTS:
            text = " ".join(map(text_of, arguments))
            self.printed.append(text if name in ("print", "printf", "process.stdout.write") else text + "\n")
            return None
        return called(self.analysis, self.language, name, arguments)

    def _methods(self, value: Value) -> Value:
        """What follows a value: calls such as ``.join('/')``, and ``[1]``."""
        while True:
            if self._peek().text == "[" and self._peek(1).kind == "number" and self._peek(2).text == "]":
                at = int(self._peek(1).text)
                value = value[at] if isinstance(value, list | str) and at < len(value) else None
                self.at += 3
                continue
            if self._peek() != ("other", ".") or self._peek(1).kind != "name" or self.join == ".":
                break
            name = self._peek(1).text
            self.at += 2
            arguments = self._arguments(")") if self._takes("(") else []
            value = self._called("." + name, [value, *arguments])
        return value

    def _name(self, name: str) -> Value:
        self.at += 1
        if name in _KEYWORDS:
            return self._expression()
        if name in ("print", "printf") and self.language == "awk":
            return self._awk_print()
        head, _, method = name.rpartition(".")
        name = self.renamed.get(name, f"{self.renamed[head]}.{method}" if head in self.renamed else name)
        if self._takes("("):
            if isinstance(owner := self.bound.get(head), list | str):
                return self._called("." + method, [owner, *self._arguments(")")])
            return self._called(name, self._arguments(")"))
        following = self._peek()
        if following.text in ("=", ":=", "+=", ".=") and following.kind == "other":
            return self._assigned(name.lstrip("$@%"), following.text)
        plain = name.lstrip("$@%")
        if plain in self.bound:
            return self.bound[plain]
        head, _, method = plain.rpartition(".")
        if head in self.bound:
            return self._called("." + method, [self.bound[head]])
        if name[:1] in "$@%":
            return HOLE
        if name == "Dir" and following.text == "[":
            self.at += 1
            return self._called("Dir.glob", self._arguments("]"))
        if (name in _INCLUDES or name == "echo") and following.kind == "string":
            verb = "import" if name == "from" else name
            return self._called(verb, [self._expression()])
        if self.language in _COMMAND_CALLS and (
            following.kind in ("string", "name") or following.text in ("<", "(")
        ):
            return self._command_call(name)
        return None

    def _assigned(self, name: str, operator: str) -> Value:
        self.at += 1
        if self._peek().text == "{" and self.language == "javascript":
            self._members(name)
            return None
        value = self._expression()
        if operator in ("+=", ".="):
            value = (text_of(self.bound.get(name)) + text_of(value))[:MAX_STRING]
        self.bound[name] = value
        return value

    def _members(self, name: str) -> None:
        """``name = { key: value }``: the members are bound one by one."""
        self.at += 1
        while self.at < len(self.tokens) and not self._takes("}"):
            key = self._peek()
            self.at += 1
            if key.kind in ("name", "string") and self._takes(":"):
                value = self._expression()
                self.bound[f"{name}.{key.text.strip(chr(39) + chr(34))}"] = value

    def _command_call(self, name: str) -> Value:
        """A call without parentheses: ``open F, "<", $path``, ``getline line < file``."""
        if name == "getline":
            while self._peek().kind == "name":
                self.at += 1
            if self._takes("<"):
                return self._called("getline", [self._expression()])
            return None
        arguments: Arguments = []
        for _ in range(20):
            before = self.at
            arguments.append(self._expression())
            if self.at == before or not self._takes(","):
                break
        return self._called(name, arguments)

    def _awk_print(self) -> Value:
        texts: Arguments = []
        while self.at < len(self.tokens) and self._peek().text not in (";", "}", "\n", ">", ">>", "|"):
            before = self.at
            texts.append(self._expression())
            if self.at == before:
                self.at += 1
        for mark, verb in ((">", "writefile"), (">>", "appendfile"), ("|", "system")):
            if self._takes(mark):
                self._takes("&")
                target = self._expression()
                arguments = [target] if mark == "|" else [target, " ".join(map(text_of, texts))]
                return self._called(verb, arguments)
        self.printed.append(" ".join(map(text_of, texts)) + "\n")
        return None

    def _arguments(self, closing: str) -> Arguments:
        """The expressions up to `closing`; what is no expression is stepped over."""
        out: Arguments = []
        expects = True
        while self.at < len(self.tokens):
            if self._takes(closing):
                break
            if self._takes(","):
                expects = True
                continue
            if self._peek().text in (";", "}", "]", ")") and self._peek().kind == "other":
                if self._peek().text == ";" or self.depth == 0:
                    break
                self.at += 1
                continue
            before = self.at
            value = self._expression()
            if self.at == before:
                self.at += 1
                continue
            if expects:
                out.append(value)
                expects = False
        return out

    def _string(self, text: str) -> Value:
        quote, inside = text[0], text[1:-1]
        if quote == "`" and self.language not in ("javascript", "go"):
            return HOLE
        if quote == "'" and self.language in ("perl", "ruby", "php"):
            return inside.replace("\\'", "'").replace("\\\\", "\\")
        inside = ansi_c(inside)
        pattern = _INTERPOLATED.get(self.language)
        if pattern is not None and (quote == "`") == (self.language == "javascript"):
            inside = pattern.sub(lambda m: self._interpolated(m.group(1)), inside)
        return inside[:MAX_STRING]

    def _interpolated(self, code: str) -> str:
        """The text of an expression inside a string."""
        if code in self.bound or code.isidentifier() or self.depth >= MAX_DEPTH:
            return text_of(self.bound.get(code, HOLE))
        outer, self.tokens, at, self.at = self.tokens, [], self.at, 0
        self._read(code)
        value = self._expression()
        self.tokens, self.at = outer, at
        return text_of(value)
