"""The estimator of CosyVoice 2: causal residual blocks and transformer blocks over mel frames.

Architecture: the decoder of Matcha-TTS (arXiv 2309.03199), made causal by block and without any
change of the time scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_stream.models.causal import Walk
from cosyvoice_stream.models.dit import HEAD, MEL, sinusoid

IN_CHANNELS = 4 * MEL
KERNEL = 3


@dataclass(frozen=True)
class UnetConfig:
    """Sizes of the estimator."""

    channels: int
    blocks: int
    """Transformer blocks in each stage."""
    mid_stages: int
    heads: int


class CausalBlock(nn.Module):
    """Causal convolution, LayerNorm over channels, Mish."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        # Index 0 and 2 hold weights in the checkpoint; index 1 is the transpose between them.
        self.block = nn.ModuleDict(
            {"0": nn.Conv1d(inputs, outputs, KERNEL), "2": nn.LayerNorm(outputs)}
        )

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, C, T) → (B, C', T)."""
        conv, norm = self.block["0"], self.block["2"]
        assert isinstance(conv, nn.Conv1d)
        y: Tensor = F.mish(norm(walk.conv(conv, x).mT))  # (B, C, T) -> (B, T, C)
        return y.mT


class ResidualBlock(nn.Module):
    """Two causal blocks with the time row added between them, and a 1×1 skip."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), nn.Linear(time_width, outputs))
        self.block1 = CausalBlock(inputs, outputs)
        self.block2 = CausalBlock(outputs, outputs)
        self.res_conv = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor, walk: Walk) -> Tensor:
        """(B, C, T) and (B, time width) → (B, C', T)."""
        hidden = self.block1(x, walk) + self.mlp(time)[:, :, None]
        out: Tensor = self.block2(hidden, walk) + self.res_conv(x)
        return out


class Attention(nn.Module):
    """Self-attention, block-causal, without positions."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(channels, heads * HEAD, bias=False)
        self.to_k = nn.Linear(channels, heads * HEAD, bias=False)
        self.to_v = nn.Linear(channels, heads * HEAD, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * HEAD, channels))

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        q, k, v = (
            f(x).unflatten(-1, (self.heads, HEAD)).transpose(1, 2)  # (B, T, H·d) -> (B, H, T, d)
            for f in (self.to_q, self.to_k, self.to_v)
        )
        out: Tensor = self.to_out(walk.attend(q, k, v).transpose(1, 2).flatten(2))
        return out


class GeluProjection(nn.Module):
    """Linear and exact GELU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.proj = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C')."""
        return F.gelu(self.proj(x))


class FeedForward(nn.Module):
    """Widen by four and back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            GeluProjection(channels, 4 * channels),
            nn.Dropout(0.0),
            nn.Linear(4 * channels, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        out: Tensor = self.net(x)
        return out


class TransformerBlock(nn.Module):
    """Attention and feed-forward with pre-normalisation."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attn1 = Attention(channels, heads)
        self.norm3 = nn.LayerNorm(channels)
        self.ff = FeedForward(channels)

    def forward(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        x = x + self.attn1(self.norm1(x), walk)
        out: Tensor = x + self.ff(self.norm3(x))
        return out


class Stage(nn.ModuleList):
    """A residual block, transformer blocks and, at both ends of the network, a convolution."""

    def __init__(self, inputs: int, config: UnetConfig, *, conv: bool) -> None:
        channels = config.channels
        parts: list[nn.Module] = [
            ResidualBlock(inputs, channels, 4 * channels),
            nn.ModuleList(TransformerBlock(channels, config.heads) for _ in range(config.blocks)),
        ]
        if conv:
            parts.append(nn.Conv1d(channels, channels, KERNEL))
        super().__init__(parts)

    def forward(self, x: Tensor, time: Tensor, walk: Walk) -> Tensor:
        """(B, C, T) → (B, C', T), without the convolution."""
        blocks = self[1]
        assert isinstance(blocks, nn.ModuleList)
        rows = self[0](x, time, walk).mT  # (B, C, T) -> (B, T, C)
        for block in blocks:
            rows = block(rows, walk)
        out: Tensor = rows.mT
        return out

    def convolve(self, x: Tensor, walk: Walk) -> Tensor:
        """(B, C, T) → (B, C, T)."""
        conv = self[2]
        assert isinstance(conv, nn.Conv1d)
        return walk.conv(conv, x)


class TimeMlp(nn.Module):
    """Flow time → a row that steers the residual blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(IN_CHANNELS, 4 * channels)
        self.linear_2 = nn.Linear(4 * channels, 4 * channels)

    def forward(self, t: Tensor) -> Tensor:
        """(B,) → (B, 4 C)."""
        waves = sinusoid(t, IN_CHANNELS // 2).to(self.linear_1.weight.dtype)
        out: Tensor = self.linear_2(F.silu(self.linear_1(waves)))
        return out


class Unet(nn.Module):
    """Velocity of the flow at one time, for new frames of a batch of utterances."""

    def __init__(self, config: UnetConfig) -> None:
        super().__init__()
        channels = config.channels
        self.time_mlp = TimeMlp(channels)
        self.down_blocks = nn.ModuleList([Stage(IN_CHANNELS, config, conv=True)])
        self.mid_blocks = nn.ModuleList(
            Stage(channels, config, conv=False) for _ in range(config.mid_stages)
        )
        self.up_blocks = nn.ModuleList([Stage(2 * channels, config, conv=True)])
        self.final_block = CausalBlock(channels, channels)
        self.final_proj = nn.Conv1d(channels, MEL, 1)

    def forward(
        self, x: Tensor, mu: Tensor, t: Tensor, speaker: Tensor, cond: Tensor, walk: Walk
    ) -> Tensor:
        """Estimate the velocity; arguments and result as in `Dit.forward`."""
        time = self.time_mlp(t)
        speaker = speaker[:, :, None].expand(-1, -1, x.shape[2])
        down, up = self.down_blocks[0], self.up_blocks[0]
        assert isinstance(down, Stage)
        assert isinstance(up, Stage)
        skip = down(torch.cat((x, mu, speaker, cond), dim=1), time, walk)
        x = down.convolve(skip, walk)
        for stage in self.mid_blocks:
            x = stage(x, time, walk)
        x = up(torch.cat((x, skip), dim=1), time, walk)
        x = self.final_block(up.convolve(x, walk), walk)
        out: Tensor = self.final_proj(x)
        return out
