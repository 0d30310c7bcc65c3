"""What happens to the text of one utterance before the engine reads it, as one stage.

::

    cleaner ─► marks ─┬─ plain text ─► lexicon ─┬─ plain text ─► simplifier, normaliser ─┬─► engine
    or SSML           └─ sounds, phonemes ──────┴────────────────────────────────────────┘
       └── manners, pauses, bookmarks ──► between what stood before them and behind
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.errors import InvalidMarkup
from cosyvoice_stream.streaming import pinyin
from cosyvoice_stream.streaming.chain import Chain
from cosyvoice_stream.streaming.cleaner import PlainText, TextCleaner
from cosyvoice_stream.streaming.lexicon import Lexicon, LexiconStage
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.normalizer import Normalizer, Unread
from cosyvoice_stream.streaming.simplify import Simplifier
from cosyvoice_stream.streaming.speech_marks import Kind, Piece, Problem, SpeechMarks
from cosyvoice_stream.streaming.ssml import Item, Manner, SsmlReader
from cosyvoice_stream.types import EngineInfo, Feature

MAX_WARNINGS: Final = 20
"""Of one utterance; what is wrong in the same way a hundred times need not be said so often."""
_NEEDS: Final = (
    (Kind.SOUND, Feature.SOUNDS, "sounds are left out"),
    (Kind.PHONEMES, Feature.ARPABET, "phonemes in brackets may be misread"),
)


@dataclass(frozen=True, slots=True)
class TextWarning:
    """Something about the text that its author should know; it is spoken all the same."""

    message: str
    char_start: int | None = None
    """Index of the first character that is meant, in the client's text; None is all of it."""
    char_end: int | None = None
    suggestion: str | None = None
    """What could stand there instead."""


def needs_homophones(info: EngineInfo) -> bool:
    """Tell whether syllables in pinyin are given to an engine as characters."""
    return "zh" in info.languages and Feature.PINYIN not in info.features


async def load_homophones() -> None:
    """Read their table in a thread, where the loop does not wait for it; quick when it was read."""
    from cosyvoice_stream.streaming.polyphones import homophones

    await asyncio.to_thread(homophones)


