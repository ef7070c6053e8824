"""The routes: reading a request within its limits, waiting for the answer, sending it, noticing who has gone."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentgym.gateway.admin import admin_routes
from agentgym.gateway.anthropic import Anthropic
from agentgym.gateway.chat import Chat, openai_error
from agentgym.gateway.exchange import Given, Refusal
from agentgym.gateway.formats import Format, read_body
from agentgym.gateway.recording import Pending
from agentgym.gateway.requests import FINAL, key_of, read_within, refused
from agentgym.gateway.responses import Responses
from agentgym.gateway.session import Session

if TYPE_CHECKING:
    from agentgym.gateway.server import Gateway

_log = logging.getLogger("agentgym.gateway")
_AGENT = re.compile(r"[\w.:/ -]{1,64}")


def make_app(gateway: Gateway, admin_token: str | None) -> Starlette:
    """The routes of a gateway's programs, and with a token those that open and end sessions."""
    routes = [
        Route(form.path, Calls(gateway, form), methods=["POST"])
        for form in (Chat(), Responses(), Anthropic())
    ]

    def models(request: Request) -> Response:
        try:
            gateway.session(key_of(request))
        except Refusal as refusal:
            return refused(openai_error(refusal))
        names = gateway.models or (gateway.policy.name,)
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "agentgym"} for name in names]
        return JSONResponse({"object": "list", "data": data})

    def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(openai_error(Refusal("not_found", text))[1], error.status_code, headers=FINAL)

    routes.append(Route("/v1/models", models, methods=["GET"]))
    routes.append(Route("/v1/messages/count_tokens", Counts(gateway, Anthropic()), methods=["POST"]))
    if admin_token is not None:
        routes += admin_routes(gateway, admin_token)
    return Starlette(routes=routes, exception_handlers={HTTPException: no_route})


class Calls:
    """The route of one format, as an ASGI application.

    Args:
        gateway: whose sessions and policy answer.
        form: the format.
    """

    def __init__(self, gateway: Gateway, form: Format) -> None:
        self._gateway = gateway
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        session: Session | None = None
        try:
            session = self._gateway.session(key_of(request))
            response = await self._answer(request, session)
        except ClientDisconnect:
            return
        except Refusal as refusal:
            if session is not None:
                session.refused(refusal)
            response = refused(self._form.error(refusal))
        except Exception as error:
            _log.exception("a bug of the gateway")
            if session is not None:
                session.broken(error)
            bug = Refusal("failed", f"a bug of the gateway: {type(error).__name__}")
            response = refused(self._form.error(bug))
        await response(scope, receive, send)

    async def _answer(self, request: Request, session: Session) -> Response:
        asked = self._form.read(await self._body(request, session))
        self._gateway.require_model(asked.model)
        agent = request.headers.get("x-agentgym-agent", "")
        if agent and not _AGENT.fullmatch(agent):
            raise Refusal("bad_request", f"expected X-Agentgym-Agent to be a short name, got {agent!r:.80}")
        pending, new = session.begin(
            asked, agent=agent, request_id=request.headers.get("idempotency-key", "")
        )
        if new:
            self._gateway.asker.submit(session, pending)
        given = await self._wait(request, session, pending)
        asked = pending.asked
        if asked.stream:
            chunks: Iterable[str] = self._form.events(asked, given)
            return Delivery(session, pending, chunks, "text/event-stream")
        body = json.dumps(self._form.body(asked, given), ensure_ascii=False)
        return Delivery(session, pending, [body], "application/json")

    async def _body(self, request: Request, session: Session) -> dict[str, Any]:
        limits = session.limits
        data = await read_within(request, limits.body_bytes, limits.call_seconds)
        if data is None:
            raise session.too_large()
        return read_body(data)

    async def _wait(self, request: Request, session: Session, pending: Pending) -> Given:
        """The answer, unless it takes too long or nobody waits for it any more."""
        answer = asyncio.wrap_future(pending.future)
        # Who has gone need not hear it
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        gone = asyncio.ensure_future(_gone(request.receive))
        both: set[asyncio.Future[Any]] = {answer, gone}
        try:
            await asyncio.wait(both, timeout=session.limits.call_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if answer.done():
            return answer.result()
        if gone.done():
            session.lose(pending, "gone")
            raise ClientDisconnect
        raise session.time_out(pending)


class Counts(Calls):
    """The route by which a program of Anthropic's format asks how long a prompt is."""

    async def _answer(self, request: Request, session: Session) -> Response:
        asked = self._form.read({"max_tokens": 1} | await self._body(request, session))
        return JSONResponse({"input_tokens": session.count_tokens(asked)})


class Delivery(Response):
    """An answer on its way; a program that goes before its end has not got it.

    Args:
        session: of the call.
        pending: the call.
        chunks: of the body, sent one by one.
        media_type: of the body.
    """

    def __init__(self, session: Session, pending: Pending, chunks: Iterable[str], media_type: str) -> None:
        self._session, self._pending, self._chunks = session, pending, chunks
        self.media_type = media_type
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        gone = asyncio.ensure_future(_gone(receive))
        try:
            async with asyncio.timeout(self._session.limits.call_seconds):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                for chunk in self._chunks:
                    await send({"type": "http.response.body", "body": chunk.encode(), "more_body": True})
                    await asyncio.sleep(0)  # let it be noticed that the program has gone
                    if gone.done():
                        self._session.lose(self._pending, "gone")
                        return
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                self._session.delivered(self._pending)
        except TimeoutError:  # the connection is closed: what was sent has no end
            self._session.lose(self._pending, "call_seconds")
        finally:
            gone.cancel()


async def _gone(receive: Receive) -> None:
    """Return when the program has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
