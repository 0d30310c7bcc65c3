import numpy as np
import pytest

from cosyvoice_stream.server.encoders import PLAIN, make_encoder
from cosyvoice_stream.server.plain_audio import UNPACK, faded_end

pytestmark = pytest.mark.unit

WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "wav": 2, "mulaw": 1, "alaw": 1}


def encoded(encoding, level, count):
    encoder = make_encoder(encoding, 24_000, 24_000, 0)
    data = b"".join(encoder.push(np.full(count, level, np.float32)) + encoder.flush())
    return data[44:] if encoding == "wav" else data


@pytest.mark.parametrize("encoding", PLAIN)
@pytest.mark.parametrize("queued", [0, 50, 5000])
def test_the_end_of_every_plain_encoding_fades_from_where_it_was(encoding, queued):
    sent = encoded(encoding, 0.5, 600)
    data, samples = faded_end(encoding, 24_000, sent[-4:], encoded(encoding, 0.5, queued))
    assert samples == (min(queued, 120) or 120)
    assert len(data) == samples * WIDTHS[encoding]
    heard = UNPACK[encoding](data)
    assert heard[0] == pytest.approx(0.5, abs=0.02)
    assert abs(heard[-1]) < 0.01
    assert np.abs(np.diff(heard)).max() < 0.04


def test_everything_that_is_not_compressed_can_be_faded():
    assert set(UNPACK) == set(PLAIN)
