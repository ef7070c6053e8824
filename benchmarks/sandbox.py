"""What a sandbox costs: starting it, a command of its own, a command in a persistent shell beside bare bash.

    python benchmarks/sandbox.py [--repeat N] [--json FILE]

Wall medians and mean CPU in milliseconds. CPU is of this process and its children that have ended; for the two shells,
which live on, of this process only. The shells run the same commands, in turns, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from agentgym.sandbox import Shell, make_sandbox

Row = dict[str, float]


def measure(work: Callable[[], object], repeat: int) -> Row:
    """Medians of one call, after one that is not counted."""
    work()
    wall, cpu = [], []
    for _ in range(repeat):
        cpu_before, before = sum(os.times()[:4]), time.perf_counter()
        work()
        wall.append(time.perf_counter() - before)
        cpu.append(sum(os.times()[:4]) - cpu_before)
    # os.times counts in hundredths of a second: the mean says more than the median.
    return {
        "wall_ms": statistics.median(wall) * 1e3,
        "cpu_ms": statistics.mean(cpu) * 1e3,
        "min_ms": min(wall) * 1e3,
    }


def start_and_first_command() -> None:
    with make_sandbox() as sandbox:
        assert sandbox.exec("true").exit_code == 0


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


def compare_shells(shell: Shell, bare: BareBash, repeat: int) -> tuple[Row, Row]:
    """Both shells in turns, blocks of 50 commands, so that a slow moment of the machine meets both."""
    runs: dict[str, Callable[[], object]] = {
        "sandbox": lambda: shell.run("echo hello"),
        "bare": lambda: bare.run("echo hello"),
    }
    wall: dict[str, list[float]] = {name: [] for name in runs}
    own_cpu = dict.fromkeys(runs, 0.0)
    for _ in range(max(1, repeat // 50)):
        for name, run in runs.items():
            cpu_before = time.process_time()
            for _ in range(50):
                before = time.perf_counter()
                run()
                wall[name].append(time.perf_counter() - before)
            own_cpu[name] += time.process_time() - cpu_before
    rows = [
        {
            "wall_ms": statistics.median(wall[name]) * 1e3,
            "cpu_ms": own_cpu[name] / len(wall[name]) * 1e3,
            "min_ms": min(wall[name]) * 1e3,
        }
        for name in ("sandbox", "bare")
    ]
    return rows[0], rows[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    began = time.perf_counter()
    start_and_first_command()
    table: dict[str, Row] = {"first sandbox of a process": {"wall_ms": (time.perf_counter() - began) * 1e3}}
    table["start, first command, close"] = measure(start_and_first_command, arguments.repeat)
    with make_sandbox() as sandbox:
        table["exec of a text"] = measure(lambda: sandbox.exec("true"), arguments.repeat)
        table["exec of an argument list"] = measure(lambda: sandbox.exec(["true"]), arguments.repeat)
        sandbox.write("file", b"x" * 10_000)
        table["read 10 kB"] = measure(lambda: sandbox.read("file"), arguments.repeat * 4)
        shell, bare = sandbox.shell(), BareBash()
        table["persistent shell"], table["bare bash"] = compare_shells(shell, bare, arguments.repeat * 20)
        bare.close()
    extra = {
        key: table["persistent shell"][key] - table["bare bash"][key]
        for key in ("wall_ms", "cpu_ms", "min_ms")
    }
    table["persistent shell over bare bash"] = extra

    print(f"{'median of one':34}{'wall ms':>10}{'CPU ms':>10}{'min ms':>10}")
    for name, row in table.items():
        cells = (f"{row[key]:10.3f}" if key in row else " " * 10 for key in ("wall_ms", "cpu_ms", "min_ms"))
        print(f"{name:34}{''.join(cells)}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if arguments.json:
        arguments.json.write_text(json.dumps({"load": os.getloadavg()[0], "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
