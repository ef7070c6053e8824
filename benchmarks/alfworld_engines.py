"""Both engines of ALFWorld on the same games: is every answer of the native one what the alfworld package answers?

    python benchmarks/alfworld_engines.py --games DIR [--episodes 20] [--seed 0] [--jobs 2] [--out FILE.jsonl] [--json]

Of each game the stored walkthrough and random episodes are played: admissible commands drawn by
`random.Random(seed).choice`, at most 50, until the game is won. Observations, admissible commands, `won`, `score` and
`done` are compared after each. With --out there is a line a game in that file, and a game in it is not played again, so
that a run can be stopped and go on. Needs the alfworld package. Exits with 1 where an answer differs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from agentgym.cli import guarded
from agentgym.envs.alfworld.engines import Engine, Reply, make_engine
from agentgym.envs.alfworld.files import GAME, read_game_file
from agentgym.envs.alfworld.replay import Recording, replay
from agentgym.errors import InfrastructureError, UsageError

MOST_STEPS = 50
_NAMED_PARTS = 4  # split, task, trial, file: what tells one game from another


def main() -> int:
    """Compare, print, and say by the exit status whether all is equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="+", type=Path, required=True, metavar="DIR_OR_FILE")
    parser.add_argument("--episodes", type=int, default=20, help="random ones of each game")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them; the others follow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    rows = []
    for row in compare_all(find_games(args.games), args.episodes, args.seed, jobs=args.jobs, out=args.out):
        rows.append(row)
        print(described(row), file=sys.stderr if args.json else sys.stdout, flush=True)
    report = summary(rows)
    print(json.dumps(report | {"games_detail": rows}, indent=2) if args.json else described_total(report))
    return int(report["equal"] < report["episodes"])


def find_games(places: list[Path]) -> list[Path]:
    """The game files in folders, sorted; a file stands for itself."""
    games: list[Path] = []
    for place in places:
        found = sorted(place.resolve().rglob(GAME)) if place.is_dir() else [place.resolve()]
        if not found or not found[0].is_file():
            raise UsageError(f"there is no {GAME} in {place}")
        games += found
    return games


def compare_all(
    games: list[Path], episodes: int, seed: int, *, jobs: int = 1, out: Path | None = None
) -> Iterator[dict[str, Any]]:
    """A row a game, as they get ready; first those that `out` has already.

    Raises:
        InfrastructureError: a process of the package failed; when all other games have been compared.
    """
    played = {}
    if out is not None and out.is_file():
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        played = {row["game"]: row for row in rows if (row["random"], row["seed"]) == (episodes, seed)}
    yield from (played[name(game)] for game in games if name(game) in played)
    left = [game for game in games if name(game) not in played]
    broken: list[InfrastructureError] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as workers:
        for ready in as_completed([workers.submit(compare, game, episodes, seed) for game in left]):
            try:
                row = ready.result()
            except InfrastructureError as error:
                broken.append(error)
                continue
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            yield row
    for error in broken:
        raise error


def name(game: Path) -> str:
    """What a game is called in reports."""
    return str(Path(*game.parts[-_NAMED_PARTS:]))


def compare(game: Path, episodes: int, seed: int) -> dict[str, Any]:
    """Play a game with the native engine, then the same commands with the package."""
    start = time.process_time()
    recorded = list(
        record(make_engine("native", str(game)), read_game_file(game).walkthrough, episodes, seed)
    )
    native = time.process_time() - start
    recording = Recording(name(game), recorded, str(game))
    report = replay([recording], Path(*game.parts[:-_NAMED_PARTS]), engine="alfworld")
    return {
        "game": name(game),
        "random": episodes,
        "seed": seed,
        "episodes": report["episodes"],
        "steps": sum(len(episode["steps"]) for episode in recorded),
        "won": sum(episode["steps"][-1]["won"] for episode in recorded),
        "equal": report["equal"],
        "differences": [row for row in report["episodes_detail"] if not row["equal"]],
        "cpu_s": {"native": native, "alfworld": sum(report["cpu_s"].values())},
    }


def record(
    engine: Engine, walkthrough: tuple[str, ...], episodes: int, seed: int
) -> Iterator[dict[str, Any]]:
    """The walkthrough and the random episodes, in the form of recordings."""
    plan = iter(walkthrough)
    yield {
        "kind": "walkthrough",
        "seed": None,
        **record_episode(engine, lambda _: next(plan), len(walkthrough)),
    }
    for number in range(seed, seed + episodes):
        rng = random.Random(number)
        drawn = record_episode(engine, lambda reply, rng=rng: rng.choice(reply.admissible), MOST_STEPS)
        yield {"kind": "random", "seed": number, **drawn}


def record_episode(engine: Engine, choose: Callable[[Reply], str], most: int) -> dict[str, Any]:
    """One episode of at most so many commands."""
    reply = engine.reset()
    start, steps = answer(reply), []
    while len(steps) < most and not reply.done:
        action = choose(reply)
        reply = engine.step(action)
        steps.append({"action": action, **answer(reply)})
    return {"reset": start, "steps": steps}


def answer(reply: Reply) -> dict[str, Any]:
    """A reply in the form of recordings."""
    fields = {field: getattr(reply, field) for field in ("obs", "won", "score", "done")}
    return fields | {"admissible": list(reply.admissible)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over all games."""
    sums = {what: sum(row[what] for row in rows) for what in ("episodes", "equal", "steps", "won")}
    cpu = {engine: sum(row["cpu_s"][engine] for row in rows) for engine in ("native", "alfworld")}
    return {"games": len(rows), **sums, "cpu_s": cpu}


def described(row: dict[str, Any]) -> str:
    """A game's line, and the first difference of each episode that has one."""
    cpu = row["cpu_s"]
    lines = [
        f"{row['equal']}/{row['episodes']} equal, {row['steps']} steps, CPU native {cpu['native']:.2f} s,"
        f" alfworld {cpu['alfworld']:.1f} s: {row['game']}"
    ]
    for episode in row["differences"]:
        first = episode["first_difference"]
        lines.append(f"  {episode['kind']} {episode['seed']}, step {first['step']}, {first['field']}:")
        lines.append(f"    native   {first['expected']!r}")
        lines.append(f"    alfworld {first['got']!r}")
    return "\n".join(lines)


def described_total(report: dict[str, Any]) -> str:
    """The last line."""
    cpu = report["cpu_s"]
    return (
        f"{report['equal']} of {report['episodes']} episodes of {report['games']} games are equal"
        f" ({report['steps']} steps, {report['won']} episodes won);"
        f" CPU: native {cpu['native']:.1f} s, alfworld {cpu['alfworld']:.1f} s,"
        f" {cpu['alfworld'] / max(cpu['native'], 1e-9):,.0f} times as much"
    )


if __name__ == "__main__":
    sys.exit(guarded(main))
