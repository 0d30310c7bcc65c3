"""Output formats: valid files, the same bytes for any chunking, the signal kept."""

from __future__ import annotations

import gc
import io
import json
import shutil
import subprocess
import wave

import av
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.server.encoders import (
    COMPRESSED,
    ENCODINGS,
    OPUS_RATES,
    PLAIN,
    SAMPLE_RATES,
    WAV_HEADER_BYTES,
    make_encoder,
)
from cosyvoice_stream.streaming import g711, pcm
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

ENGINE_HZ = 24_000


def tone(seconds: float = 1.0) -> Samples:
    t = np.arange(round(ENGINE_HZ * seconds)) / ENGINE_HZ
    return (0.4 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


def encode(encoding: str, rate: int, pieces: list[Samples], frame_ms: int = 0) -> list[bytes]:
    encoder = make_encoder(encoding, ENGINE_HZ, rate, frame_ms)
    return [data for piece in pieces for data in encoder.push(piece)] + encoder.flush()


def syllables(rate: int, seconds: float = 1.5) -> Samples:
    """A gliding harmonic tone in bursts: unlike a steady one it shows where it begins."""
    t = np.arange(round(rate * seconds)) / rate
    phase = 2 * np.pi * (140 * t + 10 * np.sin(3 * t))
    voice = sum(np.sin(k * phase) / k for k in range(1, 12))
    return (0.2 * voice * np.clip(np.sin(2 * np.pi * 4 * t), 0, 1)).astype(np.float32)


def delay_and_correlation(heard: Samples, meant: Samples) -> tuple[int, float]:
    """How many samples `heard` is late, and how alike both are then."""
    size = len(heard) + len(meant)
    cross = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(meant, size)), size)
    delay = int(np.argmax(cross[: len(heard)]))
    aligned = heard[delay : delay + len(meant)]
    return delay, float(np.corrcoef(aligned, meant[: len(aligned)])[0, 1])


def decode(data: bytes) -> tuple[Samples, int]:
    with av.open(io.BytesIO(data)) as container:
        frames = [
            frame.to_ndarray().astype(np.float64) / (32768 if "s16" in frame.format.name else 1)
            for frame in container.decode(audio=0)
        ]
        rate = container.streams.audio[0].rate
    return np.concatenate(frames, axis=1)[0].astype(np.float32), rate


@settings(max_examples=40, deadline=None)
@given(
    encoding=st.sampled_from(PLAIN),
    rate=st.sampled_from(SAMPLE_RATES),
    sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=8),
)
def test_any_chunking_gives_the_same_bytes(encoding: str, rate: int, sizes: list[int]) -> None:
    samples = tone()[: sum(sizes)]
    pieces = np.split(samples, np.cumsum(sizes)[:-1])
    whole = b"".join(encode(encoding, rate, [samples]))
    assert b"".join(encode(encoding, rate, pieces)) == whole


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "mulaw", "alaw"])
def test_plain_samples(encoding: str) -> None:
    samples = tone()
    data = b"".join(encode(encoding, ENGINE_HZ, [samples]))
    codes = np.frombuffer(data, np.uint8)
    back = {
        "pcm_s16le": lambda: pcm.from_s16le(data),
        "pcm_f32le": lambda: pcm.from_f32le(data),
        "mulaw": lambda: pcm.from_int16(g711.decode_mulaw(codes)),
        "alaw": lambda: pcm.from_int16(g711.decode_alaw(codes)),
    }[encoding]()
    error = np.abs(back - samples).max()
    assert error <= {"pcm_s16le": 2e-5, "pcm_f32le": 0.0}.get(encoding, 0.02)


@pytest.mark.parametrize("rate", SAMPLE_RATES)
def test_wav_has_one_header_and_opens_everywhere(rate: int) -> None:
    pieces = encode("wav", rate, np.array_split(tone(), 7))
    data = b"".join(pieces)
    assert data.count(b"RIFF") == 1
    assert len(data) == WAV_HEADER_BYTES + 2 * rate
    samples, found = decode(data)
    assert (len(samples), found) == (rate, rate)
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (rate, 1, 2)
        assert len(file.readframes(rate)) == 2 * rate


