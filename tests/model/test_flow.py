"""The flow gives the original's mel, whole, block by block, forked, and in batches."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from cosyvoice_stream.models.flow import BLOCK_TOKENS, Flow, FlowState
from support import cosyvoice

pytestmark = pytest.mark.model

TOLERANCE = {"mini": 1e-4, "official": 1e-3}
VERSIONS = pytest.mark.parametrize("version", [2, 3])


class Utterance:
    """Recorded tokens, fed in any pieces."""

    def __init__(self, model: Flow, recorded: dict[str, Tensor], seed: int | None = None) -> None:
        self.model = model
        self.tokens = torch.cat((recorded["prompt_token"], recorded["token"]), dim=1).long()
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            self.tokens = torch.randint(0, 6561, self.tokens.shape, generator=generator)
        self.prompt_frames = 2 * recorded["prompt_token"].shape[1]
        self.state: FlowState = model.begin(recorded["embedding"], recorded["prompt_mel"])

    @property
    def count(self) -> int:
        return self.tokens.shape[1]

    def piece(self, end: int) -> tuple[Tensor, Tensor | None]:
        start = self.state.done_tokens
        context = self.tokens[:, end : end + 3] if end < self.count else None
        return self.tokens[:, start:end], context

    def run(self, end: int) -> Tensor:
        return self.model([self.state], *self.piece(end))


def block_ends(count: int, rng: random.Random) -> list[int]:
    """Ends of pieces: random block borders, then the end."""
    borders = list(range(BLOCK_TOKENS, count - 3, BLOCK_TOKENS))
    return [*sorted(rng.sample(borders, rng.randint(1, len(borders)))), count]


@VERSIONS
def test_the_whole_utterance_at_once(version: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    utterance = Utterance(cosyvoice.flow(version, "mini"), expected)
    mel = utterance.run(utterance.count)[:, :, utterance.prompt_frames :]
    torch.testing.assert_close(mel, expected["full.streaming.mel"], atol=1e-4, rtol=0)


@VERSIONS
@pytest.mark.parametrize("seed", range(4))
def test_any_cutting_at_block_borders(version: int, seed: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    utterance = Utterance(cosyvoice.flow(version, "mini"), expected)
    ends = block_ends(utterance.count, random.Random(seed))
    mel = torch.cat([utterance.run(end) for end in ends], dim=2)
    mel = mel[:, :, utterance.prompt_frames :]
    torch.testing.assert_close(mel, expected["full.streaming.mel"], atol=1e-4, rtol=0)


@VERSIONS
def test_the_first_piece_needs_only_the_open_block_of_the_prompt(version: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    utterance = Utterance(cosyvoice.flow(version, "mini"), expected)
    utterance.run(50)
    first = utterance.run(75)[:, :, utterance.prompt_frames - 100 :]
    torch.testing.assert_close(first, expected["early.chunk0.0_15.mel"], atol=1e-4, rtol=0)


@VERSIONS
def test_utterances_that_share_a_prompt_do_not_touch_each_other(version: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    model = cosyvoice.flow(version, "mini")
    voice = Utterance(model, expected)
    voice.run(50)
    prompt = voice.state
    one, other = Utterance(model, expected), Utterance(model, expected, seed=3)
    other.tokens[:, :50] = one.tokens[:, :50]
    one.state, other.state = prompt.fork(), prompt.fork()
    mels = []
    for end in (75, 100, 125, one.count):
        other.run(end)
        mels.append(one.run(end))
    mel = torch.cat(mels, dim=2)[:, :, one.prompt_frames - 100 :]
    torch.testing.assert_close(mel, expected["full.streaming.mel"], atol=1e-4, rtol=0)


@VERSIONS
def test_a_batch_of_different_prompts_and_positions_equals_each_alone(version: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    model = cosyvoice.flow(version, "mini")
    starts = (25, 50, 75, 0)

    def fresh(index: int) -> Utterance:
        utterance = Utterance(model, expected, seed=index)
        speaker = expected["embedding"] + 0.1 * index
        prompt = expected["prompt_mel"][:, : 30 * index]
        utterance.state = model.begin(speaker, prompt)
        if starts[index]:
            utterance.run(starts[index])
        return utterance

    alone = [fresh(index).run(starts[index] + 25) for index in range(4)]
    batch = [fresh(index) for index in range(4)]
    pieces = [u.piece(start + 25) for u, start in zip(batch, starts, strict=True)]
    context = torch.cat([c for _, c in pieces if c is not None])
    together = model([u.state for u in batch], torch.cat([t for t, _ in pieces]), context)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=0)


@VERSIONS
def test_official_size(version: int) -> None:
    expected = cosyvoice.recorded(version, "official", "flow_long")
    utterance = Utterance(cosyvoice.flow(version, "official"), expected)
    prompt = expected["prompt_token"].shape[1]
    ends = sorted(
        prompt + int(name.rpartition("_")[2].removesuffix(".mel"))
        for name in expected
        if name.startswith("fixed.chunk")
    )
    mel = torch.cat([utterance.run(end) for end in ends], dim=2)
    mel = mel[:, :, utterance.prompt_frames :]
    for name, chunk in expected.items():
        if name.startswith("fixed.chunk"):
            start, end = (int(n) for n in name.split(".")[2].split("_"))
            torch.testing.assert_close(mel[:, :, 2 * start : 2 * end], chunk, atol=1e-3, rtol=0)


def test_an_utterance_of_more_than_five_minutes_is_refused() -> None:
    model = cosyvoice.flow(3, "mini")
    with pytest.raises(ValueError, match="at most 15000 frames"):
        model._noise(14_990, 20)


@VERSIONS
def test_a_bound_on_the_left_keeps_memory_and_does_not_depend_on_the_cutting(version: int) -> None:
    expected = cosyvoice.recorded(version, "mini", "flow")
    model = cosyvoice.flow(version, "mini")
    prompt = Utterance(model, expected)
    prompt.tokens = torch.randint(0, 6561, (1, 253), generator=torch.Generator().manual_seed(3))
    prompt.run(50)
    exact = prompt.state.fork()

    def rendered(left: int | None, ends: list[int]) -> tuple[Tensor, list[int]]:
        utterance = Utterance(model, expected)
        utterance.tokens = prompt.tokens
        utterance.state = exact.fork()
        utterance.state.left_frames = left
        mels, sizes = [], []
        for end in ends:
            mels.append(utterance.run(end))
            sizes.append(sum(part.fork().nbytes for part in utterance.state.estimator))
        return torch.cat(mels, dim=2), sizes

    single = list(range(75, 251, 25))
    whole, growing = rendered(None, single)
    bounded, steady = rendered(100, single)
    other, _ = rendered(100, [100, 175, 250])
    torch.testing.assert_close(other, bounded, atol=1e-4, rtol=0)
    torch.testing.assert_close(bounded[:, :, :150], whole[:, :, :150], atol=1e-4, rtol=0)
    assert (bounded - whole).abs().max() > 1e-4
    assert growing[-1] > 1.5 * growing[2]
    assert steady[-1] == steady[2]
