from __future__ import annotations

import io
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_stream import decode
from cosyvoice_stream.decode import decode_audio, recognise
from cosyvoice_stream.errors import LimitExceeded, UnsupportedFormat
from support.recordings import RATE, encode, silence, speech, tone, video_only

pytestmark = pytest.mark.unit

FORMATS = [
    ("wav", "pcm_s16le", RATE, "wav", "pcm_s16le"),
    ("wav", "pcm_s24le", RATE, "wav", "pcm_s24le"),
    ("wav", "pcm_f32le", RATE, "wav", "pcm_f32le"),
    ("wav", "pcm_u8", RATE, "wav", "pcm_u8"),
    ("wav", "pcm_mulaw", 8_000, "wav", "pcm_mulaw"),
    ("mp3", "libmp3lame", 44_100, "mp3", "mp3"),
    ("flac", "flac", RATE, "flac", "flac"),
    ("ogg", "libopus", 48_000, "ogg", "opus"),
    ("ipod", "aac", 44_100, "mp4", "aac"),
    ("ipod", "alac", 44_100, "mp4", "alac"),
    ("mp4", "aac", 48_000, "mp4", "aac"),
    ("mov", "aac", 48_000, "mp4", "aac"),
    ("webm", "libopus", 48_000, "webm", "opus"),
    ("adts", "aac", RATE, "aac", "aac"),
]
IDS = [f"{row[0]}-{row[1]}" for row in FORMATS]


@pytest.mark.parametrize(("muxer", "encoder", "rate", "container", "codec"), FORMATS, ids=IDS)
def test_common_formats_are_read(
    muxer: str, encoder: str, rate: int, container: str, codec: str
) -> None:
    original = speech()
    decoded = decode_audio(encode(original, RATE, muxer, encoder, file_rate=rate), max_seconds=60)
    assert (decoded.container, decoded.codec) == (container, codec)
    assert decoded.sample_rate == rate
    assert decoded.samples.dtype == np.float32
    assert decoded.duration_s == pytest.approx(len(original) / RATE, abs=0.15)
    power = np.mean(decoded.samples.astype(np.float64) ** 2)
    assert power == pytest.approx(np.mean(original.astype(np.float64) ** 2), rel=0.1)


def test_vorbis_is_read() -> None:
    stereo = np.stack([speech(), speech()])
    decoded = decode_audio(encode(stereo, RATE, "ogg", "vorbis", file_rate=44_100), max_seconds=60)
    assert (decoded.container, decoded.codec) == ("ogg", "vorbis")
    assert decoded.duration_s > 3.9


@pytest.mark.parametrize(
    ("muxer", "encoder", "options"),
    [
        ("mp4", "aac", {"movflags": "frag_keyframe+empty_moov+default_base_moof"}),
        ("webm", "libopus", {"live": "1"}),
    ],
    ids=["fragmented MP4", "live WebM"],
)
def test_what_browsers_write_while_they_record_is_read(
    muxer: str, encoder: str, options: dict[str, str]
) -> None:
    data = encode(speech(), RATE, muxer, encoder, file_rate=48_000, options=options)
    assert decode_audio(data, max_seconds=60).duration_s == pytest.approx(4.17, abs=0.1)


@pytest.mark.parametrize(
    ("muxer", "encoder"), [("matroska", "ac3"), ("wav", "adpcm_ms"), ("matroska", "mp2")]
)
def test_other_codecs_are_refused(muxer: str, encoder: str) -> None:
    data = encode(speech(), RATE, muxer, encoder, file_rate=48_000)
    with pytest.raises(UnsupportedFormat, match="codec"):
        decode_audio(data, max_seconds=60)


def test_pcm_is_read_exactly() -> None:
    original = speech()
    decoded = decode_audio(encode(original, RATE, "wav", "pcm_f32le"), max_seconds=60)
    np.testing.assert_array_equal(decoded.samples, original)


