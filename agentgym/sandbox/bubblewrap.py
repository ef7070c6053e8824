"""The default backend: every command in namespaces of its own, made by bubblewrap in a few milliseconds.

**One bubblewrap per command.** `exec` starts a fresh one and shares nothing with the one before but the
workspace; a persistent shell lives in one of its own. The alternative, one long-lived supervisor per sandbox,
would save about five milliseconds per `exec` and cost a protocol inside the sandbox. This way the process
namespace *is* the command: the kernel kills every process in it, whatever it did to get away, when the
command ends, times out, is closed, or when this Python process is killed. Hence background processes end with
the `exec` that started them, `/tmp` is private to each `exec` and each shell, and what must last goes to the
workspace.

**Held at the start.** bubblewrap reports the first process of the new namespace and waits (``--block-fd``)
until we have moved it into the sandbox's control group and set its resource limits from outside. So the group
need not be visible inside, and RLIMIT_NPROC counts the processes of this user namespace only, not all of the
user's.

**A bash as process 1.** With its own init, bubblewrap leaves before the namespace is empty, and the rest
becomes a zombie where nobody reaps orphans (a container whose process 1 is Python). With ``--as-pid-1`` it
waits for the namespace's end. Process 1 is then a bash of one line: it runs the program as a child, so that
signals work in it as everywhere, reaps orphans, and passes the exit code on.

What commands see: `/usr` (read-only), a made-up `/etc`, own `/proc`, `/dev`, size-limited `/tmp`, the
workspace, and what `binds` adds. The root is read-only, capabilities are gone, further user namespaces are
disabled.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from resource import RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NPROC

from agentgym.errors import MissingDependency, SandboxError
from agentgym.sandbox import _cgroup, _scratch
from agentgym.sandbox._bwrap_job import BwrapJob, lower_limit, spawner
from agentgym.sandbox._commands import CLEAN_ENV, check_places
from agentgym.sandbox._files import Tree
from agentgym.sandbox._job import Job, encode
from agentgym.sandbox._local import LocalSandbox
from agentgym.sandbox._reach import Address, Reach
from agentgym.sandbox._system import AGENT, HOME, etc_files, system_folders, usr_links
from agentgym.sandbox.base import Limits

_SHM_MB = 64
_LONGEST_VARIABLE = 128 << 10  # bytes, name and end included; Linux starts nothing with a longer one
_USERNS = ("--unshare-user", "--disable-userns", "--uid", str(AGENT), "--gid", str(AGENT))
# Process 1: its own words ("Killed") go nowhere, those of the program to the program's stderr. A folder that
# does not exist is found here, since then the command fails, not the sandbox. The subshell keeps `exec` from
# ending process 1.
_INIT = """\
[[ -z $1 ]] || cd -- "$1" || exit 126
shift
exec 62>&2 2>/dev/null
(exec -- "$@") 2>&62 62>&-
exit $?
"""


class BubblewrapSandbox(LocalSandbox):
    """Commands in namespaces of their own; needs the program ``bwrap`` and no privileges.

    Args:
        limits: see `Limits`; what holds here is in `limits_in_force`.
        network: True shares the host's network, False gives a loopback of its own.
        binds: host paths to show read-only, host path -> path inside.
        env: variables for all commands.
        workspace: where commands see the workspace.

    Raises:
        MissingDependency: bubblewrap is not installed.
        SandboxError: this machine does not let it start.
        UsageError: an argument makes no sense.
    """

    backend = "bubblewrap"

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        network: bool = False,
        binds: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> None:
        self.workspace = check_places(workspace, binds or {})
        self._bwrap = find_bwrap()
        self._userns = _can_make_user_namespace(self._bwrap)
        folder = _scratch.new_folder("box")
        self._cgroup = _cgroup.create(
            f"{folder.parent.name}-{folder.name}", memory_mb=limits.memory_mb, processes=limits.processes
        )
        super().__init__(limits=limits, env=env, folder=folder)
        self._state.undo.append(self._cgroup.remove)
        host_workspace = Path(f"{folder}/root{self.workspace}")
        host_workspace.mkdir(parents=True, mode=0o755)
        self._tree = Tree(host_workspace, self.workspace, root=folder / "root")
        self._network = network
        self._rlimits = self._choose_rlimits()
        self._binds = dict(binds or {})
        self._mounts = self._mount_plan(network, self._binds)
        self._base_env = {**CLEAN_ENV, "HOME": HOME}

    def _mount_plan(self, network: bool, binds: Mapping[str, str]) -> list[str]:
        disk = [] if self.limits.disk_mb is None else ["--size", str(self.limits.disk_mb << 20)]
        shm = min(_SHM_MB, self.limits.disk_mb or _SHM_MB)
        plan = [
            *(_USERNS if self._userns else ()),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *(() if network else ("--unshare-net",)),
            *(
                "--as-pid-1",
                "--die-with-parent",
                "--new-session",
                "--cap-drop",
                "ALL",
                "--hostname",
                "sandbox",
            ),
            *_system_mounts(network),
            *("--proc", "/proc", *_proc_covers()),
            *("--dev", "/dev", "--size", str(shm << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
            *(*disk, "--tmpfs", "/tmp", "--dir", HOME),
            *("--bind", str(self._tree.workspace), self.workspace),
        ]
        for host, inside in binds.items():
            plan += ["--ro-bind", host, inside]
        return [*plan, "--remount-ro", "/"]

    @contextlib.contextmanager
    def showing(self, binds: Mapping[str, str]) -> Iterator[None]:
        check_places(self.workspace, binds)
        before = self._mounts
        self._mounts = self._mount_plan(self._network, {**self._binds, **binds})
        try:
            yield
        finally:
            self._mounts = before

    @contextlib.contextmanager
    def _reaching(self, address: Address, argv: list[str]) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        if self._network:
            yield argv, ()
            return
        with Reach(address) as reach:
            yield reach.launch(argv), (reach.inside,)
        reach.check()

    def _choose_rlimits(self) -> dict[int, int]:
        limits, in_cgroup = self.limits, self._cgroup.versions
        chosen = {
            RLIMIT_CORE: 0,
            RLIMIT_CPU: limits.cpu_s,
            RLIMIT_FSIZE: None if limits.disk_mb is None else limits.disk_mb << 20,
            RLIMIT_AS: None if limits.memory_mb is None or "memory" in in_cgroup else limits.memory_mb << 20,
            RLIMIT_NPROC: limits.processes if self._userns and os.getuid() != 0 else None,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        limits, group = self.limits, self._cgroup
        if "memory" in group.versions:
            memory = f"cgroup v{group.versions['memory']} memory, whole sandbox"
        else:
            memory = f"RLIMIT_AS, per process only ({group.refused.get('memory')})"
        if "pids" in group.versions:
            processes = f"cgroup v{group.versions['pids']} pids, whole sandbox"
        elif RLIMIT_NPROC in self._rlimits:
            processes = "RLIMIT_NPROC in a user namespace of its own, per command or shell"
        else:
            processes = f"not enforced: {group.refused.get('pids')}, and RLIMIT_NPROC does not bind root"
        said = {
            "wall_s": "timer, kills the process namespace",
            "memory_mb": memory,
            "processes": processes,
            "cpu_s": "RLIMIT_CPU, per process",
            "disk_mb": "RLIMIT_FSIZE per file, size of /tmp; the workspace as a whole is not bounded",
            "output_bytes": "cut while reading",
        }
        for name in said:
            if getattr(limits, name) is None:
                said[name] = "not limited: set to None"
        said["network"] = (
            "not enforced: network=True" if self._network else "network namespace, loopback only"
        )
        said["files"] = "mount namespace" + ("" if self._userns else ", without a user namespace")
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
        options = [*self._mounts, "--chdir", self.workspace]
        # By option, not through the environment of bwrap, which the dynamic linker of the host would read.
        private: list[str] = []
        for variable, text in {**self._base_env, **env}.items():
            if len(encode(f"{variable}={text}")) >= _LONGEST_VARIABLE:
                # Else bwrap would fail to start the command
                raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
            private += ["--setenv", variable, text]
        where = "" if cwd is None else os.path.join(self.workspace, cwd)
        program = ["bash", "--noprofile", "--norc", "-c", _INIT, "bash", where, *argv]

        def spawn() -> BwrapJob:
            return BwrapJob(self._bwrap, options, private, program, stdin, stdout, stderr, pass_fds)

        job = spawner.call(spawn) if pass_fds else spawn()
        try:
            self._cgroup.add(job.init_pid)
            for name, value in self._rlimits.items():
                lower_limit(job.init_pid, name, value)
            job.go()
        except OSError as error:
            job.abandon()
            raise SandboxError(f"could not put a command under its limits: {error}") from error
        return job

    def _read_elsewhere(self, path: str, error: OSError | None, most: int | None) -> bytes:
        return self._cat(path, most, f" (/tmp is private to each command; use {self.workspace})")


def find_bwrap() -> str:
    """Path of the program.

    Raises:
        MissingDependency: it is not installed.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise MissingDependency(
            "sandboxes need bubblewrap: apt-get install bubblewrap, or use backend='docker'"
        )
    return found


