"""The speech LM with 8-bit weights on a CPU, where reading the weights is most of a decode step.

Rows are quantised as they come, each with a scale of its own, weights once, each output channel
with a scale of its own; products are summed up as integers. The output layer stays as it is: it is
a sixtieth of the weights and the nearest to what is drawn from.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosyvoice_stream.models.speech_lm import SpeechLm

LARGEST = 127
TINY = 1e-12
"""Scale of a row of zeros."""


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """(R, D) → int8 (R, D) and float32 scales (R, 1), whose product is about `x`."""
    wide = x.float()
    scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=TINY) / LARGEST
    return (wide / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """Stands in for a linear layer; not trainable.

    Args:
        linear: Of two inputs or more, which `torch._int_mm` needs; finite weights.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantised(linear.weight.detach())
        self.register_buffer("weight", weight)
        """(outputs, inputs) int8."""
        self.register_buffer("scale", scale.mT)
        """(1, outputs) float32."""
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs) in the precision of `x`."""
        rows, scale = quantised(x.flatten(0, -2))
        sums: Tensor = torch._int_mm(rows, self.weight.mT)
        out = (sums * scale * self.scale).to(x.dtype)
        if self.bias is not None:
            out = out + self.bias
        return out.unflatten(0, x.shape[:-1])


def quantise_lm(lm: SpeechLm) -> None:
    """Give the linear layers of the transformer 8-bit weights, in place.

    Names of parameters are no longer those of the checkpoint; calling it twice is harmless.

    Args:
        lm: With its weights, on the CPU.

    Raises:
        ValueError: It is on another device.
    """
    device = lm.speech_embedding.weight.device
    if device.type != "cpu":
        raise ValueError(f"8-bit weights are for the CPU, and the network is on {device.type}")
    for module in list(lm.decoder.layers.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
