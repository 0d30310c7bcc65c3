"""The files of a stored voice: what they hold and how they get to the disk in one piece."""

from __future__ import annotations

import hashlib
import io
import json
import os
import wave
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
from safetensors.numpy import save

from cosyvoice_stream.types import ReferenceAudio, Samples, Voice


@dataclass(frozen=True, slots=True)
class VoiceRecord:
    """What is known about a stored voice."""

    voice_id: str
    name: str
    kind: Literal["adapted", "cloned"]
    created_at: str
    """ISO 8601 in UTC, such as ``"2026-01-31T12:00:00Z"``."""
    duration_ms: int
    """Length of the reference."""
    bandwidth_hz: float
    """Of the reference, see `ReferenceAudio`."""
    engine: str
    """Name of the engine for which it was made."""
    fingerprint: str
    """Of that engine."""
    transcript: str | None = None
    """What is said in the reference."""
    consent: str | None = None
    """The speaker's statement of consent."""
    quality: Mapping[str, Any] = field(default_factory=dict)
    """`QualityReport.to_json` of the recording."""
    owner: str | None = None
    """Name of the key that made it, which does not give the key away; None without keys."""


def write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, down to the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring renames in a folder down to the disk, where folders can be opened at all."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_name(fingerprint: str) -> str:
    """Name the file for what the engine with this fingerprint made."""
    return f"engine-{hashlib.sha256(fingerprint.encode()).hexdigest()[:24]}.safetensors"


def to_json(record: VoiceRecord) -> bytes:
    """Render a record as UTF-8 JSON."""
    return json.dumps(asdict(record), ensure_ascii=False, indent=1).encode()


def from_json(data: bytes) -> VoiceRecord:
    """Read a record; fields of other versions are ignored.

    Raises:
        ValueError, TypeError: It is not a record.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise TypeError("a record is an object")
    known = {each.name for each in fields(VoiceRecord)}
    record = VoiceRecord(**{key: value for key, value in content.items() if key in known})
    texts = (record.name, record.created_at, record.engine, record.fingerprint)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is missing")
    if not isinstance(record.duration_ms, int) or not isinstance(record.bandwidth_hz, int | float):
        raise TypeError("a number is missing")
    return record


def to_wav(reference: ReferenceAudio) -> bytes:
    """Render a recording as a mono 16-bit WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(reference.sample_rate)
        scaled = np.clip(reference.samples, -1.0, 1.0) * np.float32(32767.0)
        file.writeframes(np.round(scaled).astype("<i2").tobytes())
    return buffer.getvalue()


def from_wav(path: Path) -> tuple[Samples, int]:
    """Read what `to_wav` wrote: samples and rate.

    Raises:
        FileNotFoundError: There is no such file.
        wave.Error, EOFError, ValueError: It is damaged.
    """
    with wave.open(str(path), "rb") as file:
        pcm = file.readframes(file.getnframes())
        if len(pcm) != 2 * file.getnframes() or not pcm:
            raise ValueError("the recording is shorter than it says")
        return np.frombuffer(pcm, "<i2").astype(np.float32) / 32767.0, file.getframerate()


def to_safetensors(voice: Voice) -> bytes:
    """Render what an engine made of a voice; the header names the engine."""
    facts = {f"voice.{key}": value for key, value in voice.metadata.items()}
    tensors = {name: np.ascontiguousarray(array) for name, array in voice.tensors.items()}
    return bytes(save(tensors, {"engine": voice.engine, **facts}))


def from_safetensors(path: Path, record: VoiceRecord, fingerprint: str) -> Voice:
    """Read what `to_safetensors` rendered, as the voice of `record`.

    Raises:
        FileNotFoundError: There is no such file.
        safetensors.SafetensorError, ValueError: It is damaged, or another engine's.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        header: dict[str, str] = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("engine") != fingerprint:
        raise ValueError("made by another engine")
    facts = {
        key.removeprefix("voice."): value
        for key, value in header.items()
        if key.startswith("voice.")
    }
    return Voice(record.voice_id, record.name, fingerprint, tensors, facts)
