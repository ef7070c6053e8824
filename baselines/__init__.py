"""Trainers, each one file to read from top to bottom; run them from a clone: ``python -m baselines.grpo --help``."""

import sys
from importlib.util import find_spec

from agentgym.cli import console
from agentgym.errors import MissingDependency

if find_spec("torch") is None or find_spec("transformers") is None:
    _text = "trainers need torch and transformers: pip install 'agentgym-suite[train]'"
    if sys.argv[:1] == [
        "-m"
    ]:  # so it is while Python looks for the module of `python -m`: one line, no traceback
        console.complain(_text)
        sys.exit(console.INFRASTRUCTURE)
    raise MissingDependency(_text)
