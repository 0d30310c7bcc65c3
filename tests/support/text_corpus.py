"""Sentences with the words that they are spoken as, and what counts as the same words."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from cosyvoice_stream.streaming.normalizer import Normalizer

CORPUS = Path(__file__).parents[1] / "data" / "text_corpus.jsonl"
_AND = re.compile(r"(hundred|thousand|million) and ")
_SIGNS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Sentence:
    """One line of the corpus."""

    language: str
    kind: str
    text: str
    spoken: str
    also: list[str] = field(default_factory=list)
    """Other right readings."""

    def is_right(self, words: str) -> bool:
        """Tell whether words are one of the readings.

        Signs, spaces, capitals, the English "and" within a number and 幺 for 一 make no difference.
        """
        return same(words) in {same(reading) for reading in (self.spoken, *self.also)}


def same(words: str) -> str:
    """Reduce words to what has to be equal."""
    words = _AND.sub(r"\1 ", words.lower()).replace("幺", "一")
    return _SIGNS.sub("", words)


def sentences() -> list[Sentence]:
    """Read the corpus."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return [Sentence(**json.loads(line)) for line in lines]


def spoken(text: str, *cuts: int, language: str | None = None) -> str:
    """Read a text that arrives in fragments, cut at the given places."""
    normalizer = Normalizer(language)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = []
    for start, end in zip(places, places[1:], strict=False):
        parts += normalizer.push(text[start:end])
    return "".join(part.text for part in parts + normalizer.flush())
