"""The command line as a process, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
"""For a whole command; only a hanging test gets near it."""


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Nothing of the machine's own settings, and voices below the folder."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COSYVOICE")}
    values = {"VOICES_DIR": str(folder / "voices")} | settings
    env |= {f"COSYVOICE_STREAM_{key}": value for key, value in values.items()}
    return env


def command(*arguments: str) -> list[str]:
    """The command line that users type as ``cosyvoice-stream …``."""
    return [sys.executable, "-m", "cosyvoice_stream.server.cli", *arguments]


@contextmanager
def started(
    folder: Path, *arguments: str, settings: dict[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command with pipes; kill it if the test leaves it running."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(folder, **(settings or {})),
        **(pipes | options),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def completed(
    folder: Path,
    *arguments: str,
    settings: dict[str, str] | None = None,
    input: bytes | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    given = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(folder, **(settings or {})),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        **(given | options),
    )


@contextmanager
def server(folder: Path, **settings: str) -> Iterator[str]:
    """A server process with the embedded engine on a free port; gives its address."""
    with started(folder, "serve", settings={"PORT": "0"} | settings) as process:
        yield ready_address(process)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, b"Traceback" in errors) == (0, False), errors


def ready_address(process: subprocess.Popen[bytes]) -> str:
    """Wait until a server process has logged that it is ready; return the address it names."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if "Ready at " in lines[-1]:
            return lines[-1].split("Ready at ")[1].split()[0]
    raise AssertionError("".join(lines))
