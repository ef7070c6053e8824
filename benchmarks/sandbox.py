"""What a sandbox costs, of each backend: its start, a command of its own, a command in a persistent shell.

    python benchmarks/sandbox.py [--repeat N] [--backends bubblewrap docker] [--image NAME] [--json FILE]

The backends take turns within one run, so that a slow moment of the machine meets all. Wall times are in milliseconds,
median and least. CPU milliseconds are means: of this process and its children that have ended (for shells, which live
on, of this process only), and beside it of Docker's daemons on this machine, all of them, without what belongs to a
container that has ended. `--image` adds sandboxes of that image. A bare bash, spoken to by a pipe, is the least that a
shell can cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox import Sandbox, Shell, make_sandbox

Row = dict[str, float]
Work = Callable[[], object]
SHELL_BLOCK = 50  # commands in turn
_TICKS_PER_MS = os.sysconf("SC_CLK_TCK") / 1e3


class BareBash:
    """The least that can be done: write a line, read until the line that ends its output."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )

    def run(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho END $?\n".encode())
        output = b""
        while b"END " not in output or not output.endswith(b"\n"):
            output += os.read(self.process.stdout.fileno(), 1 << 16)
        return output.decode()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def daemon_cpu_ms() -> dict[str, float]:
    """CPU that each of Docker's processes on this machine has used, with its children that have ended."""
    used = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith(("dockerd", "containerd")):
            used[folder.name] = sum(map(int, rest.split()[11:15])) / _TICKS_PER_MS
    return used


def own_cpu_ms() -> float:
    """CPU of this process and of its children that have ended."""
    return sum(os.times()[:4]) * 1e3


def in_turns(works: dict[str, Work], repeat: int) -> dict[str, Row]:
    """Each of `works` `repeat` times, in turns, after a call that is not counted."""
    walls: dict[str, list[float]] = {name: [] for name in works}
    cpu = {name: [0.0, 0.0] for name in works}
    for work in works.values():
        work()
    for _ in range(repeat):
        for name, work in works.items():
            own, daemon, before = own_cpu_ms(), daemon_cpu_ms(), time.perf_counter()
            work()
            walls[name].append((time.perf_counter() - before) * 1e3)
            cpu[name][0] += own_cpu_ms() - own
            cpu[name][1] += sum(used - daemon.get(pid, 0.0) for pid, used in daemon_cpu_ms().items())
    rows = {name: {**wall_row(walls[name]), "cpu_ms": cpu[name][0] / repeat} for name in works}
    for name in works:
        if name.startswith("docker"):
            rows[name]["daemon_cpu_ms"] = cpu[name][1] / repeat
    return rows


def wall_row(walls_ms: list[float]) -> Row:
    return {"wall_ms": statistics.median(walls_ms), "min_ms": min(walls_ms)}


def shells_in_turns(shells: dict[str, Shell | BareBash], repeat: int) -> dict[str, Row]:
    """The same command in each shell, in blocks."""
    walls: dict[str, list[float]] = {name: [] for name in shells}
    cpu = dict.fromkeys(shells, 0.0)
    for _ in range(max(1, repeat // SHELL_BLOCK)):
        for name, shell in shells.items():
            cpu_before = time.process_time()
            for _ in range(SHELL_BLOCK):
                before = time.perf_counter()
                shell.run("echo hello")
                walls[name].append((time.perf_counter() - before) * 1e3)
            cpu[name] += (time.process_time() - cpu_before) * 1e3
    return {name: {**wall_row(walls[name]), "cpu_ms": cpu[name] / len(walls[name])} for name in shells}


def start(make: Callable[[], Sandbox]) -> None:
    with make() as sandbox:
        assert sandbox.exec("true").exit_code == 0


def back(box: Sandbox) -> None:
    box.restore(box.snapshot())


def measure(makers: dict[str, Callable[[], Sandbox]], repeat: int) -> dict[str, dict[str, Row]]:
    """All rows: what -> who -> figures."""
    few = max(3, repeat // 4)
    table = {
        "start, one command, close": in_turns(
            {name: partial(start, make) for name, make in makers.items()}, few
        )
    }
    boxes = {name: make() for name, make in makers.items()}
    table["a command"] = in_turns({name: partial(box.exec, "true") for name, box in boxes.items()}, repeat)
    for box in boxes.values():
        box.write("file", b"x" * 10_000)
    table["read 10 kB"] = in_turns({name: partial(box.read, "file") for name, box in boxes.items()}, repeat)
    table["snapshot and restore"] = in_turns({name: partial(back, box) for name, box in boxes.items()}, few)
    bare = BareBash()
    shells: dict[str, Shell | BareBash] = {name: box.shell() for name, box in boxes.items()}
    table["a command in a shell"] = shells_in_turns({**shells, "bare bash": bare}, repeat * 20)
    bare.close()
    for box in boxes.values():
        box.close()
    return table


def makers_of(backends: list[str], image: str | None) -> dict[str, Callable[[], Sandbox]]:
    """How to make each kind of sandbox; those that do not work here are said and left out."""
    kinds: dict[str, dict[str, Any]] = {name: {"backend": name} for name in backends}
    if image is not None:
        kinds["docker, image"] = {"backend": "docker", "image": image}
    makers: dict[str, Callable[[], Sandbox]] = {}
    for name, options in kinds.items():
        try:
            make_sandbox(**options).close()
        except SandboxError as error:
            print(f"{name} is left out: {error}")
        else:
            makers[name] = partial(make_sandbox, **options)
    return makers


def print_table(table: dict[str, dict[str, Row]]) -> None:
    columns = ("wall_ms", "min_ms", "cpu_ms", "daemon_cpu_ms")
    print(f"{'milliseconds':28}{'':16}{'median':>10}{'least':>10}{'CPU':>10}{'daemon CPU':>12}")
    for what, rows in table.items():
        for name, row in rows.items():
            cells = (
                f"{row[key]:{width}.2f}" if key in row else " " * width
                for key, width in zip(columns, (10, 10, 10, 12), strict=True)
            )
            print(f"{what:28}{name:16}{''.join(cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--backends", nargs="+", default=["bubblewrap", "docker"])
    parser.add_argument("--image")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    table = measure(makers_of(arguments.backends, arguments.image), arguments.repeat)
    load = os.getloadavg()[0]
    print_table(table)
    print(f"load average {load:.1f} on {os.cpu_count()} processors")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"load": load, "processors": os.cpu_count(), "rows": table}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
