"""Serve a local model's log-probs of given tokens, so that a teacher can live on another machine or serve many runs.

It speaks the part of OpenAI's completions that scores a prompt, as vLLM does: a prompt of token ids (or a list of
those), `echo` true, `logprobs` set, `max_tokens` 0. It generates nothing.

Example:
    python -m baselines.scorer --model runs/expert/model --port 8001
    python -m baselines.distill --env agentgym/Relay-v0 --teacher http://127.0.0.1:8001/v1#expert --out runs/student
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym.cli import console, guarded
from agentgym.cli.arguments import parse
from agentgym.errors import MissingDependency, UsageError
from baselines.actor import Actor, Row


@dataclass(frozen=True)
class Args:
    """Flags of ``python -m baselines.scorer``."""

    model: str = "smollm2"
    """What answers: smollm2 (packaged), a directory, or a name in the local Hugging Face cache."""
    host: str = "127.0.0.1"
    """Address to listen at."""
    port: int = 8001
    """Port to listen at."""
    pack_tokens: int = 4096
    """Most tokens in one forward pass; no prompt may be longer."""
    autocast: bool = False
    """Compute in bfloat16 with float32 weights."""


class Scorer:
    """Answers requests; one at a time, whoever asks.

    Args:
        actor: the model; whatever name a request gives, it is asked.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._lock = threading.Lock()

    def answer(self, request: Any) -> dict[str, Any]:
        """The completion for a request's JSON.

        Raises:
            UsageError: it asks for something else than scores of token ids.
        """
        if not isinstance(request, dict):
            raise UsageError(f"expected a JSON object, got {type(request).__name__}")
        if not request.get("echo") or request.get("logprobs") is None or request.get("max_tokens") != 0:
            raise UsageError("expected echo true, logprobs and max_tokens 0: this server scores prompts only")
        prompts = request.get("prompt")
        if isinstance(prompts, list) and prompts and isinstance(prompts[0], int):
            prompts = [prompts]
        rows = [self._row(prompt) for prompt in prompts] if isinstance(prompts, list) and prompts else []
        if not rows:
            raise UsageError(f"expected a prompt of token ids, got {json.dumps(prompts)[:60]}")
        with self._lock:
            scores, _ = self._actor.score(rows, entropy=False)
        choices = [
            self._choice(index, row, of.tolist())
            for index, (row, of) in enumerate(
                zip(rows, scores.cpu().split([len(row.ids) - 1 for row in rows]), strict=True)
            )
        ]
        tokens = sum(len(row.ids) for row in rows)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {
            "object": "text_completion",
            "model": request.get("model"),
            "choices": choices,
            "usage": usage,
        }

    def _row(self, prompt: Any) -> Row:
        known = self._actor.model.get_input_embeddings().num_embeddings
        if not isinstance(prompt, list) or not all(type(id) is int and 0 <= id < known for id in prompt):
            raise UsageError(f"expected token ids from 0 to {known - 1}, got {json.dumps(prompt)[:60]}")
        longest = min(self._actor.policy.context, self._actor.max_tokens)
        if not 2 <= len(prompt) <= longest:
            raise UsageError(f"expected 2 to {longest} tokens, got {len(prompt)}")
        return Row(np.array(prompt, np.int64), np.arange(len(prompt)) > 0)

    def _choice(self, index: int, row: Row, scores: list[float]) -> dict[str, Any]:
        decode = self._actor.tokenizer.decode
        tokens = [decode([id], skip_special_tokens=False) for id in row.ids.tolist()]
        offsets = np.cumsum([0, *map(len, tokens[:-1])]).tolist()
        told = {"tokens": tokens, "token_logprobs": [None, *scores], "text_offset": offsets}
        return {
            "index": index,
            "text": "".join(tokens),
            "finish_reason": "length",
            "logprobs": told | {"top_logprobs": None},
        }

    def app(self) -> Any:
        """The server as an ASGI application.

        Raises:
            MissingDependency: starlette is not installed.
        """
        try:
            from starlette.applications import Starlette
            from starlette.concurrency import run_in_threadpool
            from starlette.requests import Request
            from starlette.responses import JSONResponse
            from starlette.routing import Route
        except ImportError:
            raise MissingDependency("a server needs starlette: pip install 'agentgym-suite[serve]'") from None

        async def completions(request: Request) -> JSONResponse:
            try:
                return JSONResponse(await run_in_threadpool(self.answer, json.loads(await request.body())))
            except (UsageError, ValueError) as error:
                return JSONResponse({"error": {"message": str(error), "type": "invalid_request_error"}}, 400)

        return Starlette(routes=[Route("/v1/completions", completions, methods=["POST"])])


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.scorer``."""
    given = sys.argv[1:] if words is None else words
    args = parse(Args, "scorer", __doc__, given, prefix="python -m baselines.")
    try:
        import uvicorn
    except ImportError:
        raise MissingDependency("a server needs uvicorn: pip install 'agentgym-suite[serve]'") from None
    try:
        listening = socket.create_server((args.host, args.port))
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"expected --host and --port to listen at, got {args.host}:{args.port} ({error})"
        ) from None
    with listening:
        app = Scorer(Actor(args.model, max_tokens=args.pack_tokens, autocast=args.autocast)).app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
    return console.OK


if __name__ == "__main__":
    sys.exit(guarded(main))
