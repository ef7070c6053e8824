"""A shell that runs nothing: it walks a command's syntax tree, keeps the state and says what commands would do.

Standard output is followed as text, HOLE where it is not known: ``echo .. | base64 -d | sh`` is read to its end. All
branches are taken; loops are unrolled up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from agentgym.monitor import bounds, commands, control, fields, writing
from agentgym.monitor.analysis import SUBSTITUTION
from agentgym.monitor.effects import HOLE
from agentgym.monitor.syntax import MARK, STRING_MARK, HereDocument, parse, prepare, restored, text_of
from agentgym.monitor.words import Words

if TYPE_CHECKING:
    from tree_sitter import Node

    from agentgym.monitor.analysis import Analysis

MAX_OUTPUT = 64 * 1024
"""Characters of output that are followed; what is longer ends in a hole."""

REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")


class Shell:
    """One shell, interactive, script or child.

    Args:
        analysis: what this call shares.
        positional: ``$0``, ``$1``, ...
        stdin: what there is to read.

    Attributes:
        at_exit: texts that `trap` left to be run at the end.
    """

    def __init__(self, analysis: Analysis, positional: Sequence[str] = ("bash",), stdin: str = "") -> None:
        self.analysis = analysis
        self.state = analysis.state
        self.positional = tuple(positional)
        self.stdin = stdin
        self.at_exit: list[str] = []
        self.words = Words(self)
        self._documents: list[HereDocument] = []
        self._substitutions = 0
        self._running = 0
        self._expanding: set[str] = set()
        self._more_words: list[str] = []  # arguments that the grammar took for targets of a redirection

    def run_text(self, text: str) -> str:
        """Runs shell source; returns what it prints."""
        if bounds.too_large(text):
            bounds.scan(self.analysis, text)
            return HOLE
        root = self.parse(fields.clean_output(text))
        if root.has_error:
            self.analysis.give_up("syntax")
        self._running += 1
        output = self.run(root)
        self._running -= 1
        if not self._running and self.at_exit:
            texts, self.at_exit = self.at_exit, []
            with self.analysis.later():
                for trapped in texts:
                    self.run_text(trapped)
        return output

    def parse(self, text: str) -> Node:
        """The syntax tree of shell source; its here-documents are kept for `run`."""
        prepared = prepare(text, len(self._documents))
        self._documents.extend(prepared.documents)
        if len(prepared.text) > bounds.MAX_SHELL:
            bounds.scan(self.analysis, prepared.text)
            return parse("").root_node
        return parse(prepared.text).root_node

    def run(self, node: Node) -> str:
        """Runs one statement; returns what it prints, HOLE where that is not known."""
        if self.analysis.exhausted:
            return HOLE
        handler = _STATEMENTS.get(node.type)
        output = handler(self, node) if handler else self.sequence(node)
        return output if len(output) <= MAX_OUTPUT else output[:MAX_OUTPUT] + HOLE

    # What folding asks for (`words.Runner`).

    def capture(self, node: Node) -> str:
        """The output of a command substitution."""
        with self.analysis.deeper() as possible:
            if not possible:
                return HOLE
            outer = self.state.enter_subshell()
            stdin = self.stdin
            try:
                inner = node.named_children
                if len(inner) == 1 and inner[0].type == "file_redirect":  # $(< file)
                    self._redirect(inner[0])
                    output = self.stdin
                else:
                    output = self.sequence(node)
            finally:
                self.stdin = stdin
                self.state.leave_subshell(outer)
        return output.rstrip("\n")

    def substitute_process(self, node: Node) -> str:
        """Runs ``<(..)``; its output is the content of the path that is returned."""
        with self.analysis.deeper() as possible:
            if not possible:
                return HOLE
            outer = self.state.enter_subshell()
            output = self.sequence(node)
            self.state.leave_subshell(outer)
        self._substitutions += 1
        path = f"{SUBSTITUTION}{self._substitutions}"
        self.state.remember(path, output)
        return path

    def expand_glob(self, pattern: str) -> list[str]:
        """The paths that an encoded glob stands for, as `Analysis.glob` finds them."""
        plain, glob = fields.plain(pattern), fields.as_pattern(pattern)
        found = self.analysis.glob(glob)
        for path in found:  # to expand it, the shell looks into the folder
            if (
                path[0] == "/"
                and "*" in path
                and HOLE not in path
                and self.analysis.is_inside_protected(path)
            ):
                self.analysis.look(path.partition("*")[0].rpartition("/")[0], "glob", origin="glob")
        return [plain if path == glob else path for path in found]

    # Statements.

    def sequence(self, node: Node) -> str:
        """Runs the parts of a statement in order."""
        out: list[str] = []
        start = 0
        for child in node.children:
            if child.is_named:
                start = len(self.analysis.effects)
                out.append(self.run(child))
            elif child.type == "&":
                self.analysis.mark_background(start)
        return "".join(out)

    def _list(self, node: Node) -> str:
        """``a && b || c``: every part; after ``||`` from the folder before the part that it stands in for."""
        parts: list[tuple[str, Node]] = []
        left = node
        # The grammar nests to the left, deeper than Python may recurse.
        while left.type == "list" and left.children:
            first, *rest = left.children
            for child in reversed(rest):
                if child.is_named:
                    parts.append((next((c.type for c in rest if not c.is_named), ""), child))
            left = first
        cwd = self.state.cwd
        out = [self.run(left)]
        for operator, part in reversed(parts):
            here = self.state.cwd
            if operator == "||":
                self.state.cwd = cwd
            out.append(self.run(part))
            if operator == "||" and here != cwd:
                self.state.cwd = here
            cwd = here
        return "".join(out)

    def _pipeline(self, node: Node) -> str:
        stdin = self.stdin
        output = ""
        for i, child in enumerate(node.named_children):
            if i:
                self.stdin = output
            outer = self.state.enter_subshell()
            output = self.run(child)
            self.state.leave_subshell(outer)
        self.stdin = stdin
        return output

    def _subshell(self, node: Node) -> str:
        outer = self.state.enter_subshell()
        output = self.sequence(node)
        self.state.leave_subshell(outer)
        return output

    def _redirected(self, node: Node) -> str:
        stdin = self.stdin
        body: Node | None = None
        redirects: list[Node] = []
        for child in node.named_children:
            if child.type in REDIRECTS:
                redirects.append(child)
            else:
                body = child
        return self._with_redirects(redirects, lambda: self.run(body) if body is not None else "", stdin)

    def _with_redirects(self, redirects: Iterable[Node], run: Callable[[], str], stdin: str) -> str:
        """Runs with input and output redirected; what goes into files is written, the rest returned."""
        start = len(self.analysis.effects)
        outputs = [target for node in redirects for target in self._redirect(node)]
        output = run()
        self.stdin = stdin
        for path, appends in outputs:
            self._write_output(path, output if path[:1] != "2" else None, appends, start)
        return "" if any(path[:1] != "2" for path, _ in outputs) else output

    def _write_output(self, path: str, output: str | None, appends: bool, start: int) -> None:
        path = path[1:]
        content = None if output is None or output == HOLE else output
        analysis = self.analysis
        taken = [e.target for e in analysis.effects[start:] if e.kind == "read"]
        target = writing.write_file(analysis, path, "redirect", content, append=appends)
        for source in taken:
            if analysis.context.protection_of(source) == "protected":
                analysis.state.copies[target] = source

    def _redirect(self, node: Node) -> list[tuple[str, bool]]:
        """Follows one redirection: input becomes `stdin`; outputs are returned as (descriptor + path, appends)."""
        operator, descriptor, targets = "", "", []
        here = ""
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = text_of(child)
            elif not child.is_named:
                operator = operator or child.type
            elif child.type != "ERROR":
                if text_of(child)[:1] in (MARK, STRING_MARK):
                    here = self.words.text(child)
                    continue
                targets.extend(self.words.fields(child))
        if here:
            self._here(here)
            self._more_words.extend(targets)
            return []
        if not targets:
            return []
        path = targets[0]
        self._more_words.extend(targets[1:])
        if operator in (">&", "<&") and (path.isdigit() or path in ("-", HOLE)):
            if operator == "<&" and path.isdigit():
                self.stdin = self.state.variables.get(f"&{path}", HOLE)
            return []
        if commands.connect(self.analysis, path):
            return []
        if operator.startswith("<"):
            self.analysis.read(path, "redirect")
            if operator == "<>" and descriptor != "0":
                self.analysis.write(path, "redirect", None, ("edit",))
            content = self.analysis.content_of(path)
            self.stdin = HOLE if content is None else content
            if descriptor.isdigit():
                self.state.variables[f"&{descriptor}"] = self.stdin
            return []
        return [(("2" if descriptor == "2" else "1") + path, ">>" in operator)]

    def _here(self, path: str) -> None:
        """Input that stands in the command itself: a here-document by its number, or a here-string."""
        if path.startswith(STRING_MARK):
            self.stdin = path[1:] + "\n"
            return
        number = path.strip(MARK)
        if not number.isdecimal():  # text that the parser took into the word: the command is malformed
            self.analysis.give_up("syntax")
            self.stdin = HOLE
            return
        document = self._documents[int(number)]
        self.stdin = self.words.here_document(document.body) if document.expands else document.body

    def _nothing(self, node: Node) -> str:
        return ""

    def _error(self, node: Node) -> str:
        self.analysis.give_up("syntax")
        return self.sequence(node)

    # Commands.

    def _command(self, node: Node) -> str:
        if not self.analysis.step():
            return HOLE
        assignments: list[tuple[str, str]] = []
        words: list[str] = []
        redirects: list[Node] = []
        decoders = self.analysis.decoders
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment":
                name, _, text = control.assigned(self, child)
                assignments.append((name, text or ""))
            elif kind in REDIRECTS:
                redirects.append(child)
            else:
                words.extend(self.words.fields(child))
        words.extend(self._more_words)
        self._more_words = []
        origin = "decoded" if self.analysis.decoders > decoders else ""

        def run() -> str:
            return self.call(words, assignments, origin=origin)

        return self._with_redirects(redirects, run, self.stdin) if redirects else run()

    def call(self, words: list[str], assignments: Sequence[tuple[str, str]] = (), *, origin: str = "") -> str:
        """Runs a simple command given as its folded words, as `env` and `xargs` do; returns what it prints."""
        with self.analysis.deeper(origin) as possible:
            return commands.run(self, words, assignments) if possible else HOLE

    def call_function(self, name: str, arguments: Sequence[str]) -> str:
        """Runs a function of the shell."""
        before = self.positional
        self.positional = (before[0] if before else "bash", *arguments)
        with self.analysis.deeper() as possible:
            output = self.run_text(self.state.functions[name]) if possible else HOLE
        self.positional = before
        return output

    def run_alias(self, name: str, arguments: str) -> str:
        """Runs an alias, once; inside its own text the name means the program."""
        self._expanding.add(name)
        try:
            return self.run_text(f"{self.state.aliases[name]} {arguments}")
        finally:
            self._expanding.discard(name)

    def has_alias(self, name: str) -> bool:
        """Whether `name` is an alias that is not being expanded already."""
        return name in self.state.aliases and name not in self._expanding

    # Variables.

    def assign(self, name: str, text: str) -> None:
        """Sets a variable of the shell; one that programs look at is an effect."""
        commands.set_variable(self.analysis, name, text, "assignment")
        self.state.variables[name] = text
        base, _, index = name.partition("[")
        if index and base in self.state.arrays and index[:-1].isdigit():
            elements = list(self.state.arrays[base])
            elements[int(index[:-1]) : int(index[:-1]) + 1] = [text]
            self.state.arrays[base] = tuple(elements)

    def source_of(self, node: Node) -> str:
        """Source that can be read again in another shell: the bodies of here-documents are put back as strings."""
        return restored(text_of(node), self._documents)


_STATEMENTS: dict[str, Callable[[Shell, Node], str]] = {
    **control.STATEMENTS,
    "list": Shell._list,
    "command": Shell._command,
    "pipeline": Shell._pipeline,
    "redirected_statement": Shell._redirected,
    "subshell": Shell._subshell,
    "ERROR": Shell._error,
    "comment": Shell._nothing,
}
"""Statements with a meaning of their own; the parts of any other are run in order."""
