"""Places to run untrusted commands. `make_sandbox()` makes one; `base` says what it offers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from agentgym.errors import UsageError, nearest
from agentgym.sandbox._python import python_binds
from agentgym.sandbox._scratch import scratch_folder
from agentgym.sandbox._system import system_folders, usr_links
from agentgym.sandbox.base import ExecResult, Limits, Sandbox, Shell, TreeError, machine_faults

__all__ = [
    "BACKENDS",
    "ExecResult",
    "Limits",
    "Sandbox",
    "Shell",
    "TreeError",
    "choose_backend",
    "machine_faults",
    "make_sandbox",
    "python_binds",
    "scratch_folder",
    "system_folders",
    "usr_links",
]

# name -> what makes one (imported when asked for), and whether it isolates
BACKENDS = {
    "bubblewrap": ("agentgym.sandbox.bubblewrap:BubblewrapSandbox", True),
    "docker": ("agentgym.sandbox.docker:docker_sandbox", True),
    "process": ("agentgym.sandbox.process:ProcessSandbox", False),
}
_DEFAULT = "bubblewrap"


def choose_backend(backend: str, *, allow_unsafe: bool = False) -> str:
    """The name in `BACKENDS` that is meant: "auto" is bubblewrap.

    Raises:
        UsageError: unknown backend, or one that does not isolate without `allow_unsafe`.
    """
    name = _DEFAULT if backend == "auto" else backend
    if name not in BACKENDS:
        raise UsageError(f"unknown sandbox backend {backend!r}.{nearest(backend, ['auto', *BACKENDS])}")
    if not BACKENDS[name][1] and not allow_unsafe:
        raise UsageError(
            f"the {name} backend does not isolate: pass allow_unsafe=True to use it all the same"
        )
    return name


def make_sandbox(
    backend: str = "auto",
    *,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    network: bool = False,
    allow_unsafe: bool = False,
    binds: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    workspace: str | None = None,
    image: str | None = None,
) -> Sandbox:
    """Make a sandbox. Its workspace is empty, or the image's folder of that name.

    Args:
        backend: a name from `BACKENDS`; "auto" is bubblewrap, and never a backend that does not isolate.
        limits: bounds on what runs in it.
        network: True lets commands reach the network of the host.
        allow_unsafe: True admits a backend that does not isolate.
        binds: host paths to show read-only, host path -> absolute path inside.
        env: variables for all commands; nothing of the host's environment is passed on.
        workspace: where commands see the workspace, an absolute path; None leaves it to the backend
            (/workspace, or the working directory of the image).
        image: name of a container image to run commands in, for the docker backend only; pulled if it is not
            there. None shows the host's own programs.

    Raises:
        TaskError: no registry has the image, or it is not fit for a sandbox.
        UsageError: unknown backend, one that needs `allow_unsafe`, or arguments that make no sense.
        MissingDependency: the backend's program is not installed; the text names the command that brings it.
        SandboxError: the backend does not work on this machine.
    """
    name = choose_backend(backend, allow_unsafe=allow_unsafe)
    chosen = {} if image is None else {"image": image}
    if chosen and name != "docker":
        raise UsageError(f"image={image!r}: the {name} backend has no images; use backend='docker'")
    module, _, attribute = BACKENDS[name][0].partition(":")
    make = getattr(importlib.import_module(module), attribute)
    with machine_faults("make a sandbox"):
        sandbox: Sandbox = make(
            limits=limits, network=network, binds=binds, env=env, workspace=workspace, **chosen
        )
    return sandbox
