"""Reading a request within limits, and saying no to one."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentgym.gateway.exchange import Refusal

# The clients of OpenAI and Anthropic send a call again after some errors; here the answer would be the same.
FINAL = {"x-should-retry": "false"}


def key_of(request: Request) -> str:
    """The key that a request shows; "" for none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return request.headers.get("x-api-key") or (key.strip() if scheme.lower() == "bearer" else "")


def refused(error: tuple[int, dict[str, Any]]) -> Response:
    """The response that says no."""
    return JSONResponse(error[1], error[0], headers=FINAL)


async def read_within(request: Request, most: int, seconds: float) -> bytes | None:
    """The body of a request; None where it is larger than `most` bytes.

    Raises:
        Refusal: it did not come within so many seconds.
        ClientDisconnect: nobody sends it any more.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    return None
    except TimeoutError:
        raise Refusal("timeout", f"the request was not sent within {seconds:g} seconds") from None
    return bytes(body)
