"""A sandbox that is a container of a given image: its system, its user, its files."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.errors import SandboxError, TaskError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._commands import check_places
from agentgym.sandbox._docker_base import DockerSandbox
from agentgym.sandbox._docker_client import connect, daemon_address, daemon_errors, not_found
from agentgym.sandbox._docker_images import ensure_image
from agentgym.sandbox._docker_leftovers import guard, reap, remove_quietly
from agentgym.sandbox._docker_tar import pack, pack_folder, unpack
from agentgym.sandbox._files import Tree
from agentgym.sandbox._job import encode
from agentgym.sandbox._local import copy_out
from agentgym.sandbox._output import BoundedOutput
from agentgym.sandbox.base import Limits, machine_faults

if TYPE_CHECKING:
    from agentgym.sandbox._docker_container import Container

# Where path $1 leads, in `full`; it must not lead out of the workspace, which is the working directory. Exit codes that
# are no program's say why it cannot be used.
_RESOLVE = """\
IFS= read -r -d '' top < <(realpath -z -- .)
IFS= read -r -d '' full < <(realpath -mz -- "$1")
[[ $full == "$top" || $full == "$top"/* ]] || exit 101
"""
_MAKE_FOLDER = """\
above=$folder
until [[ -e $above || -L $above ]]; do above=${above%/*}; done
[[ -d $above ]] || exit 104
mkdir -p -- "$folder" || exit 105
"""
_WRITE = f"""\
{_RESOLVE}
[[ ! -d $full ]] || exit 102
[[ ! -e $full || -f $full ]] || exit 103
folder=${{full%/*}}
{_MAKE_FOLDER}
cat >"$full" || exit 105
"""
# Where to put something: into a folder of that name ($2 is "into"), or under that name.
_PLACE = f"""\
{_RESOLVE}
folder=$full name=
[[ $2 == into || -d $full ]] || {{ folder=${{full%/*}} name=${{full##*/}}; }}
{_MAKE_FOLDER}
printf '%s\\0%s' "$folder" "$name"
"""
_FIND = f"""\
{_RESOLVE}
[[ -e $full ]] || exit 106
[[ -d $full || -f $full ]] || exit 103
printf '%s\\0' "$full"
"""
_REASONS = {
    101: (errno.EACCES, "leads out of the workspace"),
    102: (errno.EISDIR, os.strerror(errno.EISDIR)),
    103: (errno.EINVAL, "not a regular file"),
    104: (errno.ENOTDIR, os.strerror(errno.ENOTDIR)),
    105: (errno.EACCES, os.strerror(errno.EACCES)),
    106: (errno.ENOENT, os.strerror(errno.ENOENT)),
}


class ImageSnapshot:
    """The files of a container, all of them, as an image on the daemon.

    The image is removed when nobody refers to the snapshot any more; a copy (pickle) is good as long as the original
    is. Modification times are kept in whole seconds, as the daemon does.

    Attributes:
        image: its id.
    """

    def __init__(self, image: str, below: ImageSnapshot | None) -> None:
        self.image = image
        self._below = below  # which the daemon cannot remove before this one
        weakref.finalize(self, _remove_image, image, os.getpid(), daemon_address())


def _remove_image(image: str, owner: int, address: str) -> None:
    if os.getpid() == owner:  # a forked child has the object too
        remove_quietly(lambda found: connect(address).remove_image(found, force=True, noprune=True), image)


class _Current:
    """The container of a sandbox at this time, apart from the sandbox object so that its finalizer can remove it."""

    container: Container | None = None
    snapshot: ImageSnapshot | None = None  # what it was made from

    def replace(self, container: Container | None, snapshot: ImageSnapshot | None = None) -> None:
        if self.container is not None:
            self.container.remove()
        self.container, self.snapshot = container, snapshot


class ImageSandbox(DockerSandbox):
    """A container of an image. Commands run as the image's user, without capabilities even where that is root.

    Nothing is mounted over the image's files: where `workspace` is a folder of the image, its files are the
    workspace's. Files outside it can be changed by commands too and belong to a snapshot, but `write`, `upload` and
    `download` keep to the workspace, as in every sandbox.

    Args:
        image: name, with or without tag or digest.
        limits: see `Limits`; what holds here is in `limits_in_force`.
        network: True shares the network of the daemon's machine.
        binds: host paths to show read-only; only with a daemon on this machine.
        env: variables for all commands, beside the image's.
        workspace: absolute path; None is the image's working directory, or /workspace where that is /.

    Raises:
        MissingDependency: the package ``docker`` is not installed.
        TaskError: no registry has the image, or it is not fit for a sandbox.
        UsageError: an argument makes no sense.
        SandboxError: no daemon answers, or a registry cannot be reached.
    """

    _whole_disk = "what a container writes is not bounded as a whole"

    def __init__(
        self,
        image: str,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        network: bool = False,
        binds: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> None:
        self._client = connect()
        reap(self._client)
        folder = str(ensure_image(self._client, image)["Config"].get("WorkingDir") or "/")
        self.workspace = check_places(workspace or (None if folder == "/" else folder), binds or {})
        self._network = network
        self._binds = dict(binds or {})
        super().__init__(limits=limits, env=env, folder=_scratch.new_folder("box"))
        self._state.undo.append(self._client.close)
        self._current = _Current()
        self._state.undo.append(_release(self._current))
        try:
            self._current.replace(self._new_container(image))
        except BaseException:
            self.close()
            raise

    @property
    def _container(self) -> Container:  # type: ignore[override]
        assert self._current.container is not None
        return self._current.container

    def _new_container(self, image: str) -> Container:
        settings = self._container_settings(self._binds, self._network)
        container = self._run_container(image, settings)
        try:
            if container.state == "missing":
                with daemon_errors(f"make the folder {self.workspace} in a container"):
                    self._client.put_archive(container.id, "/", pack_folder(self.workspace, container.user))
            elif container.state == "unusable":
                raise TaskError(
                    f"the image {image}: user {container.user[0]}, without capabilities, cannot write to "
                    f"{self.workspace}"
                )
        except BaseException:
            container.remove()
            raise
        return container

    # Files

    def _inside(self, script: str, *arguments: str, path: str, stdin: bytes = b"") -> bytes:
        """Output of one of the scripts above on a path; `OSError` as its exit code says."""
        full = os.path.normpath(os.path.join(self.workspace, path))
        if "\0" in path:
            raise ValueError("a path holds a NUL byte")
        if full != self.workspace and not full.startswith(f"{self.workspace}/"):
            raise PermissionError(errno.EACCES, f"outside the workspace {self.workspace}", path)
        out, err = BoundedOutput(1 << 16), BoundedOutput(1 << 12)
        command = ["bash", "-c", script, "bash", full, *arguments]
        code, timed_out = self._execute(command, out, err, stdin=stdin)
        if timed_out:
            raise SandboxError(f"an access to {path!r} in a container timed out")
        if code in _REASONS:
            number, text = _REASONS[code]
            raise OSError(number, err.text().strip() or text, path)
        if code:
            raise SandboxError(f"an access to {path!r} in a container failed: {err.text().strip() or code}")
        return out.raw()

    def read(self, path: str, *, most: int | None = None) -> bytes:
        return self._cat(path, most, "")

    def write(self, path: str, content: bytes | str) -> None:
        data = encode(content) if isinstance(content, str) else content
        self._inside(_WRITE, path=path, stdin=data)

    @machine_faults("copy files into a container")
    def upload(self, source: Path | str, target: str = ".") -> None:
        source = Path(source)
        if not source.is_dir() and not source.is_file():
            number = errno.EINVAL if source.exists() else errno.ENOENT
            raise OSError(
                number, "neither a file nor a folder" if source.exists() else os.strerror(number), str(source)
            )
        into = source.is_dir() or target.endswith("/")
        folder, name = map(
            os.fsdecode, self._inside(_PLACE, "into" if into else "as", path=target).split(b"\0")
        )
        if source.is_dir():  # itself, with its mode and time, under the name of the folder
            folder, name = os.path.split(folder)
        with tempfile.TemporaryFile(dir=self._state.folder) as archive:
            pack(source.resolve(), name or source.name, self._container.user, archive)
            archive.seek(0)
            with daemon_errors(f"put {source.name} into a container"):
                self._client.put_archive(self._container.id, folder, archive)

    @machine_faults("copy files out of a container")
    def download(
        self,
        source: str,
        target: Path | str,
        *,
        skip: Callable[[str], bool] | None = None,
        most_entries: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        found = os.fsdecode(self._inside(_FIND, path=source).rstrip(b"\0"))
        folder = Path(tempfile.mkdtemp(dir=self._state.folder))
        try:
            chunks = self._archive(found)
            unpack(chunks, folder, skip=skip, most_entries=most_entries, most_bytes=most_bytes)
            copy_out(Tree(folder, "/", None), os.path.basename(found), Path(target))
        finally:
            _scratch.remove_tree(folder)

    def _archive(self, path: str) -> Iterator[bytes]:
        with daemon_errors(f"take {path} out of a container"):
            chunks, _ = self._client.get_archive(self._container.id, path)
            yield from chunks

    # Snapshots

    def snapshot(self) -> ImageSnapshot:
        self._check_open()
        guard()
        with daemon_errors("commit a container"):
            image = self._client.commit(self._container.id)["Id"]
        return ImageSnapshot(image, self._current.snapshot)

    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, ImageSnapshot):
            raise UsageError(f"restore(): expected a snapshot of a sandbox with an image, got {snapshot!r}")
        self._check_open()
        self._state.kill_all()
        try:
            container = self._new_container(snapshot.image)
        except SandboxError as error:
            if not_found(error):
                raise UsageError("restore(): the snapshot's image is gone, and so is its original") from error
            raise
        self._current.replace(container, snapshot)


def _release(current: _Current) -> Callable[[], None]:
    return lambda: current.replace(None)
