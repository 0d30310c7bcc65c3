"""The CosyVoice engine: official checkpoint folders, incremental and batched."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from cosyvoice_stream.cosyvoice import default_voice
from cosyvoice_stream.cosyvoice.checkpoint import ModelSpec, read_spec
from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.device import DeviceLoop
from cosyvoice_stream.cosyvoice.lm_runner import LmRunner
from cosyvoice_stream.cosyvoice.networks import Networks, load_networks
from cosyvoice_stream.cosyvoice.presets import read_presets
from cosyvoice_stream.cosyvoice.prompt import lm_prompt
from cosyvoice_stream.cosyvoice.prompt_cache import PromptCache, voice_key
from cosyvoice_stream.cosyvoice.reading import read_text
from cosyvoice_stream.cosyvoice.reference_models import ReferenceModels
from cosyvoice_stream.cosyvoice.sampling import SamplingParams
from cosyvoice_stream.cosyvoice.segment_audio import AudioRunner
from cosyvoice_stream.cosyvoice.segments import LONGEST_S
from cosyvoice_stream.cosyvoice.tokenizer import TextTokenizer
from cosyvoice_stream.cosyvoice.utterance import Plan, Utterance
from cosyvoice_stream.cosyvoice.versions import BLANK_EN
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.cosyvoice.worker import Worker
from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    ModelLoadError,
    SynthesisFailed,
    VoiceStreamError,
)
from cosyvoice_stream.handover import close_text, make_wakeup, take_chunks
from cosyvoice_stream.models.flow import BLOCK_FRAMES
from cosyvoice_stream.streaming.style import told
from cosyvoice_stream.types import (
    MAX_SEED,
    EngineInfo,
    Feature,
    PcmChunk,
    ReferenceAudio,
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


@dataclass
class _Loaded:
    """What exists between `start` and `close`."""

    networks: Networks
    tokenizer: TextTokenizer
    references: ReferenceModels
    device: DeviceLoop
    worker: Worker
    budget_bytes: int | None
    """Memory for the flow states of live utterances."""


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
        self._loaded: _Loaded | None = None
        self._starting = asyncio.Lock()
        self._live = 0
        self._reserved_bytes = 0
        fingerprint = f"{NAME}{version.number}-{self._spec.lm.hidden_size}-{REVISION}"
        names = {name: name for name in self._presets}
        if not names:
            names = {default_voice.VOICE_ID: default_voice.NAME}
        features = {Feature.CLONING, Feature.INSTRUCT, Feature.SAMPLING, Feature.SOUNDS}
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
            loaded = await asyncio.to_thread(_load, self._spec, self._config)
            self._loaded = loaded
            try:
                if not self._presets:
                    await self._make_default_voice(loaded)
                await self._warm_up()
            except Exception as error:
                self._loaded = None
                await asyncio.to_thread(loaded.device.close)
                raise ModelLoadError("the self-test of the CosyVoice engine failed") from error

    async def _make_default_voice(self, loaded: _Loaded) -> None:
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

    def _running(self) -> _Loaded:
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
        reserved = self._admit(loaded, plan)
        arrived, taken = asyncio.Event(), asyncio.Event()
        wake = make_wakeup(asyncio.get_running_loop(), arrived)
        utterance = Utterance(plan, self._config.max_buffered_s, wake)
        device = loaded.device
        reader = asyncio.create_task(
            read_text(text, utterance, loaded.tokenizer, device.wake, taken)
        )
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
            await close_text(text)

    def _admit(self, loaded: _Loaded, plan: Plan) -> int:
        """Count an utterance in; returns the bytes that are reserved for it.

        Raises:
            EngineBusy: There is no room.
        """
        if self._live >= self._config.slots:
            raise EngineBusy(BUSY_RETRY_S)
        kept = LONGEST_SEGMENT_TOKENS
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

    def _plan(self, loaded: _Loaded, voice: Voice, options: SynthesisOptions) -> Plan:
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


def _load(spec: ModelSpec, config: EngineConfig) -> _Loaded:
    """Load everything; blocks."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    tokenizer = TextTokenizer(spec.folder / BLANK_EN, spec.version)
    networks = load_networks(spec, config)
    cuda = networks.device.type == "cuda"
    references = ReferenceModels(spec, config.threads, cuda=cuda)
    lm = LmRunner(networks.lm, config.slots, config.rows_per_slot)
    lm.warm(config.slots)
    left = None if config.left_context_s is None else config.left_context_s * BLOCK_FRAMES
    version = spec.version.number
    audio = AudioRunner(networks.flow, networks.hift, version, config.right_context, left)
    cache = PromptCache(config.prompt_cache_mb << 20, config.prompt_cache_dir, networks.device)
    worker = Worker(lm, networks.lm.ids, audio, cache)
    budget = None if config.memory_mb is None else config.memory_mb << 20
    if budget is None and cuda:
        free, _ = torch.cuda.mem_get_info(networks.device)
        budget = max(free - (config.prompt_cache_mb << 20), 0) * 9 // 10
    logger.info(
        "CosyVoice %d on %s in %s: %d slots",
        spec.version.number,
        networks.device,
        networks.precision,
        config.slots,
    )
    return _Loaded(networks, tokenizer, references, DeviceLoop(worker), worker, budget)
