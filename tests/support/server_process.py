"""The real server, as its user starts it: one process, the embedded engine, a free port."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 30
LOOK_S = 0.05


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server_process(folder: Path, **settings: str) -> Iterator[str]:
    """Run ``cosyvoice-stream serve``, its voices in `folder`; yield its URL once it is ready."""
    port = settings.pop("PORT", None) or str(free_port())
    values = {"PORT": port, "VOICES_DIR": str(folder / "voices"), **settings}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COSYVOICE_STREAM_")}
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "cosyvoice-stream"), "serve"],
        env=environment | {f"COSYVOICE_STREAM_{name}": value for name, value in values.items()},
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/readyz", process)
        yield url
    finally:
        process.terminate()
        process.wait(START_S)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(LOOK_S)  # another process: there is no event to wait for
    raise RuntimeError("the server did not become ready")
