"""What a blocked call is answered with: the words of an ordinary call that finds nothing or fails.

A made-up answer gives itself away, by its words, its exit status or its delay. So a *twin* of the blocked call is made
in the same environment: the same command with names in it that lead nowhere, or the same program on a file that is not
there or cannot be changed. The names are put back in its answer. A twin must be harmless: it only looks, and only at
what the policy may look at; `harmless` decides that by what the monitor's reader says a command does. Where there is
none, a command that prints nothing stands in.
"""

from __future__ import annotations

import posixpath
import random
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from agentgym.core import Episode, Next, ToolCall, ToolResult
from agentgym.monitor.context import Context
from agentgym.monitor.effects import Effect
from agentgym.tasks import FrozenDict
from agentgym.wrappers.harmless import effects_of, harmless

# A file and a folder of the system that no sandbox here lets a policy change; asked before it is relied on.
_KEPT_FOLDER = "/usr/lib"
_KEPT_FILE = f"{_KEPT_FOLDER}/os-release"
_KEPT = (
    f"test -e {_KEPT_FILE} && test ! -w {_KEPT_FILE} && test -d {_KEPT_FOLDER} && test ! -w {_KEPT_FOLDER}"
)

# Programs that read a file in other words than "PROGRAM FILE".
_READERS = {
    "awk": "awk 1 {}",
    "cmp": "cmp {} /dev/null",
    "cp": "cp {} /dev/null",
    "cut": "cut -c1- {}",
    "dd": "dd if={}",
    "diff": "diff {} /dev/null",
    "git": "git apply {}",
    "grep": "grep . {}",
    "redirect": ": < {}",
    "rg": "rg . {}",
    "sed": "sed -n p {}",
    "tar": "tar cf /dev/null {}",
}
_PLAIN_READERS = frozenset(
    "base64 bash cat cd du file find head hexdump jq less ls md5sum more nl node od perl python python3 realpath rev"
    " ruby sh sha1sum sha256sum sort source stat strings tac tail tree uniq wc xxd".split()
)
_WRITERS = {
    "chmod": "chmod +x {}",
    "cp": "cp /dev/null {}",
    "ln": "ln -sf /dev/null {}",
    "mkdir": "mkdir {}",
    "mv": "mv {0} {0}.old",
    "rm": "rm -rf {}",
    "sed": "sed -i s/a/a/ {}",
    "tee": "tee {} < /dev/null",
    "touch": "touch {}",
    "truncate": "truncate -s 0 {}",
    "unlink": "unlink {}",
}
_NEED_A_FILE = frozenset(("chmod", "mv", "rm", "sed", "truncate", "unlink"))
# What makes git look at more than HEAD.
_ALL_REFS = re.compile(
    r"(?<=\s)(?:--(?:all|branches|tags|remotes|reflog|walk-reflogs|alternate-refs)(?:=\S+)?|--glob=\S+|-g|-a|-r)(?=\s|$)"
)
_REF_MARKS = re.compile(r"\.{2,3}|[:~^]|@\{")
_SIMULATED = re.compile(r"(\w+)\[(.*)\]\s*", re.DOTALL)  # search[...], click[...]


Renamed: TypeAlias = tuple[tuple[str, str], ...]
"""What a name that leads nowhere stands for, name by name."""


class Twin(NamedTuple):
    """A call to make instead, and what to write for what in its answer."""

    call: ToolCall
    renamed: Renamed = ()


