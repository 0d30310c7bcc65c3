"""baresip as the other end: started for one test, driven and watched over its control socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.types import Samples

MODULES = Path("/usr/lib/baresip/modules")
TIMEOUT_S = 60.0
"""Only a hanging test gets near it."""
_CONFIG = """\
sip_listen 127.0.0.1:{sip}
ctrl_tcp_listen 127.0.0.1:{control}
audio_player aufile,{folder}/played.wav
audio_source aufile,{source}
ausrc_srate {rate}
auplay_srate {rate}
audio_buffer 20-160
rtp_ports {rtp}-{rtp_last}
jitter_buffer_delay 2-10
snd_path {folder}
module_path {modules}
module account.so
{codecs}
module aufile.so
module sndfile.so
module_app menu.so
module_app ctrl_tcp.so
"""


def free_port(kind: socket.SocketKind) -> int:
    """A port that nobody has at the moment."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_wav(path: Path, samples: Samples, rate: int, channels: int = 1) -> None:
    """Write 16-bit audio, the same in each channel."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(pcm.to_int16(samples), channels).astype("<i2").tobytes())


class Baresip:
    """A running baresip."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, folder: Path, port: int
    ) -> None:
        self.folder = folder
        self.port = port
        self._reader, self._writer = reader, writer

    async def command(self, command: str, parameters: str = "") -> None:
        """Run a command of its menu."""
        message = json.dumps({"command": command, "params": parameters})
        self._writer.write(f"{len(message)}:{message},".encode())
        await self._writer.drain()

    async def event(self, kind: str) -> dict[str, Any]:
        """Wait for an event, passing over others."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                message = await self._message()
                if message.get("event") and message.get("type") == kind:
                    return message

    def heard(self) -> tuple[Samples, int]:
        """What it recorded of the other end, and the rate."""
        (path,) = self.folder.glob("dump-*-dec.wav")
        with wave.open(str(path)) as file:
            data = file.readframes(file.getnframes())
            samples = np.frombuffer(data, "<i2").reshape(-1, file.getnchannels())[:, 0]
            return samples.astype(np.float32) / 32_768, file.getframerate()

    async def _message(self) -> dict[str, Any]:
        length = int((await self._reader.readuntil(b":"))[:-1])
        body = await self._reader.readexactly(length + 1)
        message: dict[str, Any] = json.loads(body[:-1])
        return message


def _configure(folder: Path, codecs: Sequence[str], source: Samples, rate: int) -> tuple[int, int]:
    """Write a configuration; give the ports of SIP and of control."""
    folder.mkdir(parents=True, exist_ok=True)
    port, control = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
    rtp = 30_000 + port % 5000 * 4
    # Its Opus has two channels, and a file has to have as many as the codec.
    write_wav(folder / "source.wav", source, rate, 2 if codecs[0] == "opus" else 1)
    config = _CONFIG.format(
        sip=port,
        control=control,
        folder=folder,
        source=folder / "source.wav",
        rate=rate,
        rtp=rtp,
        rtp_last=rtp + 100,
        modules=MODULES,
        codecs="\n".join(f"module {name}.so" for name in codecs),
    )
    (folder / "config").write_text(config)
    (folder / "accounts").write_text("<sip:phone@127.0.0.1>;regint=0\n")
    (folder / "contacts").write_text("")
    return port, control


@asynccontextmanager
async def baresip(
    folder: Path, codecs: Sequence[str], source: Samples, rate: int = 8000
) -> AsyncIterator[Baresip]:
    """Start it with these codec modules, speaking `source` in its calls.

    Args:
        folder: For its configuration and recordings.
        codecs: Such as ``g711``; the first is offered first.
        source: What its microphone hears; has to outlast the call.
        rate: Of the sound card that it does not have, and of `source`.
    """
    port, control = await asyncio.to_thread(_configure, folder, codecs, source, rate)
    log = folder / "log"
    process = await asyncio.create_subprocess_exec(
        "baresip",
        "-f",
        str(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    output: asyncio.Task[bytes] | None = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await process.stdout.readuntil(b"baresip is ready.")
        output = asyncio.create_task(process.stdout.read())
        reader, writer = await asyncio.open_connection("127.0.0.1", control)
        yield Baresip(reader, writer, folder, port)
        writer.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if output is not None:
            await asyncio.to_thread(log.write_bytes, await output)
