"""An official checkpoint folder: what it is, what it must hold, and how its weights are loaded."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cosyvoice_stream.cosyvoice.spec_yaml import Tagged, read_spec_yaml
from cosyvoice_stream.cosyvoice.versions import BLANK_EN, V1_YAML, VERSIONS, Version
from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.models.conformer import ConformerConfig
from cosyvoice_stream.models.dit import DitConfig
from cosyvoice_stream.models.flow import Flow, FlowV2, FlowV3
from cosyvoice_stream.models.hift import Hift, HiftConfig
from cosyvoice_stream.models.qwen2 import Qwen2Config
from cosyvoice_stream.models.speech_lm import V2_IDS, V3_IDS, SpeechLm
from cosyvoice_stream.models.unet import UnetConfig

TRAINING_KEYS = frozenset({"epoch", "step"})
SHOWN_KEYS = 5
UNREADABLE = (RuntimeError, OSError, pickle.UnpicklingError, EOFError, ValueError)
"""What `torch.load` raises for a file that is truncated or holds more than tensors."""


@dataclass(frozen=True)
class ModelSpec:
    """Everything that the YAML and the Qwen2 configuration say about a checkpoint."""

    folder: Path
    version: Version
    sample_rate: int
    lm: Qwen2Config
    flow: tuple[ConformerConfig, UnetConfig] | tuple[int, DitConfig]
    """Version 2: encoder and estimator. Version 3: lookahead channels and estimator."""
    hift: HiftConfig
    euler_steps: int = 10

    def file(self, name: str) -> Path:
        """Path of a file of the checkpoint.

        Raises:
            ModelLoadError: It is not there.
        """
        path = self.folder / name
        if not path.exists():
            raise ModelLoadError(
                f"{path} is missing",
                how_to_fix="download the checkpoint again: "
                f"cosyvoice-stream download {self.version.name}",
            )
        return path


def read_spec(folder: Path) -> ModelSpec:
    """Find out which checkpoint a folder holds.

    Raises:
        ModelLoadError: No folder, no known YAML, CosyVoice 1, or a YAML that describes another
        network.
    """
    if not folder.is_dir():
        raise ModelLoadError(f"{folder} is not a folder", how_to_fix="name a checkpoint folder")
    for version in VERSIONS.values():
        path = folder / version.yaml_name
        if path.exists():
            return _spec(folder, version, read_spec_yaml(path.read_text("utf-8")))
    if (folder / V1_YAML).exists():
        raise ModelLoadError(
            f"{folder} holds a CosyVoice 1 checkpoint, which this engine does not run",
            how_to_fix="use a CosyVoice 2 or Fun-CosyVoice 3 checkpoint",
        )
    names = " or ".join(version.yaml_name for version in VERSIONS.values())
    raise ModelLoadError(
        f"{folder} holds no {names}", how_to_fix="name the folder that holds the YAML file"
    )


def _expect(part: Tagged, kind: str) -> Tagged:
    if not isinstance(part, Tagged) or part.kind != kind:
        found = part.kind if isinstance(part, Tagged) else type(part).__name__
        raise ModelLoadError(f"the YAML describes a {found} where a {kind} is expected")
    return part


def _spec(folder: Path, version: Version, root: dict[str, Any]) -> ModelSpec:
    try:
        flow, hift = root["flow"], root["hift"]
        estimator = flow["decoder"]["estimator"]
        parts: tuple[ConformerConfig, UnetConfig] | tuple[int, DitConfig]
        if version.number == 2:
            _expect(root["llm"], "Qwen2LM")
            parts = _v2_parts(_expect(flow, "CausalMaskedDiffWithXvec"), estimator)
        else:
            _expect(root["llm"], "CosyVoice3LM")
            _expect(flow, "CausalMaskedDiffWithDiT")
            _expect(estimator, "DiT")
            parts = (
                int(flow["pre_lookahead_layer"]["channels"]),
                DitConfig(
                    int(estimator["dim"]),
                    int(estimator["depth"]),
                    int(estimator["heads"]),
                    int(estimator["ff_mult"]),
                ),
            )
        vocoder = HiftConfig(
            int(hift["base_channels"]),
            int(hift["f0_predictor"]["cond_channels"]),
            causal=version.number == 3,
        )
        rate = int(root["sample_rate"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelLoadError(f"{version.yaml_name} lacks or garbles {error}") from error
    return ModelSpec(folder, version, rate, _qwen2_config(folder), parts, vocoder)


def _v2_parts(flow: Tagged, estimator: Tagged) -> tuple[ConformerConfig, UnetConfig]:
    encoder = _expect(flow["encoder"], "UpsampleConformerEncoder")
    _expect(estimator, "CausalConditionalDecoder")
    channels = estimator["channels"]
    return (
        ConformerConfig(
            int(encoder["output_size"]),
            int(encoder["attention_heads"]),
            int(encoder["linear_units"]),
            int(encoder["num_blocks"]),
        ),
        UnetConfig(
            int(channels[0] if isinstance(channels, list) else channels),
            int(estimator["n_blocks"]),
            int(estimator["num_mid_blocks"]),
            int(estimator["num_heads"]),
        ),
    )


def _qwen2_config(folder: Path) -> Qwen2Config:
    path = folder / BLANK_EN / "config.json"
    try:
        raw = json.loads(path.read_text("utf-8"))
        return Qwen2Config(
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_hidden_layers=raw["num_hidden_layers"],
            num_attention_heads=raw["num_attention_heads"],
            num_key_value_heads=raw["num_key_value_heads"],
            rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
            rope_theta=raw.get("rope_theta", 1e6),
        )
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path} is missing") from error
    except (KeyError, ValueError) as error:
        raise ModelLoadError(f"{path} is not a Qwen2 configuration: {error}") from error


def build_lm(spec: ModelSpec) -> SpeechLm:
    """The speech LM of a checkpoint, without weights."""
    return SpeechLm(spec.lm, V2_IDS if spec.version.number == 2 else V3_IDS)


def build_flow(spec: ModelSpec) -> Flow:
    """The flow of a checkpoint, without weights."""
    first, second = spec.flow
    if isinstance(first, int):
        assert isinstance(second, DitConfig)
        return FlowV3(first, second)
    assert isinstance(second, UnetConfig)
    return FlowV2(first, second)


def build_hift(spec: ModelSpec) -> Hift:
    """The vocoder of a checkpoint, without weights."""
    return Hift(spec.hift)


def describe_difference(expected: dict[str, Tensor], found: dict[str, Any]) -> str:
    """Say how two sets of tensors differ; empty when they do not."""
    lines = []

    def few(title: str, names: list[str]) -> None:
        if names:
            more = f", and {len(names) - SHOWN_KEYS} more" if len(names) > SHOWN_KEYS else ""
            lines.append(f"{title} ({len(names)}): {', '.join(names[:SHOWN_KEYS])}{more}")

    few("missing", sorted(expected.keys() - found.keys()))
    few("unexpected", sorted(found.keys() - expected.keys()))
    few(
        "wrong shape",
        [
            f"{name} is {tuple(found[name].shape)} instead of {tuple(expected[name].shape)}"
            for name in sorted(expected.keys() & found.keys())
            if not isinstance(found[name], Tensor) or found[name].shape != expected[name].shape
        ],
    )
    return "; ".join(lines)


def load_weights(module: nn.Module, path: Path) -> None:
    """Fill a module from a ``.pt`` file, strictly.

    The file is mapped, so that memory holds one copy; nothing in it is executed.

    Raises:
        ModelLoadError: Unreadable, truncated, not plain tensors, or other keys or shapes than
        expected.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{path} cannot be read as weights: it is truncated or not a checkpoint",
            how_to_fix="download the file again",
        ) from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} does not hold a mapping of tensors")
    tensors = {
        name.replace("generator.", ""): value
        for name, value in found.items()
        if name not in TRAINING_KEYS
    }
    difference = describe_difference(module.state_dict(), tensors)
    if difference:
        raise ModelLoadError(
            f"{path} does not fit the network that the YAML describes: {difference}",
            how_to_fix="use the YAML and the weights of the same checkpoint",
        )
    module.load_state_dict(tensors, strict=True)
