"""A batch of vocoder calls gives each utterance what it gets alone, whoever joins or leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyvoice_stream.models.causal_vocoder import VocoderState, vocode, vocode_batch
from cosyvoice_stream.models.centred_vocoder import (
    CentredState,
    vocode_centred,
    vocode_centred_batch,
)
from cosyvoice_stream.models.hift import Hift
from cosyvoice_stream.models.source import NoiseStream
from support import cosyvoice, named_weights

pytestmark = pytest.mark.model

VERSIONS = pytest.mark.parametrize("version", [2, 3])
TOLERANCE = 1e-5
# oneDNN may sum a row of a batch in another order than the same row alone, and the network of
# version 3 amplifies rounding some hundredfold: 6e-5 at official size, where a wave has a standard
# deviation of 0.7. Plain convolutions keep the order and stay below 2e-7.
ROUNDING = {2: 1e-5, 3: 1e-4}
plain_convolutions = pytest.mark.filterwarnings("ignore:TF32 acceleration:UserWarning")


def fresh(version: int, seed: int, *, noisy: bool, right: int = 8) -> Any:
    """State of an utterance that begins."""
    noise = NoiseStream(seed, uniform=version == 3) if noisy else None
    return VocoderState(noise) if version == 3 else CentredState(noise, right)


SINGLE: dict[int, Callable[..., Tensor]] = {2: vocode_centred, 3: vocode}
BATCH: dict[int, Callable[..., list[Tensor]]] = {2: vocode_centred_batch, 3: vocode_batch}


@dataclass(frozen=True)
class Part:
    """One utterance of a script."""

    seed: int
    noisy: bool
    pieces: tuple[int, ...]
    """Frames of each call; the last call is the final one."""

    def mel(self, version: int) -> Tensor:
        """Recorded frames from somewhere in the middle."""
        mel = cosyvoice.recorded(version, "mini", "hift")["mel"]
        return mel.roll(7 * self.seed, dims=2)[:, :, : sum(self.pieces)]

    def cut(self, version: int) -> Sequence[Tensor]:
        return self.mel(version).split(self.pieces, dim=2)


def alone(model: Hift, version: int, part: Part) -> list[Tensor]:
    state = fresh(version, part.seed, noisy=part.noisy)
    last = len(part.pieces) - 1
    return [
        SINGLE[version](model, state, mel, final=index == last)
        for index, mel in enumerate(part.cut(version))
    ]


# Few sizes, so that utterances often agree in shape; 0 and 1 frame are legal too.
PIECES = st.lists(st.sampled_from([0, 1, 5, 20, 20, 20]), min_size=1, max_size=5).map(tuple)
PARTS = st.lists(st.builds(Part, st.integers(0, 9), st.booleans(), PIECES), min_size=1, max_size=6)


@plain_convolutions
@VERSIONS
@settings(max_examples=25, deadline=None)
@given(parts=PARTS, data=st.data())
def test_any_mix_of_utterances(version: int, parts: list[Part], data: st.DataObject) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        check_mix(cosyvoice.hift(version, "mini"), version, parts, data)


def check_mix(model: Hift, version: int, parts: list[Part], data: st.DataObject) -> None:
    pieces = [list(part.cut(version)) for part in parts]
    states = [fresh(version, part.seed, noisy=part.noisy) for part in parts]
    waves: list[list[Tensor]] = [[] for _ in parts]
    while waiting := [index for index, left in enumerate(pieces) if left]:
        called = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
        mels = [pieces[index].pop(0) for index in called]
        out = BATCH[version](
            model,
            [states[index] for index in called],
            mels,
            finals=[not pieces[index] for index in called],
        )
        for index, wave in zip(called, out, strict=True):
            waves[index].append(wave)
    for part, got in zip(parts, waves, strict=True):
        for mine, theirs in zip(got, alone(model, version, part), strict=True):
            torch.testing.assert_close(mine, theirs, atol=TOLERANCE, rtol=0)


class PassCounter:
    """Counts the passes through a vocoder's decoder and the rows in each."""

    def __init__(self, model: Hift) -> None:
        self.rows: list[int] = []
        self._hook = model.resblocks[0].register_forward_hook(self._count)

    def _count(self, module: torch.nn.Module, args: tuple[Tensor, object], out: Tensor) -> None:
        self.rows.append(len(args[0]))

    def __enter__(self) -> list[int]:
        return self.rows

    def __exit__(self, *exc: object) -> None:
        self._hook.remove()


