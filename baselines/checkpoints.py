"""Checkpoints of a training run, and the settings that must be equal for it to go on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.errors import InfrastructureError, UsageError
from agentgym.policies.models import quiet
from baselines.actor import Actor
from baselines.parallel import Ranks
from baselines.sharding import full, like

__all__ = [
    "check_config",
    "claim",
    "latest",
    "load",
    "load_weights",
    "save",
    "save_model",
    "weights",
]

_CONFIG = "config.json"


def save(folder: Path, step: int, state: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint, whole or not at all, and remove all but the `keep` latest.

    Raises:
        InfrastructureError: it could not be written.
    """
    directory = folder / "checkpoints"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:06}.pt"
    partial = path.with_suffix(".tmp")
    try:
        torch.save(dict(state), partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch's own, where a disk is full
        partial.unlink(missing_ok=True)
        raise InfrastructureError(
            f"cannot write the checkpoint {path} ({error}); the same command goes on from the one before"
        ) from None
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

    One that has no checkpoint yet has nothing to go on from, and begins anew under the settings given.

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
        different = [
            key for key in {**new, **before} if key not in may_change and before.get(key) != new.get(key)
        ]
        if different and _all(folder):
            key, was, now = _difference(different[0], before.get(different[0]), new.get(different[0]))
            raise UsageError(
                f"{folder} holds a run with another {key}: {was!r}, not {now!r}; give another --out, or the same "
                "settings to go on"
            )
    elif folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty and holds no config.json: not a training run; give another --out"
        )


def _difference(key: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two settings differ: within a table, its first entry that does."""
    if isinstance(was, dict) and isinstance(now, dict):
        inner = next(name for name in {**now, **was} if was.get(name) != now.get(name))
        return _difference(inner, was.get(inner), now.get(inner))
    return key, was, now


def claim(folder: Path, config: Mapping[str, Any]) -> int:
    """Take the folder of a run that begins, and keep its settings there.

    Returns:
        A handle; until it is closed (or the process ends, in whatever way) nobody else gets the folder.

    Raises:
        UsageError: another process has it; the folder cannot be written.
    """
    handle = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        partial = folder / f"{_CONFIG}.tmp"
        partial.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        partial.replace(folder / _CONFIG)
    except OSError as error:
        if handle is not None:
            os.close(handle)
        if isinstance(error, BlockingIOError):
            raise UsageError(
                f"another process is training in {folder}; wait for it, or give another --out"
            ) from None
        raise UsageError(f"cannot write a run into {folder}: {error.strerror}") from None
    return handle


def _all(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("step-*.pt"))
