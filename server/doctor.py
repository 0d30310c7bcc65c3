"""Checks of this machine, each with a cure."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final, Literal

from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.settings import Settings

Verdict = Literal["ok", "warn", "fail"]

MIN_PYTHON: Final = (3, 11)
MIN_OPEN_FILES: Final = 1024
SLOW_FIRST_AUDIO_MS: Final = 150.0
EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""A clock before this is wrong: it refuses valid certificates and dates voices falsely."""
_PORT_CURES: Final = {
    errno.EADDRINUSE: f"stop the program that uses it (a running server?), or set {PREFIX}PORT",
    errno.EACCES: f"set {PREFIX}PORT to a port above 1023",
}
PROBE_TEXT: Final = "This machine can speak."


@dataclass(frozen=True)
class Check:
    """What was found out about one thing."""

    name: str
    verdict: Verdict
    finding: str
    cure: str | None = None


def check_python() -> Iterator[Check]:
    """Version and platform."""
    found = platform.python_version()
    fine = sys.version_info >= MIN_PYTHON
    needed = ".".join(map(str, MIN_PYTHON))
    yield Check(
        "Python",
        "ok" if fine else "fail",
        f"{found} on {platform.system()} {platform.machine()}",
        None if fine else f"install Python {needed} or later",
    )


def check_packages() -> Iterator[Check]:
    """Every package that the installed metadata asks for."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in requires("cosyvoice-stream") or ()]
    except PackageNotFoundError:
        yield Check("packages", "fail", "cosyvoice-stream is not installed", "make setup")
        return
    wrong = []
    present = 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} is not {requirement.specifier}")
        present += 1
    finding = "; ".join(wrong) if wrong else f"{present} present, in the versions that are needed"
    cure = "pip install --upgrade cosyvoice-stream (or make setup)" if wrong else None
    yield Check("packages", "fail" if wrong else "ok", finding, cure)


def check_engine(settings: Settings) -> Iterator[Check]:
    """Load the engine and let it speak."""
    from cosyvoice_stream.errors import VoiceStreamError
    from cosyvoice_stream.server.app import build_engine
    from cosyvoice_stream.types import SynthesisOptions

    async def speak() -> tuple[float, float, float]:
        engine = build_engine(settings)
        began = time.monotonic()
        await engine.start()
        started = time.monotonic()
        first = 0.0
        samples = 0

        async def text() -> object:
            yield PROBE_TEXT

        try:
            stream = engine.synthesize(text(), engine.info.voices[0], SynthesisOptions())  # type: ignore[arg-type]
            async for chunk in stream:
                first = first or time.monotonic()
                samples += len(chunk.samples)
            ended = time.monotonic()
        finally:
            await engine.close()
        seconds = samples / engine.info.sample_rate
        return started - began, (first - started) * 1e3, (ended - started) / max(seconds, 1e-9)

    try:
        load_s, first_ms, rtf = asyncio.run(speak())
    except VoiceStreamError as error:
        yield Check("engine", "fail", f"{settings.engine}: {error}", error.how_to_fix)
        return
    slow = first_ms > SLOW_FIRST_AUDIO_MS
    yield Check(
        "engine",
        "warn" if slow else "ok",
        f"{settings.engine} loads in {load_s:.1f} s with verified weights, first audio after "
        f"{first_ms:.0f} ms, real-time factor {rtf:.3f}",
        "close other programs, or give this one more CPU" if slow else None,
    )


def check_port(settings: Settings) -> Iterator[Check]:
    """Whether the server could listen."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host.strip("[]"), settings.port))
        except OSError as error:
            yield Check(
                "port",
                "warn" if error.errno == errno.EADDRINUSE else "fail",
                f"{settings.host}:{settings.port} cannot be used: {error.strerror}",
                _PORT_CURES.get(
                    error.errno or 0, f"set {PREFIX}HOST to an address of this machine"
                ),
            )
            return
    yield Check("port", "ok", f"{settings.host}:{settings.port} is free")


def check_gpu() -> Iterator[Check]:
    """Driver and torch, without importing torch: the embedded engine needs neither."""
    finding = "no NVIDIA driver"
    program = shutil.which("nvidia-smi")
    if program is not None:
        query = "--query-gpu=name,memory.total,driver_version"
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            result = subprocess.run(
                [program, query, "--format=csv,noheader"],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
            if result.returncode == 0 and result.stdout.strip():
                finding = "; ".join(result.stdout.strip().splitlines())
            else:
                yield Check(
                    "GPU",
                    "warn",
                    "nvidia-smi finds no usable GPU",
                    "check the driver; in a container start it with --gpus all",
                )
                return
    torch = "no torch"
    if importlib.util.find_spec("torch") is not None:
        try:
            torch = f"torch {version('torch')}"
        except PackageNotFoundError:
            torch = "torch of unknown version"
    yield Check("GPU", "ok", f"{finding}, {torch}; the embedded engine runs on the CPU")


def check_files() -> Iterator[Check]:
    """How many sockets this process may open."""
    try:
        import resource
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES
    yield Check(
        "open files",
        "warn" if few else "ok",
        "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}",
        "raise it with `ulimit -n 65536` or LimitNOFILE= of the service" if few else None,
    )


def check_clock() -> Iterator[Check]:
    """Whether time goes on evenly and the date is plausible."""
    info = time.get_clock_info("monotonic")
    coarse = info.resolution > 0.005
    now = datetime.now(UTC)
    if now < EARLIEST:
        yield Check("clock", "fail", f"it says {now:%Y-%m-%d}", "set the clock, or enable NTP")
        return
    yield Check(
        "clock",
        "warn" if coarse else "ok",
        f"{now:%Y-%m-%d %H:%M} UTC, monotonic to {info.resolution * 1e6:.3g} µs",
        "paced audio will jitter; use a kernel with high-resolution timers" if coarse else None,
    )


def check_voices(settings: Settings) -> Iterator[Check]:
    """Whether voices can be stored."""
    folder = settings.voices_dir
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Check(
            "voices folder",
            "fail",
            f"{folder} cannot be written: {error.strerror}",
            f"change its owner, or set {PREFIX}VOICES_DIR",
        )
        return
    free = shutil.disk_usage(folder).free / 1e9
    yield Check(
        "voices folder",
        "warn" if free < 0.1 else "ok",
        f"{folder}, {free:.1f} GB free",
        "make room on the disk" if free < 0.1 else None,
    )


def check_player() -> Iterator[Check]:
    """Whether `say` can play."""
    from cosyvoice_stream.server.play import CURE, find_player

    player = find_player()
    yield Check(
        "sound output",
        "ok" if player else "warn",
        player or "no player; `say` writes files only",
        None if player else CURE,
    )


def check_memory() -> Iterator[Check]:
    """What is free; the server needs about 300 MB."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (ValueError, OSError, AttributeError):
        return
    low = free < 500
    yield Check(
        "memory",
        "warn" if low else "ok",
        f"{free:.0f} MB free, {os.cpu_count()} cores",
        "close other programs" if low else None,
    )


def run_checks(settings: Settings) -> Iterator[Check]:
    """All checks, one after the other; a check that breaks is a failed check."""
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        check_python,
        check_packages,
        lambda: check_engine(settings),
        lambda: check_port(settings),
        check_gpu,
        check_files,
        check_clock,
        lambda: check_voices(settings),
        check_player,
        check_memory,
    )
    for check in checks:
        try:
            yield from check()
        except Exception as error:
            yield Check("doctor", "fail", f"a check broke: {error!r}", "please report this")
