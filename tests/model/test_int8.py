"""With 8-bit weights the language model stays near float32 and works in every kind of pass."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cosyvoice_stream.models.int8 import Int8Linear, quantise_lm
from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm
from cosyvoice_stream.models.static_decode import GraphedDecode
from support import cosyvoice

pytestmark = pytest.mark.model

VERSIONS = pytest.mark.parametrize("version", [2, 3])
DIVERGENCE = 5e-3
"""Kullback-Leibler divergence of the next token's distribution in nats; measured: 1.5e-3 at mini,
2.8e-3 at official size."""
DEVIATION = 0.5
"""Largest difference of a log-probability; measured: 0.2 and 0.3."""


def log_probs(lm: SpeechLm, tokens: Tensor) -> Tensor:
    """After a prefill of two ragged sequences, a ragged step and a static one: (6, ids)."""
    config, dtype = lm.decoder.config, lm.speech_embedding.weight.dtype
    cache = KvCache.empty(config, 3, 128, torch.device("cpu"), dtype)
    slots, one = torch.tensor([0, 1]), torch.ones(2, dtype=torch.int64)
    rows = lm.speech_rows(tokens)
    lengths = torch.tensor([40, 30])
    padded = torch.stack((rows[:40], torch.cat((rows[:30], rows[29:30].expand(10, -1)))))
    hidden = lm.decoder(padded, slots, lengths, cache)
    out = [lm.log_probs(hidden[torch.arange(2), lengths - 1])]
    out.append(lm.log_probs(lm.decoder(rows[40:42, None], slots, one, cache)[:, 0]))
    out.append(GraphedDecode(lm, cache, 2).step(rows[42:44], slots))
    return torch.cat(out)


@VERSIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_log_probs_stay_near(version: int, dtype: torch.dtype) -> None:
    lm = cosyvoice.lm(version, "mini")
    tokens = torch.randint(0, SPEECH_CODES, (44,), generator=torch.Generator().manual_seed(2))
    expected = log_probs(lm, tokens)
    small = copy.deepcopy(lm).to(dtype)
    quantise_lm(small)
    actual = log_probs(small, tokens)
    assert actual.dtype == torch.float32
    assert float((expected.exp() * (expected - actual)).sum(-1).max()) < DIVERGENCE
    assert float((expected - actual).abs().max()) < DEVIATION
    assert not torch.equal(actual, expected)


def test_every_linear_layer_of_the_transformer_and_no_other() -> None:
    lm = copy.deepcopy(cosyvoice.lm(3, "mini"))
    linear = [m for m in lm.decoder.layers.modules() if isinstance(m, nn.Linear)]
    before = sum(m.weight.nbytes for m in linear)
    quantise_lm(lm)
    quantise_lm(lm)
    small = [m for m in lm.decoder.layers.modules() if isinstance(m, Int8Linear)]
    assert len(small) == len(linear) == 7 * lm.decoder.config.num_hidden_layers
    assert sum(m.weight.nbytes for m in small) == before // 4
    assert not [m for m in lm.decoder.layers.modules() if isinstance(m, nn.Linear)]
    assert isinstance(lm.llm_decoder, nn.Linear)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5),
    inputs=st.integers(2, 70),
    outputs=st.integers(1, 70),
    bias=st.booleans(),
    loudness=st.sampled_from([0.0, 1e-6, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_error_of_one_layer(
    rows: int, inputs: int, outputs: int, bias: bool, loudness: float, seed: int
) -> None:
    torch.manual_seed(seed)
    exact = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    x = loudness * torch.randn(2, rows, inputs)
    # Half a step for each rounded factor, against the largest value of its row or channel.
    weight, half_step = exact.weight, 0.5 / 127
    largest_x = x.abs().amax(-1, keepdim=True)
    largest_w = weight.abs().amax(1)
    bound = (
        half_step * (largest_x * weight.abs().sum(1) + (x.abs().sum(-1, keepdim=True) * largest_w))
        + inputs * half_step**2 * largest_x * largest_w
    )
    error = (Int8Linear(exact)(x) - exact(x)).abs()
    assert (error <= bound + 1e-5 * (1 + loudness)).all()


def test_another_device_is_refused() -> None:
    with torch.device("meta"):
        lm = cosyvoice.bare_lm(3, "mini")
    with pytest.raises(ValueError, match="for the CPU, and the network is on meta"):
        quantise_lm(lm)
