"""Other people's agent programs as policies: started in a sandbox, answered by a gateway, graded afterwards."""

from __future__ import annotations

from agentgym.blackbox.place import LendsFiles
from agentgym.blackbox.player import ProgramPlayer, place_of
from agentgym.blackbox.program import Program, ProgramEnd

__all__ = ["LendsFiles", "Program", "ProgramEnd", "ProgramPlayer", "place_of"]
