"""Turns (text stream, voice, settings) into encoded audio and marks, for every transport."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Protocol

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.server.audio_cache import MAX_CHARS, AudioCache, KeptSpeech, request_name
from cosyvoice_stream.server.cutter import Cutter
from cosyvoice_stream.server.encoders import open_encoder
from cosyvoice_stream.server.engine_warnings import engine_warnings
from cosyvoice_stream.server.limits import ANYBODY, Admission, Caller, Priority, Slot
from cosyvoice_stream.server.observability import Outcome, UtteranceMetrics
from cosyvoice_stream.server.observer import SpeechObserver, nobody
from cosyvoice_stream.server.segments import speak_ssml
from cosyvoice_stream.server.speech_events import (
    AudioOut,
    Done,
    MarksOut,
    SpeechEvent,
    Started,
    WarningOut,
)
from cosyvoice_stream.server.speech_marks import SpeechMarks
from cosyvoice_stream.server.text_stages import TextStages, load_homophones, needs_homophones
from cosyvoice_stream.server.text_way import HOLD_BACK_S, TextWay
from cosyvoice_stream.server.wire_settings import UtteranceSettings
from cosyvoice_stream.streaming.lexicon import Lexicon, compiled
from cosyvoice_stream.streaming.playout import Listener
from cosyvoice_stream.streaming.sound import Sound
from cosyvoice_stream.streaming.speech_check import SpeechCheck
from cosyvoice_stream.streaming.style import in_numbers
from cosyvoice_stream.types import (
    MAX_SEED,
    Feature,
    Flush,
    PcmChunk,
    SynthesisOptions,
    TextStream,
    Voice,
)

__all__ = [
    "AudioOut",
    "Done",
    "MarksOut",
    "Speech",
    "SpeechEvent",
    "SpeechService",
    "Started",
    "Voices",
    "WarningOut",
    "engine_warnings",
]


QUIETEST_VOLUME: Final = 0.01
"""Below it silence is what was asked for."""


class Voices(Protocol):
    """What speech needs of the voice service."""

    async def resolve(self, voice_id: str | None) -> Voice:
        """Find a voice; None is the default one. Raises `VoiceNotFound`."""
        ...


class SpeechService:
    """Makes `Speech`; one per application.

    Args:
        engine: Speaks.
        voices: Finds voices.
        admission: Bounds how many utterances are spoken at once.
        lexicon: Gives the lexicon for all utterances that begin.
        observer: Is told what each stage takes, and when a listener would have run dry.
        cache: Keeps what whole texts sound like.
        clock: In seconds, never going back.
        hold_back_s: See `TextWay`.
    """

    def __init__(
        self,
        engine: Engine,
        voices: Voices,
        admission: Admission,
        *,
        lexicon: Callable[[], Lexicon] = Lexicon.empty,
        observer: SpeechObserver = nobody,
        cache: AudioCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        hold_back_s: float = HOLD_BACK_S,
    ) -> None:
        self.engine = engine
        self.voices = voices
        self.admission = admission
        self.lexicon = lexicon
        self.observer = observer
        self.cache = cache
        self.clock = clock
        self.hold_back_s = hold_back_s

    def speak(
        self,
        text: TextStream | str,
        settings: UtteranceSettings,
        *,
        caller: Caller = ANYBODY,
        pinned: bool = False,
    ) -> Speech:
        """Speak a text.

        Args:
            text: Fragments in order, closed with the speech; or the whole text, which is taken from
                the cache where it was spoken before.
            settings: How to speak and encode.
            caller: Whose limits count; the priority is that of `settings` where that is lower.
            pinned: Keep it in the cache for good; for whole texts.

        Returns:
            An async iterator of `Started`, then `WarningOut`, `MarksOut` and `AudioOut`, then
            `Done`. Nothing happens before the first step. Iterating raises `EngineBusy`,
            `VoiceNotFound`, `UnsupportedFormat`, `UnsupportedLanguage`, `InvalidMarkup` or
            `SynthesisFailed`.
        """
        return Speech(self, text, settings, caller, pinned=pinned)

    def warnings(self, settings: UtteranceSettings) -> list[str]:
        """What of the settings this engine will not do, in sentences for a person."""
        return engine_warnings(self.engine.info, settings)


class Speech:
    """One utterance on its way. Closing it cancels; use it as an async context manager."""

    def __init__(
        self,
        service: SpeechService,
        text: TextStream | str,
        settings: UtteranceSettings,
        caller: Caller = ANYBODY,
        *,
        pinned: bool = False,
    ) -> None:
        self._service = service
        self._settings = settings
        priority = max(caller.priority, Priority[settings.priority.upper()])
        self._caller = Caller(caller.key, priority)
        stages = TextStages(
            service.engine.info,
            clean=settings.text.clean,
            ssml=settings.ssml,
            simplify=settings.text.simplify,
            normalize=settings.text.normalize,
            language=settings.language,
            lexicons=(compiled(settings.lexicon), service.lexicon()),
        )
        self._may_be_kept = isinstance(text, str) and len(text) <= MAX_CHARS
        self._pinned = pinned
        stream = _whole(text) if isinstance(text, str) else text
        self._way = TextWay(stream, stages, service.clock, hold_back_s=service.hold_back_s)
        self._events = self._run()
        self._notes: list[WarningOut] = []
        self._slot: Slot | None = None
        self._cutter: Cutter | None = None
        self._busy_s = 0.0
        self._engine_samples = 0
        self._samples = 0
        """What is left of the engine's, or was put to them, on the way to the encoder."""
        self._first_audio_ms: float | None = None
        self._listener = Listener()

    def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        return self

    async def __anext__(self) -> SpeechEvent:
        return await self._events.__anext__()

    async def __aenter__(self) -> Speech:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel. When it returns the engine and the text stream are closed, the slot is free."""
        await self._events.aclose()
        # A generator that was never started does not run its `finally`.
        await self._way.aclose()

    def give_up_slot(self) -> None:
        """Free the slot although the engine still has to finish its step.

        For a barge-in: the answer to it must not be refused because of what it interrupts.
        """
        if self._slot is not None:
            self._slot.release()

    def metrics(
        self, outcome: Outcome, *, audio_ms: float | None = None, queue_wait_ms: float | None = None
    ) -> UtteranceMetrics:
        """What it cost so far.

        Args:
            outcome: How it ended.
            audio_ms: What was handed to the transport; all that was made without it.
            queue_wait_ms: From the start of the utterance to its turn.
        """
        done = self._done()
        return UtteranceMetrics(
            outcome=outcome,
            first_audio_ms=done.first_audio_ms,
            queue_wait_ms=queue_wait_ms,
            audio_ms=done.audio_ms if audio_ms is None else audio_ms,
            rtf=done.rtf,
            characters=done.characters,
        )

    async def _run(self) -> AsyncGenerator[SpeechEvent, None]:
        service, settings = self._service, self._settings
        info = service.engine.info
        try:
            with self._stage("queue"):
                self._slot = await service.admission.enter(self._caller)
            with self._slot:
                output = settings.output
                with self._stage("open"):
                    encoder = await open_encoder(
                        output.encoding, info.sample_rate, output.sample_rate, output.frame_ms
                    )
                    self._cutter = cutter = Cutter(encoder)
                    voice = await service.voices.resolve(settings.voice)
                    if needs_homophones(info):
                        await load_homophones()
                    seed, made = await self._source(voice)
                yield Started(
                    voice=voice.voice_id,
                    seed=seed,
                    encoding=encoder.encoding,
                    sample_rate=encoder.sample_rate,
                    channels=encoder.channels,
                    bytes_per_sample=encoder.bytes_per_sample,
                    byte_order=encoder.byte_order,
                    mime=encoder.mime,
                    warnings=tuple(service.warnings(settings)),
                )
                sound = Sound(settings.sound.to_options(), info.sample_rate)
                mouth = "mouth" in settings.marks
                marks = SpeechMarks(self._way, info.sample_rate, mouth=mouth)
                async with aclosing(made):
                    async for whole in made:
                        with self._stage("sound"):
                            chunk = sound.push(whole)
                        if chunk is None:
                            continue
                        self._samples += len(chunk.samples)
                        for warning in self._warnings():
                            yield warning
                        if (marked := marks.push(chunk)) is not None:
                            yield marked
                        with self._stage("encode"):
                            pieces = await cutter.push(chunk)
                        for audio in pieces:
                            self._note_first_audio()
                            began = service.clock()
                            yield audio
                            self._listener.held(service.clock() - began)
                        if chunk.final:
                            break
                yield self._done()
        finally:
            if self._cutter is not None:
                self._cutter.close()
            await self._way.aclose()

    async def _source(self, voice: Voice) -> tuple[int, AsyncGenerator[PcmChunk, None]]:
        """The seed, and the chunks as the engine makes them, or as it has made them before."""
        service, asked = self._service, self._settings.to_options()
        drawn = secrets.randbelow(MAX_SEED + 1) if asked.seed is None else asked.seed
        # The text that the engine gets has been read, or is to stay as it is.
        options = replace(asked, seed=drawn, normalize=False)
        if Feature.INSTRUCT not in service.engine.info.features:
            options = in_numbers(options)
        if self._settings.ssml:
            way, info, voices = self._way, service.engine.info, service.voices.resolve
            return drawn, speak_ssml(
                way.items(), self._made, info, voices, voice, options, self._notes
            )
        fragments, cache = self._way.fragments(), service.cache
        if cache is None or not self._may_be_kept:
            return drawn, self._made(fragments, voice, options)
        pieces = [piece async for piece in fragments]
        name = request_name(service.engine.info.fingerprint, pieces, voice, asked)
        kept = cache.find(name)
        service.observer.cache(kept is not None)
        if kept is not None:
            return kept.seed, self._again(kept)
        made = self._made(_each(pieces), voice, options)
        return drawn, cache.record(name, drawn, made, pinned=self._pinned)

    async def _made(
        self, fragments: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """Take the chunks of any engine; refuse what it made by a fault."""
        check = SpeechCheck(
            self._service.engine.info.sample_rate,
            pause_s=(options.sentence_pause_ms or 0) / 1000,
            may_be_silent=options.volume < QUIETEST_VOLUME,
        )
        async with aclosing(self._service.engine.synthesize(fragments, voice, options)) as chunks:
            while (made := await self._next(chunks)) is not None:
                for chunk in check.push(made):
                    yield chunk

    async def _again(self, kept: KeptSpeech) -> AsyncGenerator[PcmChunk, None]:
        async with aclosing(kept.play()) as chunks:
            while (chunk := await self._next(chunks)) is not None:
                yield chunk

    async def _next(self, chunks: AsyncIterator[PcmChunk]) -> PcmChunk | None:
        """Take a chunk, counting its compute time.

        An engine that does not measure itself is busy while it is waited for and does not itself
        wait for text; what it renders ahead or beside that is missed.
        """
        clock = self._service.clock
        began, text_before_s = clock(), self._way.waited_s()
        chunk = await anext(chunks, None)
        if chunk is None:
            return None
        text_s = self._way.waited_s() - text_before_s
        waited_s = max(0.0, clock() - began - text_s)
        compute_s = waited_s if chunk.compute_s is None else chunk.compute_s
        self._busy_s += compute_s
        observer = self._service.observer
        observer.stage("engine", compute_s)
        rate = self._service.engine.info.sample_rate
        dry_s = self._listener.next(waited_s, text_s, len(chunk.samples) / rate)
        if dry_s > 0:
            observer.underrun(dry_s)
        self._engine_samples += len(chunk.samples)
        return chunk

    def _warnings(self) -> list[WarningOut]:
        notes = list(dict.fromkeys(self._notes))
        self._notes.clear()
        return notes + [
            WarningOut(each.message, each.char_start, each.char_end, each.suggestion)
            for each in self._way.take_warnings()
        ]

    def _note_first_audio(self) -> None:
        """Measure from the text that completed the first clause.

        An engine that speaks before `ClauseSplitter` sees a clause is measured from the last text
        that it had. The wait of a text that came before its utterance's turn does not count.
        """
        since = self._way.clause_at or self._way.arrived_at
        if self._first_audio_ms is None and since is not None and self._engine_samples:
            self._first_audio_ms = (self._service.clock() - since) * 1000

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Report how long something takes."""
        began = self._service.clock()
        try:
            yield
        finally:
            self._service.observer.stage(name, self._service.clock() - began)

    def _done(self) -> Done:
        rate = self._service.engine.info.sample_rate
        seconds = self._engine_samples / rate
        return Done(
            audio_ms=round(self._samples * 1000 / rate, 1),
            first_audio_ms=None if self._first_audio_ms is None else round(self._first_audio_ms, 1),
            rtf=round(self._busy_s / seconds, 4) if seconds else None,
            characters=self._way.characters,
        )


async def _whole(text: str) -> AsyncGenerator[str, None]:
    yield text


async def _each(pieces: list[str | Flush]) -> AsyncGenerator[str | Flush, None]:
    for piece in pieces:
        yield piece
