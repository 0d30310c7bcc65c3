"""Calls that come and go leave nothing behind: no socket, task or thread, and no memory that grows.

``WEBRTC_CYCLES=500`` runs as many.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import psutil
import pytest

from support.call_peer import calling, nobody_left
from support.served import serving

pytestmark = pytest.mark.integration

CYCLES = int(os.environ.get("WEBRTC_CYCLES", "30"))
WARM_UP = 10
MIB_PER_CYCLE = 0.05
"""Beyond it memory would be called growing; a peer connection that stays takes a megabyte."""


def left_behind(process):
    gc.collect()
    descriptors = process.num_fds()
    return descriptors, len(asyncio.all_tasks()), threading.active_count()


def test_calls_that_come_and_go_leave_nothing_behind(tmp_path):
    async def cycle(served):
        async with calling(served) as peer:
            peer.send(type="speak", id="a", text="immediately")
            await peer.message("utterance.started")
            await peer.sound()
        await nobody_left(served)

    async def main():
        process = psutil.Process()
        async with serving(tmp_path, patience_s=60 + 2 * CYCLES) as served:
            for _ in range(WARM_UP):
                await cycle(served)
            before, memory = left_behind(process), process.memory_info().rss
            for _ in range(CYCLES):
                await cycle(served)
            assert left_behind(process) == before
            grown = (process.memory_info().rss - memory) / 2**20
            assert grown < 4 + MIB_PER_CYCLE * CYCLES

    asyncio.run(main())
