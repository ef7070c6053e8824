"""What of the host a sandbox must see to run a given Python."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

from agentgym.errors import UsageError

_ASK = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"


def python_binds(executable: str = sys.executable) -> dict[str, str]:
    """Read-only paths, for `make_sandbox(binds=...)`, with which an interpreter runs inside at the same path.

    For a virtual environment: its folder and the prefix of the Python it was made from. What lies in /usr is
    visible anyway and left out. Everything installed in these prefixes becomes visible, and nothing else: an
    editable install that points elsewhere does not import.

    Args:
        executable: path of a Python.

    Raises:
        UsageError: it is no Python, or its prefix is the root of the file system or somebody's home.
    """
    binds = {}
    for prefix in _prefixes(executable):
        # Also where the prefix is a link: the interpreter is found by either name.
        for path in (prefix, os.path.realpath(prefix)):
            if path in ("/", "/root", "/home", os.path.expanduser("~")):
                raise UsageError(
                    f"python_binds: the prefix {path} of {executable} would show too much of the host"
                )
            if not f"{path}/".startswith("/usr/"):
                binds[path] = path
    return binds


@functools.cache
def _prefixes(executable: str) -> tuple[str, ...]:
    if executable == sys.executable:
        return sys.prefix, sys.base_prefix
    try:
        done = subprocess.run([executable, "-I", "-c", _ASK], capture_output=True, text=True, check=True)
        prefix, base_prefix = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise UsageError(
            f"python_binds: expected the path of a Python, got {executable!r}: {error}"
        ) from None
    return prefix, base_prefix
