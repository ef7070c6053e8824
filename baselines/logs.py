"""Where the numbers of a run go: JSON lines and TensorBoard always, Weights & Biases and trackio where asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import MissingDependency

METRICS = "metrics.jsonl"


class Logs:
    """Writes the numbers of each step.

    Args:
        folder: of the run; ``metrics.jsonl`` and the TensorBoard events lie there.
        config: of the run, for the services.
        first_step: where this process begins. What an earlier, killed one wrote of that step or later is taken back.
        wandb: project in Weights & Biases, or None.
        trackio: project in trackio, or None.

    Raises:
        MissingDependency: one of the packages is not installed.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        first_step: int,
        *,
        wandb: str | None = None,
        trackio: str | None = None,
    ) -> None:
        self._services = [
            _start("wandb", wandb, folder, config),
            _start("trackio", trackio, folder, config),
        ]
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependency(
                "training logs to TensorBoard: pip install 'agentgym-suite[train]'"
            ) from None
        path = folder / METRICS
        kept = [line for line in read_lines(path) if line["step"] < first_step]
        partial = path.with_suffix(".tmp")
        partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        partial.replace(path)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of one step; one that is not finite is left out of the JSON, which has no word for it."""
        finite = {name: number for name, number in numbers.items() if math.isfinite(number)}
        self._file.write(json.dumps({"step": step} | finite) + "\n")
        self._file.flush()
        for name, number in numbers.items():
            self._board.add_scalar(name, number, step)
        for service in self._services:
            if service is not None:
                service.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish all files."""
        self._file.close()
        self._board.close()
        for service in self._services:
            if service is not None:
                service.finish()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What stands in a ``metrics.jsonl``; a last line that was torn is no line."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def _start(package: str, project: str | None, folder: Path, config: Mapping[str, Any]) -> Any:
    """A service with ``log(numbers, step=)`` and ``finish()``; both packages have this form."""
    if project is None:
        return None
    import importlib

    try:
        service = importlib.import_module(package)
    except ImportError:
        raise MissingDependency(f"--{package} needs the package: pip install {package}") from None
    service.init(project=project, name=folder.name, config=dict(config), resume="allow")
    return service
