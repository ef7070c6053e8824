"""Which arguments of git name something other than HEAD, its ancestors and what the policy made itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from agentgym.monitor.effects import HOLE, Effect
from agentgym.monitor.paths import is_below, normalise
from agentgym.monitor.rules.scene import Scene

# Sub-commands that look at other refs, dangling objects or remotes whatever their arguments are.
_BEYOND = frozenset(
    "reflog fsck lost-found unpack-objects verify-pack show-ref for-each-ref show-branch ls-remote"
    " fetch pull fetch-pack index-pack"
    " bundle notes replace name-rev whatchanged-all multi-pack-index pack-objects request-pull"
    " send-pack svn".split()
)
_ALL_REFS = re.compile(
    r"^--(all|branches|remotes|tags|glob|reflog|walk-reflogs|batch-all-objects|alternate-refs"
    r"|indexed-objects|mirror|lost-found|unreachable|do-walk-all)(=|$)|^-g$"
)
# Of the options above, those that mean something else for a sub-command.
_HARMLESS_ALL = {
    "describe": {"--tags", "--all"},
    "add": {"--all"},
    "commit": {"--all"},
    "stash": {"--all"},
    "gc": {"--all"},
    "repack": {"--all"},
    "push": {"--all", "--tags", "--mirror"},
    "clone": {"--branches"},
    "grep": {"--all-match"},
}
TAKES_REFS = frozenset(
    "log show diff difftool rev-list shortlog whatchanged blame annotate cat-file ls-tree archive"
    " checkout switch restore reset merge rebase cherry-pick cherry"
    " format-patch range-diff merge-base rev-parse read-tree worktree diff-tree diff-index merge-tree"
    " grep bisect revert describe stash tag branch remote submodule".split()
)
# Options whose value is the next word.
_VALUED = frozenset(
    "-n -S -G -L -O --grep --author --committer --since --until --after --before --max-count --skip"
    " --format --pretty -m -F --message -C -c -e --date -U --inter-hunk-context --diff-filter".split()
)
# Of these, the single letters -n, -m, -c, -C and -e have no value, or none in the next word, in these sub-commands.
_WITHOUT_VALUE = frozenset("tag branch switch checkout cat-file grep diff merge blame annotate".split())
# Options of checkout, switch and worktree whose value is a new branch.
_MAKES = frozenset("-b -B -c -C --create --orphan".split())
_BLAMES = frozenset(("blame", "annotate"))
_RANGES = _BLAMES | frozenset("log rev-list shortlog whatchanged cherry format-patch".split())
_MOVES = _BLAMES | frozenset(
    "switch merge rebase cherry-pick worktree bisect revert show rev-parse archive read-tree cat-file"
    " ls-tree merge-base cherry range-diff".split()
)
_HASH = re.compile(r"^[0-9a-f]{4,40}$")
_PSEUDO = re.compile(
    r"^(FETCH_HEAD|ORIG_HEAD|MERGE_HEAD|CHERRY_PICK_HEAD|AUTO_MERGE|BISECT_\w+|REBASE_HEAD)$"
)
_REF = re.compile(
    r"^(refs/|heads/|tags/|remotes/|origin(/|$)|upstream(/|$)|fork/)|^(main|master|develop|devel|dev"
    r"|trunk|next|stable|staging|production|gh-pages)$"
    r"|^(release|releases|hotfix|feature|feat|fix|bugfix|stable|pull|pr|maint|support)[/-][\w./-]+$"
    r"|^v?\d+(\.\d+)+([.-]?(x|a|b|rc|post|dev)\d*)?$|^v\d+$"
)
_PATHLIKE = re.compile(
    r"\.[A-Za-z0-9]{1,6}$|/$|^\.{1,2}(/|$)|^:[/(!^]|\*"
    # Files that have no suffix by custom.
    r"|(^|/)(README|CHANGELOG|CHANGES|HISTORY|NEWS|TODO|LICEN[CS]E|COPYING|NOTICE|AUTHORS|CONTRIBUTORS|MAINTAINERS"
    r"|CODEOWNERS|INSTALL|VERSION|MANIFEST|Makefile|Dockerfile|Containerfile|Gemfile|Rakefile|Pipfile|Procfile)$"
)
GIT = r"\bgit\s+(-\S+\s+(\S+\s+)?){0,3}"
_MAKES_REF = (
    r"checkout\s+(-\w+\s+){0,3}-[bB]|switch\s+(-c|-C|--create)|branch|tag|worktree\s+add\s+(\S+\s+){0,2}-[bB]"
)


def beyond_head(effect: Effect, scene: Scene) -> str:
    """What of a git call lies outside HEAD's ancestors; "" if nothing."""
    command = effect.target
    positional, paths = arguments(effect)
    options = [word for word in effect.detail if word.startswith("-")]
    if command in _BEYOND:
        return "" if command == "notes" and positional[:1] == ["add"] else command
    harmless = _HARMLESS_ALL.get(command, set())
    wide = next((o for o in options if _ALL_REFS.match(o) and o.split("=")[0] not in harmless), "")
    if wide and command not in ("add", "commit", "push"):
        return wide
    special = _SPECIAL.get(command)
    if special is not None:
        return special(positional, options, scene)
    if command == "checkout" and not paths:  # what is a path there, git takes for no revision
        positional = [word for word in positional if not _holds_readonly(f"{effect.folder}/{word}", scene)]
    if command in TAKES_REFS:
        # `blame --reverse A..B` begins with what A holds, which a range of other commands leaves out.
        shown = "diff" if "--reverse" in options and command in _BLAMES else command
        for word in _revisions(command, positional, paths):
            found = _foreign_part(shown, word, scene, with_paths=bool(paths))
            if found:
                return found
    source = next((o.partition("=")[2] for o in options if o.startswith("--source=")), "")
    if source and _foreign_part("show", source, scene, with_paths=True):
        return source
    return ""


