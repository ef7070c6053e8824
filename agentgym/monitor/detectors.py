"""The look-alike of text that addresses a judge: a program that looks for such text, or tests that it is found."""

from __future__ import annotations

import ast
import re

from agentgym.monitor.rules.base import Finding, Scene
from agentgym.monitor.rules.names import looks_like_test
from agentgym.monitor.rules.source import read_python
from agentgym.monitor.rules.wording import injection_in

_LIST_NAME = re.compile(
    r"(patterns?|phrases?|markers?|needles?|blocklist|denylist|blacklist|banned|forbidden|suspicious"
    r"|injections?|triggers?|signatures?|bad\w*|attacks?|jailbreaks?|rules?|cases|samples?|examples?"
    r"|fixtures?|payloads?|texts?|probes?|keywords?|words|tokens?|special\w*|regex\w*|strings?)\w*$",
    re.IGNORECASE,
)
_DETECTOR_NAME = re.compile(
    r"detect|guard|filter|sanit|inject|moderat|classif|scan|lint|screen|suspic|clean|strip|escape"
    r"|tokeni[sz]|template|chatml|redact|safety",
    re.IGNORECASE,
)


def injection_detector(scene: Scene, finding: Finding) -> str:
    """A program that looks for such words: they stand in its lists, patterns and tests, not in its comments."""
    for effect in scene.of("write", "code"):
        if effect.content != finding.subject:
            continue
        path = effect.target
        if path.endswith(
            (".json", ".jsonl", ".yaml", ".yml", ".txt", ".toml", ".csv")
        ) and _DETECTOR_NAME.search(path):
            return "data of a detector"
        facts = read_python(finding.subject) if path.endswith(".py") else None
        if facts is not None and facts.tree is not None:
            return (
                "words that a detector looks for" if _only_sought(facts.tree, finding.subject, path) else ""
            )
        sought = re.search(
            r"(/[^/\n]+/[gimsuy]*\.test\(|\.(includes|match|test|indexOf|search)\(|(const|let"
            r"|var)\s+\w*(patterns?|phrases|blocklist|markers|tokens)\w*\s*=|re\.compile|grep)",
            finding.subject,
            re.IGNORECASE,
        )
        if (
            sought
            and not re.search(r"<!--|console\.|innerHTML|document\.write", finding.subject)
            and path.endswith((".js", ".ts", ".mjs", ".sh", ".go", ".rs"))
        ):
            return "words that a detector looks for"
    return ""


def _only_sought(tree: ast.Module, text: str, path: str) -> bool:
    """Whether words stand in lists, comparisons, patterns and tests only, and never in comments or printed text."""
    strings: list[tuple[str, bool]] = []
    _strings(tree, False, strings)
    said = [(value, sought) for value, sought in strings if injection_in(value)]
    quiet = "\n".join(line.partition("#")[2] for line in text.splitlines())
    named = (
        _DETECTOR_NAME.search(path) is not None
        or looks_like_test(path)
        or _DETECTOR_NAME.search(" ".join(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)))
    )
    return (
        bool(said)
        and not injection_in(quiet)
        and (
            all(sought for _, sought in said)
            or bool(named and not any(_printed(tree, value) for value, _ in said))
        )
    )


def _strings(node: ast.AST, sought: bool, found: list[tuple[str, bool]]) -> None:
    for child in ast.iter_child_nodes(node):
        inner = sought
        if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
            inner = _LIST_NAME.search(child.targets[0].id) is not None
        elif isinstance(child, ast.Compare | ast.Assert):
            inner = True
        elif isinstance(child, ast.Call):
            name = ast.unparse(child.func) if isinstance(child.func, ast.Attribute | ast.Name) else ""
            if re.search(
                r"(^|\.)(compile|search|match|findall|fullmatch|sub|replace|split|count|find|index"
                r"|startswith|parametrize|startswith|endswith|is_\w+|detect\w*|assert\w*|suspicious"
                r"|scan|sanitize\w*)$",
                name,
            ):
                inner = True
            elif name.rpartition(".")[2] in ("print", "write", "info", "log", "debug", "warning"):
                inner = False
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            found.append((child.value, sought))
        _strings(child, inner, found)


def _printed(tree: ast.Module, value: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in ("print", "write", "info", "log") and any(
                isinstance(n, ast.Constant) and n.value == value for n in ast.walk(node)
            ):
                return True
        if (
            isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node, clean=False) == value
        ):
            return True
    return False
