"""Figures of an engine whose figures are known."""

from __future__ import annotations

import asyncio
import json

import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server import bench_command
from cosyvoice_stream.server.bench import TEXTS, Row, measure
from cosyvoice_stream.server.bench_command import run_bench

pytestmark = pytest.mark.unit


def test_every_text_is_spoken_in_every_stream_and_round() -> None:
    async def work() -> None:
        engine, seen = FakeEngine(ms_per_char=1), []
        await engine.start()
        rows = await measure(engine, [1, 3], 2, seen.append)
        assert rows == seen
        assert [(row.streams, row.utterances) for row in rows] == [(1, 8), (3, 24)]
        assert all(0 < row.first_audio_p50_ms <= row.first_audio_p95_ms for row in rows)
        assert all(row.rtf > 0 for row in rows)
        assert engine.counts.finished == 1 + 8 + 24
        assert engine.counts.live == 0

    asyncio.run(work())
    assert len(TEXTS) == 4


def test_row_is_plain_data() -> None:
    row = Row(1, 4, 10.0, 20.0, 0.1)
    assert json.loads(json.dumps(row.to_json()))["first_audio_p95_ms"] == 20.0


def test_json_is_all_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(ms_per_char=1)
    monkeypatch.setattr(bench_command, "build_engine", lambda _: engine)
    run_bench(" 1, 2", 1, as_json=True)
    printed = capsys.readouterr()
    assert [row["streams"] for row in json.loads(printed.out)["rows"]] == [1, 2]
    assert printed.err == ""
    assert not engine.ready


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a list of numbers"):
        run_bench("1;2", 1, as_json=True)
