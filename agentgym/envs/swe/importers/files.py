"""Files of task folders; what cannot be read is a `TaskError` that names the file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from agentgym.envs.swe.fields import Row
from agentgym.errors import MissingDependency, TaskError
from agentgym.verifiers.patches import decode_diff


def read_text(path: Path) -> str:
    """A text file, with its line ends as they are: a patch may need them."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {path.name}: {error}") from None


def read_diff(path: Path) -> str:
    """A diff, which may be of files that are no UTF-8."""
    try:
        return decode_diff(path.read_bytes())
    except OSError as error:
        raise TaskError(f"cannot read {path.name}: {error}") from None


def read_json(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"expected {path.name} to be JSON: {error}") from None


def read_toml(path: Path) -> Row:
    """A TOML file."""
    try:
        return tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskError(f"expected {path.name} to be TOML: {error}") from None


def read_yaml(path: Path) -> Row:
    """A YAML file that holds a mapping. Scalars stay texts: a version ``1.10`` is no number; null counts as absent."""
    try:
        import yaml
    except ImportError:
        raise MissingDependency("reading task.yaml needs PyYAML: pip install 'agentgym-suite[swe]'") from None
    try:
        data = yaml.load(read_text(path), yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise TaskError(f"expected {path.name} to be YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TaskError(f"expected {path.name} to hold a mapping, got {type(data).__name__}")
    return {key: value for key, value in data.items() if value not in ("null", "~", "")}
