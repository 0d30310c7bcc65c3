"""Speak a text stream, with an engine in this process or with a server."""

from __future__ import annotations

import codecs
import os
import select
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.daemon_call import call_in_daemon
from cosyvoice_stream.server.say_output import Outputs
from cosyvoice_stream.types import Samples, SynthesisOptions, Voice

if TYPE_CHECKING:
    from cosyvoice_stream.server.client import Session

AUDIBLE: Final = 10 ** (-50 / 20)
READ_BYTES: Final = 4096


@dataclass
class Summary:
    """What happened, for the line at the end."""

    first_audio_ms: float | None = None
    """From the arrival of the text that completed the first clause to the first audible sample, or
    to the first audio, where a server says it."""
    audio_s: float = 0.0
    rtf: float | None = None
    """Seconds of computing per second of audio; waiting for text and for the listener is none."""

    def line(self) -> str:
        """One sentence."""
        if not self.audio_s:
            return "nothing to say"
        parts = [f"{self.audio_s:.2f} s of audio"]
        if self.first_audio_ms is not None:
            parts.append(f"first audio after {self.first_audio_ms:.0f} ms")
        if self.rtf is not None:
            parts.append(f"real-time factor {self.rtf:.3f}")
        return ", ".join(parts)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:  # somebody has set the pipe to non-blocking
        select.select([descriptor], [], [])
        return os.read(descriptor, READ_BYTES)
    except OSError as error:
        raise ConfigError(
            f"standard input cannot be read: {error.strerror}",
            how_to_fix='give the text as an argument: cosyvoice-stream say "Hello."',
        ) from error


async def read_stream(descriptor: int) -> AsyncIterator[str]:
    """Text from a pipe as it arrives, without waiting for a line or the end.

    Args:
        descriptor: File descriptor of UTF-8 text; what is not UTF-8 becomes U+FFFD.

    Raises:
        ConfigError: It cannot be read.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await call_in_daemon(_read, descriptor):
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def one_text(text: str) -> AsyncIterator[str]:
    """A text that is already there, as a stream."""
    yield text


async def speak_locally(
    engine: Engine,
    text: AsyncIterator[str],
    voice: Voice,
    options: SynthesisOptions,
    outputs: Outputs,
    *,
    clean: bool = True,
) -> Summary:
    """Speak with an engine in this process."""
    from cosyvoice_stream.server.text_stages import TextStages
    from cosyvoice_stream.server.text_way import TextWay

    stages = TextStages(
        engine.info, clean=clean, normalize=options.normalize, language=options.language
    )
    way = TextWay(text, stages, time.monotonic)
    summary = Summary()
    rate = engine.info.sample_rate
    compute_s = 0.0
    stream = engine.synthesize(way.fragments(), voice, replace(options, normalize=False))
    try:
        while True:
            began, text_before_s = time.monotonic(), way.waited_s()
            chunk = await anext(stream, None)
            if chunk is None:
                break
            now = time.monotonic()
            if chunk.compute_s is not None:
                compute_s += chunk.compute_s
            else:
                compute_s += max(0.0, now - began - (way.waited_s() - text_before_s))
            if summary.first_audio_ms is None and _audible(chunk.samples):
                since = next((t for t in (way.clause_at, way.arrived_at) if t is not None), began)
                summary.first_audio_ms = (now - since) * 1e3
            summary.audio_s += len(chunk.samples) / rate
            await call_in_daemon(outputs.write, chunk.samples)
        await call_in_daemon(outputs.finish)
    except BaseException:
        outputs.abandon()
        raise
    finally:
        # In this order: until the engine is closed it may be reading the text.
        await stream.aclose()
        await way.aclose()
    summary.rtf = compute_s / summary.audio_s if summary.audio_s else None
    return summary


async def speak_remotely(
    session: Session, text: AsyncIterator[str], outputs: Outputs, rate: int, **options: Any
) -> Summary:
    """Speak with a server; `options` ask for plain samples at `rate`, in hertz."""
    summary = Summary()
    try:
        utterance = await session.speak(text, **options)
        async for chunk in utterance:
            samples = chunk.samples
            summary.audio_s += len(samples) / rate
            await call_in_daemon(outputs.write, samples)
        await call_in_daemon(outputs.finish)
    except BaseException:
        outputs.abandon()
        raise
    if utterance.done is not None:
        summary.first_audio_ms, summary.rtf = utterance.done.first_audio_ms, utterance.done.rtf
    return summary


def _audible(samples: Samples) -> bool:
    return bool(np.abs(samples).max(initial=0.0) > AUDIBLE)
