"""What a voice of CosyVoice consists of, as the arrays of a `Voice`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.errors import SynthesisFailed
from cosyvoice_stream.models.conformer import FRAMES_PER_TOKEN
from cosyvoice_stream.models.dit import MEL
from cosyvoice_stream.models.flow import BLOCK_TOKENS, SPEAKER_WIDTH
from cosyvoice_stream.models.speech_lm import SPEECH_CODES
from cosyvoice_stream.types import Voice

TRANSCRIPT: Final = "transcript"


@dataclass(frozen=True)
class VoiceParts:
    """A speaker, and the recording that speech continues from; without one only the speaker."""

    embedding: NDArray[np.float32]
    """(192,) of the speaker encoder."""
    tokens: NDArray[np.int32]
    """(P,) speech tokens of the recording, 25 Hz; empty without one."""
    mel: NDArray[np.float32]
    """(2 P, 80) log-mel of the recording, 50 Hz."""
    transcript: str = ""
    """What is said in the recording, where that is known."""

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Arrays of a `Voice`."""
        return {"embedding": self.embedding, "tokens": self.tokens, "mel": self.mel}

    def metadata(self) -> Mapping[str, str]:
        """Facts of a `Voice`."""
        return {TRANSCRIPT: self.transcript} if self.transcript else {}

    @classmethod
    def of(cls, voice: Voice) -> VoiceParts:
        """Read a voice back.

        Raises:
            SynthesisFailed: It was made by another engine or is damaged.
        """
        try:
            parts = cls(
                np.asarray(voice.tensors["embedding"], np.float32),
                np.asarray(voice.tensors["tokens"], np.int32),
                np.asarray(voice.tensors["mel"], np.float32),
                voice.metadata.get(TRANSCRIPT, ""),
            )
            parts.check()
        except (KeyError, ValueError, TypeError) as error:
            raise SynthesisFailed(
                "the voice does not fit this engine", how_to_fix="enrol its recording again"
            ) from error
        return parts

    def check(self) -> None:
        """Refuse arrays that no recording gives.

        Raises:
            ValueError: A shape or a value is off.
        """
        count = len(self.tokens)
        if self.embedding.shape != (SPEAKER_WIDTH,) or self.tokens.ndim != 1:
            raise ValueError("embedding or tokens have a wrong shape")
        if self.mel.shape != (FRAMES_PER_TOKEN * count, MEL):
            raise ValueError("the mel does not have two frames a token")
        if count and not (int(self.tokens.min()) >= 0 and int(self.tokens.max()) < SPEECH_CODES):
            raise ValueError("a token is no speech token")
        if not (np.isfinite(self.embedding).all() and np.isfinite(self.mel).all()):
            raise ValueError("the voice holds values that are no numbers")

    def cut_for_first_hop(self, first_hop: int) -> VoiceParts:
        """Cut the recording in front so that `first_hop` more tokens complete its open block.

        The flow gives out whole blocks, counted from the start of the recording. A recording that
        is too short to be cut stays as it is.
        """
        wanted = BLOCK_TOKENS - first_hop
        count = len(self.tokens)
        cut = (count - wanted) % BLOCK_TOKENS
        if count - cut < wanted or cut == 0:
            return self
        return VoiceParts(
            self.embedding,
            self.tokens[cut:],
            self.mel[FRAMES_PER_TOKEN * cut :],
            self.transcript,
        )
