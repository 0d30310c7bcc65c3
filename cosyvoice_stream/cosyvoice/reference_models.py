"""The two small networks that read a recording: speaker encoder and speech tokenizer (ONNX)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from cosyvoice_stream.cosyvoice.checkpoint import ModelSpec
from cosyvoice_stream.cosyvoice.features import mel_24k, speaker_fbank, whisper_mel
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.errors import EnrolmentRejected, ModelLoadError
from cosyvoice_stream.models.conformer import FRAMES_PER_TOKEN
from cosyvoice_stream.models.flow import SPEAKER_WIDTH
from cosyvoice_stream.models.speech_lm import SPEECH_CODES
from cosyvoice_stream.streaming.pcm import level_dbfs
from cosyvoice_stream.types import ReferenceAudio, Samples

READ_HZ: Final = 16_000
MEL_HZ: Final = 24_000
MAX_REFERENCE_S: Final = 30.0
"""The speech tokenizer was trained on no more."""
MAX_REFERENCES: Final = 5
SILENT_DBFS: Final = -60.0


def _session(path: Path, threads: int | None, cuda: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    wanted = ["CUDAExecutionProvider"] if cuda else []
    there = onnxruntime.get_available_providers()
    providers = [p for p in [*wanted, "CPUExecutionProvider"] if p in there]
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise ModelLoadError(
            f"{path} cannot be read as an ONNX network", how_to_fix="download the file again"
        ) from error


class ReferenceModels:
    """Reads recordings. Safe to call from several threads; each call blocks for its computation.

    Args:
        spec: The checkpoint.
        threads: CPU threads of each network, or None for the default.
        cuda: Use a CUDA device where onnxruntime can.

    Raises:
        ModelLoadError: A file is missing or damaged.
    """

    def __init__(self, spec: ModelSpec, threads: int | None = None, *, cuda: bool = False) -> None:
        self._version = spec.version
        self._speaker = _session(spec.file("campplus.onnx"), threads, cuda)
        self._tokens = _session(spec.file(spec.version.tokenizer_onnx), threads, cuda)

    def embedding(self, samples: Samples) -> NDArray[np.float32]:
        """(N,) at 16 kHz → (192,) speaker embedding."""
        features = speaker_fbank(torch.from_numpy(samples)).numpy()
        name = self._speaker.get_inputs()[0].name
        out = np.asarray(self._speaker.run(None, {name: features})[0], np.float32).reshape(-1)
        if out.shape != (SPEAKER_WIDTH,) or not np.isfinite(out).all():
            raise EnrolmentRejected(
                "no_speaker",
                "no speaker could be made out in the recording",
                "record 3 to 10 seconds of one person speaking",
            )
        return out

    def speech_tokens(self, samples: Samples) -> NDArray[np.int32]:
        """(N,) at 16 kHz, at most 30 s → (K,) speech tokens, 25 Hz."""
        mel = whisper_mel(torch.from_numpy(samples)).numpy()
        names = [entry.name for entry in self._tokens.get_inputs()]
        length = np.asarray([mel.shape[2]], np.int32)
        out = self._tokens.run(None, dict(zip(names, (mel, length), strict=True)))[0]
        tokens = np.asarray(out).reshape(-1).astype(np.int32)
        return np.clip(tokens, 0, SPEECH_CODES - 1)

    def read(self, references: Sequence[ReferenceAudio], transcript: str | None) -> VoiceParts:
        """Make a voice.

        Args:
            references: One to five recordings of one speaker; speech continues the first one, and
                the speaker is their average.
            transcript: What is said in the first one, if known.

        Raises:
            EnrolmentRejected: Too many, too long or silent recordings.
        """
        if not 1 <= len(references) <= MAX_REFERENCES:
            raise EnrolmentRejected(
                "too_many",
                f"a voice is made from 1 to {MAX_REFERENCES} recordings, got {len(references)}",
                "leave the weakest out",
            )
        embeddings = []
        for reference in references:
            _check(reference)
            embeddings.append(self.embedding(_resampled(reference, READ_HZ)))
        units = [e / max(float(np.linalg.norm(e)), 1e-12) for e in embeddings]
        first = references[0]
        mel = mel_24k(torch.from_numpy(_resampled(first, MEL_HZ)), self._version.mel_high_hz)
        tokens = self.speech_tokens(_resampled(first, READ_HZ))
        count = min(len(tokens), len(mel) // FRAMES_PER_TOKEN)
        return VoiceParts(
            np.mean(units, axis=0, dtype=np.float32) if len(units) > 1 else embeddings[0],
            tokens[:count],
            mel[: FRAMES_PER_TOKEN * count].numpy(),
            (transcript or "").strip(),
        )


def _check(reference: ReferenceAudio) -> None:
    seconds = len(reference.samples) / reference.sample_rate
    if seconds > MAX_REFERENCE_S:
        raise EnrolmentRejected(
            "too_long",
            f"the recording has {seconds:.0f} s, and this engine takes at most "
            f"{MAX_REFERENCE_S:.0f} s",
            "cut it to 3 to 10 seconds",
        )
    if level_dbfs(reference.samples) < SILENT_DBFS:
        raise EnrolmentRejected(
            "silent", "the recording is silent", "check the microphone and record again"
        )


def _resampled(reference: ReferenceAudio, rate: int) -> Samples:
    if reference.sample_rate == rate:
        return np.ascontiguousarray(reference.samples, np.float32)
    out = soxr.resample(reference.samples, reference.sample_rate, rate)
    return np.ascontiguousarray(out, np.float32)
