"""The options of an utterance with every value filled in: defaults, merging, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from cosyvoice_stream.errors import InvalidOption, LimitExceeded, UnsupportedFormat
from cosyvoice_stream.streaming.lexicon import compiled
from cosyvoice_stream.streaming.sound import SoundOptions
from cosyvoice_stream.streaming.style import DIALECTS, EMOTIONS, LOUDNESSES, PACES
from cosyvoice_stream.types import Style, SynthesisOptions

ENCODINGS: Final = (
    "pcm_s16le",
    "pcm_f32le",
    "wav",
    "mulaw",
    "alaw",
    "opus",
    "mp3",
    "flac",
    "aac",
)
SAMPLE_RATES: Final = (8000, 16_000, 22_050, 24_000, 44_100, 48_000)
OPUS_RATES: Final = (8000, 16_000, 24_000, 48_000)
FRAME_MS_RANGE: Final = (10, 1000)
LOUDNESS_RANGE_DBFS: Final = (-40, -10)
SILENCE_RANGE_MS: Final = (0, 5000)
MAX_LEXICON_ENTRIES: Final = 1000
"""Of a session or an utterance; the settings are said back to the client as a whole."""
LEAD_MS_RANGE: Final = (20, 60_000)
BUFFER_MS_RANGE: Final = (0, 60_000)

MarkKind: TypeAlias = Literal["word", "viseme", "mouth"]
PriorityName: TypeAlias = Literal["interactive", "background"]


class _Settings(BaseModel):
    # Lenient about unknown fields: a client reads these as well, from servers that may be later.
    model_config = ConfigDict(frozen=True, extra="ignore")


class OutputSettings(_Settings):
    """Form of the audio."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 24_000
    """In hertz."""
    frame_ms: int = 0
    """Length of every frame but the last; 0 sends chunks as they are made."""
    lead_ms: int = 0
    """How far a session may be ahead of its listener; 0 is as far as the client reads."""
    buffer_ms: int = 0
    """What the player gathers before it starts, for estimates of what has been heard."""

    def require_form_of(self, fixed: OutputSettings) -> None:
        """Refuse what would change the bytes of a frame, for audio that goes to a track.

        Raises:
            UnsupportedFormat: Something would.
        """
        mine = self.encoding, self.sample_rate, self.frame_ms
        if mine != (fixed.encoding, fixed.sample_rate, fixed.frame_ms):
            raise UnsupportedFormat(
                "the audio of a call goes to its track",
                how_to_fix="leave encoding, sample_rate and frame_ms out of output",
            )


class TextSettings(_Settings):
    """How text is read."""

    clean: bool = True
    """Drop markup and emoji."""
    normalize: bool = True
    """Read numbers, dates, units and abbreviations as words."""
    simplify: bool = False
    """Write traditional Chinese characters as simplified ones."""


class SoundSettings(_Settings):
    """How an utterance sounds as a whole; the engine's own sound by default."""

    loudness_dbfs: float | None = None
    """Level of the speech, for all clauses; peaks are then limited to -1 dBFS."""
    lead_in_ms: int = 0
    """Silence in front."""
    head_ms: int | None = None
    """Silence of the engine that may stay in front of the first sound; None leaves all."""
    tail_ms: int | None = None
    """Silence of the engine that may stay behind the last sound; None leaves all."""
    sentence_pause_ms: int | None = None
    """Between two sentences, for engines that make the pause themselves; None is their own."""

    def check(self) -> None:
        """Refuse what is out of range.

        Raises:
            InvalidOption: Something is.
        """
        for name, value, (low, high) in (
            ("loudness_dbfs", self.loudness_dbfs, LOUDNESS_RANGE_DBFS),
            ("lead_in_ms", self.lead_in_ms, SILENCE_RANGE_MS),
            ("head_ms", self.head_ms, SILENCE_RANGE_MS),
            ("tail_ms", self.tail_ms, SILENCE_RANGE_MS),
            ("sentence_pause_ms", self.sentence_pause_ms, SILENCE_RANGE_MS),
        ):
            if value is not None and not low <= value <= high:
                raise InvalidOption(f"sound.{name}", value, f"use a number from {low} to {high}")

    def to_options(self) -> SoundOptions:
        """What the sound stage is told."""
        return SoundOptions(self.loudness_dbfs, self.lead_in_ms, self.head_ms, self.tail_ms)


class StyleSettings(_Settings):
    """How something is said, in terms of no model; nothing by default."""

    dialect: str | None = None
    emotion: str | None = None
    pace: str | None = None
    loudness: str | None = None
    text: str | None = None
    """More, in words; never spoken."""

    def check(self) -> None:
        """Refuse names that are not known.

        Raises:
            InvalidOption: One is not.
        """
        for name, known in (
            ("dialect", DIALECTS),
            ("emotion", EMOTIONS),
            ("pace", PACES),
            ("loudness", LOUDNESSES),
        ):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InvalidOption(f"style.{name}", value[:40], f"use one of {', '.join(known)}")

    def to_options(self) -> Style | None:
        """What the engine is told; None for nothing."""
        style = Style(self.dialect, self.emotion, self.pace, self.loudness, self.text)
        return None if style == Style() else style


