"""One utterance as its listener sees it, without a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from cosyvoice_stream.errors import PeerGone, ServerError, UnsupportedFormat
from cosyvoice_stream.server.client_utterance import MAX_BUFFERED_BYTES, AudioChunk, Utterance
from cosyvoice_stream.server.encoders import PLAIN, make_encoder
from cosyvoice_stream.server.wire import AudioHeader, UtteranceDone, UtteranceStarted

pytestmark = pytest.mark.unit

DONE = UtteranceDone(id="u1", audio_ms=1, first_audio_ms=1, rtf=0.1, characters=1)
ERROR = ServerError("internal", "oh")


def utterance(encoding: str = "pcm_s16le") -> tuple[Utterance, list[str]]:
    """A started utterance, and what it asks of its session."""
    asked: list[str] = []

    async def cancel(_: Utterance) -> None:
        asked.append("cancel")

    session = SimpleNamespace(wake_reader=lambda: asked.append("wake"), cancel=cancel)
    made = Utterance(session, "u1")  # type: ignore[arg-type]
    made.started = UtteranceStarted(
        id="u1",
        number=1,
        voice="v",
        seed=1,
        encoding=encoding,
        sample_rate=24_000,
        channels=1,
        bytes_per_sample=2,
        byte_order="little",
        mime="audio/pcm",
        warnings=[],
    )
    return made, asked


def put(made: Utterance, data: bytes, first: int = 0, *, last: bool = False) -> None:
    made.put_audio(AudioHeader(1, first, last), data)


def heard(made: Utterance) -> list[bytes]:
    async def work() -> list[bytes]:
        return [chunk.data async for chunk in made]

    return asyncio.run(work())


@pytest.mark.parametrize("encoding", sorted(PLAIN))
def test_samples_of_a_chunk_are_those_that_were_encoded(encoding: str) -> None:
    samples = np.sin(np.arange(480) / 10).astype(np.float32) * 0.5
    encoder = make_encoder(encoding, 24_000, 24_000, 0)
    data = b"".join([*encoder.push(samples), *encoder.flush()])
    chunk = AudioChunk(data, encoding, 24_000, 0, True)
    assert np.abs(chunk.samples - samples).max() < 0.02


def test_only_the_first_chunk_of_a_wav_has_a_header() -> None:
    data = bytes(200)
    assert len(AudioChunk(data, "wav", 24_000, 0, False).samples) == 78
    assert len(AudioChunk(data, "wav", 24_000, 78, False).samples) == 100


def test_compressed_chunk_has_no_samples_and_says_what_to_do() -> None:
    with pytest.raises(UnsupportedFormat, match="mp3") as refused:
        _ = AudioChunk(b"x", "mp3", 24_000, 0, False).samples
    assert refused.value.how_to_fix


def test_start_of_a_chunk() -> None:
    assert AudioChunk(b"", "pcm_s16le", 24_000, 12_000, False).start_ms == 500


def test_what_has_arrived_is_read_before_the_end_and_before_an_error() -> None:
    made, _ = utterance()
    put(made, b"ab")
    made.finish(DONE)
    assert heard(made) == [b"ab"]
    assert heard(made) == []

    failed, _ = utterance()
    put(failed, b"ab")
    failed.fail(ERROR)

    async def work() -> None:
        assert (await anext(failed)).data == b"ab"
        for _ in range(2):
            with pytest.raises(ServerError):
                await anext(failed)

    asyncio.run(work())


def test_audio_behind_the_end_is_dropped() -> None:
    made, _ = utterance()
    made.fail(KeyError("the caller's text"))
    put(made, b"ab")
    assert not made._chunks


def test_full_buffer_is_said_and_reading_makes_room() -> None:
    made, asked = utterance()
    put(made, bytes(MAX_BUFFERED_BYTES))
    assert not made.is_full
    put(made, b"ab")
    assert made.is_full

    async def work() -> None:
        await anext(made)

    asyncio.run(work())
    assert not made.is_full
    assert asked == ["wake"]


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_full_buffer_of_what_has_ended_holds_up_nobody(end: str) -> None:
    made, asked = utterance()
    put(made, bytes(MAX_BUFFERED_BYTES + 2))
    if end == "fail":
        made.fail(ERROR)
    else:
        made._drop()
    assert not made.is_full
    assert "wake" in asked


def test_first_error_stays_and_no_error_follows_a_good_end() -> None:
    made, _ = utterance()
    made.fail(ERROR)
    made.fail(PeerGone("later"))
    assert made._error is ERROR
    complete, _ = utterance()
    complete.finish(DONE)
    complete.fail(PeerGone("the session is closed"))
    assert heard(complete) == []


def test_failed_cancel_of_something_complete_is_an_error_of_the_cancel() -> None:
    made, asked = utterance()
    made.finish(DONE)

    async def work() -> None:
        async def refuse(_: Utterance) -> None:
            made.fail(ServerError("unknown_utterance", "forgotten"))

        made._session.cancel = refuse  # type: ignore[method-assign]
        with pytest.raises(ServerError, match="forgotten"):
            await made.cancel()

    asyncio.run(work())


def test_read_of_nothing_is_an_empty_array() -> None:
    made, _ = utterance()
    made.finish(DONE)
    samples = asyncio.run(made.read())
    assert (samples.dtype, samples.shape) == (np.float32, (0,))
