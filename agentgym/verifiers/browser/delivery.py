"""What a page under judgement consists of, and what it is answered when it asks for an address."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agentgym.errors import UsageError

ORIGIN = "https://page.test"  # .test never resolves (RFC 2606); https, so that secure-context APIs are there
ADDRESS = f"{ORIGIN}/"
INDEX = "index.html"
MAX_BYTES = 32 << 20
# Schemes that ask nobody for anything; the last ones are for other programs.
_LOCAL = ("data", "blob", "about", "javascript", "chrome-error", "devtools", "mailto", "tel", "sms")

# What a page is made of, as DevTools calls it; asking for it by its bare path tells nobody anything.
_PARTS = ("image", "stylesheet", "script", "font", "media", "manifest")

# The tables of this module alone: those of the machine differ from one to the next.
_TYPES = mimetypes.MimeTypes()
for _kind, _suffix in (
    ("text/javascript", ".js"),
    ("text/javascript", ".mjs"),
    ("image/webp", ".webp"),
    ("image/avif", ".avif"),
    ("font/woff", ".woff"),
    ("font/woff2", ".woff2"),
    ("application/wasm", ".wasm"),
):
    _TYPES.add_type(_kind, _suffix)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain"


def answer(files: Mapping[str, bytes], address: str) -> Answer | None:
    """What a page of these files gives for an address; None where it is not the page's.

    Args:
        files: content by path, as "index.html" or "js/app.js".
        address: an absolute URL. Its query and fragment do not matter.
    """
    parts = urlsplit(address)
    if f"{parts.scheme}://{parts.netloc}" != ORIGIN:
        return None
    path = unquote(parts.path).removeprefix("/") or INDEX
    if path in files:
        return Answer(200, files[path], _content_type(path))
    return Answer(204) if path == "favicon.ico" else None


def stays_here(files: Mapping[str, bytes], address: str) -> bool:
    """Whether an address is no network: the page's own, or one without a server."""
    return address.partition(":")[0] in _LOCAL or answer(files, address) is not None


def is_missing_part(address: str, method: str, kind: str) -> bool:
    """Whether a request that was blocked is no more than a page naming a file of its own that is not there.

    Args:
        address: an absolute URL that `answer` has nothing for.
        method: of the request.
        kind: what the answer is for, as DevTools calls it, in any case: "image", "script", "fetch", "document", ...
    """
    if method != "GET" or kind.lower() not in _PARTS:
        return False
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}" == ORIGIN and not parts.query


def read_page(path: str | Path) -> dict[str, bytes]:
    """The files of a page.

    Args:
        path: an HTML file, or a folder with index.html. Links are not followed: a page is no way to other files.

    Raises:
        UsageError: there is no such page, or it is larger than `MAX_BYTES`.
    """
    path = Path(path)
    if path.is_file():
        found = {INDEX: path}
    elif (path / INDEX).is_file():
        regular = (each for each in sorted(path.rglob("*")) if each.is_file() and not each.is_symlink())
        found = {each.relative_to(path).as_posix(): each for each in regular}
    else:
        raise UsageError(f"expected a page: an HTML file or a folder with {INDEX}; there is none at {path}")
    size = sum(each.stat().st_size for each in found.values())
    if size > MAX_BYTES:
        raise UsageError(f"expected a page of at most {MAX_BYTES >> 20} MiB, got {size:,} bytes at {path}")
    return {name: each.read_bytes() for name, each in found.items()}


def _content_type(path: str) -> str:
    kind, _ = _TYPES.guess_type(path)
    if kind is None:
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
