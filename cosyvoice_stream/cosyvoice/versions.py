"""The model families by name alone: which file tells them apart and what their folders hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLANK_EN: Final = "CosyVoice-BlankEN"
"""Folder with the Qwen2 configuration and vocabulary."""
V1_YAML: Final = "cosyvoice.yaml"


@dataclass(frozen=True)
class Version:
    """What differs between the model families by name alone."""

    number: int
    yaml_name: str
    tokenizer_onnx: str
    mel_high_hz: float
    """Upper edge of the flow's mel."""

    @property
    def name(self) -> str:
        """What the command line calls it, such as ``cosyvoice2``."""
        return f"cosyvoice{self.number}"

    @property
    def required_files(self) -> tuple[str, ...]:
        """Files without which the engine does not start, relative to the checkpoint folder."""
        return (
            self.yaml_name,
            f"{BLANK_EN}/config.json",
            f"{BLANK_EN}/vocab.json",
            f"{BLANK_EN}/merges.txt",
            "campplus.onnx",
            self.tokenizer_onnx,
            "hift.pt",
            "flow.pt",
            "llm.pt",
        )

    @property
    def optional_files(self) -> tuple[str, ...]:
        """Files that the engine uses where they are there."""
        return (f"{BLANK_EN}/tokenizer_config.json", "spk2info.pt")


VERSIONS: Final = {
    2: Version(2, "cosyvoice2.yaml", "speech_tokenizer_v2.onnx", 8_000.0),
    3: Version(3, "cosyvoice3.yaml", "speech_tokenizer_v3.onnx", 12_000.0),
}
