"""The speech language model of CosyVoice 2 and 3: text rows in, speech tokens (25 Hz) out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosyvoice_stream.models.qwen2 import Qwen2, Qwen2Config

SPEECH_CODES = 6561
"""Speech tokens 0 … 6560; higher ids are special."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids above the speech codes, which differ between the versions."""

    total: int
    """Rows of the output layer."""
    start: int | None
    """Row of `speech_embedding` that starts a sequence; None: row 0 of `llm_embedding`."""
    task: int | None
    """Row of `speech_embedding` that ends the text; None: row 1 of `llm_embedding`."""
    end: int
    fill: int


V2_IDS = SpecialIds(total=SPEECH_CODES + 3, start=None, task=None, end=6561, fill=6563)
V3_IDS = SpecialIds(total=SPEECH_CODES + 200, start=6561, task=6563, end=6562, fill=6564)


class _CausalLm(nn.Module):
    """Holds the decoder and the unused language head under the names of the checkpoint."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.model = Qwen2(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight


class _TextModel(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.model = _CausalLm(config)


class SpeechLm(nn.Module):
    """Qwen2 over rows of text and speech, with an output layer over speech tokens.

    Names of parameters are those of the official ``llm.pt``.
    """

    def __init__(self, config: Qwen2Config, ids: SpecialIds) -> None:
        super().__init__()
        self.ids = ids
        self.llm = _TextModel(config)
        if ids.start is None:
            self.llm_embedding = nn.Embedding(2, config.hidden_size)
        self.speech_embedding = nn.Embedding(ids.total, config.hidden_size)
        self.llm_decoder = nn.Linear(config.hidden_size, ids.total, bias=ids.start is None)

    @property
    def decoder(self) -> Qwen2:
        """The transformer."""
        return self.llm.model.model

    def text_rows(self, text_ids: Tensor) -> Tensor:
        """(K,) int64 → (K, D)."""
        rows: Tensor = self.decoder.embed_tokens(text_ids)
        return rows

    def speech_rows(self, tokens: Tensor) -> Tensor:
        """(K,) int64 → (K, D)."""
        rows: Tensor = self.speech_embedding(tokens)
        return rows

    def start_row(self) -> Tensor:
        """(1, D) row that opens every sequence."""
        if self.ids.start is None:
            return self.llm_embedding.weight[:1]
        return self.speech_embedding.weight[self.ids.start : self.ids.start + 1]

    def task_row(self) -> Tensor:
        """(1, D) row between the text and the speech."""
        if self.ids.task is None:
            return self.llm_embedding.weight[1:]
        return self.speech_embedding.weight[self.ids.task : self.ids.task + 1]

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(…, D) hidden rows → (…, ids) float32 log-probabilities."""
        return torch.log_softmax(self.llm_decoder(hidden).float(), dim=-1)
