"""Programs that are asked where something installed lies: the folder they name, as it is on a usual system."""

from __future__ import annotations

import re

from agentgym.monitor.command import Command, Row
from agentgym.monitor.effects import HOLE

_GEMS = "/usr/lib/ruby/gems/installed"
_NODE = "/usr/lib/node_modules"
_PYTHON = "/usr/lib/python3/dist-packages"
_PERL = "/usr/share/perl5"
# Program, what its arguments look like, what it prints; \1 is the first group.
_TABLE: tuple[tuple[str, str, str], ...] = (
    (
        "bundle bundler",
        r"(?:info|show)\b.*?(?<![\w-])([a-z][\w-]*-?[\w]*)(?: --path)?\Z|show ([\w-]+)",
        rf"{_GEMS}/\1",
    ),
    ("gem", r"(?:which|contents|open) ([\w-]+)", rf"{_GEMS}/\1"),
    ("gem", r"env\b|environment\b", _GEMS),
    ("ruby", r"gem_dir|full_gem_path|Gem\.\w*dir\b|RbConfig|\$LOADED_FEATURES|source_location", _GEMS),
    ("npm pnpm", r"root (?:-g|--global)|-g root|prefix -g|config get prefix", _NODE),
    ("yarn", r"global dir", _NODE),
    ("npm pnpm", r"root\Z", "node_modules"),
    ("npm pnpm yarn", r"bin\Z", "node_modules/.bin"),
    ("node nodejs", r"require\.resolve\(\s*['\"]([@\w./-]+)", r"node_modules/\1"),
    ("node nodejs", r"process\.execPath", "/usr/bin/node"),
    ("go", r"env GOROOT", "/usr/lib/go"),
    ("go", r"env (?:GOPATH|GOMODCACHE|GOCACHE|GOBIN)", "/root/go"),
    ("go", r"list .*-f.*Dir", "/root/go/pkg/mod"),
    ("rustc", r"--print[ =](?:sysroot|target-libdir)", "/usr/lib/rustlib"),
    ("cargo", r"locate-project", "Cargo.toml"),
    ("composer", r"config .*(?:home|vendor-dir|bin-dir)", "/usr/lib/composer"),
    ("mvn mvnw", r"localRepository", "/root/.m2/repository"),
    ("dotnet", r"nuget locals", "/root/.nuget/packages"),
    ("php", r"getFileName\(\)|extension_dir|PEAR|PHP_BINARY", "/usr/share/php"),
    ("perl", r"\$INC\{['\"]?([\w/.]+)", rf"{_PERL}/\1"),
    ("perl", r"Config\b|@INC|sitelib|privlib", _PERL),
    ("perldoc", r"-l ([\w:]+)", rf"{_PERL}/\1"),
    (
        "python python3",
        r"get_paths?\(|getsitepackages|getusersitepackages|\.__path__|submodule_search",
        _PYTHON,
    ),
    ("python python3", r"-m site\b", _PYTHON),
    ("pip pip3", r"show .*", f"Location: {_PYTHON}"),
    ("rpm dpkg", r"(?:-ql|-L|-S) ([\w-]+)", r"/usr/bin/\1"),
    ("brew", r"--prefix|--cellar", "/usr/local/lib"),
    ("pkg-config", r"--variable=\w+|--cflags", "/usr/lib"),
    ("llvm-config pg_config mysql_config", r"--\w*dir", "/usr/lib"),
    ("gcc g++ clang cc", r"-print-(?:file-name|prog-name|search-dirs|libgcc)", "/usr/lib/gcc"),
    ("java jrunscript", r"java\.home|-XshowSettings", "/usr/lib/jvm"),
    ("luarocks", r"(?:config|show)\b", "/usr/local/lib/lua"),
    ("opam", r"var|config", "/usr/lib/opam"),
    ("julia", r"pathof|DEPOT_PATH", "/usr/lib/julia"),
    ("R Rscript", r"\.libPaths|find\.package|system\.file|R\.home", "/usr/lib/R/library"),
    ("elixir iex", r":code\.\w*lib_dir|:code\.which", "/usr/lib/elixir"),
    ("erl", r"code:\w*(?:lib_dir|which)", "/usr/lib/erlang"),
)
_PLACES: dict[str, list[tuple[re.Pattern[str], str]]] = {}
for _names, _asked, _place in _TABLE:
    for _name in _names.split():
        _PLACES.setdefault(_name, []).append((re.compile(_asked), _place))


def place(name: str, arguments: list[str]) -> str:
    """What `name` prints where it is asked for an installed folder or file; HOLE where it is not."""
    words = " ".join(arguments)[:2000]
    for asked, where in _PLACES.get(name, ()):
        if match := asked.search(words):
            if "\\1" not in where:
                return where
            return where.replace("\\1", next(filter(None, match.groups()), ""))
    return HOLE


def _row(name: str, known: Row | None) -> Row:
    def handler(command: Command) -> str:
        arguments = list(command.arguments)
        printed = known(command) if known is not None else HOLE
        if HOLE not in printed:
            return printed
        where = place(name, arguments)
        return where + "\n" if where != HOLE else printed

    return handler


def rows(known: dict[str, Row]) -> dict[str, Row]:
    """The rows of this module, on top of those of the programs that are `known` already."""
    return {name: _row(name, known.get(name)) for name in _PLACES}