class UtteranceSettings(_Settings):
    """Everything that decides how one utterance sounds and what the client gets of it."""

    voice: str | None = None
    """Id of a voice, or None for the first one of the engine."""
    language: str | None = None
    """BCP 47 tag, or None to find it from the text."""
    instruct: str | None = None
    style: StyleSettings = StyleSettings()
    speed: float = 1.0
    pitch: float = 0.0
    """Semitones."""
    volume: float = 1.0
    seed: int | None = None
    """None draws one per utterance."""
    strength: float = 1.0
    temperature: float | None = None
    """How freely an engine with the feature `sampling` draws; None, here and below, is its own."""
    top_p: float | None = None
    top_k: int | None = None
    flow_steps: int | None = None
    output: OutputSettings = OutputSettings()
    marks: tuple[MarkKind, ...] = ()
    priority: PriorityName = "interactive"
    """``background`` waits behind everybody who listens."""
    sound: SoundSettings = SoundSettings()
    text: TextSettings = TextSettings()
    ssml: bool = False
    """The text is SSML."""
    lexicon: dict[str, str] = {}
    """Word → reading; comes before the server's lexicon."""

    @property
    def sampling_is_set(self) -> bool:
        """Whether one of the options of `Feature.SAMPLING` was asked for."""
        wanted = (self.temperature, self.top_p, self.top_k, self.flow_steps)
        return any(value is not None for value in wanted)

    def merged(
        self, changes: Mapping[str, Any], defaults: UtteranceSettings | None = None
    ) -> UtteranceSettings:
        """Apply what a client sent.

        Args:
            changes: `Options.changes()`: absent fields keep their value, None restores the default.
                The fields of `output`, `sound`, `style`, `text` and `lexicon` are merged one by
                one.
            defaults: Where None takes its values from; the protocol's defaults without it.

        Raises:
            InvalidOption: A value is out of range.
            UnsupportedFormat: No such encoding or sample rate.
        """
        base = (defaults or UtteranceSettings()).model_dump()
        values = self.model_dump()
        for name, value in changes.items():
            if value is None:
                values[name] = base[name]
            elif name == "lexicon":
                merged = {**values[name], **value}
                values[name] = {word: read for word, read in merged.items() if read is not None}
            elif isinstance(value, Mapping):
                values[name] = {
                    **values[name],
                    **{k: base[name][k] if v is None else v for k, v in value.items()},
                }
            elif name == "marks":
                values[name] = tuple(dict.fromkeys(value))
            else:
                values[name] = value
        result = UtteranceSettings.model_validate(values)
        result.check()
        return result

    def check(self) -> None:
        """Refuse what no server can do; what this server lacks is found when the speech starts.

        Raises:
            InvalidOption: A value is out of range.
            UnsupportedFormat: No such encoding or sample rate.
        """
        self.to_options()
        self.sound.check()
        self.style.check()
        self._check_lexicon()
        output = self.output
        if output.encoding not in ENCODINGS:
            raise UnsupportedFormat(
                "output.encoding is not known", how_to_fix=f"use one of {', '.join(ENCODINGS)}"
            )
        if output.sample_rate not in SAMPLE_RATES:
            raise UnsupportedFormat(
                f"output.sample_rate = {output.sample_rate} is not available",
                how_to_fix=f"use one of {', '.join(map(str, SAMPLE_RATES))}",
            )
        if output.encoding == "opus" and output.sample_rate not in OPUS_RATES:
            raise UnsupportedFormat(
                f"output.sample_rate = {output.sample_rate} is not available for opus",
                how_to_fix=f"use one of {', '.join(map(str, OPUS_RATES))}",
            )
        for name, value, (low, high) in (
            ("frame_ms", output.frame_ms, FRAME_MS_RANGE),
            ("lead_ms", output.lead_ms, LEAD_MS_RANGE),
            ("buffer_ms", output.buffer_ms, BUFFER_MS_RANGE),
        ):
            if value != 0 and not low <= value <= high:
                raise InvalidOption(
                    f"output.{name}", value, f"use 0 or a whole number from {low} to {high}"
                )

    def _check_lexicon(self) -> None:
        if len(self.lexicon) > MAX_LEXICON_ENTRIES:
            raise LimitExceeded(
                "words in the lexicon of a session",
                MAX_LEXICON_ENTRIES,
                len(self.lexicon),
                how_to_fix="put them into the lexicon of the server: PUT /v1/lexicon",
            )
        compiled(self.lexicon)

    def to_options(self, seed: int | None = None) -> SynthesisOptions:
        """What the engine is told.

        Args:
            seed: Used where the settings leave the seed open.

        Raises:
            InvalidOption: A value is out of range.
        """
        return SynthesisOptions(
            language=self.language,
            instruct=self.instruct,
            style=self.style.to_options(),
            speed=self.speed,
            pitch=self.pitch,
            volume=self.volume,
            seed=seed if self.seed is None else self.seed,
            strength=self.strength,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            flow_steps=self.flow_steps,
            normalize=self.text.normalize,
            background=self.priority == "background",
            sentence_pause_ms=self.sound.sentence_pause_ms,
        )
