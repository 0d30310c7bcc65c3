"""A model hub on loopback with the APIs of Hugging Face and of ModelScope, which can misbehave."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cosyvoice_stream.cosyvoice.download import REPOSITORIES
from cosyvoice_stream.cosyvoice.versions import VERSIONS

LFS_SUFFIXES = (".pt", ".onnx")
PATIENCE_S = 30.0


def checkpoint_files(
    number: int = 2, *, seed: bytes = b"", lm_bytes: int = 300_000
) -> dict[str, bytes]:
    """Stand-ins for the files of a checkpoint, and some that the engine does not read."""
    version = VERSIONS[number]
    names = version.required_files + version.optional_files
    unread = (
        "README.md",
        "flow.decoder.estimator.fp32.onnx",
        "CosyVoice-BlankEN/model.safetensors",
    )
    sizes = {"llm.pt": lm_bytes, "flow.pt": 200_000}
    return {name: noise(seed + name.encode(), sizes.get(name, 999)) for name in names + unread}


def noise(seed: bytes, size_bytes: int) -> bytes:
    """Bytes that follow from a seed."""
    return hashlib.shake_128(seed).digest(size_bytes)


@dataclass
class FakeHub:
    """What the hub holds, how it misbehaves, and what it was asked."""

    commits: dict[str, dict[str, bytes]]
    """Commit → name → content."""
    branches: dict[str, str]
    repository: str = REPOSITORIES[2]["huggingface"]
    cut: dict[str, int] = field(default_factory=dict)
    """Name → bytes after which the next answer breaks off, once, with a reset."""
    end: dict[str, int] = field(default_factory=dict)
    """Name → bytes after which the next answer ends too early, once."""
    hold: dict[str, int] = field(default_factory=dict)
    """Name → bytes after which the next answer waits until the client is gone, once."""
    damage: dict[str, int] = field(default_factory=dict)
    """Name → number of answers with a changed byte."""
    ignore_range: bool = False
    fetched: list[tuple[str, int]] = field(default_factory=list)
    """Name and first byte of each answer with content."""
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    """Host that was asked for content, and the credentials that came along."""
    status: int | None = None
    """Answer everything with this status."""
    holding: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def files(self, revision: str) -> dict[str, bytes] | None:
        """Files of a branch or commit."""
        return self.commits.get(self.branches.get(revision, revision))

    def names(self) -> set[str]:
        """Files that were given out."""
        return {name for name, _ in self.fetched}

    def settings(self) -> dict[str, str]:
        """Environment that leads the hubs' libraries here."""
        return {
            "HF_ENDPOINT": self.url,
            "MODELSCOPE_ENDPOINT": self.url,
            "NO_PROXY": "*",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }


@contextmanager
def model_hub(commits: dict[str, dict[str, bytes]], branch: str) -> Iterator[FakeHub]:
    """Serve commits; `main` and `master` stand for `branch`."""
    hub = FakeHub(commits, {"main": branch, "master": branch})

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        """Find out which hub is meant by the path."""
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        path = unquote(url.path)
        repository = self.hub.repository
        if self.hub.status is not None:
            return self._refuse("", self.hub.status)
        if path.startswith(f"/api/models/{repository}/revision/"):
            self._hugging_face_listing(path.rsplit("/", 1)[1])
        elif path.startswith(f"/{repository}/resolve/"):
            self._hugging_face_content(path.removeprefix(f"/{repository}/resolve/"))
        elif path.startswith("/cdn/"):
            self._content(*path.removeprefix("/cdn/").split("/", 1))
        elif path == f"/api/v1/models/{repository}/repo/files":
            self._model_scope_listing(query["Revision"])
        elif path == f"/api/v1/models/{repository}/repo":
            self._content(query["Revision"], query["FilePath"])
        else:
            self._refuse("RepoNotFound")
        return None

    def _refuse(self, code: str, status: int = 404) -> None:
        body = json.dumps({"error": code, "Code": 10010205001, "Success": False}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hugging_face_listing(self, revision: str) -> None:
        files = self.hub.files(revision)
        if files is None:
            return self._refuse("RevisionNotFound")
        siblings = []
        for name, content in files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(content)}
            entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if name.endswith(LFS_SUFFIXES):
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 134}
            siblings.append(entry)
        commit = self.hub.branches.get(revision, revision)
        return self._json({"id": self.hub.repository, "sha": commit, "siblings": siblings})

    def _hugging_face_content(self, path: str) -> None:
        """Send on to another host for what LFS holds, as the real one does."""
        if not path.endswith(LFS_SUFFIXES):
            return self._content(*path.split("/", 1))
        self.send_response(302)
        port = urlsplit(self.hub.url).port
        self.send_header("Location", f"http://localhost:{port}/cdn/{path}")
        self.send_header("Content-Length", "0")
        return self.end_headers()

    def _model_scope_listing(self, revision: str) -> None:
        files = self.hub.files(revision)
        if files is None:
            return self._refuse("RevisionNotFound")
        entries = [
            {
                "Path": name,
                "Name": name.rsplit("/", 1)[-1],
                "Size": len(content),
                "Sha256": hashlib.sha256(content).hexdigest(),
                "Type": "blob",
            }
            for name, content in files.items()
        ]
        folder = {"Path": "CosyVoice-BlankEN", "Name": "CosyVoice-BlankEN", "Type": "tree"}
        return self._json({"Code": 200, "Success": True, "Data": {"Files": [folder, *entries]}})

    def _content(self, revision: str, name: str) -> None:
        content = (self.hub.files(revision) or {}).get(name)
        if content is None:
            return self._refuse("EntryNotFound")
        self.hub.tokens.append((self.headers["Host"], self.headers["Authorization"]))
        asked = self.headers.get("Range")
        first = 0
        if asked is not None and not self.hub.ignore_range:
            first = int(asked.removeprefix("bytes=").split("-")[0])
        self.hub.fetched.append((name, first))
        if self.hub.damage.get(name, 0) > 0:
            self.hub.damage[name] -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        body = content[first:]
        self.send_response(206 if asked is not None and not self.hub.ignore_range else 200)
        if asked is not None and not self.hub.ignore_range:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return self._send(name, body)

    def _send(self, name: str, body: bytes) -> None:
        for misdeed in (self.hub.cut, self.hub.end, self.hub.hold):
            if name not in misdeed:
                continue
            self.wfile.write(body[: misdeed.pop(name)])
            self.wfile.flush()
            self.close_connection = True
            if misdeed is self.hub.cut:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                os.close(self.connection.detach())  # a plain close would say goodbye first
            if misdeed is self.hub.hold:
                self.hub.holding.set()
                self.connection.settimeout(PATIENCE_S)
                self.rfile.read(1)
            return
        self.wfile.write(body)
