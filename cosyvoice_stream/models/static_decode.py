"""One decode step of the speech LM in fixed shapes, so that a CUDA device can record and replay it.

A step of 24 small layers is several hundred kernels, and launching them one by one from Python
takes longer than they run. A recorded step is launched at once, with fixed shapes and addresses::

    utterances     5 of 64            padded to the next size of a ladder:  1 2 4 8 16 32 64
    rows visible   up to 700          padded likewise: 128 256 512 1024 …, masked beyond each length
    input          written into buffers that stay where they are
    padding rows   write into a scratch slot that no utterance owns

Each pair of sizes is recorded once, at its first use or in `GraphedDecode.warm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SpeechLm

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
SHORTEST_VISIBLE: Final = 128
WARM_UPS: Final = 2
"""Runs before a recording: libraries choose algorithms and allocate in their first ones."""

Run = Callable[[], Tensor]
Recorder = Callable[[Run], Run]
"""Takes a step that reads and writes fixed buffers; returns what repeats it."""


def visible_ladder(capacity: int) -> tuple[int, ...]:
    """Lengths that attention is laid out for: doubling, the last one the capacity of a slot."""
    lengths = []
    length = SHORTEST_VISIBLE
    while length < capacity:
        lengths.append(length)
        length *= 2
    return (*lengths, capacity)


def decode_step(lm: SpeechLm, cache: KvCache, rows: Tensor, places: Tensor, visible: int) -> Tensor:
    """Append one row to each sequence; every shape follows from the arguments' shapes.

    Nothing is read back from the device, and the lengths of the cache are not touched.

    Args:
        lm: The network.
        cache: Keys and values are written.
        rows: (B, D) input rows.
        places: (B, 2) int64 on the model's device: slot, and the cache row in it that is written.
        visible: Cache rows that attention reads; more than any row that is written.

    Returns:
        (B, ids) float32 log-probabilities.
    """
    step = lm.decoder.plan(places[:, 0], places[:, 1:], visible, cache.keys.dtype)
    return lm.log_probs(lm.decoder.run(rows[:, None], step, cache)[:, 0])


class CudaRecorder:
    """Records steps as CUDA graphs that share one memory pool. Used by one thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        """Record what `run` launches."""
        with torch.cuda.device(self._device):
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM_UPS):
                    run()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            # Other threads, a speaker encoder's for one, may go on allocating meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                out = run()

        def replay() -> Tensor:
            graph.replay()
            # The pool is shared: the next replay of any graph may write over the result.
            return out.clone()

        return replay


def recorder(device: torch.device) -> Recorder:
    """CUDA graphs on a CUDA device; elsewhere steps simply run again."""
    return CudaRecorder(device) if device.type == "cuda" else lambda run: run


class GraphedDecode:
    """Decode steps of fixed shapes over the slots of a cache. Used by one thread.

    Args:
        lm: The network; its weights must stay where they are.
        cache: Its tensors must stay where they are.
        scratch: Slot that padding rows write into; no utterance may own it.
        batches: Sizes that a batch is padded to, ascending.
        record: How a step is recorded; by default as a CUDA graph where the device is one.
    """

    def __init__(
        self,
        lm: SpeechLm,
        cache: KvCache,
        scratch: int,
        *,
        batches: Sequence[int] = BATCHES,
        record: Recorder | None = None,
    ) -> None:
        self._lm = lm
        self._cache = cache
        self._scratch = scratch
        self._batches = tuple(batches)
        self._lengths = visible_ladder(cache.capacity)
        device, dtype = cache.keys.device, cache.keys.dtype
        self._record = recorder(device) if record is None else record
        largest, width = self._batches[-1], lm.decoder.config.hidden_size
        self._rows = torch.zeros(largest, width, device=device, dtype=dtype)
        self._places = torch.zeros(largest, 2, device=device, dtype=torch.int64)
        self._steps: dict[tuple[int, int], Run] = {}

    @torch.inference_mode()
    def warm(self, utterances: int) -> None:
        """Record every size that up to `utterances` at once can need.

        Args:
            utterances: At least 1.
        """
        enough = self._fitting(self._batches, min(utterances, self._batches[-1]))
        for batch in self._batches[: self._batches.index(enough) + 1]:
            for visible in self._lengths:
                self._step(batch, visible)

    @torch.inference_mode()
    def step(self, rows: Tensor, slots: Tensor) -> Tensor:
        """Append one row to each sequence; the lengths of the cache grow by one.

        Args:
            rows: (B, D) input rows on the model's device, B ≥ 1.
            slots: (B,) int64 on the CPU, distinct.

        Returns:
            (B, ids) float32 log-probabilities after those rows.

        Raises:
            ValueError: A sequence would not fit into its slot, or the scratch slot is among them;
                nothing has changed then.
        """
        written = self._cache.lengths[slots]
        self._cache.check_room(int(written.max()) + 1)
        if bool((slots == self._scratch).any()):
            raise ValueError(f"slot {self._scratch} is for padding, not for an utterance")
        largest = self._batches[-1]
        out = [
            self._part(rows[begin : begin + largest], slots[begin : begin + largest])
            for begin in range(0, len(slots), largest)
        ]
        self._cache.lengths[slots] += 1
        return out[0] if len(out) == 1 else torch.cat(out)

    def _part(self, rows: Tensor, slots: Tensor) -> Tensor:
        """One pass over at most the largest batch."""
        count = len(slots)
        batch = self._fitting(self._batches, count)
        written = self._cache.lengths[slots]
        run = self._step(batch, self._fitting(self._lengths, int(written.max()) + 1))
        places = torch.zeros(batch, 2, dtype=torch.int64)
        places[:, 0] = self._scratch
        places[:count, 0], places[:count, 1] = slots, written
        if self._places.is_cuda:
            places = places.pin_memory()
        self._places[:batch].copy_(places, non_blocking=True)
        self._rows[:count] = rows
        return run()[:count]

    def _step(self, batch: int, visible: int) -> Run:
        """What runs a pass of this size on the buffers."""
        key = (batch, visible)
        if key not in self._steps:
            # A recording runs the step: it must not write into a live slot.
            self._places[:, 0], self._places[:, 1] = self._scratch, 0
            rows, places = self._rows[:batch], self._places[:batch]
            self._steps[key] = self._record(
                lambda: decode_step(self._lm, self._cache, rows, places, visible)
            )
        return self._steps[key]

    def _fitting(self, ladder: Sequence[int], size: int) -> int:
        return next(step for step in ladder if step >= size)
