"""Policies: what answers conversations. `make_policy` turns a text such as ``"hf:smollm2"`` into one."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from agentgym.errors import UsageError, nearest
from agentgym.policies.base import Policy, Reply
from agentgym.policies.scripted import Gold, Human, Null, Random, Repeat, Replay, Scripted, ScriptedPolicy

__all__ = [
    "Gold",
    "Human",
    "Null",
    "Policy",
    "Random",
    "Repeat",
    "Replay",
    "Reply",
    "Scripted",
    "ScriptedPolicy",
    "is_model",
    "make_policy",
]

PLAIN: dict[str, type[Policy]] = {cls.name: cls for cls in (Random, Gold, Null, Repeat, Human)}
MODELS = {"hf": "HFPolicy", "vllm": "VLLMPolicy", "openai": "OpenAIPolicy"}  # module here, and class
FORMS = (*PLAIN, "replay:FILE", "hf:NAME_OR_PATH", "vllm:NAME_OR_PATH", "openai:MODEL", "module:attribute")


def is_model(spec: object) -> bool:
    """Whether this is a text by which `make_policy` loads a model or connects to one: better once than often."""
    return isinstance(spec, str) and spec.startswith(tuple(f"{kind}:" for kind in MODELS))


def make_policy(spec: str, **options: Any) -> Policy:
    """The policy a text names.

    Args:
        spec: ``random``, ``gold``, ``null``, ``repeat``, ``human``, ``replay:FILE``, ``hf:NAME_OR_PATH``
            (``hf:smollm2`` is the packaged model), ``vllm:NAME_OR_PATH``, ``openai:MODEL``, or ``module:attribute``: a
            `Policy`, or a class or function that returns one. Modules are also looked for in the current folder.
        options: keyword arguments of the policy's class.

    Raises:
        UsageError: no such policy, or it takes no such option; with the nearest names.
    """
    kind, colon, rest = spec.partition(":")
    if not colon:
        if kind not in PLAIN:
            raise UsageError(f"unknown policy {spec!r}.{nearest(spec, FORMS)}")
        return _build(PLAIN[kind], options)
    if not rest:
        raise UsageError(f"policy {spec!r}: expected something after the colon, one of {', '.join(FORMS)}")
    if kind == "replay":
        return _build(Replay, options, rest)
    if kind in MODELS:
        return _build(getattr(importlib.import_module(f"{__name__}.{kind}"), MODELS[kind]), options, rest)
    return _load(kind, rest, options)


def _build(make: Callable[..., Any], options: dict[str, Any], *arguments: Any) -> Policy:
    parameters = inspect.signature(make).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    names = list(parameters)[len(arguments) :]
    for option in options:
        if option not in names and not takes_any:
            hint = nearest(option, names) or " It takes none."
            raise UsageError(f"{getattr(make, '__name__', make)} takes no option {option!r}.{hint}")
    policy = make(*arguments, **options)
    if not isinstance(policy, Policy):
        raise UsageError(f"expected {make!r} to return a Policy, got {type(policy).__name__}")
    return policy


def _load(module_name: str, attribute: str, options: dict[str, Any]) -> Policy:
    if os.getcwd() not in sys.path:  # an installed command does not search the current folder by itself
        sys.path.append(os.getcwd())
    spec = f"{module_name}:{attribute}"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise UsageError(
                f"policy {spec!r}: there is no module {error.name!r}.{nearest(spec, FORMS)}"
            ) from None
        raise
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = [other for other in vars(found) if not other.startswith("_")]
            raise UsageError(f"policy {spec!r}: no attribute {name!r}.{nearest(name, known)}")
        found = getattr(found, name)
    if isinstance(found, Policy):
        if options:
            raise UsageError(
                f"policy {spec!r} is an object already and takes no options, got {sorted(options)}"
            )
        return found
    if not callable(found):
        raise UsageError(
            f"policy {spec!r}: expected a Policy or what returns one, got {type(found).__name__}"
        )
    return _build(found, options)
