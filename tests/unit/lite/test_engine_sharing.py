"""Many utterances in one engine: order, cancelling, starting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.handover import MAX_CUT_CHARS
from cosyvoice_stream.lite import engine as engine_module
from cosyvoice_stream.lite.acoustic import AcousticModel
from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.lite.pool import WorkPool
from cosyvoice_stream.lite.scheduler import Scheduler
from cosyvoice_stream.lite.utterance import UtteranceWork
from cosyvoice_stream.streaming.clauses import ClauseSplitter
from cosyvoice_stream.types import Flush, PcmChunk, SynthesisOptions

pytestmark = pytest.mark.unit

LONG = "We walked along the harbour, counted the boats, and talked about the summer. " * 12
WAIT_S = 20.0


async def text(*pieces: str) -> AsyncIterator[str | Flush]:
    for piece in pieces:
        yield piece


async def speak(engine: LiteEngine, *pieces: str) -> list[PcmChunk]:
    options = SynthesisOptions(seed=1)
    return [c async for c in engine.synthesize(text(*pieces), engine.info.voices[0], options)]


def pool_of(engine: LiteEngine) -> WorkPool:
    assert engine._loaded is not None
    return engine._loaded.pool


@pytest.fixture
def loaded(model: AcousticModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Engines share the model of the test session; the list counts how often one loads."""
    loads: list[int] = []

    def load() -> tuple[AcousticModel, float]:
        loads.append(1)
        return model, 0.05

    monkeypatch.setattr(engine_module, "_load", load)
    return loads


def test_a_newcomer_speaks_before_another_goes_on(
    loaded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[UtteranceWork] = []
    newcomer_waits = threading.Event()
    step, wake = UtteranceWork.step, WorkPool.wake

    def recorded(work: UtteranceWork) -> float:
        order.append(work)
        if len(order) == 2 and work is order[0]:
            assert newcomer_waits.wait(WAIT_S)
        return step(work)

    def noticed(pool: WorkPool, work: Any) -> None:
        wake(pool, work)
        if order and work is not order[0] and work.waiting_clauses:
            newcomer_waits.set()

    monkeypatch.setattr(UtteranceWork, "step", recorded)
    monkeypatch.setattr(WorkPool, "wake", noticed)

    async def test() -> None:
        engine = LiteEngine(threads=1)
        await engine.start()
        old = engine.synthesize(text(LONG), engine.info.voices[0], SynthesisOptions(seed=1))
        await anext(old)
        new = await speak(engine, "Hello there.")
        assert sum(len(chunk.samples) for chunk in new) > 6_000
        await old.aclose()
        await engine.close()

    asyncio.run(test())
    first_step_of_newcomer = next(n for n, work in enumerate(order) if work is not order[0])
    assert first_step_of_newcomer <= 2, "only the step that ran when it came goes before"


def test_background_steps_never_take_all_threads() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for key in ("one", "two"):
        scheduler.add(key, background=True)
        scheduler.set_ready(key, True)
    assert scheduler.take() == "one"
    assert scheduler.take() is None
    scheduler.done("one", 0.0, 0.0, ready=False)
    assert scheduler.take() == "two"


def test_cancelling_anywhere_leaves_nothing(
    loaded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[UtteranceWork] = []
    step = UtteranceWork.step

    def recorded(work: UtteranceWork) -> float:
        steps.append(work)
        return step(work)

    monkeypatch.setattr(UtteranceWork, "step", recorded)

    async def test() -> None:
        engine = LiteEngine()
        await engine.start()
        threads = threading.active_count()
        rng = np.random.default_rng(4)
        for twice in (False, True) * 12:
            speaking = asyncio.create_task(speak(engine, LONG))
            for _ in range(int(rng.integers(0, 60))):
                await asyncio.sleep(0)
            speaking.cancel()
            if twice:
                await asyncio.sleep(0)
                speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            while twice and len(pool_of(engine)):  # noqa: ASYNC110 - one step may still run
                await asyncio.sleep(0)
            assert len(pool_of(engine)) == 0
            before = len(steps)
            left = set(steps)
            await speak(engine, "Next.")
            assert not left & set(steps[before:]), "a cancelled utterance went on"
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        assert threading.active_count() == threads
        await engine.close()

    asyncio.run(test())


def test_starting_twice_loads_once(loaded: list[int]) -> None:
    async def test() -> None:
        engine = LiteEngine()
        await asyncio.gather(engine.start(), engine.start())
        await engine.start()
        await engine.close()

    asyncio.run(test())
    assert loaded == [1]


@pytest.mark.parametrize("fault", ["raises", "silent"])
def test_a_model_that_does_not_speak_is_refused(
    model: AcousticModel, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def broken(_: AcousticModel) -> list[np.ndarray]:
        if fault == "raises":
            raise ValueError("no samples")
        return [np.zeros(24_000, np.float32)]

    monkeypatch.setattr(AcousticModel, "load", classmethod(lambda _: model))
    monkeypatch.setattr(engine_module, "_warm_up", broken)

    async def test() -> None:
        engine = LiteEngine()
        with pytest.raises(ModelLoadError, match="self-test"):
            await engine.start()
        await engine.close()

    asyncio.run(test())


def test_a_large_text_is_split_in_small_pieces(
    loaded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[int] = []
    push = ClauseSplitter.push

    def recorded(splitter: ClauseSplitter, piece: str) -> Any:
        pushed.append(len(piece))
        return push(splitter, piece)

    monkeypatch.setattr(ClauseSplitter, "push", recorded)

    async def test() -> None:
        engine = LiteEngine()
        await engine.start()
        stream = engine.synthesize(
            text(LONG * 1_000), engine.info.voices[0], SynthesisOptions(seed=1)
        )
        assert len((await anext(stream)).samples) > 0
        await stream.aclose()
        await engine.close()

    asyncio.run(test())
    assert max(pushed) <= MAX_CUT_CHARS
    assert sum(pushed) < 50_000, "text is not taken far ahead of speech"


def test_computing_is_measured(loaded: list[int]) -> None:
    async def test() -> None:
        engine = LiteEngine()
        await engine.start()
        chunks = await speak(engine, LONG)
        await engine.close()
        assert all(chunk.compute_s is not None and chunk.compute_s >= 0 for chunk in chunks)
        busy = sum(chunk.compute_s or 0.0 for chunk in chunks)
        seconds = sum(len(chunk.samples) for chunk in chunks) / 24_000
        assert 0 < busy < seconds

    asyncio.run(test())