def test_bytes_path_and_file_give_the_same(tmp_path: Path) -> None:
    data = encode(speech(), RATE, "mp4", "aac")
    path = tmp_path / "recording"
    path.write_bytes(data)
    behind = io.BytesIO(b"other" + data)
    behind.seek(5)
    expected = decode_audio(data, max_seconds=60).samples
    np.testing.assert_array_equal(decode_audio(path, max_seconds=60).samples, expected)
    np.testing.assert_array_equal(decode_audio(behind, max_seconds=60).samples, expected)


class Pipe(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 1000))


def test_a_pipe_is_read() -> None:
    original = speech()
    pipe = Pipe(encode(original, RATE, "wav", "pcm_f32le"))
    np.testing.assert_array_equal(decode_audio(pipe, max_seconds=60).samples, original)  # type: ignore[arg-type]


def test_two_channels_become_their_mean() -> None:
    left, right = tone(300, 1.0), tone(500, 1.0)
    data = encode(np.stack([left, right]), RATE, "wav", "pcm_f32le")
    decoded = decode_audio(data, max_seconds=60)
    np.testing.assert_allclose(decoded.samples, (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize("other", [lambda x: 0 * x, lambda x: -x], ids=["one-sided", "antiphase"])
def test_channels_that_would_cancel_are_not_mixed(other: object) -> None:
    voice = speech()
    data = encode(np.stack([voice, other(voice)]), RATE, "wav", "pcm_f32le")  # type: ignore[operator]
    np.testing.assert_allclose(np.abs(decode_audio(data, max_seconds=60).samples), np.abs(voice))


@pytest.mark.parametrize(("muxer", "encoder"), [("mp4", "aac"), ("wav", "pcm_s16le")])
def test_eight_channels_are_refused(muxer: str, encoder: str) -> None:
    data = encode(np.stack([speech()] * 8), RATE, muxer, encoder, file_rate=48_000)
    with pytest.raises(UnsupportedFormat, match="8 channels"):
        decode_audio(data, max_seconds=60)


def test_six_channels_become_their_mean() -> None:
    data = encode(np.stack([tone(300, 1.0)] * 6), RATE, "wav", "pcm_f32le")
    np.testing.assert_allclose(
        decode_audio(data, max_seconds=60).samples, tone(300, 1.0), atol=1e-6
    )


def test_rates_above_48_khz_are_converted() -> None:
    data = encode(np.stack([tone(1000, 2.0, 96_000)] * 2), 96_000, "wav", "pcm_s16le")
    decoded = decode_audio(data, max_seconds=60)
    assert decoded.sample_rate == 48_000
    assert len(decoded.samples) == 96_000
    middle = decoded.samples[1000:-1000]
    np.testing.assert_allclose(middle, tone(1000, 2.0, 48_000)[1000:-1000], atol=1e-3)


def test_audio_beside_video_is_read() -> None:
    data = encode(speech(), RATE, "mp4", "aac", with_video=True)
    assert decode_audio(data, max_seconds=60).duration_s == pytest.approx(4.17, abs=0.2)


def test_cover_art_longer_than_the_head_is_skipped() -> None:
    art = 100_000
    size = bytes([(art >> 21) & 0x7F, (art >> 14) & 0x7F, (art >> 7) & 0x7F, art & 0x7F])
    frames = encode(speech(), RATE, "mp3", "libmp3lame")
    frames = frames[frames.index(b"\xff\xf3") :]
    data = b"ID3\x04\x00\x00" + size + bytes(art) + frames
    assert decode_audio(data, max_seconds=60).container == "mp3"


def a_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("voice.wav", encode(speech(), RATE, "wav", "pcm_s16le"))
    return buffer.getvalue()


NOT_AUDIO = {
    "empty": b"",
    "one byte": b"R",
    "zip": a_zip(),
    "text": b"Hello, this is not audio.\n" * 100,
    "html": b"<!doctype html><html><body>404</body></html>",
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(2000),
    "zeros": bytes(10_000),
    "noise": np.random.default_rng(0).bytes(100_000),
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "concat": b"ffconcat version 1.0\nfile '/etc/passwd'\n",
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    "dash": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    "riff without audio": b"RIFF\x24\x00\x00\x00WAVEfmt ",
    "riff with noise": b"RIFF\x24\x00\x00\x00WAVE" + np.random.default_rng(1).bytes(5000),
    "ogg with noise": b"OggS" + np.random.default_rng(2).bytes(5000),
    "flac with noise": b"fLaC" + np.random.default_rng(3).bytes(5000),
    "webm with noise": b"\x1aE\xdf\xa3" + np.random.default_rng(4).bytes(5000),
    "mp4 with noise": b"\0\0\0\x20ftypisom" + np.random.default_rng(5).bytes(5000),
    "mp3 with zeros": b"\xff\xfb\x90\x00" + bytes(5000),
    "wav without samples": encode(silence(0), RATE, "wav", "pcm_s16le"),
    "video only": video_only(),
}


@pytest.mark.parametrize("data", NOT_AUDIO.values(), ids=NOT_AUDIO.keys())
def test_what_is_not_audio_is_refused_with_advice(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "voice.wav"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(UnsupportedFormat) as refused:
            decode_audio(source, max_seconds=60)
        assert "WAV" in str(refused.value.how_to_fix)


@pytest.mark.parametrize("number", range(0, len(FORMATS), 2))
def test_truncated_files_are_read_as_far_as_they_go_or_refused(number: int) -> None:
    muxer, encoder, rate, _, _ = FORMATS[number]
    data = encode(speech()[:RATE], RATE, muxer, encoder, file_rate=rate)
    for size in {*range(1, 60, 7), *range(60, len(data), max(1, len(data) // 25))}:
        try:
            decoded = decode_audio(data[:size], max_seconds=60)
        except UnsupportedFormat:
            continue
        assert 0 < decoded.duration_s < 1.2


HEADS = [b"RIFF\x24\x00\x00\x00WAVEfmt ", b"OggS\0\2", b"fLaC\0\0\0\x22", b"\x1aE\xdf\xa3"]
HEADS += [
    b"\0\0\0\x18ftypM4A \0\0\0\0",
    b"\xff\xfb\x90\x64",
    b"\xff\xf1\x50\x80",
    b"ID3\4\0\0\0\0\0\0",
]


@given(st.sampled_from(HEADS), st.binary(max_size=600))
@settings(max_examples=150, deadline=None)
def test_random_bytes_never_crash(head: bytes, rest: bytes) -> None:
    try:
        decoded = decode_audio(head + rest, max_seconds=5)
    except (UnsupportedFormat, LimitExceeded):
        return
    assert np.isfinite(decoded.samples).all()


@pytest.mark.parametrize("number", range(0, len(FORMATS), 3))
def test_damaged_files_never_crash(number: int) -> None:
    muxer, encoder, rate, _, _ = FORMATS[number]
    data = encode(speech()[:RATE], RATE, muxer, encoder, file_rate=rate)
    generator = np.random.default_rng(number)
    for _ in range(20):
        damaged = bytearray(data)
        for position in generator.integers(0, len(data), 30):
            damaged[position] = generator.integers(0, 256)
        try:
            decoded = decode_audio(bytes(damaged), max_seconds=60)
        except (UnsupportedFormat, LimitExceeded):
            continue
        assert np.isfinite(decoded.samples).all()
        assert np.abs(decoded.samples).max(initial=0) <= 1.0


def test_a_recording_that_is_too_long_is_refused() -> None:
    data = encode(silence(3.1), RATE, "wav", "pcm_s16le")
    with pytest.raises(LimitExceeded, match="at most 3 seconds of audio"):
        decode_audio(data, max_seconds=3)
    assert decode_audio(data, max_seconds=3.2).duration_s == pytest.approx(3.1)


def test_hours_in_a_small_file_cost_no_time_and_no_memory() -> None:
    data = encode(silence(1200), RATE, "flac", "flac")
    assert len(data) < 300_000
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(LimitExceeded):
        decode_audio(data, max_seconds=10)
    assert time.process_time() - began < 1.0
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4_000_000


def test_a_file_that_is_large_for_what_it_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_MAX_READ_BYTES", 20_000)
    data = encode(speech(), RATE, "wav", "pcm_s16le")
    data = data[:36] + b"junk" + (10**6).to_bytes(4, "little") + bytes(10**6) + data[36:]
    with pytest.raises(LimitExceeded, match="megabytes"):
        decode_audio(data, max_seconds=60)


def test_values_that_are_not_numbers_are_refused() -> None:
    broken = speech().copy()
    broken[1000] = np.nan
    with pytest.raises(UnsupportedFormat, match="not numbers"):
        decode_audio(encode(broken, RATE, "wav", "pcm_f32le"), max_seconds=60)


def test_values_beyond_full_scale_are_limited() -> None:
    decoded = decode_audio(encode(speech() * 30, RATE, "wav", "pcm_f32le"), max_seconds=60)
    assert np.abs(decoded.samples).max() == 1.0


@pytest.mark.parametrize("name", ["hls", "concat", "sdp", "dash", "text", "html", "zip"])
@pytest.mark.parametrize("prefix", [b"", b"ID3\4\0\0\0\0\0\0"], ids=["bare", "behind a tag"])
def test_lists_of_other_files_reach_no_demuxer(
    name: str, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(decode.av, "open", lambda *args, **options: opened.append(options))
    with pytest.raises(UnsupportedFormat):
        decode_audio(prefix + NOT_AUDIO[name], max_seconds=60)
    assert not opened


def test_only_the_recognised_demuxer_runs_and_may_open_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, Any]] = []
    real_open = decode.av.open

    def watched_open(*args: Any, **options: Any) -> object:
        seen.append(options)
        return real_open(*args, **options)

    data = encode(speech(), RATE, "mov", "aac", file_rate=48_000)
    monkeypatch.setattr(decode.av, "open", watched_open)
    decode_audio(data, max_seconds=60)
    (options,) = seen
    assert options["format"] == "mov"
    assert options["options"]["enable_drefs"] == "0"
    assert options["options"]["protocol_whitelist"] == "none"
    with pytest.raises(ValueError, match="other files"):
        options["io_open"]("file:///etc/passwd", 0, {})


@pytest.mark.parametrize(
    ("head", "demuxer"),
    [
        (b"RF64\xff\xff\xff\xffWAVE", "wav"),
        (b"RIFF\0\0\0\0AVI LIST", None),
        (b"ID3\x04\x00\x00\x00\x00\x00\x00\xff\xfb\x90\x00abcd", "mp3"),
        (b"ID3\x04\x00\x00\x00\x00\x00\x00fLaC" + bytes(20), "flac"),
        (b"\xff\xf9\x50\x80", "aac"),
        (b"\xff\xff\xff\xff", None),
        (b"#EXTM3U\n", None),
        (b"", None),
    ],
)
def test_the_container_is_recognised_by_its_first_bytes(head: bytes, demuxer: str | None) -> None:
    assert recognise(head) == demuxer


def test_nothing_is_written_to_the_error_stream(tmp_path: Path) -> None:
    path = tmp_path / "damaged.mp3"
    path.write_bytes(encode(speech(), RATE, "mp3", "libmp3lame")[:3000] + bytes(range(256)) * 20)
    code = (
        "import sys, pathlib\nfrom cosyvoice_stream.decode import decode_audio\n"
        "try: decode_audio(pathlib.Path(sys.argv[1]), max_seconds=60)\nexcept Exception: pass"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code, str(path)], capture_output=True, check=True
    )
    assert ran.stderr == ran.stdout == b""
