import asyncio
import logging

import numpy as np
import pytest

from cosyvoice_stream.errors import EngineBusy, EnrolmentRejected, ShuttingDown
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.session import MAX_STREAM_BYTES
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.wire import Limits
from support.house import House, run
from support.memory_transport import PATIENCE_S, MemoryTransport, settled
from support.static_voices import StaticVoices
from support.stream_server import Counts

pytestmark = pytest.mark.unit


def test_speaks_an_utterance():
    async def test():
        house = House()
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="Hello world", marks=["word", "viseme"])
            done = await peer.message("utterance.done")
        assert done["audio_ms"] == 550.0
        assert done["first_audio_ms"] >= 0
        assert done["characters"] == 11
        kinds = [m["type"] for m in peer.messages if m["type"] != "marks"]
        assert kinds == ["session.ready", "utterance.started", "utterance.done"]
        assert [frame.last for frame in peer.frames] == [False] * (len(peer.frames) - 1) + [True]
        (outcome,) = house.counts.utterances
        assert (outcome.outcome, outcome.characters, outcome.audio_ms) == ("done", 11, 550.0)

    run(test)


@pytest.mark.parametrize("text", ["", "   ", "。", "……", "!!!", "🙂🙂", "——"])
def test_text_with_nothing_to_say_is_done_without_audio(text):
    async def test():
        house = House()
        async with house.open() as peer:
            peer.put(type="speak", id="a", text=text)
            done = await peer.message("utterance.done")
        assert (done["audio_ms"], done["first_audio_ms"], done["rtf"]) == (0.0, None, None)
        assert peer.frames == []

    run(test)


def test_speaks_while_text_arrives():
    async def test():
        async with House().open() as peer:
            peer.put(type="utterance.start", id="a")
            peer.put(type="text.delta", id="a", text="One t")
            await peer.until(lambda peer: peer.frames)
            peer.put(type="text.delta", id="a", text="wo")
            peer.put(type="text.flush", id="a")
            await peer.until(lambda peer: peer.frames[-1].sample >= 24_000 * 0.3)
            peer.put(type="utterance.end", id="a")
            await peer.message("utterance.done", audio_ms=350.0)

    run(test)


def test_utterances_follow_each_other_in_order():
    async def test():
        async with House().open() as peer:
            peer.put(type="utterance.start", id="a")
            peer.put(type="speak", id="b", text="two")
            peer.put(type="text.delta", id="a", text="one")
            peer.put(type="utterance.end", id="a")
            await peer.message("utterance.done", id="b")
        numbers = [frame.number for frame in peer.frames]
        assert numbers == sorted(numbers)
        assert set(numbers) == {1, 2}

    run(test)


def test_an_utterance_without_text_takes_no_slot():
    async def test():
        house = House(max_live=1)
        async with house.open() as peer:
            peer.put(type="utterance.start", id="a")
            peer.put(type="session.update")
            await peer.message("session.updated")
            assert house.admission.live == 0
            peer.put(type="utterance.end", id="a")
            await peer.message("utterance.done")

    run(test)


def test_one_bad_utterance_hurts_no_other():
    async def test():
        engine = FakeEngine(
            fail_on={"boom": ValueError("secret")}, refuse={"zh": lambda word: not word.isascii()}
        )
        house = House(engine)
        async with house.open() as peer:
            peer.put(type="speak", id="voice", text="x", voice="nobody")
            peer.put(type="speak", id="format", text="x", output={"encoding": "gsm"})
            peer.put(type="speak", id="script", text="你好")
            peer.put(type="speak", id="crash", text="all well until boom")
            peer.put(b"\x00noise")
            peer.put("{nonsense")
            peer.put(type="speak", id="good", text="fine")
            await peer.message("utterance.done", id="good")
        errors = {m.get("id"): m["code"] for m in peer.messages if m["type"] == "error"}
        assert errors == {
            "voice": "voice_not_found",
            "format": "unsupported_format",
            "script": "unsupported_language",
            "crash": "synthesis_failed",
            None: "invalid_message",
        }
        assert [u.outcome for u in house.counts.utterances] == ["failed"] * 2 + ["done"]
        assert house.counts.refusals == ["voice_not_found"]

    run(test)


