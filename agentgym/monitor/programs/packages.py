"""Installers: what they would fetch, one effect for each package, address or requirements file."""

from __future__ import annotations

import re

from agentgym.monitor import projects
from agentgym.monitor.command import STDIN, Command, Options, Row, urls
from agentgym.monitor.effects import HOLE

_PIP_VALUED = (
    "r c e t i f d target index-url extra-index-url find-links requirement constraint editable dest prefix root python "
    "platform python-version implementation abi no-binary only-binary trusted-host proxy cache-dir upgrade-strategy "
    "progress-bar report src p with from index default-index group only-group override log timeout retries"
)
_FETCHING = frozenset(
    "install download wheel add sync lock update upgrade i require get run inject reinstall ci create".split()
)


def _fetch(command: Command, package: str, *more: str) -> None:
    analysis = command.analysis
    analysis.emit(
        "install",
        projects.named(analysis.context.package or HOLE, package, analysis.effects),
        command.name,
        (*more, *command.arguments),
        folder=command.state.cwd,
        origin=command.origin,
    )


def _requirements(command: Command, path: str, depth: int = 0) -> None:
    """The packages of a requirements file, if a call wrote it."""
    if path not in STDIN:
        command.read(path)
    content = command.content_of(path)
    for line in (content or "").splitlines()[:200]:
        line = line.split(" #")[0].strip()
        if match := re.match(r"(?:-r|--requirement)[ =]?(\S+)", line):
            if depth < 3:
                _requirements(command, match.group(1), depth + 1)
        elif match := re.match(r"(?:-i|--index-url|--extra-index-url|-f|--find-links)[ =]?(\S+)", line):
            command.analysis.emit("net", match.group(1), command.name, ("index",))
        elif line and not line.startswith(("#", "-")):
            _fetch(command, line, "requirement")


_CONFIGURED = "pip:index-url"
"""The variable under which `pip config set` of an index is remembered."""


def _indexes(command: Command, options: Options) -> None:
    for url in options.values(
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "--index",
        "--default-index",
        "--proxy",
    ):
        if "://" in url:
            command.analysis.emit("net", url, command.name, ("index",))
        else:
            command.look(url)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", _CONFIGURED):
        if configured := command.state.variables.get(name):
            command.analysis.emit("net", configured, command.name, ("index",))


def _pip(command: Command) -> str:
    options = command.options(_PIP_VALUED)
    verb, packages = (options.operands or [""])[0], options.operands[1:]
    if command.name == "uv" and verb in ("pip", "tool", "python"):
        asked, packages = (packages or [""])[0], packages[1:]
        verb = "install" if (verb, asked) == ("tool", "run") else asked
    if command.name == "pipx" and verb == "run":
        verb, packages = "install", packages[:1]
    if command.name == "uv" and verb == "run":
        for package in options.values("--with"):
            _fetch(command, package)
        return command.shell.call(_after(command.arguments, "run")) if packages else HOLE
    if verb == "config":
        command.analysis.emit("write", "/root/.config/pip/pip.conf", command.name, tuple(command.arguments))
        if "://" in packages[-1:][0] if packages else False:
            command.state.variables[_CONFIGURED] = packages[-1]
        return HOLE
    if verb not in _FETCHING:
        return HOLE
    for path in options.values("-r", "--requirement", "-c", "--constraint"):
        _requirements(command, path)
    _indexes(command, options)
    for package in [*packages, *options.values("-e", "--editable")]:
        _fetch(command, package)
        if package.split("[")[0].rstrip("/").endswith((".", "..")) or package.startswith(("./", "/")):
            _declared(command, package.split("[")[0].rstrip("/") + "/pyproject.toml")
    for folder in options.values("-t", "--target", "-d", "--dest", "--prefix", "--root"):
        command.analysis.emit(
            "write", command.analysis.locate(folder)[0], command.name, ("packages", *packages)
        )
    return HOLE


def _after(words: list[str], verb: str) -> list[str]:
    """The words after `verb` and its flags: the command that ``uv run``, ``poetry run`` start."""
    rest = words[words.index(verb) + 1 :] if verb in words else []
    i = 0
    while i < len(rest) and rest[i].startswith("-"):
        i += 2 if rest[i] in ("--with", "--python", "-p", "--group", "--extra", "--package") else 1
    return rest[i:]


_MANIFESTS = {
    "conda": "environment.yml",
    "mamba": "environment.yml",
    "micromamba": "environment.yml",
    "poetry": "pyproject.toml",
    "pdm": "pyproject.toml",
    "pipenv": "Pipfile",
    "bundle": "Gemfile",
    "bundler": "Gemfile",
    "composer": "composer.json",
    "cargo": "Cargo.toml",
}
"""What an installer reads where it is given no package."""
_DEPENDENCY = re.compile(
    r"""^\s*-\s+['"]?([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?[ \t]*(?:[=<>~!]=?[^'"#\n]*)?)['"]?\s*$"""  # - name==1 (YAML)
    r"""|(?:^|[{,])\s*['"]?([A-Za-z0-9@][\w./-]*)['"]?\s*[=:]\s*['"][\^~>=<*]*[\d.*x]+[^'"]*['"]"""  # name = "1.0"
    r"""|['"]([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?\s*[=<>~!]=[^'"]*)['"]"""  # "name>=1"
    r"""|^\s*gem\s+['"]([\w-]+)['"]""",
    re.MULTILINE,
)


