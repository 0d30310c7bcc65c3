"""The token encoder of CosyVoice 2: conformer blocks over tokens, upsampling, blocks over frames.

Relative positions: Dai et al., "Transformer-XL" (arXiv 1901.02860), §3.3, with sines in the even
and cosines in the odd columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_stream.models.causal import Walk
from cosyvoice_stream.models.lookahead import LookaheadLayer

UP_BLOCKS = 4
FRAMES_PER_TOKEN = 2


@dataclass(frozen=True)
class ConformerConfig:
    """Sizes of the encoder."""

    width: int
    heads: int
    ff_width: int
    blocks: int


def distance_table(highest: int, lowest: int, width: int, device: torch.device) -> Tensor:
    """Sinusoids of the distances highest, highest - 1, …, lowest: (distances, D) float32."""
    distance = torch.arange(highest, lowest - 1, -1, device=device, dtype=torch.float32)
    rates = torch.exp(
        torch.arange(0, width, 2, device=device, dtype=torch.float32)
        * (-math.log(10_000.0) / width)
    )
    angles = distance[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class RelativeAttention(nn.Module):
    """Self-attention whose scores depend on content and on the distance between the rows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head, self.width = heads, width // heads, width
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, self.head))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, self.head))

    def _split(self, x: Tensor) -> Tensor:
        # (B, T, D) -> (B, H, T, d)
        return x.unflatten(-1, (self.heads, self.head)).transpose(1, 2)

    def _position_scores(self, q: Tensor, length: int) -> Tensor:
        """(1, H, T, d) queries, the last T of `length` rows → (1, H, T, length)."""
        new = q.shape[2]
        table = distance_table(length - 1, 1 - new, self.width, q.device).to(q.dtype)
        positions = self._split(self.linear_pos(table)[None])
        scores = (q + self.pos_bias_v[:, None]) @ positions.mT
        # Row r, key j stand (length - new + r - j) apart, which is column new - 1 - r + j.
        columns = torch.arange(length, device=q.device)[None] + torch.arange(
            new - 1, -1, -1, device=q.device
        ).unsqueeze(1)
        return scores.gather(3, columns.expand(1, self.heads, -1, -1)) / math.sqrt(self.head)

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        q, k, v = (self._split(f(x)) for f in (self.linear_q, self.linear_k, self.linear_v))
        out = []
        for row, seen in enumerate(walk.extend(k, v)):
            query = q[row : row + 1]
            bias = self._position_scores(query, seen.keys.shape[2])
            mask = walk.mask(row, query.shape[2], seen)
            if mask is not None:
                bias = bias.masked_fill(~mask, float("-inf"))
            query = query + self.pos_bias_u[:, None]
            out.append(F.scaled_dot_product_attention(query, *seen[:2], attn_mask=bias))
        joined: Tensor = self.linear_out(torch.cat(out).transpose(1, 2).flatten(2))
        return joined


class FeedForward(nn.Module):
    """Linear, SiLU, linear."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, inner)
        self.w_2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        out: Tensor = self.w_2(F.silu(self.w_1(x)))
        return out


class ConformerBlock(nn.Module):
    """Attention and feed-forward with pre-normalisation, without a convolution."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(config.width, config.heads)
        self.feed_forward = FeedForward(config.width, config.ff_width)
        self.norm_mha = nn.LayerNorm(config.width, eps=1e-12)
        self.norm_ff = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        x = x + self.self_attn(self.norm_mha(x), walk)
        out: Tensor = x + self.feed_forward(self.norm_ff(x))
        return out


class InputLayer(nn.Module):
    """Linear, LayerNorm, scaled by the root of the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, eps=1e-5))
        self.scale = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        out: Tensor = self.out(x) * self.scale
        return out


class Upsampling(nn.Module):
    """Every row twice, then a causal convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 2 * FRAMES_PER_TOKEN + 1)

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, K, D) → (B, 2 K, D)."""
        out = walk.conv(self.conv, x.repeat_interleave(FRAMES_PER_TOKEN, dim=1).mT)
        return out.mT


class Conformer(nn.Module):
    """Token rows → rows of text features at twice the rate, before the projection to mel bands."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.embed = InputLayer(config.width)
        self.pre_lookahead_layer = LookaheadLayer(config.width, config.width)
        self.encoders = nn.ModuleList(ConformerBlock(config) for _ in range(config.blocks))
        self.up_layer = Upsampling(config.width)
        self.up_embed = InputLayer(config.width)
        self.up_encoders = nn.ModuleList(ConformerBlock(config) for _ in range(UP_BLOCKS))
        self.after_norm = nn.LayerNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor, context: Tensor | None, tokens: Walk, frames: Walk) -> Tensor:
        """Encode new tokens.

        Args:
            x: (B, K, D) embedded tokens.
            context: (B, 3, D) embedded tokens that follow, or None at the end of the utterance.
            tokens: Walk over token rows, block of 25.
            frames: Walk over frame rows, block of 50.

        Returns:
            (B, 2 K, D).
        """
        x = self.embed(x)
        if context is None:
            ahead = x.new_zeros(x.shape[0], 3, x.shape[2])
        else:
            ahead = self.embed(context)
        x = self.pre_lookahead_layer(x, ahead, tokens)
        for block in self.encoders:
            x = block(x, tokens)
        x = self.up_embed(self.up_layer(x, frames))
        for block in self.up_encoders:
            x = block(x, frames)
        out: Tensor = self.after_norm(x)
        return out
