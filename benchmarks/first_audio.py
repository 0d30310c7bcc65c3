"""First audio at the client, underruns, loop lag and memory at 1, 8, 32 and 64 live streams.

    python benchmarks/first_audio.py [--streams 1,8,32,64] [--seconds 30] [--json out.json]

Starts the server and, for comparison, a plain Piper voice behind a minimal server, each in a
process of its own on a free loopback port, and loads them one after the other from this process.
First audio runs from the last byte of the request to the first sample above -50 dBFS at the client.
Listeners arrive at random (exponential gaps) and play in real time; a single listener asks again as
soon as its audio is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from listeners import Load, percentile, run_listeners

HERE = Path(__file__).parent
START_TIMEOUT_S = 60
UNDERRUN_LIMIT_MS = 100
"""An utterance counts as underrun when its player was out of data for longer than this in total."""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def our_server() -> Iterator[tuple[str, psutil.Process]]:
    """Start `cosyvoice-stream serve` and yield its stream URL once it is ready."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "PORT": str(port),
            "VOICES_DIR": folder,
            "MAX_LIVE_UTTERANCES": "128",
            "MAX_SESSIONS": "256",
            "LOG_LEVEL": "warning",
        }
        command = [str(Path(sys.executable).parent / "cosyvoice-stream"), "serve"]
        process = subprocess.Popen(
            command,
            env=os.environ | {f"COSYVOICE_STREAM_{k}": v for k, v in settings.items()},
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/readyz", process)
            yield f"ws://127.0.0.1:{port}/v1/stream", psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(20)


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    import time

    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    sys.exit("the server did not become ready")


@contextmanager
def piper_server() -> Iterator[tuple[str, psutil.Process]]:
    """Start the yardstick and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "piper_server.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"ws://127.0.0.1:{port}/", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def loop_lag_buckets(url: str) -> dict[float, float]:
    """The server's own histogram of event-loop lag: upper bound in seconds → cumulative count."""
    http = url.replace("ws://", "http://").replace("/v1/stream", "/metrics")
    try:
        with urllib.request.urlopen(http, timeout=5) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return {}
    pattern = r'^\w*loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$'
    return {float(le): float(n) for le, n in re.findall(pattern, text, re.M)}


def loop_lag_p99_ms(before: dict[float, float], after: dict[float, float]) -> float | None:
    """99th percentile between two looks at the histogram, linear within its bucket."""
    if not after:
        return None
    counts = [(le, after[le] - before.get(le, 0.0)) for le in sorted(after)]
    need = 0.99 * counts[-1][1]
    low, below = 0.0, 0.0
    for le, count in counts:
        if count >= need:
            share = (need - below) / max(count - below, 1e-9)
            return round((low + share * (le - low)) * 1e3, 1)
        low, below = le, count
    return None


def row(server: str, streams: int, load: Load, seconds: float, process: psutil.Process) -> dict:
    first = [heard.first_audio_ms for heard in load.heard]
    underruns = [heard.underrun_ms for heard in load.heard]
    return {
        "server": server,
        "streams": streams,
        "utterances": len(first),
        "refused": load.refused,
        "live_mean": round(load.live_integral_s / seconds, 1),
        "first_audio_p50_ms": round(percentile(first, 50), 1),
        "first_audio_p95_ms": round(percentile(first, 95), 1),
        "first_audio_p99_ms": round(percentile(first, 99), 1),
        "underrun_share": round(sum(u > UNDERRUN_LIMIT_MS for u in underruns) / len(first), 4)
        if first
        else None,
        "underrun_max_ms": round(max(underruns, default=0.0), 1),
        "rss_mib": round(process.memory_info().rss / 2**20, 1),
    }


COLUMNS = (
    ("server", "server"),
    ("streams", "streams"),
    ("live_mean", "live"),
    ("utterances", "utterances"),
    ("refused", "refused"),
    ("first_audio_p50_ms", "p50 ms"),
    ("first_audio_p95_ms", "p95 ms"),
    ("first_audio_p99_ms", "p99 ms"),
    ("underrun_share", "underrun"),
    ("underrun_max_ms", "max underrun ms"),
    ("loop_lag_p99_ms", "loop lag p99 ms"),
    ("rss_mib", "RSS MiB"),
)


def print_table(rows: list[dict]) -> None:
    table = [[title for _, title in COLUMNS]]
    table += [["" if r.get(key) is None else str(r[key]) for key, _ in COLUMNS] for r in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    for line in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--streams", default="1,8,32,64", help="numbers of listeners")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each load")
    parser.add_argument("--piper-streams", default="1,8,32", help="the same for the yardstick")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    rows = []
    for name, start, levels in (
        ("cosyvoice-stream", our_server, arguments.streams),
        ("piper", piper_server, arguments.piper_streams),
    ):
        for streams in [int(level) for level in levels.split(",") if level]:
            with start() as (url, process):
                asyncio.run(run_listeners(url, 1, 1.0, seed=99))
                before = loop_lag_buckets(url)
                load = asyncio.run(run_listeners(url, streams, arguments.seconds, seed=streams))
                result = row(name, streams, load, arguments.seconds, process)
                result["loop_lag_p99_ms"] = loop_lag_p99_ms(before, loop_lag_buckets(url))
            rows.append(result)
            print(json.dumps(result), file=sys.stderr)
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    print(f"machine: {machine['cpu']}, {machine['cores']} cores, clients on the same machine")
    print_table(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
