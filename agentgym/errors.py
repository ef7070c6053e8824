"""The exceptions this package raises on purpose.

Two questions decide the class: was the *caller* wrong (`UsageError` and its kinds, exit code 2 on the command
line), or did something *we depend on* break (`InfrastructureError`, exit code 3)? The second is never turned into a
reward: an episode it ends is marked and no estimator trains on it.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Collection, Iterable
from typing import SupportsFloat


class AgentGymError(Exception):
    """Base of every exception of this package."""


class UsageError(AgentGymError, ValueError):
    """The caller asked for something that does not exist or makes no sense; the text says what was expected."""


class TaskError(UsageError):
    """A task file, task id or split is wrong."""


class InfrastructureError(AgentGymError, RuntimeError):
    """A sandbox, browser, server or file system failed. Says nothing about the policy; never a reward.

    Its text, the class's name where it was given none, is what an episode is marked with; it is never empty.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if text.strip() else type(self).__name__


class SandboxError(InfrastructureError):
    """A sandbox could not be started, died, or lost contact."""


class MissingDependency(InfrastructureError, ImportError):
    """A package or program that an optional part needs is not installed; the text names the command that brings it."""


class UnusableAnswer(InfrastructureError):
    """A model answered, each time with something else than what was asked for; its server is not at fault."""


class ContextOverflow(AgentGymError):
    """A conversation leaves no room for a reply in the model's context: the agent ran out, nothing broke.

    Attributes:
        position: which of the conversations given to `Policy.act`; the others can be asked again without it.
    """

    def __init__(self, text: str, position: int = 0) -> None:
        super().__init__(text)
        self.position = position


class ToolError(AgentGymError):
    """Raised inside a tool for a failure the policy should read: the text becomes the tool's answer."""


class SegmentError(AgentGymError):
    """A trajectory's segments contradict what the caller declared, for example a fork where none may happen."""


def whole_number(name: str, value: object, *, least: int) -> int:
    """`value`, if it is a whole number of at least `least`.

    Raises:
        UsageError: it is not; says what came.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"expected {name} to be a whole number >= {least}, got {value!r:.60}")
    return value


def flag(name: str, value: object) -> bool:
    """`value`, if it is True or False: a text such as "no" would count as True.

    Raises:
        UsageError: it is not; says what came.
    """
    if not isinstance(value, bool):
        raise UsageError(f"expected {name} to be True or False, got {value!r:.60}")
    return value


def finite(value: SupportsFloat) -> float | None:
    """`value` as a float; None where that is not finite, or `value` a whole number beyond what a float can hold."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def real_number(name: str, value: object, *, least: float, most: float = math.inf) -> float:
    """`value` as a float, if it is a finite number from `least` to `most`.

    Raises:
        UsageError: it is not; says what came.
    """
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    number = finite(value) if plain else None  # type: ignore[arg-type]
    if number is None:
        raise UsageError(f"expected {name} to be a finite number, got {value!r:.60}")
    if not least <= number <= most:
        bounds = f">= {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise UsageError(f"expected {name} {bounds}, got {value!r:.60}")
    return number


def nearest(word: object, known: Iterable[object], *, limit: int = 3) -> str:
    """A hint such as ``" Did you mean 'Relay'?"``, or what exists where nothing is near; empty if nothing is known."""
    names = [str(name) for name in known]
    if not names:
        return ""
    matches = difflib.get_close_matches(str(word), names, n=limit, cutoff=0.5)
    if matches:
        return " Did you mean " + " or ".join(repr(match) for match in matches) + "?"
    shown = ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")
    return f" Known: {shown}."


def refuse_keywords(cls: type, root: type, unknown: Collection[str]) -> None:
    """Say which keyword no constructor takes from `cls` up to `root`, and which is near.

    Raises:
        TypeError: `unknown` holds any.
    """
    for name in unknown:
        makers = [b.__init__ for b in cls.__mro__ if issubclass(b, root) and "__init__" in vars(b)]  # type: ignore[misc]
        found = [p for maker in makers for p in list(inspect.signature(maker).parameters.values())[1:]]
        known = dict.fromkeys(p.name for p in found if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
        raise TypeError(f"{cls.__name__} takes no keyword {name!r}.{nearest(name, known)}")
