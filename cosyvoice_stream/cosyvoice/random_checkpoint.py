"""Writes a checkpoint folder with random weights: everything works, nothing is understood.

It has the layout and, at the official size, the shapes of a real checkpoint, so that a machine can
be measured, and the whole engine tested, without a download. Needs the package ``onnx``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from cosyvoice_stream.cosyvoice.checkpoint import build_flow, build_hift, build_lm, read_spec
from cosyvoice_stream.cosyvoice.versions import BLANK_EN, VERSIONS, Version
from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.flow import SPEAKER_WIDTH

CODES: Final = 729
CODE_STEP: Final = 9
"""The tokenizer stand-in gives the codes 0, 9, 18, …"""


@dataclass(frozen=True)
class Size:
    """Sizes of all networks of a checkpoint."""

    hidden: int
    inner: int
    layers: int
    heads: int
    encoder: tuple[int, int, int]
    """Version 2: heads, feed-forward width, blocks."""
    unet: tuple[int, int, int, int]
    """Version 2: channels, blocks, middle blocks, heads."""
    lookahead: int
    dit: tuple[int, int, int]
    """Version 3: width, depth, heads."""
    vocoder: int


MINI: Final = Size(64, 128, 2, 4, (8, 256, 2), (64, 1, 2, 2), 64, (128, 3, 2), 64)
OFFICIAL: Final = Size(896, 4864, 24, 14, (8, 2048, 6), (256, 4, 12, 8), 1024, (1024, 22, 16), 512)

V2_YAML: Final = """
sample_rate: 24000
llm: !new:cosyvoice.llm.llm.Qwen2LM
    speech_token_size: 6561
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: 512
        attention_heads: {encoder[0]}
        linear_units: {encoder[1]}
        num_blocks: {encoder[2]}
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        estimator: !new:cosyvoice.flow.decoder.CausalConditionalDecoder
            channels: [{unet[0]}]
            n_blocks: {unet[1]}
            num_mid_blocks: {unet[2]}
            num_heads: {unet[3]}
hift: !new:cosyvoice.hifigan.generator.HiFTGenerator
    base_channels: {vocoder}
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.ConvRNNF0Predictor
        cond_channels: {vocoder}
"""
V3_YAML: Final = """
sample_rate: 24000
llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    speech_token_size: 6561
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        channels: {lookahead}
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {dit[0]}
            depth: {dit[1]}
            heads: {dit[2]}
            ff_mult: 2
hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
    base_channels: {vocoder}
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor
        cond_channels: {vocoder}
"""


def write_random_checkpoint(folder: Path, number: int, size: Size = MINI, *, seed: int = 0) -> Path:
    """Write a folder that `CosyVoiceEngine` runs.

    Args:
        folder: Is made where it is missing.
        number: 2 or 3.
        size: Of the networks.
        seed: Same seed, same weights.

    Returns:
        The folder.
    """
    version = VERSIONS[number]
    (folder / BLANK_EN).mkdir(parents=True, exist_ok=True)
    template = V2_YAML if number == 2 else V3_YAML
    (folder / version.yaml_name).write_text(template.format(**vars_of(size)), "utf-8")
    write_vocabulary(folder / BLANK_EN)
    config = {
        "vocab_size": 151936,
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
    }
    (folder / BLANK_EN / "config.json").write_text(json.dumps(config), "utf-8")
    spec = read_spec(folder)
    torch.manual_seed(seed)
    for name, build in (("llm", build_lm), ("flow", build_flow), ("hift", build_hift)):
        module: nn.Module = build(spec)
        torch.save(dict(module.state_dict()), folder / f"{name}.pt")
    write_reference_models(folder, version, seed)
    return folder


def vars_of(size: Size) -> dict[str, Any]:
    """Fields by name, for a template."""
    return {name: getattr(size, name) for name in Size.__dataclass_fields__}


def write_vocabulary(folder: Path) -> None:
    """A byte-level vocabulary without merges beyond a few."""
    # The printable stand-ins of bytes in byte-level BPE (Radford et al., 2019).
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    symbols = [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t")]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    lines = "\n".join(f"{left} {right}" for left, right in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", "utf-8")


def write_reference_models(folder: Path, version: Version, seed: int) -> None:
    """Speaker encoder and speech tokenizer with the inputs and outputs of the real ones."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)

    def tensor(name: str, array: Any) -> Any:
        return numpy_helper.from_array(np.asarray(array), name)

    def save(path: Path, nodes: list[Any], inputs: list[Any], out: Any, weights: list[Any]) -> None:
        graph = helper.make_graph(nodes, "stand-in", inputs, [out], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())

    save(
        folder / "campplus.onnx",
        [
            helper.make_node("Abs", ["input"], ["sizes"]),
            helper.make_node("ReduceMean", ["sizes"], ["mean"], axes=[1], keepdims=0),
            helper.make_node("MatMul", ["mean", "weight"], ["embedding"]),
        ],
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", MEL])],
        helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, SPEAKER_WIDTH]),
        [tensor("weight", rng.standard_normal((MEL, SPEAKER_WIDTH), np.float32))],
    )
    save(
        folder / version.tokenizer_onnx,
        [
            helper.make_node("AveragePool", ["feats"], ["pooled"], kernel_shape=[4], strides=[4]),
            helper.make_node("Transpose", ["pooled"], ["rows"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["rows", "weight"], ["scores"]),
            helper.make_node("ArgMax", ["scores"], ["best"], axis=2, keepdims=0),
            helper.make_node("Cast", ["feats_length"], ["length"], to=TensorProto.INT64),
            helper.make_node("Mul", ["length", "zero"], ["nothing"]),
            helper.make_node("Mul", ["best", "step"], ["codes"]),
            helper.make_node("Add", ["codes", "nothing"], ["indices"]),
        ],
        [
            helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
            helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
        ],
        helper.make_tensor_value_info("indices", TensorProto.INT64, [1, "K"]),
        [
            tensor("weight", rng.standard_normal((128, CODES), np.float32)),
            tensor("step", np.asarray([CODE_STEP], np.int64)),
            tensor("zero", np.asarray([0], np.int64)),
        ],
    )
