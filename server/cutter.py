"""Engine chunks → numbered pieces of encoded audio."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from cosyvoice_stream.server.encoders import WAV_HEADER_BYTES, Encoder, wav_header
from cosyvoice_stream.server.speech_events import AudioOut
from cosyvoice_stream.types import PcmChunk


class Cutter:
    """Chunks in, numbered pieces of encoded audio out; the last one is marked."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._header_bytes = WAV_HEADER_BYTES if encoder.encoding == "wav" else 0
        self._position = 0
        self._any = False

    async def push(self, chunk: PcmChunk) -> list[AudioOut]:
        """Encode a chunk; after the final one nothing is kept back."""
        if self._encoder.heavy:
            encoded = await self._encode_in_thread(chunk)
        else:
            encoded = self._encode(chunk)
        pieces = [self._piece(data) for data in encoded if data]
        self._any = self._any or bool(pieces)
        if chunk.final and self._any:
            last = pieces.pop() if pieces else self._piece(b"")
            pieces.append(replace(last, last=True))
        return pieces

    def close(self) -> None:
        """Free the encoder."""
        self._encoder.close()

    async def _encode_in_thread(self, chunk: PcmChunk) -> list[bytes]:
        encoding = asyncio.ensure_future(asyncio.to_thread(self._encode, chunk))
        try:
            return await asyncio.shield(encoding)
        except asyncio.CancelledError:
            await asyncio.wait([encoding])  # milliseconds; nobody may close it under the thread
            raise

    def _encode(self, chunk: PcmChunk) -> list[bytes]:
        encoded = self._encoder.push(chunk.samples) if len(chunk.samples) else []
        if not chunk.final:
            return encoded
        if chunk.start_sample + len(chunk.samples) > 0:
            return [*encoded, *self._encoder.flush()]
        # Without a single sample there is no stream, hence no padding; but a file of WAV without
        # its header is no file.
        return [wav_header(self._encoder.sample_rate, 0)] if self._header_bytes else []

    def _piece(self, data: bytes) -> AudioOut:
        first = self._position
        width = self._encoder.bytes_per_sample
        if width is None:
            first = end = self._encoder.samples_in
        else:
            audio_bytes = len(data) - (self._header_bytes if data else 0)
            self._header_bytes = 0 if data else self._header_bytes
            end = first + audio_bytes // (width * self._encoder.channels)
        self._position = end
        return AudioOut(data, first, end, last=False)
