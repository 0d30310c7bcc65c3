"""A scripted engine for tests and demonstrations: tones instead of speech, no model.

Everything is a function of the text: each character of a word sounds for `ms_per_char`, each gap
between two words is as long and silent, and word times follow from that. Nothing sleeps; a
`ChunkGate` lets a test decide when each chunk is made.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cosyvoice_stream.errors import EngineDied, SynthesisFailed, UnsupportedLanguage
from cosyvoice_stream.types import (
    EngineInfo,
    Feature,
    Flush,
    PcmChunk,
    ReferenceAudio,
    Samples,
    SynthesisOptions,
    TextStream,
    Viseme,
    VisemeMark,
    Voice,
    WordMark,
)

_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_LOWEST_HZ: Final = 160.0
_TONE_LEVEL: Final = 0.25


class ChunkGate:
    """Decides when a `FakeEngine` may make its next chunk; shared by all of its utterances."""

    def __init__(self) -> None:
        self._permits = 0
        self._always = False
        self._arrived = 0
        self._changed = asyncio.Condition()

    async def allow(self, chunks: int) -> None:
        """Let this many further chunks pass."""
        async with self._changed:
            self._permits += chunks
            self._changed.notify_all()

    async def open(self) -> None:
        """Let every chunk pass from here on."""
        async with self._changed:
            self._always = True
            self._changed.notify_all()

    async def close(self) -> None:
        """Let none pass until `allow` or `open`."""
        async with self._changed:
            self._always, self._permits = False, 0

    async def arrived(self, chunks: int) -> None:
        """Wait until so many chunks in total have come to the gate, whether or not they passed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._arrived >= chunks)

    async def wait(self) -> None:
        """Called by the engine before each chunk."""
        async with self._changed:
            self._arrived += 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._always or self._permits > 0)
            self._permits -= 1


@dataclass
class FakeCounts:
    """What happened inside a `FakeEngine`; `live` is 0 when nothing was left behind."""

    live: int = 0
    starts: int = 0
    started: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    chunks: int = 0
    enrolled: int = 0


class FakeEngine:
    """Implements `Engine` with tones.

    Args:
        sample_rate: Of the audio, in hertz.
        ms_per_char: Sound per character at speed 1.
        chunk_ms: Length of every chunk but the last.
        gate: Asked before every chunk; None never waits.
        fail_on: Word → exception to raise when it is about to be spoken.
        die_on: A word that kills the engine when it is about to be spoken, until the next `start`.
        refuse: Language tag → test on a word; a word that passes raises `UnsupportedLanguage`.
        features: Reported as they are; word times and visemes are always delivered.
    """

    def __init__(
        self,
        *,
        sample_rate: int = 24_000,
        ms_per_char: float = 50.0,
        chunk_ms: float = 100.0,
        gate: ChunkGate | None = None,
        fail_on: Mapping[str, Exception] | None = None,
        die_on: str | None = None,
        refuse: Mapping[str, Callable[[str], bool]] | None = None,
        features: frozenset[Feature] = frozenset(
            {Feature.ADAPTATION, Feature.WORD_TIMES, Feature.VISEMES, Feature.PITCH}
        ),
    ) -> None:
        self._info = EngineInfo(
            name="fake",
            fingerprint="fake-1",
            sample_rate=sample_rate,
            languages=("en",),
            features=features,
            voices=(
                Voice("beep", "Beep", "fake-1", metadata={"hz": "220"}),
                Voice("boop", "Boop", "fake-1", metadata={"hz": "330"}),
            ),
            description="Scripted tones for tests; it does not speak.",
        )
        self._char_samples = round(sample_rate * ms_per_char / 1000)
        self._chunk_samples = round(sample_rate * chunk_ms / 1000)
        self._gate = gate
        self._fail_on = dict(fail_on or {})
        self._die_on = die_on
        self._dead = False
        self._life = 0
        self._refuse = dict(refuse or {})
        self.counts = FakeCounts()
        self.ready = False

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self._info

    async def start(self) -> None:
        """Nothing to load; a dead engine lives again."""
        self.ready = True
        self._dead = False
        self.counts.starts += 1

    def die(self) -> None:
        """Fail every utterance that runs, and every further one until `start`."""
        self._dead = True
        self._life += 1

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        """Make a voice whose tone follows from a hash of the recording."""
        self.counts.enrolled += 1
        digest = hashlib.sha256(np.ascontiguousarray(reference.samples).tobytes()).digest()
        hertz = _LOWEST_HZ + digest[0]
        return Voice(
            "",
            "",
            self._info.fingerprint,
            tensors={"hz": np.array([hertz], np.float32)},
            metadata={"hz": f"{hertz:g}"},
        )

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """Turn words into tones; see `Engine.synthesize`."""
        return self._synthesize(text, voice, options)

    async def close(self) -> None:
        """Nothing to free."""
        self.ready = False

    async def _synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        self.counts.live += 1
        self.counts.started += 1
        rendering = _Rendering(self, voice, options)
        life = self._life
        try:
            async for fragment in text:
                rendering.hear("" if isinstance(fragment, Flush) else fragment)
                complete = isinstance(fragment, Flush)
                for chunk in rendering.chunks(complete=complete):
                    await self._pass_gate()
                    self._check_life(life)
                    yield chunk
            for chunk in rendering.chunks(complete=True, final=True):
                await self._pass_gate()
                self._check_life(life)
                if chunk.final:
                    self.counts.finished += 1
                yield chunk
        except (asyncio.CancelledError, GeneratorExit):
            if not rendering.ended:
                self.counts.cancelled += 1
            raise
        except Exception:
            self.counts.failed += 1
            raise
        finally:
            self.counts.live -= 1
            if (close_text := getattr(text, "aclose", None)) is not None:
                await close_text()

    async def _pass_gate(self) -> None:
        self.counts.chunks += 1
        if self._gate is not None:
            await self._gate.wait()
        else:
            await asyncio.sleep(0)

    def _check_life(self, life: int) -> None:
        if life != self._life:
            raise EngineDied

    def check(self, word: str) -> None:
        """Raise what the script of this engine has for a word."""
        if word == self._die_on:
            self.die()
        if self._dead:
            raise EngineDied
        if (error := self._fail_on.get(word)) is not None:
            raise error
        for language, matches in self._refuse.items():
            if matches(word):
                raise UnsupportedLanguage(language, self._info.name, ())

    def char_samples(self, speed: float) -> int:
        """Samples per character."""
        return max(1, round(self._char_samples / speed))

    @property
    def chunk_samples(self) -> int:
        """Samples per chunk."""
        return self._chunk_samples


