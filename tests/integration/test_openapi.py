"""The OpenAPI document: valid, complete, and true."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Route

from cosyvoice_stream.server.openapi_details import DETAILS
from support.features import feature
from support.served import Served, serving

pytestmark = pytest.mark.integration


def with_document(folder: Path, body: Any, **settings: Any) -> None:
    async def run() -> None:
        async with serving(folder, **settings) as served:
            reply = await served.get("/openapi.json")
            assert reply.status == 200
            await body(reply.json(), served)

    asyncio.run(run())


@feature("OpenAPI", "`/openapi.json`, `/docs`", "supported", "all HTTP routes; works offline")
def test_document_is_valid_and_needs_no_key(tmp_path: Path) -> None:
    async def body(document: dict[str, Any], served: Served) -> None:
        validate(document)
        assert document["openapi"].startswith("3.1")

    with_document(tmp_path, body, api_keys="secret")


def test_every_route_is_described(tmp_path: Path) -> None:
    async def body(document: dict[str, Any], served: Served) -> None:
        app: Any = served.server.config.app
        assert isinstance(app, Starlette)
        routes = [r for r in app.routes if isinstance(r, Route) and r.include_in_schema]
        described = {
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
        }
        served_here = {
            (method, route.path.replace(":path}", "}"))
            for route in routes
            for method in (route.methods or set()) - {"HEAD"}
        }
        assert described == served_here
        assert set(DETAILS) <= described
        operations = [each for path in document["paths"].values() for each in path.values()]
        assert all(operation["summary"][0].isupper() for operation in operations)
        names = [operation["operationId"] for operation in operations]
        assert len(set(names)) == len(names)
        tags = {tag["name"] for tag in document["tags"]}
        assert {"OpenAI", "cosyvoice-stream", "Operation"} <= tags

    with_document(tmp_path, body)


def test_examples_work(tmp_path: Path) -> None:
    async def body(document: dict[str, Any], served: Served) -> None:
        tried = 0
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for kind, media in operation.get("requestBody", {}).get("content", {}).items():
                    if "json" in kind and "example" in media:
                        reply = await served.post_json(path, media["example"])
                        assert method == "post"
                        assert reply.status == 200
                        answers = operation["responses"]["200"]["content"]
                        assert reply.headers["content-type"].split(";")[0] in answers
                        tried += 1
        assert tried >= 2

    with_document(tmp_path, body)


def test_locked_paths_say_so(tmp_path: Path) -> None:
    async def body(document: dict[str, Any], served: Served) -> None:
        assert "security" in document["paths"]["/v1/speak"]["post"]
        assert "security" not in document["paths"]["/healthz"]["get"]

    with_document(tmp_path, body)


def test_the_page_has_the_policy_of_the_demo_page(tmp_path: Path) -> None:
    async def body(_: dict[str, Any], served: Served) -> None:
        page, demo = await served.get("/docs"), await served.get("/")
        assert page.status == 200
        policy = "content-security-policy"
        assert page.headers[policy] == demo.headers[policy]
        assert b"https://" not in page.body

    with_document(tmp_path, body)
