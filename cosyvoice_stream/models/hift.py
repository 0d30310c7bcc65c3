"""The HiFT vocoder: mel frames (50 Hz) → samples (24 kHz) by a short inverse Fourier transform.

Architecture: Li et al., "HiFTNet" (arXiv 2309.09493). Version 2 is centred, version 3 causal with a
few frames of lookahead; both share everything in this file but the direction of their convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from cosyvoice_stream.models.causal import Walk
from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.source import FRAME_SAMPLES, VOICED_ABOVE_HZ, HarmonicSource

FFT = 16
HOP = 4
BINS = FFT // 2 + 1
UP_FACTORS = (8, 5, 3)
UP_KERNELS = (16, 11, 7)
SOURCE_STRIDES = (15, 3, 1)
KERNELS = (3, 7, 11)
SOURCE_KERNELS = (7, 7, 11)
DILATIONS = (1, 3, 5)
LIMIT = 0.99
MAX_MAGNITUDE = 100.0
COLUMNS = FRAME_SAMPLES // HOP
"""Spectral columns per mel frame."""


def window(device: torch.device) -> Tensor:
    """(16,) periodic Hann window."""
    return torch.hann_window(FFT, periodic=True, device=device)


def spectrum(samples: Tensor) -> Tensor:
    """(B, 1, N), padded by half a window on both sides → (B, 18, columns), real then imaginary."""
    frames = samples[:, 0].unfold(1, FFT, HOP) * window(samples.device)
    bins = torch.fft.rfft(frames).mT  # (B, columns, 9) -> (B, 9, columns)
    return torch.cat((bins.real, bins.imag), dim=1)


class Snake(nn.Module):
    """x + sin²(αx) / α (Ziyin et al., arXiv 2006.08195)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T) → (B, C, T)."""
        alpha = self.alpha[:, None]
        return x + torch.sin(alpha * x).square() / (alpha + 1e-9)


class ResidualBlock(nn.Module):
    """Three pairs of convolutions with growing dilation."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()

        def convs(dilations: tuple[int, ...]) -> nn.ModuleList:
            return nn.ModuleList(
                weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d)) for d in dilations
            )

        self.convs1 = convs(DILATIONS)
        self.convs2 = convs((1,) * len(DILATIONS))
        self.activations1 = nn.ModuleList(Snake(channels) for _ in DILATIONS)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in DILATIONS)

    def forward(self, x: Tensor, walk: Walk | None) -> Tensor:
        """(B, C, T) → (B, C, T); centred without a walk, causal with one."""
        for conv1, conv2, act1, act2 in zip(
            self.convs1, self.convs2, self.activations1, self.activations2, strict=True
        ):
            x = x + convolve(conv2, act2(convolve(conv1, act1(x), walk)), walk)
        return x


def convolve(conv: nn.Module, x: Tensor, walk: Walk | None) -> Tensor:
    """Keep the length: causal through the walk, or centred."""
    assert isinstance(conv, nn.Conv1d)
    if walk is not None:
        return walk.conv(conv, x)
    padding = (conv.kernel_size[0] - 1) * conv.dilation[0] // 2
    return F.conv1d(x, conv.weight, conv.bias, padding=padding, dilation=conv.dilation)


@dataclass(frozen=True)
class HiftConfig:
    """Sizes of the vocoder."""

    channels: int
    """Channels before the first upsampling; each one halves them."""
    pitch_channels: int
    causal: bool
    """True for CosyVoice 3."""


