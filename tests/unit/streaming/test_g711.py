"""µ-law and A-law against the procedure of ITU-T G.191, value by value, and FFmpeg's decoders."""

from __future__ import annotations

from collections.abc import Callable

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from cosyvoice_stream.streaming import g711

pytestmark = pytest.mark.unit

VALUES = np.arange(-32_768, 32_768).astype(np.int16)
CODES = np.arange(256, dtype=np.uint8)


def g191_mulaw(value: int) -> int:
    magnitude = min(((~value if value < 0 else value) >> 2) + 33, 0x1FFF)
    segment, rest = 1, magnitude >> 6
    while rest:
        segment, rest = segment + 1, rest >> 1
    code = ((8 - segment) << 4) | (15 - ((magnitude >> segment) & 15))
    return code | (0x80 if value >= 0 else 0)


def g191_alaw(value: int) -> int:
    code = (~value if value < 0 else value) >> 4
    if code > 15:
        exponent = 1
        while code > 31:
            code, exponent = code >> 1, exponent + 1
        code = code - 16 + (exponent << 4)
    return (code | (0x80 if value >= 0 else 0)) ^ 0x55


@pytest.mark.parametrize(
    ("encode", "reference"),
    [(g711.encode_mulaw, g191_mulaw), (g711.encode_alaw, g191_alaw)],
    ids=["mulaw", "alaw"],
)
def test_encoding_follows_the_standard(
    encode: Callable[[NDArray[np.int16]], NDArray[np.uint8]], reference: Callable[[int], int]
) -> None:
    assert encode(VALUES).tolist() == [reference(value) for value in VALUES.tolist()]


@pytest.mark.parametrize(
    ("encode", "value", "code"),
    [
        (g711.encode_mulaw, 0, 0xFF),
        (g711.encode_mulaw, -1, 0x7F),
        (g711.encode_mulaw, 32_767, 0x80),
        (g711.encode_mulaw, -32_768, 0x00),
        (g711.encode_alaw, 0, 0xD5),
        (g711.encode_alaw, -1, 0x55),
        (g711.encode_alaw, 32_767, 0xAA),
        (g711.encode_alaw, -32_768, 0x2A),
    ],
)
def test_codes_of_silence_and_full_scale(
    encode: Callable[[NDArray[np.int16]], NDArray[np.uint8]], value: int, code: int
) -> None:
    assert encode(np.array([value], np.int16)).tolist() == [code]


@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        ("pcm_mulaw", g711.encode_mulaw, g711.decode_mulaw),
        ("pcm_alaw", g711.encode_alaw, g711.decode_alaw),
    ],
)
def test_encoding_equals_ffmpeg_but_for_borders(
    codec: str,
    encode: Callable[[NDArray[np.int16]], NDArray[np.uint8]],
    decode: Callable[[NDArray[np.uint8]], NDArray[np.int16]],
) -> None:
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, av.AudioCodecContext)
    context.sample_rate = 8000
    context.layout = "mono"
    context.format = "s16"
    frame = av.AudioFrame.from_ndarray(VALUES[None], format="s16", layout="mono")
    frame.sample_rate = 8000
    theirs = np.frombuffer(b"".join(bytes(packet) for packet in context.encode(frame)), np.uint8)
    ours = encode(VALUES)
    # The standard cuts bits off where FFmpeg takes the nearest value, so a few values next to
    # a border fall into the neighbouring interval.
    assert 0 < np.count_nonzero(theirs != ours) < len(VALUES) / 64
    order = np.unique(decode(CODES), return_inverse=True)[1]  # of the codes, by their value
    assert np.abs(order[theirs].astype(int) - order[ours]).max() == 1


@pytest.mark.parametrize(
    ("codec", "decode"),
    [("pcm_mulaw", g711.decode_mulaw), ("pcm_alaw", g711.decode_alaw)],
)
def test_decoding_equals_ffmpeg(
    codec: str, decode: Callable[[NDArray[np.uint8]], NDArray[np.int16]]
) -> None:
    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, av.AudioCodecContext)
    context.sample_rate = 8000
    context.layout = "mono"
    frames = context.decode(av.Packet(CODES.tobytes()))
    assert np.array_equal(np.concatenate([f.to_ndarray()[0] for f in frames]), decode(CODES))


@pytest.mark.parametrize(
    ("encode", "decode"),
    [(g711.encode_mulaw, g711.decode_mulaw), (g711.encode_alaw, g711.decode_alaw)],
    ids=["mulaw", "alaw"],
)
def test_decoded_codes_encode_to_themselves(
    encode: Callable[[NDArray[np.int16]], NDArray[np.uint8]],
    decode: Callable[[NDArray[np.uint8]], NDArray[np.int16]],
) -> None:
    linear = decode(CODES)
    again = decode(encode(linear))
    assert np.array_equal(again, linear)
