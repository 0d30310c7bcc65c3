"""A whole server on a small random checkpoint: eight clients, voices of their own, cancels."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.server.client import Session, connect
from cosyvoice_stream.types import Samples
from support.listening import references
from support.mini_checkpoint import mini_folder
from support.served import serving

pytestmark = pytest.mark.integration

TEXTS = ("hello.", "hi", "go!", "hello", "a b", "hm", "x", "no.")
TOLERANCE = 1e-4


@pytest.mark.parametrize("version", [2, 3])
def test_eight_clients_hear_what_each_would_hear_alone(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        engine = CosyVoiceEngine(mini_folder(version), EngineConfig(slots=9))
        async with serving(tmp_path, engine) as served, AsyncExitStack() as stack:
            url = f"http://127.0.0.1:{served.port}"
            clients = [await stack.enter_async_context(connect(url)) for _ in TEXTS]
            for client, recording in zip(clients, references(), strict=False):
                made = await client.clone(recording, transcript="hello there")
                await client.update(voice=made.voice["id"])

            async def one(index: int) -> Samples:
                client = clients[index]
                return await (await client.speak(TEXTS[index], seed=index)).read()

            alone = [await one(index) for index in range(len(TEXTS))]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(index)) for index in range(len(TEXTS))]
                group.create_task(_leave_early(await stack.enter_async_context(connect(url))))
            for task, solo in zip(tasks, alone, strict=True):
                heard = task.result()
                assert len(heard) == len(solo) > 2400
                assert np.isfinite(heard).all()
                assert np.abs(heard - solo).max() <= TOLERANCE
            assert np.abs(alone[1][:2400] - alone[3][:2400]).max() > 10 * TOLERANCE

    asyncio.run(main())


async def _leave_early(client: Session) -> None:
    """Hear the beginning of something and cancel it."""
    utterance = await client.speak("hello hello hello.")
    await anext(aiter(utterance))
    await utterance.cancel()
