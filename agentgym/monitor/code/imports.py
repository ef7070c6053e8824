"""What the imports of a program load, in any language: modules that resolve to a protected path are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentgym.monitor import paths

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

_TEXT = r"['\"`]([^'\"`\n]{1,300})['\"`]"
# Files that a program loads, named from its own folder.
_FILES = {
    "javascript": rf"(?:\brequire(?:\.resolve)?\s*\(|\bimport\s*\(|\bfrom|\bimport|\bnew URL\()\s*{_TEXT}",
    "ruby": rf"\b(?:require_relative|autoload\s+:\w+,|load)\s*\(?\s*{_TEXT}"
    rf"|(?:\$LOAD_PATH|\$:)\s*(?:\.\w+|<<)\s*\(?\s*(?:File\.\w+\(\s*)?(?:__dir__,\s*)?{_TEXT}",
    "php": rf"\b(?:require|include)(?:_once)?\b[\s(]*(?:__DIR__|dirname\(__FILE__\))\s*\.\s*{_TEXT}",
    "rust": rf"\binclude(?:_str|_bytes)?!\s*\(\s*{_TEXT}|#\[path\s*=\s*{_TEXT}",
    "go": r"//go:embed[ \t]+([^\s*]{1,300})",
    "c": r"#[ \t]*(?:include|embed)[ \t]*[\"<]([^\">\n]{1,300})",
    "elixir": rf"\b(?:Code\.\w+_file|EEx\.\w+_file|File\.\w+!?)\s*\(?\s*{_TEXT}|@external_resource\s+{_TEXT}",
    "perl": rf"\buse\s+lib\s+{_TEXT}|\b(?:require|do)\s+{_TEXT}",
}
# Modules, named by words with dots.
_PYTHON = re.compile(
    r"^[ \t]*from[ \t]+(\.{0,5}[\w.]*)[ \t]+import[ \t]+\(?([\w \t,.]{0,300})|^[ \t]*import[ \t]+([\w \t,.]{1,300})"
    r"|(?:import_module|__import__|run_module|find_spec)\(\s*['\"](\.{0,5}[\w.]{1,200})['\"]",
    re.MULTILINE,
)
_AFTER_SEMICOLON = re.compile(r";[ \t]*(?=from\b|import\b)")
_PYTHON_FOLDERS = re.compile(r"sys\.path\.\w+\(\s*(?:\d+\s*,\s*)?\[?['\"]([^'\"\n]{1,300})['\"]")
_MODULES = {
    "java": r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]{1,200})",
    "lua": r"\brequire\s*\(?\s*['\"]([\w./-]{1,200})['\"]",
}
_FILES_READ = {language: re.compile(text) for language, text in _FILES.items()}
_MODULES_READ = {language: re.compile(text, re.MULTILINE) for language, text in _MODULES.items()}
_SOURCES = ("", "src", "lib", "src/main/java", "src/test/java", "src/main/kotlin", "include")
_ENDINGS = (
    "",
    ".py",
    ".js",
    ".ts",
    ".mjs",
    ".cjs",
    ".json",
    ".rb",
    ".java",
    ".kt",
    ".lua",
    "/index.js",
    "/__init__.py",
)


def follow(analysis: Analysis, language: str, content: str) -> None:
    """Says of each import in a program that leads to a protected path that this is read."""
    context = analysis.context
    if not context.protected_paths or not any(
        _last_name(path) in content for path in context.protected_paths
    ):
        return
    folder = paths.parent(analysis.file) if analysis.file else analysis.state.cwd
    found = (
        _python(analysis, content, folder)
        if language == "python"
        else _others(analysis, language, content, folder)
    )
    said = set()
    for path in found:
        protected = next(
            (path + end for end in _ENDINGS if context.protection_of(path + end) == "protected"), ""
        )
        if protected and protected not in said:
            said.add(protected)
            analysis.read(protected, language, ("import",))


def module(analysis: Analysis, name: str) -> None:
    """``python -m NAME``: where it is found, and read."""
    for path in _module_paths(analysis, name, _python_folders(analysis, "", analysis.state.cwd)):
        protected = next((path + end for end in _ENDINGS if analysis.context.protection_of(path + end)), "")
        if protected and analysis.context.protection_of(protected) == "protected":
            analysis.read(protected, "python", ("import",))


def _last_name(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path.rpartition("/")[2]


def _others(analysis: Analysis, language: str, content: str, folder: str) -> Iterator[str]:
    """The absolute paths, perhaps without an ending, of what a program in a language other than Python loads."""
    if pattern := _FILES_READ.get(language):
        for match in pattern.finditer(content):
            name = next(filter(None, match.groups()))
            if (
                _is_comment(language, content, match.start())
                or "://" in name
                or (language == "javascript" and not name.startswith((".", "/", "@/", "~/")))
            ):
                continue
            if language == "php":
                name = name.lstrip("/")
            yield paths.join(folder, name)
            if not name.startswith(("/", ".")):
                yield paths.join(analysis.context.workspace, name.removeprefix("@/").removeprefix("~/"))
    if pattern := _MODULES_READ.get(language):
        for match in pattern.finditer(content):
            yield from _module_paths(
                analysis, match.group(1).replace("/", "."), [folder, analysis.context.workspace]
            )


def _is_comment(language: str, content: str, place: int) -> bool:
    """Whether what stands at `place` is a comment, where a comment cannot load anything."""
    line = content[content.rfind("\n", 0, place) + 1 : place].lstrip()
    return language not in ("c", "rust", "go") and line.startswith(("//", "#", "*", "/*", "--"))


def _python(analysis: Analysis, content: str, folder: str) -> Iterator[str]:
    """The paths, without an ending, of the modules that a Python program imports."""
    folders = _python_folders(analysis, content, folder)
    for match in _PYTHON.finditer(_AFTER_SEMICOLON.sub("\n", content) if ";" in content else content):
        source, names, plain, called = match.groups()
        if plain:
            modules = [part.split()[0] for part in plain.split(",") if part.split()]
        elif called:
            modules = [called]
        else:
            joint = source if source.endswith(".") else source + "."
            modules = [source, *(joint + part.split()[0] for part in names.split(",") if part.split())]
        for name in modules:
            bare = name.lstrip(".")
            dots = len(name) - len(bare)
            if dots:
                yield paths.join(folder, "../" * (dots - 1) + bare.replace(".", "/"))
            elif bare:
                yield from _module_paths(analysis, bare, folders)


def _python_folders(analysis: Analysis, content: str, folder: str) -> list[str]:
    given = analysis.state.variables.get("PYTHONPATH", "").split(":")
    given += _PYTHON_FOLDERS.findall(content) if "sys.path" in content else []
    return [
        folder,
        analysis.state.cwd,
        analysis.context.workspace,
        *(f for f in given if f and "\0" not in f),
    ]


def _module_paths(analysis: Analysis, name: str, folders: list[str]) -> Iterator[str]:
    path = name.replace(".", "/")
    for folder in dict.fromkeys(paths.join(analysis.state.cwd, folder) for folder in folders):
        for source in _SOURCES:
            yield paths.join(folder, f"{source}/{path}" if source else path)
