"""Repetition-aware sampling draws from the original's distribution, row by row."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from cosyvoice_stream.cosyvoice.sampling import draw, nucleus, sample
from support import cosyvoice

pytestmark = pytest.mark.model

CASES = json.loads((cosyvoice.DATA / "sampling.json").read_text("utf-8"))
DRAWS = 20_000


@pytest.fixture(scope="module")
def recorded() -> dict[str, torch.Tensor]:
    return load_file(cosyvoice.DATA / "sampling.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_candidates(case: str, recorded: dict[str, torch.Tensor]) -> None:
    params = CASES[case]
    ids, probs = nucleus(
        recorded[f"{case}.log_probs"][None],
        torch.tensor([params["top_p"]]),
        torch.tensor([params["top_k"]]),
    )
    count = int((probs > 0).sum())
    assert ids[0, :count].tolist() == recorded[f"{case}.candidates"].tolist()
    torch.testing.assert_close(
        probs[0, :count], recorded[f"{case}.candidate_probs"], atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("case", CASES)
def test_outcomes(case: str, recorded: dict[str, torch.Tensor]) -> None:
    params = CASES[case]
    expected = recorded[f"{case}.final_probs"]
    window = params["win_size"]
    history = recorded[f"{case}.history"].tolist()[-window:]
    recent = torch.tensor([history + [-1] * (window - len(history))])
    drawn = sample(
        recorded[f"{case}.log_probs"].expand(DRAWS, -1),
        recent.expand(DRAWS, -1),
        torch.rand(DRAWS, 2, generator=torch.Generator().manual_seed(17)),
        torch.full((DRAWS,), params["top_p"]),
        torch.full((DRAWS,), params["top_k"]),
        torch.full((DRAWS,), window * params["tau_r"]),
    )
    counts = torch.bincount(drawn, minlength=len(expected))
    assert not counts[expected == 0].any()
    deviation = (expected * (1 - expected) / DRAWS).sqrt()
    likely = expected > 20 / DRAWS
    error = (counts / DRAWS - expected).abs()
    assert (error[likely] <= 5 * deviation[likely]).all()
    rest = abs(float(counts[~likely].sum()) / DRAWS - float(expected[~likely].sum()))
    assert rest <= 0.02


def test_a_draw_at_the_edge_of_the_mass_is_a_kept_id() -> None:
    probs = torch.tensor([[0.3, 0.7, 0.0, 0.0]])
    assert draw(probs, torch.tensor([0.0])).item() == 0
    assert draw(probs, torch.tensor([1.0])).item() == 1


def test_the_only_allowed_id_may_repeat() -> None:
    log_probs = torch.full((1, 5), float("-inf"))
    log_probs[0, 3] = 0.0
    token = sample(
        log_probs,
        torch.full((1, 10), 3),
        torch.tensor([[0.5, 0.5]]),
        torch.tensor([0.8]),
        torch.tensor([25]),
        torch.tensor([1.0]),
    )
    assert token.item() == 3
