"""Checkpoints of a training run, and the settings that must be equal for it to go on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.errors import UsageError
from agentgym.policies.models import quiet
from baselines.actor import Actor
from baselines.parallel import Ranks
from baselines.sharding import full, like

__all__ = [
    "check_config",
    "latest",
    "load",
    "load_weights",
    "save",
    "save_model",
    "weights",
    "write_config",
]

_CONFIG = "config.json"


def save(folder: Path, step: int, state: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint, whole or not at all, and remove all but the `keep` latest."""
    directory = folder / "checkpoints"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:06}.pt"
    partial = path.with_suffix(".tmp")
    torch.save(dict(state), partial)
    partial.replace(path)
    for old in _all(folder)[:-keep]:
        old.unlink()
    return path


def weights(module: nn.Module) -> dict[str, Tensor]:
    """What training changes in a module, by name; whole, if it is divided among processes."""
    return {name: full(p.detach()).cpu().clone() for name, p in module.named_parameters() if p.requires_grad}


def load_weights(module: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Put back what `weights` gave.

    Raises:
        UsageError: the names are not those of this module.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if parameters.keys() != saved.keys():
        raise UsageError(
            f"a checkpoint of another model: {sorted(parameters.keys() ^ saved.keys())[:3]} do not fit"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(like(saved[name], parameter))


def save_model(folder: Path, actor: Actor, ranks: Ranks) -> None:
    """Write the trained model as Hugging Face does; with LoRA, the adapter. All processes call it, the first writes."""
    state = {name: full(tensor) for name, tensor in actor.model.state_dict().items()}
    if ranks.first:
        with quiet():
            actor.model.save_pretrained(folder, state_dict=state)
        actor.tokenizer.save_pretrained(folder)


def latest(folder: Path) -> Path | None:
    """The last checkpoint of a run; None if there is none."""
    found = _all(folder)
    return found[-1] if found else None


def load(path: Path) -> dict[str, Any]:
    """What `save` wrote, on the CPU.

    Raises:
        UsageError: the file is damaged, or holds code.
    """
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds
        raise UsageError(f"cannot read the checkpoint {path}: {type(error).__name__}: {error}") from None


def check_config(folder: Path, config: Mapping[str, Any], may_change: Collection[str]) -> None:
    """Refuse to go on with a run under other settings.

    Args:
        folder: of the run; may be missing.
        config: of this process; JSON values.
        may_change: keys that may differ.

    Raises:
        UsageError: the folder holds a run with other settings, or something that is no run.
    """
    path = folder / _CONFIG
    new = json.loads(json.dumps(config))
    if path.exists():
        try:
            before = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise UsageError(f"expected {path} to hold the settings of a run: {error}") from None
        for key in {**new, **before}:  # the algorithm comes first
            if key not in may_change and before.get(key) != new.get(key):
                raise UsageError(
                    f"{folder} holds a run with another {key}: {before.get(key)!r}, not {new.get(key)!r}; give another "
                    "--out, or the same settings to go on"
                )
    elif folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty and holds no config.json: not a training run; give another --out"
        )


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Keep the settings of a run that has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{_CONFIG}.tmp"
    partial.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / _CONFIG)


def _all(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("step-*.pt"))