def _declared(command: Command, path: str) -> None:
    """The packages that a manifest names, if a call wrote it."""
    if path.endswith(".txt"):
        _requirements(command, path)
        return
    command.read(path)
    for match in _DEPENDENCY.finditer((command.analysis.content_of(path) or "")[:65536]):
        _fetch(command, next(filter(None, match.groups())).strip(), "manifest")


def _managed(valued: str, verbs: str) -> Row:
    """A row for npm, conda, apt and others: a verb, then packages."""
    fetching = frozenset(verbs.split())

    def handler(command: Command) -> str:
        options = command.options(valued)
        verb, packages = (options.operands or [""])[0], options.operands[1:]
        if command.name in (
            "poetry",
            "pdm",
            "hatch",
            "pipenv",
            "rye",
            "bundle",
            "mamba",
            "conda",
        ) and verb in ("run", "exec"):
            return command.shell.call(_after(command.arguments, verb))
        if verb == "env":
            verb, packages = (packages or [""])[0], packages[1:]
        if verb in fetching:
            files = options.values("-f", "--file") or (
                [_MANIFESTS[command.name]] if command.name in _MANIFESTS and not packages else []
            )
            for path in files:
                _declared(command, path)
            for package in packages:
                _fetch(command, package)
            for url in urls(command.arguments):
                if url not in packages:
                    command.analysis.emit("net", url, command.name, ("index",))
            for folder in options.values("--prefix", "-C", "--target", "--dir"):
                command.look(folder)
        return HOLE

    return handler


_NPM_VERBS = "install i add ci update up upgrade view info show v pack exec x create init dlx link in"


def _npm(command: Command) -> str:
    options = command.options("prefix C registry cache userconfig w workspace cwd dir F filter")
    words = options.operands
    verb, rest = (words or [""])[0], words[1:]
    root = (options.values("--prefix", "-C", "--cwd", "--dir") or ["."])[-1]
    for url in options.values("--registry"):
        command.analysis.emit("net", url, command.name, ("index",))
    if verb in ("pkg", "config", "set-script") or (verb == "version" and rest):
        if verb == "set-script" or rest[:1] in (["set"], ["delete"], ["fix"]) or verb == "version":
            name = "package.json" if verb != "config" else ".npmrc"
            command.analysis.write(f"{root}/{name}", command.name, None, ("edit", *command.arguments))
        return HOLE
    if verb in ("run", "run-script", "test", "t", "start", "rum"):
        command.analysis.emit(
            "run",
            verb if verb not in ("run", "run-script") else f"run {' '.join(rest)}",
            command.name,
            tuple(rest),
        )
        return HOLE
    if verb in ("exec", "x", "dlx"):
        for package in options.values("-p", "--package"):
            _fetch(command, package)
        if rest and ("@" in rest[0][1:] or verb == "dlx" or options.has("-y", "--yes")):
            _fetch(command, rest[0])
        return command.shell.call(rest) if rest else HOLE
    if verb in ("install", "i", "ci", "add", "update") and not rest:
        _declared(command, f"{root}/package.json")
    if verb in _NPM_VERBS.split():
        for package in rest:
            shorthand = re.fullmatch(r"[\w-]+/[\w.-]+(?:#.*)?", package)
            _fetch(command, f"https://github.com/{package}" if shorthand else package, verb)
    elif command.name == "yarn" and not verb:
        pass
    elif command.name == "bun" and verb in ("-e", "--eval"):
        return command.shell.call(["node", *command.arguments])
    elif command.name in ("yarn", "pnpm", "bun") and verb:
        return command.shell.call(words)
    return HOLE


def _go(command: Command) -> str:
    words = [word for word in command.arguments if not word.startswith("-")]
    if words[:1] in (["get"], ["install"]) or words[:2] in (["mod", "download"], ["list"]):
        for package in words[1:]:
            if package not in ("download", ".", "./..."):
                _fetch(command, package)
    elif words[:1] in (["run"], ["test"], ["build"], ["vet"]):
        for path in words[1:]:
            if "@" in path:
                _fetch(command, path)
            elif "/" in path or path.endswith(".go"):
                command.read(path)
    return HOLE


def _easy_install(command: Command) -> str:
    options = command.options(_PIP_VALUED)
    _indexes(command, options)
    for package in options.operands:
        _fetch(command, package)
    return HOLE


_SYSTEM = "o t c install-recommends"
_SYSTEM_VERBS = "install source download build-dep reinstall add upgrade search show S"

PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(("pip", "pip2", "pip3", "uv", "pipx"), _pip),
    **dict.fromkeys(("easy_install", "pip-download", "cpanm", "cpan"), _easy_install),
    **dict.fromkeys(
        ("poetry", "pdm", "hatch", "pipenv", "rye", "pixi"),
        _managed("C directory group G source p project", "add install lock update sync"),
    ),
    **dict.fromkeys(
        ("conda", "mamba", "micromamba"),
        _managed("n c p f name channel prefix file", "install create update upgrade search download"),
    ),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun", "cnpm"), _npm),
    "cargo": _managed(
        "manifest-path path git branch tag rev vers version features F p package",
        "install add fetch search vendor update",
    ),
    **dict.fromkeys(
        ("gem", "bundle", "bundler"), _managed("v version i n source s", "install fetch add unpack update")
    ),
    "go": _go,
    **dict.fromkeys(
        (
            "apt",
            "apt-get",
            "aptitude",
            "dnf",
            "yum",
            "apk",
            "brew",
            "zypper",
            "snap",
            "port",
            "nix-env",
            "dpkg-source",
            "guix",
            "pacman",
            "dget",
        ),
        _managed(_SYSTEM, _SYSTEM_VERBS),
    ),
}
