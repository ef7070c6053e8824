"""Prepare many repositories: which of them can tasks be made of, and why not the others?"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.envs.swe.records import write_atomic
from agentgym.envs.swe.repo import pack_tree
from agentgym.envs.swe.runtime.attempt import FIRST_RUN_S
from agentgym.envs.swe.runtime.clean_runs import STAGES, StageError, stage
from agentgym.envs.swe.runtime.dockerfile import build_image, dockerfile
from agentgym.envs.swe.runtime.names import canonical
from agentgym.envs.swe.runtime.prepared import Runtime, prepare_runtime
from agentgym.envs.swe.runtime.sources import fetch
from agentgym.errors import InfrastructureError, TaskError
from agentgym.sandbox import scratch_folder
from agentgym.texts import safe_label, short_digest

FORMAT = 1

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one repository.

    Attributes:
        repository: as it was named.
        ok: its tests run and are stable.
        stage: the one of `STAGES` it failed at; empty if none.
        reason: why; empty if it worked.
        infrastructure: pip, git or the sandbox failed, so nothing is known about the repository.
        name, version: of the project; empty where they were not found out.
        python: version of the interpreter.
        tests: of the suite, in the first clean run.
        stable: how many of them passed in each run.
        unstable: how many did not.
        installed: how many distributions its environment holds.
        notes: what had to be guessed or built.
        seconds: for all of it.
        suite_seconds: of the slowest clean run.
        image: tag of its Docker image; empty if none was asked for.
        folder: name of its folder beside the report; empty if it has none.
    """

    repository: str
    ok: bool
    stage: str = ""
    reason: str = ""
    infrastructure: bool = False
    name: str = ""
    version: str = ""
    python: str = ""
    tests: int = 0
    stable: int = 0
    unstable: int = 0
    installed: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    suite_seconds: float = 0.0
    image: str = ""
    folder: str = ""


class Folders:
    """Names of the repositories' folders: each has its own, and keeps it from run to run.

    Args:
        outcomes: of earlier runs.
    """

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._lock = threading.Lock()
        self._owners = {
            # A report of an older version does not tell the folder.
            outcome.folder or _label(outcome.name, outcome.version): outcome.repository
            for outcome in outcomes
            if outcome.ok
        }

    def of(self, repository: str, name: str, version: str) -> str:
        """``NAME-VERSION``; with a digest of the repository where another one has that."""
        label = _label(name, version)
        with self._lock:
            if self._owners.setdefault(label, repository) != repository:
                label = f"{label}-{short_digest(repository)}"
                self._owners[label] = repository
        return label


def _label(name: str, version: str) -> str:
    return safe_label(canonical(name), version)


def _in_docker(label: str) -> str:
    """The label as Docker lets an image be called: in lower case, and between letters nothing but a dot or a hyphen."""
    return re.sub(r"[^a-z0-9]+", lambda found: "." if found[0] == "." else "-", label.lower()).strip(".-")