class _Rendering:
    """Words in, chunks out, for one utterance."""

    def __init__(self, engine: FakeEngine, voice: Voice, options: SynthesisOptions) -> None:
        self._engine = engine
        self._char = engine.char_samples(options.speed)
        self._hertz = float(voice.metadata.get("hz", "220")) * 2 ** (options.pitch / 12)
        self._gain = _TONE_LEVEL * options.volume
        self._rate = engine.info.sample_rate
        self._unread = ""
        self._unread_start = 0
        self._audio: list[Samples] = []
        self._ready = 0
        self._made = 0
        self._given = 0
        self._words: list[WordMark] = []
        self._visemes: list[VisemeMark] = []
        self.ended = False

    def hear(self, fragment: str) -> None:
        """Append text."""
        self._unread += fragment

    def chunks(self, *, complete: bool, final: bool = False) -> Iterator[PcmChunk]:
        """Speak the words that are complete and cut what is ready into chunks.

        Args:
            complete: The last word ends here, so speak it as well.
            final: Give out the rest, marked as the end.
        """
        size = self._engine.chunk_samples
        for _ in self._speak(complete):
            while self._ready > size:
                yield self._cut(size, final=False)
        while complete and self._ready and not final:
            yield self._cut(min(size, self._ready), final=False)
        if final:
            self.ended = True
            yield self._cut(self._ready, final=True)

    def _speak(self, complete: bool) -> Iterator[None]:
        """Render word by word; each step leaves at most one chunk more in `_audio`."""
        read = 0
        unread = self._unread
        for match in _WORD.finditer(unread):
            # A word that touches the end may go on in the next fragment, also behind an apostrophe.
            if not complete and match.end() + 1 >= len(unread):
                break
            yield from self._word(match.group(), self._unread_start + match.start())
            read = match.end()
        if complete:
            read = len(unread)
        self._unread_start += read
        self._unread = unread[read:]

    def _word(self, word: str, start: int) -> Iterator[None]:
        try:
            self._engine.check(word)
        except (EngineDied, UnsupportedLanguage):
            raise
        except Exception as error:
            raise SynthesisFailed("the script says that this word fails") from error
        if self._made:
            self._silence(self._char)
        first, end = self._made, self._made + self._char * len(word)
        self._words.append(WordMark(word, start, start + len(word), first, end))
        self._visemes.append(VisemeMark(Viseme.AA, 0.7, first, end))
        while self._made < end:
            count = min(self._engine.chunk_samples, end - self._made)
            turns = np.arange(self._made, self._made + count) * (self._hertz / self._rate)
            tone = np.sin(2 * np.pi * turns) * self._gain
            self._append(np.clip(tone, -1.0, 1.0).astype(np.float32))
            yield

    def _silence(self, samples: int) -> None:
        self._visemes.append(VisemeMark(Viseme.SIL, 0.0, self._made, self._made + samples))
        self._append(np.zeros(samples, np.float32))

    def _append(self, samples: Samples) -> None:
        self._audio.append(samples)
        self._made += len(samples)
        self._ready += len(samples)

    def _cut(self, samples: int, *, final: bool) -> PcmChunk:
        whole = np.concatenate(self._audio) if self._audio else np.zeros(0, np.float32)
        rest = whole[samples:]
        self._audio = [rest] if len(rest) else []
        self._ready -= samples
        words, self._words = tuple(self._words), []
        visemes, self._visemes = tuple(self._visemes), []
        chunk = PcmChunk(whole[:samples], self._given, words, visemes, final)
        self._given += samples
        return chunk
