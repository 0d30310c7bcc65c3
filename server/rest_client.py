"""Where a server is, and the few requests that clients make over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from cosyvoice_stream.errors import ConfigError, PeerGone, ServerError

TIMEOUT_S: Final = 30.0
DEFAULT_PORT: Final = 8000
CURE: Final = "start one with `cosyvoice-stream serve`, or check the address"
_SECURE: Final = {"http": "http", "ws": "http", "https": "https", "wss": "https"}


class ServerAddress:
    """The address of a server as a user writes it.

    Args:
        url: ``http://``, ``https://``, ``ws://`` or ``wss://`` with or without a path, or
        ``host:port``.
        api_key: Sent with every request; None where the server asks for none.

    Raises:
        ConfigError: It is no such address.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            fine = parts.scheme in _SECURE and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets that do not match, or a port that is no port
            fine = False
        if not fine:
            raise ConfigError(
                f"{url!r} is not the address of a server",
                how_to_fix=f"write it as http://127.0.0.1:{DEFAULT_PORT}",
            )
        path = parts.path.rstrip("/").removesuffix("/v1/stream")
        self.base_url = f"{_SECURE[parts.scheme]}://{parts.netloc}{path}"
        self.api_key = api_key

    @property
    def stream_url(self) -> str:
        """Address of the WebSocket."""
        return "ws" + self.base_url.removeprefix("http") + "/v1/stream"

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def refusal(self, status: int, body: bytes | None) -> ServerError | PeerGone:
        """The exception for an answer that is not a success."""
        try:
            error = json.loads(body or b"")["error"]
            retry_ms = error.get("retry_after_ms")
            return ServerError(
                error["code"],
                error["message"],
                how_to_fix=error.get("how_to_fix"),
                retry_after_s=None if retry_ms is None else retry_ms / 1000,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return self.strangeness(f"; it answered with status {status}")

    def silence(self) -> PeerGone:
        """The exception for nothing at all."""
        return PeerGone(f"no server answers at {self.base_url}", how_to_fix=CURE)

    def strangeness(self, detail: str = "") -> PeerGone:
        """The exception for a server of another kind."""
        return PeerGone(f"{self.base_url} is not a server of ours{detail}", how_to_fix=CURE)


def get(address: ServerAddress, path: str) -> dict[str, Any]:
    """Make one request and read its JSON. Blocks.

    Raises:
        ServerError: The server refuses it.
        PeerGone: No server answers there, or another kind of server.
    """
    message = urllib.request.Request(f"{address.base_url}{path}", headers=address.headers)
    try:
        with urllib.request.urlopen(message, timeout=TIMEOUT_S) as answer:
            result = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise address.refusal(error.code, error.read()) from error
    except OSError as error:
        raise address.silence() from error
    except (ValueError, http.client.HTTPException) as error:
        raise address.strangeness() from error
    if not isinstance(result, dict):
        raise address.strangeness()
    return result


def list_voices(address: ServerAddress) -> list[dict[str, Any]]:
    """The voices of a server, each as VOICE of docs/protocol.md. Blocks."""
    voices = get(address, "/v1/voices").get("voices")
    if not isinstance(voices, list):
        raise address.strangeness()
    return voices
