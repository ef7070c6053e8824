"""A registry of container images on this machine: enough of its protocol for a pull."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def registry(name: str, files: dict[str, bytes]) -> Iterator[str]:
    """``host:port`` of a registry that holds the image ``name:latest``, of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    tar = buffer.getvalue()
    layer = gzip.compress(tar)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
        }
    ).encode()
    parts = [
        {"mediaType": kind, "size": len(data), "digest": digest(data)}
        for kind, data in ((CONFIG, config), (LAYER, layer))
    ]
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
    ).encode()
    answers = {
        "/v2/": (b"{}", "application/json"),
        f"/v2/{name}/manifests/latest": (manifest, MANIFEST),
        f"/v2/{name}/manifests/{digest(manifest)}": (manifest, MANIFEST),
        **{
            f"/v2/{name}/blobs/{digest(data)}": (data, "application/octet-stream") for data in (config, layer)
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            unknown = json.dumps(
                {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            ).encode()
            body, kind = answers.get(self.path, (unknown, "application/json"))
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
