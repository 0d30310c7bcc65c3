"""The Qwen2 decoder with a cache of slots, so that utterances of any length share a batch.

Architecture: Qwen2 technical report (arXiv 2407.10671), §2.2: pre-RMSNorm, grouped-query attention
with biased query, key and value projections, SwiGLU, half-split rotary positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Qwen2Config:
    """Sizes of a Qwen2 model, named as in its ``config.json``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


@dataclass
class KvCache:
    """Keys and values of every live sequence; a sequence owns one slot.

    The tensors are written in place. A slot is freed by setting its length to 0.
    """

    keys: Tensor
    """(layers, slots, kv heads, positions, head width), rotated."""
    values: Tensor
    """Same shape as `keys`."""
    lengths: Tensor
    """(slots,) int64 on the CPU: rows that are filled in each slot."""

    @classmethod
    def empty(
        cls,
        config: Qwen2Config,
        slots: int,
        positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> KvCache:
        """Allocate a cache for `slots` sequences of at most `positions` rows."""
        shape = (
            config.num_hidden_layers,
            slots,
            config.num_key_value_heads,
            positions,
            config.head_dim,
        )
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(slots, dtype=torch.int64),
        )

    @property
    def capacity(self) -> int:
        """Rows that fit into one slot."""
        return self.keys.shape[3]

    def check_room(self, rows: int) -> None:
        """Refuse a sequence that is too long.

        Raises:
            ValueError: `rows` do not fit into a slot.
        """
        if rows > self.capacity:
            raise ValueError(f"a sequence of {rows} rows does not fit into {self.capacity}")


class RMSNorm(nn.Module):
    """Scale by the reciprocal root mean square, computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply half-split rotary positions to (B, H, L, d) with cos, sin (B, 1, L, d)."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


@dataclass(frozen=True)
class Step:
    """Where the rows of one forward pass go and what they may see; the same for every layer."""

    slots: Tensor
    """(B,) int64 slot of each sequence."""
    rows: Tensor
    """(B, L) int64 cache row that each input row is written to."""
    visible: int
    """Cache rows that attention reads: the longest sequence after this pass."""
    mask: Tensor
    """(B, 1, L, visible) bool, True where a query may look."""
    cos: Tensor
    sin: Tensor


class Attention(nn.Module):
    """Grouped-query attention over a slot cache."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        width, head = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.head = (
            config.num_attention_heads,
            config.num_key_value_heads,
            head,
        )
        self.q_proj = nn.Linear(width, self.heads * head)
        self.k_proj = nn.Linear(width, self.kv_heads * head)
        self.v_proj = nn.Linear(width, self.kv_heads * head)
        self.o_proj = nn.Linear(self.heads * head, width, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, step: Step) -> Tensor:
        """Attend from (B, L, D); writes `keys` and `values`, (slots, kv heads, positions, d)."""
        batch, length, _ = x.shape
        # (B, L, H·d) -> (B, H, L, d)
        q = self.q_proj(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head)
        q, k = rotate(q, step.cos, step.sin), rotate(k, step.cos, step.sin)
        # Advanced indices on axes 0 and 2 come first: the target is (B, L, kv heads, d).
        keys[step.slots[:, None], :, step.rows] = k.transpose(1, 2)
        values[step.slots[:, None], :, step.rows] = v
        seen_keys = keys[step.slots, :, : step.visible]
        seen_values = values[step.slots, :, : step.visible]
        # Query heads that share keys go in as further queries of one head, so that no key is copied
        # for them: (B, H, L, d) -> (B, kv heads, H / kv heads · L, d)
        shared = self.heads // self.kv_heads
        mask = step.mask if length == 1 else step.mask.repeat(1, 1, shared, 1)
        out = F.scaled_dot_product_attention(
            q.reshape(batch, self.kv_heads, shared * length, self.head),
            seen_keys,
            seen_values,
            attn_mask=mask,
        ).view(batch, self.heads, length, self.head)
        joined: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))
        return joined


class Mlp(nn.Module):
    """SwiGLU feed-forward layer."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) → (B, L, D)."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, step: Step) -> Tensor:
        """(B, L, D) → (B, L, D); writes this layer's keys and values."""
        x = x + self.self_attn(self.input_layernorm(x), keys, values, step)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Qwen2(nn.Module):
    """The decoder without a language head: rows in, hidden rows after the final norm out."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, slots: Tensor, lengths: Tensor, cache: KvCache) -> Tensor:
        """Append rows to sequences.

        Args:
            x: (B, L, D) input rows; row i of sequence b counts if i < lengths[b]. Rows beyond must
                repeat the last one.
            slots: (B,) int64 on the CPU, distinct.
            lengths: (B,) int64 on the CPU, each ≥ 1.
            cache: Written in place; its lengths grow by `lengths`.

        Returns:
            (B, L, D) hidden rows after the final norm.

        Raises:
            ValueError: A sequence would not fit into its slot.
        """
        before = cache.lengths[slots]
        visible = int((before + lengths).max())
        cache.check_room(visible)
        offsets = torch.arange(x.shape[1])
        # Padding rows repeat the last real row, so that they write the same values to the same
        # place.
        rows = before[:, None] + torch.minimum(offsets[None], lengths[:, None] - 1)
        step = self.plan(slots.to(x.device), rows.to(x.device), visible, cache.keys.dtype)
        out = self.run(x, step, cache)
        cache.lengths[slots] += lengths
        return out

    def plan(self, slots: Tensor, rows: Tensor, visible: int, dtype: torch.dtype) -> Step:
        """Lay out one pass; reads nothing back from the device.

        Args:
            slots: (B,) int64 slot of each sequence, on the model's device.
            rows: (B, L) int64 cache row that each input row is written to, on the same device.
            visible: Cache rows that attention reads; more than any of `rows`.
            dtype: Of the cache.
        """
        mask = torch.arange(visible, device=rows.device) <= rows[:, :, None]
        half = torch.arange(0, self.config.head_dim, 2, dtype=torch.float32, device=rows.device)
        rates = self.config.rope_theta ** (-half / self.config.head_dim)
        angles = rows[:, :, None].float() * rates
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return Step(
            slots, rows, visible, mask[:, None], angles.cos().to(dtype), angles.sin().to(dtype)
        )

    def run(self, x: Tensor, step: Step, cache: KvCache) -> Tensor:
        """Do a pass that was laid out: (B, L, D) → (B, L, D) hidden rows after the final norm.

        Writes keys and values, not the lengths of the cache; reads nothing back from the device.
        """
        for index, layer in enumerate(self.layers):
            x = layer(x, cache.keys[index], cache.values[index], step)
        out: Tensor = self.norm(x)
        return out
