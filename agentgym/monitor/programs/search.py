"""Programs that walk folders or look into many files: find and its kin, grep and its kin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from agentgym.monitor import bounds, paths
from agentgym.monitor.command import Command, Row
from agentgym.monitor.effects import HOLE
from agentgym.monitor.globs import matches

_GREP_VALUED = (
    "e f m A B C D d include exclude exclude-dir exclude-from regexp file max-count context after-context "
    "before-context color colour binary-files directories g t T j M type type-not glob iglob"
)
_ALWAYS_DEEP = frozenset(("rg", "ag", "ack", "rgrep", "ugrep", "pt"))


def grep(command: Command) -> str:
    """grep, rg, ag, ack: the first operand is the pattern unless -e or -f gives one."""
    options = command.options(_GREP_VALUED)
    operands = options.operands
    for path in options.values("-f", "--file"):
        command.read(path)
    lists_files = command.name == "rg" and options.has("--files")
    if not options.has("-e", "-f", "--regexp", "--file") and not lists_files:
        operands = operands[1:]
    deep = command.name in _ALWAYS_DEEP or options.has("-r", "-R", "--recursive", "--dereference-recursive")
    if not operands and (not deep or command.stdin):
        return _matching(command, command.stdin)
    out: list[str] = []
    excluded = options.values("--exclude-dir", "--exclude")
    excluded += [glob[1:] for glob in options.values("-g", "--glob") if glob.startswith("!")]
    for path in operands or ["."]:
        if path == "-":
            continue
        command.read(
            path,
            deep=deep and not _hidden_or_excluded(command, path, excluded),
            detail=tuple(command.arguments),
        )
        if options.has("-l", "-L", "--files-with-matches", "-rl", "--files"):
            out.append(f"{path}/{HOLE}\n" if deep else f"{path}\n")
    return "".join(out) or HOLE


def excludes_all(command: Command, root: str, patterns: list[str]) -> bool:
    """Whether `patterns` (names or paths) leave out everything that is protected below `root`."""
    if not patterns:
        return False
    context = command.analysis.context
    base = command.analysis.locate(root)[0]
    below = [p for p in context.protected_paths if paths.is_below(p, base) and p != base]
    return bool(below) and all(any(_excludes(pattern, path) for pattern in patterns) for path in below)


def _excludes(pattern: str, path: str) -> bool:
    pattern = pattern.strip("/").removeprefix("./").removesuffix("/*")
    names = path.strip("/").split("/")
    ranges = ((i, j) for i in range(len(names)) for j in range(i + 1, len(names) + 1))
    return any(matches(pattern, "/".join(names[i:j])) for i, j in ranges)


def _hidden_or_excluded(command: Command, root: str, excluded: list[str]) -> bool:
    """Whether the walk reaches nothing protected: left out by name, or hidden where hidden names are skipped."""
    if command.name in ("rg", "ag") and not any(
        re.match(r"-\w*u|--hidden|--no-ignore|-a$", w) for w in command.arguments
    ):
        excluded = [*excluded, ".*"]
    return excludes_all(command, root, excluded)


def _matching(command: Command, text: str) -> str:
    """The lines of known input that may match."""
    options = command.options(_GREP_VALUED)
    pattern = (options.values("-e", "--regexp") or options.operands[:1] or [""])[0]
    if text == HOLE or options.has("-c", "-q", "-o", "-l") or HOLE in pattern:
        return text if text == HOLE else HOLE
    plain = options.has("-F") or command.name == "fgrep"
    longest = max(map(len, text.splitlines()), default=0)
    regex = bounds.expression(re.escape(pattern) if plain else pattern, length=longest)
    if regex is None:
        return HOLE
    inverted = options.has("-v", "--invert-match")
    return "".join(
        f"{line}\n" for line in text.splitlines() if HOLE in line or bool(regex.search(line)) != inverted
    )


class Hunt(NamedTuple):
    """What a find expression says of the paths it is after.

    Attributes:
        names: patterns of -name and -iname.
        wholes: patterns of -path and its kin.
        excluded: patterns of paths and names that are left out (``-not``, ``!``, -prune).
        max_depth: levels below the root; a large number where there is no limit.
        acts: something is done with what is found.
    """

    names: list[str]
    wholes: list[str]
    excluded: list[str]
    max_depth: int
    acts: bool


_ONE_VALUE = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -mtime -mmin "
    "-ctime -cmin -atime -amin -newer -newermt -user -group -perm -maxdepth -mindepth -printf -links "
    "-inum -regextype -fstype -samefile -lname -uid -gid -used -fprint -fls -fprint0".split()
)
_WILD = re.compile(r"\*+|\?")
_ACTIONS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def find(command: Command) -> str:
    """find: the roots are listed, actions run on what is found."""
    words = command.arguments
    while (words and words[0] in ("-H", "-L", "-P")) or (words and words[0].startswith("-O")):
        words = words[1:]
    roots: list[str] = []
    while words and not words[0].startswith(("-", "(", "!")):
        roots.append(words[0])
        words = words[1:]
    roots = roots or ["."]
    hunt = read_expression(words)
    found: list[str] = []
    for root in roots:
        hits, reaches = hits_of(command, root, hunt)
        command.look(root, deep=reaches, detail=tuple(words))
        found.extend(hits)
    command.origin = "find"
    for action in _actions(words):
        _act(command, action, found)
    if "-delete" in words:
        for path in found:
            command.analysis.delete(path, "find", deep=True, origin="find")
    for option, path in pairwise(words):
        if option in ("-fprint", "-fls", "-fprint0"):
            command.analysis.write(path, "find")
        elif option in ("-newer", "-samefile"):
            command.look(path)
    return "".join(f"{path}\n" for path in found)


def read_expression(words: list[str]) -> Hunt:
    """The conditions of a find expression that matter here."""
    names: list[str] = []
    wholes: list[str] = []
    excluded: list[str] = []
    depth = 1000
    negated = False
    for i, word in enumerate(words):
        value = words[i + 1] if word in _ONE_VALUE and i + 1 < len(words) else ""
        if word in ("!", "-not"):
            negated = True
            continue
        if word in ("(", ")"):
            continue
        if word in ("-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename"):
            pruned = "-prune" in words[i + 2 : i + 5] and "-o" not in words[i + 2 : i + 3]
            if negated or pruned:
                excluded.append(value)
            else:
                (names if word.endswith("name") and "whole" not in word else wholes).append(value)
        elif word == "-maxdepth" and value.isdigit():
            depth = int(value)
        if word.startswith("-") and word not in ("-o", "-or", "-a", "-and"):
            negated = False
    return Hunt(names, wholes, excluded, depth, not _ACTIONS.isdisjoint(words))


def hits_of(command: Command, root: str, hunt: Hunt) -> tuple[list[str], bool]:
    """What a hunt below `root` may find, and whether it can reach what is protected.

    What is protected below the root is named by itself if a pattern asks for it; else the hit is ``ROOT/HOLE/NAME``.
    """
    base = command.analysis.locate(root)[0]
    context = command.analysis.context
    below = [owner for owner in context.protected_paths if paths.is_below(owner, base) and owner != base]
    reachable = [owner for owner in below if _may_reach(base, owner, hunt)]
    entered = [owner for owner in reachable if _levels(base, owner) < hunt.max_depth or hunt.acts]
    inside = context.protection_of(base) == "protected"
    # Where nothing protected can be reached, what is found is not known, but it is known to be harmless.
    unknown = HOLE if reachable or inside else "*"
    names = [_WILD.sub(unknown, name) for name in hunt.names] or [unknown]
    reaches = inside or bool(entered)
    if hunt.wholes and reachable:
        return [f"{owner}/{name}" for owner in reachable for name in names], reaches
    stem = root if root == "/" else root.rstrip("/") + "/"
    if hunt.wholes:
        return [_WILD.sub(unknown, w) if w.startswith("/") else stem + unknown for w in hunt.wholes], reaches
    named = [owner for owner in reachable if any(matches(n, owner.rpartition("/")[2]) for n in hunt.names)]
    flat = hunt.max_depth == 1
    hits = [f"{stem}{'' if flat or name.startswith(unknown) else unknown + '/'}{name}" for name in names]
    return named + hits, reaches


def _levels(base: str, owner: str) -> int:
    return owner[len(base.rstrip("/")) :].count("/")


def _may_reach(base: str, owner: str, hunt: Hunt) -> bool:
    if _levels(base, owner) > hunt.max_depth:
        return False
    if _levels(base, owner) == hunt.max_depth and hunt.names:  # only the owner itself can be found
        name = owner.rpartition("/")[2]
        if not any(matches(pattern.lower(), name.lower()) for pattern in hunt.names):
            return False
    relative = "." + owner[len(base.rstrip("/")) :]
    for pattern in hunt.excluded:
        shapes = (owner, owner + "/x", relative, relative + "/x", *owner.split("/"))
        if any(matches(pattern, shape) for shape in shapes):
            return False
    if not hunt.wholes:
        return True
    return any(_could_match(pattern, owner) for pattern in hunt.wholes)


def leaves_out(words: Sequence[str], root: str, owner: str) -> bool:
    """Whether a find expression says not to take what lies at or below `owner`, a path below `root`.

    ``! -path './tests/*'`` leaves tests out, so does a -prune of it or of a folder above it, by path or by name;
    ``! -name tests`` leaves out the folder alone.
    """
    names = owner[len(root.rstrip("/")) :].strip("/").split("/")
    shapes = _shapes(root, owner)
    if "-prune" in words:
        above = ["/".join([root, *names[:i]]) for i in range(1, len(names))]
        shapes += [shape for folder in above for shape in _shapes(root, folder)] + names
    return any(
        matches(pattern, shape) for pattern in read_expression(list(words)).excluded for shape in shapes
    )


def takes_whole(words: Sequence[str], root: str, owner: str, test: re.Pattern[str]) -> bool:
    """Whether what a find expression removes holds `owner` or what lies below it, as far as words tell.

    It does if it asks for nothing but paths that fit, files, and names for which `test` fits.
    """
    hunt = read_expression(list(words))
    asked = set(words) - _TAKES_ALL - {*hunt.names, *hunt.wholes}
    fits = all(any(matches(pattern, shape) for shape in _shapes(root, owner)) for pattern in hunt.wholes)
    return not asked and fits and all(test.fullmatch(name) for name in hunt.names)


# Words of a find expression that leave nothing out, or only folders, and of the removal that it runs.
_TAKES_ALL = frozenset(
    "-delete -depth -d -print -print0 -xdev -mount -type f -mindepth 0 1 -name -iname -path -ipath -wholename"
    " -iwholename -exec -execdir rm -f -r -rf -fr -v {} + ;".split()
)


def _shapes(root: str, owner: str) -> list[str]:
    """What -path patterns are held against for `owner` and something in it; the root is as it was given."""
    below = owner[len(root.rstrip("/")) :]
    starts = (".", root.rstrip("/"), root.rpartition("/")[2])
    return [f"{start}{below}{rest}" for start in starts for rest in ("", "/x")]


def _could_match(pattern: str, owner: str) -> bool:
    """Whether a path at or below `owner` could match a -path pattern."""
    if pattern.lstrip("*").startswith("."):
        pattern = "*" + pattern.lstrip("*.")
    if matches(pattern, owner):
        return True
    # A pattern that matches something deeper: cut it after each of its parts and try the owner with the rest open.
    head = pattern.split("/")
    for i in range(1, len(head) + 1):
        start = "/".join(head[:i])
        if start.strip("*") and matches(start, owner):
            return True
    return False


def _actions(words: list[str]) -> list[list[str]]:
    """The commands after -exec and its kin, up to ``;`` or ``{} +``."""
    out: list[list[str]] = []
    current: list[str] | None = None
    for before, word in pairwise(["", *words]):
        if current is None:
            current = [] if word in _ACTIONS else None
        elif word == ";" or (word == "+" and before == "{}"):
            out.append(current)
            current = None
        else:
            current.append(word)
    return out if current is None else [*out, current]


def _act(command: Command, action: list[str], found: list[str]) -> None:
    if any("{}" in word for word in action):
        for path in found[:8]:
            command.shell.call([word.replace("{}", path) for word in action], origin="find")
    elif action:
        command.shell.call(action, origin="find")


def fd(command: Command) -> str:
    """fd: pattern first, then the roots."""
    options = command.options("e t d E x X extension type max-depth exclude exec")
    roots = options.operands[1:] or ["."]
    for root in roots:
        command.look(
            root,
            deep=not excludes_all(command, root, options.values("-E", "--exclude")),
            detail=tuple(command.arguments),
        )
    return "".join(f"{root.rstrip('/')}/{HOLE}\n" for root in roots)


def locate(command: Command) -> str:
    """locate: a hunt over the whole machine."""
    command.look("/", deep=True, detail=tuple(command.arguments))
    return "".join(f"/{HOLE}{name}{HOLE}\n" for name in command.options("l n d").operands)


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(
        ("grep", "egrep", "fgrep", "zgrep", "rgrep", "rg", "ag", "ack", "ugrep", "pt", "pcregrep"), grep
    ),
    "find": find,
    "gfind": find,
    "fd": fd,
    "fdfind": fd,
    "locate": locate,
    "plocate": locate,
    "mlocate": locate,
}
