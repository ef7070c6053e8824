"""The audit every environment must pass: ``agentgym check ID``, or ``check(...)`` from a test.

    from agentgym.check import check

    report = check("my_package:My-v0")
    assert report.ok, report

Each probe is one function whose first line says what it holds the environment to; `PROBES` lists them in order. A
probe returns a line about what it did, raises `Failed` with what was expected and what came, or `DoesNotApply` with
the reason.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

from agentgym.check import contract, copies, determinism, leaks, limits, resources, rewards, teams, vectors
from agentgym.check.subject import DoesNotApply, Env, Failed, Subject
from agentgym.errors import InfrastructureError, UsageError, nearest

__all__ = ["PROBES", "Probe", "Report", "check"]

PROBES: dict[str, Callable[[Subject], str]] = {
    "start": contract.start_up,
    "gymnasium_checker": contract.gymnasium_checker,
    "spaces": contract.spaces,
    "info": contract.info,
    "reset_options": contract.reset_options,
    "invalid_actions": limits.invalid_actions,
    "same_seed": determinism.same_seed,
    "global_random_state": determinism.global_random_state,
    "instances": determinism.instances,
    "handed_out": determinism.handed_out,
    "fresh_reset": leaks.fresh_reset,
    "snapshot": copies.snapshot,
    "pickle": copies.pickle_and_deepcopy,
    "spec": copies.spec,
    "floor": rewards.floor,
    "gold": rewards.gold,
    "cheats": rewards.cheats,
    "secrets": leaks.secrets,
    "turn_limit": limits.turn_limit,
    "last_turn": limits.last_turn,
    "threads": determinism.threads,
    "vectors": vectors.vectors,
    "resources": resources.resources,
    "pettingzoo": vectors.pettingzoo_tests,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """What one probe found.

    Attributes:
        name: key of `PROBES`.
        ok: True passed, False failed, None does not apply.
        seconds: wall time it took.
        detail: one line: what was done, what was wrong, or why it does not apply.
    """

    name: str
    ok: bool | None
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What the audit found.

    Attributes:
        id: the environment's id, or the name of the class or function given.
        probes: in the order they ran.
        infrastructure_error: what broke outside the environment, "" if nothing. Then a failed probe is no verdict.
    """

    id: str
    probes: tuple[Probe, ...]
    infrastructure_error: str = ""

    @property
    def ok(self) -> bool:
        """No probe failed."""
        return all(probe.ok is not False for probe in self.probes)

    @property
    def failures(self) -> dict[str, str]:
        """Failed probes with what was wrong."""
        return {probe.name: probe.detail for probe in self.probes if probe.ok is False}

    def to_dict(self) -> dict[str, Any]:
        """The form that ``agentgym check --json`` prints."""
        rows = [
            {"name": p.name, "ok": p.ok, "seconds": round(p.seconds, 3), "detail": p.detail}
            for p in self.probes
        ]
        return {"id": self.id, "ok": self.ok, "probes": rows}

    def __str__(self) -> str:
        marks = {True: "pass", False: "FAIL", None: "  - "}
        lines = [f"{marks[p.ok]}  {p.name:<20} {p.seconds:6.1f} s  {p.detail}" for p in self.probes]
        return "\n".join([self.id, *lines])


def check(
    env: str | Callable[..., Env],
    *,
    kwargs: Mapping[str, Any] | None = None,
    resets: int = 200,
    seed: int = 0,
    only: Iterable[str] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Report:
    """Audit an environment.

    The cost of a reset and of a verdict is measured first, and repetitions scale with it: seconds for a light
    environment, a few minutes where each verdict runs a test suite.

    Args:
        env: a Gymnasium id ("module:Id-v0" too), a PettingZoo id of this package, an environment class, or a function
            that returns a new environment.
        kwargs: given to every instance made.
        resets: upper bound of the resets over which resources must not grow.
        seed: of everything random in the audit.
        only: names of probes; all if None.
        progress: called with the name of each probe before it runs.

    Raises:
        UsageError: an unknown id or probe.
        InfrastructureError: the environment cannot be made here, for example because a package is missing.
        Exception: whatever the constructor raises.
    """
    names = list(PROBES) if only is None else list(only)
    for name in names:
        if name not in PROBES:
            raise UsageError(f"there is no probe {name!r}.{nearest(name, PROBES)}")
    if resets < 1:
        raise UsageError(f"expected resets >= 1, got {resets}")
    subject: Any = None
    table: Mapping[str, Callable[[Any], str]] = PROBES
    if isinstance(env, str) and vectors.in_pettingzoo_only(env):
        subject, table = teams.TeamSubject(env, kwargs or {}, resets, seed), teams.PROBES
    else:
        subject = Subject(env, kwargs or {}, resets, seed)
    probes: list[Probe] = []
    broken = ""
    first = _run(table["start"], "start", subject)
    if not isinstance(first, Probe):
        raise first  # it cannot even start here: there is nothing to report on
    for name in names:
        if progress is not None:
            progress(name)
        if name == "start":
            probes.append(first)
        elif first.ok is False:
            probes.append(Probe(name, None, 0.0, "not tried: the environment does not start"))
        elif name not in table:
            probes.append(Probe(name, None, 0.0, "only for Gymnasium environments"))
        else:
            result = _run(table[name], name, subject)
            if isinstance(result, InfrastructureError):
                broken = broken or str(result)
                result = Probe(name, False, 0.0, f"infrastructure: {_one_line(result)}")
            probes.append(result)
    if first.ok is False and "start" not in names:
        probes.insert(0, first)  # the reason must be told, asked for or not
    return Report(subject.name, tuple(probes), broken)


def _run(probe: Callable[[Any], str], name: str, subject: Any) -> Probe | InfrastructureError:
    """Run one probe. What it raises unexpectedly is a fault of the environment; what we depend on is told apart."""
    clock = time.perf_counter()
    ok: bool | None = True
    try:
        with warnings.catch_warnings():
            # Of Gymnasium's own wrappers; the probe `gymnasium_checker` hears them
            warnings.simplefilter("ignore")
            detail = probe(subject)
    except DoesNotApply as reason:
        ok, detail = None, str(reason)
    except Failed as failure:
        ok, detail = False, str(failure)
    except InfrastructureError as error:
        return error
    except Exception as error:
        ok, detail = False, f"raised {type(error).__name__}: {_one_line(error)} ({_where(error)})"
    return Probe(name, ok, time.perf_counter() - clock, _one_line(detail))


def _one_line(message: object) -> str:
    plain = str(message).replace("\x1b[33m", "").replace("\x1b[0m", "")  # gymnasium colours its warnings
    line = " ".join(plain.split())
    return line if len(line) <= 400 else line[:397] + "..."


def _where(error: BaseException) -> str:
    """File and line of the innermost frame: where a contributor should look."""
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
