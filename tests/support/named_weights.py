"""Weights that follow from their names, so that a network of any size can be checked without a
checkpoint.

The recorded numbers in ``tests/data/cosyvoice`` were computed with the original implementation on
these weights and inputs.
"""

from __future__ import annotations

import math
import zlib

import torch
from torch import Tensor, nn

SMALL_EMBEDDINGS = (
    "embed_tokens.weight",
    "speech_embedding.weight",
    "llm_embedding.weight",
    "lm_head.weight",
)
TIED = {"llm.model.lm_head.weight": "llm.model.model.embed_tokens.weight"}
FORMULA = "rotary_embed.inv_freq"
"""A buffer that a checkpoint holds although it is a formula; modules compute it."""


def generator(name: str) -> torch.Generator:
    """The source of numbers that belongs to a name."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def weight(name: str, shape: torch.Size) -> Tensor:
    """The float32 tensor that belongs to `name`; the first rule that fits wins."""
    name = TIED.get(name, name)
    r = torch.randn(shape, generator=generator(name))
    if name.endswith("f0_predictor.classifier.bias"):
        return 150.0 + 0.02 * r  # a voiced pitch
    if name.endswith("conv_post.bias"):
        return -5.0 + 0.02 * r  # a quiet output
    if "conv_post." in name and name.endswith("original0"):
        return 0.2 * (1.0 + 0.1 * r.abs())
    if name.endswith("input_embedding.weight"):
        return r
    if name.endswith(SMALL_EMBEDDINGS):
        return 0.02 * r
    if name.endswith("original0"):
        return 1.0 + 0.1 * r.abs()
    if name.endswith("alpha"):
        return 1.0 + 0.1 * r
    if name.endswith(("bias", "pos_bias_u", "pos_bias_v")):
        return 0.02 * r
    if len(shape) == 1 and name.endswith("weight"):
        return 1.0 + 0.1 * r
    return r / math.sqrt(math.prod(shape[1:]))


def fill(module: nn.Module) -> None:
    """Give every tensor of a module's state its named value."""
    with torch.no_grad():
        state = {
            name: value if name.endswith(FORMULA) else weight(name, value.shape)
            for name, value in module.state_dict().items()
        }
        module.load_state_dict(state)


def named_input(name: str, shape: tuple[int, ...]) -> Tensor:
    """Float32 N(0, 1) input that belongs to `name`."""
    return torch.randn(shape, generator=generator(name))
