"""Owns the life of the engine: what happens when it breaks down under its users.

::

    start ──► up ──► an utterance ends with EngineDied ──────────────► down ──► close, start ──► up
                └──► an utterance fails for no reason of its own               │   ▲
                     └──► three numbers are spoken ──► that fails as well ──►──┘   └── back-off

While it is down, what comes is refused with `EngineBusy`; sessions stay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import EngineBusy, EngineDied, SynthesisFailed, VoiceStreamError
from cosyvoice_stream.streaming.speech_check import SpeechCheck
from cosyvoice_stream.types import (
    EngineInfo,
    PcmChunk,
    ReferenceAudio,
    SynthesisOptions,
    TextStream,
    Voice,
)

logger = logging.getLogger(__name__)

_BACK_OFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before each attempt to start again; the last one is repeated."""
_STEADY_S: Final = 60.0
"""An engine that has lived so long is not the one that would not start."""
_PROBE_TEXT: Final = "1 2 3"
"""Can be said in every language."""
_PROBE_S: Final = 10.0
_BETWEEN_PROBES_S: Final = 5.0


class EngineKeeper:
    """Implements `Engine` with an engine that is restarted when it breaks down.

    Args:
        engine: The engine; nobody else starts or closes it.
        back_off_s: Waits before the first, second, … attempt to restart it.
        clock: In seconds, never going back.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        back_off_s: tuple[float, ...] = _BACK_OFF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._back_off_s = back_off_s
        self._clock = clock
        self._lost: Callable[[], None] = _nothing
        self._back: Callable[[], None] = _nothing
        self._restart: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._probed_at = float("-inf")
        self._up_since = 0.0
        self._life = 0
        """Counts restarts: late news of a death that was mended is no news."""
        self._attempts = 0
        self._retry_at = 0.0
        self._closed = False

    def watch(self, lost: Callable[[], None], back: Callable[[], None]) -> None:
        """Be told when the engine breaks down, and when it speaks again."""
        self._lost, self._back = lost, back

    @property
    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return self._engine.info

    @property
    def is_down(self) -> bool:
        """Whether the engine has broken down and not come back."""
        return self._restart is not None

    async def start(self) -> None:
        """See `Engine.start`. The first start is not repeated: what is missing stays missing."""
        await self._engine.start()
        self._closed = False
        self._up_since = self._clock()

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        """See `Engine.enrol`."""
        self._require_up()
        life = self._life
        try:
            return await self._engine.enrol(reference, transcript)
        except EngineDied:
            self._broke_down(life)
            raise

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        """See `Engine.synthesize`."""
        return self._synthesize(text, voice, options)

    async def close(self) -> None:
        """See `Engine.close`."""
        self._closed = True
        tasks = [task for task in (self._restart, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._engine.close()

    async def _synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncGenerator[PcmChunk, None]:
        self._require_up()
        life = self._life
        try:
            async with aclosing(self._engine.synthesize(text, voice, options)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except EngineDied:
            self._broke_down(life)
            raise
        except Exception as error:
            # What is wrong with a text or a voice has errors of its own.
            if isinstance(error, SynthesisFailed) or not isinstance(error, VoiceStreamError):
                self._doubt()
            raise

    def _require_up(self) -> None:
        if self._restart is not None:
            wait_s = max(self._retry_at - self._clock(), 0.0) + 1.0
            raise EngineBusy(wait_s, "the engine is being restarted")

    def _doubt(self) -> None:
        """Find out whether an engine that failed once can still speak."""
        now = self._clock()
        if self._closed or self._probe is not None or self._restart is not None:
            return
        if now - self._probed_at >= _BETWEEN_PROBES_S:
            self._probed_at = now
            self._probe = asyncio.create_task(self._speak_numbers(), name="probe engine")

    async def _speak_numbers(self) -> None:
        life = self._life
        options = SynthesisOptions(seed=0, background=True)
        check = SpeechCheck(self.info.sample_rate)
        try:
            async with asyncio.timeout(_PROBE_S):
                voice = self.info.voices[0]
                chunks = self._engine.synthesize(_text(_PROBE_TEXT), voice, options)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        check.push(chunk)
        except Exception as error:
            logger.debug("the probe of the engine failed: %s", type(error).__name__)
            self._broke_down(life)
        finally:
            self._probe = None

    def _broke_down(self, life: int) -> None:
        if self._closed or life != self._life:
            return
        self._life += 1
        if self._clock() - self._up_since >= _STEADY_S:
            self._attempts = 0
        logger.error("the engine broke down; it is restarted")
        self._restart = asyncio.create_task(self._start_again(), name="restart engine")
        self._lost()

    async def _start_again(self) -> None:
        while True:
            wait_s = self._back_off_s[min(self._attempts, len(self._back_off_s) - 1)]
            self._attempts += 1
            self._retry_at = self._clock() + wait_s
            await asyncio.sleep(wait_s)
            try:
                await self._engine.close()
                await self._engine.start()
                break
            except Exception as error:
                logger.warning("the engine does not start again: %s", type(error).__name__)
        self._up_since = self._clock()
        self._restart = None
        logger.info("the engine speaks again")
        self._back()


async def _text(text: str) -> AsyncIterator[str]:
    yield text


def _nothing() -> None:
    """Nobody watches."""
