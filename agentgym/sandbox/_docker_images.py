"""Images: the one of the host's own system, and those of tasks, pulled when missing."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentgym.errors import SandboxError, TaskError
from agentgym.sandbox._docker_client import daemon_errors, explanation, not_found
from agentgym.sandbox._system import etc_files, usr_links

if TYPE_CHECKING:
    from docker import APIClient

_REPOSITORY = "agentgym/host-bind"
_NO_SUCH_IMAGE = ("not found", "manifest unknown", "does not exist", "pull access denied", "name unknown")


def host_image(client: APIClient, user: int, group: int) -> str:
    """Tag of the image without a system of its own: folders to mount on, links, a made-up /etc; 30 KB.

    Made once for each daemon and user, and kept; its tag is its content's.
    """
    content = _host_tar(user, group)
    tag = hashlib.sha256(content).hexdigest()[:12]
    name = f"{_REPOSITORY}:{tag}"
    if find_image(client, name) is None:
        with daemon_errors(f"import the image {name}"):
            client.import_image_from_data(content, repository=_REPOSITORY, tag=tag)
    return name


def _host_tar(user: int, group: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:

        def add(
            name: str, *, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, link: str = "", text: str = ""
        ) -> None:
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))

        for folder in (
            "dev",
            "etc",
            "etc/alternatives",
            "etc/ssl",
            "etc/ssl/certs",
            "proc",
            "run",
            "sys",
            "usr",
        ):
            add(folder, kind=tarfile.DIRTYPE)
        add("tmp", kind=tarfile.DIRTYPE, mode=0o1777)  # a mount there takes this mode
        for path, target in usr_links().items():
            add(path, kind=tarfile.SYMTYPE, link=target)
        for name, text in {**etc_files(user, group), "ld.so.cache": ""}.items():
            add(f"etc/{name}", mode=0o644, text=text)
    return buffer.getvalue()


def find_image(client: APIClient, name: str) -> Mapping[str, Any] | None:
    """What the daemon says of an image that it has, None if it has not.

    Raises:
        TaskError: this is no image's name.
    """
    try:
        with daemon_errors(f"inspect the image {name}"):
            found: Mapping[str, Any] = client.inspect_image(name)
            return found
    except SandboxError as error:
        if not_found(error):
            return None
        if "invalid reference format" in str(error):
            raise TaskError(f"image={name!r}: expected a name such as repo/name:tag") from error
        raise


def ensure_image(client: APIClient, name: str) -> Mapping[str, Any]:
    """What the daemon says of an image, after pulling it if it is not there.

    Raises:
        TaskError: no registry has such an image, or this is no image's name.
        SandboxError: the registry cannot be reached or refuses.
    """
    found = find_image(client, name)
    if found is None:
        _pull(client, name)
        found = find_image(client, name)
    if found is None:
        raise SandboxError(f"the image {name} was pulled and is not there")
    return found


def _pull(client: APIClient, name: str) -> None:
    import docker.errors

    try:
        with daemon_errors(f"pull the image {name}"):
            events = client.pull(name, stream=True, decode=True)
            trouble = _follow(name, events)
    except SandboxError as error:
        cause = error.__cause__
        if not isinstance(cause, docker.errors.APIError):
            raise
        trouble = explanation(cause)
    if not trouble:
        return
    if any(words in trouble for words in _NO_SUCH_IMAGE):
        raise TaskError(f"the image {name} is not on this machine and cannot be pulled: {trouble}")
    raise SandboxError(f"the image {name} is not on this machine and could not be pulled: {trouble}")


def _follow(name: str, events: Iterable[Mapping[str, Any]]) -> str:
    """Show a pull's progress on a terminal; what went wrong, or nothing."""
    if not sys.stderr.isatty():
        return _last_error(events, lambda event: None)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"pulling {name}", total=None)
        layers: dict[str, tuple[int, int]] = {}

        def show(event: Mapping[str, Any]) -> None:
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                layers[event["id"]] = (detail["current"], detail["total"])
                done, total = (sum(column) for column in zip(*layers.values(), strict=True))
                progress.update(bar, completed=done, total=total)

        return _last_error(events, show)


def _last_error(events: Iterable[Mapping[str, Any]], show: Callable[[Mapping[str, Any]], None]) -> str:
    trouble = ""
    for event in events:
        show(event)
        trouble = " ".join(str(event.get("error", trouble)).split())
    return trouble
