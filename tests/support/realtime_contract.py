"""Conversations over OpenAI's Realtime WebSocket, recorded: one line a frame.

``PYTHONPATH=tests python -m support.realtime_contract`` records all of them again. Ids are replaced
by their kind and the order in which they first occur.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.openai_realtime import RealtimeSession
from cosyvoice_stream.server.settings import Settings
from support.memory_transport import PATIENCE_S, MemoryTransport

FOLDER = Path(__file__).parent.parent / "protocol" / "openai_realtime"

_ID: Final = re.compile(r"\b(event|sess|conv|resp|item)_[0-9a-f]{20}\b")
_EXPIRES: Final = re.compile(r'"expires_at": \d+')


def _item(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content, **more}


_CREATE = "conversation.item.create"
SCENARIOS: dict[str, list[dict[str, Any]]] = {
    "speak": [
        {"type": _CREATE, "item": _item("a bc", id="item_1")},
        {"type": "response.create"},
    ],
    "session_update": [
        {
            "type": "session.update",
            "event_id": "mine",
            "session": {
                "type": "realtime",
                "instructions": "Softly.",
                "audio": {
                    "output": {"format": {"type": "audio/pcmu"}, "voice": "boop", "speed": 1.5}
                },
            },
        },
        {
            "type": "response.create",
            "response": {"input": [_item("a")], "conversation": "none", "metadata": {"a": "b"}},
        },
    ],
    "errors": [
        {"type": "session.explode", "event_id": "mine"},
        {"type": "response.cancel"},
        {"type": "response.create"},
        {"type": _CREATE, "item": {"type": "message", "role": "user", "content": 5}},
        {"type": "conversation.item.delete", "item_id": "item_x"},
        {
            "type": "response.create",
            "response": {"input": [_item("a")], "audio": {"output": {"voice": "nobody"}}},
        },
    ],
}


@contextlib.asynccontextmanager
async def conversation() -> AsyncIterator[MemoryTransport]:
    """A connection in memory."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(_env_file=None, voices_dir=Path(folder)), FakeEngine())
        async with app.router.lifespan_context(app):
            services = app.state.services
            await services.readiness.settled()
            peer = MemoryTransport()
            session = RealtimeSession(services, peer, model="m", beta=False, key=None)
            running = asyncio.create_task(session.run())
            try:
                yield peer
            finally:
                peer.leave()
                async with asyncio.timeout(PATIENCE_S):
                    await running


class Names:
    """Replaces what is drawn at random."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, frame: str | bytes) -> Any:
        assert isinstance(frame, str)
        named = _ID.sub(self._name, frame)
        return json.loads(_EXPIRES.sub('"expires_at": 0', named))

    def _name(self, match: re.Match[str]) -> str:
        kind = match[1]
        count = sum(name.startswith(kind) for name in self._known.values())
        return self._known.setdefault(match[0], f"{kind}_{count}")


async def record() -> None:
    """Record every scenario again."""
    FOLDER.mkdir(exist_ok=True)
    for name, events in SCENARIOS.items():
        lines: list[dict[str, Any]] = []
        names, seen = Names(), 0
        async with conversation() as peer:
            await peer.until(lambda peer: len(peer.sent) == 2)
            for event in [None, *events]:
                if event is not None:
                    lines.append({"client": event})
                    peer.put(**event)
                    await _answered(peer, seen)
                lines += [{"server": names(frame)} for frame in peer.sent[seen:]]
                seen = len(peer.sent)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


async def _answered(peer: MemoryTransport, seen: int) -> None:
    """Wait for the last frame of an answer."""
    last = ("error", "session.updated", "response.done", "conversation.item.done")

    def complete(peer: MemoryTransport) -> bool:
        kinds = [message["type"] for message in peer.messages[seen:]]
        within = "response.created" in kinds and "response.done" not in kinds
        return bool(kinds) and kinds[-1] in last and not within

    await peer.until(complete)


if __name__ == "__main__":
    asyncio.run(record())
    sys.exit(0)
