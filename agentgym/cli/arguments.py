"""Words of the command line to values: tyro's parser, ``key=value`` pairs, environment ids."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import gymnasium
import tyro

from agentgym.cli import console
from agentgym.core import AgentEnv
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.trajectory.records import Trajectory

T = TypeVar("T")
RECORDS = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RECORDS.jsonl")]]  # of SWE tasks
# What tyro says of a value that none of several types can be made from.
_NO_TYPE = re.compile(r"Error parsing (\S+): no type matching (.+?) could be instantiated from \[(.*?)\]\.")


def parse(
    arguments: type[T], verb: str, text: str | None, words: Sequence[str], *, prefix: str = "agentgym "
) -> T:
    """Read `words` into a dataclass.

    Args:
        arguments: one field per flag, each with a docstring.
        verb: as the user wrote it.
        text: what ``--help`` says first: the docstring of the verb's module.
        words: what stands after the verb.
        prefix: what stands before it.

    Raises:
        UsageError: in one line, where tyro would draw a box.
        HelpShown: after ``--help``.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                arguments,
                prog=prefix + verb,
                description=inspect.cleandoc(text or ""),
                args=words,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if not end.code:
            raise console.HelpShown from None
        raise UsageError(f"{_first_part(complaint.getvalue())}; see {prefix}{verb} --help") from None


def _first_part(box: str) -> str:
    """What a boxed message of tyro's says, on one line, without the help it repeats."""
    parts: list[list[str]] = [[]]
    for line in box.splitlines()[1:-1]:
        inner = line[2:-2].rstrip()
        if inner and set(inner) <= set("─-"):
            parts.append([])
        elif inner[:8].strip():  # what is indented further is an argument's help
            parts[-1].append(inner.strip())
    parts = [part for part in parts if part] or [["expected other arguments"]]
    told = [part for part in parts[1:] if part[0].startswith(("Unrecognized", "Perhaps you meant"))]
    union = _NO_TYPE.match(" ".join(parts[0]))
    if union is not None:
        flag, types, got = union.groups()
        return f"expected {flag} {types.replace('{None}|', '')}, got {got}"
    return ". ".join(" ".join(part).rstrip(".") for part in [parts[0], *told])


def sampling(args: Any) -> dict[str, Any]:
    """Keywords of `make_policy`: those of the flags temperature, max_new_tokens and base_url that were given."""
    flags = {name: getattr(args, name) for name in ("temperature", "max_new_tokens", "base_url")}
    return {name: value for name, value in flags.items() if value is not None}


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """``key=value`` pairs of ``--set``: the value is JSON, or else the text as it stands."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"expected --set key=value, got {pair!r}")
        if key in values:
            raise UsageError(f"--set {key} is given twice")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return values


@contextlib.contextmanager
def constructor_errors() -> Iterator[None]:
    """Turn an unknown keyword of an environment's constructor into a `UsageError`."""
    try:
        yield
    except TypeError as error:
        if "keyword" not in str(error):
            raise
        raise UsageError(str(error).partition(" was raised from the environment creator")[0]) from None


def try_once(
    make: Callable[[], gymnasium.Env[Any, Any]], *, reset: bool, program: bool = False
) -> int | None:
    """Make an environment and close it, so that bad keywords are told before anything runs.

    Args:
        make: the constructor.
        reset: start an episode too, for what only a task can tell.
        program: then look whether an agent program could work there.

    Returns:
        How many tasks it draws from; None for an environment that lists none.
    """
    with constructor_errors():
        env = make()
    with contextlib.closing(env):
        if reset:
            env.reset(seed=0)
        if program:
            from agentgym.blackbox import place_of

            place_of(env)
        inner = env.unwrapped
        return len(inner.task_pool) if isinstance(inner, AgentEnv) else None


def read_run(path: str) -> tuple[Path, list[Trajectory]]:
    """The file of a run, given by its folder or itself, and its trajectories.

    An id that stands twice is an episode that broke and was run again: its last line counts, as when resuming.

    Raises:
        UsageError: there is no such file, or nothing in it.
    """
    from agentgym.trajectory.store import TrajectoryStore

    file = Path(path) / "trajectories.jsonl" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UsageError(
            f"expected a run's folder with trajectories.jsonl, or such a file; there is none at {path}"
        )
    if file.suffix != ".jsonl":
        raise UsageError(f"expected a file that ends in .jsonl, got {path}")
    trajectories = TrajectoryStore(file).latest()
    if not trajectories:
        raise UsageError(f"{file} holds no trajectory yet")
    return file, list(trajectories.values())


def what_was_run(trajectories: Sequence[Trajectory]) -> dict[str, str]:
    """Environment and policy as every line of a run, and its ``run.json``, names them."""
    return {
        "id": ", ".join(dict.fromkeys(t.env_id for t in trajectories)),
        "policy": ", ".join(dict.fromkeys(t.policy for t in trajectories)),
    }
