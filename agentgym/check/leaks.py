"""Probes: neither the solution nor an earlier episode reaches the policy."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Step,
    Subject,
    actions_of,
    advance,
    contrast,
    expect,
    first_difference,
    play,
    replay,
    short,
    start,
)
from agentgym.core import AgentEnv
from agentgym.tasks import Task
from agentgym.tools import ToolCall

# Keys of a task's data whose long texts are taken for secrets where the environment defines no secrets().
_SECRET_KEYS = ("solution", "answer", "gold", "patch", "test_patch", "secret", "hidden", "reference", "tests")
_LONG = 12  # shorter texts turn up by chance


# -- the solution --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needle:
    """A secret in the forms in which it is searched.

    Attributes:
        text: the secret itself.
        blocks: for a patch, what each hunk leaves in the file it changes, context included.
        lines: for a patch, the lines it adds; a cheap first search.
    """

    text: str
    blocks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def is_in(self, text: str) -> bool:
        """Whether the text gives the secret away."""
        return self.text in text or any(block in text for block in self.blocks)


def needle(secret: str) -> Needle:
    """The secret, taken apart if it is a patch."""
    if "\n@@ " not in secret and not secret.startswith("@@ "):
        return Needle(secret, lines=(next((line for line in secret.splitlines() if line.strip()), secret),))
    blocks, added = [], []
    block: list[str] = []
    grows = False  # the hunk adds something
    for line in [*secret.splitlines(), "@@ "]:
        if line.startswith(("@@ ", "diff ", "--- ", "+++ ")):
            if grows:
                blocks.append("\n".join(block))
            block, grows = [], False
        elif line.startswith("+"):
            block.append(line[1:])
            grows = True
            if len(line.strip()) > _LONG:
                added.append(line[1:].strip())
        elif line.startswith(" ") or not line:
            block.append(line[1:])
    return Needle(secret, tuple(blocks), tuple(added))


def secrets(subject: Subject) -> str:
    """No secret of a task is in observations, infos, system prompt, tools, rendering or sandbox."""
    subject.require_agent_env()
    declared = subject.overrides("secrets")
    searched = 0
    sandboxed = False
    with subject.make() as env:
        agent_env = _agent_env(env)
        agent_env.render_mode = "ansi"
        for task in itertools.islice(agent_env.task_set, subject.times(4, resets=3, ends=2, budget_s=8)):
            needles = [needle(s) for s in (agent_env.secrets(task) if declared else _guess(task)) if s]
            # A guess may be a text that search tools rightly find, so it is looked for where nothing was done.
            for name in ("null", "random") if declared else ("null",):
                player = subject.null() if name == "null" else subject.random(subject.seed)
                trace = play(env, player, seed=subject.seed, task=task.id, steps=12)
                for where, text in _shown(env, trace):
                    for item in needles:
                        expect(
                            not item.is_in(text),
                            f"task {task.id!r}, {name} policy: the secret {short(item.text, 40)} is in {where}",
                        )
            start(env, seed=subject.seed, task=task.id)
            workspace = agent_env.episode.workspace
            if hasattr(workspace, "exec"):
                sandboxed = True
                _search_sandbox(workspace, task, needles)
            searched += len(needles)
    origin = (
        "secrets()" if declared else "the names of keys in task data; define secrets() to say it yourself"
    )
    if not searched and not sandboxed:
        raise DoesNotApply(f"no secrets to look for, by {origin}")
    return f"{searched} secrets, known by {origin}" + (
        "; the sandbox's files and git history, too" if sandboxed else ""
    )


def _guess(task: Task) -> Iterator[str]:
    """Long texts under telling keys, at any depth."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            if len(value) >= _LONG:
                yield value
        elif isinstance(value, Mapping):
            yield from itertools.chain.from_iterable(map(texts, value.values()))
        elif isinstance(value, tuple):
            yield from itertools.chain.from_iterable(map(texts, value))

    def walk(data: Mapping[str, Any]) -> Iterator[str]:
        for key, value in data.items():
            if any(word in key.lower().split("_") or key.lower() == word for word in _SECRET_KEYS):
                yield from texts(value)
            elif isinstance(value, Mapping):
                yield from walk(value)

    return walk(task.data)


def _shown(env: Env, trace: list[Step]) -> Iterator[tuple[str, str]]:
    """Everything the policy may see, with where. Not the verdict, which comes when nothing can be done with it."""
    agent_env = _agent_env(env)
    yield "the system prompt", agent_env.system_prompt
    yield "the tools", repr(agent_env.tools)
    for number, step in enumerate(trace):
        yield f"the observation of step {number}", _text(step.observation)
        for key, value in step.info.items():
            if key != "verdict":
                yield f"info[{key!r}] of step {number}", _text(value)
    yield "the rendered text", str(env.render())


