"""The asyncio client against a real server: texts, order, cancels, failures, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.decode import decode_audio
from cosyvoice_stream.errors import InvalidOption, PeerGone, ServerError, UnsupportedFormat
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.client import Session, connect
from cosyvoice_stream.server.client_utterance import MAX_BUFFERED_BYTES
from cosyvoice_stream.types import FLUSH
from support.served import Served, serving

pytestmark = pytest.mark.integration

CHAR_SAMPLES = 1200
"""Of `FakeEngine`: 50 ms per character at 24 kHz; a gap between words is as long."""


def address(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


@asynccontextmanager
async def talking(
    folder: Path, engine: FakeEngine | None = None, **settings: Any
) -> AsyncIterator[tuple[Session, Served]]:
    """A session with a server; afterwards no task of the client and no utterance is left."""
    async with serving(folder, engine, **settings) as served:
        before = asyncio.all_tasks()
        async with connect(address(served)) as session:
            yield session, served
        left = {task for task in asyncio.all_tasks() - before if "client" in task.get_name()}
        assert left == set()


def run(
    folder: Path,
    work: Callable[[Session, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    async def whole() -> None:
        async with talking(folder, engine, **settings) as (session, served):
            await work(session, served)

    asyncio.run(whole())


async def tokens(*pieces: str) -> AsyncIterator[str]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


class OnlyIterable:
    """Has `__aiter__` and nothing else, as the streams of LLM libraries do."""

    def __aiter__(self) -> AsyncIterator[str]:
        return tokens("hello ", "wor", "ld")


@pytest.mark.parametrize(
    "make",
    [
        lambda: "hello world",
        lambda: ["hello ", "wor", "ld"],
        lambda: ("hello ", FLUSH, "world"),
        lambda: iter(["hello world"]),
        lambda: tokens("hel", "lo ", "world"),
        OnlyIterable,
    ],
    ids=["str", "list", "flush", "iterator", "async generator", "async iterable"],
)
def test_text_in_every_form_is_spoken(tmp_path: Path, make: Callable[[], Any]) -> None:
    async def work(session: Session, _: Served) -> None:
        utterance = await session.speak(make())
        samples = await utterance.read()
        assert (samples.dtype, samples.ndim) == (np.float32, 1)
        assert len(samples) == CHAR_SAMPLES * len("hello world")
        assert utterance.done is not None
        assert utterance.done.characters == len("hello world")
        assert utterance.ended

    run(tmp_path, work)


def test_text_longer_than_a_message_is_sent_in_parts(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        text = "ab " * 20_000
        utterance = await session.speak(text)
        async for _chunk in utterance:
            pass
        assert utterance.done is not None
        assert utterance.done.characters == len(text)

    run(tmp_path, work, FakeEngine(ms_per_char=0.1))


def test_audio_comes_while_the_text_is_being_written(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        heard = asyncio.Event()

        async def writing() -> AsyncIterator[str]:
            yield "first words here "
            await heard.wait()
            yield "and the rest"

        utterance = await session.speak(writing())
        pieces = []
        async for chunk in utterance:
            heard.set()
            pieces.append(chunk)
        assert pieces[-1].last
        assert sum(len(piece.samples) for piece in pieces) == CHAR_SAMPLES * 29

    run(tmp_path, work)


def test_flush_each_speaks_what_would_wait(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        heard = asyncio.Event()

        async def writing() -> AsyncIterator[str]:
            yield "word"
            await heard.wait()

        utterance = await session.speak(writing(), flush_each=True)
        async for _chunk in utterance:
            heard.set()

    run(tmp_path, work)


def test_several_utterances_are_spoken_in_order(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        words = ("a", "bcd", "efghi")
        utterances = [await session.speak(word) for word in words]
        lengths = [len(await utterance.read()) for utterance in utterances]
        assert lengths == [CHAR_SAMPLES * len(word) for word in words]
        assert [u.started.number for u in utterances if u.started] == [1, 2, 3]

    run(tmp_path, work)


def test_utterances_can_be_read_at_the_same_time(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        utterances = [await session.speak(f"letter {letter}") for letter in "ABCDE"]
        read = await asyncio.gather(*(utterance.read() for utterance in reversed(utterances)))
        assert {len(samples) for samples in read} == {CHAR_SAMPLES * len("letter A")}

    run(tmp_path, work)


def test_chunks_are_contiguous_and_words_come_no_later_than_their_audio(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        text = "say **these** words"
        utterance = await session.speak(text, marks=["word", "viseme"])
        position, words, visemes = 0, [], []
        async for chunk in utterance:
            assert chunk.first_sample == position
            assert chunk.start_ms == pytest.approx(1000 * position / 24_000)
            assert all(word.start_ms >= chunk.start_ms - 1 for word in chunk.words)
            words += chunk.words
            visemes += chunk.visemes
            position += len(chunk.samples)
        spoken = [text[word.char_start : word.char_end] for word in words]
        assert [word.text for word in words] == ["say", "these", "words"]
        assert spoken == ["say", "these", "words"]
        assert words[-1].end_ms == pytest.approx(1000 * position / 24_000)
        assert visemes

    run(tmp_path, work)


@pytest.mark.parametrize("frame_ms", [0, 20])
@pytest.mark.parametrize(
    ("encoding", "rate", "error"),
    [
        ("pcm_s16le", 24_000, 1e-4),
        ("pcm_s16le", 8000, 0.1),
        ("pcm_f32le", 24_000, 0),
        ("wav", 24_000, 1e-4),
        ("wav", 44_100, 0.1),
        ("mulaw", 24_000, 0.02),
        ("alaw", 24_000, 0.02),
    ],
)
def test_plain_encodings_come_out_as_the_same_samples(
    tmp_path: Path, encoding: str, rate: int, error: float, frame_ms: int
) -> None:
    async def work(session: Session, _: Served) -> None:
        exact = await (await session.speak("hello", output={"encoding": "pcm_f32le"})).read()
        output = {"encoding": encoding, "sample_rate": rate, "frame_ms": frame_ms}
        utterance = await session.speak("hello", output=output)
        samples = await utterance.read()
        assert utterance.started is not None
        assert (utterance.started.encoding, utterance.started.sample_rate) == (encoding, rate)
        assert len(samples) == len(exact) * rate // 24_000
        if rate == 24_000:
            assert np.abs(samples - exact).max() <= error
        assert np.sqrt(np.mean(samples**2)) == pytest.approx(np.sqrt(np.mean(exact**2)), rel=0.05)

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("encoding", "rate"), [("opus", 48_000), ("mp3", 24_000), ("flac", 24_000), ("aac", 24_000)]
)
def test_compressed_encodings_come_as_bytes(tmp_path: Path, encoding: str, rate: int) -> None:
    async def work(session: Session, _: Served) -> None:
        output = {"encoding": encoding, "sample_rate": rate}
        utterance = await session.speak("hello there", output=output)
        chunks = [chunk async for chunk in utterance]
        with pytest.raises(UnsupportedFormat, match=encoding):
            _ = chunks[0].samples
        decoded = decode_audio(b"".join(chunk.data for chunk in chunks), max_seconds=60)
        assert decoded.codec == encoding
        assert len(decoded.samples) / decoded.sample_rate == pytest.approx(0.55, abs=0.1)

    run(tmp_path, work)


def test_options_reach_the_utterance_and_update_the_session(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        updated = await session.update(speed=2.0, text_options={"clean": False}, voice="boop")
        assert (updated.settings.speed, updated.settings.text.clean) == (2.0, False)
        assert len(await (await session.speak("hello")).read()) == CHAR_SAMPLES * 5 // 2
        slow = await session.speak("hello", speed=0.5, voice="beep", seed=7)
        assert len(await slow.read()) == CHAR_SAMPLES * 5 * 2
        assert slow.started is not None
        assert (slow.started.voice, slow.started.seed) == ("beep", 7)

    run(tmp_path, work)


def test_options_of_connect_are_defaults_of_the_session(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            serving(tmp_path) as served,
            connect(address(served), speed=2.0, text_options={"clean": False}) as session,
        ):
            assert len(await (await session.speak("hello")).read()) == CHAR_SAMPLES * 5 // 2

    asyncio.run(work())


def test_wrong_option_of_connect_is_an_error_and_leaves_no_task(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            before = asyncio.all_tasks()
            with pytest.raises(ServerError) as refused:
                async with connect(address(served), speed=9):
                    pass
            assert refused.value.code in ("invalid_option", "invalid_message")
            left = asyncio.all_tasks() - before
            assert [task for task in left if "client" in task.get_name()] == []

    asyncio.run(work())


def test_error_about_another_message_is_no_answer_to_a_question(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        await session.send({"type": "voice.commit"})
        await session.send({"type": "nonsense"})
        assert (await session.update(speed=2.0)).settings.speed == 2.0
        await session.send({"type": "voice.commit"})
        with pytest.raises(ServerError, match="speed"):
            await session.update(speed=9)

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"speed": 9}, "invalid_option"),
        ({"voice": "nobody"}, "voice_not_found"),
        ({"colour": "red"}, "invalid_message"),
        ({"output": {"encoding": "gsm"}}, "unsupported_format"),
    ],
)
def test_wrong_option_fails_its_utterance_only(
    tmp_path: Path, options: dict[str, Any], code: str
) -> None:
    async def work(session: Session, _: Served) -> None:
        before = await session.speak("one")
        wrong = await session.speak("two", **options)
        after = await session.speak("three")
        assert len(await before.read()) == CHAR_SAMPLES * 3
        with pytest.raises(ServerError) as refused:
            await wrong.read()
        assert refused.value.code == code
        assert len(await after.read()) == CHAR_SAMPLES * 5

    run(tmp_path, work)


def test_number_that_json_cannot_say_is_refused_at_once(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        with pytest.raises(InvalidOption):
            await session.speak("x", speed=float("nan"))
        with pytest.raises(InvalidOption):
            await session.update(volume=float("inf"))
        assert len(await (await session.speak("one")).read()) == CHAR_SAMPLES * 3

    run(tmp_path, work)


def test_failing_word_fails_its_utterance_after_the_audio_before_it(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        broken = await session.speak("some good words then boom and more")
        fine = await session.speak("fine")
        heard = [await anext(broken)]
        with pytest.raises(ServerError) as failed:
            heard += [chunk async for chunk in broken]
        assert failed.value.code == "synthesis_failed"
        assert len(heard[0].samples) > 0
        assert len(await fine.read()) == CHAR_SAMPLES * 4

    run(tmp_path, work, FakeEngine(fail_on={"boom": RuntimeError("a bug")}))


def test_error_of_the_callers_own_text_reaches_the_caller(tmp_path: Path) -> None:
    async def work(session: Session, served: Served) -> None:
        async def writing() -> AsyncIterator[str]:
            yield "some words "
            raise KeyError("the LLM")

        broken = await session.speak(writing())
        fine = await session.speak("fine")
        with pytest.raises(KeyError, match="the LLM"):
            await broken.read()
        assert len(await fine.read()) == CHAR_SAMPLES * 4
        assert served.services.admission.live == 0

    run(tmp_path, work)


def test_text_that_is_no_text_is_an_error_of_its_utterance(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        broken = await session.speak(["some ", None])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            await broken.read()
        assert len(await (await session.speak("fine")).read()) == CHAR_SAMPLES * 4

    run(tmp_path, work)


def test_text_that_is_still_being_written_is_closed_when_its_utterance_fails(
    tmp_path: Path,
) -> None:
    async def work(session: Session, _: Served) -> None:
        closed = asyncio.Event()

        async def writing() -> AsyncIterator[str]:
            try:
                yield "boom boom boom. "
                await asyncio.Event().wait()
            finally:
                closed.set()

        broken = await session.speak(writing())
        with pytest.raises(ServerError):
            await broken.read()
        await closed.wait()

    run(tmp_path, work, FakeEngine(fail_on={"boom": RuntimeError("a bug")}))


def test_full_buffer_pauses_the_connection_and_loses_nothing(tmp_path: Path) -> None:
    async def work(session: Session, served: Served) -> None:
        words = 2000
        utterance = await session.speak("word " * words, output={"encoding": "pcm_f32le"})
        await _paused(session)
        waiting = utterance._buffered
        assert MAX_BUFFERED_BYTES < waiting < MAX_BUFFERED_BYTES + 1_000_000
        assert served.services.admission.live == 1
        samples = await utterance.read()
        assert len(samples) == CHAR_SAMPLES * (5 * words - 1)

    run(tmp_path, work)


async def _paused(session: Session) -> None:
    """Wait until the client has stopped reading its socket."""
    while session._socket.transport.is_reading():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_answers_arrive_although_nobody_reads_audio(tmp_path: Path) -> None:
    async def work(session: Session, _: Served) -> None:
        first = await session.speak("word " * 2000, output={"encoding": "pcm_f32le"})
        second = await session.speak("second")
        await _paused(session)
        assert (await session.update(speed=2.0)).settings.speed == 2.0
        assert (await second.cancel()).sent_ms == 0
        assert len(await first.read()) == CHAR_SAMPLES * (5 * 2000 - 1)

    run(tmp_path, work)


def test_session_that_nobody_reads_closes_quickly(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            async with connect(address(served)) as session:
                utterance = await session.speak("word " * 2000)
                await _paused(session)
                began = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - began < 1.5
            with pytest.raises(PeerGone):
                await utterance.read()
            with pytest.raises(PeerGone):
                await session.speak("more")
            await session.close()

    asyncio.run(work())


@pytest.mark.parametrize("gated", [True, False])
def test_leaving_in_the_middle_of_an_utterance_leaves_nothing(tmp_path: Path, gated: bool) -> None:
    engine = FakeEngine(gate=ChunkGate() if gated else None)

    async def work(session: Session, _: Served) -> None:
        async def writing() -> AsyncIterator[str]:
            yield "some words "
            await asyncio.Event().wait()

        await session.speak(writing())
        await session.speak("waiting")

    run(tmp_path, work, engine)
    assert engine.counts.live == 0
