"""Write one trajectory as an HTML page that opens anywhere, and print where it is.

Example:
    agentgym view runs/gold
    agentgym view runs/gold --index 3 --out episode.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse, read_run
from agentgym.errors import UsageError, nearest
from agentgym.texts import safe_label
from agentgym.trajectory.records import Trajectory


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym view``."""

    run: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DIR_OR_FILE")]]
    """A run's folder, or its trajectories.jsonl."""
    id: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Which trajectory, by id."""
    index: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Which trajectory, by position, from 0; negative from the end. Default: the first."""
    out: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Where to write the page. Default: in the folder views beside the file, in views/NAME for a NAME.jsonl of another
    name than trajectories. There it is called by its id: m-1 is m-1.html, a/b is a_b-DIGEST.html."""
    json: bool = False
    """Print JSON: id and path."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym view``."""
    args = parse(Args, "view", __doc__, words)
    if args.id is not None and args.index is not None:
        raise UsageError("expected --id or --index, not both")
    file, trajectories = read_run(args.run)
    trajectory = _choose(trajectories, args.id, args.index or 0, file)
    page = Path(args.out) if args.out else view_path(file, trajectory)
    from agentgym.trajectory.view import write_html

    page.parent.mkdir(parents=True, exist_ok=True)
    write_html(trajectory, page)
    if args.json:
        console.print_json({"id": trajectory.id, "path": str(page)})
    else:
        print(page)
    return console.OK


def view_path(file: Path, trajectory: Trajectory) -> Path:
    """Where the page of a trajectory in `file` goes unless told otherwise; several files may lie in one folder."""
    folder = file.parent / "views"
    if file.name != "trajectories.jsonl":
        folder /= safe_label(file.stem)
    return folder / f"{safe_label(trajectory.id)}.html"


def _choose(trajectories: list[Trajectory], wanted: str | None, index: int, file: Path) -> Trajectory:
    if wanted is not None:
        for trajectory in trajectories:
            if trajectory.id == wanted:
                return trajectory
        raise UsageError(
            f"no trajectory {wanted!r} in {file}.{nearest(wanted, (t.id for t in trajectories))}"
        )
    if not -len(trajectories) <= index < len(trajectories):
        raise UsageError(f"{file} holds {len(trajectories)} trajectories, there is no index {index}")
    return trajectories[index]
