"""What ``cosyvoice-stream enrol`` and ``voices`` do: the same voice service as the server's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cosyvoice_stream.asr import transcriber_of
from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError, EnrolmentRejected
from cosyvoice_stream.server.app import build_engine
from cosyvoice_stream.server.client_recording import check_readable
from cosyvoice_stream.server.progress import Progress
from cosyvoice_stream.server.settings import Settings, load_settings
from cosyvoice_stream.server.voice_service import EnrolRequest, VoiceService
from cosyvoice_stream.types import Feature
from cosyvoice_stream.voices import VoiceStore

T = TypeVar("T")
SIGNS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@contextlib.asynccontextmanager
async def open_service(engine: Engine, settings: Settings) -> AsyncIterator[VoiceService]:
    """The voice service of this user's store."""
    store = VoiceStore(settings.voices_dir, max_voices=settings.max_voices)
    service = VoiceService(
        engine,
        store,
        require_consent=settings.require_consent,
        policy=settings.reference_policy,
        transcriber=transcriber_of(settings.asr_model),
        max_reference_s=settings.max_reference_s,
    )
    try:
        yield service
    finally:
        await service.close()


def _with_service(work: Callable[[VoiceService], Awaitable[T]]) -> T:
    """Run work that needs no loaded engine."""

    async def run() -> T:
        settings = load_settings()
        async with open_service(build_engine(settings), settings) as service:
            return await work(service)

    return asyncio.run(run())


def run_enrol(
    recording: Path,
    *,
    quiet: bool,
    check: bool,
    name: str | None,
    transcript: str | None,
    consent: str | None,
) -> dict[str, Any]:
    """Judge a recording and make a voice of it.

    Returns:
        ``voice`` (None with `check`), ``quality``, ``warnings``; or ``rejected`` with ``reason``,
        ``message``, ``how_to_fix`` and ``quality``.

    Raises:
        ConfigError: There is no such file, or it cannot be read.
    """
    if not recording.is_file():
        raise ConfigError(f"there is no file {recording}", how_to_fix="check the path")
    check_readable(recording)
    try:
        if check:
            return _judge(recording)
        request = EnrolRequest(name or recording.stem, transcript, consent, persist=True)
        return asyncio.run(_enrol(recording, request, quiet))
    except EnrolmentRejected as error:
        return {
            "rejected": True,
            "reason": error.reason,
            "message": error.message,
            "how_to_fix": error.how_to_fix,
            "quality": error.quality,
        }


def _judge(recording: Path) -> dict[str, Any]:
    from cosyvoice_stream.decode import decode_audio
    from cosyvoice_stream.reference import prepare_reference

    decoded = decode_audio(recording, max_seconds=load_settings().max_reference_s)
    prepared = prepare_reference(decoded.samples, decoded.sample_rate)
    return {
        "voice": None,
        "quality": prepared.quality.to_json(),
        "warnings": list(prepared.warnings),
    }


async def _enrol(recording: Path, request: EnrolRequest, quiet: bool) -> dict[str, Any]:
    settings = load_settings()
    engine = build_engine(settings)
    try:
        with Progress("loading the engine", quiet=quiet) as progress:
            await engine.start()
            progress.update("making the voice")
            async with open_service(engine, settings) as service:
                made = await service.enrol_file(recording, request)
    finally:
        await engine.close()
    how = (
        "cloned from the recording"
        if Feature.CLONING in engine.info.features
        else "adapted to the recording: pitch, formants and timbre moved towards the speaker "
        "(a CosyVoice model would clone timbre, accent and rhythm)"
    )
    return {
        "voice": made.voice.to_json(),
        "quality": made.quality,
        "warnings": list(made.warnings),
        "how": how,
    }


def print_enrolment(result: dict[str, Any]) -> None:
    """Show a result of `run_enrol` to a person."""
    for item in (result.get("quality") or {}).get("items", ()):
        sign, colour = SIGNS[item["verdict"]]
        value = "" if item.get("value") is None else f" {item['value']} {item.get('unit') or ''}"
        click.echo(click.style(f"{sign} {item['item']}", fg=colour) + value.rstrip())
        if item.get("advice") and item["verdict"] != "ok":
            click.echo(f"    {item['advice']}")
    if result.get("rejected"):
        click.echo(f"error: {result['reason']}: {result['message']}", err=True)
        click.echo(f"fix: {result['how_to_fix']}", err=True)
    elif result["voice"] is None:
        click.echo("this recording can be used")
    else:
        voice = result["voice"]
        click.echo(f"voice {voice['id']} ({voice['name']}), {result['how']}")
        click.echo(f'try: cosyvoice-stream say "Hello." --voice {voice["id"]}')


def run_list() -> list[dict[str, Any]]:
    """Built-in and stored voices."""

    async def work(service: VoiceService) -> list[dict[str, Any]]:
        return [info.to_json() for info in await service.list()]

    return _with_service(work)


def print_voices(found: list[dict[str, Any]]) -> None:
    """Show voices to a person."""
    width = max((len(voice["id"]) for voice in found), default=0)
    for voice in found:
        seconds = voice["duration_ms"]
        length = "" if seconds is None else f", {seconds / 1000:.1f} s"
        click.echo(f"{voice['id']:{width}}  {voice['name']} ({voice['kind']}{length})")


def run_show(voice_id: str) -> dict[str, Any]:
    """Everything about one voice."""

    async def work(service: VoiceService) -> dict[str, Any]:
        return (await service.info(voice_id)).to_json()

    return _with_service(work)


def run_delete(voice_id: str) -> None:
    """Delete one voice."""

    async def work(service: VoiceService) -> None:
        await service.delete(voice_id)

    _with_service(work)
