"""Who may talk to the server: host and origin checks, keys, CORS, and the access log.

One ASGI middleware in front of every route, HTTP and WebSocket alike. A browser lets any page in
the world open a WebSocket to, or post a form at, ``127.0.0.1``; the origin check stops that, and
the host check stops a page whose own name was pointed at ``127.0.0.1`` (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import time
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyvoice_stream.server.error_shapes import shaped
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.settings import Settings, is_loopback

logger = logging.getLogger(__name__)

CALLER_KEY: Final = "cosyvoice_stream.key"
"""In the state of a scope, where keys are set: `key_name` of the caller's."""

_EXPOSED: Final = (
    "X-Sample-Rate, X-Channels, X-Encoding, X-Bytes-Per-Sample, X-Byte-Order, X-Seed, X-Voice, "
    "Retry-After, X-Request-Id, Location, Link, ETag, Accept-Patch"
)
_QUERY_KEYS: Final = ("api_key", "xi-api-key", "single_use_token")
"""Fields of a query that hold a key: ours, and those of ElevenLabs' clients in browsers."""
_QUERY_BYTES: Final = tuple(name.encode() for name in _QUERY_KEYS)
_KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCKED_PREFIXES: Final = (
    "/v1/",
    "/metrics",
    "/inference_",
    "/elevenlabs/",
    "/api/",
    "/api-ws/",
    "/whep/",
    "/whip/",
)
"""Paths that need a key where keys are set; the page and the health probes do not."""
_UNLOCKED: Final = frozenset({"/v1/cluster/auth"})
"""Of these, what Xinference's client asks before it sends its key: whether one is needed."""


class KeyRing:
    """The keys that clients must send; false where none is set."""

    def __init__(self, settings: Settings) -> None:
        self._digests = tuple(
            hashlib.sha256(key.get_secret_value().encode()).digest() for key in settings.api_keys
        )

    def __bool__(self) -> bool:
        return bool(self._digests)

    def open(self, key: str | None) -> bool:
        """Compare with every key, in constant time, whichever fits."""
        digest = hashlib.sha256((key or "").encode(errors="surrogateescape")).digest()
        fits = [hmac.compare_digest(digest, known) for known in self._digests]
        return key is not None and any(fits)


