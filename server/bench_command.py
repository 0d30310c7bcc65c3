"""What ``cosyvoice-stream bench`` prints."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from typing import Any, Final

import click

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.app import build_engine
from cosyvoice_stream.server.bench import Row, measure
from cosyvoice_stream.server.progress import Progress
from cosyvoice_stream.server.settings import load_settings

MAX_STREAMS: Final = 256
HEADINGS: Final = ("streams", "utterances", "p50 ms", "p95 ms", "RTF")


def run_bench(streams: str, rounds: int, *, as_json: bool) -> None:
    """Measure and print a table, or JSON.

    Raises:
        ConfigError: `streams` is not a list of numbers.
    """
    try:
        counts = [int(part) for part in streams.split(",")]
    except ValueError:
        counts = []
    if not counts or not all(1 <= count <= MAX_STREAMS for count in counts):
        raise ConfigError(
            f"--streams {streams!r} is not a list of numbers",
            how_to_fix=f"write --streams 1,4,8, each from 1 to {MAX_STREAMS}",
        )
    rows, engine = asyncio.run(_measure(counts, rounds, as_json))
    if as_json:
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        click.echo(
            json.dumps({"engine": engine, **machine, "rows": [row.to_json() for row in rows]})
        )


async def _measure(counts: list[int], rounds: int, as_json: bool) -> tuple[list[Row], str]:
    engine = build_engine(load_settings())

    def show(row: Row) -> None:
        if not as_json:
            _print_row(row)

    try:
        with Progress("loading the engine"):
            await engine.start()
        if not as_json:
            click.echo(
                f"engine {engine.info.name}, {os.cpu_count()} cores, first audio in this process, "
                "all streams starting at once"
            )
            click.echo("  ".join(f"{heading:>10}" for heading in HEADINGS))
        return await measure(engine, counts, rounds, show), engine.info.name
    finally:
        await engine.close()


def _print_row(row: Row) -> None:
    values: tuple[Any, ...] = (
        row.streams,
        row.utterances,
        row.first_audio_p50_ms,
        row.first_audio_p95_ms,
        row.rtf,
    )
    click.echo("  ".join(f"{value:>10}" for value in values))
