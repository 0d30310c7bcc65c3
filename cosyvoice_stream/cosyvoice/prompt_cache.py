"""States of voices: computed once, kept in memory by a byte budget, spilled to disk.

A state holds keys and values of every attention layer for every Euler step, some hundred megabytes
at official size: loading one from disk is much faster than computing it, memory faster still. One
thread uses a cache.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.models.causal import CausalState, LayerCache
from cosyvoice_stream.models.flow import FlowState

logger = logging.getLogger(__name__)

SUFFIX: Final = ".state.safetensors"
DISK_RATIO: Final = 8
"""The folder may hold so many times what memory may."""


def voice_key(voice: VoiceParts, *facts: object) -> str:
    """Name of a state: of the voice's content and of whatever else it depends on."""
    digest = hashlib.sha256()
    for array in (voice.embedding, voice.tokens, voice.mel):
        digest.update(array.tobytes())
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:32]


def state_tensors(state: FlowState) -> dict[str, Tensor]:
    """All tensors of a state by name."""
    tensors = {
        "speaker": state.speaker,
        "prompt_mel": state.prompt_mel,
        "counts": torch.tensor([state.steps, state.done_tokens]),
    }
    parts = {"tokens": state.tokens, "frames": state.frames}
    parts |= {f"estimator.{k}": part for k, part in enumerate(state.estimator)}
    for name, part in parts.items():
        for index, tail in enumerate(part.tails):
            tensors[f"{name}.tail.{index}"] = tail
        # A fork holds everything as the shared part of its layers.
        for index, layer in enumerate(part.fork().layers):
            if layer.shared_keys is not None and layer.shared_values is not None:
                tensors[f"{name}.keys.{index}"] = layer.shared_keys
                tensors[f"{name}.values.{index}"] = layer.shared_values
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def state_of(tensors: dict[str, Tensor]) -> FlowState:
    """Inverse of `state_tensors`.

    Raises:
        KeyError: A tensor is missing.
    """

    def part(name: str) -> CausalState:
        def column(kind: str) -> list[Tensor]:
            out: list[Tensor] = []
            while (key := f"{name}.{kind}.{len(out)}") in tensors:
                out.append(tensors[key])
            return out

        layers = zip(column("keys"), column("values"), strict=True)
        return CausalState(column("tail"), [LayerCache(keys, values) for keys, values in layers])

    steps, done = tensors["counts"].tolist()
    estimator = [part(f"estimator.{k}") for k in range(steps)] if done else []
    return FlowState(
        tensors["speaker"],
        tensors["prompt_mel"],
        steps,
        part("tokens"),
        part("frames"),
        estimator,
        done,
    )


@dataclass(frozen=True)
class CachedState:
    """A state and what it costs to keep."""

    state: FlowState
    nbytes: int


class PromptCache:
    """Least recently used states leave first.

    Args:
        budget_bytes: Memory for states; the last one used stays even if it alone is larger.
        folder: Where states go that memory has no room for; None forgets them.
        device: Where loaded states go.
    """

    def __init__(self, budget_bytes: int, folder: Path | None, device: torch.device) -> None:
        self._budget = budget_bytes
        self._folder = folder
        self._device = device
        self._states: OrderedDict[str, CachedState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def nbytes(self) -> int:
        """Memory of all states in the cache."""
        return sum(cached.nbytes for cached in self._states.values())

    def get(self, key: str, compute: Callable[[], FlowState]) -> FlowState:
        """The state of this name, from memory, from disk, or computed; only ever fork it."""
        if key in self._states:
            self._states.move_to_end(key)
            return self._states[key].state
        state = self._load(key) or compute()
        # The cached form shares its memory with all forks and holds no room to grow.
        state = state.fork()
        self._states[key] = CachedState(state, state.nbytes)
        while len(self._states) > 1 and self.nbytes > self._budget:
            name, cached = self._states.popitem(last=False)
            self._spill(name, cached.state)
        return state

    def clear(self) -> None:
        """Forget everything in memory; the folder stays."""
        self._states.clear()

    def _path(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{key}{SUFFIX}"

    def _load(self, key: str) -> FlowState | None:
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            return state_of(load_file(path, device=str(self._device)))
        except (SafetensorError, OSError, KeyError, ValueError):
            logger.warning("a stored voice state is damaged and is computed again")
            path.unlink(missing_ok=True)
            return None

    def _spill(self, key: str, state: FlowState) -> None:
        path = self._path(key)
        if path is None or path.exists():
            return
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(state_tensors(state), part)
            part.replace(path)
            self._trim(path.parent)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            logger.warning("a voice state could not be stored: %s", type(error).__name__)

    def _trim(self, folder: Path) -> None:
        """Remove the oldest files beyond the folder's share."""
        files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime)
        size = sum(file.stat().st_size for file in files)
        for file in files:
            if size <= DISK_RATIO * self._budget:
                return
            size -= file.stat().st_size
            file.unlink(missing_ok=True)
