"""Repetition-aware sampling of speech tokens, for a batch of utterances at once.

Nucleus sampling with a second, wider draw when the first would repeat itself: Chen et al., "VALL-E
2" (arXiv 2406.05370), §3.2. Randomness comes in as numbers, one generator per utterance, so an
utterance draws the same tokens alone and in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParams:
    """How an utterance draws its tokens."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    """Generated tokens that count as recent."""
    repeat_ratio: float = 0.1
    """A token that fills at least this part of the window is drawn again."""
    temperature: float = 1.0


def nucleus(log_probs: Tensor, top_p: Tensor, top_k: Tensor) -> tuple[Tensor, Tensor]:
    """Rank the candidates of a nucleus draw.

    An id is kept while the mass kept before it is below `top_p` and fewer than `top_k` are kept, so
    the id that crosses `top_p` is in and at least one is kept. Equal values rank by lower id.

    Args:
        log_probs: (B, V) float32; -inf forbids an id.
        top_p: (B,) float32.
        top_k: (B,) int64.

    Returns:
        ids (B, V) int64 by falling probability, and their renormalised probabilities (B, V), zero
        from the first id that is not kept.
    """
    probs, ids = log_probs.softmax(dim=1).sort(dim=1, descending=True, stable=True)
    before = probs.cumsum(dim=1) - probs
    rank = torch.arange(probs.shape[1], device=probs.device)
    kept = (before < top_p[:, None]) & (rank < top_k[:, None])
    kept[:, 0] = True
    probs = probs * kept
    return ids, probs / probs.sum(dim=1, keepdim=True)


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Invert the cumulative distribution: probabilities (B, V), numbers in [0, 1) (B,) → (B,)."""
    mass = probs.double().cumsum(dim=1)
    threshold = uniform.double() * mass[:, -1]
    index = torch.searchsorted(mass, threshold[:, None], right=True)[:, 0]
    # A threshold rounded up to the whole mass would point behind the last id that has any.
    last = (probs > 0).long().cumsum(dim=1).argmax(dim=1)
    return torch.minimum(index, last)


def sample(
    log_probs: Tensor,
    recent: Tensor,
    uniforms: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    repeats: Tensor,
) -> Tensor:
    """Draw one token per utterance.

    Args:
        log_probs: (B, V) float32; -inf forbids an id.
        recent: (B, W) int64 last generated ids of each utterance, -1 where there are fewer.
        uniforms: (B, 2) numbers in [0, 1) from each utterance's own generator.
        top_p: (B,) float32.
        top_k: (B,) int64.
        repeats: (B,) float32: a candidate that occurs at least so often in `recent` is drawn again,
        from
            all other ids; that second draw stands even if it repeats too.

    Returns:
        (B,) int64.
    """
    ids, probs = nucleus(log_probs, top_p, top_k)
    first = ids.gather(1, draw(probs, uniforms[:, 0])[:, None])
    repeated = (recent == first).sum(dim=1) >= repeats
    others = log_probs.scatter(1, first, float("-inf"))
    # Where nothing else is allowed the candidate stands.
    alone = torch.isinf(others).all(dim=1)
    others = torch.where(alone[:, None], log_probs, others)
    second = draw(others.softmax(dim=1), uniforms[:, 1])
    return torch.where(repeated, second, first[:, 0])
