"""Every environment id in one table, for Gymnasium's and PettingZoo's registries.

Entry points are texts, so registering imports no environment. `agentgym list` prints this table.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import gymnasium
import pettingzoo  # type: ignore[import-untyped, unused-ignore]

from agentgym.errors import MissingDependency, UsageError, nearest


@dataclass(frozen=True, slots=True)
class Entry:
    """One id.

    Attributes:
        id: as given to `make`.
        entry_point: "module:Class".
        family: folder or file under `agentgym/envs`.
        description: one line.
        splits: that the packaged or generated tasks have.
        packages: importable modules it needs, each with the extra that brings it.
        programs: executables it needs, each with what brings it.
        sandbox: whether it runs commands that nobody trusts, which bubblewrap or Docker must keep in.
        registry: which of the two it is in.
    """

    id: str
    entry_point: str
    family: str
    description: str
    splits: tuple[str, ...] = ("train", "test")
    packages: tuple[tuple[str, str], ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    sandbox: bool = False
    registry: Literal["gymnasium", "pettingzoo"] = "gymnasium"

    def missing(self) -> str | None:
        """One line that says what to install, or None. Imports nothing."""
        for module, extra in self.packages:
            if importlib.util.find_spec(module) is None:
                return f"needs the package {module}: pip install 'agentgym-suite[{extra}]'"
        for program, source in self.programs:
            if shutil.which(program) is None:
                return f"needs the program {program}: {source}"
        # Whether Docker's daemon answers is not asked here: it may be on another machine.
        if self.sandbox and shutil.which("bwrap") is None and importlib.util.find_spec("docker") is None:
            return (
                "needs a sandbox: apt-get install bubblewrap; or, for backend='docker', Docker and"
                " pip install 'agentgym-suite[docker]'"
            )
        return None


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "agentgym/Relay-v0",
        "agentgym.envs.relay:RelayEnv",
        "relay",
        "remember a fact over many small decisions; optimal values computable",
    ),
    Entry(
        "agentgym/SWE-v0",
        "agentgym.envs.swe:SweEnv",
        "swe",
        "repair a real repository; hidden tests decide",
        splits=("train",),
        packages=(("pip", "swe"),),
        programs=(("git", "apt-get install git"),),
        sandbox=True,
    ),
    Entry(
        "agentgym/ALFWorld-v0",
        "agentgym.envs.alfworld:AlfworldEnv",
        "alfworld",
        "household tasks of six types; the official games where they are, else invented ones",
        splits=("train", "eval_in_distribution", "eval_out_of_distribution"),
    ),
    Entry(
        "agentgym/WebShop-v0",
        "agentgym.envs.webshop:WebShopEnv",
        "webshop",
        "buy the product that fits an instruction",
        splits=("train", "dev", "test"),
        packages=(("rapidfuzz", "shop"),),
    ),
)


def register_envs(entries: Sequence[Entry] = ENTRIES) -> None:
    """Register every id once; calling it again does nothing."""
    for entry in entries:
        if entry.registry == "gymnasium":
            if entry.id not in gymnasium.registry:
                # The base class checks order and types itself, so `make` returns the environment unwrapped.
                gymnasium.register(entry.id, entry.entry_point, order_enforce=False, disable_env_checker=True)
        elif entry.id not in pettingzoo.parallel_registry:
            pettingzoo.register("parallel", entry.id, entry.entry_point)


def require(env_id: str) -> None:
    """Say in one line that an id cannot be made here. ``module:Id-v0`` imports the module first.

    Raises:
        UsageError: there is no such module or id, with the nearest ones, or the module fails when it is imported.
        MissingDependency: one of ours whose package or program is not installed.
    """
    entry = find(env_id)
    if entry is not None and (missing := entry.missing()):
        raise MissingDependency(f"{env_id} {missing}")
    module, _, name = env_id.rpartition(":")
    hint = ""
    if module:
        file = _import(module, env_id).__file__
        hint = (
            f" {module!r} was imported from {file}."
            if file
            else f" {module!r} is a folder without code of its own."
        )
    if name not in gymnasium.registry and name not in {
        **pettingzoo.parallel_registry,
        **pettingzoo.aec_registry,
    }:
        others = (
            key
            for key, spec in gymnasium.registry.items()
            if not str(spec.entry_point).startswith("gymnasium.")
        )
        raise UsageError(f"no environment {env_id!r} is registered.{hint}{nearest(name, others)}")


def _import(module: str, env_id: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever a user's module raises
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"{env_id!r}: there is no module {module!r} to import") from None
        at = traceback.extract_tb(error.__traceback__)[-1]
        file, line = (
            (error.filename, error.lineno) if isinstance(error, SyntaxError) else (at.filename, at.lineno)
        )
        raise UsageError(
            f"importing {module!r} failed at {file}:{line}: {type(error).__name__}: {error}"
        ) from error


def find(env_id: str) -> Entry | None:
    """The table's row of an id, or None for an id of somebody else's."""
    return next((entry for entry in ENTRIES if entry.id == env_id), None)
