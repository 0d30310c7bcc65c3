"""State of block-causal modules: convolution tails and attention keys/values, one per utterance.

A module that is causal by block gives the same numbers whether it sees a sequence at once or block
by block, provided that each causal convolution is given the last columns of its previous input and
each attention layer the keys and values so far::

    input     ........|------|      new rows of this pass
    tail           ···               last k - 1 columns before them, per convolution
    keys      ==============|       everything up to now, per attention layer

`Walk` hands these out in the order in which a module asks for them, so a module's code reads like
its whole-sequence form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOM: Final = 150
"""Columns by which a full cache grows: a copy every three blocks, and little that lies empty."""


class Seen(NamedTuple):
    """What the queries of one pass may look at, in one attention layer of one utterance."""

    keys: Tensor
    """(G, H, T, d): the prefix, then a window that ends with the new columns."""
    values: Tensor
    prefix: int
    """Columns of the prefix."""


@dataclass
class LayerCache:
    """Keys and values of one attention layer of one utterance.

    A prefix may be shared, read-only, by all utterances of a voice; what an utterance adds is its
    own. On a CPU the prefix is copied at the first use: joining it with the rest anew in each pass
    would take as long as the attention itself.
    """

    shared_keys: Tensor | None = None
    """(G, H, T, d); G = guidance rows."""
    shared_values: Tensor | None = None
    keys: Tensor | None = None
    """(G, H, capacity, d), of which the first `own` columns are filled."""
    values: Tensor | None = None
    own: int = 0
    pinned: int = 0
    """Of `own`, columns that are a copy of the prefix."""

    def append(self, keys: Tensor, values: Tensor, left: int | None = None) -> Seen:
        """Add (G, H, T, d).

        Args:
            keys: Of the new columns.
            values: Of the same.
            left: So many columns between the prefix and the new ones are kept; None keeps all.
        """
        if self.shared_keys is not None and self.shared_values is not None and not keys.is_cuda:
            self.pinned = self.shared_keys.shape[2]
            self._write(self.shared_keys, self.shared_values)
            self.shared_keys = self.shared_values = None
        if left is not None and self.own - self.pinned > left:
            self._keep_last(left)
        self._write(keys, values)
        assert self.keys is not None
        assert self.values is not None
        own_keys, own_values = self.keys[:, :, : self.own], self.values[:, :, : self.own]
        if self.shared_keys is None or self.shared_values is None:
            return Seen(own_keys, own_values, self.pinned)
        return Seen(
            torch.cat((self.shared_keys, own_keys), dim=2),
            torch.cat((self.shared_values, own_values), dim=2),
            self.shared_keys.shape[2],
        )

    def _keep_last(self, left: int) -> None:
        """Drop what lies further back than `left` columns, but for the prefix."""
        for held in (self.keys, self.values):
            assert held is not None
            # The two places may overlap.
            kept = held[:, :, self.own - left : self.own].clone()
            held[:, :, self.pinned : self.pinned + left] = kept
        self.own = self.pinned + left

    def _write(self, keys: Tensor, values: Tensor) -> None:
        end = self.own + keys.shape[2]
        self.keys = self._grown(self.keys, keys, end)
        self.values = self._grown(self.values, values, end)
        self.own = end

    def _grown(self, held: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Write `new` behind the filled columns, making room where it is used up."""
        if held is None or held.shape[2] < end:
            room = end + (0 if held is None else ROOM)
            wider = new.new_empty(*new.shape[:2], room, new.shape[3])
            if held is not None:
                wider[:, :, : self.own] = held[:, :, : self.own]
            held = wider
        held[:, :, self.own : end] = new
        return held

    def fork(self) -> LayerCache:
        """A cache that continues from here, sharing what is filled; this one must not grow."""
        if self.keys is None or self.values is None:
            return LayerCache(self.shared_keys, self.shared_values)
        keys, values = self.keys[:, :, : self.own], self.values[:, :, : self.own]
        if self.shared_keys is not None and self.shared_values is not None:
            keys = torch.cat((self.shared_keys, keys), dim=2)
            values = torch.cat((self.shared_values, values), dim=2)
        return LayerCache(keys, values)


