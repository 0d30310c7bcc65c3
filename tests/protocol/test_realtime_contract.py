"""Recorded Realtime conversations, both ways; see tests/support/realtime_contract.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter

from support.memory_transport import PATIENCE_S
from support.realtime_contract import FOLDER, SCENARIOS, Names, conversation

pytestmark = pytest.mark.protocol

SERVER: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
CLIENT: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)


def lines(name: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_scenario_is_recorded_and_nothing_else() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_server_says_what_was_recorded(name: str) -> None:
    async def run() -> None:
        names, seen = Names(), 0
        async with asyncio.timeout(PATIENCE_S), conversation() as peer:
            for line in lines(name):
                if "client" in line:
                    peer.put(**line["client"])
                    continue
                await peer.until(lambda peer: len(peer.sent) > seen)  # noqa: B023 - awaited here
                assert names(peer.sent[seen]) == line["server"]
                seen += 1
            assert len(peer.sent) == seen

    asyncio.run(run())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_client_library_knows_every_event(name: str) -> None:
    for line in lines(name):
        if "server" in line:
            event = SERVER.validate_python(line["server"])
            assert event.type == line["server"]["type"]
            assert not event.model_extra or set(event.model_extra) <= {"object", "expires_at"}
        elif name != "errors":
            assert CLIENT.validate_python(line["client"]).type == line["client"]["type"]
