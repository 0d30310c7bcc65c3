"""How far a session runs ahead of its listener."""

import asyncio

import pytest

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.session import Session
from cosyvoice_stream.server.sessions import engine_summary
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.utterance import State, Utterance
from cosyvoice_stream.server.wire_settings import OutputSettings, UtteranceSettings
from support.memory_transport import PATIENCE_S, MemoryTransport, settled
from support.static_voices import StaticVoices
from support.stream_server import Counts

pytestmark = pytest.mark.unit

LONG = "word " * 40  # 10 s of tones
BYTES_PER_MS = 48


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


async def session(clock, test, *, text=LONG, **output):
    engine = FakeEngine(chunk_ms=20)
    peer = MemoryTransport()
    speech = SpeechService(engine, StaticVoices(engine), Admission(2), clock=clock)
    protocol = SessionProtocol("s-1", engine_summary(engine.info))
    served = Session(peer, protocol, speech, speech.voices, observer=Counts())
    running = asyncio.create_task(served.run())
    peer.put(type="speak", id="a", text=text, output=output)
    await peer.message("utterance.started")
    try:
        await asyncio.wait_for(test(peer), PATIENCE_S)
    finally:
        peer.leave()
        await running


def sent_ms(peer):
    return sum(len(f) - 12 for f in peer.sent if isinstance(f, bytes)) / BYTES_PER_MS


def test_without_a_bound_everything_is_sent():
    async def test(peer):
        await peer.message("utterance.done")
        assert sent_ms(peer) > 9000

    asyncio.run(session(Clock(), test))


def test_a_reporting_listener_gets_what_it_has_room_for():
    async def test(peer):
        await settled(turns=2000)
        assert 180 <= sent_ms(peer) <= 240
        for played_ms in (100, 150, 1000):
            peer.put(type="playback", id="a", played_ms=played_ms)
            await settled(turns=2000)
        assert 1180 <= sent_ms(peer) <= 1240
        before = sent_ms(peer)
        await settled(turns=2000)
        assert sent_ms(peer) == before

    asyncio.run(session(Clock(), test, lead_ms=200))


def test_a_cancel_behind_a_bounded_lead_wastes_little_and_the_next_one_is_spoken():
    async def test(peer):
        await settled(turns=2000)
        peer.put(type="utterance.cancel", id="a")
        peer.put(type="speak", id="b", text="no")
        cancelled = await peer.message("utterance.cancelled")
        assert cancelled["sent_ms"] <= 245
        await peer.message("utterance.done", id="b")

    asyncio.run(session(Clock(), test, lead_ms=200))


def test_a_silent_listener_is_followed_by_the_clock():
    clock = Clock()

    async def test(peer):
        await settled(turns=1000)
        first = sent_ms(peer)
        clock.now += 3.0
        await peer.until(lambda peer: sent_ms(peer) > first + 200)

    asyncio.run(session(clock, test, lead_ms=200))


def test_hold_ends_with_the_utterance():
    settings = UtteranceSettings(output=OutputSettings(lead_ms=100))
    utterance = Utterance("a", 1, settings)
    assert utterance.hold_s(0.0) == 0.0
    utterance.playout.add_generated(24_000)
    assert utterance.hold_s(0.0) == pytest.approx(0.9)
    utterance.playout.report(0)
    assert utterance.hold_s(0.0) > 1
    utterance.end(State.CANCELLED)
    assert utterance.hold_s(0.0) == 0.0
