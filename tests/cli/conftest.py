"""A way to call the verbs in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from agentgym.cli import main


@dataclass
class Called:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line of a refusal."""
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        return self.err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Run the command in this process."""

    def run(*words: object) -> Called:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Called(code, out, err)

    return run
