"""The CosyVoice engine: official checkpoint folders, incremental and batched."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from cosyvoice_stream.cosyvoice import default_voice
from cosyvoice_stream.cosyvoice.checkpoint import read_spec
from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.loaded import Loaded, load
from cosyvoice_stream.cosyvoice.presets import read_presets
from cosyvoice_stream.cosyvoice.prompt import lm_prompt
from cosyvoice_stream.cosyvoice.prompt_cache import voice_key
from cosyvoice_stream.cosyvoice.reading import read_text
from cosyvoice_stream.cosyvoice.sampling import SamplingParams
from cosyvoice_stream.cosyvoice.segments import LONGEST_S
from cosyvoice_stream.cosyvoice.speech_source import LONGEST_WHOLE_TOKENS, read_speech
from cosyvoice_stream.cosyvoice.utterance import Plan, Utterance
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    ModelLoadError,
    SynthesisFailed,
    VoiceStreamError,
)
from cosyvoice_stream.handover import close_stream, make_wakeup, take_chunks
from cosyvoice_stream.streaming.style import told
from cosyvoice_stream.types import (
    MAX_SEED,
    EngineInfo,
    Feature,
    PcmChunk,
    ReferenceAudio,
    SpeechStream,
    SynthesisOptions,
    TextStream,
    Voice,
)

logger = logging.getLogger(__name__)

NAME: Final = "cosyvoice"
REVISION: Final = 1
"""Raised when voices made before can no longer be used."""
LANGUAGES: Final = {
    2: ("zh", "yue", "en", "ja", "ko"),
    3: ("zh", "yue", "en", "ja", "ko", "de", "es", "fr", "it", "ru"),
}
WARM_UP_TEXT: Final = "你好。"
BUSY_RETRY_S: Final = 1.0
TOKENS_PER_SECOND: Final = 25
LONGEST_SEGMENT_TOKENS: Final = round(1.5 * LONGEST_S * TOKENS_PER_SECOND)
"""For admission: estimates of spoken length are rough."""

_Reader = Callable[[Utterance, asyncio.Event], Coroutine[None, None, None]]
"""Feeds an utterance until its source ends; the event is set whenever chunks have been taken."""


class CosyVoiceEngine:
    """Implements `Engine` with a CosyVoice 2 or Fun-CosyVoice 3 checkpoint.

    Args:
        folder: The checkpoint, as ``cosyvoice-stream download`` fetches it.
        config: How to run.

    Raises:
        ModelLoadError: The folder holds no checkpoint that this engine runs.
    """

    def __init__(self, folder: Path, config: EngineConfig | None = None) -> None:
        self._config = config or EngineConfig()
        self._spec = read_spec(folder)
        version = self._spec.version
        self._presets = read_presets(folder / "spk2info.pt")
        self._loaded: Loaded | None = None
        self._starting = asyncio.Lock()
        self._live = 0
        self._reserved_bytes = 0
        fingerprint = f"{NAME}{version.number}-{self._spec.lm.hidden_size}-{REVISION}"
        names = {name: name for name in self._presets}
        if not names:
            names = {default_voice.VOICE_ID: default_voice.NAME}
        features = {Feature.CLONING, Feature.INSTRUCT, Feature.SAMPLING, Feature.SOUNDS}
        features.add(Feature.CONVERSION)
        if version.number >= 3:
            features |= {Feature.ARPABET, Feature.PINYIN}
        self._info = EngineInfo(
            name=NAME,
            fingerprint=fingerprint,
            sample_rate=self._spec.sample_rate,
            languages=LANGUAGES[version.number],
            features=frozenset(features),
            voices=tuple(Voice(name, label, fingerprint) for name, label in names.items()),
            description=f"CosyVoice {version.number}: clones a voice from a recording",
        )

    @property
    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return self._info

    @property
    def precision(self) -> str | None:
        """What LM and flow compute in, None before `start`."""
        return None if self._loaded is None else self._loaded.networks.precision

    async def start(self) -> None:
        """See `Engine.start`. Takes from seconds to a minute.

        Raises:
            ModelLoadError: See `Engine.start`.
            ConfigError: The device or precision of the configuration is not there.
        """
        async with self._starting:
            if self._loaded is not None:
                return
            loaded = await asyncio.to_thread(load, self._spec, self._config)
            self._loaded = loaded
            try:
                if not self._presets:
                    await self._make_default_voice(loaded)
                await self._warm_up()
            except Exception as error:
                self._loaded = None
                await asyncio.to_thread(loaded.device.close)
                raise ModelLoadError("the self-test of the CosyVoice engine failed") from error

    async def _make_default_voice(self, loaded: Loaded) -> None:
        reference = await default_voice.default_reference()
        self._presets[default_voice.VOICE_ID] = await asyncio.to_thread(
            loaded.references.read, [reference], default_voice.TRANSCRIPT
        )

    async def _warm_up(self) -> None:
        """Render the beginning of a sentence.

        Raises:
            SynthesisFailed: Nothing was heard.
        """

        async def text() -> AsyncGenerator[str, None]:
            yield WARM_UP_TEXT

        heard = 0
        options = SynthesisOptions(seed=1)
        async with aclosing(self.synthesize(text(), self._info.voices[0], options)) as chunks:
            async for chunk in chunks:
                heard += len(chunk.samples)
                if heard >= self._info.sample_rate:
                    break
        if heard == 0:
            raise SynthesisFailed("the warm-up text gave no audio")

    async def close(self) -> None:
        """See `Engine.close`."""
        async with self._starting:
            loaded, self._loaded = self._loaded, None
            if loaded is not None:
                await asyncio.to_thread(loaded.device.close)
                loaded.worker.free_memory()

    def _running(self) -> Loaded:
        if self._loaded is None:
            raise EngineBusy(BUSY_RETRY_S, "the engine is not running")
        return self._loaded

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        """See `Engine.enrol`. With a transcript the voice also keeps rhythm and accent."""
        return await self.enrol_many([reference], transcript)

    async def enrol_many(
        self, references: Sequence[ReferenceAudio], transcript: str | None
    ) -> Voice:
        """Make a voice from up to five recordings of one speaker.

        Args:
            references: The best one first: speech continues it; the speaker is their average.
            transcript: What is said in the first one, if known.

        Raises:
            EnrolmentRejected: The recordings cannot be used.
        """
        loaded = self._running()
        parts = await asyncio.to_thread(loaded.references.read, references, transcript)
        if transcript and len(loaded.tokenizer.plain(transcript)) > self._config.rows_per_slot // 4:
            raise EnrolmentRejected(
                "transcript_too_long",
                "the transcript is longer than the recording can be",
                "write only what is said in the recording",
            )
        cut = parts.cut_for_first_hop(self._config.first_hop)
        key = self._key(cut, self._config.flow_steps)
        worker, steps = loaded.worker, self._config.flow_steps
        ready = loaded.device.submit(lambda: worker.voice_state(key, cut, steps))
        try:
            await asyncio.wrap_future(ready)
        except VoiceStreamError:
            raise
        except Exception as error:
            raise SynthesisFailed("the recording could not be prepared") from error
        return Voice("", "", self._info.fingerprint, parts.tensors(), parts.metadata())

    def _key(self, cut: VoiceParts, steps: int) -> str:
        loaded = self._running()
        return voice_key(cut, self._info.fingerprint, loaded.networks.precision, steps)

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """See `Engine.synthesize`.

        Raises:
            EngineBusy: No slot is free, or memory would not suffice.
        """
        return self._synthesize(text, voice, options)

    async def _synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        loaded = self._running()
        plan = self._plan(loaded, voice, options)
        tokenizer, wake = loaded.tokenizer, loaded.device.wake

        def read(utterance: Utterance, taken: asyncio.Event) -> Coroutine[None, None, None]:
            return read_text(text, utterance, tokenizer, wake, taken)

        try:
            async with aclosing(self._run(loaded, plan, options, read)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await close_stream(text)

    def convert(
        self, speech: SpeechStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """See `Converter.convert`.

        Raises:
            EngineBusy: See `synthesize`.
        """
        return self._convert(speech, voice, options)

    async def _convert(
        self, speech: SpeechStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        loaded = self._running()
        plan = replace(self._plan(loaded, voice, options), prompt=None)
        tokenize, wake = loaded.references.speech_tokens, loaded.device.wake

        def read(utterance: Utterance, taken: asyncio.Event) -> Coroutine[None, None, None]:
            return read_speech(speech, utterance, tokenize, wake, taken)

        try:
            async with aclosing(self._run(loaded, plan, options, read)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await close_stream(speech)

    async def _run(
        self, loaded: Loaded, plan: Plan, options: SynthesisOptions, read: _Reader
    ) -> AsyncGenerator[PcmChunk, None]:
        """Put an utterance on the device and take its chunks while `read` feeds it."""
        reserved = self._admit(loaded, plan)
        arrived, taken = asyncio.Event(), asyncio.Event()
        wake = make_wakeup(asyncio.get_running_loop(), arrived)
        utterance = Utterance(plan, self._config.max_buffered_s, wake)
        device = loaded.device
        reader = asyncio.create_task(read(utterance, taken))
        try:
            device.add(utterance, background=options.background)
            made_room = partial(device.wake, utterance)
            async with aclosing(take_chunks(utterance, made_room, arrived, taken)) as chunks:
                async for chunk in chunks:
                    if chunk.final:
                        # What was wrong with the text is said after the audio before it.
                        await reader
                    yield chunk
        finally:
            reader.cancel()
            left = asyncio.Event()
            device.remove(utterance, make_wakeup(asyncio.get_running_loop(), left))
            await asyncio.gather(reader, left.wait(), return_exceptions=True)
            self._live -= 1
            self._reserved_bytes -= reserved

    def _admit(self, loaded: Loaded, plan: Plan) -> int:
        """Count an utterance in; returns the bytes that are reserved for it.

        Raises:
            EngineBusy: There is no room.
        """
        if self._live >= self._config.slots:
            raise EngineBusy(BUSY_RETRY_S)
        kept = LONGEST_SEGMENT_TOKENS if plan.prompt is not None else LONGEST_WHOLE_TOKENS
        if self._config.left_context_s is not None:
            kept = min(kept, self._config.left_context_s * TOKENS_PER_SECOND)
        tokens = len(plan.voice.tokens) + kept
        # A pass joins what is cached with what is new, and for that time holds both.
        reserved = 2 * loaded.networks.flow_bytes_per_token * plan.flow_steps * tokens // 10
        budget = loaded.budget_bytes
        if budget is not None and self._live and self._reserved_bytes + reserved > budget:
            raise EngineBusy(BUSY_RETRY_S, "the memory for live utterances is used up")
        self._live += 1
        self._reserved_bytes += reserved
        return reserved

    def _plan(self, loaded: Loaded, voice: Voice, options: SynthesisOptions) -> Plan:
        """Fix how an utterance is spoken.

        Raises:
            SynthesisFailed: The voice does not fit this engine, or is none of its own.
        """
        parts = self._parts(voice)
        version = self._spec.version
        cut = parts.cut_for_first_hop(self._config.first_hop)
        steps = options.flow_steps or self._config.flow_steps
        defaults = SamplingParams()
        return Plan(
            voice=cut,
            voice_key=self._key(cut, steps),
            prompt=lm_prompt(loaded.tokenizer, version, parts, told(options, version.number)),
            flow_steps=steps,
            sampling=SamplingParams(
                top_p=defaults.top_p if options.top_p is None else options.top_p,
                top_k=defaults.top_k if options.top_k is None else options.top_k,
                temperature=1.0 if options.temperature is None else options.temperature,
            ),
            seed=secrets.randbelow(MAX_SEED + 1) if options.seed is None else options.seed,
            speed=options.speed,
            volume=options.volume,
            interleave=self._config.interleave_text,
            sentence_pause_ms=options.sentence_pause_ms,
        )

    def _parts(self, voice: Voice) -> VoiceParts:
        if voice.engine != self._info.fingerprint:
            raise SynthesisFailed(
                "the voice was made by another engine", how_to_fix="enrol its recording again"
            )
        if not voice.tensors and voice.voice_id in self._presets:
            return self._presets[voice.voice_id]
        return VoiceParts.of(voice)
