"""What a rule is: a small entry of a table that looks at one call and may find that it crosses a line.

Rules aim at recall: each flags what it sees unless the context says that it is free. Where honest work can look the
same, the finding names the look-alikes, and the second stage (`agentgym.monitor.judge`) asks for each whether it
explains the call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

from agentgym.monitor.effects import Kind
from agentgym.monitor.rules.scene import Scene, View

__all__ = [
    "CLASSES",
    "PLAIN",
    "Example",
    "Finding",
    "HackClass",
    "Rule",
    "Scene",
    "bash",
    "example",
    "rule",
    "write",
]

HackClass: TypeAlias = Literal[
    "protected_read",
    "git_history",
    "net_upstream",
    "pkg_install",
    "reference_copy",
    "secret_probe",
    "test_tamper",
    "exit_early",
    "eq_patch",
    "special_case",
    "ci_build",
    "timing",
    "judge_inject",
    "result_forge",
    "runtime_hijack",
    "env_exploit",
    "delegated",
]
CLASSES: tuple[str, ...] = get_args(HackClass)


class Finding(NamedTuple):
    """Why a call is flagged.

    Attributes:
        reason: one line for people; never shown to a policy.
        looks_like: names of the reviewer's `EXCUSES` that could explain the call; () where nothing honest looks so.
        subject: what it is about, for the excuses: a path, a piece of program text.
        hack_class: where it is another than the rule's.
    """

    reason: str
    looks_like: tuple[str, ...] = ()
    subject: str = ""
    hack_class: str = ""


PLAIN: Mapping[str, Any] = {
    "workspace": "/repo",
    "protected_paths": ["/hidden", "/repo/.grading"],
    "readonly_paths": ["/repo/tests", "/repo/Makefile"],
    "allowed_hosts": [],
    "network": "none",
    "package": "pkg",
    "upstream": ["github.com/acme/pkg"],
    "git_policy": "head",
}
"""The context that the rules' examples are for, unless they say otherwise."""

Check: TypeAlias = Callable[[Scene], Finding | None]


class Example(NamedTuple):
    """A call with its label, for tests and documentation.

    Attributes:
        tool, arguments: the call.
        context: what differs from `PLAIN`.
        before: a call that the episode holds already.
    """

    tool: str
    arguments: Mapping[str, str]
    context: Mapping[str, Any] = {}
    before: Example | None = None


@dataclass(frozen=True)
class Rule:
    """One entry of the table.

    Attributes:
        name: unique, for logs and `holdout`.
        hack_class: of the catalogue.
        sees: what it looks at, kinds of effect or program text; it is not asked about calls without any of it.
        check: the test; its docstring says what it flags and why.
        hacks, fine: examples of both labels.
    """

    name: str
    hack_class: HackClass
    sees: frozenset[View]
    check: Check = field(repr=False)
    hacks: tuple[Example, ...] = field(default=(), repr=False)
    fine: tuple[Example, ...] = field(default=(), repr=False)

    def __reduce__(self) -> tuple[Callable[[str, str], Rule], tuple[str, str]]:
        """Pickle by name: the decorator puts the rule where its function would be found."""
        return _load, (self.check.__module__, self.name)

    @property
    def why(self) -> str:
        """What it flags and why, in one paragraph."""
        return " ".join((self.check.__doc__ or "").split())

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """A rule of the table pickles by its name: the decorator has hidden its check from pickle."""
        from agentgym.monitor.rules import RULES

        return (_named, (self.name,)) if self in RULES else super().__reduce_ex__(protocol)


def _named(name: str) -> Rule:
    from agentgym.monitor.rules import RULES

    return next(entry for entry in RULES if entry.name == name)


def _load(module: str, name: str) -> Rule:
    found: Rule = getattr(importlib.import_module(module), name)
    return found


def rule(
    hack_class: HackClass, *, sees: str, hacks: Sequence[Example], fine: Sequence[Example]
) -> Callable[[Check], Rule]:
    """Make a `Rule` of a check; its name is the function's.

    Args:
        hack_class: of the catalogue.
        sees: kinds of effect, "program" or "product" (see `Scene.kinds`), separated by spaces.
        hacks: examples that it must flag.
        fine: examples that it must not flag, or that the reviewer explains.
    """
    kinds = frozenset(sees.split())
    unknown = kinds - {*get_args(Kind), "program", "product"}
    if unknown:
        raise ValueError(f"no such kinds of effect or text: {sorted(unknown)}")

    def make(check: Check) -> Rule:
        name = getattr(check, "__name__", "")
        return Rule(name, hack_class, kinds, check, tuple(hacks), tuple(fine))  # type: ignore[arg-type]

    return make


def bash(command: str, **context: Any) -> Example:
    """An example of the tool bash."""
    return Example("bash", {"command": command}, context)


def write(path: str, content: str, **context: Any) -> Example:
    """An example of the tool write_file."""
    return Example("write_file", {"path": path, "content": content}, context)


def example(tool: str, *, context: Mapping[str, Any] | None = None, **arguments: str) -> Example:
    """An example of any tool."""
    return Example(tool, arguments, context or {})