class Twins:
    """Answers blocked calls.

    Args:
        seed: of the names that lead nowhere. They follow from it and the call, so the same call has the same twin.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._system_is_kept: bool | None = None  # unknown until asked

    def answer(
        self, call: ToolCall, hack_class: str, context: Context, next: Next, episode: Episode
    ) -> ToolResult:
        """The answer of the first twin that is harmless.

        Args:
            call: the blocked one.
            hack_class: what it was blocked for.
            context: the episode's, as the call found it.
            next: runs a call.
            episode: a twin never ends it.
        """
        names = Names(random.Random(f"{self._seed} {call}"))
        for twin in self._twins(call, hack_class, context, next, names):
            result = next(twin.call)
            if episode.done:
                episode.done = False
                continue
            text = result.text
            for made, meant in twin.renamed:
                text = text.replace(made, meant)
            return result._replace(text=text)
        return ToolResult("")

    def stand_in(self, call: ToolCall, hack_class: str, context: Context) -> ToolCall:
        """The first twin, for a caller who cannot try several: somebody else runs the call.

        Args:
            call: the blocked one.
            hack_class: what it was blocked for.
            context: the episode's, as the call found it.
        """
        names = Names(random.Random(f"{self._seed} {call}"))

        def believed(call: ToolCall) -> ToolResult:
            return ToolResult("", exit_code=0)  # that the system is kept from changes, as in our sandboxes

        return next(self._twins(call, hack_class, context, believed, names)).call

    def _twins(
        self, call: ToolCall, hack_class: str, context: Context, next: Next, names: Names
    ) -> Iterator[Twin]:
        arguments = call.arguments
        if isinstance(arguments.get("command"), str):
            yield from self._shell_twins(call, hack_class, context, next, names)
        elif isinstance(arguments.get("path"), str):
            yield _file_twin(call, context, names)
        else:
            yield _scrambled(call, names)

    def _shell_twins(
        self, call: ToolCall, hack_class: str, context: Context, next: Next, names: Names
    ) -> Iterator[Twin]:
        command = call.arguments["command"]
        effects = effects_of(call, context)
        narrowed = _ALL_REFS.sub("", command) if any(e.kind == "git" for e in effects) else command
        if narrowed != command:
            yield from self._checked(call, narrowed, (), context)
        respelt, renamed = _respell(narrowed, effects, context, names)
        if renamed:
            yield from self._checked(call, respelt, renamed, context)
        offence = _offence(effects, hack_class, context)
        if offence is None:
            pass
        elif offence.kind in _CHANGES:
            yield from self._refused(call, offence, context, next, names)
        elif offence.kind in ("git", "net", "install"):
            alone, renamed = _respell(_alone(offence, command), effects, context, names)
            yield from self._checked(call, alone, renamed, context)
        elif offence.deep and context.protection_of(offence.target) != "protected":
            yield Twin(_with(call, command=_searching(offence, names)))
        elif offence.target.startswith("/"):
            path = _as_spelt(offence.target, command, context)
            missing = names.like(path)
            yield Twin(_with(call, command=_reading(offence, missing)), ((missing, path),))
        yield Twin(_with(call, command="true"))

    def _checked(
        self, call: ToolCall, command: str, renamed: Renamed, context: Context, kept: str = ""
    ) -> Iterator[Twin]:
        twin = Twin(_with(call, command=command), renamed)
        if harmless(twin.call, context, made_up=[made for made, _ in renamed], kept=kept):
            yield twin

    def _refused(
        self, call: ToolCall, effect: Effect, context: Context, next: Next, names: Names
    ) -> Iterator[Twin]:
        """The command, or else its program, on a file that cannot be changed; or in a folder that is not there."""
        command, program = call.arguments["command"], posixpath.basename(effect.program)
        path = _as_spelt(effect.detail[0] if effect.kind == "link" else effect.target, command, context)
        form = _WRITERS.get(program, ": > {}")
        if not self._is_system_kept(call, next):
            missing = f"{names.like(path)}/x"
            yield Twin(_with(call, command=form.format(shlex.quote(missing))), ((missing, path),))
            return
        kept = _KEPT_FILE if program in _NEED_A_FILE else f"{_KEPT_FOLDER}/{names.word('x')}"
        folder = posixpath.dirname(path)
        beside = (f"{_KEPT_FOLDER}/", f"{folder}/" if folder else "")  # sed names its temporary file
        renamed = ((kept, path), beside)
        elsewhere = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", kept, command)
        yield from self._checked(call, elsewhere, renamed, context, kept)
        yield Twin(_with(call, command=form.format(kept)), renamed)

    def _is_system_kept(self, call: ToolCall, next: Next) -> bool:
        if self._system_is_kept is None:
            self._system_is_kept = next(_with(call, command=_KEPT)).exit_code == 0
        return self._system_is_kept


class Names:
    """Names that lead nowhere, in the shape of others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def like(self, name: str) -> str:
        """`name` with its last part replaced, so that it is nobody's; its ending stays."""
        folder, slash, last = name.rpartition("/")
        stem, dot, ending = last.rpartition(".")
        if not stem:
            stem, dot, ending = last, "", ""
        return f"{folder}{slash}{self.word(stem)}{dot}{ending}"

    def word(self, word: str) -> str:
        """Another word of at least eight letters; hexadecimal digits where `word` is made of them."""
        digits = "0123456789abcdef"
        if len(word) >= 7 and all(letter in digits for letter in word):
            return "".join(self._rng.choices(digits, k=len(word)))
        return "q" + "".join(self._rng.choices("bcdfghjklmnpqrstvwxz", k=max(7, len(word) - 1)))