@VERSIONS
def test_utterances_at_different_positions_share_a_pass(version: int) -> None:
    model = cosyvoice.hift(version, "mini")
    mel = cosyvoice.recorded(version, "mini", "hift")["mel"]
    states = [fresh(version, seed, noisy=True) for seed in range(5)]
    for state, begun in zip(states, (30, 50, 70, 90, 0), strict=True):
        if begun:
            SINGLE[version](model, state, mel[:, :, :begun], final=False)
    with PassCounter(model) as rows:
        waves = BATCH[version](
            model,
            states,
            [mel[:, :, :25], mel[:, :, 25:50], mel[:, :, :25], mel[:, :, :25], mel[:, :, :25]],
            finals=[False, False, True, False, False],
        )
    # The fourth and fifth differ: one ends, one begins.
    assert sorted(rows) == [1, 1, 3]
    assert len({wave.shape for wave in (waves[0], waves[1], waves[3])}) == 1


@VERSIONS
def test_a_state_keeps_nothing_of_its_neighbours(version: int) -> None:
    model = cosyvoice.hift(version, "mini")
    mel = cosyvoice.recorded(version, "mini", "hift")["mel"][:, :, :40]
    states = [fresh(version, seed, noisy=False) for seed in range(8)]
    BATCH[version](model, states, [mel] * 8, finals=[False] * 8)
    state = states[3]
    tensors = (state.mel, state.f0, state.before) if version == 2 else vars(state.held).values()
    for tensor in tensors:
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


@VERSIONS
def test_an_empty_batch_gives_nothing(version: int) -> None:
    assert BATCH[version](cosyvoice.hift(version, "mini"), [], [], finals=[]) == []


@VERSIONS
def test_an_utterance_can_be_in_a_batch_only_once(version: int) -> None:
    model, state = cosyvoice.hift(version, "mini"), fresh(version, 0, noisy=False)
    mel = torch.zeros(1, 80, 20)
    with pytest.raises(ValueError, match="only once"):
        BATCH[version](model, [state, state], [mel, mel], finals=[False, False])
    with pytest.raises(ValueError, match="zip"):
        BATCH[version](model, [state], [mel, mel], finals=[False])
    assert state.emitted == 0
    assert len(SINGLE[version](model, state, mel, final=True)) == 480 * 20


@VERSIONS
def test_official_size(version: int) -> None:
    model = cosyvoice.hift(version, "official")
    mel = cosyvoice.recorded(version, "official", "hift")["mel"][:, :, :60]
    mels = [mel[:, :, :20], mel[:, :, 20:40], mel[:, :, 40:60]]
    expected = [
        SINGLE[version](model, fresh(version, seed, noisy=True), piece, final=False)
        for seed, piece in enumerate(mels)
    ]
    states = [fresh(version, seed, noisy=True) for seed in range(3)]
    waves = BATCH[version](model, states, mels, finals=[False] * 3)
    for mine, theirs in zip(waves, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=ROUNDING[version], rtol=0)


@VERSIONS
def test_folded_weights_give_the_same(version: int) -> None:
    model = cosyvoice.hift(version, "mini")
    mel = cosyvoice.recorded(version, "mini", "hift")["mel"][:, :, :30]
    folded = cosyvoice.bare_hift(version, "mini").eval().requires_grad_(False)
    named_weights.fill(folded)
    folded.fold()
    folded.fold()
    assert not [name for name in folded.state_dict() if "parametrizations" in name]
    assert [name for name in model.state_dict() if "parametrizations" in name]
    mine, theirs = (
        SINGLE[version](m, fresh(version, 1, noisy=True), mel, final=True) for m in (folded, model)
    )
    assert torch.equal(mine, theirs)