class TextStages:
    """Cleans a text, finds its marks and the words of the lexicons, and reads numbers as words.

    Args:
        info: Of the engine, for warnings about what it lacks.
        clean: Whether to drop markup and emoji.
        ssml: Whether the text is SSML; it is not cleaned then.
        simplify: Whether to write traditional Chinese characters as simplified ones.
        normalize: Whether to read numbers, dates, units and abbreviations as words.
        language: BCP 47 tag of the text; None finds it sentence by sentence.
        lexicons: The first one has precedence.
    """

    def __init__(
        self,
        info: EngineInfo,
        *,
        clean: bool,
        ssml: bool = False,
        simplify: bool = False,
        normalize: bool = False,
        language: str | None = None,
        lexicons: Iterable[Lexicon] = (),
    ) -> None:
        self._info = info
        self._cleaner: TextCleaner | PlainText = TextCleaner() if clean else PlainText()
        self._ssml = SsmlReader(strong_marks=Feature.SOUNDS in info.features) if ssml else None
        self._marks = SpeechMarks()
        self._lexicon = LexiconStage(lexicons)
        self._language = language
        self._simplifier = Simplifier() if simplify else None
        self._normalizer = Normalizer(language) if normalize else None
        self._plain = self._chain()
        self._last = ""
        """Last character that was given out."""
        self._warned: set[Kind] = set()
        self._languages: set[str] = set()
        """Those that were warned of."""
        self._warnings: list[TextWarning] = []
        self._warnings_left = MAX_WARNINGS

    @property
    def error(self) -> InvalidMarkup | None:
        """What ended the reading of SSML."""
        return None if self._ssml is None else self._ssml.error

    def push(self, text: str) -> list[Item]:
        """Append a fragment and take what can be spoken; only SSML gives more than text."""
        if self._ssml is not None:
            return self._read_items(self._ssml.push(text))
        return self._read_items(self._cleaner.push(text))

    def flush(self) -> list[Item]:
        """End the text and take the rest."""
        items = self._cleaner.flush() if self._ssml is None else self._ssml.flush()
        out = self._read_items(items)
        out += self._read(self._marks.flush())
        out += self._give(self._lexicon.flush())
        return out + self._out(self._plain.flush())

    def break_here(self) -> list[Item]:
        """Take everything so far, as if the text ended here; the text goes on."""
        items = self._cleaner.break_here() if self._ssml is None else []
        return self._read_items(items) + self._break()

    def _read_items(self, items: Sequence[Item]) -> list[Item]:
        out: list[Item] = []
        for item in items:
            if isinstance(item, MappedText):
                out += self._read(self._marks.push(item))
                continue
            out += [*self._break(), item]
            if isinstance(item, Manner):
                self._change_language(item.language or self._language)
        return out

    def _break(self) -> list[Item]:
        """What the stages behind the first one hold."""
        texts = self._read(self._marks.break_here())
        return [*texts, *self._give(self._lexicon.break_here()), *self._held()]

    def _change_language(self, language: str | None) -> None:
        if self._normalizer is not None:
            self._note_unread()
            self._normalizer = Normalizer(language)
            self._plain = self._chain()

    def _chain(self) -> Chain:
        """What plain text goes through."""
        stages = (self._simplifier, self._normalizer)
        return Chain([stage for stage in stages if stage is not None])

    @property
    def holds(self) -> bool:
        """Whether a number or a word is held until it is known how it goes on."""
        return self._normalizer is not None and self._normalizer.holds

    def take_warnings(self) -> list[TextWarning]:
        """Take what there is to say about the text since the last call."""
        problems = self._marks.take_problems()
        if self._ssml is not None:
            problems += self._ssml.take_problems()
        for problem in problems:
            self._warn(_warning_of(problem))
        self._note_unread()
        warnings, self._warnings = self._warnings, []
        return warnings

    def _read(self, pieces: Sequence[Piece]) -> list[MappedText]:
        texts: list[MappedText] = []
        for piece in pieces:
            if piece.kind is Kind.TEXT:
                texts += self._give(self._lexicon.push(piece.source))
            else:
                texts += self._give([*self._lexicon.break_here(), piece])
        return texts

    def _give(self, pieces: Sequence[Piece]) -> list[MappedText]:
        texts: list[MappedText] = []
        for piece in pieces:
            source = piece.source
            if piece.kind is Kind.TEXT:
                texts += self._out(self._plain.push(source))
                continue
            texts += self._held()
            character = self._homophone(piece)
            if character is not None:
                texts += self._out([character])
                continue
            self._check(piece)
            start, end = source.source_span(0, len(source))
            if piece.kind is Kind.PINYIN and self._last.isascii() and self._last.isalnum():
                # An engine takes brackets behind a Latin letter for an index.
                texts.append(MappedText.standing_for(" ", start, start))
            texts += self._out([MappedText.standing_for("".join(piece.symbols), start, end)])
        return texts

    def _held(self) -> list[MappedText]:
        """What is held of plain text, in front of what is not to be read as such."""
        return self._out(self._plain.break_here())

    def _out(self, texts: list[MappedText]) -> list[MappedText]:
        if texts and texts[-1].text:
            self._last = texts[-1].text[-1]
        return texts

    def _homophone(self, piece: Piece) -> MappedText | None:
        """A character for a syllable, where the engine speaks Chinese and takes no pinyin."""
        if piece.kind is not Kind.PINYIN or not needs_homophones(self._info):
            return None
        from cosyvoice_stream.streaming.polyphones import homophones

        char = homophones().get(pinyin.from_tokens(piece.symbols) or "")
        if char is None:
            return None
        return MappedText.standing_for(char, *piece.source.source_span(0, len(piece.source)))

    def _check(self, piece: Piece) -> None:
        """Say once of each kind of mark that the engine cannot do it."""
        for kind, feature, effect in _NEEDS:
            if piece.kind is not kind or kind in self._warned or feature in self._info.features:
                continue
            self._warned.add(kind)
            start, end = piece.source.source_span(0, len(piece.source))
            name = self._info.name
            self._warn(
                TextWarning(f"{effect}: the engine {name!r} has no such feature", start, end)
            )

    def _note_unread(self) -> None:
        if self._normalizer is None:
            return
        for unread in self._normalizer.take_unread():
            self._warn(_unread_warning(unread))
        self._check_languages(self._normalizer.take_languages())

    def _check_languages(self, languages: set[str]) -> None:
        """Say once of each language that the engine does not speak it."""
        spoken = {tag.split("-")[0] for tag in self._info.languages}
        for language in sorted(languages - spoken - self._languages):
            self._languages.add(language)
            self._warn(
                TextWarning(f"the engine {self._info.name!r} does not speak {language!r} well")
            )

    def _warn(self, warning: TextWarning) -> None:
        if self._warnings_left:
            self._warnings_left -= 1
            self._warnings.append(warning)


def _unread_warning(unread: Unread) -> TextWarning:
    message = f"numbers are not read as words in {unread.language!r}: write them out"
    return TextWarning(message, unread.char_start, unread.char_end)


def _warning_of(problem: Problem) -> TextWarning:
    return TextWarning(problem.message, problem.char_start, problem.char_end, problem.suggestion)
