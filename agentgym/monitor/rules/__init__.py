"""The rules: one table over all classes of the catalogue. To add one, see docs/monitor.md."""

from __future__ import annotations

from agentgym.monitor.rules import (
    access,
    answers,
    builds,
    clocks,
    copies,
    delegation,
    detection,
    equality,
    expectations,
    frames,
    hijack,
    history,
    leaving,
    network,
    processes,
    runners,
    simulated,
    switches,
    wording,
)
from agentgym.monitor.rules.base import CLASSES, Example, Finding, HackClass, Rule, Scene

__all__ = ["CLASSES", "RULES", "Example", "Finding", "HackClass", "Rule", "Scene"]

_MODULES = (
    access,
    copies,
    history,
    network,
    processes,
    frames,
    runners,
    builds,
    switches,
    leaving,
    equality,
    detection,
    expectations,
    answers,
    clocks,
    wording,
    hijack,
    simulated,
    delegation,
)

RULES: tuple[Rule, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Rule)
)
"""Every rule, in the order in which they are asked: the first that blocks names the decision."""
