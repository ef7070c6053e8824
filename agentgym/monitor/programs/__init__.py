"""The table of programs: how each one's arguments become effects, and what it prints where that is known.

A row is a function from `Command` to the text of standard output (`HOLE` where it is not known). Each module holds
the rows of one kind of program; a new program is a line in one of their tables.
"""

from __future__ import annotations

from agentgym.monitor.command import Row
from agentgym.monitor.programs import (
    archives,
    builtins,
    editors,
    files,
    filters,
    interpreters,
    network,
    outputs,
    packages,
    places,
    processes,
    registries,
    search,
    tools,
    versions,
    wrappers,
)

PROGRAMS: dict[str, Row] = {}
for _module in (
    files,
    archives,
    filters,
    search,
    wrappers,
    builtins,
    editors,
    interpreters,
    network,
    packages,
    processes,
    versions,
    tools,
    outputs,
):
    PROGRAMS.update(_module.PROGRAMS)
PROGRAMS.update(outputs.rows(PROGRAMS))
PROGRAMS.update(registries.rows(PROGRAMS))
PROGRAMS.update(places.rows(PROGRAMS))
