"""Speaking into memory: text from descriptors, summaries, interruption."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.errors import ConfigError, SynthesisFailed
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.daemon_call import call_in_daemon
from cosyvoice_stream.server.say import Summary, one_text, read_stream, speak_locally
from cosyvoice_stream.server.say_output import Outputs, encoding_of, open_outputs
from cosyvoice_stream.types import Samples, SynthesisOptions

pytestmark = pytest.mark.unit


@dataclass
class Memory:
    """An output that keeps everything."""

    samples: list[Samples] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    def write(self, samples: Samples) -> None:
        self.samples.append(samples)

    def finish(self) -> None:
        self.ends.append("finished")

    def abandon(self) -> None:
        self.ends.append("abandoned")


async def speak(engine: FakeEngine, text: AsyncIterator[str], memory: Memory) -> Summary:
    await engine.start()
    voice = engine.info.voices[0]
    return await speak_locally(engine, text, voice, SynthesisOptions(), Outputs([memory]))


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_any_cutting_of_the_input_gives_the_same_text(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]

    async def work() -> str:
        reading, writing = os.pipe()
        try:
            text = []
            stream = read_stream(reading)
            feeding = asyncio.create_task(_feed(writing, pieces))
            async for piece in stream:
                text.append(piece)
            await feeding
            return "".join(text)
        finally:
            os.close(reading)

    assert asyncio.run(work()) == data.decode("utf-8", "replace")


async def _feed(descriptor: int, pieces: list[bytes]) -> None:
    for piece in pieces:
        os.write(descriptor, piece)
        await asyncio.sleep(0)
    os.close(descriptor)


def test_text_is_read_without_waiting_for_a_line_or_the_end() -> None:
    async def work() -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)  # as some parents leave their pipes
        stream = read_stream(reading)
        try:
            first = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            os.write(writing, b"Hel\xc3")
            assert await first == "Hel"
            os.write(writing, b"\xb6")
            assert await anext(stream) == "ö"
            os.close(writing)
            assert await anext(stream, None) is None
        finally:
            os.close(reading)

    asyncio.run(work())


def test_input_that_cannot_be_read_is_an_error_with_a_cure(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)

    async def work() -> None:
        async for _ in read_stream(folder):
            pass

    try:
        with pytest.raises(ConfigError, match="Is a directory") as refused:
            asyncio.run(work())
        assert refused.value.how_to_fix
    finally:
        os.close(folder)


def test_summary_counts_audio_and_leaves_waiting_for_text_out() -> None:
    arrived = []

    async def slow() -> AsyncIterator[str]:
        await asyncio.sleep(0.3)
        arrived.append(1)
        yield "hello world"

    memory = Memory()
    summary = asyncio.run(speak(FakeEngine(), slow(), memory))
    assert summary.audio_s == pytest.approx(0.55)
    assert summary.first_audio_ms is not None
    assert summary.first_audio_ms < 250
    assert summary.rtf is not None
    assert summary.rtf < 0.4
    assert memory.ends == ["finished"]
    assert sum(map(len, memory.samples)) == 1200 * 11
    assert summary.line().startswith("0.55 s of audio, first audio after ")


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (Summary(), "nothing to say"),
        (Summary(None, 1.0, None), "1.00 s of audio"),
        (Summary(12.4, 2.5, 0.0213), "2.50 s of audio, first audio after 12 ms, "
         "real-time factor 0.021"),
    ],
)  # fmt: skip
def test_summary_says_what_is_known(summary: Summary, line: str) -> None:
    assert summary.line() == line


def test_failure_abandons_the_output_and_leaves_nothing_running() -> None:
    engine, memory = FakeEngine(fail_on={"boom": RuntimeError("x")}), Memory()
    with pytest.raises(SynthesisFailed):
        asyncio.run(speak(engine, one_text("some words then boom"), memory))
    assert memory.ends == ["abandoned"]
    assert engine.counts.live == 0


def test_cancelling_abandons_the_output_and_closes_the_text() -> None:
    async def work() -> None:
        gate, memory, closed = ChunkGate(), Memory(), asyncio.Event()
        engine = FakeEngine(gate=gate)

        async def writing() -> AsyncIterator[str]:
            try:
                yield "some words "
                await asyncio.Event().wait()
            finally:
                closed.set()

        task = asyncio.create_task(speak(engine, writing(), memory))
        await gate.arrived(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert memory.ends == ["abandoned"]
        assert (closed.is_set(), engine.counts.live) == (True, 0)

    asyncio.run(work())


def test_call_in_a_daemon_gives_results_and_errors() -> None:
    async def work() -> None:
        assert await call_in_daemon(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await call_in_daemon(divmod, 7, 0)

    asyncio.run(work())


def test_call_that_blocks_does_not_hold_up_the_loop() -> None:
    release = threading.Event()

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await call_in_daemon(release.wait)

    asyncio.run(work())
    blocked = [t for t in threading.enumerate() if t.name == "blocking call"]
    assert [thread.daemon for thread in blocked] == [True]
    release.set()
    for thread in blocked:
        thread.join()


@pytest.mark.parametrize(
    ("path", "wanted", "encoding"),
    [("x.wav", None, "wav"), ("X.OGG", None, "opus"), ("-", None, "wav"), ("x", "mp3", "mp3")],
)
def test_encoding_of_a_file(path: str, wanted: str | None, encoding: str) -> None:
    assert encoding_of(path, wanted) == encoding


def test_abandoned_file_is_valid_and_a_late_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    with ExitStack() as stack:
        outputs = open_outputs(
            stack, str(path), play=False, engine_rate=24_000, encoding=None, sample_rate=24_000
        )
        outputs.write(np.full(2400, 0.5, np.float32))
        outputs.abandon()
        outputs.write(np.full(2400, 0.5, np.float32))
        outputs.finish()
        outputs.abandon()
    data = path.read_bytes()
    assert int.from_bytes(data[40:44], "little") == len(data) - 44 == 4800


def test_pipe_without_a_reader_is_given_up_in_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with ExitStack() as stack:
        outputs = open_outputs(
            stack, str(path), play=False, engine_rate=24_000, encoding="wav", sample_rate=24_000
        )

        def flood() -> None:
            with pytest.raises(BrokenPipeError):
                outputs.write(np.zeros(1_000_000, np.float32))

        writing = threading.Thread(target=flood, name="cosyvoice-flood")
        writing.start()
        select.select([reader], [], [])
        outputs.abandon()
        os.close(reader)
        writing.join(5)
        assert not writing.is_alive()
