"""The causal vocoder of CosyVoice 3, mel frames in and samples out, exact however they are cut.

With T frames received, and more to come::

    pitch        |<-------- T - 3 -------->|           its first convolution reaches 3 frames ahead
    decoder      |<------ T - 7 ------>|               conv_pre reaches 4 frames further
    samples      |<- 480 (T - 7) - 4 ->|               the last columns overlap those that follow

At the end zeros stand in for the missing frames, and everything is given out.

Utterances whose passes have the same shape share one. That holds for all that are past their first
call and are given equally many frames, wherever each of them stands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyvoice_stream.models.alike import alike, check_distinct
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
    take_noise,
)

HALF = FFT // 2
COLUMNS_BEFORE = SOURCE_STRIDES[0] - 1
"""Zero columns that the widest strided convolution sees in front of the first one."""


@dataclass
class HeldTensors:
    """What is kept from pass to pass, of one utterance or of the B that share a pass."""

    mel: Tensor = field(default_factory=lambda: torch.zeros(1, MEL, 0))
    """(B, M, frames) frames from `VocoderState.decoded` on."""
    cycles: Tensor = field(default_factory=lambda: torch.zeros(1, HARMONICS, dtype=torch.float64))
    """(B, 9) phase after the last frame with a known pitch."""
    source: Tensor = field(default_factory=lambda: torch.zeros(1, 1, 0))
    """(B, 1, N) samples that later spectral columns need; starts on a column."""
    columns: Tensor = field(default_factory=lambda: torch.zeros(1, 2 * BINS, COLUMNS_BEFORE))
    """(B, 18, columns) of the source, from column 120 · decoded - 14 on."""
    spectrum: Tensor = field(default_factory=lambda: torch.zeros(1, BINS, 0, dtype=torch.complex64))
    """(B, 9, columns) last output columns, which overlap the next ones."""

    @classmethod
    def join(cls, parts: Sequence[HeldTensors], device: torch.device) -> HeldTensors:
        """Stack the rows of several utterances on the device of the pass."""
        return cls(
            *(
                torch.cat([getattr(part, item.name) for part in parts]).to(device)
                for item in fields(cls)
            )
        )

    def row(self, index: int) -> HeldTensors:
        """One utterance's part, in memory of its own."""
        return HeldTensors(
            *(getattr(self, item.name)[index : index + 1].clone() for item in fields(self))
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Columns of every tensor."""
        return tuple(getattr(self, item.name).shape[-1] for item in fields(self))


@dataclass
class VocoderState:
    """What one utterance carries from call to call. Mutated by `vocode_batch`."""

    noise: NoiseStream | None
    """None renders without noise."""
    pitch: CausalState = field(default_factory=CausalState)
    decoder: CausalState = field(default_factory=CausalState)
    held: HeldTensors = field(default_factory=HeldTensors)
    pitched: int = 0
    """Frames with a known pitch."""
    decoded: int = 0
    """Frames that have been through the decoder."""
    emitted: int = 0
    """Samples given out."""

    @property
    def shape(self) -> Hashable:
        """Equal for utterances that a pass over equally many frames treats alike."""
        return (
            self.held.sizes,
            self.pitched - self.decoded,
            self.emitted - FRAME_SAMPLES * self.decoded,
            self.decoded == 0,
            self.noise is None,
        )


def vocode(model: Hift, state: VocoderState, mel: Tensor, *, final: bool) -> Tensor:
    """Take the next frames of one utterance; see `vocode_batch`.

    Returns:
        (N,) float32 samples in [-0.99, 0.99].
    """
    return vocode_batch(model, [state], [mel], finals=[final])[0]


def vocode_batch(
    model: Hift, states: Sequence[VocoderState], mels: Sequence[Tensor], *, finals: Sequence[bool]
) -> list[Tensor]:
    """Take the next frames of several utterances and return the samples that they complete.

    Args:
        model: Vocoder of version 3.
        states: One per utterance; mutated, and of no more use if a pass fails.
        mels: (1, M, T) float32 log-mel for each, T ≥ 0 its own.
        finals: No more frames will follow; then the result holds everything that is left.

    Returns:
        (N,) float32 samples in [-0.99, 0.99] for each utterance.

    Raises:
        ValueError: The arguments differ in length, or an utterance appears twice; nothing has
            changed then.
    """
    check_distinct(states)
    parts = zip(states, mels, finals, strict=True)
    groups = alike((state.shape, mel.shape[2], final) for state, mel, final in parts)
    waves: dict[int, Tensor] = {}
    for members in groups:
        final = finals[members[0]]
        batch = _Batch([states[index] for index in members], [mels[index] for index in members])
        waves.update(zip(members, batch.vocode(model, final=final), strict=True))
    return [waves[index] for index in range(len(states))]


class _Batch:
    """One pass over utterances of the same shape.

    Where they stand differs, but not by what any of the sizes here depend on, so that the first one
    speaks for all.

    Args:
        states: At least one, equal in `VocoderState.shape`.
        mels: Their next frames, equally many.
    """

    def __init__(self, states: Sequence[VocoderState], mels: Sequence[Tensor]) -> None:
        self.states = states
        self.first = states[0]
        new = torch.cat(list(mels))
        self.held = HeldTensors.join([state.held for state in states], new.device)
        self.held.mel = torch.cat((self.held.mel, new), dim=2)

    def vocode(self, model: Hift, *, final: bool) -> Tensor:
        """Do the pass: (B, N) samples. Writes the states."""
        total = self.first.decoded + self.held.mel.shape[2]
        self._extend_source(model, total, final)
        end = total if final else self.first.pitched - Hift.PRE_LOOKAHEAD
        if end > self.first.decoded:
            self._decode(model, end - self.first.decoded, final)
        wave = self._overlap_add(FRAME_SAMPLES * total if final else None)
        for row, state in enumerate(self.states):
            state.held = self.held.row(row)
        return wave

    def _extend_source(self, model: Hift, total: int, final: bool) -> None:
        """Predict pitch as far as the mel allows and turn it into spectral columns of the source.

        Args:
            model: The vocoder.
            total: Frames that the first utterance has received.
            final: No more will follow.
        """
        held, ahead = self.held, PitchPredictor.LOOKAHEAD
        new = total - self.first.pitched - (0 if final else ahead)
        if new > 0:
            source = self._source(model, new, final)
            if self.first.pitched == 0:
                source = F.pad(source, (HALF, 0), mode="reflect")
            held.source = torch.cat((held.source, source), dim=2)
            for state in self.states:
                state.pitched += new
        if final and held.source.shape[2]:
            held.source = F.pad(held.source, (0, HALF), mode="reflect")
        if held.source.shape[2] >= FFT:
            fresh = spectrum(held.source)
            held.columns = torch.cat((held.columns, fresh), dim=2)
            held.source = held.source[:, :, HOP * fresh.shape[2] :]

    def _source(self, model: Hift, new: int, final: bool) -> Tensor:
        """(B, 1, 480 new) source of the next frames."""
        held, ahead = self.held, PitchPredictor.LOOKAHEAD
        start = self.first.pitched - self.first.decoded
        frames = held.mel[:, :, start : start + new + ahead]
        if final:
            frames = F.pad(frames, (0, ahead))
        pitched = [state.pitched for state in self.states]
        walk = Walk([state.pitch for state in self.states], 1, 1, pitched)
        f0 = model.f0_predictor(frames, walk)
        steps = model.m_source.phase_steps(f0)
        ends = held.cycles[:, None] + torch.cumsum(FRAME_SAMPLES * steps, dim=1)
        held.cycles = torch.remainder(ends[:, -1], 1.0)
        noise = take_noise(
            [state.noise for state in self.states],
            [FRAME_SAMPLES * frame for frame in pitched],
            FRAME_SAMPLES * new,
            f0.device,
        )
        return model.m_source(
            ends.repeat_interleave(FRAME_SAMPLES, dim=1),
            (f0 > VOICED_ABOVE_HZ).repeat_interleave(FRAME_SAMPLES, dim=1),
            noise,
        )

    def _decode(self, model: Hift, new: int, final: bool) -> None:
        """Run the decoder over the next `new` frames and keep their output columns."""
        held, ahead = self.held, Hift.PRE_LOOKAHEAD
        begins = self.first.decoded == 0
        decoded = [state.decoded for state in self.states]
        walk = Walk([state.decoder for state in self.states], 1, 1, decoded)
        frames = held.mel[:, :, : new + ahead]
        if final:
            frames = F.pad(frames, (0, ahead))
        x = F.conv1d(frames, model.conv_pre.weight, model.conv_pre.bias)
        for stage, factor in enumerate(UP_FACTORS):
            last = stage == len(UP_FACTORS) - 1
            x = F.leaky_relu(x, 0.1).repeat_interleave(factor, dim=2)
            up = model.ups[stage]
            assert isinstance(up, torch.nn.Conv1d)
            x = walk.conv(up, x)
            if last and begins:
                x = torch.cat((x[:, :, 1:2], x), dim=2)
            driven = self._driven(model, stage, x.shape[2], skip=last and not begins)
            x = model.mix(stage, x + model.source_resblocks[stage](driven, walk), walk)
        held.spectrum = torch.cat((held.spectrum, model.bins(x, walk)), dim=2)
        held.columns = held.columns[:, :, COLUMNS * new :]
        held.mel = held.mel[:, :, new:]
        for state in self.states:
            state.decoded += new

    def _driven(self, model: Hift, stage: int, count: int, *, skip: bool) -> Tensor:
        """Source columns at the rate of a stage: (B, C, count).

        `skip` leaves out the column that an earlier call has had: the last stage has one more than
        its frames.
        """
        stride = SOURCE_STRIDES[stage]
        down = model.source_downs[stage]
        offset = COLUMNS_BEFORE - (stride - 1) + (1 if skip else 0)
        length = (count - 1) * stride + down.kernel_size[0]
        columns = self.held.columns[:, :, offset : offset + length]
        return F.conv1d(columns, down.weight, down.bias, stride)

    def _overlap_add(self, end: int | None) -> Tensor:
        """Inverse transform of the kept columns: (B, N) samples.

        Args:
            end: Final length of the first utterance in samples, None before the end.
        """
        columns = self.held.spectrum
        if columns.shape[2] == 0:
            return columns.real.new_zeros(len(columns), 0)
        # Column m covers samples 4 m - 8 … 4 m + 7; the first kept one is the first that is still
        # needed.
        emitted = self.first.emitted
        first = _first_column(emitted)
        taper = window(columns.device)
        frames = torch.fft.irfft(columns.mT, FFT) * taper
        length = HOP * (frames.shape[1] - 1) + FFT

        def fold(rows: Tensor) -> Tensor:
            # (B, columns, 16) -> (B, samples)
            return F.fold(rows.mT, (1, length), (1, FFT), stride=(1, HOP))[:, 0, 0]

        wave = fold(frames) / fold((taper * taper).expand_as(frames[:1])).clamp(min=1e-11)
        origin = HOP * first - HALF
        stop = end if end is not None else HOP * (first + frames.shape[1]) - HALF
        out = wave[:, emitted - origin : stop - origin]
        for state in self.states:
            state.emitted += max(0, stop - emitted)
        self.held.spectrum = columns[:, :, _first_column(self.first.emitted) - first :]
        return out.clamp(-LIMIT, LIMIT)


def _first_column(emitted: int) -> int:
    """First output column that a sample from `emitted` on needs."""
    return max(0, -(-(emitted + HALF - FFT + 1) // HOP))
