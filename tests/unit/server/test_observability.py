"""Metrics and log lines: what they count, and that they give nothing away."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from cosyvoice_stream.server.observability import (
    JsonFormatter,
    Metrics,
    SessionLog,
    TextFormatter,
    UtteranceMetrics,
    configure_logging,
    log_utterance,
    scrub,
)

pytestmark = pytest.mark.unit

SPOKEN = UtteranceMetrics(
    outcome="done", first_audio_ms=42.0, queue_wait_ms=3.0, audio_ms=1500.0, rtf=0.07, characters=20
)
SILENT = UtteranceMetrics(
    outcome="cancelled",
    first_audio_ms=None,
    queue_wait_ms=None,
    audio_ms=0.0,
    rtf=None,
    characters=0,
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"cosyvoice_stream_{name}", labels)


def test_spoken_utterance_is_counted_in_every_series() -> None:
    metrics = Metrics()
    metrics.utterance_ended(SPOKEN)
    assert value(metrics, "utterances_total", outcome="done") == 1
    assert value(metrics, "first_audio_seconds_bucket", le="0.06") == 1
    assert value(metrics, "first_audio_seconds_bucket", le="0.04") == 0
    assert value(metrics, "queue_wait_seconds_sum") == pytest.approx(0.003)
    assert value(metrics, "rtf_sum") == pytest.approx(0.07)
    assert value(metrics, "audio_seconds_total") == pytest.approx(1.5)


def test_utterance_without_audio_leaves_the_histograms_alone() -> None:
    metrics = Metrics()
    metrics.utterance_ended(SILENT)
    assert value(metrics, "utterances_total", outcome="cancelled") == 1
    assert value(metrics, "first_audio_seconds_count") == 0
    assert value(metrics, "queue_wait_seconds_count") == 0
    assert value(metrics, "rtf_count") == 0


def test_gauges_follow_sessions_and_live_utterances() -> None:
    metrics = Metrics()
    live = 0
    metrics.watch_live_utterances(lambda: live)
    metrics.session_opened()
    metrics.session_opened()
    metrics.session_closed()
    live = 7
    metrics.set_ready(True)
    assert value(metrics, "live_sessions") == 1
    assert value(metrics, "live_utterances") == 7
    assert value(metrics, "engine_ready") == 1


def test_two_applications_do_not_share_series() -> None:
    first, second = Metrics(), Metrics()
    first.refused("busy")
    assert value(first, "refused_total", reason="busy") == 1
    assert value(second, "refused_total", reason="busy") is None


def test_series_names_are_what_dashboards_read() -> None:
    text = Metrics().render().decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE cosyvoice")}
    assert names == {
        f"cosyvoice_stream_{name}"
        for name in (
            "first_audio_seconds",
            "queue_wait_seconds",
            "rtf",
            "event_loop_lag_seconds",
            "stage_seconds",
            "underrun_seconds",
            "utterances_total",
            "refused_total",
            "enrolments_total",
            "audio_seconds_total",
            "http_requests_total",
            "engine_restarts_total",
            "audio_cache_total",
            "live_sessions",
            "live_utterances",
            "engine_ready",
        )
    } | {name for name in names if name.endswith("_created")}


def test_a_stalled_event_loop_is_visible() -> None:
    metrics = Metrics()

    async def stall() -> None:
        task = asyncio.create_task(metrics.measure_loop_lag())
        await asyncio.sleep(0)
        while value(metrics, "event_loop_lag_seconds_count") == 0:
            loop_is_busy_until = asyncio.get_running_loop().time() + 0.15
            while asyncio.get_running_loop().time() < loop_is_busy_until:
                pass
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(stall())
    late = value(metrics, "event_loop_lag_seconds_sum")
    assert late is not None
    assert late >= 0.04


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    """Restore what `configure_logging` changes."""
    names = ("", "cosyvoice_stream", "uvicorn", "uvicorn.error", "uvicorn.access")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield io.StringIO()
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_text_line_names_session_and_utterance(log_stream: io.StringIO) -> None:
    configure_logging("info", "text", log_stream)
    log = logging.getLogger("cosyvoice_stream.server.session")
    log_utterance(SessionLog(log, "s1", "u3"), SPOKEN)
    log.debug("not shown")
    line = log_stream.getvalue()
    assert line.endswith(
        "INFO    server.session [s1 u3] utterance done: 20 characters, 1500 ms audio, "
        "first audio 42 ms, rtf 0.070\n"
    )


def test_json_line_is_one_object_with_the_ids(log_stream: io.StringIO) -> None:
    configure_logging("info", "json", log_stream)
    log_utterance(SessionLog(logging.getLogger("cosyvoice_stream.x"), "s1"), SILENT)
    entry = json.loads(log_stream.getvalue())
    assert entry["session"] == "s1"
    assert entry["level"] == "info"
    assert entry["message"].endswith("first audio - ms, rtf -")
    assert "utterance" not in entry


def test_uvicorn_never_logs_request_lines(log_stream: io.StringIO) -> None:
    configure_logging("debug", "text", log_stream)
    logging.getLogger("uvicorn.error").info('"WebSocket /v1/stream?api_key=k" [accepted]')
    logging.getLogger("uvicorn.error").debug("< Authorization: Bearer k")
    assert log_stream.getvalue() == ""


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "message",
    ["GET /v1/info?api_key=hush&x=1", "authorization: Bearer hush", "('x-api-key', b'hush')"],
)
def test_what_looks_like_a_key_is_scrubbed(formatter: logging.Formatter, message: str) -> None:
    record = logging.LogRecord("uvicorn", logging.WARNING, "", 0, message, None, None)
    assert "hush" not in formatter.format(record)
    assert "hush" not in scrub(message)
