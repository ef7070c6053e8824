"""What a worker is for: which tools it may call, and whether its work comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentgym.errors import UsageError, flag, nearest
from agentgym.spaces import encodable
from agentgym.tools import Tool


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of worker.

    Attributes:
        name: what the delegating call says.
        instructions: how its system prompt begins.
        looks_only: of the environment's tools it has those that change nothing (`Tool.read_only`), and no plain moves
            where its environment is the shared one.
        merges: what it changed in its copy is put into the environment of who gave it the task, with its report.

    Raises:
        UsageError: a field is of another type, or the name is empty.
    """

    name: str
    instructions: str
    looks_only: bool = False
    merges: bool = False

    def __post_init__(self) -> None:
        for name in ("name", "instructions"):
            text = getattr(self, name)
            if not isinstance(text, str) or not encodable(text) or not (text or name == "instructions"):
                raise UsageError(f"expected a role's {name} to be a text, got {text!r:.60}")
        for name in ("looks_only", "merges"):
            flag(f"a role's {name}", getattr(self, name))

    def tools_of(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Those of an environment's tools that this role may call."""
        return tuple(tool for tool in tools if not self.looks_only or tool.read_only)


ROLES = (
    Role(
        "explorer",
        "You look things up for somebody who works on a larger task. You cannot change anything.",
        looks_only=True,
    ),
    Role(
        "coder",
        "You do a part of somebody's larger task. What you change in your copy is taken over when you report.",
        merges=True,
    ),
    Role(
        "tester",
        "You try things out for somebody who works on a larger task. What you change in your copy is thrown away.",
    ),
)

RoleSource: TypeAlias = "Sequence[Role | str | Mapping[str, object]] | None"


def read_roles(given: RoleSource) -> dict[str, Role]:
    """Roles by name.

    Args:
        given: roles, names of those in `ROLES`, or mappings with the fields of `Role`; None for all of `ROLES`.

    Raises:
        UsageError: no list, a name nobody knows, a mapping that is no role, the same name twice, or none at all.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable | None):
        raise UsageError(f"expected a list of roles, got {given!r:.60}")
    known = {role.name: role for role in ROLES}
    roles: dict[str, Role] = {}
    for item in ROLES if given is None else given:
        role = _role(item, known)
        if role.name in roles:
            raise UsageError(f"expected each role once, got {role.name!r} twice")
        roles[role.name] = role
    if not roles:
        raise UsageError(f"expected at least one role.{nearest('', known)}")
    return roles


def _role(item: object, known: Mapping[str, Role]) -> Role:
    if isinstance(item, Role):
        return item
    if isinstance(item, Mapping):
        try:
            return Role(**item)
        except TypeError as error:
            raise UsageError(f"expected the fields of a Role, got {dict(item)!r:.80}: {error}") from None
    if isinstance(item, str) and item in known:
        return known[item]
    raise UsageError(f"there is no role {item!r}.{nearest(item, known)}")
