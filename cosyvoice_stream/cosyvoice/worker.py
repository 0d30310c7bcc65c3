"""Does the steps that the scheduler chooses. Everything here runs on the device thread."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import torch

from cosyvoice_stream.cosyvoice.lm_runner import LmRunner, Prefix, Turn
from cosyvoice_stream.cosyvoice.prompt_cache import PromptCache
from cosyvoice_stream.cosyvoice.scheduler import Kind
from cosyvoice_stream.cosyvoice.segment_audio import AudioRunner, SegmentAudio
from cosyvoice_stream.cosyvoice.token_feed import Row
from cosyvoice_stream.cosyvoice.utterance import Plan, Resources, Utterance, blocks_for
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.errors import EngineBusy, SynthesisFailed
from cosyvoice_stream.models.flow import FlowState
from cosyvoice_stream.models.speech_lm import SpecialIds

logger = logging.getLogger(__name__)

MAX_PREFIXES: Final = 64
RETRY_AFTER_OOM_S: Final = 2.0


class Worker:
    """Turns steps into calls of the networks.

    Args:
        lm: Runs the speech LM.
        ids: Its special ids.
        audio: Runs flow and vocoder.
        cache: States of voices.
    """

    def __init__(
        self, lm: LmRunner, ids: SpecialIds, audio: AudioRunner, cache: PromptCache
    ) -> None:
        self._lm = lm
        self._ids = ids
        self._audio = audio
        self._cache = cache
        self._prefixes: dict[tuple[Row, ...], Prefix | None] = {}

    def do(
        self, kind: Kind, utterances: Sequence[Utterance], leads: Sequence[float]
    ) -> list[float]:
        """Do a step.

        Args:
            kind: Of what.
            utterances: Who takes part. One that fails is told so; the others go on.
            leads: Seconds of audio that each one's listener has not heard.

        Returns:
            Seconds of audio made for each.
        """
        began = time.perf_counter()
        made = [0.0] * len(utterances)
        try:
            if kind is Kind.PREPARE:
                for utterance in utterances:
                    self._prepare(utterance)
            elif kind is Kind.DECODE:
                self._decode(utterances)
            else:
                made = self._sound(utterances, leads)
        except torch.OutOfMemoryError as error:
            logger.warning("the device is out of memory; %d utterances end", len(utterances))
            for utterance in utterances:
                busy = EngineBusy(RETRY_AFTER_OOM_S, "the device is out of memory")
                busy.__cause__ = error
                utterance.fail(busy)
            self.free_memory()
        except Exception as error:
            logger.exception("a %s step failed", kind.value)
            for utterance in utterances:
                utterance.fail(error)
        share = (time.perf_counter() - began) / len(utterances)
        for utterance in utterances:
            utterance.spent(share)
        return made

    def release(self, utterance: Utterance) -> None:
        """Free what an utterance holds."""
        held, utterance.held = utterance.held, None
        if held is not None and held.slot is not None:
            self._lm.release(held.slot)

    def free_memory(self) -> None:
        """Give back what the voices' states and the allocator hold."""
        self._cache.clear()
        self._prefixes.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def voice_state(self, key: str, voice: VoiceParts, steps: int) -> FlowState:
        """State of a voice, computed at most once."""
        return self._cache.get(key, lambda: self._audio.voice_state(voice, steps))

    def _prefix(self, plan: Plan) -> Prefix | None:
        rows = plan.prefix_rows
        if rows not in self._prefixes:
            while len(self._prefixes) >= MAX_PREFIXES:
                del self._prefixes[next(iter(self._prefixes))]
            self._prefixes[rows] = self._lm.prefix(rows)
        return self._prefixes[rows]

    def _prepare(self, utterance: Utterance) -> None:
        plan = utterance.plan
        if plan.prompt is None:
            state = self.voice_state(plan.voice_key, plan.voice, plan.flow_steps)
            utterance.held = Resources(None, None, state)
            return
        if len(plan.prefix_rows) + len(plan.prompt.speech) + 1 >= self._lm.capacity:
            utterance.fail(
                SynthesisFailed(
                    "transcript or style are longer than the model can take",
                    how_to_fix="shorten them",
                )
            )
            return
        state = self.voice_state(plan.voice_key, plan.voice, plan.flow_steps)
        prefix = self._prefix(plan)
        slot = self._lm.acquire()
        if slot is None:
            utterance.fail(EngineBusy(1.0))
            return
        utterance.held = Resources(slot, prefix, state)

    def _decode(self, utterances: Sequence[Utterance]) -> None:
        turns: list[tuple[Utterance, Turn]] = []
        for utterance in utterances:
            held = utterance.held
            assert held is not None
            if held.slot is None:
                utterance.copy_speech(partial(self._begin, utterance, held))
                continue
            try:
                if utterance.needs_segment():
                    self._lm.restart(held.slot, held.prefix)
                    utterance.open_segment(self._begin(utterance, held))
                turn = utterance.turn(self._lm.room(held.slot))
            except SynthesisFailed as error:
                utterance.fail(error)
                continue
            if turn is not None:
                turns.append((utterance, turn))
        if not turns:
            return
        self._lm.step([turn for _, turn in turns])
        for utterance, turn in turns:
            utterance.accept(turn, end=self._ids.end, fill=self._ids.fill)

    def _begin(self, utterance: Utterance, held: Resources) -> SegmentAudio:
        plan = utterance.plan
        return self._audio.begin(held.state, plan.voice, plan.speed, utterance.noise_seed())

    def _sound(self, utterances: Sequence[Utterance], leads: Sequence[float]) -> list[float]:
        parts = [part for u in utterances if (part := u.sounding) is not None]
        if not parts:
            return [utterance.sound(np.zeros(0, np.float32)) for utterance in utterances]
        waves = self._audio.run(parts, [blocks_for(lead) for lead in leads])
        made = []
        for utterance, wave in zip(utterances, waves, strict=True):
            try:
                made.append(utterance.sound(wave))
            except SynthesisFailed as error:
                utterance.fail(error)
                made.append(0.0)
        return made
