"""A cache of one's own, and a retriever on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Nothing here reads or fills the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


class Server:
    """A retriever: `answer` says what comes back, `asked` keeps what was sent.

    Attributes:
        answer: body to (status, body); may raise to drop the connection, or wait.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answer: Callable[[Any], tuple[int, bytes]] = lambda body: (200, found("A title\nA text."))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, body))
                status, content = outer.answer(body)
                if status == 0:  # hang up
                    self.connection.close()
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

            def log_error(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/retrieve"


def found(*contents: str) -> bytes:
    """An answer of Search-R1's server to one query."""
    rows = [{"document": {"id": str(n), "contents": text}, "score": 1.0} for n, text in enumerate(contents)]
    return json.dumps({"result": [rows]}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("agentgym.envs.search_qa.remote._WAIT_S", 0.001)
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()
