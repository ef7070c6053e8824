"""A chat-completions server on a real socket that answers as a test tells it to."""

import contextlib
import json
import socket
import threading
import time

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def completion(text, **more):
    """The body of an ordinary answer."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more
    return {"choices": [choice], "usage": usage}


class FakeServer:
    """Answers each request by the next of `script`; the last one stays.

    Each is a body (dict or text), a pair of status and body, or a function of the request's JSON that returns one.
    """

    def __init__(self, *script, vllm=True):
        self.script = list(script)
        self.vllm = vllm
        self.requests = []
        self.controls = []  # what else a vLLM server was asked for: path with query, body
        self.headers = []
        self.lock = threading.Lock()

    def answer(self, request):
        with self.lock:
            self.requests.append(request)
            step = self.script[0] if len(self.script) == 1 else self.script.pop(0)
        step = step(request) if callable(step) else step
        status, body = step if isinstance(step, tuple) else (200, step)
        text = body if isinstance(body, str) else json.dumps(body)
        # The wait a server asks for keeps the tests quick.
        return Response(text, status, {"retry-after-ms": "1"}, "application/json")

    @contextlib.contextmanager
    def running(self):
        async def chat(request: Request):
            self.headers.append(dict(request.headers))
            body = await request.json()
            import anyio

            return await anyio.to_thread.run_sync(self.answer, body)

        async def llama_cpp(request: Request):
            return JSONResponse({"prompt": "<s>hello", "tokens": list(range(11, 18))})

        async def control(request: Request):
            self.controls.append(
                (f"{request.url.path}?{request.url.query}".rstrip("?"), await request.json())
            )
            return Response()

        routes = [Route(path, chat, methods=["POST"]) for path in ("/v1/chat/completions", "/v1/completions")]
        vllm = ("/collective_rpc", "/reset_prefix_cache", "/sleep", "/wake_up") if self.vllm else ()
        routes += [Route(path, control, methods=["POST"]) for path in vllm]
        routes += [Route(path, llama_cpp, methods=["POST"]) for path in ("/apply-template", "/tokenize")]
        app = Starlette(routes=routes)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()
            while not server.started:
                time.sleep(0.001)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            finally:
                server.should_exit = True
                thread.join(10)


@contextlib.contextmanager
def dropping(times, body):
    """A server that hangs up in the middle of its first `times` answers; gives its URL and a list of connections."""
    payload = json.dumps(body).encode()
    connections = []

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                with connection:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += connection.recv(65536)
                    head, _, rest = data.partition(b"\r\n\r\n")
                    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    while len(rest) < length:
                        rest += connection.recv(65536)
                    sent = payload[:5] if len(connections) <= times else payload
                    header = (
                        "HTTP/1.1 200 OK",
                        "content-type: application/json",
                        f"content-length: {len(payload)}",
                    )
                    connection.sendall("\r\n".join((*header, "", "")).encode() + sent)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", connections
