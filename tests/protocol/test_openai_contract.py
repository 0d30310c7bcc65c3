"""Recorded exchanges of OpenAI's client, both ways; see tests/support/openai_contract.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from support.openai_contract import (
    CALLS,
    FOLDER,
    application,
    body_of,
    client_over,
    outcome,
    request_json,
    response_json,
)

pytestmark = pytest.mark.protocol


def kept(name: str) -> dict[str, Any]:
    exchange: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return exchange


def test_every_call_is_recorded_and_nothing_else() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_the_server_gives_the_recorded_answer(name: str) -> None:
    exchange = kept(name)
    asked = exchange["request"]

    async def run() -> dict[str, Any]:
        async with (
            application() as transport,
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as plain,
        ):
            response = await plain.request(
                asked["method"],
                asked["target"],
                headers=asked["headers"],
                content=body_of(asked),
            )
            return response_json(response)

    assert asyncio.run(run()) == exchange["response"]


@pytest.mark.parametrize("name", CALLS)
def test_the_client_sends_the_recorded_request_and_understands_the_answer(name: str) -> None:
    exchange = kept(name)
    answer = exchange["response"]
    sent = []

    async def reply(request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        sent.append(request_json(request))
        return httpx2.Response(answer["status"], headers=answer["headers"], content=body_of(answer))

    async def run() -> Any:
        async with client_over(httpx2.MockTransport(reply)) as client:
            return await outcome(CALLS[name], client)

    assert asyncio.run(run()) == exchange["seen"]
    assert sent == [exchange["request"]]
