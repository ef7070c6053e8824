"""The routes by which another program opens and ends sessions: ``/sessions``, for who knows the admin token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym.core import Verdict
from agentgym.errors import InfrastructureError, UsageError
from agentgym.gateway.chat import openai_error
from agentgym.gateway.exchange import Refusal
from agentgym.gateway.formats import Fields, read_body
from agentgym.gateway.requests import key_of, read_within, refused

if TYPE_CHECKING:
    from agentgym.gateway.server import Gateway


def admin_routes(gateway: Gateway, token: str) -> list[Route]:
    """The routes, each guarded by the token."""
    admin = Admin(gateway)

    def guarded(
        action: Callable[[Request], Awaitable[Any]], status: int = 200
    ) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                if not secrets.compare_digest(key_of(request).encode(), token.encode()):
                    raise Refusal("unauthorized", "expected the admin token that the gateway printed")
                return JSONResponse(await action(request), status)
            except Refusal as refusal:
                return refused(openai_error(refusal))
            except (UsageError, InfrastructureError) as error:  # the second: a verdict that is none
                return refused(openai_error(Refusal("bad_request", str(error))))
            except OSError as error:  # a trajectory could not be written
                return refused(openai_error(Refusal("failed", str(error))))

        return answer

    return [
        Route("/sessions", guarded(admin.open, 201), methods=["POST"]),
        Route("/sessions", guarded(admin.list), methods=["GET"]),
        Route("/sessions/{key:path}", guarded(admin.close), methods=["DELETE"]),
    ]


class Admin:
    """What the routes do; each takes a request and returns JSON values."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def open(self, request: Request) -> Any:
        """Begin a session: ``{"key": ..., "id": ..., "task_id": ..., "seed": ...}``, all of them optional."""
        fields = await self._fields(request)
        key, id = fields.get("key", str, ""), fields.get("id", str, "")
        task_id, seed = fields.get("task_id", str, ""), fields.raw("seed")
        fields.refuse_others()
        session = self._gateway.open(key or None, id=id, task_id=task_id, seed=seed)
        return {"key": session.key, **self._gateway.base_urls}

    async def list(self, request: Request) -> Any:
        """The open sessions."""
        return [
            {"key": s.key, "calls": s.calls, "sampled_tokens": s.sampled_tokens, "exhausted": s.exhausted}
            for s in self._gateway.sessions
        ]

    async def close(self, request: Request) -> Any:
        """End a session: ``{"reward": 0.5}`` or ``{"score": 1.0, "passed": true}``, and ``"truncated": true``."""
        fields = await self._fields(request)
        score, reward = fields.number("score"), fields.number("reward")
        passed, truncated = fields.get("passed", bool, score == 1), fields.get("truncated", bool, False)
        fields.refuse_others()
        trajectory = self._gateway.close_session(
            request.path_params["key"],
            None if score is None else Verdict(score, passed),
            reward=reward,
            end="truncated" if truncated else "terminated",
        )
        return {
            "id": trajectory.id,
            "replies": len(trajectory.steps),
            "segments": len(trajectory.segments),
            "sampled_tokens": sum(step.sampled_tokens for step in trajectory.steps),
            "reward": trajectory.reward,
            "infrastructure_error": trajectory.infrastructure_error,
        }

    async def _fields(self, request: Request) -> Fields:
        limits = self._gateway.limits
        data = await read_within(request, limits.body_bytes, limits.call_seconds)
        if data is None:
            raise Refusal("too_large", f"expected a body of at most {limits.body_bytes} bytes")
        return Fields(read_body(data) if data.strip() else {})
