"""A module with one edit, for tests of tests."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace


def mutated(package: ModuleType, module: str, old: str, new: str) -> SimpleNamespace:
    """The public names of `package` as they are with `old` replaced by `new` in the source of one of its modules.

    Modules that import the edited one keep the original.

    Args:
        package: whose names the test uses; may be the edited module itself.
        module: name of the module to edit.
        old: what stands exactly once in its source.
        new: what stands there instead.
    """
    original = importlib.import_module(module)
    assert original.__file__ is not None
    with open(original.__file__, encoding="utf-8") as file:
        source = file.read()
    assert source.count(old) == 1, f"expected {old!r} once in {module}, found it {source.count(old)} times"
    changed = ModuleType(module)
    changed.__package__ = original.__package__
    exec(compile(source.replace(old, new), f"<mutant of {module}>", "exec"), changed.__dict__)
    return SimpleNamespace(
        **{
            name: getattr(changed, name, value)
            for name, value in vars(package).items()
            if not name.startswith("_")
        }
    )
