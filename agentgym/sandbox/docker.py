"""Docker: a long-lived container for each sandbox, on any daemon that speaks Docker's API.

Two kinds. **Without an image** the container shows the host's own /usr, read-only, and what `binds` adds, as bubblewrap
does; its workspace is a private folder of this machine, so files and snapshots cost what they cost there. The daemon
must be on this machine. **With an image** (`_docker_image_box`) the container is the image's: its system, its user, its
files, of which the workspace may be some.

In both, all capabilities are dropped, no new privileges can be had, there is no network unless asked for, and the
limits hold for the container as a whole. How commands end, and how a container ends with the process that made it, is
told in `_docker_container`; who removes what is left after all, in `_docker_leftovers`.

Unlike with bubblewrap, /tmp is one for all commands of a sandbox: it lasts until `restore` or `close`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._commands import CLEAN_ENV, check_places
from agentgym.sandbox._docker_base import DockerSandbox, bind, unusable
from agentgym.sandbox._docker_client import connect, daemon_address, daemon_is_here
from agentgym.sandbox._docker_image_box import ImageSandbox
from agentgym.sandbox._docker_images import ensure_image, find_image, host_image
from agentgym.sandbox._docker_leftovers import reap
from agentgym.sandbox._files import Tree
from agentgym.sandbox._local import LocalSandbox
from agentgym.sandbox._system import AGENT, HOME, system_folders
from agentgym.sandbox.base import Limits, Sandbox


def docker_sandbox(
    *,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    network: bool = False,
    binds: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    workspace: str | None = None,
    image: str | None = None,
) -> Sandbox:
    """Make a sandbox of the kind that `image` asks for; see `make_sandbox`."""
    if image is None:
        return HostBindSandbox(limits=limits, network=network, binds=binds, env=env, workspace=workspace)
    return ImageSandbox(image, limits=limits, network=network, binds=binds, env=env, workspace=workspace)


def image_is_here(name: str) -> bool:
    """Whether the daemon has an image, so that nothing would have to be pulled.

    Raises:
        MissingDependency: the package ``docker`` is not installed.
        TaskError: this is no image's name.
        SandboxError: no daemon answers.
    """
    with closing(connect()) as client:
        return find_image(client, name) is not None


def image_id(name: str) -> str:
    """What an image's name stands for now: a hash of its content. It is pulled if it is not there.

    Raises:
        MissingDependency: the package ``docker`` is not installed.
        TaskError: no registry has the image, or this is no image's name.
        SandboxError: no daemon answers, or the registry cannot be reached.
    """
    with closing(connect()) as client:
        return str(ensure_image(client, name)["Id"])


class HostBindSandbox(DockerSandbox, LocalSandbox):
    """A container that shows the host's own programs.

    Commands run as this process's user, or as user 1000 where that is root.

    Args:
        limits: see `Limits`; what holds here is in `limits_in_force`.
        network: True shares the host's network, False gives a loopback of its own.
        binds: host paths to show read-only, host path -> path inside.
        env: variables for all commands.
        workspace: where commands see the workspace.

    Raises:
        MissingDependency: the package ``docker`` is not installed.
        SandboxError: no daemon answers, or it does not do what is needed.
        UsageError: an argument makes no sense, or the daemon is on another machine.
    """

    _whole_disk = "size of /tmp; the workspace as a whole is not bounded"

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        network: bool = False,
        binds: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> None:
        if not daemon_is_here():
            raise UsageError(
                f"the Docker daemon at {daemon_address()} is on another machine and cannot show this one's programs: "
                "give an image"
            )
        self.workspace = check_places(workspace, binds or {})
        self._client = connect()
        reap(self._client)
        self._network = network
        super().__init__(limits=limits, env=env, folder=_scratch.new_folder("box"))
        self._state.undo.append(self._client.close)
        try:
            self._open(binds or {})
        except BaseException:
            self.close()
            raise

    def _open(self, binds: Mapping[str, str]) -> None:
        root = self._state.folder / "root"
        host_workspace = Path(f"{root}{self.workspace}")
        host_workspace.mkdir(parents=True, mode=0o755)
        user, group, owner = os.getuid(), os.getgid(), None
        if user == 0:
            user = group = AGENT
            owner = (user, group)
            os.chown(host_workspace, user, group)
            for host in binds:
                _check_readable(host)
        self._tree = Tree(host_workspace, self.workspace, root=root, owner=owner)
        image = host_image(self._client, user, group)
        self._container = self._run_container(image, self._settings(binds, user, group))
        self._state.undo.append(self._container.remove)
        if self._container.state != "ready":
            raise unusable(
                self.workspace, "does the daemon map users, or see another file system? Give an image"
            )

    def _settings(self, binds: Mapping[str, str], user: int, group: int) -> dict[str, Any]:
        shown = {path: path for path in (*system_folders(), "/etc/ld.so.cache", "/etc/alternatives")}
        if self._network:
            shown["/etc/ssl/certs"] = "/etc/ssl/certs"
        shown = {path: path for path in shown if os.path.exists(path)}
        settings = self._container_settings({**shown, **binds}, self._network)
        host = settings["host_config"]
        host["mounts"].append(bind(str(self._tree.workspace), self.workspace, writable=True))
        host["read_only"] = True
        size = "" if self.limits.disk_mb is None else f",size={self.limits.disk_mb}m"
        host["tmpfs"] = {"/tmp": f"exec,mode=1777{size}"}
        return {**settings, "user": f"{user}:{group}", "environment": {**CLEAN_ENV, "HOME": HOME}}

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        cleared = self.exec(["find", "/tmp", "-mindepth", "1", "-not", "-path", HOME, "-delete"])
        if cleared.exit_code:
            raise SandboxError(f"could not clear /tmp of a sandbox: {cleared.stderr.strip()}")

    def _read_elsewhere(self, path: str, error: OSError | None, most: int | None) -> bytes:
        return self._cat(path, most, "")


def _check_readable(host: str) -> None:
    """Say at once that a bind would be of no use: commands are not the user that this process is.

    Raises:
        UsageError: others may not read it.
    """
    mode = os.stat(host).st_mode
    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
    if mode & needed != needed:
        raise UsageError(f"binds: user {AGENT}, as whom commands run, may not read {host}: chmod a+rX it")