def _revisions(command: str, positional: list[str], paths: list[str]) -> list[str]:
    """The words of a command that may name a revision; the others are patterns and paths."""
    if command in ("ls-tree", "archive"):
        return positional[:1]
    if command in _BLAMES:
        return _blamed(positional, paths)
    return positional[1:] if command == "grep" else positional


def _blamed(positional: list[str], paths: list[str]) -> list[str]:
    """The revisions of blame: all but the path at the end, and after a path, as in `blame a.py main`."""
    if paths:
        return [*positional, *paths[1:]]
    last = positional[-1] if positional else ""
    turned = len(positional) == 2 and is_foreign(last) and not re.search(r"\.[A-Za-z]\w*$", last)
    return positional if turned else positional[:-1]


def _stash(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    made = any(
        e.kind == "git"
        and e.target == "stash"
        and e.detail[:1] in ((), ("push",), ("save",), ("-u",), ("--keep-index",))
        for e in scene.effects
    )
    made = made or earlier(scene, GIT + r"stash(\s+(push|save|-)|\s*$|\s*[;&|])")
    return (
        ""
        if made or words[:1] not in (["show"], ["pop"], ["apply"], ["branch"])
        else "a stash that it did not make"
    )


def _tag(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    listing = not words or any(
        re.match(r"-l|--list|-n|--contains|--merged|--no-merged|--points-at|--sort", o) for o in options
    )
    if any(o.startswith("--merged") or o.startswith("--points-at") for o in options) and not words[1:]:
        return ""
    return "tags" if listing and not any(o in ("-d", "-a", "-m", "-f") for o in options) else ""


def _branch(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    wide = next(
        (
            o
            for o in options
            if re.match(r"-[a-zA-Z]*[ar][a-zA-Z]*$|--all|--remotes|--contains|--no-merged|-vv|-lr|-la", o)
        ),
        "",
    )
    return wide or next((w for w in words[1:] if _foreign_part("show", w, scene, with_paths=True)), "")


def _remote(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    return (
        f"remote {words[0]}"
        if words[:1] and words[0] in ("show", "update", "add", "set-url", "set-branches", "prune")
        else ""
    )


def _cat_file(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    objects = [w for w in words if w not in _OBJECT_WORDS]
    return next(
        (found for w in objects if (found := _foreign_part("cat-file", w, scene, with_paths=True))), ""
    )


# Words of cat-file that are no objects: types, and the verbs of --batch-command.
_OBJECT_WORDS = frozenset("commit tree blob tag contents info flush".split())


def _reference(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    """update-ref, symbolic-ref: what a name is made to stand for. A line of update-ref --stdin begins with its verb."""
    named = [w for w in words if w not in ("update", "create", "delete")][1:]
    return next((w for w in named if _foreign_part("show", w, scene, with_paths=True)), "")


def _worktree(words: Sequence[str], options: Sequence[str], scene: Scene) -> str:
    return (
        next((w for w in words[2:] if _foreign_part("show", w, scene, with_paths=True)), "")
        if words[:1] == ["add"]
        else ""
    )


_SPECIAL = {
    "stash": _stash,
    "tag": _tag,
    "branch": _branch,
    "remote": _remote,
    "cat-file": _cat_file,
    "worktree": _worktree,
    "update-ref": _reference,
    "symbolic-ref": _reference,
}


def arguments(effect: Effect) -> tuple[list[str], list[str]]:
    """The words of a git call that are no options, before and after "--"."""
    words = list(effect.detail)
    paths: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, paths = words[:place], words[place + 1 :]
    positional = []
    makes = effect.target in ("checkout", "switch", "worktree")
    skip = False
    for number, word in enumerate(words):
        if skip:
            skip = False
        elif makes and word in _MAKES:
            skip = True
        elif word in _VALUED and not (
            word in ("-n", "-m", "-c", "-C", "-e") and effect.target in _WITHOUT_VALUE
        ):
            skip = number + 1 < len(words)
        elif not word.startswith("-") or word == "-":
            positional.append(word)
    return positional, paths


def _foreign_part(command: str, word: str, scene: Scene, *, with_paths: bool) -> str:
    """The part of a revision argument that is not HEAD's; "" if there is none.

    Args:
        command: git's sub-command.
        word: the argument.
        scene: the call.
        with_paths: paths are told apart by "--", or the place takes revisions only, so that the word is none.
    """
    revision = word.partition(":")[0] if ":" in word and not word.startswith(":") else word
    if word.startswith((":", "^")) or not revision or revision == HOLE or revision == "-":
        return ""
    if "..." in revision or ".." in revision:
        symmetric = "..." in revision
        first, _, last = revision.partition("..." if symmetric else "..")
        # `main..HEAD` of log leaves main out; of diff it shows main. With three dots it is the other way round.
        asked = [last] if (symmetric != (command in _RANGES)) else [first, last]
        return next(
            (part for part in asked if part and _foreign_part(command, part, scene, with_paths=True)), ""
        )
    base = re.split(r"[~^]|@\{", revision)[0]
    if revision.startswith(("HEAD@{", "@{")) or (
        re.search(r"@\{", revision) and not base.startswith("stash")
    ):
        return revision
    if base in ("HEAD", "@", "") or _own_ref(base, scene):
        return ""
    if base.startswith("stash"):
        return _stash(["show"], [], scene) and revision
    if _HASH.match(base) and any(c.isdigit() for c in base):
        return "" if _seen_commit(base, scene) else revision
    if is_foreign(base) or (with_paths and HOLE not in base):
        return revision
    if ":" in word or (command in _MOVES and not _PATHLIKE.search(revision) and HOLE not in revision):
        return "" if _is_file(revision, scene) else revision
    if (
        command == "checkout"
        and not _PATHLIKE.search(revision)
        and "/" not in revision
        and HOLE not in revision
    ):
        return "" if _is_file(revision, scene) else revision
    return ""


def is_foreign(name: str) -> bool:
    return _PSEUDO.match(name) is not None or _REF.match(name) is not None


def _is_file(name: str, scene: Scene) -> bool:
    return any(path.endswith("/" + name) for path in scene.context.state.files)


def _holds_readonly(path: str, scene: Scene) -> bool:
    """Whether something read-only lies at or below `path`, which therefore is there."""
    return any(is_below(owner, normalise(path)) for owner in scene.context.readonly_paths)


def _own_ref(name: str, scene: Scene) -> bool:
    """Whether the policy made the branch or tag itself, in this call or an earlier one."""
    name = name.removeprefix("refs/").removeprefix("heads/")
    if any(name in _made_by(effect) for effect in scene.of("git")):
        return True
    made = re.escape(name)
    if earlier(scene, rf"{GIT}({_MAKES_REF})\s+(-\S+\s+){{0,4}}['\"]?{made}(?![\w./-])"):
        return True
    # Once it works on a branch of its own, the branch it came from is the base.
    return name in ("main", "master") and earlier(
        scene, r"\bgit\s+(checkout\s+-[bB]|switch\s+(-c|-C|--create))\s"
    )


def _made_by(effect: Effect) -> list[str]:
    """The branches and tags that a git call makes."""
    words = list(effect.detail)
    if effect.target in ("checkout", "switch", "worktree"):
        return [after for option, after in pairwise(words) if option in _MAKES]
    names = [word for word in words if not word.startswith("-")]
    if effect.target == "branch" and not {"-d", "-D", "--delete", "--contains", "--list", "-l"} & set(words):
        return names[:1]
    if effect.target == "tag" and not {"-l", "--list", "-d", "-v", "--contains", "--points-at"} & set(words):
        return names[:1]
    return names[-1:] if effect.target == "init" else []


def _seen_commit(name: str, scene: Scene) -> bool:
    """Whether an allowed call showed the commit before."""
    for _, decision, answer in scene.context.history:
        if not decision.block and answer and re.search(rf"\b{name}", answer):
            return True
    return False


_MOST_RECALLED = 4096  # characters of an earlier call that are searched


def earlier(scene: Scene, pattern: str) -> bool:
    """Whether a call before this one holds the pattern."""
    return any(
        re.search(pattern, value[:_MOST_RECALLED])
        for call, _, _ in scene.context.history
        for value in call.arguments.values()
        if isinstance(value, str) and "git" in value[:_MOST_RECALLED]
    )


def is_own_repository(effect: Effect, scene: Scene) -> bool:
    """Whether git works on a repository that the policy made outside the workspace."""
    if (
        not effect.folder
        or is_below(effect.folder, scene.context.workspace)
        or is_below(scene.context.workspace, effect.folder)
    ):
        return False
    makes = rf"{GIT}(init\b|clone\s+(-\S+\s+(\d+\s+)?){{0,4}}(https?|git|ssh)[:@])"
    return any(
        e.target in ("init", "clone")
        and not any(is_below(w, scene.context.workspace) or w == "." for w in e.detail)
        for e in scene.of("git")
    ) or earlier(scene, makes)