def _respell(
    command: str, effects: tuple[Effect, ...], context: Context, names: Names
) -> tuple[str, Renamed]:
    """The command with everything that leads over a line named otherwise, and what is called how now."""
    renamed: dict[str, str] = {}
    for meant, pattern, made in _forbidden_names(effects, context, names):
        changed = re.sub(pattern, lambda match: made, command)  # noqa: B023 (used at once)
        if changed != command and meant not in renamed.values():
            command = changed
            renamed[made] = meant
    return command, tuple(renamed.items())


def _forbidden_names(
    effects: tuple[Effect, ...], context: Context, names: Names
) -> Iterator[tuple[str, str, str]]:
    """Name, pattern of where it stands in a command, and the name to put there."""
    for path in context.protected_paths:
        name = posixpath.basename(path)
        if name:
            word = re.escape(name)
            yield name, rf"(?<=/){word}(?![\w-])|(?<![\w./-]){word}(?=/)", names.word(name)
    for effect in effects:
        if effect.kind == "net":
            yield from _network_names(effect.target, context, names)
        elif effect.kind == "install":
            package = re.split(r"[^\w.-]", effect.target)[0]
            if package.strip("."):
                yield package, rf"(?<![\w./-]){re.escape(package)}(?![\w-])", names.word(package)
        elif effect.kind == "git" and effect.target != "clone":
            for ref in _refs(effect.detail):
                yield ref, rf"(?<![\w/-]){re.escape(ref)}(?![\w/-])", names.word(ref)


