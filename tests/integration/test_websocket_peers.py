"""Peers that vanish or do not read: nothing is left of the first, the second costs little."""

import asyncio
import gc
import random
import tracemalloc

import pytest

from support.raw_peer import RawPeer
from support.stream_server import PATIENCE_S, stream_server

pytestmark = pytest.mark.integration

LONG_TEXT = "some words that go on and on " * 2000


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine on the loop of the standard library, and on the one that the server uses."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def run_on_loop(test):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test(), PATIENCE_S * 4))

    return run_on_loop


def test_two_hundred_disconnects_in_the_middle_leave_nothing(run):
    dice = random.Random(7)

    async def vanish(server):
        """Connect, read for a while, drop the TCP connection without a word."""
        async with RawPeer(server.url, receive_buffer_bytes=65_536) as peer:
            for utterance in range(dice.randint(1, 3)):
                await peer.send(type="speak", id=f"u{utterance}", text=LONG_TEXT)
            if dice.random() < 0.3:
                await peer.send(type="voice.begin")
            for _ in range(dice.randint(0, 8)):
                await peer._read()

    async def test():
        async with stream_server() as server:
            async with server.client() as client:
                await client.send(type="speak", id="a", text="warm up")
                await client.message("utterance.done")
            await server.all_ended()
            tasks_before = len(asyncio.all_tasks())
            for _ in range(20):
                await asyncio.gather(*(vanish(server) for _ in range(10)))
            await server.all_ended()
            assert server.counts.opened == server.counts.closed == 201
            assert server.engine.counts.live == 0
            assert server.admission.live == 0
            assert server.engine.counts.cancelled > 100
            assert len(asyncio.all_tasks()) == tasks_before
            async with server.client() as client:
                await client.send(type="speak", id="a", text="next one")
                done = await client.message("utterance.done")
            assert done["first_audio_ms"] < 100

    run(test)


def test_a_peer_that_never_reads_is_paused_then_dropped_in_little_memory(run):
    async def test():
        async with stream_server(stall_timeout_s=0.5) as server:
            async with server.client() as other:
                await other.send(type="speak", id="a", text="warm up")
                await other.message("utterance.done")
                gc.collect()
                tracemalloc.start()
                before, _ = tracemalloc.get_traced_memory()
                async with RawPeer(server.url) as peer:
                    for utterance in range(3):
                        await peer.send(type="speak", id=f"u{utterance}", text=LONG_TEXT)
                    # Others are not held up.
                    for turn in range(5):
                        await other.send(type="speak", id=f"b{turn}", text="meanwhile")
                        await other.message("utterance.done")
                    while server.sessions.live > 1:
                        server.ended.clear()
                        await server.ended.wait()
                    _, peak = tracemalloc.get_traced_memory()
                    tracemalloc.stop()
                    received = await peer.read_to_the_end()
            assert peak - before < 2_000_000
            # Much less than everything: the engine was stopped by the full buffers.
            assert received < 1_000_000
            assert server.engine.counts.live == server.admission.live == 0

    run(test)


def test_a_peer_that_floods_without_reading_is_dropped_in_little_memory(run):
    async def test():
        async with stream_server(stall_timeout_s=0.3) as server:
            gc.collect()
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            async with RawPeer(server.url) as peer:

                async def flood():
                    while True:
                        await peer.send(type="nonsense")
                        await asyncio.sleep(0)  # the server has its turn

                flooding = asyncio.create_task(flood())
                await server.all_ended()
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                flooding.cancel()
                await asyncio.gather(flooding, return_exceptions=True)
            # Beside the answers, what one read of the socket held is parsed before reading stops.
            assert peak - before < 5_000_000

    run(test)


def test_a_peer_that_pauses_goes_on_where_it_was(run):
    async def test():
        async with stream_server(stall_timeout_s=30) as server, server.client() as client:
            await client.send(type="speak", id="a", text=LONG_TEXT[:3000])
            await client.message("utterance.started")
            made = -1
            while made != server.engine.counts.chunks:  # until the engine has stopped
                made = server.engine.counts.chunks
                await asyncio.sleep(0.1)
            done = await client.message("utterance.done")
            positions = [header.sample for header, _ in client.frames]
            lengths = [len(audio) // 2 for _, audio in client.frames]
            assert all(
                a + n == b for a, n, b in zip(positions, lengths, positions[1:], strict=False)
            )
            assert sum(lengths) == done["audio_ms"] * 24

    run(test)
