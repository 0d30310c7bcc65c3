"""Speech tokens of one segment → samples: flow and vocoder, block by block, batched.

The flow gives out blocks of 25 tokens, counted from the start of the voice's recording, once three
more tokens are known. The recording ends inside a block that the segment's first tokens complete::

    recording  |========|========|=====          state of the voice holds the complete blocks
    segment                           ###|#########|#########|####
    heard                             1st hop        2nd        …  end: all that is left
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.silence_filter import SilenceFilter
from cosyvoice_stream.cosyvoice.tempo import MelStretch
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.models.alike import alike
from cosyvoice_stream.models.causal_vocoder import VocoderState, vocode_batch
from cosyvoice_stream.models.centred_vocoder import CentredState, vocode_centred_batch
from cosyvoice_stream.models.conformer import FRAMES_PER_TOKEN
from cosyvoice_stream.models.flow import BLOCK_TOKENS, Flow, FlowState
from cosyvoice_stream.models.hift import Hift
from cosyvoice_stream.models.lookahead import LOOKAHEAD_TOKENS
from cosyvoice_stream.models.source import NoiseStream
from cosyvoice_stream.types import Samples

MAX_BLOCKS: Final = 4
"""Blocks of one pass, 4 s of speech."""


@dataclass
class SegmentAudio:
    """One segment on its way from tokens to samples."""

    flow: FlowState
    vocoder: VocoderState | CentredState
    stretch: MelStretch
    silences: SilenceFilter
    tokens: list[int]
    """Known tokens that the flow has not had, the recording's open block in front."""
    prompt_left: int
    """Of `tokens`, those of the recording, which are not heard."""
    complete: bool = False
    """No more tokens will come."""
    done: bool = False
    """Everything has been given out."""
    begun: bool = False
    """The vocoder has had frames."""

    def push(self, token: int) -> None:
        """Append a token that was drawn."""
        if self.silences.passes(token):
            self.tokens.append(token)

    def blocks(self, wanted: int) -> int:
        """Whole blocks, at most `wanted`, that can be given out before the end."""
        return min(wanted, max(0, len(self.tokens) - LOOKAHEAD_TOKENS) // BLOCK_TOKENS)

    def next_pass(self, wanted: int) -> tuple[int, bool] | None:
        """Tokens of the next pass and whether it is the last one; None: wait for more tokens."""
        if self.done:
            return None
        blocks = self.blocks(wanted)
        if self.complete and len(self.tokens) <= max(1, wanted) * BLOCK_TOKENS + LOOKAHEAD_TOKENS:
            return len(self.tokens), True
        return (blocks * BLOCK_TOKENS, False) if blocks else None


class AudioRunner:
    """Runs flow and vocoder. One thread uses it.

    Args:
        flow: On its device, in its precision.
        hift: On the same device, in float32.
        version: Number of the model family.
        right_context: Frames that the vocoder of version 2 waits for.
        left_frames: See `FlowState.left_frames`.
    """

    def __init__(
        self,
        flow: Flow,
        hift: Hift,
        version: int,
        right_context: int,
        left_frames: int | None = None,
    ) -> None:
        self._flow = flow
        self._hift = hift
        self._version = version
        self._right = right_context
        self._left = left_frames
        self._device = flow.spk_embed_affine_layer.weight.device

    @torch.inference_mode()
    def voice_state(self, voice: VoiceParts, steps: int) -> FlowState:
        """State of the flow after the complete blocks of a voice's recording."""
        weight = self._flow.spk_embed_affine_layer.weight
        state = self._flow.begin(
            torch.from_numpy(voice.embedding)[None].to(self._device),
            torch.from_numpy(voice.mel)[None].to(self._device, weight.dtype),
            steps,
        )
        whole = max(0, len(voice.tokens) - LOOKAHEAD_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS
        if whole:
            tokens = torch.from_numpy(voice.tokens.astype(np.int64))[None].to(self._device)
            self._flow([state], tokens[:, :whole], tokens[:, whole : whole + LOOKAHEAD_TOKENS])
        return state

    def begin(self, state: FlowState, voice: VoiceParts, speed: float, seed: int) -> SegmentAudio:
        """Open a segment.

        Args:
            state: From `voice_state`, or another fork of it.
            voice: The same voice.
            speed: Tempo.
            seed: Of the vocoder's noise, 63 bits.
        """
        fork = state.fork()
        fork.left_frames = self._left
        rest = voice.tokens[fork.done_tokens :].tolist()
        noise = NoiseStream(seed, uniform=self._version >= 3)
        vocoder = VocoderState(noise) if self._version >= 3 else CentredState(noise, self._right)
        return SegmentAudio(
            fork, vocoder, MelStretch(speed), SilenceFilter(self._version), rest, len(rest)
        )

    @torch.inference_mode()
    def run(self, parts: Sequence[SegmentAudio], wanted: Sequence[int]) -> list[Samples]:
        """Do the next pass of several segments.

        Args:
            parts: Distinct segments for which `SegmentAudio.next_pass` gives something.
            wanted: Blocks of each one's pass, at most.

        Returns:
            Samples that each one's pass completes, at 24 kHz, perhaps none.
        """
        passes = [part.next_pass(most) for part, most in zip(parts, wanted, strict=True)]
        keys = [(one, part.flow.steps) for one, part in zip(passes, parts, strict=True)]
        mels: list[Tensor] = [torch.empty(0)] * len(parts)
        for group in alike(keys):
            shape = passes[group[0]]
            assert shape is not None
            for index, mel in zip(group, self._mel([parts[i] for i in group], *shape), strict=True):
                mels[index] = mel
        finals = [one is not None and one[1] for one in passes]
        for index, part in enumerate(parts):
            mels[index] = part.stretch.push(mels[index], final=finals[index])
            part.done = finals[index]
        return self._vocode(parts, mels, finals)

    def _mel(self, parts: Sequence[SegmentAudio], count: int, final: bool) -> list[Tensor]:
        """One pass of the flow: frames that are to be heard, (1, M, T) each."""
        nothing_new = final and all(count == part.prompt_left for part in parts)
        if count == 0 or nothing_new:
            # A segment that ended before its first token.
            empty = torch.zeros(1, self._flow.noise.shape[1], 0, device=self._device)
            return [empty] * len(parts)
        tokens = torch.tensor([part.tokens[:count] for part in parts]).to(self._device)
        context = None
        if not final:
            ahead = [part.tokens[count : count + LOOKAHEAD_TOKENS] for part in parts]
            context = torch.tensor(ahead).to(self._device)
        mel = self._flow([part.flow for part in parts], tokens, context)
        out = []
        for row, part in enumerate(parts):
            skipped = min(part.prompt_left, count)
            out.append(mel[row : row + 1, :, FRAMES_PER_TOKEN * skipped :])
            part.prompt_left -= skipped
            part.tokens = part.tokens[count:]
        return out

    def _vocode(
        self, parts: Sequence[SegmentAudio], mels: Sequence[Tensor], finals: Sequence[bool]
    ) -> list[Samples]:
        waves: list[Samples] = [np.zeros(0, np.float32)] * len(parts)
        live = [
            i
            for i, (part, mel) in enumerate(zip(parts, mels, strict=True))
            if mel.shape[2] or part.begun
        ]
        if not live:
            return waves
        for index in live:
            parts[index].begun = True
        frames, ends = [mels[i] for i in live], [finals[i] for i in live]
        if self._version >= 3:
            causal = [v for i in live if isinstance(v := parts[i].vocoder, VocoderState)]
            made = vocode_batch(self._hift, causal, frames, finals=ends)
        else:
            centred = [v for i in live if isinstance(v := parts[i].vocoder, CentredState)]
            made = vocode_centred_batch(self._hift, centred, frames, finals=ends)
        # One copy for all of them: each would wait for the device.
        sizes = [len(wave) for wave in made]
        joined = torch.cat(made).cpu().numpy()
        for index, wave in zip(live, np.split(joined, np.cumsum(sizes)[:-1]), strict=True):
            waves[index] = wave
        return waves
