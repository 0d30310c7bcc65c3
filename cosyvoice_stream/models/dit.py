"""The estimator of CosyVoice 3: a diffusion transformer over mel frames, causal by block.

Architecture: Peebles and Xie, "Scalable Diffusion Models with Transformers" (arXiv 2212.09748),
with the input layer of F5-TTS (arXiv 2410.06885).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_stream.models.causal import Walk

HEAD = 64
MEL = 80
POSITION_KERNEL = 31
POSITION_GROUPS = 16
TIME_FREQUENCIES = 128


@dataclass(frozen=True)
class DitConfig:
    """Sizes of the transformer."""

    width: int
    depth: int
    heads: int
    ff_factor: int = 2


def sinusoid(t: Tensor, frequencies: int, scale: float = 1000.0) -> Tensor:
    """(B,) times in [0, 1] → (B, 2 · frequencies), sines first."""
    rates = torch.exp(
        torch.arange(frequencies, device=t.device, dtype=torch.float32)
        * (-math.log(10_000.0) / (frequencies - 1))
    )
    angles = scale * t.float()[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class TimeEmbedding(nn.Module):
    """Flow time → a row that steers every block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(
            nn.Linear(2 * TIME_FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, t: Tensor) -> Tensor:
        """(B,) → (B, D)."""
        weight = self.time_mlp[0].weight
        out: Tensor = self.time_mlp(sinusoid(t, TIME_FREQUENCIES).to(weight.dtype))
        return out


class PositionConv(nn.Module):
    """Two grouped causal convolutions that tell a frame where it stands."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv1d(width, width, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish()
        )
        self.conv2 = nn.Sequential(
            nn.Conv1d(width, width, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish()
        )

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        y = x.mT  # (B, T, D) -> (B, D, T)
        for stage in (self.conv1, self.conv2):
            y = stage[1](walk.conv(stage[0], y))
        return y.mT


class InputEmbedding(nn.Module):
    """Noisy mel, prompt mel, text features and speaker → rows of the transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(4 * MEL, width)
        self.conv_pos_embed = PositionConv(width)

    def forward(self, x: Tensor, cond: Tensor, mu: Tensor, speaker: Tensor, walk: Walk) -> Tensor:
        """(B, T, M) three times and (B, M) → (B, T, D)."""
        speaker = speaker[:, None].expand(-1, x.shape[1], -1)
        rows = self.proj(torch.cat((x, cond, mu, speaker), dim=-1))
        out: Tensor = self.conv_pos_embed(rows, walk) + rows
        return out


class RotaryTable(nn.Module):
    """Keeps the rates of rotation under the name that the checkpoint gives them."""

    inv_freq: Tensor

    def __init__(self) -> None:
        super().__init__()
        rates = 10_000.0 ** (-torch.arange(0, HEAD, 2, device="cpu").float() / HEAD)
        self.register_buffer("inv_freq", rates)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryTable:
        """Move or convert the module; the rates move along and stay float32.

        Rounded to bfloat16 they would put the angles of frame 1000 off by a radian.
        """
        rates = self.inv_freq
        super()._apply(fn, recurse)
        self.inv_freq = rates.to(self.inv_freq.device)
        return self

    def angles(self, start: int, count: int) -> Tensor:
        """(T, 32) float32 for frames from `start`."""
        positions = torch.arange(start, start + count, device=self.inv_freq.device)
        return positions.float()[:, None] * self.inv_freq


def rotate_first_head(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate interleaved pairs of the first 64 of (B, T, D) channels, as the model was trained."""
    head = x[..., :HEAD].unflatten(-1, (HEAD // 2, 2))
    even, odd = head[..., 0], head[..., 1]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return torch.cat((turned.flatten(-2), x[..., HEAD:]), dim=-1)


class DitAttention(nn.Module):
    """Self-attention, block-causal."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, heads * HEAD)
        self.to_k = nn.Linear(width, heads * HEAD)
        self.to_v = nn.Linear(width, heads * HEAD)
        self.to_out = nn.Sequential(nn.Linear(heads * HEAD, width))

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], walk: Walk) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        q = rotate_first_head(self.to_q(x), *rotary)
        k = rotate_first_head(self.to_k(x), *rotary)
        v = self.to_v(x)
        # (B, T, H·d) -> (B, H, T, d)
        q, k, v = (y.unflatten(-1, (self.heads, HEAD)).transpose(1, 2) for y in (q, k, v))
        out: Tensor = self.to_out(walk.attend(q, k, v).transpose(1, 2).flatten(2))
        return out


class Modulation(nn.Module):
    """Time row → shifts, scales and gates."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, parts * width)
        self.parts = parts

    def forward(self, time: Tensor) -> tuple[Tensor, ...]:
        """(B, D) → `parts` tensors (B, 1, D)."""
        out: Tensor = self.linear(F.silu(time))
        return out[:, None].chunk(self.parts, dim=-1)


def plain_norm(x: Tensor) -> Tensor:
    """LayerNorm without weights."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


class FeedForward(nn.Module):
    """Linear, tanh-GELU, linear."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.ff = nn.Sequential(
            nn.Sequential(nn.Linear(width, factor * width), nn.GELU(approximate="tanh")),
            nn.Dropout(0.0),
            nn.Linear(factor * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        out: Tensor = self.ff(x)
        return out


class DitBlock(nn.Module):
    """Attention and feed-forward, both modulated by time."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.attn_norm = Modulation(config.width, 6)
        self.attn = DitAttention(config.width, config.heads)
        self.ff = FeedForward(config.width, config.ff_factor)

    def forward(self, x: Tensor, time: Tensor, rotary: tuple[Tensor, Tensor], walk: Walk) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.attn_norm(time)
        x = x + gate_a * self.attn(plain_norm(x) * (1 + scale_a) + shift_a, rotary, walk)
        out: Tensor = x + gate_m * self.ff(plain_norm(x) * (1 + scale_m) + shift_m)
        return out


class Dit(nn.Module):
    """Velocity of the flow at one time, for new frames of a batch of utterances."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.time_embed = TimeEmbedding(config.width)
        self.input_embed = InputEmbedding(config.width)
        self.rotary_embed = RotaryTable()
        self.transformer_blocks = nn.ModuleList(DitBlock(config) for _ in range(config.depth))
        self.norm_out = Modulation(config.width, 2)
        self.proj_out = nn.Linear(config.width, MEL)

    def forward(
        self, x: Tensor, mu: Tensor, t: Tensor, speaker: Tensor, cond: Tensor, walk: Walk
    ) -> Tensor:
        """Estimate the velocity.

        Args:
            x: (B·G, M, T) frames at flow time `t`.
            mu: (B·G, M, T) text features.
            t: (B·G,) flow time in [0, 1].
            speaker: (B·G, M).
            cond: (B·G, M, T) mel of the prompt, zeros after it.
            walk: Carries the state of each utterance; mutated.

        Returns:
            (B·G, M, T).
        """
        time = self.time_embed(t)
        rows = self.input_embed(x.mT, cond.mT, mu.mT, speaker, walk)
        angles = torch.stack([self.rotary_embed.angles(s, x.shape[2]) for s in walk.starts])
        angles = angles.repeat_interleave(walk.group, dim=0)
        rotary = (angles.cos().to(rows.dtype), angles.sin().to(rows.dtype))
        for block in self.transformer_blocks:
            rows = block(rows, time, rotary, walk)
        scale, shift = self.norm_out(time)
        out: Tensor = self.proj_out(plain_norm(rows) * (1 + scale) + shift)
        return out.mT
