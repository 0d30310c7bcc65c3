"""Runs the speech LM for many utterances at once: slots, prefixes, one draw for all.

One thread uses it. An utterance owns a slot of the key/value cache from its first row to its end; a
`Prefix` (the rows of a voice's prompt text, computed once) is copied into the slot instead of being
computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.sampling import SamplingParams, sample
from cosyvoice_stream.cosyvoice.token_feed import Allowed, Row, RowKind
from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm
from cosyvoice_stream.models.static_decode import GraphedDecode

DRAWS: Final = 2
"""Random numbers of a token, see `sample`."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the first rows of a sequence."""

    keys: Tensor
    """(layers, kv heads, rows, d)."""
    values: Tensor

    @property
    def rows(self) -> int:
        """How many rows it stands for."""
        return self.keys.shape[2]


class Dice:
    """Randomness and memory of one utterance's draws; the same alone and in any batch.

    Args:
        seed: Any number of 63 bits.
        params: How to draw.
    """

    def __init__(self, seed: int, params: SamplingParams) -> None:
        self.params = params
        self.recent: deque[int] = deque(maxlen=params.window)
        self._generator = torch.Generator().manual_seed(seed)

    def roll(self) -> Tensor:
        """(2,) numbers in [0, 1)."""
        return torch.rand(DRAWS, generator=self._generator)


@dataclass
class Turn:
    """What one utterance feeds in a step, and how it draws."""

    slot: int
    rows: Sequence[Row]
    """At least one."""
    allowed: Allowed
    dice: Dice
    token: int = field(default=-1)
    """Drawn by `LmRunner.step`."""


