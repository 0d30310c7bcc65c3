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

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class LayerCache:
    """Keys and values of one attention layer of one utterance.

    A prefix may be shared, read-only, by all utterances of a voice; what an utterance adds is its
    own.
    """

    shared_keys: Tensor | None = None
    """(G, H, T, d); G = guidance rows."""
    shared_values: Tensor | None = None
    keys: Tensor | None = None
    """(G, H, capacity, d), of which the first `own` columns are filled."""
    values: Tensor | None = None
    own: int = 0

    @property
    def length(self) -> int:
        """Columns that are cached, shared and own."""
        return self.own + (0 if self.shared_keys is None else self.shared_keys.shape[2])

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (G, H, T, d) and return everything so far, (G, H, length, d)."""
        end = self.own + keys.shape[2]
        self.keys = self._grown(self.keys, keys, end)
        self.values = self._grown(self.values, values, end)
        self.own = end
        own_keys, own_values = self.keys[:, :, :end], self.values[:, :, :end]
        if self.shared_keys is None or self.shared_values is None:
            return own_keys, own_values
        return (
            torch.cat((self.shared_keys, own_keys), dim=2),
            torch.cat((self.shared_values, own_values), dim=2),
        )

    def _grown(self, held: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Write `new` behind the filled columns, doubling the room when it is used up."""
        if held is None or held.shape[2] < end:
            room = max(end, 0 if held is None else 2 * held.shape[2])
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
    """

    def __init__(
        self, states: Sequence[CausalState], group: int, block: int, starts: Sequence[int]
    ) -> None:
        self.states = states
        self.group = group
        self.block = block
        self.starts = starts
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

    def extend(self, keys: Tensor, values: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cache (B·G, H, T, d) keys and values; return all so far, per utterance."""
        index, self._layer = self._layer, self._layer + 1
        seen = []
        for row, state in enumerate(self.states):
            if index == len(state.layers):
                state.layers.append(LayerCache())
            rows = slice(row * self.group, (row + 1) * self.group)
            seen.append(state.layers[index].append(keys[rows], values[rows]))
        return seen

    def mask(self, row: int, new: int, device: torch.device) -> Tensor | None:
        """(T, length) bool for utterance `row`, or None when every query sees every key."""
        start = self.starts[row]
        if start // self.block == (start + new - 1) // self.block:
            return None
        queries = torch.arange(start, start + new, device=device) // self.block
        keys = torch.arange(start + new, device=device) // self.block
        return keys[None, :] <= queries[:, None]

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Block-causal attention of (B·G, H, T, d) queries over everything so far."""
        out = []
        for row, (seen_keys, seen_values) in enumerate(self.extend(keys, values)):
            rows = slice(row * self.group, (row + 1) * self.group)
            mask = self.mask(row, q.shape[2], q.device)
            out.append(
                F.scaled_dot_product_attention(q[rows], seen_keys, seen_values, attn_mask=mask)
            )
        return torch.cat(out)
