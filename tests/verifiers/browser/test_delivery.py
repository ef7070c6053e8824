"""What a page's addresses are answered, and what a page is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from agentgym.errors import UsageError
from agentgym.verifiers.browser.delivery import Answer, answer, is_missing_part, read_page, stays_here

HTML = "text/html; charset=utf-8"
FILES = {"index.html": b"home", "a b/c.js": b"code", "d.bin2": b"?"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://page.test/", Answer(200, b"home", HTML)),
        ("https://page.test", Answer(200, b"home", HTML)),
        ("https://page.test/?q=1#x", Answer(200, b"home", HTML)),
        ("https://page.test/index.html", Answer(200, b"home", HTML)),
        ("https://page.test/a%20b/c.js", Answer(200, b"code", "text/javascript; charset=utf-8")),
        ("https://page.test/d.bin2", Answer(200, b"?", "application/octet-stream")),
        ("https://page.test/favicon.ico", Answer(204)),
        ("https://page.test/other", None),
        ("https://page.test:8443/", None),
        ("https://page.test@evil.test/", None),
        ("http://page.test/", None),
        ("https://evil.test/", None),
        ("https://page.test.evil.test/", None),
    ],
)
def test_answers(address: str, expected: Answer | None) -> None:
    assert answer(FILES, address) == expected


def test_the_pages_own_icon_is_served() -> None:
    assert answer({"favicon.ico": b"i"}, "https://page.test/favicon.ico").status == 200  # type: ignore[union-attr]


def test_what_is_no_network() -> None:
    local = ("data:,x", "blob:https://page.test/1", "https://page.test/", "mailto:a@b.test", "tel:123")
    assert all(stays_here(FILES, each) for each in local)
    assert not any(
        stays_here(FILES, each) for each in ("wss://page.test/", "ftp://a/", "https://page.test/none")
    )


@pytest.mark.parametrize(
    ("address", "method", "kind", "missing"),
    [
        ("https://page.test/img/logo.png", "GET", "Image", True),
        ("https://page.test/a.svg#icon", "GET", "image", True),
        ("https://page.test/a.css", "GET", "Stylesheet", True),
        ("https://page.test/a.png?typed", "GET", "Image", False),
        ("https://page.test/a.png", "POST", "Image", False),
        ("https://page.test/a.png", "GET", "Fetch", False),
        ("https://page.test/a.html", "GET", "Document", False),
        ("https://page.test/a.png", "GET", "", False),
        ("http://page.test/a.png", "GET", "Image", False),
        ("https://u:p@page.test/a.png", "GET", "Image", False),
        ("https://page.test.evil.test/a.png", "GET", "Image", False),
        ("wss://page.test/", "", "", False),
    ],
)
def test_a_file_that_is_not_there(address: str, method: str, kind: str, missing: bool) -> None:
    assert is_missing_part(address, method, kind) is missing


def test_a_file_is_a_page_and_so_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes(b"\xff raw")
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "a.js").write_text("1")
    (tmp_path / "secret").symlink_to("/etc/hostname")
    assert read_page(tmp_path) == {"index.html": b"\xff raw", "js/a.js": b"1"}
    assert read_page(tmp_path / "js" / "a.js") == {"index.html": b"1"}


def test_what_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path, tmp_path / "none.html"):
        with pytest.raises(UsageError, match="expected a page"):
            read_page(path)
    monkeypatch.setattr("agentgym.verifiers.browser.delivery.MAX_BYTES", 3)
    (tmp_path / "index.html").write_text("four")
    with pytest.raises(UsageError, match="got 4 bytes"):
        read_page(tmp_path)
