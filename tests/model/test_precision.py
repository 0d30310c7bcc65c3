"""In half precision the networks stay finite and near float32; what sums up stays float32."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from cosyvoice_stream.models.flow import Flow, FlowV3
from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm
from cosyvoice_stream.models.static_decode import GraphedDecode
from support import cosyvoice

pytestmark = pytest.mark.model

VERSIONS = pytest.mark.parametrize("version", [2, 3])
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])

# Measured at mini and official size: bf16 up to 1.0e-2, fp16 up to 1.3e-3 of the deviation.
MEL_ERROR = {torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Root mean square error of the mel, in standard deviations of the mel."""
# Measured likewise: bf16 3.2e-4, fp16 4.5e-6.
DIVERGENCE = {torch.bfloat16: 1e-3, torch.float16: 2e-5}
"""Kullback-Leibler divergence of the next token's distribution, in nats."""


def speak(model: Flow, recorded: dict[str, Tensor], batch: int) -> Tensor:
    """Mel of the first blocks of a batch of utterances that all say the same."""
    tokens = torch.cat((recorded["prompt_token"], recorded["token"]), dim=1).long()
    dtype = model.spk_embed_affine_layer.weight.dtype
    states = [
        model.begin(recorded["embedding"], recorded["prompt_mel"].to(dtype)) for _ in range(batch)
    ]
    mels = [
        model(states, tokens[:, end - 25 : end].expand(batch, -1), tokens[:, end : end + 3])
        for end in (25, 50, 75)
    ]
    assert {layer.keys.dtype for s in states for layer in s.estimator[0].layers} == {dtype}
    return torch.cat(mels, dim=2)


@HALVES
@VERSIONS
def test_flow(version: int, dtype: torch.dtype) -> None:
    recorded = cosyvoice.recorded(version, "mini", "flow")
    model = cosyvoice.flow(version, "mini")
    expected = speak(model, recorded, 1)
    mel = speak(copy.deepcopy(model).to(dtype), recorded, 2)
    assert mel.dtype == torch.float32
    assert torch.isfinite(mel).all()
    error = (mel - expected).square().mean().sqrt() / expected.std()
    assert error < MEL_ERROR[dtype]


@HALVES
def test_noise_and_angles_of_the_flow_stay_float32(dtype: torch.dtype) -> None:
    exact = cosyvoice.flow(3, "mini")
    half = copy.deepcopy(exact).to(dtype)
    assert isinstance(half, FlowV3)
    assert torch.equal(half.noise, exact.noise)
    angles = half.decoder.estimator.rotary_embed.angles(2000, 50)
    assert torch.equal(angles, exact.decoder.estimator.rotary_embed.angles(2000, 50))
    assert half.decoder.estimator.proj_out.weight.dtype == dtype


def test_a_flow_that_is_built_without_memory_has_its_noise() -> None:
    with torch.device("meta"):
        bare = cosyvoice.bare_flow(3, "mini")
    filled = bare.to_empty(device="cpu")
    filled.load_state_dict(cosyvoice.flow(3, "mini").state_dict())
    assert torch.equal(filled.noise, cosyvoice.flow(3, "mini").noise)


def next_log_probs(lm: SpeechLm, tokens: Tensor) -> Tensor:
    """Log-probabilities after a prefill and each of eight decode steps, ragged and static."""
    dtype = lm.speech_embedding.weight.dtype
    cache = KvCache.empty(cosyvoice.lm_config("mini"), 2, 128, torch.device("cpu"), dtype)
    slot, one = torch.tensor([0]), torch.ones(1, dtype=torch.int64)
    rows = lm.speech_rows(tokens)
    prompt = len(tokens) - 8
    hidden = lm.decoder(rows[None, :prompt], slot, torch.tensor([prompt]), cache)
    out = [lm.log_probs(hidden[0, -1])]
    decode = GraphedDecode(lm, cache, 1)
    for step in range(prompt, len(tokens)):
        row = rows[step : step + 1]
        if step % 2:
            out.append(decode.step(row, slot)[0])
        else:
            out.append(lm.log_probs(lm.decoder(row[None], slot, one, cache)[0, -1]))
    return torch.stack(out)


@HALVES
@VERSIONS
def test_language_model(version: int, dtype: torch.dtype) -> None:
    lm = cosyvoice.lm(version, "mini")
    tokens = torch.randint(0, SPEECH_CODES, (60,), generator=torch.Generator().manual_seed(1))
    expected = next_log_probs(lm, tokens)
    actual = next_log_probs(copy.deepcopy(lm).to(dtype), tokens)
    assert actual.dtype == torch.float32
    assert torch.isfinite(actual).all()
    divergence = (expected.exp() * (expected - actual)).sum(-1)
    assert divergence.max() < DIVERGENCE[dtype]
    torch.testing.assert_close(actual.exp().sum(-1), torch.ones(len(actual)), atol=1e-4, rtol=0)
