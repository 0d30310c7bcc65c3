"""Speech tokens → mel frames by flow matching, block by block, with a state per utterance.

The flow runs an ordinary differential equation in `steps` Euler steps from noise to mel (Lipman et
al., "Flow Matching", arXiv 2210.02747) with classifier-free guidance. Every layer is causal by
block of 25 tokens (50 frames), so with keys, values and convolution tails kept per Euler step and
guidance row a block costs the same wherever it stands, and equals the whole-sequence result to
float noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_stream.models.causal import CausalState, Walk
from cosyvoice_stream.models.conformer import FRAMES_PER_TOKEN, Conformer, ConformerConfig
from cosyvoice_stream.models.dit import MEL, Dit, DitConfig
from cosyvoice_stream.models.lookahead import LOOKAHEAD_TOKENS, LookaheadLayer
from cosyvoice_stream.models.speech_lm import SPEECH_CODES
from cosyvoice_stream.models.unet import Unet, UnetConfig

SPEAKER_WIDTH = 192
BLOCK_TOKENS = 25
BLOCK_FRAMES = BLOCK_TOKENS * FRAMES_PER_TOKEN
GUIDANCE = 0.7
GUIDANCE_ROWS = 2
DEFAULT_STEPS = 10
NOISE_FRAMES = 15_000
"""Frames of reference noise, 300 s with the prompt; longer utterances continue the same
generator."""


@dataclass
class FlowState:
    """What one utterance carries from block to block. Mutated by `Flow.forward`."""

    speaker: Tensor
    """(1, M) projected speaker embedding."""
    prompt_mel: Tensor
    """(1, T, M) mel of the prompt; frames after it have no condition."""
    steps: int
    tokens: CausalState = field(default_factory=CausalState)
    frames: CausalState = field(default_factory=CausalState)
    estimator: list[CausalState] = field(default_factory=list)
    """One per Euler step."""
    done_tokens: int = 0
    """Tokens that have been turned into frames, prompt included."""
    left_frames: int | None = None
    """Frames before its own block that a frame attends to, besides the prompt, a multiple of
    `BLOCK_FRAMES`; None: all. With a bound memory and cost stay the same, and the result is
    approximate."""

    def fork(self) -> FlowState:
        """A state that continues from here and shares memory; this one must not run again."""
        return FlowState(
            self.speaker,
            self.prompt_mel,
            self.steps,
            self.tokens.fork(),
            self.frames.fork(),
            [state.fork() for state in self.estimator],
            self.done_tokens,
            self.left_frames,
        )

    @property
    def nbytes(self) -> int:
        """Memory that the state holds or shares."""
        states = [self.tokens, self.frames, *self.estimator]
        return sum(state.nbytes for state in states)


class _Decoder(nn.Module):
    """Holds the estimator under the name that the checkpoint gives it."""

    def __init__(self, estimator: Dit | Unet) -> None:
        super().__init__()
        self.estimator = estimator


class Flow(nn.Module):
    """Common part of both versions; a version says how token rows become text features `mu`."""

    noise: Tensor

    def __init__(self, token_width: int, estimator: Dit | Unet) -> None:
        super().__init__()
        self.input_embedding = nn.Embedding(SPEECH_CODES, token_width)
        self.spk_embed_affine_layer = nn.Linear(SPEAKER_WIDTH, MEL)
        self.decoder = _Decoder(estimator)
        # On the CPU, whatever the default device: other generators give other numbers.
        generator = torch.Generator("cpu").manual_seed(0)
        noise = torch.randn(
            [1, MEL, NOISE_FRAMES], generator=generator, dtype=torch.float32, device="cpu"
        )
        self.register_buffer("noise", noise, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Flow:
        """Move or convert the network; the noise moves along and stays float32."""
        noise = self.noise
        super()._apply(fn, recurse)
        self.noise = noise.to(self.noise.device)
        return self

    def encode(self, rows: Tensor, context: Tensor | None, tokens: Walk, frames: Walk) -> Tensor:
        """Embedded tokens (B, K, D) and the three that follow → mu (B, 2 K, M)."""
        raise NotImplementedError

    def begin(self, speaker: Tensor, prompt_mel: Tensor, steps: int = DEFAULT_STEPS) -> FlowState:
        """Open an utterance.

        Args:
            speaker: (1, 192) embedding of the reference speaker, in any precision.
            prompt_mel: (1, T, M) log-mel of the prompt, two frames a prompt token.
            steps: Euler steps.
        """
        layer = self.spk_embed_affine_layer
        projected = layer(F.normalize(speaker.float(), dim=1).to(layer.weight.dtype))
        return FlowState(projected, prompt_mel, steps)

    def forward(
        self, states: Sequence[FlowState], tokens: Tensor, context: Tensor | None
    ) -> Tensor:
        """Turn the next tokens of a batch of utterances into mel frames.

        Blocks are counted from the start of the prompt. All rows must end at the end of a block,
        except in the last pass of an utterance.

        Args:
            states: One per utterance, all with the same number of Euler steps and the same bound
                of frames; mutated.
            tokens: (B, K) int64 next tokens (prompt tokens first), the same count for every row.
            context: (B, 3) int64 tokens that follow, or None when the utterances end here.

        Returns:
            (B, M, 2 K) float32 mel frames, those of the prompt included.
        """
        rows = self.input_embedding(tokens.clamp(min=0))
        ahead = None if context is None else self.input_embedding(context.clamp(min=0))
        starts = [state.done_tokens for state in states]
        frame_starts = [FRAMES_PER_TOKEN * start for start in starts]
        mu = self.encode(
            rows,
            ahead,
            Walk([state.tokens for state in states], 1, BLOCK_TOKENS, starts),
            Walk([state.frames for state in states], 1, BLOCK_FRAMES, frame_starts),
        ).mT  # (B, T, M) -> (B, M, T)
        mel = self._solve(states, mu, frame_starts)
        for state in states:
            state.done_tokens += tokens.shape[1]
        return mel

    def _condition(self, state: FlowState, start: int, count: int, like: Tensor) -> Tensor:
        """(1, M, T): the prompt's mel where it covers the frames from `start`, else zero."""
        known = state.prompt_mel[:, start : start + count].mT
        return F.pad(known, (0, count - known.shape[2])).to(like.dtype)

    def _noise(self, start: int, count: int) -> Tensor:
        end = start + count
        if end > self.noise.shape[2]:
            raise ValueError(f"an utterance holds at most {self.noise.shape[2]} frames")
        return self.noise[:, :, start:end]

    def _solve(self, states: Sequence[FlowState], mu: Tensor, starts: Sequence[int]) -> Tensor:
        """Solve the equation for new frames: (B, M, T) float32.

        The solution is summed up in float32, whatever precision the estimator computes in.
        """
        steps, count = states[0].steps, mu.shape[2]
        for state in states:
            if not state.estimator:
                state.estimator = [CausalState() for _ in range(steps)]
        x = torch.cat([self._noise(start, count) for start in starts])
        cond = torch.cat(
            [self._condition(s, start, count, mu) for s, start in zip(states, starts, strict=True)]
        )
        speaker = torch.cat([state.speaker for state in states])

        def guided(y: Tensor) -> Tensor:
            # (B, …) -> (B·2, …): the row as it is, then the unconditional one
            return torch.stack((y, torch.zeros_like(y)), dim=1).flatten(0, 1)

        mu, cond, speaker = guided(mu), guided(cond), guided(speaker)
        times = [1 - math.cos(math.pi / 2 * k / steps) for k in range(steps + 1)]
        for k in range(steps):
            walk = Walk(
                [s.estimator[k] for s in states],
                GUIDANCE_ROWS,
                BLOCK_FRAMES,
                starts,
                states[0].left_frames,
            )
            t = torch.full((mu.shape[0],), times[k], device=mu.device)
            rows = x.to(mu.dtype).repeat_interleave(GUIDANCE_ROWS, dim=0)
            velocity = self.decoder.estimator(rows, mu, t, speaker, cond, walk).float()
            velocity = velocity.unflatten(0, (-1, GUIDANCE_ROWS))
            velocity = (1 + GUIDANCE) * velocity[:, 0] - GUIDANCE * velocity[:, 1]
            x = x + (times[k + 1] - times[k]) * velocity
        return x