class LmRunner:
    """Owns the cache.

    Args:
        lm: The network, on its device.
        slots: Utterances at once.
        rows: Rows of one utterance.
    """

    def __init__(self, lm: SpeechLm, slots: int, rows: int) -> None:
        self._lm = lm
        weight = lm.speech_embedding.weight
        self._device, self._dtype = weight.device, weight.dtype
        # The last slot belongs to no utterance: padding and prefixes are computed there.
        self._scratch = slots
        self._cache = KvCache.empty(lm.decoder.config, slots + 1, rows, self._device, self._dtype)
        self._free = deque(range(slots))
        self._decode = GraphedDecode(lm, self._cache, self._scratch) if self._on_cuda else None
        special = torch.full((1, lm.ids.total), 0.0)
        special[:, SPEECH_CODES:] = float("-inf")
        self._plain = special.to(self._device)

    @property
    def _on_cuda(self) -> bool:
        return self._device.type == "cuda"

    @property
    def capacity(self) -> int:
        """Rows of one utterance."""
        return self._cache.capacity

    @property
    def free_slots(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def warm(self, utterances: int) -> None:
        """Prepare steps of up to `utterances` at once."""
        if self._decode is not None:
            self._decode.warm(utterances)

    def acquire(self) -> int | None:
        """Take a slot, or None if all are taken."""
        return self._free.popleft() if self._free else None

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self._cache.lengths[slot] = 0
        self._free.append(slot)

    def restart(self, slot: int, prefix: Prefix | None) -> None:
        """Begin a sequence in a slot, from a prefix."""
        self._cache.lengths[slot] = 0
        if prefix is not None:
            count = prefix.rows
            self._cache.keys[:, slot, :, :count] = prefix.keys
            self._cache.values[:, slot, :, :count] = prefix.values
            self._cache.lengths[slot] = count

    def room(self, slot: int) -> int:
        """Rows that still fit into a slot."""
        return self._cache.capacity - int(self._cache.lengths[slot])

    @torch.inference_mode()
    def prefix(self, rows: Sequence[Row]) -> Prefix | None:
        """Compute the first rows of a sequence once and for all; None for none."""
        if not rows:
            return None
        slot = self._scratch
        self._cache.lengths[slot] = 0
        self._forward([slot], [rows])
        self._cache.lengths[slot] = 0
        count = len(rows)
        return Prefix(
            self._cache.keys[:, slot, :, :count].clone(),
            self._cache.values[:, slot, :, :count].clone(),
        )

    @torch.inference_mode()
    def step(self, turns: Sequence[Turn]) -> None:
        """Feed every utterance its rows and draw its next token, in place.

        Raises:
            ValueError: A sequence does not fit into its slot.
        """
        single = [turn for turn in turns if len(turn.rows) == 1]
        longer = [turn for turn in turns if len(turn.rows) > 1]
        parts = []
        if single:
            parts.append(self._decode_one(single))
        if longer:
            hidden = self._forward([t.slot for t in longer], [t.rows for t in longer])
            parts.append(self._lm.log_probs(hidden))
        self._draw([*single, *longer], torch.cat(parts) if len(parts) > 1 else parts[0])

    def _decode_one(self, turns: Sequence[Turn]) -> Tensor:
        rows = self._embed([turn.rows[0] for turn in turns])
        slots = torch.tensor([turn.slot for turn in turns])
        if self._decode is not None:
            return self._decode.step(rows, slots)
        ones = torch.ones(len(turns), dtype=torch.int64)
        hidden = self._lm.decoder(rows[:, None], slots, ones, self._cache)
        return self._lm.log_probs(hidden[:, 0])

    def _forward(self, slots: Sequence[int], rows: Sequence[Sequence[Row]]) -> Tensor:
        """Append ragged rows; (B, D) hidden rows after the last of each."""
        lengths = torch.tensor([len(part) for part in rows])
        longest = int(lengths.max())
        padded = (row for part in rows for row in (*part, *[part[-1]] * (longest - len(part))))
        flat = self._embed(list(padded))
        x = flat.view(len(rows), longest, -1)
        hidden = self._lm.decoder(x, torch.tensor(list(slots)), lengths, self._cache)
        last: Tensor = hidden[torch.arange(len(rows)), (lengths - 1).to(hidden.device)]
        return last

    def _embed(self, rows: Sequence[Row]) -> Tensor:
        """(R, D) input rows."""
        lm = self._lm
        text = torch.tensor([row.token for row in rows if row.kind is RowKind.TEXT])
        speech = torch.tensor([row.token for row in rows if row.kind is RowKind.SPEECH])
        out = torch.empty(
            len(rows), lm.decoder.config.hidden_size, device=self._device, dtype=self._dtype
        )
        for kind, values in (
            (RowKind.TEXT, lm.text_rows(text.to(self._device)) if len(text) else None),
            (RowKind.SPEECH, lm.speech_rows(speech.to(self._device)) if len(speech) else None),
            (RowKind.START, lm.start_row()),
            (RowKind.TASK, lm.task_row()),
        ):
            places = [i for i, row in enumerate(rows) if row.kind is kind]
            if places and values is not None:
                out[torch.tensor(places, device=self._device)] = values
        return out

    def _draw(self, turns: Sequence[Turn], log_probs: Tensor) -> None:
        ids = self._lm.ids
        bias = self._plain.repeat(len(turns), 1)
        for row, turn in enumerate(turns):
            if turn.allowed.end:
                bias[row, ids.end] = 0.0
            if turn.allowed.fill:
                bias[row, ids.fill] = 0.0
            if turn.allowed.forced:
                bias[row, :SPEECH_CODES] = float("-inf")
        window = max(turn.dice.params.window for turn in turns)
        recent = torch.full((len(turns), max(window, 1)), -1)
        for row, turn in enumerate(turns):
            known = list(turn.dice.recent)
            recent[row, : len(known)] = torch.tensor(known, dtype=torch.int64)
        uniforms = torch.stack([turn.dice.roll() for turn in turns])
        params = [turn.dice.params for turn in turns]
        temperature = torch.tensor([p.temperature for p in params])
        drawn = sample(
            log_probs / temperature.to(log_probs.device)[:, None] + bias,
            recent.to(self._device),
            uniforms.to(self._device),
            torch.tensor([p.top_p for p in params]).to(self._device),
            torch.tensor([p.top_k for p in params]).to(self._device),
            torch.tensor([p.window * p.repeat_ratio for p in params]).to(self._device),
        ).tolist()
        for turn, token in zip(turns, drawn, strict=True):
            turn.token = int(token)
            turn.dice.recent.append(turn.token)
