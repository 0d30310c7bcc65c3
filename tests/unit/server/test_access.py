"""Who is let in: hosts, origins, keys. The middleware alone, without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from cosyvoice_stream.server.access import AccessControl
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.settings import Settings

pytestmark = pytest.mark.unit

HERE = "127.0.0.1:8000"


class Inner:
    """The application below: remembers the scope, answers 200."""

    def __init__(self) -> None:
        self.scope: Scope | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "websocket.accept"})


class Answer:
    def __init__(self, inner: Inner, sent: list[Message]) -> None:
        self.inner = inner
        self.accepted = sent[0]["type"] == "websocket.accept"
        self.status = sent[0].get("status")
        self.headers = {
            name.decode().lower(): value.decode() for name, value in sent[0].get("headers", [])
        }
        self.body = b"".join(message.get("body", b"") for message in sent[1:])
        self.sent = sent


def ask(
    path: str = "/v1/info",
    *,
    method: str = "GET",
    kind: str = "http",
    query: str = "",
    settings: dict[str, Any] | None = None,
    **headers: str,
) -> Answer:
    """Send one request through the middleware; underscores in header names are dashes."""
    fields = {"host": HERE} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope: Scope = {
        "type": kind,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }
    if kind == "http":
        scope["method"] = method
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the middleware reads no body")

    inner = Inner()
    middleware = AccessControl(inner, Settings(_env_file=None, **(settings or {})), Metrics())
    asyncio.run(middleware(scope, receive, send))
    return Answer(inner, sent)


WITH_KEY = {"api_keys": "right-key,other-key"}


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "sent",
    [
        {"authorization": "Bearer right-key"},
        {"authorization": "bearer  other-key"},
        {"x_api_key": "right-key"},
        {"query": "api_key=right-key"},
    ],
)
def test_right_key_opens(kind: str, sent: dict[str, str]) -> None:
    assert ask(kind=kind, settings=WITH_KEY, **sent).inner.scope is not None


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({}, "a key is needed"),
        ({"authorization": "Basic right-key"}, "a key is needed"),
        ({"authorization": "Bearer wrong"}, "the key is wrong"),
        ({"x_api_key": "right-key2"}, "the key is wrong"),
        ({"query": "api_key="}, "the key is wrong"),
        ({"query": "api_key=%ff%00"}, "the key is wrong"),
    ],
)
def test_missing_or_wrong_key_is_401(kind: str, sent: dict[str, str], message: str) -> None:
    answer = ask(kind=kind, settings=WITH_KEY, **sent)
    assert answer.inner.scope is None
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["message"]) == ("unauthorized", message)
    prefix = "websocket.http" if kind == "websocket" else "http"
    assert answer.sent[0]["type"] == f"{prefix}.response.start"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/client.js"])
def test_probes_and_page_need_no_key(path: str) -> None:
    assert ask(path, settings=WITH_KEY).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/v1/voices", "/v1/anything"])
def test_everything_else_needs_a_key(path: str) -> None:
    assert ask(path, settings=WITH_KEY).status == 401


def test_key_is_gone_from_the_query_behind_the_middleware() -> None:
    answer = ask(query="framing=raw&api_key=right-key&x=", settings=WITH_KEY)
    assert answer.inner.scope is not None
    assert answer.inner.scope["query_string"] == b"framing=raw&x="


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "127.8.8.8", ""])
def test_loopback_names_are_known(host: str) -> None:
    assert ask(host=host).status == 200


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_rebound_name_is_refused(kind: str) -> None:
    answer = ask(kind=kind, host="evil.example:8000")
    assert answer.status == 403
    assert answer.inner.scope is None


def test_listed_host_is_known() -> None:
    assert ask(host="Voice.Example", settings={"allowed_hosts": "voice.example"}).status == 200


def test_host_is_free_when_the_server_is_open_to_the_network() -> None:
    assert ask(host="voice.example", settings={"host": "0.0.0.0"}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9000"])
@pytest.mark.parametrize(("kind", "method"), [("websocket", "GET"), ("http", "POST")])
def test_foreign_page_cannot_act(origin: str, kind: str, method: str) -> None:
    answer = ask(kind=kind, method=method, origin=origin)
    assert answer.status == 403
    assert answer.inner.scope is None


@pytest.mark.parametrize("kind", ["websocket", "http"])
@pytest.mark.parametrize("origin", [f"http://{HERE}", f"https://{HERE}", f"HTTP://{HERE}"])
def test_own_page_may_act(kind: str, origin: str) -> None:
    assert ask(kind=kind, method="POST", origin=origin).inner.scope is not None


@pytest.mark.parametrize("listed", ["https://app.example", "*"])
def test_listed_origin_may_act_and_read(listed: str) -> None:
    settings = {"allowed_origins": listed}
    answer = ask(method="POST", origin="https://app.example", settings=settings)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "X-Sample-Rate" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "Origin"
    websocket = ask(kind="websocket", origin="https://app.example", settings=settings)
    assert websocket.accepted


def test_foreign_page_cannot_read() -> None:
    answer = ask(origin="https://evil.example")
    assert "access-control-allow-origin" not in answer.headers


def test_preflight_of_a_listed_origin_needs_no_key() -> None:
    answer = ask(
        "/v1/speak",
        method="OPTIONS",
        origin="https://app.example",
        access_control_request_method="POST",
        access_control_request_private_network="true",
        settings=WITH_KEY | {"allowed_origins": "https://app.example"},
    )
    assert answer.status == 200
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "X-API-Key" in answer.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-private-network"] == "true"


def test_preflight_of_a_foreign_origin_is_refused() -> None:
    answer = ask(
        method="OPTIONS", origin="https://evil.example", access_control_request_method="POST"
    )
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers
