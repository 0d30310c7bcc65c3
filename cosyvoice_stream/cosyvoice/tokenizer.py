"""Text → ids of the speech LM: Qwen2's byte-level BPE, and the few tokens a user may write.

Added tokens (`<|endofprompt|>`, `[breath]`, …) are no part of the vocabulary that text goes
through, so that none of them can arise from what a user writes: ``<|endofprompt|>`` in a text is
six ordinary symbols. The marks of `streaming.mark_tokens` are looked up beside it.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Final

from cosyvoice_stream.cosyvoice.versions import Version
from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.streaming.mark_tokens import ARPABET, PINYIN

FIRST_ADDED: Final = 151646
"""Id of ``<|endofprompt|>``; those before it are the vocabulary and Qwen2's own three."""
# In the order of their ids.
SOUNDS_BY_ID: Final = (
    "[breath]",
    "<strong>",
    "</strong>",
    "[noise]",
    "[laughter]",
    "[cough]",
    "[clucking]",
    "[accent]",
    "[quick_breath]",
    "<laughter>",
    "</laughter>",
    "[hissing]",
    "[sigh]",
    "[vocalized-noise]",
    "[lipsmack]",
    "[mn]",
)
# Qwen2's pre-tokeniser, see `tokenizer.json` of Qwen/Qwen2-0.5B.
WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def mark_ids(version: Version) -> dict[str, int]:
    """Ids of the marks that a text for this version may hold."""
    after = FIRST_ADDED + 1
    ids = {mark: after + i for i, mark in enumerate(SOUNDS_BY_ID)}
    if version.number >= 3:
        # `<|endofsystem|>` stands between the sounds and the phonemes.
        after += len(SOUNDS_BY_ID) + 1
        phonemes = [*sorted(ARPABET, key=_inner), *sorted(PINYIN, key=_inner)]
        ids |= {mark: after + i for i, mark in enumerate(phonemes)}
    return ids


def _inner(mark: str) -> str:
    return mark[1:-1]


class TextTokenizer:
    """Reads the vocabulary of a checkpoint.

    Args:
        vocabulary: Folder with ``vocab.json`` and ``merges.txt``.
        version: Which marks there are.

    Raises:
        ModelLoadError: A file is missing or is no such vocabulary.
    """

    def __init__(self, vocabulary: Path, version: Version) -> None:
        from tokenizers import Regex, Tokenizer
        from tokenizers.models import BPE
        from tokenizers.normalizers import NFC
        from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

        files = [vocabulary / "vocab.json", vocabulary / "merges.txt"]
        for file in files:
            if not file.exists():
                raise ModelLoadError(
                    f"{file} is missing",
                    how_to_fix="download the checkpoint again: "
                    f"cosyvoice-stream download {version.name}",
                )
        try:
            model = BPE.from_file(str(files[0]), str(files[1]))
        except Exception as error:
            raise ModelLoadError(f"{vocabulary} holds no vocabulary that can be read") from error
        self._bpe = Tokenizer(model)
        self._bpe.normalizer = NFC()
        self._bpe.pre_tokenizer = Sequence(
            [Split(Regex(WORDS), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        self._marks = mark_ids(version)
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._mark = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is a mark."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, text: str) -> list[int]:
        """Ids of what a user wrote: marks that this version knows pass, all else is plain text."""
        ids: list[int] = []
        for piece in self._mark.split(unicodedata.normalize("NFC", text)):
            mark = self._marks.get(piece)
            ids += self.plain(piece) if mark is None else [mark]
        return ids

    def instruction(self, text: str) -> list[int]:
        """Ids of a style instruction, closed by the token that ends one."""
        return [*self.plain(text), FIRST_ADDED]
