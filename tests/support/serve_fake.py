"""A server process with the fake engine, for tests that send it signals.

It is started as ``python serve_fake.py {ok,broken,slow}``; settings come from the environment.
"""

from __future__ import annotations

import asyncio
import sys

from cosyvoice_stream.errors import ModelLoadError, VoiceStreamError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.runner import serve
from cosyvoice_stream.server.settings import load_settings


class BrokenEngine(FakeEngine):
    async def start(self) -> None:
        raise ModelLoadError("the weights are damaged", how_to_fix="run pip install again")


class SlowGate(ChunkGate):
    """Lets 100 ms of audio pass every 50 ms, so that a signal finds an utterance under way."""

    async def wait(self) -> None:
        await asyncio.sleep(0.05)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(kind: str) -> int:
    engine = {
        "ok": lambda: FakeEngine(),
        "broken": lambda: BrokenEngine(),
        "slow": lambda: FakeEngine(gate=SlowGate()),
    }[kind]()
    try:
        serve(load_settings(), engine=engine, announce=say)
    except VoiceStreamError as error:
        sys.stderr.write(f"error: {error}; {error.how_to_fix}\n")
        return 1
    say("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
