"""Recordings for tests: real synthetic speech, made worse on purpose, in any file format."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.types import Samples

REFERENCES = Path(__file__).parents[1] / "data" / "ref_wavs"
REFERENCE_NAMES = [
    item["file"] for item in json.loads((REFERENCES / "transcripts.json").read_text())["items"]
]
RATE = 16_000
"""Of every reference."""


def speech(name: str = "flite_slt_female.wav") -> Samples:
    """One of the references, mono at `RATE`."""
    with wave.open(str(REFERENCES / name)) as file:
        assert file.getframerate() == RATE
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return pcm.astype(np.float32) / 32768.0


def at_level(samples: Samples, dbfs: float) -> Samples:
    """The same at another root mean square."""
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return (samples * 10 ** ((dbfs - 10 * np.log10(power)) / 20)).astype(np.float32)


def with_noise(samples: Samples, snr_db: float, seed: int = 0) -> Samples:
    """The same with white noise."""
    noise = np.random.default_rng(seed).standard_normal(len(samples))
    power = np.mean(np.square(samples, dtype=np.float64)) / 10 ** (snr_db / 10)
    return (samples + noise * np.sqrt(power)).astype(np.float32)


def silence(seconds: float, rate: int = RATE) -> Samples:
    return np.zeros(round(seconds * rate), np.float32)


def tone(hertz: float, seconds: float, rate: int = RATE, level: float = 0.3) -> Samples:
    times = np.arange(round(seconds * rate)) / rate
    return (level * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


def chords(seconds: float) -> Samples:
    """Plucked chords, two a second: music without a voice."""
    half = RATE // 2
    times = np.arange(RATE) / RATE
    music = np.zeros(round(seconds * RATE) + RATE)
    triads = ((262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294))
    for number in range(round(2 * seconds)):
        notes = triads[number % 4]
        pluck = sum(
            np.sin(2 * np.pi * note * overtone * times) / overtone
            for note in notes
            for overtone in range(1, 7)
        )
        music[number * half : number * half + RATE] += pluck * np.exp(-3 * times)
    music = music[: round(seconds * RATE)]
    return (0.3 * music / np.abs(music).max()).astype(np.float32)


def white_noise(seconds: float, level: float = 0.1, seed: int = 0) -> Samples:
    generator = np.random.default_rng(seed)
    return (level * generator.standard_normal(round(seconds * RATE))).astype(np.float32)


def encode(
    channels: NDArray[np.float32] | Sequence[Samples],
    rate: int,
    container: str,
    codec: str,
    *,
    file_rate: int | None = None,
    with_video: bool = False,
    options: dict[str, str] | None = None,
) -> bytes:
    """Write a file with one audio track.

    Args:
        channels: Samples of 1, 2, 6 or 8 channels, shape (C, N) or (N,).
        rate: Of the samples.
        container: FFmpeg muxer, such as ``"wav"``, ``"mp3"``, ``"mp4"``, ``"webm"``.
        codec: FFmpeg encoder, such as ``"pcm_s16le"``, ``"libopus"``.
        file_rate: Rate in the file; `rate` if None.
        with_video: Put a video track before the audio.
        options: Of the muxer.
    """
    audio = np.atleast_2d(np.asarray(channels, np.float32))
    layout = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}[len(audio)]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=options) as file:
        video = file.add_stream("mpeg4", rate=10) if with_video else None
        stream = file.add_stream(codec, rate=file_rate or rate)
        stream.layout = layout
        if codec == "vorbis":
            stream.codec_context.options = {"strict": "experimental"}
        if video is not None:
            video.width = video.height = 32
            video.pix_fmt = "yuv420p"
            for number in range(5):
                picture = av.VideoFrame(32, 32, "yuv420p")
                picture.pts, picture.time_base = number, Fraction(1, 10)
                file.mux(video.encode(picture))
            file.mux(video.encode(None))
        to_codec = av.AudioResampler(stream.format, layout, file_rate or rate)
        for start in range(0, audio.shape[1], 4096):
            piece = audio[:, start : start + 4096].T.reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(piece, format="flt", layout=layout)
            frame.sample_rate, frame.pts = rate, start
            for converted in to_codec.resample(frame):
                file.mux(stream.encode(converted))
        for converted in to_codec.resample(None):
            file.mux(stream.encode(converted))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def video_only() -> bytes:
    """An MP4 without an audio track."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for number in range(5):
            picture = av.VideoFrame(32, 32, "yuv420p")
            picture.pts, picture.time_base = number, Fraction(1, 10)
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def in_a_room(samples: Samples, reverberation_s: float, direct_db: float = 0.0) -> Samples:
    """The same with a tail that falls by 60 dB in `reverberation_s`, `direct_db` below it."""
    count = round(reverberation_s * RATE)
    times = np.arange(count) / RATE
    tail = np.random.default_rng(0).standard_normal(count) * 10 ** (-3 * times / reverberation_s)
    tail[: RATE * 3 // 1000] = 0.0
    tail *= np.sqrt(10 ** (-direct_db / 10) / np.sum(tail**2))
    tail[0] = 1.0
    heard = np.convolve(samples, tail)[: len(samples) + count // 2]
    return (heard * (np.abs(samples).max() / np.abs(heard).max())).astype(np.float32)