class FlowV2(Flow):
    """CosyVoice 2: conformer encoder, U-Net estimator."""

    def __init__(self, encoder: ConformerConfig, estimator: UnetConfig) -> None:
        super().__init__(encoder.width, Unet(estimator))
        self.encoder = Conformer(encoder)
        self.encoder_proj = nn.Linear(encoder.width, MEL)

    def encode(self, rows: Tensor, context: Tensor | None, tokens: Walk, frames: Walk) -> Tensor:
        """See `Flow.encode`."""
        out: Tensor = self.encoder_proj(self.encoder(rows, context, tokens, frames))
        return out


class FlowV3(Flow):
    """CosyVoice 3: lookahead convolution only, transformer estimator."""

    def __init__(self, lookahead_width: int, estimator: DitConfig) -> None:
        super().__init__(MEL, Dit(estimator))
        self.pre_lookahead_layer = LookaheadLayer(MEL, lookahead_width)

    def encode(self, rows: Tensor, context: Tensor | None, tokens: Walk, frames: Walk) -> Tensor:
        """See `Flow.encode`."""
        if context is None:
            context = rows.new_zeros(rows.shape[0], LOOKAHEAD_TOKENS, rows.shape[2])
        mixed: Tensor = self.pre_lookahead_layer(rows, context, tokens)
        return mixed.repeat_interleave(FRAMES_PER_TOKEN, dim=1)