def _text(value: Any) -> str:
    """The value's texts, from its representation and from its pickled form, which hides no attribute."""
    if isinstance(value, str):
        return value
    return str(value) + "\n" + pickle.dumps(value).decode("utf-8", "replace")


# -- the sandbox ---------------------------------------------------------------------------------------------------

# Files with any of the lines on standard input: in the workspace, and where copies of a package may lie.
_GREP = (
    'grep -rIlFs -f - -- . /tmp "$HOME" '
    "$(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null) | head -n 50"
)
_GIT = (
    "git() { command git -c safe.directory='*' \"$@\"; }; git rev-parse HEAD >/dev/null 2>&1 || exit 0; "
    "echo commits besides HEAD: $(git log --all --reflog --format=%H | sort -u | grep -vcx $(git rev-parse HEAD)); "
    "echo unreachable objects: $(git fsck --unreachable --no-reflogs --no-progress 2>/dev/null | wc -l); "
    "echo remotes: $(git remote | wc -l); echo tags: $(git tag | wc -l); echo stashes: $(git stash list | wc -l)"
)
_GIT_BLOBS = "git -c safe.directory='*' grep -lIF -f /dev/stdin HEAD -- 2>/dev/null | head -n 50"


def _search_sandbox(workspace: Any, task: Task, needles: list[Needle]) -> None:
    """A sandbox must hold no secret and no history beyond one commit."""
    for line in workspace.exec(_GIT, timeout=60).stdout.splitlines():
        what, _, count = line.rpartition(": ")
        expect(count == "0", f"task {task.id!r}, git in the sandbox: expected no {what}, got {count}")
    for item in needles:
        lines = "\n".join(item.lines).encode()
        if not lines:
            continue
        for path in workspace.exec(_GREP, timeout=120, stdin=lines).stdout.splitlines():
            content = workspace.read(path).decode("utf-8", "replace")
            expect(
                not item.is_in(content),
                f"task {task.id!r}: {short(item.text, 40)} is in the sandbox's file {path}",
            )
        for path in workspace.exec(_GIT_BLOBS, timeout=60, stdin=lines).stdout.splitlines():
            content = workspace.exec(["git", "-c", "safe.directory=*", "show", path], timeout=60).stdout
            expect(not item.is_in(content), f"task {task.id!r}: {short(item.text, 40)} is in git's {path}")


# -- earlier episodes ----------------------------------------------------------------------------------------------


def fresh_reset(subject: Subject) -> str:
    """Each reset to a seed starts alike, and nothing an earlier episode's policy wrote comes back."""
    rounds = subject.times(5, resets=2)
    with subject.make() as env:
        player = subject.random(subject.seed) if subject.expensive else subject.lively(1)
        first = play(env, player, seed=subject.seed, steps=4)
        actions = actions_of(first)
        prompt = _system_prompt(env)
        start(env, seed=subject.seed)
        for number in range(1, rounds + 1):
            marker = f"marker-{number}-{subject.seed + 7919 * number:08x}"
            if subject.is_agent_env:
                _write_everywhere(env, marker)
            again = play(env, replay(actions), seed=subject.seed)
            difference = first_difference(first, again)
            expect(
                difference is None,
                f"reset {number + 1} to seed {subject.seed} differs from the first: {difference}",
            )
            now = _system_prompt(env)
            expect(now == prompt, f"reset {number + 1}: the system prompt {contrast(prompt, now)}")
            for index, step in enumerate(again):
                expect(
                    marker not in _text(step.observation) + _text(step.info),
                    f"reset {number + 1}, step {index}: a text that the episode before wrote ({marker}) came back",
                )
            start(env, seed=subject.seed)
    return f"{rounds + 1} resets to one seed, up to {len(actions)} steps each"


def _system_prompt(env: Env) -> str:
    return env.unwrapped.system_prompt if isinstance(env.unwrapped, AgentEnv) else ""


def _write_everywhere(env: Env, marker: str) -> None:
    """Actions with the marker: as plain text, and as every text argument of every tool, as a shell command too."""
    agent_env = _agent_env(env)
    texts = [marker]
    for tool in agent_env.tools:
        properties: dict[str, Any] = tool.to_openai()["function"]["parameters"]["properties"]
        names = [
            key for key, entry in properties.items() if "string" in entry["type"] and "enum" not in entry
        ]
        for text in (marker, f"echo {marker} > {marker}") if names else ():
            call = ToolCall(tool.name, dict.fromkeys(names, text))
            if agent_env.protocol.name != "bash" or names == ["command"]:
                texts.append(agent_env.protocol.render_call(call))
    for text in texts:
        step = advance(env, text)
        if step.ended:
            start(env)


def _agent_env(env: Env) -> AgentEnv:
    agent_env = env.unwrapped
    assert isinstance(agent_env, AgentEnv)
    return agent_env