class PitchPredictor(nn.Module):
    """Mel frames → fundamental frequency."""

    LAYERS = 5
    LOOKAHEAD = 3
    """Frames that the first convolution of version 3 reaches ahead."""

    def __init__(self, channels: int, *, causal: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(self.LAYERS):
            kernel = 1 + self.LOOKAHEAD if causal and index == 0 else 3
            inputs = channels if index else MEL
            layers += [weight_norm(nn.Conv1d(inputs, channels, kernel)), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 1)

    def forward(self, x: Tensor, walk: Walk | None = None) -> Tensor:
        """(B, M, T) → (B, T) hertz.

        With a walk (version 3) the input holds `LOOKAHEAD` more frames than the output, and
        computation is in float64: pitch is summed up over the whole utterance.
        """
        if walk is None:
            for conv, elu in zip(self.condnet[::2], self.condnet[1::2], strict=True):
                x = elu(convolve(conv, x, None))
            return torch.abs(self.classifier(x.mT)[..., 0])
        first = self.condnet[0]
        x = F.elu(F.conv1d(x.double(), first.weight.double(), first.bias.double()))
        for conv in self.condnet[2::2]:
            x = F.elu(walk.conv(conv, x))
        linear = self.classifier
        x = F.linear(x.mT, linear.weight.double(), linear.bias.double())
        return torch.abs(x[..., 0]).float()


class Hift(nn.Module):
    """Weights of the vocoder and the passes that both versions share."""

    PRE_LOOKAHEAD = 4
    """Frames that `conv_pre` of version 3 reaches ahead."""

    def __init__(self, config: HiftConfig) -> None:
        super().__init__()
        self.config = config
        self.m_source = HarmonicSource()
        self.f0_predictor = PitchPredictor(config.pitch_channels, causal=config.causal)
        kernel = 1 + self.PRE_LOOKAHEAD if config.causal else 7
        self.conv_pre = weight_norm(nn.Conv1d(MEL, config.channels, kernel))
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        channels = config.channels
        for index, (factor, up_kernel) in enumerate(zip(UP_FACTORS, UP_KERNELS, strict=True)):
            narrow = channels // 2
            if config.causal:
                self.ups.append(weight_norm(nn.Conv1d(channels, narrow, up_kernel)))
            else:
                padding = (up_kernel - factor) // 2
                self.ups.append(
                    weight_norm(
                        nn.ConvTranspose1d(channels, narrow, up_kernel, factor, padding=padding)
                    )
                )
            stride = SOURCE_STRIDES[index]
            self.source_downs.append(
                nn.Conv1d(2 * BINS, narrow, 2 * stride if stride > 1 else 1, stride)
            )
            self.source_resblocks.append(ResidualBlock(narrow, SOURCE_KERNELS[index]))
            self.resblocks.extend(ResidualBlock(narrow, k) for k in KERNELS)
            channels = narrow
        self.conv_post = weight_norm(nn.Conv1d(channels, 2 * BINS, 7))

    def fold(self) -> None:
        """Replace magnitude and direction of every weight by their product, for inference.

        Otherwise each pass multiplies them anew. Names of parameters are no longer those of the
        checkpoint; calling it twice is harmless.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d) and parametrize.is_parametrized(
                module
            ):
                parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)

    def mix(self, stage: int, x: Tensor, walk: Walk | None) -> Tensor:
        """Mean of the three residual blocks of a stage."""
        first = stage * len(KERNELS)
        blocks = self.resblocks[first : first + len(KERNELS)]
        total = torch.stack([block(x, walk) for block in blocks]).sum(0)
        return total / len(KERNELS)

    def bins(self, x: Tensor, walk: Walk | None) -> Tensor:
        """Last columns (B, C, columns) → complex spectrum (B, 9, columns)."""
        x = convolve(self.conv_post, F.leaky_relu(x), walk)
        magnitude = x[:, :BINS].exp().clamp(max=MAX_MAGNITUDE)
        return torch.polar(magnitude, torch.sin(x[:, BINS:]))

    def centred_source(
        self, f0: Tensor, before: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Source of version 2: phase linear between frame centres.

        Args:
            f0: (B, T) hertz.
            before: (B, 9) float64 cycles at the centre of the frame before the first, or None at
                the start of the utterance, where the phase is held.
            noise: (B, 480 T, 9) or None.

        Returns:
            The source, (B, 1, 480 T), and the cycles at each frame's centre, (B, T, 9) float64.
        """
        advance = torch.cumsum(FRAME_SAMPLES * self.m_source.phase_steps(f0), dim=1)
        centres = advance if before is None else before[:, None] + advance
        left = centres[:, :1] if before is None else before[:, None]
        padded = torch.cat((left, centres, centres[:, -1:]), dim=1)
        samples = torch.arange(FRAME_SAMPLES * f0.shape[1], device=f0.device, dtype=torch.float64)
        position = (samples + 0.5) / FRAME_SAMPLES + 0.5
        index = position.long()
        part = (position - index)[:, None]
        cycles = padded[:, index] * (1 - part) + padded[:, index + 1] * part
        voiced = (f0 > VOICED_ABOVE_HZ).repeat_interleave(FRAME_SAMPLES, dim=1)
        return self.m_source(cycles, voiced, noise), centres

    def decode_centred(self, mel: Tensor, source: Tensor) -> Tensor:
        """Version 2: (B, M, T) and (B, 1, 480 T) → (B, 480 T)."""
        half = FFT // 2
        columns = spectrum(F.pad(source, (half, half), mode="reflect"))
        x = convolve(self.conv_pre, mel, None)
        for stage, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            if stage == len(self.ups) - 1:
                x = F.pad(x, (1, 0), mode="reflect")
            down = self.source_downs[stage]
            driven = F.conv1d(
                columns, down.weight, down.bias, down.stride, padding=down.stride[0] // 2
            )
            x = self.mix(stage, x + self.source_resblocks[stage](driven, None), None)
        wave = torch.istft(self.bins(x, None), FFT, HOP, FFT, window(mel.device), center=True)
        return wave.clamp(-LIMIT, LIMIT)