def test_wav_without_samples_is_a_header() -> None:
    assert len(b"".join(encode("wav", 24_000, []))) == WAV_HEADER_BYTES


@pytest.mark.parametrize("frame_ms", [10, 20, 60, 1000])
@pytest.mark.parametrize("encoding", ["pcm_s16le", "mulaw"])
def test_frames_have_their_length(encoding: str, frame_ms: int) -> None:
    frames = encode(encoding, 8_000, np.array_split(tone(1.013), 9), frame_ms)
    width = 2 if encoding == "pcm_s16le" else 1
    assert {len(frame) for frame in frames[:-1]} <= {8 * frame_ms * width}
    assert len(frames[-1]) <= 8 * frame_ms * width
    assert sum(map(len, frames)) == round(1.013 * 8_000) * width


COMPRESSED_OUTPUTS = [
    (e, r) for e in COMPRESSED for r in (OPUS_RATES if e == "opus" else SAMPLE_RATES)
]


@pytest.mark.parametrize(("encoding", "rate"), COMPRESSED_OUTPUTS)
def test_compressed_audio_decodes_to_the_signal(encoding: str, rate: int) -> None:
    data = b"".join(encode(encoding, rate, np.array_split(syllables(ENGINE_HZ), 15)))
    heard, found = decode(data)
    assert found == (48_000 if encoding == "opus" else rate)
    meant = syllables(found)
    delay, correlation = delay_and_correlation(heard, meant)
    assert correlation > 0.995
    rms = np.sqrt(np.mean(np.square([heard[delay:][: found // 2], meant[: found // 2]]), axis=1))
    assert rms[0] == pytest.approx(rms[1], rel=0.06)
    # LAME makes everything 0.45 dB quieter. Opus states its delay and FLAC has none; players are
    # not told that of the others, which is some 1100 samples for MP3 and 1024 for AAC.
    extra = len(heard) - len(meant)
    if encoding in ("opus", "flac"):
        assert (delay, extra) == (0, 0)
    else:
        assert delay <= 1_200
        assert delay <= extra <= 2_048


@pytest.mark.parametrize(("encoding", "rate"), COMPRESSED_OUTPUTS)
def test_compressed_audio_is_not_held_back(encoding: str, rate: int) -> None:
    encoder = make_encoder(encoding, ENGINE_HZ, rate, 0)
    pieces = np.split(syllables(ENGINE_HZ, 1.0), 100)
    audio_at_ms = [10 * (index + 1) for index, piece in enumerate(pieces) if encoder.push(piece)]
    encoder.close()
    frame_ms = {"opus": 20, "flac": 20, "mp3": 1000 * 1152 / rate, "aac": 1000 * 1024 / rate}
    gaps = np.diff(audio_at_ms)
    assert gaps.max() <= frame_ms[encoding] + 10
    assert audio_at_ms[0] <= 3 * frame_ms[encoding] + 20


@pytest.mark.skipif(shutil.which("ffprobe") is None, reason="ffprobe is not installed")
@pytest.mark.parametrize("encoding", ["wav", *COMPRESSED])
def test_files_are_valid_for_ffprobe(encoding: str) -> None:
    data = b"".join(encode(encoding, 24_000, np.array_split(syllables(ENGINE_HZ), 15)))
    command = "ffprobe -v error -of json -show_streams -count_frames -i pipe:0"
    probed = subprocess.run(
        command.split(), input=data, capture_output=True, check=True, timeout=30
    )
    assert probed.stderr == b""
    (stream,) = json.loads(probed.stdout)["streams"]
    codec = {"wav": "pcm_s16le"}.get(encoding, encoding)
    rate = "48000" if encoding == "opus" else "24000"
    assert (stream["codec_name"], stream["sample_rate"]) == (codec, rate)
    assert stream["channels"] == 1
    assert int(stream["nb_read_frames"]) > 0


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_encoders_that_are_given_up_leave_nothing_behind(encoding: str) -> None:
    process = psutil.Process()

    def give_up(times: int) -> int:
        for _ in range(times):
            encoder = make_encoder(encoding, ENGINE_HZ, 24_000, 0)
            encoder.push(tone(0.1))
        del encoder
        gc.collect()
        rss: int = process.memory_info().rss
        return rss

    # The heap grows in steps for a while; a leak of one encoder's 50 kB would go on.
    sizes = [give_up(30) for _ in range(5)]
    assert min(np.diff(sizes)) < 30 * 5_000


@pytest.mark.parametrize("encoding", COMPRESSED)
@pytest.mark.parametrize("end", ["flush", "close"])
def test_an_ended_encoder_keeps_no_threads(encoding: str, end: str) -> None:
    gc.collect()
    before = psutil.Process().num_threads()
    encoder = make_encoder(encoding, ENGINE_HZ, 24_000, 0)
    encoder.push(tone(0.3))
    getattr(encoder, end)()
    assert psutil.Process().num_threads() <= before
    assert encoder.flush() == []


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_nothing_comes_after_the_end(encoding: str) -> None:
    encoder = make_encoder(encoding, ENGINE_HZ, 8_000, 20)
    encoder.push(tone(0.3))
    assert encoder.flush()
    assert encoder.flush() == []


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_peaks_are_clipped_not_wrapped(encoding: str) -> None:
    data = b"".join(encode(encoding, ENGINE_HZ, [np.full(ENGINE_HZ, 1.5, np.float32)]))
    if encoding in COMPRESSED or encoding == "wav":
        heard = decode(data)[0]
    else:
        codes = np.frombuffer(data, np.uint8)
        unpack = {
            "pcm_s16le": lambda: pcm.from_s16le(data),
            "pcm_f32le": lambda: pcm.from_f32le(data),
            "mulaw": lambda: pcm.from_int16(g711.decode_mulaw(codes)),
            "alaw": lambda: pcm.from_int16(g711.decode_alaw(codes)),
        }
        heard = unpack[encoding]()
    # Opus takes out the constant part; what is wrapped would be negative at once.
    start = heard[: len(heard) // 20] if encoding == "opus" else heard[5_000:-5_000]
    assert start[start.argmax() :].min() > (0.0 if encoding == "opus" else 0.9)


def test_only_cheap_encoders_run_on_the_event_loop() -> None:
    heavy = {e for e in ENCODINGS if make_encoder(e, ENGINE_HZ, 24_000, 0).heavy}
    assert heavy == {"opus", "mp3", "aac"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_a_player_must_know_is_stated(encoding: str) -> None:
    encoder = make_encoder(encoding, ENGINE_HZ, 24_000, 0)
    widths = {"pcm_s16le": 2, "wav": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
    assert encoder.bytes_per_sample == widths.get(encoding)
    assert (encoder.byte_order == "little") == (widths.get(encoding, 0) > 1)
    assert encoder.mime.startswith("audio/")
    assert (encoder.sample_rate, encoder.channels) == (24_000, 1)
    encoder.push(tone(0.5))
    assert 0 < encoder.samples_in <= 12_000
    encoder.close()
    encoder.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_sample_that_is_no_number_is_never_encoded(encoding: str) -> None:
    encoder = make_encoder(encoding, ENGINE_HZ, 24_000, 0)
    with pytest.raises(ValueError, match="finite"):
        encoder.push(np.array([0.0, np.inf], np.float32))
    encoder.close()


@pytest.mark.parametrize(
    ("encoding", "rate", "frame_ms", "message", "cure"),
    [
        ("opus", 22_050, 0, "opus is not available at 22050 Hz", "8000, 16000, 24000, 48000"),
        ("wav", 11_025, 0, "wav is not available at 11025 Hz", "22050"),
        ("gsm", 8_000, 0, "the encoding 'gsm' is not available", "pcm_s16le"),
        ("mulaw", 8_000, 5, "frames of 5 ms are not available", "10 to 1000"),
    ],
)
def test_what_is_not_available_is_refused(
    encoding: str, rate: int, frame_ms: int, message: str, cure: str
) -> None:
    with pytest.raises(UnsupportedFormat, match=message) as refusal:
        make_encoder(encoding, ENGINE_HZ, rate, frame_ms)
    assert cure in str(refusal.value.how_to_fix)
