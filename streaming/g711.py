"""µ-law and A-law, the two compandings of ITU-T G.711, by table lookup.

Linear values are 16-bit; µ-law uses their upper 14 bits and A-law the upper 13. Encoding follows
the reference software of ITU-T G.191: bits below are cut off, and negative values count by their
ones' complement, so that both signs have equally many values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MULAW_BIAS = 33
_MULAW_MAX = 0x1FFF


def _all_values() -> NDArray[np.int32]:
    """Every 16-bit value, in the order of its unsigned form."""
    return np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)


def _mulaw_decoding() -> NDArray[np.int16]:
    """Linear value of every code: sign, three bits of segment, four bits of step; all inverted."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    step = ((code & 0x0F) << 1) + _MULAW_BIAS
    magnitude = ((step << ((code & 0x70) >> 4)) - _MULAW_BIAS) << 2
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _mulaw_encoding() -> NDArray[np.uint8]:
    """Code of every 16-bit value, indexed by its unsigned form."""
    value = _all_values()
    magnitude = (np.where(value < 0, ~value, value) >> 2) + _MULAW_BIAS
    magnitude = np.minimum(magnitude, _MULAW_MAX)
    segment = np.floor(np.log2(magnitude)).astype(np.int32) - 5
    step = (magnitude >> (segment + 1)) & 0x0F
    sign = np.where(value < 0, 0x80, 0)
    code: NDArray[np.int32] = ~(sign | (segment << 4) | step) & 0xFF
    return code.astype(np.uint8)


def _alaw_decoding() -> NDArray[np.int16]:
    """Linear value of every code; even bits are inverted on the line."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment = (code & 0x70) >> 4
    step = ((code & 0x0F) << 4) + 8
    magnitude = np.where(segment == 0, step, (step + 0x100) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _alaw_encoding() -> NDArray[np.uint8]:
    """Code of every 16-bit value, indexed by its unsigned form."""
    value = _all_values()
    magnitude = np.where(value < 0, ~value, value) >> 4
    segment = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 3, 0)
    step = (magnitude >> np.maximum(segment - 1, 0)) & 0x0F
    sign = np.where(value < 0, 0, 0x80)
    code: NDArray[np.int32] = (sign | (segment << 4) | step) ^ 0x55
    return code.astype(np.uint8)


_MULAW_DECODE = _mulaw_decoding()
_MULAW_ENCODE = _mulaw_encoding()
_ALAW_DECODE = _alaw_decoding()
_ALAW_ENCODE = _alaw_encoding()


def encode_mulaw(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """16-bit linear, shape (N,), to µ-law codes, shape (N,)."""
    return _MULAW_ENCODE[values.view(np.uint16)]


def decode_mulaw(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    """µ-law codes, shape (N,), to 16-bit linear, shape (N,)."""
    return _MULAW_DECODE[codes]


def encode_alaw(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """16-bit linear, shape (N,), to A-law codes, shape (N,)."""
    return _ALAW_ENCODE[values.view(np.uint16)]


def decode_alaw(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    """A-law codes, shape (N,), to 16-bit linear, shape (N,)."""
    return _ALAW_DECODE[codes]
