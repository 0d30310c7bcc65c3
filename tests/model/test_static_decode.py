"""A decode step of fixed shapes gives what the ragged one gives, and can be recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm
from cosyvoice_stream.models.static_decode import GraphedDecode, decode_step, visible_ladder
from support import cosyvoice

pytestmark = pytest.mark.model

CPU = torch.device("cpu")
SLOTS = 9
SCRATCH = SLOTS - 1
POSITIONS = 300


def new_cache(size: str = "mini", device: torch.device = CPU) -> KvCache:
    config = cosyvoice.lm_config(size)
    return KvCache.empty(config, SLOTS, POSITIONS, device, torch.float32)


def copy_of(cache: KvCache) -> KvCache:
    return KvCache(cache.keys.clone(), cache.values.clone(), cache.lengths.clone())


def prefill(lm: SpeechLm, cache: KvCache, lengths: dict[int, int]) -> None:
    """Give each slot rows of its own."""
    for slot, length in lengths.items():
        generator = torch.Generator().manual_seed(slot)
        tokens = torch.randint(0, SPEECH_CODES, (1, length), generator=generator)
        rows = lm.speech_rows(tokens.to(cache.keys.device))
        lm.decoder(rows, torch.tensor([slot]), torch.tensor([length]), cache)


def ragged_step(lm: SpeechLm, cache: KvCache, rows: Tensor, slots: Tensor) -> Tensor:
    one = torch.ones(len(slots), dtype=torch.int64)
    return lm.log_probs(lm.decoder(rows[:, None], slots, one, cache)[:, 0])


def tokens_of(count: int, seed: int) -> Tensor:
    return torch.randint(0, SPEECH_CODES, (count,), generator=torch.Generator().manual_seed(seed))


class Tape(TorchDispatchMode):
    """Notes down every operation of a step and repeats them, as a CUDA graph does.

    Sizes and numbers that Python worked out stay as they were when the step was recorded; only what
    the fixed tensors hold is read anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Callable[..., Any], Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, out))
        return out

    def replay(self, result: Tensor) -> Tensor:
        made: dict[int, Any] = {}

        def current(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(current(item) for item in value)
            return made.get(id(value), value) if isinstance(value, Tensor) else value

        for func, args, kwargs, out in self.operations:
            again = func(*current(args), **{name: current(v) for name, v in kwargs.items()})
            if isinstance(out, Tensor):
                made[id(out)] = again
            else:
                made.update({id(a): b for a, b in zip(out, again, strict=True)})
        replayed: Tensor = made[id(result)]
        return replayed


def on_tape(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    with Tape() as tape:
        result = run()
    return lambda: tape.replay(result)


def test_ladder_of_visible_rows() -> None:
    assert visible_ladder(100) == (100,)
    assert visible_ladder(128) == (128,)
    assert visible_ladder(700) == (128, 256, 512, 700)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.dictionaries(
        st.integers(0, SCRATCH - 1), st.sampled_from([1, 5, 126, 127, 128, 290]), min_size=1
    ),
    data=st.data(),
)
@pytest.mark.parametrize("record", [None, on_tape], ids=["plain", "recorded"])
def test_equals_the_ragged_step(record: Any, lengths: dict[int, int], data: st.DataObject) -> None:
    lm, cache = cosyvoice.lm(3, "mini"), new_cache()
    prefill(lm, cache, lengths)
    reference = copy_of(cache)
    decode = GraphedDecode(lm, cache, SCRATCH, batches=(1, 2, 4), record=record)
    for seed in range(3):
        chosen = data.draw(st.lists(st.sampled_from(sorted(lengths)), min_size=1, unique=True))
        slots, rows = torch.tensor(chosen), lm.speech_rows(tokens_of(len(chosen), seed))
        mine, theirs = decode.step(rows, slots), ragged_step(lm, reference, rows, slots)
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
        assert torch.equal(cache.lengths, reference.lengths)
    torch.testing.assert_close(
        cache.keys[:, :SCRATCH], reference.keys[:, :SCRATCH], atol=1e-5, rtol=1e-5
    )


def test_official_size() -> None:
    lm, cache = cosyvoice.lm(3, "official"), new_cache("official")
    prefill(lm, cache, {0: 20, 3: 130, 5: 1})
    reference = copy_of(cache)
    slots, rows = torch.tensor([5, 0, 3]), lm.speech_rows(tokens_of(3, 0))
    mine = GraphedDecode(lm, cache, SCRATCH).step(rows, slots)
    torch.testing.assert_close(mine, ragged_step(lm, reference, rows, slots), atol=1e-4, rtol=1e-4)


def test_padding_and_recording_write_into_the_scratch_slot_only() -> None:
    lm, cache = cosyvoice.lm(3, "mini"), new_cache()
    prefill(lm, cache, dict.fromkeys(range(SCRATCH), 7))
    before = copy_of(cache)
    decode = GraphedDecode(lm, cache, SCRATCH, batches=(4,))
    decode.warm(3)
    assert torch.equal(cache.keys[:, :SCRATCH], before.keys[:, :SCRATCH])
    decode.step(lm.speech_rows(tokens_of(3, 0)), torch.tensor([0, 4, 2]))
    for name in ("keys", "values"):
        now, then = getattr(cache, name), getattr(before, name)
        for slot in (0, 2, 4):
            then[:, slot, :, 7] = now[:, slot, :, 7]
        assert torch.equal(now[:, :SCRATCH], then[:, :SCRATCH])
    assert cache.lengths.tolist() == [8, 7, 8, 7, 8, 7, 7, 7, 0]


def test_nothing_is_read_back_from_the_device() -> None:
    # A tensor on the meta device has no numbers: reading one back raises.
    with torch.device("meta"):
        lm = cosyvoice.bare_lm(3, "official").eval()
        cache = new_cache("official", torch.device("meta"))
        rows = torch.empty(4, lm.decoder.config.hidden_size)
        places = torch.empty(4, 2, dtype=torch.int64)
        out = decode_step(lm, cache, rows, places, 256)
    assert out.shape == (4, lm.ids.total)
    assert out.dtype == torch.float32


def test_each_pair_of_sizes_is_recorded_once_and_warming_records_all() -> None:
    lm, cache = cosyvoice.lm(3, "mini"), new_cache()
    recorded: list[Callable[[], Tensor]] = []

    def note(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(run)
        return run

    decode = GraphedDecode(lm, cache, SCRATCH, batches=(1, 2, 4), record=note)
    decode.warm(2)
    assert len(recorded) == 2 * len(visible_ladder(POSITIONS))
    decode.step(lm.speech_rows(tokens_of(2, 0)), torch.tensor([0, 1]))
    assert len(recorded) == 2 * len(visible_ladder(POSITIONS))
    decode.step(lm.speech_rows(tokens_of(3, 0)), torch.tensor([0, 1, 2]))
    decode.step(lm.speech_rows(tokens_of(4, 0)), torch.tensor([0, 1, 2, 3]))
    assert len(recorded) == 2 * len(visible_ladder(POSITIONS)) + 1


def test_a_step_that_cannot_be_done_changes_nothing() -> None:
    lm, cache = cosyvoice.lm(3, "mini"), new_cache()
    prefill(lm, cache, {0: POSITIONS, 1: 3})
    before, decode = copy_of(cache), GraphedDecode(lm, cache, SCRATCH)
    rows = lm.speech_rows(tokens_of(2, 0))
    with pytest.raises(ValueError, match="a sequence of 301 rows does not fit into 300"):
        decode.step(rows, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="slot 8 is for padding"):
        decode.step(rows, torch.tensor([1, SCRATCH]))
    assert torch.equal(cache.keys, before.keys)
    assert torch.equal(cache.lengths, before.lengths)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graphs() -> None:
    device = torch.device("cuda")
    lm = cosyvoice.bare_lm(3, "mini").to(device).eval().requires_grad_(False)
    lm.load_state_dict(cosyvoice.lm(3, "mini").state_dict())
    cache = new_cache(device=device)
    with torch.inference_mode():
        prefill(lm, cache, {0: 20, 3: 130, 5: 1})
        reference = copy_of(cache)
        decode = GraphedDecode(lm, cache, SCRATCH, batches=(1, 2, 4))
        decode.warm(4)
        assert torch.equal(cache.keys[:, :SCRATCH], reference.keys[:, :SCRATCH])
        for seed, chosen in enumerate(([0], [5, 3, 0], [3, 5], [0, 3, 5])):
            slots = torch.tensor(chosen)
            rows = lm.speech_rows(tokens_of(len(chosen), seed).to(device))
            torch.testing.assert_close(
                decode.step(rows, slots),
                ragged_step(lm, reference, rows, slots),
                atol=1e-3,
                rtol=1e-3,
            )