def prepare_repositories(
    repositories: Sequence[str],
    out: Path | str,
    *,
    jobs: int = 1,
    timeout: float = FIRST_RUN_S,
    retry: bool = False,
    images: bool = False,
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Prepare each repository and write ``prepare.json`` and a folder for each that works.

    The report is written after each repository. What stands in it already is not done again, except where the
    infrastructure had failed.

    Args:
        repositories: as for `fetch`; one that is named twice is done once.
        out: folder for the report, and for a folder of each, see `Folders`, with ``runtime.json``,
            ``requirements.txt``, ``Dockerfile``, and the tree as it was tested in ``tree.tar.gz``.
        jobs: how many at a time.
        timeout: seconds for one run of a repository's tests.
        retry: do those again that did not work.
        images: build a Docker image for each that works, too.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with what was done last, how many are done, and of how many.

    Returns:
        The outcomes in the order of `repositories`.

    Raises:
        TaskError: `out` holds a report that cannot be read.
    """
    out = Path(out)
    file = out / "prepare.json"
    wanted = list(dict.fromkeys(repositories))
    kept = {outcome.repository: outcome for outcome in _read_report(file)}
    done = {name: outcome for name, outcome in kept.items() if _settled(outcome, retry, images)}
    folders = Folders(kept.values())
    say = progress or (lambda what, count, total: None)
    say("", sum(name in done for name in wanted), len(wanted))

    def one(repository: str) -> Outcome:
        return prepare_repository(
            repository,
            out,
            folders=folders,
            timeout=timeout,
            images=images,
            backend=backend,
            allow_unsafe=allow_unsafe,
        )

    for outcome in _as_finished(one, [name for name in wanted if name not in done], jobs):
        done[outcome.repository] = outcome
        write_atomic(file, _json(report(list({**kept, **done}.values()))))
        say(outcome.repository, sum(name in done for name in wanted), len(wanted))
    return [done[name] for name in wanted]


def _as_finished(work: Callable[[str], Outcome], names: Sequence[str], jobs: int) -> Iterator[Outcome]:
    """The outcomes in the order in which they come.

    The threads are daemons, as those of a pool are not: who interrupts this does not wait for tests that still run.
    Their sandboxes die with the process.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    answers: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

    def serve() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                name = waiting.get_nowait()
                try:
                    answers.put(work(name))
                except BaseException as error:
                    answers.put(error)

    for _ in range(jobs):
        threading.Thread(target=serve, name="agentgym-prepare", daemon=True).start()
    for _ in names:
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        yield answer


def _settled(outcome: Outcome, retry: bool, images: bool) -> bool:
    """Whether there is nothing left to do for a repository."""
    if outcome.ok:
        return bool(outcome.image) or not images
    return not outcome.infrastructure and not retry


def prepare_repository(
    repository: str,
    out: Path,
    *,
    folders: Folders,
    timeout: float = FIRST_RUN_S,
    images: bool = False,
    backend: str = "auto",
    allow_unsafe: bool = False,
) -> Outcome:
    """Prepare one repository as `prepare_repositories` does; what goes wrong is in the outcome."""
    start = time.monotonic()
    runtime: Runtime | None = None
    problem: dict[str, Any] = {}
    with scratch_folder("prepare") as folder:
        tree = Path(folder, "tree")
        try:
            with stage("fetched"):
                version = fetch(repository, tree)
            runtime = prepare_runtime(
                tree, version=version, timeout=timeout, backend=backend, allow_unsafe=allow_unsafe
            )
            place = out / folders.of(repository, runtime.project.name, runtime.project.version)
            write_runtime(runtime, tree, place)
            image = f"agentgym-swe/{_in_docker(place.name)}" if images else ""
            if image:
                build_image(place, image)
        except StageError as error:
            problem = {"stage": error.stage, "reason": str(error), "notes": error.notes}
        except InfrastructureError as error:
            problem = {"reason": str(error), "infrastructure": True}
    seconds = round(time.monotonic() - start, 1)
    if runtime is None or problem:
        return Outcome(repository, ok=False, seconds=seconds, **problem)
    return Outcome(
        repository,
        ok=True,
        name=runtime.project.name,
        version=runtime.project.version,
        python=runtime.project.interpreter.version,
        tests=len(runtime.stable) + len(runtime.unstable),
        stable=len(runtime.stable),
        unstable=len(runtime.unstable),
        installed=len(runtime.pins),
        notes=runtime.notes,
        seconds=seconds,
        suite_seconds=round(runtime.seconds, 2),
        image=image,
        folder=place.name,
    )


def write_runtime(runtime: Runtime, tree: Path, folder: Path) -> None:
    """Write what somebody needs to have the environment again, and the tree, with this package or without it."""
    project = runtime.project
    data = {
        "format": FORMAT,
        "name": project.name,
        "version": project.version,
        "license": project.license,
        "python": project.python,
        "interpreter": runtime.project.interpreter.version,
        "requirements": list(runtime.pins),
        "test_targets": list(runtime.suite.targets),
        "test_arguments": list(runtime.suite.arguments),
        "python_path": list(runtime.suite.python_path),
        "time_s": runtime.suite.limits.wall_s,
        "suite_seconds": round(runtime.seconds, 2),
        "notes": list(runtime.notes),
        "stable": sorted(runtime.stable),
        "unstable": dict(runtime.unstable),
    }
    write_atomic(folder / "tree.tar.gz", pack_tree(tree))
    write_atomic(folder / "requirements.txt", "".join(f"{pin}\n" for pin in runtime.pins).encode())
    write_atomic(folder / "Dockerfile", dockerfile(runtime).encode())
    write_atomic(folder / "runtime.json", _json(data))


def _read_report(file: Path) -> list[Outcome]:
    if not file.is_file():
        return []
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}")
        return [Outcome(**{**row, "notes": tuple(row["notes"])}) for row in data["repositories"]]
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(
            f"{file}: expected a report of `agentgym swe prepare`, format {FORMAT}: {error}"
        ) from None


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``prepare.json`` holds of these outcomes."""
    rows = [{**dataclasses.asdict(outcome), "notes": list(outcome.notes)} for outcome in outcomes]
    ok = sum(outcome.ok for outcome in outcomes)
    return {"format": FORMAT, "stages": list(STAGES), "n": len(rows), "ok": ok, "repositories": rows}


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
