"""Addresses as users write them, and answers that are not what was expected."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cosyvoice_stream.errors import ConfigError, PeerGone, ServerError
from cosyvoice_stream.server.rest_client import ServerAddress, list_voices

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "base", "stream"),
    [
        ("http://h:8000", "http://h:8000", "ws://h:8000/v1/stream"),
        ("https://h", "https://h", "wss://h/v1/stream"),
        ("ws://h:1/v1/stream", "http://h:1", "ws://h:1/v1/stream"),
        ("wss://h/tts/v1/stream/", "https://h/tts", "wss://h/tts/v1/stream"),
        ("localhost:8000", "http://localhost:8000", "ws://localhost:8000/v1/stream"),
        ("http://[::1]:8000/", "http://[::1]:8000", "ws://[::1]:8000/v1/stream"),
    ],
)
def test_address_is_understood(url: str, base: str, stream: str) -> None:
    address = ServerAddress(url)
    assert (address.base_url, address.stream_url) == (base, stream)
    assert address.headers == {}
    assert ServerAddress(url, "k").headers == {"Authorization": "Bearer k"}


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "http://", "http://h:port", "http://h:70000", "http://[::1", "h:0"]
)
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a server") as refused:
        ServerAddress(url)
    assert "http://127.0.0.1:8000" in (refused.value.how_to_fix or "")


@contextmanager
def answering(status: int, body: bytes, seen: list[str] | None = None) -> Iterator[ServerAddress]:
    """A server with one answer; status 0 is no HTTP at all."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append(f"{self.path} {self.headers['Authorization']}")
            if status == 0:
                self.wfile.write(b"SSH-2.0\r\n")
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield ServerAddress(f"127.0.0.1:{server.server_port}", "k")
        finally:
            server.shutdown()
            serving.join()


def test_voices_are_asked_for_with_the_key() -> None:
    seen: list[str] = []
    with answering(200, b'{"voices": [{"id": "heart"}]}', seen) as address:
        assert list_voices(address) == [{"id": "heart"}]
    assert seen == ["/v1/voices Bearer k"]


def test_error_of_the_server_is_taken_over() -> None:
    error = {"code": "busy", "message": "full", "how_to_fix": "wait", "retry_after_ms": 1500}
    body = json.dumps({"error": error}).encode()
    with answering(429, body) as address, pytest.raises(ServerError) as refused:
        list_voices(address)
    found = refused.value
    assert (found.code, str(found), found.how_to_fix) == ("busy", "full", "wait")
    assert found.retry_after_s == 1.5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>"),
        (500, b'{"error": "text"}'),
        (502, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"voices": 1}'),
        (200, b"\xff"),
        (0, b""),
    ],
)
def test_server_of_another_kind_is_refused_with_a_cure(status: int, body: bytes) -> None:
    with (
        answering(status, body) as address,
        pytest.raises(PeerGone, match="not a server of ours") as refused,
    ):
        list_voices(address)
    assert "cosyvoice-stream serve" in (refused.value.how_to_fix or "")


def test_no_server_is_refused_with_a_cure() -> None:
    with answering(200, b"") as address:
        pass
    with pytest.raises(PeerGone, match="no server answers at"):
        list_voices(address)