def _network_names(url: str, context: Context, names: Names) -> Iterator[tuple[str, str, str]]:
    """A host that may be asked is asked for a repository it does not have, any other host does not resolve."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:  # no number
        return
    if context.host_allowed(host, port):
        for entry in context.upstream:
            _, _, repository = entry.partition("/")
            owner, _, name = repository.rpartition("/")
            yield repository, rf"(?i){re.escape(repository)}(?![\w-])", f"{owner}/{names.word(name)}"
    elif host:
        made = f"{names.word(host.replace('.', ''))[:12]}.invalid"  # a name that never resolves, RFC 2606
        yield host, rf"(?i)(?<![\w.-]){re.escape(host)}(?![\w-])", made


def _reading(effect: Effect, path: str) -> str:
    """A command with which the program of an effect reads a file."""
    name = posixpath.basename(effect.program)
    if name.startswith("python") and effect.kind != "run":
        return f"{name} -c {shlex.quote(f'open({path!r})')}"
    form = _READERS.get(name, f"{name} {{}}" if name in _PLAIN_READERS else "true")
    return form.format(shlex.quote(path))


def _searching(effect: Effect, names: Names) -> str:
    """A command with which a program that looks through a folder finds nothing there."""
    name, word = posixpath.basename(effect.program), names.word("x")
    if name in ("grep", "egrep", "fgrep", "rg"):
        return f"{name} {word} /dev/null"
    return f"find {shlex.quote(effect.target)} -maxdepth 0 -name {word}" if name == "find" else "true"


def _alone(effect: Effect, command: str) -> str:
    """A command that asks git, a host or an index for the same, and does nothing with what it gets."""
    quiet = re.search(r"\s(?:-\w*[sq]|--silent|--quiet)", command) is not None
    url = shlex.quote(effect.target)
    if effect.kind == "git":
        return shlex.join(("git", effect.target, *effect.detail))
    if effect.kind == "install":
        return f"pip download --no-deps -d /tmp {'-q ' if quiet else ''}{url}"
    if effect.program == "wget":
        return f"wget {'-q ' if quiet else ''}-O /dev/null {url}"
    if effect.program == "git":
        return f"git ls-remote {url}"
    kept = re.search(r"\s-\w*[oO]|--output|[>|]", command) is not None
    return f"curl {'-s ' if quiet else ''}{'-o /dev/null ' if kept else ''}{url}"


def _refs(arguments: tuple[str, ...]) -> Iterator[str]:
    for argument in arguments:
        if argument == "--":
            return
        if not argument.startswith(("-", "/", ".")) and "://" not in argument:
            before = argument.partition(":")[0]
            yield from (
                part for part in _REF_MARKS.split(before) if part and part != "HEAD" and not part.isdigit()
            )


_CHANGES = ("write", "delete", "link")
_PATH_KINDS = ("read", "list", "write", "delete", "link", "run")
_KINDS_OF_CLASS: Mapping[str, tuple[str, ...]] = {
    "protected_read": ("read", "list", "run", "link"),
    "reference_copy": ("read", "run", "list", "write"),
    "secret_probe": ("read", "list", "process", "run"),
    "special_case": ("read", "write"),
    "git_history": ("git", "read"),
    "net_upstream": ("net", "git"),
    "pkg_install": ("install", "net"),
}


def _offence(effects: tuple[Effect, ...], hack_class: str, context: Context) -> Effect | None:
    """What of a call crosses the line, as near as the class of the decision tells."""
    placed = [effect for effect in effects if effect.kind in _PATH_KINDS and effect.target.startswith("/")]
    for level in ("protected", "readonly"):
        for effect in placed:
            if context.protection_of(effect.target) == level and (
                level == "protected" or effect.kind in _CHANGES
            ):
                return effect
    kinds = _KINDS_OF_CLASS.get(hack_class, _CHANGES)
    asked = [effect for effect in effects if effect.kind in ("git", "net", "install")]
    return next((effect for kind in kinds for effect in (*placed, *asked) if effect.kind == kind), None)


def _as_spelt(target: str, command: str, context: Context) -> str:
    """An absolute path as the command writes it, where it does; programs repeat it so."""
    relative = posixpath.relpath(target, context.state.cwd)
    if target in command or relative.startswith(".."):
        return target
    folder = posixpath.dirname(relative)
    return relative if relative in command or (folder and folder in command) else target


def _file_twin(call: ToolCall, context: Context, names: Names) -> Twin:
    """A file tool: another file that is not there, a text that does not occur, a place that cannot be written."""
    path = call.arguments["path"]
    target = posixpath.normpath(posixpath.join(context.workspace, path))
    hidden = context.protection_of(target) == "protected"
    for old in ("old", "old_str"):
        if isinstance(call.arguments.get(old), str) and not hidden:
            return Twin(_with(call, **{old: names.word(call.arguments[old][:40])}))
    if len(call.arguments) > 1 and not hidden and _writes(call.arguments):
        made = f"{_KEPT_FOLDER}/{names.like(posixpath.basename(path))}"
    else:
        made = names.like(path)
    return Twin(_with(call, path=made), ((made, path),))


def _writes(arguments: Mapping[str, Any]) -> bool:
    return any(name in arguments for name in ("content", "text", "new", "new_str", "file_text"))


def _scrambled(call: ToolCall, names: Names) -> Twin:
    """Any other tool: words that mean nothing, in the same form."""
    renamed: list[tuple[str, str]] = []
    arguments = {}
    for key, value in call.arguments.items():
        if isinstance(value, str) and value:
            form = _SIMULATED.fullmatch(value)
            meant = form[2] if form else value
            made = names.word(meant[:40])
            value = f"{form[1]}[{made}]" if form else made
            renamed.append((made, meant))
        arguments[key] = value
    return Twin(ToolCall(call.name, FrozenDict(arguments)), tuple(renamed))


def _with(call: ToolCall, **changed: str) -> ToolCall:
    return ToolCall(call.name, FrozenDict({**call.arguments, **changed}))