def test_an_unexpected_error_is_told_and_logged_without_its_text(caplog):
    class Broken(FakeEngine):
        def synthesize(self, text, voice, options):
            raise ZeroDivisionError("what the user wrote")

    async def test():
        async with House(Broken()).open() as peer:
            peer.put(type="speak", id="a", text="x")
            error = await peer.message("error", id="a")
        assert (error["code"], error["message"]) == (
            "internal",
            "something went wrong in the server",
        )

    with caplog.at_level(logging.INFO):
        run(test)
    assert "ZeroDivisionError" in caplog.text
    assert not any("what the user wrote" in r.getMessage().split("\n")[0] for r in caplog.records)


def test_samples_that_are_not_finite_are_never_sent():
    class Broken(FakeEngine):
        async def _synthesize(self, text, voice, options):
            async for chunk in super()._synthesize(text, voice, options):
                if chunk.start_sample > 0:
                    chunk.samples[0] = np.nan
                yield chunk

    async def test():
        async with House(Broken()).open() as peer:
            peer.put(type="speak", id="a", text="one two three")
            await peer.message("error", id="a", code="synthesis_failed")
        assert len(peer.frames) == 1

    run(test)


def test_refuses_at_once_when_no_slot_is_free():
    async def test():
        house = House(max_live=1)
        taken = house.admission.admit()
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="x")
            error = await peer.message("error", id="a")
            taken.release()
            peer.put(type="speak", id="b", text="x")
            await peer.message("utterance.done", id="b")
        assert error["code"] == "busy"
        assert error["retry_after_ms"] > 0
        assert house.counts.refusals == ["busy"]

    run(test)


def test_refuses_while_the_engine_is_not_ready():
    def not_ready():
        raise EngineBusy(1.0, "the engine is warming up")

    async def test():
        async with House(require_ready=not_ready).open() as peer:
            peer.put(type="speak", id="a", text="x")
            assert (await peer.message("error", id="a"))["message"] == "the engine is warming up"

    run(test)


# Cancelling


def test_cancel_before_the_first_audio_and_the_next_one_speaks():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="old words")
            await gate.arrived(1)
            peer.put(type="utterance.cancel", id="a")
            cancelled = await peer.message("utterance.cancelled", id="a")
            await gate.open()
            peer.put(type="speak", id="b", text="new words")
            await peer.message("utterance.done", id="b")
        assert (cancelled["sent_ms"], cancelled["spoken_text"]) == (0.0, "")
        assert {frame.number for frame in peer.frames} == {2}
        assert house.engine.counts.cancelled == 1
        assert sorted(u.outcome for u in house.counts.utterances) == ["cancelled", "done"]

    run(test)


def test_cancel_in_the_middle_of_a_word():
    async def test():
        gate = ChunkGate()
        async with House(FakeEngine(gate=gate)).open() as peer:
            await gate.allow(3)
            peer.put(type="speak", id="a", text="Hello wonderful world")
            await peer.until(lambda peer: len(peer.frames) == 3)
            peer.put(type="playback", id="a", played_ms=300)
            peer.put(type="utterance.cancel")
            cancelled = await peer.message("utterance.cancelled", id="a")
            await gate.open()
            peer.put(type="speak", id="b", text="next")
            await peer.message("utterance.done", id="b")
        assert (cancelled["sent_ms"], cancelled["played_ms"]) == (305.0, 300.0)  # 5 ms of fade
        assert cancelled["spoken_text"] == "Hello"
        assert [frame.last for frame in peer.frames if frame.number == 1] == [False] * 3 + [True]

    run(test)


def test_the_next_utterance_does_not_wait_for_an_engine_that_is_slow_to_stop():
    class Slow(FakeEngine):
        def __init__(self):
            super().__init__()
            self.may_stop = asyncio.Event()

        async def _synthesize(self, text, voice, options):
            words = "".join([str(piece) async for piece in text])
            try:
                async for chunk in super()._synthesize(_once(words), voice, options):
                    yield chunk
                    if "old" in words:
                        await asyncio.Event().wait()
            finally:
                if "old" in words:
                    await self.may_stop.wait()

    async def test():
        engine = Slow()
        house = House(engine, max_live=1)
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="old old old")
            await peer.until(lambda peer: peer.frames)
            peer.put(type="utterance.cancel", id="a")
            peer.put(type="speak", id="b", text="new")
            await peer.message("utterance.done", id="b")
            engine.may_stop.set()

    run(test)


async def _once(text):
    yield text


def test_cancel_of_waiting_utterances():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            for name in "abc":
                peer.put(type="speak", id=name, text=f"word {name}")
            await gate.arrived(1)
            peer.put(type="utterance.cancel", id="b")
            await peer.message("utterance.cancelled", id="b")
            await gate.open()
            await peer.message("utterance.done", id="c")
        assert {frame.number for frame in peer.frames} == {1, 3}
        assert house.engine.counts.started == 2
        assert len(house.counts.utterances) == 3

    run(test)


