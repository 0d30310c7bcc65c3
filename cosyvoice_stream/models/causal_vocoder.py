"""The causal vocoder of CosyVoice 3, mel frames in and samples out, exact however they are cut.

With T frames received, and more to come::

    pitch        |<-------- T - 3 -------->|           its first convolution reaches 3 frames ahead
    decoder      |<------ T - 7 ------>|               conv_pre reaches 4 frames further
    samples      |<- 480 (T - 7) - 4 ->|               the last spectral columns overlap the next
    ones

At the end zeros stand in for the missing frames, and everything is given out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyvoice_stream.models.causal import CausalState, Walk
from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.hift import (
    BINS,
    COLUMNS,
    FFT,
    HOP,
    LIMIT,
    SOURCE_STRIDES,
    UP_FACTORS,
    Hift,
    PitchPredictor,
    spectrum,
    window,
)
from cosyvoice_stream.models.source import (
    FRAME_SAMPLES,
    HARMONICS,
    VOICED_ABOVE_HZ,
    NoiseStream,
)

HALF = FFT // 2
COLUMNS_BEFORE = SOURCE_STRIDES[0] - 1
"""Zero columns that the widest strided convolution sees in front of the first one."""
OVERLAP_COLUMNS = FFT // HOP


@dataclass
class VocoderState:
    """What one utterance carries from call to call. Mutated by `vocode`."""

    noise: NoiseStream | None
    """None renders without noise."""
    pitch: CausalState = field(default_factory=CausalState)
    decoder: CausalState = field(default_factory=CausalState)
    mel: Tensor = field(default_factory=lambda: torch.zeros(1, MEL, 0))
    """(1, M, frames) frames from `decoded` on."""
    pitched: int = 0
    """Frames with a known pitch."""
    decoded: int = 0
    """Frames that have been through the decoder."""
    cycles: Tensor = field(default_factory=lambda: torch.zeros(HARMONICS, dtype=torch.float64))
    """(9,) phase after the last frame with a known pitch."""
    source: Tensor | None = None
    """(1, 1, N) samples that later spectral columns need; starts on a column."""
    columns: Tensor = field(default_factory=lambda: torch.zeros(1, 2 * BINS, COLUMNS_BEFORE))
    """(1, 18, columns) of the source, from column 120 · decoded - 14 on."""
    spectrum: Tensor = field(default_factory=lambda: torch.zeros(BINS, 0, dtype=torch.complex64))
    """(9, columns) last output columns, which overlap the next ones."""
    emitted: int = 0
    """Samples given out."""


def vocode(model: Hift, state: VocoderState, mel: Tensor, *, final: bool) -> Tensor:
    """Take the next frames of one utterance and return the samples that they complete.

    Args:
        model: Vocoder of version 3.
        state: Of this utterance; mutated.
        mel: (1, M, T) float32 log-mel, T ≥ 0.
        final: No more frames will follow; then the result holds everything that is left.

    Returns:
        (N,) float32 samples in [-0.99, 0.99].
    """
    state.mel = torch.cat((state.mel.to(mel), mel), dim=2)
    total = state.decoded + state.mel.shape[2]
    _extend_source(model, state, total, final)
    end = total if final else state.pitched - Hift.PRE_LOOKAHEAD
    if end > state.decoded:
        _decode(model, state, end, final)
    return _overlap_add(state, FRAME_SAMPLES * total if final else None)


def _extend_source(model: Hift, state: VocoderState, total: int, final: bool) -> None:
    """Predict pitch as far as the mel allows and turn it into spectral columns of the source."""
    ahead = PitchPredictor.LOOKAHEAD
    known = total if final else total - ahead
    if known > state.pitched:
        start = state.pitched - state.decoded
        frames = state.mel[:, :, start : known - state.decoded + ahead]
        if final:
            frames = F.pad(frames, (0, ahead))
        walk = Walk([state.pitch], 1, 1, [state.pitched])
        f0 = model.f0_predictor(frames, walk)
        steps = model.m_source.phase_steps(f0)
        ends = state.cycles.to(steps) + torch.cumsum(FRAME_SAMPLES * steps, dim=0)
        state.cycles = torch.remainder(ends[-1], 1.0)
        count = FRAME_SAMPLES * f0.shape[1]
        noise = None
        if state.noise is not None:
            noise = state.noise.take(FRAME_SAMPLES * state.pitched, count).to(mel_device(state))
        new = model.m_source(
            ends.repeat_interleave(FRAME_SAMPLES, dim=0),
            (f0[0] > VOICED_ABOVE_HZ).repeat_interleave(FRAME_SAMPLES),
            noise,
        )
        if state.source is None:
            new = F.pad(new, (HALF, 0), mode="reflect")
            state.source = new
        else:
            state.source = torch.cat((state.source, new), dim=2)
        state.pitched = known
    if final and state.source is not None:
        state.source = F.pad(state.source, (0, HALF), mode="reflect")
    if state.source is not None and state.source.shape[2] >= FFT:
        fresh = spectrum(state.source)
        state.columns = torch.cat((state.columns.to(fresh), fresh), dim=2)
        state.source = state.source[:, :, HOP * fresh.shape[2] :]


def mel_device(state: VocoderState) -> torch.device:
    """Device on which the state lives."""
    return state.mel.device


def _decode(model: Hift, state: VocoderState, end: int, final: bool) -> None:
    """Run the decoder over frames up to `end` and keep their output columns."""
    ahead, new = Hift.PRE_LOOKAHEAD, end - state.decoded
    first = state.decoded == 0
    walk = Walk([state.decoder], 1, 1, [state.decoded])
    frames = state.mel[:, :, : new + ahead]
    if final:
        frames = F.pad(frames, (0, ahead))
    pre = model.conv_pre
    x = F.conv1d(frames, pre.weight, pre.bias)
    columns_per_frame = 1
    for stage, factor in enumerate(UP_FACTORS):
        columns_per_frame *= factor
        last = stage == len(UP_FACTORS) - 1
        x = F.leaky_relu(x, 0.1).repeat_interleave(factor, dim=2)
        up = model.ups[stage]
        assert isinstance(up, torch.nn.Conv1d)
        x = walk.conv(up, x)
        if last and first:
            x = torch.cat((x[:, :, 1:2], x), dim=2)
        driven = _driven(model, state, stage, x.shape[2], skip=last and not first)
        x = model.mix(stage, x + model.source_resblocks[stage](driven, walk), walk)
    bins = model.bins(x, walk)[0]
    state.spectrum = torch.cat((state.spectrum.to(bins), bins), dim=1)
    state.columns = state.columns[:, :, COLUMNS * new :]
    state.mel = state.mel[:, :, new:]
    state.decoded = end


def _driven(model: Hift, state: VocoderState, stage: int, count: int, *, skip: bool) -> Tensor:
    """Source columns at the rate of a stage: (1, C, count).

    `skip` leaves out the column that an earlier call has had: the last stage has one more than its
    frames.
    """
    stride = SOURCE_STRIDES[stage]
    down = model.source_downs[stage]
    offset = COLUMNS_BEFORE - (stride - 1) + (1 if skip else 0)
    length = (count - 1) * stride + down.kernel_size[0]
    return F.conv1d(state.columns[:, :, offset : offset + length], down.weight, down.bias, stride)


def _overlap_add(state: VocoderState, end: int | None) -> Tensor:
    """Inverse transform of the kept columns; `end` is the final length, None before the end."""
    columns = state.spectrum
    if columns.shape[1] == 0:
        return columns.real.new_zeros(0)
    # Column m covers samples 4 m - 8 … 4 m + 7; the first kept one is the first that is still
    # needed.
    first = max(0, -(-(state.emitted + HALF - FFT + 1) // HOP))
    taper = window(columns.device)
    frames = torch.fft.irfft(columns.T, FFT) * taper
    length = HOP * (len(frames) - 1) + FFT

    def fold(rows: Tensor) -> Tensor:
        return F.fold(rows.T[None], (1, length), (1, FFT), stride=(1, HOP))[0, 0, 0]

    wave = fold(frames) / fold((taper * taper).expand_as(frames)).clamp(min=1e-11)
    origin = HOP * first - HALF
    stop = end if end is not None else HOP * (first + len(frames)) - HALF
    out = wave[state.emitted - origin : stop - origin]
    state.emitted = max(state.emitted, stop)
    needed = max(0, -(-(state.emitted + HALF - FFT + 1) // HOP))
    state.spectrum = columns[:, needed - first :]
    return out.clamp(-LIMIT, LIMIT)
