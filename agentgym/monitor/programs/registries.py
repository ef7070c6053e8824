"""Installers that name a package by coordinates, by a module path or by owner and name: the last name counts."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym.monitor.command import Command, Options, Row
from agentgym.monitor.effects import HOLE

_MAVEN_GOAL = re.compile(r"(?:dependency|maven-dependency-plugin)[\w.:-]*:(?:get|copy|unpack|resolve)\b")
_MAJOR = re.compile(r"/v\d+\Z")


class Registry(NamedTuple):
    """How an installer is asked for packages.

    Attributes:
        verbs: its words before the packages, each perhaps of several words; "" where there are none.
        valued: options that take a value.
        named: options whose value is a package.
        parent: a folder of the name counts too: ``go install host/axios/cmd/tool``.
    """

    verbs: tuple[str, ...]
    valued: str = ""
    named: tuple[str, ...] = ()
    parent: bool = False


_REGISTRIES = {
    "composer": Registry(
        ("require", "create-project", "global require", "update"), "d working-dir repository"
    ),
    "go": Registry(
        ("get", "install", "run", "mod download", "list -m", "mod edit"),
        "C n p o mod modfile",
        ("-require",),
        True,
    ),
    "dotnet": Registry(
        ("add package", "tool install", "tool update", "package add", "new install"),
        "v version s source f framework",
    ),
    "conan": Registry(
        ("install", "download", "get", "graph info"),
        "r remote pr s o of output-folder",
        ("--requires", "--tool-requires"),
    ),
    "vcpkg": Registry(("install", "add port", "download"), "triplet"),
    "stack": Registry(("unpack", "install"), "resolver to"),
    "cabal": Registry(("get", "unpack", "install", "fetch"), "d destdir"),
    "mix": Registry(("hex.package fetch", "archive.install hex", "escript.install hex"), "o output"),
    "rebar3": Registry(("hex retrieve", "hex search"), ""),
    "luarocks": Registry(("install", "download", "unpack", "build"), "server tree"),
    "cpan": Registry(("",), ""),
    "deno": Registry(("add", "install", "cache", "run", "info"), "c config n name"),
    "coursier": Registry(("fetch", "launch", "install", "bootstrap", "resolve"), "r repository o"),
    "cs": Registry(("fetch", "launch", "install", "bootstrap", "resolve"), "r repository o"),
    "jbang": Registry(("", "run"), "", ("--deps",)),
    "opam": Registry(("install", "source", "reinstall"), "dir"),
    "raco": Registry(("pkg install", "pkg catalog-show"), ""),
    "spack": Registry(("install", "fetch", "stage"), ""),
    "nimble": Registry(("install", "develop"), ""),
    "dart": Registry(("pub add", "pub cache add", "pub global activate", "pub unpack"), "v version"),
    "flutter": Registry(("pub add", "pub cache add", "pub global activate"), "v version"),
    "shards": Registry(("install",), ""),
    "pod": Registry(("install", "spec cat", "spec which", "try"), ""),
    "pecl": Registry(("install", "download", "upgrade"), ""),
    "pear": Registry(("install", "download", "upgrade"), ""),
    "dub": Registry(("fetch", "add", "run"), "version"),
    "bower": Registry(("install", "download"), ""),
    "elm": Registry(("install",), ""),
    "nuget": Registry(("install", "download"), "Version Source OutputDirectory"),
    "cargo": Registry(("download", "clone", "binstall"), "o output"),
    "bundle": Registry(("add", "plugin install"), "version v group source", ()),
    "paket": Registry(("add", "install"), "version V project p"),
    "ivy": Registry(("",), "confs"),
    "zef": Registry(("install", "fetch", "look"), ""),
    "uget": Registry(("install",), ""),
}
_OWN = re.compile(r"\.{1,2}(?:/|\Z)|/|\./|-")
"""Words that name something of one's own, not of an index."""


def name_of(word: str) -> tuple[str, ...]:
    """The names by which the package of a coordinate goes: what stands last, and the whole; versions are dropped."""
    text = re.sub(r"\A(?:npm|jsr|pkg|gem|hex|nuget|maven):(?://)?", "", word)
    if text.count(":") >= 1 and re.match(r"[\w.-]+::?[\w.-]+(?::|\Z)", text) and "." in text.split(":")[0]:
        return (text.replace("::", ":").split(":")[1],)  # group:artifact:version
    text = re.split(r"(?<!\A)@|[:=<>~^]", text)[0]
    text = _MAJOR.sub("", re.sub(r"/v?\d[\w.]*\Z", "", text).rstrip("/"))
    last = re.sub(r"[-_.]v?\d+(?:\.\d+)*\Z", "", text.rpartition("/")[2])
    return tuple(dict.fromkeys(name for name in (last, text) if name))


def _asked(command: Command, registry: Registry) -> list[str]:
    """The packages that a command asks for."""
    options = command.options(registry.valued)
    words = options.operands
    for verb in registry.verbs:
        parts = [part for part in verb.split() if not part.startswith("-")]
        kept = _without_file(words) if command.name == "dotnet" else words
        if kept[: len(parts)] == parts:
            return [*kept[len(parts) :], *_options(options, registry)]
    return _options(options, registry)


def _without_file(words: list[str]) -> list[str]:
    """The words of dotnet without the project file after ``add``."""
    return [word for i, word in enumerate(words) if not (i == 1 and re.search(r"\.\w+proj\Z|/", word))]


def _options(options: Options, registry: Registry) -> list[str]:
    return (
        [part for value in options.values(*registry.named) for part in value.split(",")]
        if registry.named
        else []
    )


def _fetch(command: Command, word: str, registry: Registry) -> None:
    names = list(name_of(word))
    if registry.parent:
        if "." not in word.partition("/")[0]:
            return
        names += word.partition("@")[0].split("/")[2:]
    for name in dict.fromkeys(names):
        command.analysis.emit(
            "install",
            name,
            command.name,
            tuple(command.arguments),
            folder=command.state.cwd,
            origin=command.origin,
        )


def _row(name: str, known: Row | None) -> Row:
    """The row of an installer, on top of what is `known` of it."""
    registry = _REGISTRIES[name]

    def handler(command: Command) -> str:
        printed = known(command) if known is not None else HOLE
        for word in _asked(command, registry)[:50]:
            if not _OWN.match(word) and not word.endswith(
                (".go", ".ts", ".js", ".rockspec", ".csproj", ".jsh")
            ):
                _fetch(command, word, registry)
        return printed

    return handler


def _maven(command: Command) -> str:
    """mvn: ``dependency:get`` and its kin fetch an artifact."""
    given = dict(
        word[2:].split("=", 1) for word in command.arguments if word.startswith("-D") and "=" in word
    )
    if any(map(_MAVEN_GOAL.search, command.arguments)):
        words = [given.get("artifact", ""), given.get("artifactId", ""), given.get("includeArtifactIds", "")]
        for word in filter(None, words):
            _fetch(command, word, Registry(()))
    return HOLE


def rows(known: dict[str, Row]) -> dict[str, Row]:
    """The rows of this module, on top of those of the programs that are `known` already."""
    return {
        **{name: _row(name, None if name in _ALONE else known.get(name)) for name in _REGISTRIES},
        **dict.fromkeys(("mvn", "mvnw", "mvnd"), _maven),
    }


_ALONE = frozenset(("composer", "luarocks", "opam", "nuget", "dotnet"))
"""Installers of which this table says all."""
