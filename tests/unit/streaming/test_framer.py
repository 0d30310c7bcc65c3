"""Frames of one size from chunks of any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_stream.streaming.framer import Framer

pytestmark = pytest.mark.unit


@given(
    size=st.integers(1, 50),
    chunks=st.lists(st.integers(0, 120), max_size=10),
    pad=st.booleans(),
)
def test_frames_join_to_the_input(size: int, chunks: list[int], pad: bool) -> None:
    samples = np.arange(1, sum(chunks) + 1, dtype=np.float32)
    framer = Framer(size, pad=pad)
    pieces = np.split(samples, np.cumsum(chunks)[:-1]) if chunks else []
    frames = [frame for piece in pieces for frame in framer.push(piece)]
    assert all(len(frame) == size for frame in frames)
    rest = framer.flush()
    assert len(rest) == (1 if len(samples) % size else 0)
    joined = np.concatenate([*frames, *rest, np.zeros(0, np.float32)])
    assert np.array_equal(joined[: len(samples)], samples)
    assert not joined[len(samples) :].any()
    assert len(joined) == ((len(frames) + len(rest)) * size if pad else len(samples))
    assert framer.flush() == []


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Framer(0)
