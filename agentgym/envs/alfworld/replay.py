"""Recorded episodes, played again: what an engine answers otherwise than the recording says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.envs.alfworld.engines import Engine, Reply, cpu_seconds, make_engine
from agentgym.errors import TaskError
from agentgym.tasks import read_jsonl

_AT_RESET = ("obs", "admissible", "won")
_AT_STEP = (*_AT_RESET, "score", "done")


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded episodes of one game.

    Attributes:
        game: path of its file below the data folder.
        episodes: in the form of the recordings.
        where: file and line, for messages.
    """

    game: str
    episodes: Sequence[Mapping[str, Any]]
    where: str


def read_recordings(path: str | Path) -> list[Recording]:
    """The recordings in a file, one game a line.

    Raises:
        TaskError: a line is not in the form of recordings; names it.
    """
    recordings = []
    for row, where in read_jsonl(path):
        try:
            for episode in row["episodes"]:
                for answer, fields in [
                    (episode["reset"], _AT_RESET),
                    *((step, ("action", *_AT_STEP)) for step in episode["steps"]),
                ]:
                    missing = [field for field in fields if field not in answer]
                    if missing:
                        raise TaskError(f"{where}: an answer has no {missing[0]!r}")
            recordings.append(Recording(str(row["game"]), row["episodes"], where))
        except (KeyError, TypeError) as error:
            raise TaskError(
                f"{where}: expected a game and its episodes of reset and steps; {type(error).__name__}: {error}"
            ) from None
    return recordings


def replay(
    recordings: Sequence[Recording],
    data: str | Path,
    *,
    engine: str = "native",
    progress: Callable[[str], None] = lambda game: None,
) -> dict[str, Any]:
    """Play every recorded action and compare every answer.

    Args:
        recordings: what to play.
        data: the folder that the games' paths are below.
        engine: which one plays.
        progress: called after each game, with the name of its folder.

    Returns:
        What ``agentgym alfworld replay --json`` prints. In a first difference, step 0 is the reset and step n the
        n-th action.
    """
    clock = _Clock()
    details = []
    for recording in recordings:
        path = Path(data) / recording.game
        if not path.is_file():
            raise TaskError(f"{recording.where}: there is no game {recording.game} in {data}")
        with clock.spent_on("reset"):
            player = make_engine(engine, str(path))
        for episode in recording.episodes:
            difference = next(_differences(player, episode, clock), None)
            details.append(
                {
                    "game": recording.game,
                    "kind": episode.get("kind"),
                    "seed": episode.get("seed"),
                    "equal": difference is None,
                    "first_difference": difference,
                }
            )
        progress(path.parent.parent.name)
    return {
        "games": len(recordings),
        "episodes": len(details),
        "equal": sum(row["equal"] for row in details),
        "episodes_detail": details,
        "cpu_s": clock.seconds,
    }


def _differences(player: Engine, episode: Mapping[str, Any], clock: _Clock) -> Iterator[dict[str, Any]]:
    with clock.spent_on("reset"):
        reply = player.reset()
    yield from _compare(0, episode["reset"], reply, _AT_RESET)
    for number, expected in enumerate(episode["steps"], 1):
        with clock.spent_on("step"):
            reply = player.step(expected["action"])
        yield from _compare(number, expected, reply, _AT_STEP)


def _compare(
    step: int, expected: Mapping[str, Any], reply: Reply, fields: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for field in fields:
        got = getattr(reply, field)
        got = list(got) if field == "admissible" else got
        if got != expected[field]:
            yield {"step": step, "field": field, "expected": expected[field], "got": got}


class _Clock:
    """CPU seconds, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds = {"reset": 0.0, "step": 0.0}

    @contextlib.contextmanager
    def spent_on(self, what: str) -> Iterator[None]:
        start = cpu_seconds()
        yield
        self.seconds[what] += cpu_seconds() - start
