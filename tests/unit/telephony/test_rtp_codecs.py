"""Codecs of calls: what goes in comes out, packets have their length, rubbish does no harm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.errors import InvalidMessage
from cosyvoice_stream.telephony.rtp_codecs import PacketCodec, make_codec
from cosyvoice_stream.telephony.sdp_answer import CODECS
from cosyvoice_stream.types import Samples

pytestmark = pytest.mark.unit

CASES = [
    *(
        (name, ptime)
        for name in ("pcma", "pcmu", "l16-8k", "l16-16k", "l16-24k")
        for ptime in (10, 30)
    ),
    *(("g722", ptime) for ptime in (20, 40, 60)),
    *(("opus", ptime) for ptime in (10, 20, 40, 60)),
]


def tone(codec: PacketCodec, seconds: float = 1.0) -> Samples:
    """A tone of 440 Hz, in whole frames."""
    count = int(seconds * codec.sample_rate) // codec.frame_samples * codec.frame_samples
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(count) / codec.sample_rate)).astype(np.float32)


@pytest.mark.parametrize(("name", "ptime_ms"), CASES)
def test_every_frame_is_one_packet_of_its_length_and_sounds_as_before(
    name: str, ptime_ms: int
) -> None:
    codec = make_codec(CODECS[name], ptime_ms)
    samples = tone(codec)
    packets = [codec.encode(frame) for frame in samples.reshape(-1, codec.frame_samples)]
    assert {codec.ticks_of(packet) for packet in packets} == {codec.frame_ticks}
    heard = np.concatenate([codec.decode(packet) for packet in packets])
    assert heard.dtype == np.float32
    assert abs(len(heard) - len(samples)) <= codec.sample_rate // 50
    spectrum = np.abs(np.fft.rfft(heard[-len(heard) // 2 :]))
    peak_hz = spectrum.argmax() * codec.sample_rate / (len(heard) - len(heard) // 2)
    assert peak_hz == pytest.approx(440, abs=5)
    assert np.sqrt(np.mean(heard[len(heard) // 4 :] ** 2)) == pytest.approx(0.212, rel=0.05)


def test_l16_has_the_most_significant_byte_first() -> None:
    codec = make_codec(CODECS["l16-8k"], 20)
    assert codec.encode(np.full(160, 1 / 32_768, np.float32))[:2] == b"\x00\x01"
    with pytest.raises(InvalidMessage, match="whole samples"):
        codec.decode(b"\x00\x01\x02")


@pytest.mark.parametrize(
    ("payload", "ticks"),
    [
        (b"", 0),
        (b"\x08", 960),  # SILK 20 ms, one frame
        (b"\x18", 2880),  # SILK 60 ms
        (b"\x60", 480),  # hybrid 10 ms
        (b"\xe0", 120),  # CELT 2.5 ms
        (b"\xf9", 1920),  # CELT 20 ms, two frames
        (b"\xfb\x03", 2880),  # CELT 20 ms, three frames
        (b"\xfb", 0),
        (b"\xfb\x3f", 0),  # 63 frames: more than 120 ms
    ],
)
def test_the_length_of_an_opus_packet_is_in_its_first_bytes(payload: bytes, ticks: int) -> None:
    assert make_codec(CODECS["opus"], 20).ticks_of(payload) == ticks


def test_packets_beyond_120_ms_have_no_length() -> None:
    assert make_codec(CODECS["pcmu"], 20).ticks_of(bytes(961)) == 0


@pytest.mark.parametrize("name", ["pcmu", "g722", "opus", "l16-16k"])
def test_rubbish_is_decoded_or_refused(name: str) -> None:
    codec = make_codec(CODECS[name], 20)

    @given(st.binary(min_size=1, max_size=60))
    def check(payload: bytes) -> None:
        try:
            heard = codec.decode(payload)
        except InvalidMessage:
            return
        assert np.isfinite(heard).all()

    check()
