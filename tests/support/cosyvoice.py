"""CosyVoice networks with named weights, and the numbers that the original gives for them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from cosyvoice_stream.models.conformer import ConformerConfig
from cosyvoice_stream.models.dit import DitConfig
from cosyvoice_stream.models.flow import Flow, FlowV2, FlowV3
from cosyvoice_stream.models.hift import Hift, HiftConfig
from cosyvoice_stream.models.qwen2 import Qwen2Config
from cosyvoice_stream.models.speech_lm import V2_IDS, V3_IDS, SpeechLm
from cosyvoice_stream.models.unet import UnetConfig
from support import named_weights

DATA = Path(__file__).parents[1] / "data" / "cosyvoice"
DIMS = json.loads((DATA / "dims.json").read_text("utf-8"))


def recorded(version: int, size: str, part: str) -> dict[str, Tensor]:
    """Inputs and expected outputs of one part."""
    return load_file(DATA / f"v{version}" / f"{size}.{part}.safetensors")


def lm_config(size: str) -> Qwen2Config:
    """Sizes of the language model."""
    dims = DIMS[size]["lm"]
    return Qwen2Config(**{name: dims[name] for name in Qwen2Config.__dataclass_fields__})


def bare_lm(version: int, size: str) -> SpeechLm:
    """The language model as it comes."""
    return SpeechLm(lm_config(size), V2_IDS if version == 2 else V3_IDS)


def bare_flow(version: int, size: str) -> Flow:
    """The flow as it comes."""
    dims = DIMS[size][f"flow{version}"]
    if version == 3:
        return FlowV3(dims["pre_ch"], DitConfig(dims["dim"], dims["depth"], dims["heads"]))
    return FlowV2(
        ConformerConfig(512, dims["enc_heads"], dims["enc_ff"], dims["enc_blocks"]),
        UnetConfig(dims["unet_ch"], dims["unet_blocks"], dims["unet_mid"], dims["unet_heads"]),
    )


def bare_hift(version: int, size: str) -> Hift:
    """The vocoder as it comes."""
    base = DIMS[size]["hift_base"]
    return Hift(HiftConfig(base, base, causal=version == 3))


@cache
def lm(version: int, size: str) -> SpeechLm:
    """The language model with named weights."""
    module = bare_lm(version, size).eval().requires_grad_(False)
    named_weights.fill(module)
    return module


@cache
def flow(version: int, size: str) -> Flow:
    """The flow with named weights."""
    module = bare_flow(version, size).eval().requires_grad_(False)
    named_weights.fill(module)
    return module


@cache
def hift(version: int, size: str) -> Hift:
    """The vocoder with named weights."""
    module = bare_hift(version, size).eval().requires_grad_(False)
    named_weights.fill(module)
    return module
