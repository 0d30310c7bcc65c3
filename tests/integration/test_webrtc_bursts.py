"""Speech that is made in bursts: the clock of the track does not notice, nor does the listener.

``WEBRTC_BURSTS_S=600`` runs it for ten minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random

import pytest

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.call_peer import FRAME, RATE_HZ, CallPeer
from support.served import serving

pytestmark = pytest.mark.integration

SECONDS = float(os.environ.get("WEBRTC_BURSTS_S", "6"))
LONGEST_GAP_S = 0.8
DRIFT_S = 0.02
SEED = 3
LONG = " ".join(["immediately"] * 20)
TICKS = 50
"""Packets of a window whose earliest arrival counts: what is late in it is the loop's delay."""


class Bursts(ChunkGate):
    """Lets a chunk pass after a gap of any length up to `LONGEST_GAP_S`."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(SEED)

    async def wait(self) -> None:
        await asyncio.sleep(self._random.uniform(0, LONGEST_GAP_S))


def drift_s(peer: CallPeer) -> float:
    """How far the clock of the time stamps has run from this machine's."""
    first = peer.packets[0][0]
    offsets = [at - ((stamp - first) % 2**32) / RATE_HZ for stamp, at in peer.packets]
    return abs(min(offsets[-TICKS:]) - min(offsets[:TICKS]))


def test_time_stamps_go_on_and_the_clock_does_not_drift(tmp_path):
    async def main():
        engine = FakeEngine(gate=Bursts(), chunk_ms=400)
        async with serving(tmp_path, engine, patience_s=SECONDS + 60) as served:
            peer = CallPeer()
            await peer.connect(served)
            await peer.until(lambda: peer.packets)
            began = peer.packets[0][0]
            number = 0
            while (peer.packets[-1][0] - began) % 2**32 / RATE_HZ < SECONDS:
                number += 1
                peer.send(type="speak", id=f"u{number}", text=LONG)
                await peer.message("track.position")
                seen = len(peer.packets)
                await peer.until(lambda seen=seen: len(peer.packets) > seen + 4 * TICKS)
                peer.send(type="utterance.cancel")
                await peer.message("utterance.cancelled", "utterance.done")
            steps = {(b - a) % 2**32 for (a, _), (b, _) in itertools.pairwise(peer.packets)}
            assert steps == {FRAME}
            assert drift_s(peer) <= DRIFT_S
            (call,) = (await served.get("/v1/webrtc/stats")).json()["calls"]
            assert call["underruns"] > 0, "there were no gaps"
            await peer.close()

    asyncio.run(main())
