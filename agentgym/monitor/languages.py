"""Which language a program is written in, by its name, place or first line."""

from __future__ import annotations

import re

_EXTENSIONS = {
    "py": "python",
    "pyi": "python",
    "pyx": "python",
    "ipynb": "notebook",
    "sh": "bash",
    "bash": "bash",
    "zsh": "bash",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "jsx": "javascript",
    "ts": "javascript",
    "tsx": "javascript",
    "pl": "perl",
    "pm": "perl",
    "rb": "ruby",
    "php": "php",
    "lua": "lua",
    "r": "r",
    "jl": "julia",
    "go": "go",
    "rs": "rust",
    "cs": "csharp",
    "ex": "elixir",
    "exs": "elixir",
    "cxx": "c",
    "hxx": "c",
    "hh": "c",
    "mts": "javascript",
    "cts": "javascript",
    "kts": "java",
    "c": "c",
    "h": "c",
    "cc": "c",
    "cpp": "c",
    "cu": "c",
    "cuh": "c",
    "hpp": "c",
    "java": "java",
    "kt": "java",
    "swift": "swift",
    "awk": "awk",
    "sql": "sql",
    "mk": "make",
    "cmake": "cmake",
    "pth": "pth",
    "html": "html",
    "htm": "html",
    "css": "css",
    "svg": "html",
    "vue": "html",
    "svelte": "html",
    "yml": "yaml",
    "yaml": "yaml",
    "toml": "toml",
    "cfg": "ini",
    "ini": "ini",
    "service": "ini",
    "timer": "ini",
    "json": "json",
    "tcl": "tcl",
    "ps1": "powershell",
    "gradle": "groovy",
    "nix": "nix",
}
_NAMES = {
    "makefile": "make",
    "gnumakefile": "make",
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "justfile": "make",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "jenkinsfile": "groovy",
    "procfile": "ini",
    ".bashrc": "bash",
    ".bash_profile": "bash",
    ".profile": "bash",
    ".zshrc": "bash",
    ".bash_aliases": "bash",
    ".envrc": "bash",
}
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+|\w+=\S+\s+)*)?([\w.+-]+)")
_HOOKS = re.compile(r"/\.(?:git/hooks|husky)/[^/]+\Z|/etc/(?:cron\S*|profile\.d|init\.d)/[^/]+\Z")
SCRIPTED = frozenset(
    "javascript perl ruby php lua r julia go rust c csharp elixir java swift awk sql tcl groovy".split()
)
"""Languages that are read by their strings and calls."""
READ = SCRIPTED | {"python", "bash"}
"""Languages whose programs are read for what they would do."""


def language_of(path: str, content: str = "") -> str:
    """The language of a file by its name, place or first line; "" for one that holds no program."""
    name = path.rpartition("/")[2].lower()
    if match := _SHEBANG.match(content):
        return by_interpreter(match.group(1))
    if name in _NAMES:
        return _NAMES[name]
    if "." in name[1:] and (language := _EXTENSIONS.get(name.rpartition(".")[2])):
        return language
    return "bash" if _HOOKS.search(path) else ""


def by_interpreter(name: str) -> str:
    """The language that the interpreter `name` runs."""
    base = re.sub(r"[0-9.]+\Z", "", name.rpartition("/")[2])
    if base in _SHELLS:
        return "bash"
    if base in ("node", "nodejs", "deno", "bun"):
        return "javascript"
    return {"pypy": "python", "Rscript": "r"}.get(base, base)
