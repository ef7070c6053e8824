"""What both kinds of Docker sandboxes share: the container with its limits, and commands in it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox._commands import CommandSandbox
from agentgym.sandbox._docker_client import daemon_errors, daemon_is_here
from agentgym.sandbox._docker_container import Container
from agentgym.sandbox._docker_leftovers import labels
from agentgym.sandbox._job import Job

if TYPE_CHECKING:
    from docker import APIClient

_SHM_MB = 64
_LONGEST_WORD = 128 << 10  # of the kernel, for one argument or variable with its end
_LONGEST_COMMAND = 2 << 20  # of the kernel, for all of them, with the usual stack


class DockerSandbox(CommandSandbox):
    """Base of both kinds; a subclass calls `_open`."""

    backend = "docker"
    _client: APIClient
    _container: Container
    _network: bool
    _whole_disk: str  # what bounds files other than one by one

    def _container_settings(self, binds: Mapping[str, str], network: bool) -> dict[str, Any]:
        """What bounds a container, as arguments of ``create_container``."""
        from docker.types import LogConfig, Ulimit

        limits = self.limits
        if binds and not daemon_is_here():
            raise UsageError(
                "binds: the Docker daemon is on another machine, and cannot show files of this one"
            )
        # The first two as this process has them: a daemon that may not raise limits accepts them.
        ulimits = {
            "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
            "nproc": resource.getrlimit(resource.RLIMIT_NPROC),
            "core": (0, 0),
        }
        if limits.disk_mb is not None:
            ulimits["fsize"] = (limits.disk_mb << 20, limits.disk_mb << 20)
        if limits.cpu_s is not None:
            ulimits["cpu"] = (limits.cpu_s, limits.cpu_s)
        memory = None if limits.memory_mb is None else limits.memory_mb << 20
        return {
            "hostname": "sandbox",
            "labels": labels(),
            "host_config": {
                "auto_remove": True,
                "network_mode": "host" if network else "none",
                "ipc_mode": "private",
                "cap_drop": ["ALL"],
                "security_opt": ["no-new-privileges"],
                "mem_limit": memory,
                "memswap_limit": memory,
                "pids_limit": limits.processes,
                "ulimits": [
                    Ulimit(name=name, soft=soft, hard=hard) for name, (soft, hard) in ulimits.items()
                ],
                "shm_size": min(_SHM_MB, limits.disk_mb or _SHM_MB) << 20,
                "log_config": LogConfig(type="none"),
                "mounts": [bind(host, inside) for host, inside in binds.items()],
            },
        }

    def _run_container(self, image: str, settings: Mapping[str, Any]) -> Container:
        host = self._client.create_host_config(**settings["host_config"])
        return Container(self._client, self.workspace, {**settings, "image": image, "host_config": host})

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        with daemon_errors("say what it can limit"):
            able = self._client.info()
        group = f"cgroup v{able.get('CgroupVersion') or 1}"
        swap = "" if able.get("SwapLimit") else "; swap is not counted"
        said = {
            "wall_s": "timer, kills what carries the command's mark or descends from it",
            "memory_mb": f"{group} memory, whole container{swap}",
            "processes": f"{group} pids, whole container; its first process and one for each command count too",
            "cpu_s": "RLIMIT_CPU, per process",
            "disk_mb": f"RLIMIT_FSIZE per file; {self._whole_disk}",
            "output_bytes": "cut while reading",
        }
        for name, ability in (("memory_mb", "MemoryLimit"), ("processes", "PidsLimit")):
            if not able.get(ability):
                said[name] = "not enforced: the daemon cannot limit it on its machine"
        for name in said:
            if getattr(self.limits, name) is None:
                said[name] = "not limited: set to None"
        said["network"] = (
            "not enforced: network=True" if self._network else "network namespace, loopback only"
        )
        said["files"] = "mount namespace of the container"
        return said

    def _start(
        self,
        argv: Sequence[str | bytes],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...] = (),
    ) -> Job:
        words = [word if isinstance(word, str) else word.decode() for word in argv]
        sizes = [len(os.fsencode(word)) + 1 for word in (*words, *(f"{name}={env[name]}" for name in env))]
        if max(sizes) > _LONGEST_WORD or sum(sizes) > _LONGEST_COMMAND:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        return self._container.exec(
            words,
            env=env,
            cwd=os.path.join(self.workspace, cwd or ""),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            report=pass_fds[0] if pass_fds else None,
        )


def bind(host: str, inside: str, *, writable: bool = False) -> Any:
    """A mount of a host path."""
    from docker.types import Mount

    return Mount(inside, host, type="bind", read_only=not writable)


def unusable(workspace: str, reason: str) -> SandboxError:
    """Said of a workspace in which commands cannot write."""
    return SandboxError(f"commands could not write to {workspace}: {reason}")