@dataclass
class CausalState:
    """What one utterance carries through a block-causal module. Mutated by every pass."""

    tails: list[Tensor] = field(default_factory=list)
    """One per causal convolution, (G, C, k - 1), in the order of use."""
    layers: list[LayerCache] = field(default_factory=list)
    """One per attention layer, in the order of use."""

    def fork(self) -> CausalState:
        """A state that continues from here; this one must not be used for a pass again."""
        return CausalState(list(self.tails), [layer.fork() for layer in self.layers])

    @property
    def nbytes(self) -> int:
        """Memory of everything that this state alone holds or shares."""
        held = list(self.tails)
        for layer in self.layers:
            held += [
                tensor
                for tensor in (layer.shared_keys, layer.shared_values, layer.keys, layer.values)
                if tensor is not None
            ]
        return sum(tensor.nbytes for tensor in held)


class Walk:
    """One pass of a module over a batch of utterances with equally many new rows.

    Args:
        states: One per utterance; row group i of every tensor belongs to ``states[i]``.
        group: Rows per utterance in the batch (2 with classifier-free guidance, else 1).
        block: Rows per block: a query sees its own block and all before.
        starts: Rows that each utterance has had before this pass.
        left: Rows before its own block that a query sees, besides the shared prefix; None: all.
    """

    def __init__(
        self,
        states: Sequence[CausalState],
        group: int,
        block: int,
        starts: Sequence[int],
        left: int | None = None,
    ) -> None:
        self.states = states
        self.group = group
        self.block = block
        self.starts = starts
        self.left = left
        self._conv = 0
        self._layer = 0

    def conv(self, conv: nn.Conv1d, x: Tensor) -> Tensor:
        """Apply a convolution causally to (B·G, C, T), with zeros before the first row."""
        width = (conv.kernel_size[0] - 1) * conv.dilation[0]
        index, self._conv = self._conv, self._conv + 1
        for state in self.states:
            if index == len(state.tails):
                state.tails.append(x.new_zeros(self.group, x.shape[1], width))
        x = torch.cat((torch.cat([state.tails[index] for state in self.states]), x), dim=2)
        for row, state in enumerate(self.states):
            rows = slice(row * self.group, (row + 1) * self.group)
            state.tails[index] = x[rows, :, x.shape[2] - width :].clone()
        weight = conv.weight.to(x.dtype)
        bias = None if conv.bias is None else conv.bias.to(x.dtype)
        return F.conv1d(x, weight, bias, dilation=conv.dilation, groups=conv.groups)

    def extend(self, keys: Tensor, values: Tensor) -> list[Seen]:
        """Cache (B·G, H, T, d) keys and values; return what is seen, per utterance."""
        index, self._layer = self._layer, self._layer + 1
        seen = []
        for row, state in enumerate(self.states):
            if index == len(state.layers):
                state.layers.append(LayerCache())
            rows = slice(row * self.group, (row + 1) * self.group)
            seen.append(state.layers[index].append(keys[rows], values[rows], self.left))
        return seen

    def mask(self, row: int, new: int, seen: Seen) -> Tensor | None:
        """(T, columns of `seen`) bool for utterance `row`, or None: every query sees every key."""
        start = self.starts[row]
        if start // self.block == (start + new - 1) // self.block:
            return None
        device = seen.keys.device
        window = seen.keys.shape[2] - seen.prefix
        keys = torch.arange(start + new - window, start + new, device=device)
        blocks = torch.arange(start, start + new, device=device)[:, None] // self.block
        mask = keys // self.block <= blocks
        if self.left is not None:
            mask &= keys >= blocks * self.block - self.left
        return F.pad(mask, (seen.prefix, 0), value=True)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Block-causal attention of (B·G, H, T, d) queries over everything that is seen."""
        out = []
        for row, seen in enumerate(self.extend(keys, values)):
            rows = slice(row * self.group, (row + 1) * self.group)
            mask = self.mask(row, q.shape[2], seen)
            out.append(
                F.scaled_dot_product_attention(q[rows], seen.keys, seen.values, attn_mask=mask)
            )
        return torch.cat(out)
