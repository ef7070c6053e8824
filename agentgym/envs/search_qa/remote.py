"""A search engine on another machine, asked over HTTP in the form that Search-R1 uses."""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from agentgym.envs.search_qa.documents import Document, from_contents
from agentgym.errors import InfrastructureError, UsageError, whole_number

_MOST_BYTES = 1 << 26  # of an answer
_LONGEST_WAIT_S = 86_400
_WAIT_S = 0.2  # before the second attempt; doubles after each
_AGAIN = (408, 425, 429)  # statuses that may pass, beside 5xx


@dataclass(frozen=True)
class RemoteRetriever:
    r"""``POST url`` with ``{"queries": [query], "topk": k, "return_scores": true}``.

    The answer expected is ``{"result": [[{"document": {"contents": "title\ntext"}, "score": ...}, ...]]}``.

    Attributes:
        url: for example ``http://127.0.0.1:8000/retrieve``.
        timeout: seconds to wait for the server at each attempt.
        retries: more attempts after a lost connection, a time-out, or a status that says to come again.
    """

    url: str
    timeout: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise UsageError(
                f"expected the address of a retriever as http://... or https://..., got {self.url!r}"
            )
        if not isinstance(self.timeout, int | float) or not 0 < self.timeout <= _LONGEST_WAIT_S:
            raise UsageError(
                f"expected retriever_timeout > 0 and <= {_LONGEST_WAIT_S} seconds, got {self.timeout!r}"
            )
        whole_number("retriever_retries", self.retries, least=0)

    def search(self, query: str, k: int, *, seconds: float = math.inf) -> list[Document]:
        """See `Retriever`.

        Raises:
            InfrastructureError: no usable answer after all attempts, or in the time there is.
        """
        body = json.dumps({"queries": [query], "topk": k, "return_scores": True}).encode()
        end = time.monotonic() + seconds
        problem = "it was not asked"
        for attempt in range(self.retries + 1):
            pause = _WAIT_S * 2 ** (attempt - 1) if attempt else 0.0
            left = end - time.monotonic() - pause
            if left <= 0:
                problem += f"; the episode had {seconds:.3g} s left"
                break
            time.sleep(pause)
            try:
                return self._read(self._post(body, min(self.timeout, left)))[:k]
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}"
                if error.code < 500 and error.code not in _AGAIN:
                    break
            except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, cut short
                problem = str(error) or type(error).__name__
        raise InfrastructureError(f"retriever {self.url}: {problem}")

    def _post(self, body: bytes, timeout: float) -> bytes:
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as response:
            answer: bytes = response.read(_MOST_BYTES + 1)
        if len(answer) > _MOST_BYTES:
            raise InfrastructureError(
                f"retriever {self.url}: its answer has more than {_MOST_BYTES >> 20} MiB"
            )
        return answer

    def _read(self, answer: bytes) -> list[Document]:
        try:
            value: Any = json.loads(answer)
            (rows,) = value["result"]
            documents = [row["document"]["contents"] for row in rows]
            if all(isinstance(contents, str) for contents in documents):
                return list(map(from_contents, documents))
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        raise InfrastructureError(
            f'retriever {self.url}: expected {{"result": [[{{"document": {{"contents": ...}}}}, ...]]}}, '
            f"got {answer[:80]!r}"
        )


def _is_address(url: str) -> bool:
    """Whether it names a server, in characters that a request may hold."""
    try:
        parts = urllib.parse.urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0  # both raise where they make no sense
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https") and named and url.isascii() and url.isprintable() and " " not in url
    )
