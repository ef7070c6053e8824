"""Probe: many resets leave no memory, files, threads, processes or folders behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import tracemalloc
from dataclasses import dataclass, fields
from pathlib import Path

from agentgym.check.subject import DoesNotApply, Env, Subject, expect, play

# Growth that is no leak: interned texts, filled caches, the allocator's own appetite.
_PYTHON_BYTES = 64 << 10
_PYTHON_BYTES_PER_RESET = 1 << 10
_RESIDENT_BYTES = 32 << 20
_TASKS = 4  # the same few again and again, so that caches by task are full after the first rounds
_PATIENCE_S = 3.0  # processes and threads may take a moment to go


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process holds, each by name so that a message can show one that is new."""

    open_files: dict[str, str]
    threads: dict[str, str]
    child_processes: dict[str, str]
    temporary_files: dict[str, str]


def resources(subject: Subject) -> str:
    """Memory, open files, threads, processes and temporary files do not grow over many resets, and close frees all."""
    if not Path("/proc/self/fd").exists():
        raise DoesNotApply("needs a /proc file system to count open files and processes")
    resets = subject.times(subject.resets, resets=1, ends=1 / _step_every(subject), budget_s=30)
    half = max(1, resets // 2)
    _audit_temporary_files()
    with subject.make() as env:  # what is loaded once and kept is no growth
        _cycle(env, subject, min(resets, 2 * _TASKS))
    empty = _usage()
    tracemalloc.start()
    try:
        env = subject.make()
        try:
            _cycle(env, subject, min(resets, 2 * _TASKS))
            begin, resident = _usage(), _resident_bytes()
            _cycle(env, subject, half)
            gc.collect()
            middle = tracemalloc.get_traced_memory()[0]
            _cycle(env, subject, half)
            gc.collect()
            python_growth = tracemalloc.get_traced_memory()[0] - middle
            resident_growth = _resident_bytes() - resident
            _compare(begin, f"over {2 * half} resets")
        finally:
            env.close()
        del env
        _compare(empty, "after close")
    finally:
        tracemalloc.stop()
    allowed = _PYTHON_BYTES + _PYTHON_BYTES_PER_RESET * half
    expect(
        python_growth <= allowed,
        f"memory grew by {python_growth / 1024:.0f} KiB over the last {half} of {2 * half} resets, expected at most "
        f"{allowed / 1024:.0f} KiB: something is kept from every episode",
    )
    expect(
        resident_growth <= _RESIDENT_BYTES,
        f"resident memory grew by {resident_growth / 2**20:.0f} MiB over {2 * half} resets, expected at most "
        f"{_RESIDENT_BYTES >> 20} MiB",
    )
    return f"{2 * half} resets: {python_growth / 1024:+.0f} KiB of Python objects, nothing else left"


def _cycle(env: Env, subject: Subject, resets: int) -> None:
    """Resets to the same few seeds, with a step after each, or after some where it may cost a verdict."""
    for number in range(resets):
        steps = int(number % _step_every(subject) == 0)
        play(env, subject.random(number % _TASKS), seed=subject.seed + number % _TASKS, steps=steps)


def _step_every(subject: Subject) -> int:
    return 9 if subject.expensive else 1  # not a multiple of the number of tasks, so that each gets its turn


def _compare(before: Usage, when: str) -> None:
    """Fail if anything but memory grew; give what is ending a moment to end."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        gc.collect()
        after = _usage()
        grown = [f for f in fields(Usage) if len(getattr(after, f.name)) > len(getattr(before, f.name))]
        if not grown or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for field in grown:
        old, new = getattr(before, field.name), getattr(after, field.name)
        example = next((text for key, text in new.items() if key not in old), "the same as before")
        expect(
            False,
            f"{field.name.replace('_', ' ')} grew from {len(old)} to {len(new)} {when}, expected none more; "
            f"for example {example}",
        )


def _usage() -> Usage:
    return Usage(_open_files(), _threads(), _descendants(), _existing_temporary_files())


def _open_files() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def _threads() -> dict[str, str]:
    return {str(thread.ident): thread.name for thread in threading.enumerate()}


def _descendants() -> dict[str, str]:
    """Child processes and theirs, the dead ones that nobody waited for included."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            continue  # gone meanwhile
        name, _, rest = text.partition("(")[2].rpartition(")")
        parents[entry], names[entry] = rest.split()[1], name
    found: dict[str, str] = {}
    for pid, name in names.items():
        ancestor = parents[pid]
        while ancestor in parents and ancestor != str(os.getpid()):
            ancestor = parents[ancestor]
        if ancestor == str(os.getpid()):
            found[pid] = f"process {pid} ({name})"
    return found


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Paths made with `tempfile` in this process. An audit hook cannot be taken away again, so there is one for good.
_made: set[str] = set()
_hooked = False


def _audit_temporary_files() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("tempfile.mkdtemp", "tempfile.mkstemp"):
            _made.add(str(arguments[0]))

    sys.addaudithook(note)


def _existing_temporary_files() -> dict[str, str]:
    for path in [path for path in _made if not os.path.lexists(path)]:
        _made.discard(path)
    return {path: path for path in _made}
