"""A running container that obeys this process and ends with it.

**Process 1 is our agent inside.** It is a bash of a few lines that reads its orders from the standard input of the
container, which is a connection of ours to the daemon. It kills what it is told to kill, without starting a process:
so it works when the container is at its limits, and in a millisecond where another ``docker exec`` takes a hundred.
When this Python process dies, by whatever signal, the connection breaks, process 1 reads the end of its input and
ends, the kernel kills the rest of the container, and the daemon removes it (``--rm``).

**Each command carries a mark** in its environment. When it ends, whatever carries the mark or descends from what does
is stopped, so that it cannot multiply, and then killed. While no other command or shell runs in the container,
everything in it is killed, marked or not; what cleared its environment *and* left its parents lives on only as long as
another shell does.

A command runs as the same user as process 1 and can get in its way. If an order is not carried out within
`_PATIENCE_S` seconds, the container is started anew from outside: everything in it is dead then, its files are kept.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.errors import SandboxError, TaskError
from agentgym.sandbox._docker_client import Stream, daemon_errors, not_found
from agentgym.sandbox._docker_job import ENDED, STARTED, DockerJob, Frames
from agentgym.sandbox._job import KILLED
from agentgym.sandbox._output import readable

if TYPE_CHECKING:
    from docker import APIClient

_MARK = "AGENTGYM_JOB"
_DEADLINE_S = 60.0  # far more than a start or an end takes on a loaded machine; then something is broken
_PATIENCE_S = 10.0  # an order takes milliseconds

# Read by process 1 from its standard input, like the orders after it. Only what bash does by itself: in a full
# container no process can be started.
_PROCESS_1 = """\
exec 2>/dev/null
look() {  # state and parent of process $1, nothing if it is gone
  local line=
  IFS= read -r -d '' line <"/proc/$1/stat"
  line=${line##*) }
  set -- $line
  state=$1 parent=$2
}
marked() {  # whether process $1 carries the mark $2
  local item
  while IFS= read -r -d '' item; do
    [[ $item != "MARK=$2" ]] || return 0
  done <"/proc/$1/environ"
  return 1
}
gone() {  # wait until the processes named are dead, as zombies are; process 1 is not waited for
  local pid state parent
  for pid; do
    while look "$pid"; [[ $pid != 1 && $state && $state != Z && $state != X ]]; do :; done
  done
}
sweep() {  # kill what carries the mark $2 and what descends from it; but for "rest", not the first process
  local entry pid state parent found=1
  local -A tree=()
  while ((found)); do
    found=0
    for entry in /proc/[1-9]*; do
      pid=${entry#/proc/}
      [[ $pid != 1 && -z ${tree[$pid]} ]] || continue
      look "$pid"
      [[ $state && $state != Z ]] || continue
      [[ ${tree[$parent]} ]] || marked "$pid" "$2" || continue
      if [[ $1 == rest && $parent == 0 ]]; then
        tree[$pid]=spared
      else
        kill -STOP "$pid"
        tree[$pid]=stopped
      fi
      found=1
    done
  done
  for pid in "${!tree[@]}"; do
    if [[ ${tree[$pid]} == spared ]]; then unset "tree[$pid]"; else kill -KILL "$pid"; fi
  done
  gone "${!tree[@]}"
}
[[ -d $HOME ]] || mkdir -p -- "$HOME"
state=ready
[[ -w $1 && -x $1 ]] || state=unusable
[[ -e $1 ]] || state=missing
echo "$state $UID ${GROUPS[0]}"
while read -r order ticket mark; do
  case $order in
  all)
    kill -KILL -1
    all=(/proc/[1-9]*)
    gone "${all[@]#/proc/}"
    ;;
  job | rest) sweep "$order" "$mark" ;;
  esac
  echo "$ticket"
done
exit 0
""".replace("MARK", _MARK)
# Says on stderr, behind its secret, that it runs and that the program has ended: the streams may be held open by what
# the program left. Its own words ("Killed") go nowhere. The subshell keeps `exec` from ending it.
_WRAPPER = """\
say=$1 workspace=$2 folder=$3
shift 3
[[ -x $workspace ]] || { mkdir -p -- "$workspace"; chmod u+rwx -- "$workspace"; }
echo "${say}STARTED" >&2
cd -- "$folder" || exit 126
exec 62>&2 2>/dev/null
(exec -- "$@") 2>&62 62>&-
code=$?
echo "${say}ENDED" >&62
exit $code
""".replace("STARTED", STARTED).replace("ENDED", ENDED)
_BASH = ("bash", "--noprofile", "--norc")


class _Control:
    """Our end of the standard input and output of process 1."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._frames = Frames()
        self._said = b""
        _controls.add(self)

    def line(self, seconds: float) -> str | None:
        """The next line that process 1 says; None if it ended, or said nothing for so long."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not readable(self._stream.fileno(), left):
                return None
            data = self._stream.receive(1 << 12)
            if data == b"":
                return None
            self._said += b"".join(content for _, content in self._frames.feed(data or b""))
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    def send(self, text: str) -> None:
        """Write to process 1; what is more than the connection takes at once is lost, and not answered."""
        self._stream.send(text.encode())

    def order(self, what: str, argument: str = "") -> bool:
        """Give an order; whether it was carried out."""
        ticket = secrets.token_hex(8)
        self.send(f"{what} {ticket} {argument}\n")
        deadline = time.monotonic() + _PATIENCE_S
        while (said := self.line(deadline - time.monotonic())) is not None:
            if said == ticket:  # anything else is a command's that found our streams
                return True
        return False

    def close(self) -> None:
        self._stream.close()


_controls: weakref.WeakSet[_Control] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a container must end with the parent, whose connection the child holds too."""
    for control in list(_controls):
        control.close()


