"""An engine that breaks down is started again by its keeper, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import EngineBusy, EngineDied, ModelLoadError, SynthesisFailed
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.engine_keeper import EngineKeeper
from cosyvoice_stream.types import PcmChunk, SynthesisOptions

pytestmark = pytest.mark.unit

PATIENCE_S = 10.0


class Watched:
    """A keeper, its engine, and what it has told."""

    def __init__(self, engine: FakeEngine, **options: Any) -> None:
        self.engine = engine
        self.keeper = EngineKeeper(engine, **{"back_off_s": (0.0,), **options})
        self.told: list[str] = []
        self.came_back = asyncio.Event()
        self.keeper.watch(lambda: self.told.append("lost"), self._back)

    def _back(self) -> None:
        self.told.append("back")
        self.came_back.set()

    async def say(self, text: str) -> list[PcmChunk]:
        async def fragments() -> AsyncIterator[str]:
            yield text

        voice = self.engine.info.voices[0]
        chunks = self.keeper.synthesize(fragments(), voice, SynthesisOptions(seed=1))
        return [chunk async for chunk in chunks]

    async def until_back(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.came_back.wait()

    async def settled(self) -> None:
        """Wait until no probe runs."""
        async with asyncio.timeout(PATIENCE_S):
            while (probe := self.keeper._probe) is not None:
                await asyncio.wait([probe])


def run(test: Any, engine: FakeEngine, **options: Any) -> Watched:
    async def main() -> Watched:
        watched = Watched(engine, **options)
        await watched.keeper.start()
        try:
            await test(watched)
        finally:
            await watched.keeper.close()
        assert engine.counts.live == 0
        assert len(asyncio.all_tasks()) == 1
        return watched

    return asyncio.run(main())


def test_all_that_run_get_an_error_and_the_engine_comes_back() -> None:
    gate = ChunkGate()

    async def test(watched: Watched) -> None:
        others = [asyncio.create_task(watched.say("one two three")) for _ in range(3)]
        await gate.arrived(3)
        with pytest.raises(EngineDied):
            await watched.say("boom")
        await watched.until_back()
        await gate.open()
        for task in others:
            with pytest.raises(EngineDied):
                await task
        assert len(await watched.say("one two three")) > 1

    watched = run(test, FakeEngine(gate=gate, die_on="boom"))
    assert watched.told == ["lost", "back"]
    assert watched.engine.counts.starts == 2


def test_newcomers_are_refused_while_it_is_down() -> None:
    class Slow(FakeEngine):
        go = None

        async def start(self) -> None:
            if self.go is not None:
                await self.go.wait()
            await super().start()

    engine = Slow(die_on="boom")

    async def test(watched: Watched) -> None:
        engine.go = asyncio.Event()
        with pytest.raises(EngineDied):
            await watched.say("boom")
        assert watched.keeper.is_down
        with pytest.raises(EngineBusy, match="being restarted") as caught:
            await watched.say("hello")
        assert caught.value.retry_after_s >= 1
        with pytest.raises(EngineBusy):
            await watched.keeper.enrol(None, None)
        engine.go.set()
        await watched.until_back()
        assert not watched.keeper.is_down
        await watched.say("hello")

    run(test, engine)


def test_it_tries_until_it_succeeds_and_waits_longer_each_time() -> None:
    class Stubborn(FakeEngine):
        refusals = 3

        async def start(self) -> None:
            if self.counts.starts and self.refusals:
                self.refusals -= 1
                raise ModelLoadError("not yet")
            await super().start()

    waits: list[float] = []

    class Waits(tuple):
        def __getitem__(self, n):
            waits.append(super().__getitem__(n))
            return 0.0

    async def test(watched: Watched) -> None:
        with pytest.raises(EngineDied):
            await watched.say("boom")
        await watched.until_back()
        watched.came_back.clear()
        with pytest.raises(EngineDied):
            await watched.say("boom")
        await watched.until_back()

    watched = run(test, Stubborn(die_on="boom"), back_off_s=Waits((0.0, 1.0, 2.0)))
    assert waits == [0.0, 1.0, 2.0, 2.0, 2.0], "an early death counts as one more attempt"
    assert watched.told == ["lost", "back"] * 2


def test_an_utterance_that_fails_alone_restarts_nothing() -> None:
    async def test(watched: Watched) -> None:
        for _ in range(5):
            with pytest.raises(SynthesisFailed):
                await watched.say("oops")
        await watched.settled()
        await watched.say("hello")

    watched = run(test, FakeEngine(fail_on={"oops": ValueError()}))
    assert watched.told == []
    # Five failures, one probe, one utterance: probes are rare however many fail.
    assert watched.engine.counts.started == 7


@pytest.mark.parametrize("fault", ["raises", "silent", "not finite"])
def test_an_engine_that_fails_at_everything_is_restarted(fault: str) -> None:
    heard = {"hello"}

    class Sick(FakeEngine):
        async def _synthesize(self, text, voice, options):
            async for chunk in super()._synthesize(text, voice, options):
                if self.counts.starts == 1:
                    if fault == "raises":
                        raise RuntimeError("device-side assert")
                    chunk.samples[:] = 0.0 if fault == "silent" else np.nan
                    if chunk.final and "hello" in heard:
                        heard.clear()
                        raise RuntimeError("and it fails at last")
                yield chunk

    async def test(watched: Watched) -> None:
        with pytest.raises(RuntimeError):
            await watched.say("hello")
        await watched.until_back()
        await watched.say("hello")

    assert run(test, Sick()).told == ["lost", "back"]


def test_closing_ends_a_restart() -> None:
    class Never(FakeEngine):
        async def start(self) -> None:
            if self.counts.starts:
                await asyncio.Event().wait()
            await super().start()

    async def test(watched: Watched) -> None:
        with pytest.raises(EngineDied):
            await watched.say("boom")

    assert run(test, Never(die_on="boom")).told == ["lost"]


def test_a_recording_that_finds_a_dead_engine_restarts_it() -> None:
    class Dead(FakeEngine):
        async def enrol(self, reference, transcript):
            raise EngineDied

    async def test(watched: Watched) -> None:
        with pytest.raises(EngineDied):
            await watched.keeper.enrol(None, None)
        await watched.until_back()

    run(test, Dead())