@functools.cache
def _can_make_user_namespace(bwrap: str) -> bool:
    """Whether user namespaces work here; True for every plain user for whom bubblewrap works at all.

    Raises:
        SandboxError: bubblewrap works neither with nor without.
    """
    for options in (_USERNS, ()):
        trial = [bwrap, *options, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
        done = subprocess.run([*trial, "true"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return bool(options)
    raise SandboxError(
        f"bubblewrap is installed but this machine does not let it start: {done.stderr.strip()} "
        "(it needs unprivileged user namespaces, or root)"
    )


def _system_mounts(network: bool) -> list[str]:
    """The read-only system: /usr with its links, and a made-up /etc."""
    plan: list[str] = []
    for path in system_folders():
        plan += ["--ro-bind", path, path]
    for path, target in usr_links().items():
        plan += ["--symlink", target, path]
    plan += ["--ro-bind", str(_scratch.shared_folder("etc", _fill_etc)), "/etc"]
    if os.path.isdir("/etc/alternatives"):  # what awk, cc and others are links to
        plan += ["--ro-bind", "/etc/alternatives", "/etc/alternatives"]
    if network:
        for path in ("/etc/resolv.conf", "/etc/ssl/certs"):
            if os.path.exists(path):
                plan += ["--ro-bind", path, path]
    return plan


def _proc_covers() -> list[str]:
    """Mounts over what of /proc only root may change or read.

    In a user namespace made by root, commands have no capabilities but are still the user who owns those
    files: without this they could set the kernel's parameters. bubblewrap itself covers /proc/sys only where
    it finds the folder writable, which a folder of mode 555 is not.
    """
    plan = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        mode = entry.stat().st_mode
        if stat.S_ISDIR(mode) or (mode & 0o004 and mode & 0o222):
            plan += ["--ro-bind", entry.path, entry.path]
        elif not mode & 0o004 and os.getuid() == 0:
            plan += ["--ro-bind", "/dev/null", entry.path]
    return plan


def _fill_etc(etc: Path) -> None:
    """Write the made-up /etc, of the host only its linker cache, and places to mount on."""
    for name, text in etc_files().items():
        (etc / name).write_text(text)
    (etc / "ssl" / "certs").mkdir(parents=True)
    (etc / "alternatives").mkdir()
    if os.path.exists("/etc/ld.so.cache"):
        shutil.copyfile("/etc/ld.so.cache", etc / "ld.so.cache")
