"""What the gateway adds to a call, against asking the policy directly in the same process.

    python benchmarks/gateway.py [--json FILE] [--repeats N]

The policy is one that answers at once, so all the time is ours and the client's. Each figure is the least of several
repeats, per call: wall milliseconds, and CPU milliseconds of this process (server, client and policy together). "HTTP
and nothing" is the same kind of server with a route that returns a fixed answer: what is beyond it is the gateway's.
A streamed token is one event of the stream.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from agentgym.gateway import Gateway
from agentgym.messages import Conversation, assistant, system, user
from agentgym.policies.base import Policy, Reply

WORDS = 256  # of each reply
CALLS = 1024  # of all sessions together
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [
    {"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": TOOL}}
]


class Instant(Policy):
    """Answers at once, with ids of the right length."""

    name = "instant"

    def __init__(self) -> None:
        self.text = " ".join(["word"] * WORDS)
        self.ids = tuple(range(WORDS))

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """The same reply to all; prompt ids grow with the conversation, as a model's would."""
        return [
            Reply(
                self.text, tuple(range(sum(len(m.content) // 4 + 4 for m in c))), self.ids, None, 1.0, "stop"
            )
            for c in conversations
        ]


def measured(work: Callable[[], Any], count: int, repeats: int) -> tuple[float, float]:
    """Least wall and CPU milliseconds of one of `count` runs."""
    wall, cpu = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            work()
        wall.append((time.perf_counter() - start) / count)
        cpu.append((time.process_time() - used) / count)
    return 1000 * min(wall), 1000 * min(cpu)


def history(turns: int) -> list[dict[str, Any]]:
    """A program's conversation of so many turns, 1,000 characters each."""
    rows: list[dict[str, Any]] = [{"role": "system", "content": "You repair programs."}]
    for turn in range(turns):
        rows += [
            {"role": "user", "content": f"{turn} " + "text " * 100},
            {"role": "assistant", "content": "said " * 100},
        ]
    return [*rows, {"role": "user", "content": "go on"}]


def requests(turns: int, **more: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """The same question in each format: route and body."""
    rows = history(turns)
    flat = [{"name": t["function"]["name"], "parameters": TOOL, "type": "function"} for t in TOOLS]
    schemas = [{"name": "bash", "input_schema": TOOL}]
    return {
        "chat": ("/v1/chat/completions", {"model": "m", "messages": rows, "tools": TOOLS} | more),
        "responses": (
            "/v1/responses",
            {"model": "m", "instructions": rows[0]["content"], "input": rows[1:], "tools": flat} | more,
        ),
        "messages": (
            "/v1/messages",
            {
                "model": "m",
                "max_tokens": 9,
                "system": rows[0]["content"],
                "messages": rows[1:],
                "tools": schemas,
            }
            | more,
        ),
    }


@contextmanager
def bare_server() -> Iterator[str]:
    """An HTTP server with a route that reads JSON and returns a fixed answer; its address."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def fixed(request: Any) -> JSONResponse:
        await request.json()
        return JSONResponse({"choices": [{"message": {"content": Instant().text}}]})

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/", fixed, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def per_call(turns: int, repeats: int) -> list[dict[str, Any]]:
    """One call at a time, on a conversation of so many turns."""
    policy = Instant()
    conversation = tuple(_message(row) for row in history(turns))
    asked = requests(turns)
    rows = [("policy, directly", *measured(lambda: policy.act([conversation]), 20, repeats))]
    with bare_server() as url, httpx.Client() as http:
        body = asked["chat"][1]
        rows.append(("HTTP and nothing", *measured(lambda: http.post(url, json=body), 20, repeats)))
    rows += [(name, *_by_http(policy, path, body, repeats)) for name, (path, body) in asked.items()]
    rows.append(("chat, OpenAI's client", *_by_openai(policy, asked["chat"][1], repeats)))
    return [{"turns": turns, "what": what, "wall_ms": wall, "cpu_ms": cpu} for what, wall, cpu in rows]


def per_token(name: str, repeats: int) -> dict[str, Any]:
    """What one event of a stream costs: a stream less the same answer as one body, by the number of events."""
    path, whole = requests(1)[name]
    with Gateway(Instant()) as gateway, httpx.Client(base_url=gateway.url) as http:
        headers = {"x-api-key": gateway.open().key}

        def read(**more: Any) -> int:
            with http.stream("POST", path, json=whole | more, headers=headers) as answer:
                return sum(line.startswith("data: ") for line in answer.iter_lines())

        events = read(stream=True)
        streamed = measured(lambda: read(stream=True), 5, repeats)
        at_once = measured(read, 20, repeats)
    wall, cpu = (1000 * (a - b) / events for a, b in zip(streamed, at_once, strict=True))
    return {"format": name, "events": events, "wall_us": wall, "cpu_us": cpu}


def together(sessions: int, repeats: int) -> dict[str, Any]:
    """So many sessions at once; the programs are in another process, so the CPU time is the gateway's alone."""
    path, body = requests(1)["chat"]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        best, least = 0.0, float("inf")
        for _ in range(repeats):
            with Gateway(Instant()) as gateway:
                keys = [gateway.open().key for _ in range(sessions)]
                used = time.process_time()
                best = max(best, process.submit(play_all, gateway.url + path, keys, body).result())
                least = min(least, 1000 * (time.process_time() - used) / CALLS)
    return {"sessions": sessions, "cpu_ms": least, "calls_per_second": best}


def play_all(url: str, keys: Sequence[str], body: dict[str, Any]) -> float:
    """Ask with every key at the same time; calls a second.

    With the standard library's client, a connection and a thread each: a pool of httpx with 64 connections takes more
    CPU time than the gateway, so it would be the pool that is measured.
    """
    where, data = urlsplit(url), json.dumps(body)

    def play(key: str) -> None:
        connection = HTTPConnection(str(where.hostname), where.port)
        headers = {"x-api-key": key, "content-type": "application/json"}
        for _ in range(CALLS // len(keys)):
            connection.request("POST", where.path, data, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"expected an answer, got status {answer.status}")
        connection.close()

    with ThreadPoolExecutor(len(keys)) as threads:
        start = time.perf_counter()
        list(threads.map(play, keys))
        return CALLS / (time.perf_counter() - start)


def _message(row: dict[str, Any]) -> Any:
    return {"system": system, "user": user, "assistant": assistant}[row["role"]](row["content"])


def _by_http(policy: Policy, path: str, body: dict[str, Any], repeats: int) -> tuple[float, float]:
    with Gateway(policy) as gateway, httpx.Client(base_url=gateway.url) as http:
        headers = {"x-api-key": gateway.open().key}

        def call() -> None:
            http.post(path, json=body, headers=headers).raise_for_status()

        call()
        return measured(call, 20, repeats)


def _by_openai(policy: Policy, body: dict[str, Any], repeats: int) -> tuple[float, float]:
    import openai

    with Gateway(policy) as gateway:
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.open().key)
        client.chat.completions.create(**body)
        return measured(lambda: client.chat.completions.create(**body), 20, repeats)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    calls = [row for turns in (1, 20, 100) for row in per_call(turns, args.repeats)]
    tokens = [per_token(name, args.repeats) for name in ("chat", "responses", "messages")]
    many = [together(sessions, args.repeats) for sessions in (1, 8, 64)]
    print(f"{'turns':>5}  {'what':<22} {'wall ms':>8} {'CPU ms':>8}   over the policy")
    for row in calls:
        direct = next(r for r in calls if r["turns"] == row["turns"])
        over = row["wall_ms"] - direct["wall_ms"]
        print(
            f"{row['turns']:>5}  {row['what']:<22} {row['wall_ms']:8.3f} {row['cpu_ms']:8.3f}   +{over:.3f} ms"
        )
    print(f"\n{'format':<10} {'events':>6} {'wall us an event':>17} {'CPU us an event':>16}")
    for row in tokens:
        print(f"{row['format']:<10} {row['events']:>6} {row['wall_us']:17.1f} {row['cpu_us']:16.1f}")
    print(f"\n{'sessions':>8} {'CPU ms a call':>14} {'calls a second':>15}")
    for row in many:
        print(f"{row['sessions']:>8} {row['cpu_ms']:14.2f} {row['calls_per_second']:15.0f}")
    if args.json:
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        rows = {"machine": machine, "calls": calls, "tokens": tokens, "together": many}
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
