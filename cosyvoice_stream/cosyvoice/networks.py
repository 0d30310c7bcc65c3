"""The three networks of a checkpoint on a device, in a precision that has been tried first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.checkpoint import (
    ModelSpec,
    build_flow,
    build_hift,
    build_lm,
    load_weights,
)
from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.errors import ConfigError, ModelLoadError
from cosyvoice_stream.models.flow import BLOCK_TOKENS, SPEAKER_WIDTH, Flow
from cosyvoice_stream.models.hift import Hift
from cosyvoice_stream.models.int8 import quantise_lm
from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm

logger = logging.getLogger(__name__)

TRIAL_ROWS: Final = 24
TRIAL_SEED: Final = 7
WORST_DIFFERENCE: Final = 0.15
"""Root mean square of the difference to fp32, over that of the fp32 output without its mean. bf16
gives about 0.01 to 0.05, a broken precision 1 and more."""
DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Networks:
    """What runs a checkpoint."""

    lm: SpeechLm
    flow: Flow
    hift: Hift
    device: torch.device
    precision: str
    """Such as ``"bf16"``: what was asked for, or fp32 where the trial failed."""
    flow_bytes_per_token: int
    """Memory that the flow keeps for each speech token of an utterance, at ten steps."""


def choose_device(name: str) -> torch.device:
    """Turn a setting into a device.

    Raises:
        ConfigError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"there is no kind of device {name!r}", how_to_fix="use auto, cpu, cuda or cuda:N"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"this engine does not run on {device.type!r}", how_to_fix="use auto, cpu or cuda"
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "torch finds no CUDA device",
            how_to_fix="check `nvidia-smi` and that torch is a CUDA build, or use the device cpu",
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no device {name}; torch finds {torch.cuda.device_count()}",
            how_to_fix="count them from cuda:0",
        )
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """Turn a setting into a precision for the device.

    Raises:
        ConfigError: The device cannot compute in it.
    """
    if name == "auto":
        return "bf16" if device.type == "cuda" else "fp32"
    if name == "int8" and device.type != "cpu":
        raise ConfigError(
            "the precision int8 is for the CPU", how_to_fix="use bf16 or fp16 on CUDA"
        )
    return name


def load_networks(spec: ModelSpec, config: EngineConfig) -> Networks:
    """Load, try and place the networks. Blocks for the loading.

    The output of a reduced precision is compared with that of fp32 on the same device; one that is
    not finite or far off is rejected, and fp32 is used.

    Raises:
        ModelLoadError: A file is missing or damaged, or not even fp32 gives finite numbers.
        ConfigError: Device or precision are not there.
    """
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    lm, flow = _load_lm(spec, device), _load_flow(spec, device)
    hift = build_hift(spec)
    load_weights(hift, spec.file("hift.pt"))
    hift.eval().requires_grad_(False).to(device).fold()
    expected = _trial(lm, flow)
    if not all(torch.isfinite(part).all() for part in expected):
        raise ModelLoadError(
            f"the networks of {spec.folder} give values that are no numbers",
            how_to_fix="the weights are damaged; download the checkpoint again",
        )
    if precision != "fp32":
        _reduce(lm, flow, precision)
        worst = _difference(expected, _trial(lm, flow))
        if not worst <= WORST_DIFFERENCE:
            logger.warning(
                "precision %s is off by %.2g here and is not used; fp32 is", precision, worst
            )
            precision = "fp32"
            del lm, flow
            lm, flow = _load_lm(spec, device), _load_flow(spec, device)
    if config.compile:
        _compile(flow, hift)
    return Networks(lm, flow, hift, device, precision, _flow_bytes(flow))


def _load_lm(spec: ModelSpec, device: torch.device) -> SpeechLm:
    lm = build_lm(spec)
    load_weights(lm, spec.file("llm.pt"))
    return lm.eval().requires_grad_(False).to(device)


def _load_flow(spec: ModelSpec, device: torch.device) -> Flow:
    flow = build_flow(spec)
    load_weights(flow, spec.file("flow.pt"))
    return flow.eval().requires_grad_(False).to(device)


def _reduce(lm: SpeechLm, flow: Flow, precision: str) -> None:
    if precision == "int8":
        quantise_lm(lm)
        return
    lm.to(DTYPES[precision])
    flow.to(DTYPES[precision])


def _compile(flow: Flow, hift: Hift) -> None:
    """Compile what takes fixed inputs; shapes that come later compile once each."""
    estimator = flow.decoder.estimator
    estimator.forward = torch.compile(estimator.forward, dynamic=True)  # type: ignore[method-assign]
    for block in hift.resblocks:
        block.forward = torch.compile(block.forward, dynamic=True)


@torch.inference_mode()
def _trial(lm: SpeechLm, flow: Flow) -> tuple[Tensor, Tensor]:
    """Log-probabilities after some rows, and the mel of one block, on the CPU in float32."""
    weight = lm.speech_embedding.weight
    generator = torch.Generator().manual_seed(TRIAL_SEED)
    tokens = torch.randint(0, SPEECH_CODES, (1, TRIAL_ROWS), generator=generator).to(weight.device)
    cache = KvCache.empty(lm.decoder.config, 1, TRIAL_ROWS, weight.device, weight.dtype)
    rows = lm.speech_rows(tokens[0])[None].to(weight.dtype)
    length = torch.tensor([TRIAL_ROWS])
    hidden = lm.decoder(rows, torch.tensor([0]), length, cache)
    return lm.log_probs(hidden[:, -1]).float().cpu(), _trial_block(flow).float().cpu()


def _trial_block(flow: Flow) -> Tensor:
    layer = flow.spk_embed_affine_layer.weight
    generator = torch.Generator().manual_seed(TRIAL_SEED)
    speaker = torch.randn(1, SPEAKER_WIDTH, generator=generator).to(layer.device)
    count = BLOCK_TOKENS + 3
    tokens = torch.randint(0, SPEECH_CODES, (1, count), generator=generator).to(layer.device)
    state = flow.begin(speaker, torch.zeros(1, 0, 80, device=layer.device, dtype=layer.dtype), 4)
    mel: Tensor = flow([state], tokens[:, :BLOCK_TOKENS], tokens[:, BLOCK_TOKENS:])
    return mel


def _difference(expected: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> float:
    """Largest relative difference; inf where a value is not finite."""
    worst = 0.0
    for want, have in zip(expected, found, strict=True):
        if not torch.isfinite(have).all():
            return float("inf")
        scale = (want - want.mean()).square().mean().sqrt().clamp(min=1e-9)
        worst = max(worst, float((have - want).square().mean().sqrt() / scale))
    return worst


@torch.inference_mode()
def _flow_bytes(flow: Flow) -> int:
    """Measure what a token adds to a state, at ten steps."""
    layer = flow.spk_embed_affine_layer.weight
    state = flow.begin(
        torch.zeros(1, SPEAKER_WIDTH, device=layer.device),
        torch.zeros(1, 0, 80, device=layer.device, dtype=layer.dtype),
        1,
    )
    tokens = torch.zeros(1, 2 * BLOCK_TOKENS + 3, dtype=torch.int64, device=layer.device)
    sizes = []
    for block in range(2):
        end = (block + 1) * BLOCK_TOKENS
        flow([state], tokens[:, block * BLOCK_TOKENS : end], tokens[:, end : end + 3])
        sizes.append(state.fork().nbytes)
    return 10 * (sizes[1] - sizes[0]) // BLOCK_TOKENS
