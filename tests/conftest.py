"""What all tests share."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Machines that run the tests are shared: slowness of one example is no finding, and a run must be repeatable.
settings.register_profile(
    "agentgym", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("agentgym")


@pytest.fixture
def global_rngs_untouched():
    """Fails the test if it moves `random` or `numpy.random`."""
    before = (random.getstate(), str(np.random.get_state()))
    yield
    assert (random.getstate(), str(np.random.get_state())) == before, "a global random generator was used"
