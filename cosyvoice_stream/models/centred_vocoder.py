"""The centred vocoder of CosyVoice 2 in streams: bounded context, one phase throughout.

Its convolutions look both ways, about 14 frames. Each call renders a window and gives out the
middle::

    frames   ---|== left ==|======= given out =======|== right ==|
                           ^ emitted                             ^ all that was received

Pitch and phase of a frame are settled once, when the frame is given out, so that the harmonics run
on without a step; with a right context of `FULL_CONTEXT` frames the samples equal the whole pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosyvoice_stream.models.alike import alike, check_distinct
from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.hift import Hift
from cosyvoice_stream.models.source import FRAME_SAMPLES, NoiseStream, take_noise

FULL_CONTEXT = 16
"""Frames after which nothing that lies further off is heard."""


@dataclass
class CentredState:
    """What one utterance carries from call to call. Mutated by `vocode_centred_batch`."""

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
    """(1, 9) cycles at the centre of frame `start - 1`; None at the start of the utterance."""

    @property
    def shape(self) -> Hashable:
        """Equal for utterances that a pass over equally many frames treats alike."""
        return (
            self.mel.shape[2],
            self.f0.shape[1],
            self.right,
            self.before is None,
            self.noise is None,
        )


def vocode_centred(model: Hift, state: CentredState, mel: Tensor, *, final: bool) -> Tensor:
    """Take the next frames of one utterance; see `vocode_centred_batch`.

    Returns:
        (N,) float32 samples in [-0.99, 0.99], N a multiple of 480.
    """
    return vocode_centred_batch(model, [state], [mel], finals=[final])[0]


def vocode_centred_batch(
    model: Hift, states: Sequence[CentredState], mels: Sequence[Tensor], *, finals: Sequence[bool]
) -> list[Tensor]:
    """Take the next frames of several utterances and return the samples that they complete.

    Args:
        model: Vocoder of version 2.
        states: One per utterance; mutated, and of no more use if a pass fails.
        mels: (1, M, T) float32 log-mel for each, T ≥ 0 its own.
        finals: No more frames will follow; then the result holds everything that is left.

    Returns:
        (N,) float32 samples in [-0.99, 0.99] for each utterance, N a multiple of 480.

    Raises:
        ValueError: The arguments differ in length, or an utterance appears twice; nothing has
            changed then.
    """
    check_distinct(states)
    parts = zip(states, mels, finals, strict=True)
    groups = alike((state.shape, mel.shape[2], final) for state, mel, final in parts)
    waves: dict[int, Tensor] = {}
    for members in groups:
        joined = torch.cat([mels[index] for index in members])
        wave = _vocode(model, [states[i] for i in members], joined, final=finals[members[0]])
        waves.update(zip(members, wave, strict=True))
    return [waves[index] for index in range(len(states))]


def _vocode(model: Hift, states: Sequence[CentredState], mel: Tensor, *, final: bool) -> Tensor:
    """One pass over utterances of the same `CentredState.shape`.

    Args:
        model: Vocoder of version 2.
        states: At least one; mutated.
        mel: (B, M, T) their next frames.
        final: No more frames will follow.

    Returns:
        (B, N) samples.
    """
    mel = torch.cat((torch.cat([state.mel for state in states]).to(mel), mel), dim=2)
    settled = states[0].f0.shape[1]
    new = mel.shape[2] - settled - (0 if final else states[0].right)
    if new <= 0:
        for row, state in enumerate(states):
            state.mel = mel[row : row + 1].clone()
        return mel.new_zeros(len(states), 0)
    f0 = torch.cat([state.f0 for state in states]).to(mel)
    f0 = torch.cat((f0, model.f0_predictor(mel)[:, settled:]), dim=1)
    noise = take_noise(
        [state.noise for state in states],
        [FRAME_SAMPLES * state.start for state in states],
        FRAME_SAMPLES * f0.shape[1],
        mel.device,
    )
    before = [state.before for state in states if state.before is not None]
    source, centres = model.centred_source(f0, torch.cat(before) if before else None, noise)
    wave = model.decode_centred(mel, source)
    end = settled + new
    dropped = max(0, end - FULL_CONTEXT)
    for row, state in enumerate(states):
        rows = slice(row, row + 1)
        if dropped:
            state.before = torch.remainder(centres[rows, dropped - 1], 1.0)
        state.f0 = f0[rows, dropped:end].clone()
        state.mel = mel[rows, :, dropped:].clone()
        state.start += dropped
        state.emitted += new
    return wave[:, FRAME_SAMPLES * settled : FRAME_SAMPLES * end]
