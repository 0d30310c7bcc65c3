import numpy as np
import pytest

from cosyvoice_stream.streaming.fades import fade_from, fade_out, fade_samples

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rate", [8000, 24_000, 48_000])
def test_a_fade_of_5_ms_ends_in_silence_without_a_step(rate):
    count = fade_samples(rate)
    assert count == rate * 5 // 1000
    faded = fade_out(np.full(count, 0.8, np.float32))
    assert faded[-1] == pytest.approx(0, abs=1e-6)
    steps = np.abs(np.diff(np.concatenate([[0.8], faded, [0.0]])))
    assert steps.max() < 0.8 * 2 / count


def test_a_fade_from_a_level_begins_there():
    assert fade_from(-0.5, 120)[0] == pytest.approx(-0.5, abs=1e-3)
    assert len(fade_out(np.zeros(0, np.float32))) == 0
