"""Keeps what was spoken, so that the same request is not spoken again.

What is kept is what the engine made, before sound shaping and encoding: a hit in any encoding, rate
or loudness, and its marks, pacing and cancelling are those of an utterance that was just made.
Texts are kept as digests only. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakSet

from cosyvoice_stream.types import Flush, PcmChunk, Samples, SynthesisOptions, Voice

MAX_CHARS: Final = 2000
"""Longer texts are not kept; nobody says them twice."""
_BETWEEN: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class RequestName:
    """What was asked for: two requests with the same name get the same samples."""

    digest: bytes
    """Of the engine, the text, the voice and every option but the seed."""
    voice_id: str
    seed: int | None
    """None where the request leaves it open."""


def request_name(
    fingerprint: str, text: Sequence[str | Flush], voice: Voice, options: SynthesisOptions
) -> RequestName:
    """Name a request.

    Args:
        fingerprint: Of the engine.
        text: All that it will be given.
        voice: Speaks.
        options: As the client left them; the seed may be open.
    """
    said = "".join("\f" if isinstance(piece, Flush) else piece for piece in text)
    how = replace(options, seed=None, background=False)
    whole = _BETWEEN.join((fingerprint, voice.engine, voice.voice_id, repr(how), said))
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()
    return RequestName(digest, voice.voice_id, options.seed)


@dataclass(frozen=True, slots=True)
class KeptSpeech:
    """An utterance as the engine made it."""

    seed: int
    chunks: tuple[PcmChunk, ...]
    size_bytes: int
    pinned: bool

    async def play(self) -> AsyncGenerator[PcmChunk, None]:
        """The chunks, as the engine would give them, but at once."""
        for chunk in self.chunks:
            yield chunk
            await asyncio.sleep(0)


class AudioCache:
    """Finds and keeps utterances; the one used longest ago goes first.

    Args:
        max_bytes: Of samples, those included that are being recorded.
        unseeded: Answer requests that leave the seed open with what the last one got. Without it
            only pinned utterances answer them.
    """

    def __init__(self, max_bytes: int, *, unseeded: bool = False) -> None:
        self._max_bytes = max_bytes
        self._unseeded = unseeded
        self._kept: OrderedDict[RequestName, KeptSpeech] = OrderedDict()
        # Those that are never begun are empty and vanish with the generator.
        self._recordings: WeakSet[_Recording] = WeakSet()
        self.size_bytes = 0
        """Of everything that is kept or being recorded."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def pinned(self) -> int:
        """Utterances that are kept for good."""
        return sum(kept.pinned for kept in self._kept.values())

    def find(self, name: RequestName) -> KeptSpeech | None:
        """Look for an utterance; one that is found counts as used."""
        kept = self._kept.get(name)
        if kept is not None:
            self._kept.move_to_end(name)
        return kept

    def record(
        self,
        name: RequestName,
        seed: int,
        chunks: AsyncGenerator[PcmChunk, None],
        *,
        pinned: bool = False,
    ) -> AsyncGenerator[PcmChunk, None]:
        """Pass the chunks of an utterance on and keep it when it is complete.

        Args:
            name: What was asked for.
            seed: The one that it is made with.
            chunks: Closed with the returned generator.
            pinned: Never forget it to make room.
        """
        if name.seed is None and not self._unseeded and not pinned:
            return chunks
        recording = _Recording(name, seed, pinned)
        self._recordings.add(recording)
        return self._passed_on(recording, chunks)

    async def _passed_on(
        self, recording: _Recording, chunks: AsyncGenerator[PcmChunk, None]
    ) -> AsyncGenerator[PcmChunk, None]:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._take(recording, chunk)
                    yield chunk
        finally:
            self._drop(recording)

    def forget_voice(self, voice_id: str) -> None:
        """Forget everything that a voice has said, and is saying."""
        for recording in [r for r in self._recordings if r.name.voice_id == voice_id]:
            self._drop(recording)
        for name in [name for name in self._kept if name.voice_id == voice_id]:
            self._forget(name)

    def _take(self, recording: _Recording, chunk: PcmChunk) -> None:
        """Keep a copy of a chunk, if there is room."""
        if recording not in self._recordings:
            return
        if not self._make_room(chunk.samples.nbytes):
            self._drop(recording)
            return
        samples: Samples = chunk.samples.copy()
        samples.setflags(write=False)
        recording.chunks.append(replace(chunk, samples=samples, compute_s=0.0))
        recording.size_bytes += samples.nbytes
        self.size_bytes += samples.nbytes
        if chunk.final and recording.size_bytes:
            self._recordings.discard(recording)
            self._forget(recording.name)
            self._kept[recording.name] = KeptSpeech(
                recording.seed, tuple(recording.chunks), recording.size_bytes, recording.pinned
            )

    def _make_room(self, size_bytes: int) -> bool:
        for name in [name for name, kept in self._kept.items() if not kept.pinned]:
            if self.size_bytes + size_bytes <= self._max_bytes:
                break
            self._forget(name)
        return self.size_bytes + size_bytes <= self._max_bytes

    def _forget(self, name: RequestName) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self.size_bytes -= kept.size_bytes

    def _drop(self, recording: _Recording) -> None:
        if recording in self._recordings:
            self._recordings.discard(recording)
            self.size_bytes -= recording.size_bytes
            recording.chunks.clear()


class _Recording:
    """An utterance that is being made."""

    def __init__(self, name: RequestName, seed: int, pinned: bool) -> None:
        self.name = name
        self.seed = seed
        self.pinned = pinned
        self.chunks: list[PcmChunk] = []
        self.size_bytes = 0
