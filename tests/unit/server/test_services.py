"""Readiness: which work is taken in which state."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cosyvoice_stream.errors import ConfigError, EngineBusy, ModelLoadError, ShuttingDown
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.app import build_engine
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.services import Readiness, session_limits
from cosyvoice_stream.server.settings import Settings

pytestmark = pytest.mark.unit


async def broken() -> None:
    raise ModelLoadError("the weights are damaged")


def test_nothing_is_taken_before_the_engine_is_warm() -> None:
    readiness = Readiness(Metrics(), FakeEngine().start)
    for require in (readiness.require, readiness.require_engine):
        with pytest.raises(EngineBusy, match="warming up") as caught:
            require()
        assert caught.value.retry_after_s > 0


def test_everything_is_taken_once_it_is_warm() -> None:
    metrics = Metrics()
    readiness = Readiness(metrics, FakeEngine().start)

    async def start() -> None:
        await readiness.start()
        await readiness.settled()

    asyncio.run(start())
    readiness.require()
    readiness.require_engine()
    assert metrics.registry.get_sample_value("cosyvoice_stream_engine_ready") == 1


def test_what_was_taken_before_a_stop_may_go_on() -> None:
    readiness = Readiness(Metrics(), FakeEngine().start)
    asyncio.run(readiness.start())
    readiness.stop()
    readiness.require_engine()
    with pytest.raises(ShuttingDown):
        readiness.require()


def test_stop_during_the_start_does_not_turn_ready_again() -> None:
    readiness = Readiness(Metrics(), FakeEngine().start)
    readiness.stop()
    asyncio.run(readiness.start())
    assert readiness.state == "stopping"


def test_it_is_warm_only_when_everything_is() -> None:
    async def start() -> None:
        last = asyncio.Event()

        async def wait() -> None:
            await last.wait()

        engine = FakeEngine()
        readiness = Readiness(Metrics(), engine.start, wait)
        task = asyncio.create_task(readiness.start())
        while not engine.ready:  # noqa: ASYNC110 - set by the other task
            await asyncio.sleep(0)
        assert readiness.state == "starting"
        last.set()
        await task
        assert readiness.state == "ready"

    asyncio.run(start())


def test_failure_reaches_those_who_wait() -> None:
    readiness = Readiness(Metrics(), FakeEngine().start, broken)

    async def start() -> None:
        await readiness.start()
        with pytest.raises(ModelLoadError):
            await readiness.settled()

    asyncio.run(start())
    assert readiness.state == "failed"
    for require in (readiness.require, readiness.require_engine):
        with pytest.raises(ShuttingDown):
            require()


def test_unknown_engine_lists_the_known_ones(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, engine="loud", voices_dir=tmp_path)
    with pytest.raises(ConfigError, match="there is no engine 'loud'") as caught:
        build_engine(settings)
    assert caught.value.how_to_fix == "set COSYVOICE_STREAM_ENGINE to one of: lite, cosyvoice"


def test_cosyvoice_asks_for_its_checkpoint(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, engine="cosyvoice", voices_dir=tmp_path)
    with pytest.raises(ConfigError, match="needs a checkpoint") as caught:
        build_engine(settings)
    assert "cosyvoice-stream download cosyvoice3" in str(caught.value.how_to_fix)


def test_limits_of_a_session_follow_the_settings() -> None:
    limits = session_limits(Settings(_env_file=None, max_text_chars=7, max_reference_s=9))
    assert (limits.max_utterance_chars, limits.max_recording_s) == (7, 9)
