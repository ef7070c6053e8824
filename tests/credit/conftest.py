"""The functions under test, as an argument: `test_mutants` calls the same tests with mutants."""

from types import ModuleType

import pytest

from agentgym import credit


@pytest.fixture(scope="session")
def c() -> ModuleType:
    return credit
