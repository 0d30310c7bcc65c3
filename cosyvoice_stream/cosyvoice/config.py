"""How the engine runs, apart from what the checkpoint says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.models.flow import BLOCK_TOKENS

PRECISIONS: Final = ("auto", "fp32", "bf16", "fp16", "int8")
MIN_FIRST_HOP: Final = 1


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of a `CosyVoiceEngine`.

    Raises:
        ConfigError: A value is out of range.
    """

    device: str = "auto"
    """``auto`` takes the first CUDA device and the CPU where there is none."""
    precision: str = "auto"
    """Of LM and flow: ``auto`` is bf16 on CUDA and fp32 on the CPU. ``int8`` is for the LM on a
    CPU. The vocoder always computes in fp32."""
    slots: int = 16
    """Utterances that are spoken at once."""
    rows_per_slot: int = 2048
    """Rows of text and speech that the LM can hold for one utterance; 25 a second of speech."""
    memory_mb: int | None = None
    """Memory for the states of live utterances; None takes no bound but the slots."""
    first_hop: int = 10
    """Speech tokens (40 ms each) that complete the first audio of an utterance, besides three of
    lookahead: 1 to 25. The prompt of a voice is cut in front so that it comes out even."""
    flow_steps: int = 10
    """Euler steps of the flow unless an utterance asks for others."""
    right_context: int = 8
    """Frames (20 ms each) that the vocoder of CosyVoice 2 waits for before it renders one."""
    left_context_s: int | None = None
    """Seconds of speech before its own block that the flow attends to, besides the recording of the
    voice; None attends to all since the segment began, as the model was trained. For devices with
    little memory."""
    interleave_text: bool = False
    """Speak while a sentence is still being written, five text tokens to fifteen of speech."""
    prompt_cache_mb: int = 2048
    """Memory for the states of voices that are not in use."""
    prompt_cache_dir: Path | None = None
    """Folder that keeps states of voices that memory has no room for; None keeps none."""
    threads: int | None = None
    """CPU threads of torch; None leaves its default."""
    compile: bool = False
    """Compile the vocoder and the flow's estimator with `torch.compile`."""
    max_buffered_s: float = 8.0
    """Work on an utterance pauses while so much audio waits to be taken."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"there is no precision {self.precision!r}",
                how_to_fix=f"use one of: {', '.join(PRECISIONS)}",
            )
        for name, value, low, high in (
            ("first_hop", self.first_hop, MIN_FIRST_HOP, BLOCK_TOKENS),
            ("flow_steps", self.flow_steps, 1, 50),
            ("right_context", self.right_context, 1, 64),
            ("slots", self.slots, 1, 1024),
            ("rows_per_slot", self.rows_per_slot, 512, 32768),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} = {value} is not allowed; use {low} to {high}")
        if self.left_context_s is not None and self.left_context_s < 1:
            raise ConfigError(
                f"left_context_s = {self.left_context_s} is not allowed; use 1 or more"
            )
