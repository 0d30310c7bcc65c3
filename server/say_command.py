"""What ``cosyvoice-stream say`` does with its options."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Final

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError, VoiceNotFound
from cosyvoice_stream.server.client_recording import check_readable
from cosyvoice_stream.server.play import find_player
from cosyvoice_stream.server.progress import Progress
from cosyvoice_stream.server.say import (
    Summary,
    one_text,
    read_stream,
    speak_locally,
    speak_remotely,
)
from cosyvoice_stream.server.say_output import STDOUT, SUFFIXES, Outputs, open_outputs
from cosyvoice_stream.server.settings import Settings, load_settings
from cosyvoice_stream.types import SynthesisOptions, Voice

DEFAULT_FILE: Final = "speech.wav"
SYNTHESIS: Final = ("language", "instruct", "speed", "pitch", "volume", "seed", "strength")
"""Options that go to the engine as they are."""
SIGNAL_STATUS: Final = 128
"""Added to the number of the signal that ended a process."""
RECORDINGS: Final = frozenset({*SUFFIXES, ".m4a", ".mp4", ".webm", ".mkv"})
ENGINE_HZ: Final = 24_000
"""Rate that a server is asked for, and that its audio is encoded from here."""


def run_say(words: str | None, *, quiet: bool, **options: Any) -> str:
    """Speak and return the line about it.

    Args:
        words: The text, or None to read standard input as a stream.
        quiet: Show no progress.
        options: As on the command line.
    """
    options["recording"] = recording_of(options["voice"])
    options["synthesis"] = SynthesisOptions(**{name: options[name] for name in SYNTHESIS})
    return asyncio.run(_interruptible(_say(words, quiet, options)))


def recording_of(voice: str | None) -> Path | None:
    """The file that ``--voice`` names, or None if it names a voice.

    Raises:
        ConfigError: It looks like a file, and there is none.
    """
    if voice is None:
        return None
    path = Path(voice)
    if path.is_file():
        check_readable(path)
        return path
    if path.suffix.lower() in RECORDINGS or os.sep in voice:
        raise ConfigError(f"there is no file {voice}", how_to_fix="check the path of the recording")
    return None


async def _interruptible(work: Coroutine[Any, Any, str]) -> str:
    """Stop at once on Ctrl-C and SIGTERM, and leave with the status that shells expect."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received[:1] == [signal.SIGTERM]:
            raise SystemExit(SIGNAL_STATUS + signal.SIGTERM) from None
        raise KeyboardInterrupt from None


async def _say(words: str | None, quiet: bool, options: dict[str, Any]) -> str:
    path, play = options["output"], options["play"]
    if path is None and not play:
        play = find_player() is not None
        path = None if play else DEFAULT_FILE
    text = read_stream(sys.stdin.fileno()) if words is None else one_text(words)
    speak = _with_server if options["url"] else _in_process
    with contextlib.ExitStack() as stack:
        summary = await speak(stack, text, path, play, quiet, options)
    written = "" if path in (None, STDOUT) else f", written to {path}"
    return summary.line() + written


def _open(
    stack: contextlib.ExitStack, path: str | None, play: bool, rate: int, options: dict[str, Any]
) -> Outputs:
    return open_outputs(
        stack,
        path,
        play=play,
        engine_rate=rate,
        encoding=options["encoding"],
        sample_rate=options["rate"],
    )


async def _in_process(
    stack: contextlib.ExitStack,
    text: AsyncIterator[str],
    path: str | None,
    play: bool,
    quiet: bool,
    options: dict[str, Any],
) -> Summary:
    from cosyvoice_stream.server.app import build_engine

    settings = load_settings()
    engine = build_engine(settings)
    outputs = _open(stack, path, play, engine.info.sample_rate, options)
    try:
        with Progress("loading the engine", quiet=quiet) as progress:
            await engine.start()
            progress.update("preparing the voice")
            voice = await _find_voice(engine, settings, options, progress)
        with _speaking(path, play, quiet):
            return await speak_locally(
                engine, text, voice, options["synthesis"], outputs, clean=not options["raw"]
            )
    finally:
        await engine.close()


def _speaking(path: str | None, play: bool, quiet: bool) -> Progress:
    """Nobody needs to be told what can be heard, or beside a pipe that shows its own progress."""
    return Progress("speaking", quiet=quiet or play or path in (None, STDOUT))


async def _find_voice(
    engine: Engine, settings: Settings, options: dict[str, Any], progress: Progress
) -> Voice:
    """A built-in or stored voice by id, or one made of a recording on the fly."""
    recording = options["recording"]
    if recording is not None:
        from cosyvoice_stream.decode import decode_audio
        from cosyvoice_stream.reference import PreparedReference, prepare_reference

        def prepare() -> PreparedReference:
            decoded = decode_audio(recording, max_seconds=settings.max_reference_s)
            return prepare_reference(decoded.samples, decoded.sample_rate)

        prepared = await asyncio.to_thread(prepare)
        for warning in prepared.warnings:
            progress.note(f"note: {warning}")
        return await engine.enrol(prepared.reference, None)
    if options["voice"] is None:
        return engine.info.voices[0]
    from cosyvoice_stream.server.voice_commands import open_service

    async with open_service(engine, settings) as service:
        try:
            return await service.resolve(options["voice"])
        except VoiceNotFound as error:
            error.how_to_fix = "list them with `cosyvoice-stream voices`, or name a recording"
            raise


async def _with_server(
    stack: contextlib.ExitStack,
    text: AsyncIterator[str],
    path: str | None,
    play: bool,
    quiet: bool,
    options: dict[str, Any],
) -> Summary:
    from cosyvoice_stream.server.client import connect

    wanted = {name: options[name] for name in SYNTHESIS if options[name] is not None}
    voice = options["voice"]
    outputs = _open(stack, path, play, ENGINE_HZ, options)
    async with connect(options["url"], api_key=options["api_key"]) as session:
        if options["recording"] is not None:
            with Progress("sending the recording", quiet=quiet) as progress:
                made = await session.clone(options["recording"])
                voice = made.voice["id"]
                for warning in made.warnings:
                    progress.note(f"note: {warning}")
        if voice is not None:
            wanted["voice"] = voice
        wanted["text_options"] = {"clean": not options["raw"]}
        wanted["output"] = {"encoding": "pcm_f32le", "sample_rate": ENGINE_HZ}
        with _speaking(path, play, quiet):
            return await speak_remotely(session, text, outputs, ENGINE_HZ, **wanted)
