"""The centred vocoder of CosyVoice 2 in streams: bounded context, one phase throughout.

Its convolutions look both ways, about 14 frames. Each call renders a window and gives out the
middle::

    frames   ---|== left ==|======= given out =======|== right ==|
                           ^ emitted                             ^ all that was received

Pitch and phase of a frame are settled once, when the frame is given out, so that the harmonics run
on without a step; with a right context of `FULL_CONTEXT` frames the samples equal the whole pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.hift import Hift
from cosyvoice_stream.models.source import FRAME_SAMPLES, NoiseStream

FULL_CONTEXT = 16
"""Frames after which nothing that lies further off is heard."""


@dataclass
class CentredState:
    """What one utterance carries from call to call. Mutated by `vocode_centred`."""

    noise: NoiseStream | None
    """None renders without noise."""
    right: int
    """Frames of right context."""
    mel: Tensor = field(default_factory=lambda: torch.zeros(1, MEL, 0))
    """(1, M, frames) from frame `start` on."""
    start: int = 0
    emitted: int = 0
    """Frames given out."""
    f0: Tensor = field(default_factory=lambda: torch.zeros(1, 0))
    """(1, frames) settled pitch of the frames from `start` to `emitted`."""
    before: Tensor | None = None
    """(9,) cycles at the centre of frame `start - 1`; None at the start of the utterance."""


def vocode_centred(model: Hift, state: CentredState, mel: Tensor, *, final: bool) -> Tensor:
    """Take the next frames of one utterance and return the samples that they complete.

    Args:
        model: Vocoder of version 2.
        state: Of this utterance; mutated.
        mel: (1, M, T) float32 log-mel, T ≥ 0.
        final: No more frames will follow; then the result holds everything that is left.

    Returns:
        (N,) float32 samples in [-0.99, 0.99], N a multiple of 480.
    """
    state.mel = torch.cat((state.mel.to(mel), mel), dim=2)
    total = state.start + state.mel.shape[2]
    end = total if final else total - state.right
    if end <= state.emitted:
        return mel.new_zeros(0)
    settled = state.f0.shape[1]
    f0 = torch.cat((state.f0.to(mel), model.f0_predictor(state.mel)[:, settled:]), dim=1)
    noise = None
    if state.noise is not None:
        first = FRAME_SAMPLES * state.start
        noise = state.noise.take(first, FRAME_SAMPLES * f0.shape[1]).to(mel.device)
    source, centres = model.centred_source(f0, state.before, noise)
    wave = model.decode_centred(state.mel, source)[0]
    out = wave[FRAME_SAMPLES * (state.emitted - state.start) : FRAME_SAMPLES * (end - state.start)]
    start = max(state.start, end - FULL_CONTEXT)
    if start > state.start:
        state.before = torch.remainder(centres[start - state.start - 1], 1.0)
    state.f0 = f0[:, start - state.start : end - state.start]
    state.mel = state.mel[:, :, start - state.start :]
    state.start, state.emitted = start, end
    return out