# Peers


def test_a_peer_that_leaves_frees_everything():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="one two three")
            peer.put(type="speak", id="b", text="four")
            await gate.arrived(1)
        assert house.engine.counts.cancelled == 1
        assert [u.outcome for u in house.counts.utterances] == ["cancelled"]

    run(test)


def test_a_peer_that_does_not_read_stops_the_engine_and_may_go_on():
    async def test():
        house = House()
        async with house.open() as peer:
            peer.put(type="session.update")
            await peer.message("session.updated")
            peer.stop_reading()
            peer.put(type="speak", id="a", text="word " * 2000)
            await settled(lambda: house.protocol.stream_bytes > MAX_STREAM_BYTES)
            made = house.engine.counts.chunks
            await settled(turns=200)
            assert made > 10
            assert house.engine.counts.chunks == made
            assert house.protocol.stream_bytes <= MAX_STREAM_BYTES + 10_000
            peer.go_on_reading()
            await peer.until(lambda peer: len(peer.frames) > made + 20)

    run(test)


def test_a_stalled_peer_is_dropped(caplog):
    async def test():
        house = House(stall_timeout_s=0.05)
        async with house.open() as peer:
            peer.stop_reading()
            peer.put(type="speak", id="a", text="word " * 2000)
            async with asyncio.timeout(PATIENCE_S):
                await house.session._ended.wait()
        assert peer.aborted
        assert peer.closed is None

    with caplog.at_level(logging.INFO):
        run(test)
    assert "did not read" in caplog.text


def test_a_slow_peer_is_not_dropped():
    class Slow(MemoryTransport):
        """Takes a little of each frame between any two looks."""

        looks = 0
        looked_often = asyncio.Event()

        def unsent_bytes(self):
            self.looks += 1
            if self.looks >= 6:
                self.looked_often.set()
            return 1_000_000 - self.looks

    async def test():
        house = House(stall_timeout_s=0.01)
        house.peer.__class__ = Slow
        async with house.open() as peer:
            peer.stop_reading()
            peer.put(type="session.update")
            async with asyncio.timeout(PATIENCE_S):
                await peer.looked_often.wait()
            peer.go_on_reading()
            await peer.message("session.updated")
        assert not peer.aborted

    run(test)


def test_a_flood_without_reading_is_left_unread():
    async def test():
        house = House()
        async with house.open() as peer:
            peer.stop_reading()
            for _ in range(5000):
                peer.put("nonsense")
            await settled(lambda: house.protocol.reading_paused, turns=20_000)
            await settled(turns=100)
            assert peer.waiting_messages() > 3000
            peer.go_on_reading()
            await peer.until(lambda peer: len(peer.sent) == 5001)

    run(test)


def test_a_mistake_of_ours_in_one_message_does_not_end_the_session(caplog):
    async def test():
        house = House()
        async with house.open() as peer:
            receive, house.protocol.receive_text = house.protocol.receive_text, None
            peer.put(type="session.update")
            await peer.message("error", code="internal")
            house.protocol.receive_text = receive
            peer.put(type="session.update")
            await peer.message("session.updated")

    with caplog.at_level(logging.ERROR):
        run(test)
    assert "TypeError" in caplog.text


def test_a_failure_of_the_session_itself_closes_with_1011(caplog):
    async def test():
        house = House()
        async with house.open() as peer:
            peer.receive = None
            peer.put(type="session.update")
            async with asyncio.timeout(PATIENCE_S):
                await house.session._ended.wait()
        assert peer.closed == (1011, "internal error")

    with caplog.at_level(logging.ERROR):
        run(test)
    assert "TypeError" in caplog.text


# The end of the server


def test_drain_lets_utterances_finish_and_closes():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="one")
            await gate.arrived(1)
            draining = asyncio.create_task(house.session.drain(PATIENCE_S))
            await peer.message("error", code="shutting_down")
            peer.put(type="speak", id="b", text="two")
            await peer.message("error", id="b", code="shutting_down")
            await gate.open()
            await draining
        assert peer.closed == (1001, "the server stops")
        assert [m["id"] for m in peer.messages if m["type"] == "utterance.done"] == ["a"]

    run(test)


