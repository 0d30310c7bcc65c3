"""Speakers that a checkpoint brings along: ``spk2info.pt``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.checkpoint import UNREADABLE
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.models.dit import MEL


def read_presets(path: Path) -> dict[str, VoiceParts]:
    """Read the speakers of a checkpoint by name; none where there is no such file.

    A saved speaker holds its embedding, and one that was made from a recording also tokens and mel.
    Its transcript is stored as ids of another text than ours and is left out.

    Raises:
        ModelLoadError: The file is damaged, or an entry holds no speaker.
    """
    if not path.exists():
        return {}
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{path} cannot be read: it is truncated or holds more than tensors",
            how_to_fix="download it again, or remove it to go without its speakers",
        ) from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} does not hold speakers by name")
    return {str(name): _speaker(path, str(name), entry) for name, entry in found.items()}


def _speaker(path: Path, name: str, entry: Any) -> VoiceParts:
    try:
        embedding = entry.get("flow_embedding", entry.get("embedding"))
        tokens = entry.get("flow_prompt_speech_token", torch.zeros(1, 0))
        mel = entry.get("prompt_speech_feat", torch.zeros(1, 0, MEL))
        parts = VoiceParts(_array(embedding), _array(tokens).astype(np.int32), _array(mel, 2))
        parts.check()
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelLoadError(f"{path}: the speaker {name!r} cannot be used: {error}") from error
    return parts


def _array(value: Tensor, axes: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    array: np.ndarray[Any, np.dtype[np.float32]] = value.float().numpy()
    return array.reshape(array.shape[-axes:])
