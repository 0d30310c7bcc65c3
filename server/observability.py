"""Numbers and log lines about what the server does.

Labels and messages hold counts, sizes, durations and our own short ids, never text, audio, names
of voices, or keys. Library code only asks for loggers; `configure_logging` is called by the
process that owns the terminal.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

logger = logging.getLogger(__name__)

_FIRST_AUDIO_BUCKETS_S: Final = (
    *(0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15),
    *(0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0),
)
_WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_RTF_BUCKETS: Final = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0, 2.0)
_LAG_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

_LAG_PERIOD_S: Final = 0.1
"""Between two looks at the clock: 600 samples a minute, so that a p99 means something within one
scrape, at no cost that can be measured."""

Outcome = Literal["done", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class UtteranceMetrics:
    """What one utterance cost; log line and Prometheus series are made from the same object."""

    outcome: Outcome
    first_audio_ms: float | None
    """From the text that completed the first clause to the first audio; None without audio."""
    queue_wait_ms: float | None
    """From the start of the utterance to its turn; None where nothing was queued."""
    audio_ms: float
    """Length of the audio that was handed to the transport."""
    rtf: float | None
    """Compute seconds per second of audio; None without audio."""
    characters: int
    """Characters of the text."""


class Metrics:
    """The Prometheus series of one application, in a registry of their own.

    Two applications in one process (tests, embedding) do not share or clash. All methods are
    called on the event loop.
    """

    CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        prefix = "cosyvoice_stream_"

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(prefix + name, text, registry=self.registry, buckets=buckets)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(prefix + name, text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(prefix + name, text, registry=self.registry)

        self._first_audio = histogram(
            "first_audio_seconds",
            "From the text that completed the first clause to the first audio, in the server",
            _FIRST_AUDIO_BUCKETS_S,
        )
        self._queue_wait = histogram(
            "queue_wait_seconds", "From the start of an utterance to its turn", _WAIT_BUCKETS_S
        )
        self._rtf = histogram("rtf", "Compute seconds per second of audio", _RTF_BUCKETS)
        self._stages = Histogram(
            prefix + "stage_seconds",
            "One step of a stage on the way from text to audio",
            ("stage",),
            registry=self.registry,
            buckets=_WAIT_BUCKETS_S,
        )
        self._underrun = histogram(
            "underrun_seconds",
            "Waits of a listener who plays from the first audio on",
            _WAIT_BUCKETS_S,
        )
        self._lag = histogram(
            "event_loop_lag_seconds", "How late the event loop runs a timer", _LAG_BUCKETS_S
        )
        self._utterances = counter("utterances", "Utterances that ended, by outcome", "outcome")
        self._refused = counter("refused", "Requests that were refused, by error code", "reason")
        self._enrolments = counter("enrolments", "Recordings that were enrolled", "outcome")
        self._audio = counter("audio_seconds", "Audio that was handed to transports")
        self._http = counter("http_requests", "Requests by endpoint and status", "route", "status")
        self._live_sessions = gauge("live_sessions", "Open WebSocket sessions")
        self._live_utterances = gauge("live_utterances", "Utterances that are being spoken")
        self._ready = gauge("engine_ready", "1 when the engine has rendered its warm-up sentence")
        self._cache = counter("audio_cache", "Whole texts that were looked for", "outcome")
        self._restarts = counter("engine_restarts", "Times that the engine broke down")
        for outcome in ("done", "cancelled", "failed"):
            self._utterances.labels(outcome)
        for outcome in ("accepted", "rejected", "failed"):
            self._enrolments.labels(outcome)

    def utterance_ended(self, utterance: UtteranceMetrics) -> None:
        """Count one utterance."""
        self._utterances.labels(utterance.outcome).inc()
        self._audio.inc(utterance.audio_ms / 1000)
        if utterance.first_audio_ms is not None:
            self._first_audio.observe(utterance.first_audio_ms / 1000)
        if utterance.queue_wait_ms is not None:
            self._queue_wait.observe(utterance.queue_wait_ms / 1000)
        if utterance.rtf is not None:
            self._rtf.observe(utterance.rtf)

    def stage(self, name: str, seconds: float) -> None:
        """Observe one step of a stage; `name` is one of a few of ours."""
        self._stages.labels(name).observe(seconds)

    def cache(self, hit: bool) -> None:
        """Count one look into the audio cache."""
        self._cache.labels("hit" if hit else "miss").inc()

    def underrun(self, seconds: float) -> None:
        """Observe one wait of a listener."""
        self._underrun.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a refusal; `reason` is an error code of docs/protocol.md."""
        self._refused.labels(reason).inc()

    def enrolment(self, outcome: Literal["accepted", "rejected", "failed"]) -> None:
        """Count one enrolment."""
        self._enrolments.labels(outcome).inc()

    def http_request(self, route: str, status: int) -> None:
        """Count one answered request; `route` is the name of an endpoint, not a path."""
        self._http.labels(route, str(status)).inc()

    def engine_restarted(self) -> None:
        """Count a break-down of the engine."""
        self._restarts.inc()

    def session_opened(self) -> None:
        """Count a WebSocket session that begins."""
        self._live_sessions.inc()

    def session_closed(self) -> None:
        """Count a WebSocket session that has ended."""
        self._live_sessions.dec()

    def watch_live_utterances(self, count: Callable[[], int]) -> None:
        """Read the number of live utterances from `count` at every scrape."""
        self._live_utterances.set_function(count)

    def set_ready(self, ready: bool) -> None:
        """Say whether the engine is warm."""
        self._ready.set(1.0 if ready else 0.0)

    def render(self) -> bytes:
        """Return all series in the Prometheus text format."""
        return generate_latest(self.registry)

    async def measure_loop_lag(self) -> None:
        """Observe the lag of the running event loop until cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock() + _LAG_PERIOD_S
        while True:
            await asyncio.sleep(due - clock())
            late = clock() - due
            self._lag.observe(max(0.0, late))
            due = clock() + _LAG_PERIOD_S


def log_utterance(log: logging.Logger | SessionLog, utterance: UtteranceMetrics) -> None:
    """Write the one summary line of an utterance."""
    log.info(
        "utterance %s: %d characters, %.0f ms audio, first audio %s ms, rtf %s",
        utterance.outcome,
        utterance.characters,
        utterance.audio_ms,
        "-" if utterance.first_audio_ms is None else f"{utterance.first_audio_ms:.0f}",
        "-" if utterance.rtf is None else f"{utterance.rtf:.3f}",
    )


class SessionLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that puts the ids of a session, and of an utterance, on every record."""

    def __init__(self, log: logging.Logger, session: str, utterance: str | None = None) -> None:
        ids = {"session": session} | ({} if utterance is None else {"utterance": utterance})
        super().__init__(log, ids)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the ids to what the caller passed."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