os.register_at_fork(after_in_child=_let_go)


class Container:
    """A container, started.

    Args:
        client: of the sandbox.
        workspace: where commands begin.
        settings: for ``APIClient.create_container``, without the command.

    Attributes:
        id: as the daemon knows it.
        user: ids of user and group that commands run as.
        state: of the workspace: "ready", "missing" or "unusable".
    """

    def __init__(self, client: APIClient, workspace: str, settings: Mapping[str, Any]) -> None:
        self._client, self._workspace = client, workspace
        self._lock = threading.Lock()
        self._running: set[str] = set()  # marks of jobs
        with daemon_errors(f"make a container of {settings['image']}"):
            self.id: str = client.create_container(
                entrypoint=[*_BASH, "-s", workspace],
                command=[],
                working_dir="/",
                stdin_open=True,
                healthcheck={"test": ["NONE"]},
                **settings,
            )["Id"]
        self._removed = False
        try:
            self._attach()
        except BaseException:
            self._take_down()
            raise
        try:
            self._start()
            self.state, self.user = self._greet()
        except BaseException:
            self.remove()
            raise

    def _attach(self) -> None:
        ways = {"stdin": 1, "stdout": 1, "stream": 1}
        with daemon_errors("attach to a container"):
            self._control = _Control(Stream(self._client.attach_socket(self.id, params=ways)))

    def _start(self) -> None:
        try:
            with daemon_errors("start a container"):
                self._client.start(self.id)
        except SandboxError as error:
            if '"bash": executable file not found' in str(error):
                raise TaskError("the image has no bash, which every sandbox needs") from error
            raise

    def _greet(self) -> tuple[str, tuple[int, int]]:
        self._control.send(_PROCESS_1)
        words = (self._control.line(_DEADLINE_S) or "").split()
        if len(words) != 3:
            raise SandboxError(f"the container's first process did not report: {words}")
        return words[0], (int(words[1]), int(words[2]))

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: int,
        stdout: int,
        stderr: int,
        report: int | None,
    ) -> DockerJob:
        """Start a command; descriptors as for `subprocess.Popen`, `report` for a shell."""
        job = DockerJob(self, stdin=stdin, stdout=stdout, stderr=stderr, report=report)
        with self._lock:
            self._running.add(job.mark)
        try:
            with daemon_errors("start a command"):
                made = self._client.exec_create(
                    self.id,
                    [*_BASH, "-c", _WRAPPER, "bash", job.secret, self._workspace, cwd, *argv],
                    stdin=stdin != subprocess.DEVNULL,
                    environment={**env, _MARK: job.mark},
                )
                job.begin(made["Id"], Stream(self._client.exec_start(made["Id"], socket=True)))
        except BaseException:
            job.abandon()
            with self._lock:
                self._running.discard(job.mark)
            raise
        return job

    def clear(self, job: DockerJob) -> None:
        """Kill what the program of a job left, so that its streams end."""
        with self._lock:
            if not self._removed:
                self._control.order("rest", job.mark)

    def end(self, job: DockerJob) -> None:
        """Kill what is left of a job, and everything that is nobody's.

        Raises:
            SandboxError: it does not die.
        """
        # The daemon may wait forever for a command that is killed while it is being made.
        job.has_begun(_PATIENCE_S)
        deadline = time.monotonic() + _PATIENCE_S
        while self._sweep(job.mark) and time.monotonic() < deadline:
            if job.has_ended(0.05):
                return
        if not job.has_ended(0):
            self._start_anew()
        if not job.has_ended(_DEADLINE_S):
            raise SandboxError(f"a command in the container {self.id[:12]} does not die")

    def _sweep(self, mark: str) -> bool:
        with self._lock:  # nothing starts meanwhile
            if self._removed:
                return False
            if self._running <= {mark}:
                return self._control.order("all")
            return self._control.order("job", mark)

    def _start_anew(self) -> None:
        """Kill everything from outside; the files stay."""
        with self._lock:
            if self._removed:
                return
            self._control.close()
            with daemon_errors("start a container anew"):
                self._client.restart(self.id, timeout=0)
            self._attach()
            self._greet()

    def exit_code(self, job: DockerJob) -> int:
        """Exit code of a job that ended; it counts as running until here."""
        with self._lock:
            self._running.discard(job.mark)
        deadline = time.monotonic() + _DEADLINE_S
        try:
            while True:
                with daemon_errors("inspect a command"):
                    state = self._client.exec_inspect(job.exec_id)
                if not state["Running"]:  # the daemon notes it a little after the end of the streams
                    return KILLED if state["ExitCode"] is None else int(state["ExitCode"])
                if time.monotonic() > deadline:
                    raise SandboxError("the daemon does not learn of a command's end")
                time.sleep(0.002)
        except SandboxError as error:
            if not_found(error):  # it went with its container
                return KILLED
            raise

    def remove(self) -> None:
        """Kill everything in it and remove it; returns when it is gone."""
        with self._lock:
            if self._removed:
                return
            self._removed = True
        self._take_down()
        self._control.close()

    def _take_down(self) -> None:
        try:
            with daemon_errors("remove a container"):
                self._client.remove_container(self.id, force=True, v=True)
        except SandboxError as error:
            if "is already in progress" in str(error):  # by itself, since process 1 has ended
                self._wait_until_gone()
            elif not not_found(error):
                raise

    def _wait_until_gone(self) -> None:
        try:
            with daemon_errors("wait for the end of a container"):
                self._client.wait(self.id, timeout=_DEADLINE_S, condition="removed")
        except SandboxError as error:
            if not not_found(error):
                raise
