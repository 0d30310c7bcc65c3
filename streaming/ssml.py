"""SSML in fragments → text, manners of speaking, pauses and bookmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from xml.parsers import expat

from cosyvoice_stream.errors import InvalidMarkup
from cosyvoice_stream.streaming import ssml_values as values
from cosyvoice_stream.streaming.mapped_text import MappedText
from cosyvoice_stream.streaming.mark_tokens import SPANS
from cosyvoice_stream.streaming.speech_marks import Problem
from cosyvoice_stream.streaming.ssml_words import phonemes_of, say_as

MAX_DEPTH: Final = 32
MAX_TAG_BYTES: Final = 4096
"""Of one tag or comment; what is incomplete is read again with every fragment."""
MAX_NAME_CHARS: Final = 64
_LANG: Final = "xml:lang"
_SILENT: Final = frozenset(("metadata", "desc"))
"""Elements whose content is not for the listener."""
_TRANSPARENT: Final = frozenset(("w", "token", "lookup", "metadata", "desc", "meta"))
_EMPHASIS: Final = {"strong": (0.85, 1.25), "moderate": (0.92, 1.12), "reduced": (1.08, 0.85)}
"""Tempo and volume factors of each level."""
_NOT_BEGUN: Final = tuple(
    expat.errors.codes[text]
    for text in (expat.errors.XML_ERROR_SYNTAX, expat.errors.XML_ERROR_NO_ELEMENTS)
)
_STOPS: Final = frozenset(".!?…。！？:：;；,，、")


@dataclass(frozen=True, slots=True)
class Manner:
    """How the text that follows is spoken, relative to the options of the utterance."""

    speed: float = 1.0
    """Tempo factor."""
    pitch: float = 0.0
    """Semitones."""
    volume: float = 1.0
    """Gain factor."""
    voice: str | None = None
    """Id of a voice, or None for that of the utterance."""
    language: str | None = None
    """BCP 47 tag, or None for that of the utterance."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence of an exact length."""

    ms: float


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place whose time the author wants to know."""

    name: str


Item: TypeAlias = MappedText | Manner | Pause | Bookmark


@dataclass
class _Element:
    """An open element."""

    name: str
    manner: Manner
    """Of its content."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    """Index of its start tag in the pushed text."""
    replaces: bool = False
    """Its content is gathered and then said in other words."""
    closing: str = ""
    """Mark to give out behind it."""


class SsmlReader:
    """Reads SSML as it arrives.

    Knows speak, p, s, break, prosody (rate, pitch, volume), emphasis, say-as, sub, phoneme, mark,
    voice and lang, and the sounds ``<laughter>`` and ``<strong>`` of `speech_marks`. The tags of
    other elements are left out with a warning, their content is spoken. Document types, entities of
    one's own and tags beyond 4 KiB are refused.

    What it gives out depends on the text alone, except that text may be cut anywhere. Spans are
    positions in the pushed text. After an error nothing more comes out.

    Args:
        strong_marks: Emphasis is the mark ``<strong>`` instead of a manner.

    Attributes:
        error: What ended the reading: the text is not well-formed, or holds what is refused.
    """

    def __init__(self, *, strong_marks: bool = False) -> None:
        self._strong_marks = strong_marks
        self.error: InvalidMarkup | None = None
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        if hasattr(parser, "SetReparseDeferralEnabled"):
            parser.SetReparseDeferralEnabled(False)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.EntityDeclHandler = self._refuse_doctype
        self._parser = parser
        self._source = ""
        """What may still be asked for of the pushed text."""
        self._base = 0
        """Index of `_source[0]` in the pushed text."""
        self._at = self._at_bytes = 0
        """The same place in characters and in bytes of the pushed text."""
        self._pushed_bytes = 0
        self._begun = False
        """Something visible was pushed."""
        self._seen = False
        """An element has begun."""
        self._items: list[Item] = []
        self._problems: list[Problem] = []
        self._open: list[_Element] = []
        self._manner = Manner()
        """The last that was given out."""
        self._gathered: list[MappedText] | None = None
        self._silenced = 0
        """Open elements that are not for the listener."""
        self._last = ""
        """Last visible character that was given out."""

    def push(self, text: str) -> list[Item]:
        """Append a fragment and take what it completes."""
        if self.error is None:
            self._source += text
            if not self._begun:
                text = self._source
                self._begun = bool(text.strip())
            if self._begun:
                data = text.encode("utf-8", "surrogatepass")
                self._pushed_bytes += len(data)
                self._parse(data, final=False)
            self._forget()
        return self._take()

    def flush(self) -> list[Item]:
        """End the text and take the rest; white space alone is an empty text."""
        if self.error is None and self._begun:
            self._parse(b"", final=True)
        return self._take()

    def take_problems(self) -> list[Problem]:
        """Take what was passed over since the last call."""
        problems, self._problems = self._problems, []
        return problems

    def _take(self) -> list[Item]:
        items, self._items = self._items, []
        return items

    def _parse(self, data: bytes, *, final: bool) -> None:
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            message = expat.ErrorString(error.code) or "not well-formed"
            if not self._seen and error.code in _NOT_BEGUN:
                message = "the text does not begin with <speak>"
            self._fail(message, error)
        except InvalidMarkup as error:
            self.error = error
        else:
            if self._pushed_bytes - self._parser.CurrentByteIndex > MAX_TAG_BYTES:
                self._fail(f"a tag is longer than {MAX_TAG_BYTES} bytes")

    def _fail(self, message: str, error: expat.ExpatError | None = None) -> None:
        line = error.lineno if error else self._parser.CurrentLineNumber
        column = error.offset if error else self._parser.CurrentColumnNumber
        self.error = InvalidMarkup(message, line, column + 1)

    def _refuse(self, message: str) -> InvalidMarkup:
        parser = self._parser
        return InvalidMarkup(message, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)

    def _refuse_doctype(self, *_: object) -> None:
        raise self._refuse("document types and entities are not allowed")

    # Positions

    def _here(self) -> int:
        """Index of the event at hand in the pushed text."""
        target = self._parser.CurrentByteIndex
        while self._at_bytes < target:
            char = self._source[self._at - self._base]
            self._at_bytes += 1 + (char > "\x7f") + (char > "\u07ff") + (char > "\uffff")
            self._at += 1
        return self._at

    def _forget(self) -> None:
        """Drop what no event will ask for."""
        if self._begun:
            self._source = self._source[self._at - self._base :]
            self._base = self._at

    # Events

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        here = self._here()
        self._seen = True
        if not self._open and name != "speak":
            raise self._refuse("the outermost element is not <speak>")
        if len(self._open) >= MAX_DEPTH:
            raise self._refuse(f"elements are nested more than {MAX_DEPTH} deep")
        manner = self._open[-1].manner if self._open else Manner()
        element = _Element(name, manner, attributes, here)
        if name in _SILENT:
            self._silenced += 1
        if _LANG in attributes:
            element.manner = replace(manner, language=attributes[_LANG][:MAX_NAME_CHARS] or None)
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, element)
        elif name not in _TRANSPARENT:
            self._warn(here, "the element is not known, only its content is spoken")
        self._open.append(element)

    def _end(self, name: str) -> None:
        here = self._here()
        element = self._open.pop()
        if element.replaces and self._gathered is not None:
            gathered, self._gathered = MappedText.join(self._gathered), None
            self._say_instead(element, gathered)
        elif name in ("p", "s"):
            self._end_sentence(here, paragraph=name == "p")
        elif element.closing:
            self._text(MappedText.standing_for(element.closing, here, here))
        if name in _SILENT:
            self._silenced -= 1

    def _characters(self, data: str) -> None:
        here = self._here()
        start = here - self._base
        if self._source[start] == "&":
            end = self._source.index(";", start) + 1
            text = MappedText.standing_for(data, here, self._base + end)
        elif self._source.startswith(data, start):
            text = MappedText.of(data, here)
        else:  # a line break that is written as two characters
            text = MappedText.standing_for(data, here, here + 1)
        self._text(text)

    def _text(self, text: MappedText) -> None:
        """Say something in the manner of the innermost element."""
        if self._silenced or not len(text):
            return
        if self._gathered is not None:
            self._gathered.append(text)
            return
        visible = text.text.rstrip()
        manner = self._open[-1].manner if self._open else Manner()
        if visible and manner != self._manner:
            self._manner = manner
            self._items.append(manner)
        self._last = visible[-1:] or self._last
        self._items.append(text)

    def _warn(self, start: int, message: str) -> None:
        self._problems.append(Problem(start, start + 1, message))

    # Elements

    def _end_sentence(self, at: int, *, paragraph: bool) -> None:
        if self._gathered is not None:
            return
        if self._last and self._last not in _STOPS:
            stop = "。" if self._last > "\u2e7f" else "."
            self._text(MappedText.standing_for(stop, at, at))
        self._text(MappedText.standing_for("\n\n" if paragraph else "\n", at, at))

    def _break(self, element: _Element) -> None:
        attributes = element.attributes
        ms = values.break_ms(attributes.get("time"), attributes.get("strength"))
        if ms is None:
            self._warn(element.start, "the length of the pause is not understood")
            return
        if ms > values.MAX_BREAK_MS:
            self._warn(element.start, f"a pause lasts at most {values.MAX_BREAK_MS} ms")
        if ms and not self._silenced:
            self._items.append(Pause(min(ms, values.MAX_BREAK_MS)))

    def _prosody(self, element: _Element) -> None:
        manner = element.manner
        for name, text in element.attributes.items():
            read = _PROSODY.get(name)
            value = None if read is None else read(text)
            if value is None:
                if name != _LANG:
                    self._warn(element.start, "an attribute of <prosody> is not understood")
            elif name == "pitch":
                manner = replace(manner, pitch=manner.pitch + value)
            elif name == "rate":
                manner = replace(manner, speed=manner.speed * value)
            else:
                manner = replace(manner, volume=manner.volume * value)
        element.manner = manner

    def _emphasis(self, element: _Element) -> None:
        level = element.attributes.get("level", "moderate")
        if self._strong_marks and level in ("strong", "moderate"):
            self._span(element, "strong")
        elif level in _EMPHASIS:
            speed, volume = _EMPHASIS[level]
            manner = element.manner
            element.manner = replace(
                manner, speed=manner.speed * speed, volume=manner.volume * volume
            )
        elif level != "none":
            self._warn(element.start, "the level of the emphasis is not known")

    def _mark(self, element: _Element) -> None:
        name = element.attributes.get("name", "")
        if not 0 < len(name) <= MAX_NAME_CHARS:
            self._warn(element.start, f"a mark needs a name of at most {MAX_NAME_CHARS} characters")
        elif not self._silenced:
            self._items.append(Bookmark(name))

    def _voice(self, element: _Element) -> None:
        name = element.attributes.get("name", "")[: 2 * MAX_NAME_CHARS]
        if name:
            element.manner = replace(element.manner, voice=name)
        elif _LANG not in element.attributes:
            self._warn(element.start, "a voice is chosen by its name alone")

    def _gather(self, element: _Element) -> None:
        if self._gathered is None:
            self._gathered = []
            element.replaces = True

    def _span(self, element: _Element, name: str = "") -> None:
        name = name or element.name
        element.closing = f"</{name}>"
        self._text(MappedText.standing_for(f"<{name}>", element.start, element.start))

    def _say_instead(self, element: _Element, content: MappedText) -> None:
        start, end = content.source_span(0, len(content)) if len(content) else (element.start,) * 2
        said: str | None
        if element.name == "sub":
            said = element.attributes.get("alias")
            problem = "<sub> has no alias"
        elif element.name == "phoneme":
            said = phonemes_of(element.attributes.get("alphabet"), element.attributes.get("ph"))
            problem = "the phonemes are not understood"
        else:
            language = element.manner.language
            said = say_as(content.text, element.attributes, language)
            problem = "this interpretation is not known"
        if said is None:
            self._warn(element.start, problem)
            self._text(content)
        elif said == content.text:
            self._text(content)
        else:
            self._text(MappedText.standing_for(said, start, end))


_PROSODY: Final[Mapping[str, Callable[[str], float | None]]] = {
    "rate": values.rate,
    "pitch": values.pitch,
    "volume": values.volume,
}
_HANDLERS: Final[Mapping[str, Callable[[SsmlReader, _Element], None]]] = {
    "break": SsmlReader._break,
    "prosody": SsmlReader._prosody,
    "emphasis": SsmlReader._emphasis,
    "mark": SsmlReader._mark,
    "voice": SsmlReader._voice,
    "say-as": SsmlReader._gather,
    "sub": SsmlReader._gather,
    "phoneme": SsmlReader._gather,
    **dict.fromkeys(SPANS, SsmlReader._span),
    **dict.fromkeys(("speak", "p", "s", "lang"), lambda reader, element: None),
}


def check_ssml(text: str) -> None:
    """Read a whole text.

    Raises:
        InvalidMarkup: It is not well-formed, or holds what is refused.
    """
    reader = SsmlReader()
    reader.push(text)
    reader.flush()
    if reader.error is not None:
        raise reader.error