_SECRETS = re.compile(
    r"""(api_key=|resume=|bearer\s+|x-api-key['":\s,]+b?['"]?)[^\s&"']+""", re.IGNORECASE
)


def scrub(text: str) -> str:
    """Replace what looks like a key; a second line of defence, our own messages hold none."""
    return _SECRETS.sub(r"\1***", text)


class TextFormatter(logging.Formatter):
    """``12:30:01.250 INFO    server.http [s1 u3] message``."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("cosyvoice_stream.")
        ids = [
            str(getattr(record, key)) for key in ("session", "utterance") if hasattr(record, key)
        ]
        where = f"{name} [{' '.join(ids)}]" if ids else name
        line = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {where} "
        return line + scrub(record.getMessage()) + _trace(self, record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrub(record.getMessage()),
        }
        for key in ("session", "utterance"):
            if hasattr(record, key):
                entry[key] = getattr(record, key)
        trace = _trace(self, record)
        if trace:
            entry["trace"] = trace.lstrip("\n")
        return json.dumps(entry, ensure_ascii=False)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return "\n" + scrub(formatter.formatException(record.exc_info))


def configure_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Set up the loggers of this process: ours at `level`, everybody else's from WARNING.

    uvicorn stays at WARNING whatever `level` is, because it logs request lines with their query
    string at INFO and request headers at DEBUG, and both may hold a key.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        form: ``text`` or ``json``.
        stream: Where lines go; standard error by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("cosyvoice_stream").setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
