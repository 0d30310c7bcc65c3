"""What people hear of difficult text, through the WebSocket of a whole server."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.types import Flush
from support.served import serving

pytestmark = pytest.mark.integration

NOTHING = ["", "   ", "。", "……", "!!!", "🙂🙂", "——"]


class ListeningEngine(FakeEngine):
    """Notes the text that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def synthesize(self, text: Any, voice: Any, options: Any) -> Any:
        return super().synthesize(self._note(text), voice, options)

    async def _note(self, text: Any) -> AsyncGenerator[str | Flush, None]:
        self.texts.append("")
        try:
            async for piece in text:
                if not isinstance(piece, Flush):
                    self.texts[-1] += piece
                yield piece
        finally:
            await text.aclose()


async def speak(socket: ClientConnection, *fragments: str, **options: Any) -> dict[str, Any]:
    """Say fragments; the last message, with words, warnings and bytes of audio."""
    messages = [
        {"type": "utterance.start", "id": "a", "marks": ["word"], **options},
        *({"type": "text.delta", "id": "a", "text": text} for text in fragments if text),
        {"type": "utterance.end", "id": "a"},
    ]
    for message in messages:
        await socket.send(json.dumps(message))
    words: list[dict[str, Any]] = []
    warnings: list[str] = []
    audio = 0
    while True:
        frame = await socket.recv()
        if isinstance(frame, bytes):
            audio += len(frame) - 12
            continue
        message = json.loads(frame)
        words += message.get("words", [])
        if message["type"] == "utterance.warning":
            warnings.append(message["message"])
        if message["type"] in ("utterance.done", "error"):
            return message | {"words": words, "warnings": warnings, "bytes": audio}


def over_a_socket(
    tmp_path: Path, engine: Engine, body: Callable[[ClientConnection], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with serving(tmp_path, engine) as served:
            url = f"ws://127.0.0.1:{served.port}/v1/stream"
            async with connect(url, proxy=None) as socket:
                await socket.recv()
                await body(socket)

    asyncio.run(main())


def test_nothing_to_say_is_done_at_once(tmp_path: Path) -> None:
    async def body(socket: ClientConnection) -> None:
        took = []
        for text in NOTHING * 3:
            began = time.perf_counter()
            done = await speak(socket, text)
            took.append(time.perf_counter() - began)
            assert (done["type"], done["audio_ms"], done["bytes"]) == ("utterance.done", 0, 0)
        assert statistics.median(took) <= 0.05
        assert (await speak(socket, "Yes."))["audio_ms"] > 100

    over_a_socket(tmp_path, LiteEngine(threads=1), body)


@pytest.mark.parametrize(
    ("fragments", "words"),
    [
        (("The water is 36", ".", "8 degrees."), ["The", "water", "is", "36.8", "degrees"]),
        (("It cost $9", ".9", "9 at 9:", "30 am."), ["It", "cost", "$9.99", "at", "9:30 am"]),
        (("Um, let me", " check.", " Sorry!"), ["Um", "let", "me", "check", "Sorry"]),
        (("**Step 1**: run ✅", " `make`\n\n────\nNow"), ["Step", "1", "run", "make", "Now"]),
        (("A", "1, 4B, TZ-", "705 and v2", ".4", ".1."), ["A1", "4B", "TZ-705", "and", "v2.4.1"]),
    ],
)
def test_words_are_heard_as_they_were_written(
    tmp_path: Path, fragments: tuple[str, ...], words: list[str]
) -> None:
    async def body(socket: ClientConnection) -> None:
        done = await speak(socket, *fragments)
        assert done["type"] == "utterance.done"
        assert [word["text"] for word in done["words"]] == words
        text = "".join(fragments)
        for word in done["words"]:
            assert text[word["char_start"] : word["char_end"]].strip("*`") == word["text"]
        times = [word["start_ms"] for word in done["words"]]
        assert times == sorted(times)

    over_a_socket(tmp_path, LiteEngine(threads=1), body)


@pytest.mark.parametrize(
    ("fragments", "given"),
    [
        (("水温是36", ".", "8度，刚好。"), "水温是三十六点八度，刚好。"),
        (
            ("型号A1、4B和TZ-7", "05，见API文档v2.", "4.1，发布于9:", "30。"),
            "型号A一、四B和TZ 七零五，见API文档二点四点一，发布于九点三十分。",
        ),
        (("呃，让我再查一下，sorry 哈！",), "呃，让我再查一下，sorry 哈！"),
        (("気温は36", ".8度です。"), "気温は三十六点八度です。"),
        (("Nach 10 hoch 6 Schritten.",), "Nach zehn hoch sechs Schritten."),
    ],
)
def test_every_engine_gets_text_that_has_been_read(
    tmp_path: Path, fragments: tuple[str, ...], given: str
) -> None:
    engine = ListeningEngine()

    async def body(socket: ClientConnection) -> None:
        assert (await speak(socket, *fragments))["type"] == "utterance.done"
        await speak(socket, *fragments, text={"normalize": False})

    over_a_socket(tmp_path, engine, body)
    assert engine.texts == [given, "".join(fragments)]


def test_a_language_that_the_engine_does_not_speak_is_named(tmp_path: Path) -> None:
    text = "Der Zug ist heute nicht um 9:30 Uhr von hier nach Berlin gefahren."

    async def body(socket: ClientConnection) -> None:
        done = await speak(socket, text)
        assert done["type"] == "utterance.done"
        assert done["warnings"] == ["the engine 'lite' does not speak 'de' well"]
        assert (await speak(socket, "The train is not here now."))["warnings"] == []
        refused = await speak(socket, text, language="de")
        assert refused["code"] == "unsupported_language"

    over_a_socket(tmp_path, LiteEngine(threads=1), body)