class AccessControl:
    """Refuse what may not come in; scrub keys from the scope so that nothing can log them."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._check_host = settings.is_loopback
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(origin.lower() for origin in settings.allowed_origins)
        self._keys = KeyRing(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application below, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        key = _take_key(scope, headers)
        origin = headers.get("origin")
        cross_site = origin is not None and not _same_host(origin, headers.get("host", ""))
        allowed_origin = origin if cross_site and self._allows(origin) else None
        send = self._watched(scope, send, allowed_origin)

        if self._check_host and not self._knows_host(headers.get("host", "")):
            await _refuse(
                scope,
                send,
                403,
                "this server listens on a loopback address and does not answer to that host name",
                "use http://127.0.0.1, or list the name in COSYVOICE_STREAM_ALLOWED_HOSTS",
            )
        elif scope["type"] == "http" and _is_preflight(scope, headers):
            await _answer_preflight(send, allowed_origin is not None or not cross_site, headers)
        elif (
            cross_site
            and allowed_origin is None
            and (scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS)
        ):
            await _refuse(
                scope,
                send,
                403,
                "pages of this origin may not use this server",
                "list the origin in COSYVOICE_STREAM_ALLOWED_ORIGINS",
            )
        elif self._keys and is_locked(scope["path"]) and not self._keys.open(key):
            await _refuse(
                scope,
                send,
                401,
                "a key is needed" if key is None else "the key is wrong",
                "send Authorization: Bearer KEY, X-API-Key: KEY, or ?api_key=KEY",
            )
        else:
            if self._keys and key is not None:
                scope.setdefault("state", {})[CALLER_KEY] = key_name(key)
            await self._app(scope, receive, send)

    def _allows(self, origin: str | None) -> bool:
        return "*" in self._origins or (origin or "").lower() in self._origins

    def _knows_host(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname if host else None
        return name is None or is_loopback(name) or name.lower() in self._hosts

    def _watched(self, scope: Scope, send: Send, allowed_origin: str | None) -> Send:
        """Wrap `send`: CORS and safety headers on the way out, one count and log line."""
        began = time.monotonic()

        async def watched(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["X-Request-Id"] = f"req_{secrets.token_hex(12)}"
                if self._origins:
                    headers.add_vary_header("Origin")
                if allowed_origin is not None:
                    headers["Access-Control-Allow-Origin"] = allowed_origin
                    headers["Access-Control-Expose-Headers"] = _EXPOSED
                self._report(scope, message["status"], began)
            await send(message)

        return watched

    def _report(self, scope: Scope, status: int, began: float) -> None:
        route = getattr(scope.get("endpoint"), "__name__", "none")
        self._metrics.http_request(route, status)
        method = scope.get("method", "WEBSOCKET")
        elapsed_ms = (time.monotonic() - began) * 1000
        logger.debug("< %s %s %d after %.0f ms", method, route, status, elapsed_ms)


def is_locked(path: str) -> bool:
    """Tell whether a path needs a key where keys are set."""
    return path.startswith(_LOCKED_PREFIXES) and path not in _UNLOCKED


def key_name(key: str) -> str:
    """A name for a key that does not give it away."""
    return hashlib.sha256(b"caller:" + key.encode(errors="surrogateescape")).hexdigest()[:16]


def caller_key(scope: Scope) -> str | None:
    """`key_name` of the key that a connection was opened with; None where keys are not set."""
    name: str | None = scope.get("state", {}).get(CALLER_KEY)
    return name


def _take_key(scope: Scope, headers: Headers) -> str | None:
    """Return the key that the client sent, and remove it from the query string.

    The scope is changed in place, before anything else sees it: uvicorn's own log lines are made
    from the same object.
    """
    from_query = None
    if any(name in scope["query_string"] for name in _QUERY_BYTES):
        fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        from_query = next((value for name, value in fields if name in _QUERY_KEYS), None)
        rest = [(name, value) for name, value in fields if name not in _QUERY_KEYS]
        scope["query_string"] = urlencode(rest).encode("ascii")
    from_header = headers.get("x-api-key") or headers.get("xi-api-key")
    sent = bearer_token(headers.get("authorization", "")) or from_header
    hidden = _take_key_from_subprotocols(scope)
    return sent or (hidden if from_query is None else from_query)


def _take_key_from_subprotocols(scope: Scope) -> str | None:
    """Return the key that OpenAI's clients in browsers hide among the subprotocols; remove it."""
    offered: list[str] = list(scope.get("subprotocols") or ())
    keys = [name for name in offered if name.startswith(_KEY_SUBPROTOCOL)]
    if keys:
        scope["subprotocols"] = [name for name in offered if name not in keys]
        return keys[0].removeprefix(_KEY_SUBPROTOCOL) or None
    return None


def bearer_token(header: str) -> str | None:
    """Return the key in an ``Authorization`` header, None if it holds none."""
    scheme, _, token = header.partition(" ")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


def _same_host(origin: str, host: str) -> bool:
    """Tell whether a page of `origin` was served by the host that it calls.

    The scheme is not compared: behind a proxy that ends TLS it differs.
    """
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


async def _answer_preflight(send: Send, allowed: bool, headers: Headers) -> None:
    fields = [(b"content-length", b"0")]
    if allowed:
        fields += [
            (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
            (
                b"access-control-allow-headers",
                b"Authorization, Content-Type, If-Match, X-API-Key, xi-api-key",
            ),
            (b"access-control-max-age", b"600"),
        ]
        if "access-control-request-private-network" in headers:
            fields.append((b"access-control-allow-private-network", b"true"))
    status = 200 if allowed else 403
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, send: Send, status: int, message: str, how_to_fix: str) -> None:
    """Answer with an error in the shape of the path; a WebSocket's handshake is refused so."""
    said: dict[str, Any] = {"code": "unauthorized", "message": message, "how_to_fix": how_to_fix}
    status, body = shaped(scope["path"], status, said)
    text = json.dumps(body).encode()
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        fields.append((b"www-authenticate", b"Bearer"))
    prefix = "websocket." if scope["type"] == "websocket" else ""
    await send({"type": f"{prefix}http.response.start", "status": status, "headers": fields})
    await send({"type": f"{prefix}http.response.body", "body": text})