def test_drain_ends_what_does_not_finish_in_time():
    async def test():
        gate = ChunkGate()
        house = House(FakeEngine(gate=gate))
        async with house.open() as peer:
            peer.put(type="speak", id="a", text="one")
            await gate.arrived(1)
            await house.session.drain(0)
        assert peer.closed == (1001, "the server stops")
        assert [m.get("id") for m in peer.messages if m["type"] == "error"] == [None, "a"]

    run(test)


def test_sessions_bound_their_number_and_drain_together():
    async def test():
        engine = FakeEngine()
        voices = StaticVoices(engine)
        speech = SpeechService(engine, voices, Admission(8))
        sessions = Sessions(speech, voices, Counts(), max_sessions=2)
        peers = [MemoryTransport() for _ in range(2)]
        serving = [asyncio.create_task(sessions.serve(peer, raw_framing=False)) for peer in peers]
        for peer in peers:
            await peer.message("session.ready")
        with pytest.raises(EngineBusy):
            sessions.check_room()
        await sessions.drain(1)
        await asyncio.gather(*serving)
        assert [peer.closed[0] for peer in peers] == [1001, 1001]
        assert sessions.live == 0
        with pytest.raises(ShuttingDown):
            sessions.check_room()

    run(test)


# Recordings


def microphone(seconds, rate=16_000):
    tone = np.sin(np.arange(int(seconds * rate)) * 0.1) * 8000
    return tone.astype("<i2").tobytes()


def test_a_recording_becomes_a_voice_of_the_session():
    async def test():
        house = House()
        async with house.open() as peer:
            peer.put(type="voice.begin", name="Me", transcript="hello")
            audio = microphone(1.0)
            for start in range(0, len(audio), 641):  # cuts samples in two
                peer.put(audio[start : start + 641])
            await peer.until(
                lambda peer: (
                    [m["captured_ms"] for m in peer.messages if "captured_ms" in m][-1:] == [1000]
                )
            )
            peer.put(type="voice.commit")
            ready = await peer.message("voice.ready")
            assert (ready["voice"]["name"], ready["transcript"]) == ("Me", "hello")
            assert ready["warnings"] == ["a warning"]
            peer.put(type="speak", id="a", text="x", voice=ready["voice"]["id"])
            await peer.message("utterance.done")
            assert house.voices.made
        (samples,) = house.voices.samples
        assert len(samples) == 16_000
        assert np.abs(samples).max() < 0.25
        assert house.voices.requests[0].persist is False
        assert house.voices.made == {}  # dropped with the session
        assert house.counts.enrolments == ["accepted"]

    run(test)


def test_a_stored_voice_outlives_the_session():
    async def test():
        house = House()
        async with house.open() as peer:
            peer.put(type="voice.begin", persist=True)
            peer.put(microphone(0.1))
            peer.put(type="voice.commit")
            await peer.message("voice.ready")
        assert len(house.voices.made) == 1

    run(test)


def test_a_recording_that_cannot_be_used():
    async def test():
        house = House()
        house.voices.rejection = EnrolmentRejected("too_short", "m", "speak longer", {"a": 1})
        async with house.open() as peer:
            peer.put(type="voice.begin")
            peer.put(type="voice.commit")
            rejected = await peer.message("voice.rejected")
            peer.put(type="voice.begin")
            house.voices.rejection = EngineBusy(1)
            peer.put(type="voice.commit")
            assert (await peer.message("error"))["code"] == "busy"
        assert (rejected["reason"], rejected["how_to_fix"]) == ("too_short", "speak longer")
        assert house.counts.enrolments == ["rejected", "failed"]

    run(test)


def test_speaking_and_enrolling_do_not_wait_for_each_other():
    async def test():
        house = House()
        house.voices.gate = asyncio.Event()
        async with house.open() as peer:
            peer.put(type="voice.begin")
            peer.put(type="voice.commit")
            peer.put(type="speak", id="a", text="meanwhile")
            await peer.message("utterance.done")
            house.voices.gate.set()
            await peer.message("voice.ready")

    run(test)


def test_a_recording_that_is_too_long():
    async def test():
        async with House(limits=Limits(max_recording_s=0.5)).open() as peer:
            peer.put(type="voice.begin")
            peer.put(microphone(0.6))
            assert (await peer.message("error"))["code"] == "limit_exceeded"
            peer.put(type="voice.begin", input={"encoding": "pcm_f32le", "sample_rate": 44_100})
            peer.put(np.full(22_050, np.nan, "<f4").tobytes())
            assert (await peer.message("voice.progress"))["level_dbfs"] < -60

    run(test)
