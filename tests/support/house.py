"""One session in memory with its peer, a FakeEngine behind it."""

import asyncio
import contextlib

from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.protocol import SessionProtocol
from cosyvoice_stream.server.session import Session
from cosyvoice_stream.server.sessions import engine_summary
from cosyvoice_stream.server.speech import SpeechService
from support.memory_transport import PATIENCE_S, MemoryTransport
from support.static_voices import StaticVoices
from support.stream_server import Counts


class House:
    """One session with its peer."""

    def __init__(self, engine=None, *, max_live=8, limits=None, **options):
        self.engine = engine or FakeEngine()
        self.admission = Admission(max_live)
        self.voices = StaticVoices(self.engine)
        self.counts = Counts()
        self.peer = MemoryTransport()
        speech = SpeechService(self.engine, self.voices, self.admission)
        self.protocol = SessionProtocol("s-1", engine_summary(self.engine.info), limits=limits)
        self.session = Session(
            self.peer, self.protocol, speech, self.voices, observer=self.counts, **options
        )

    @contextlib.asynccontextmanager
    async def open(self):
        tasks_before = asyncio.all_tasks()
        running = asyncio.create_task(self.session.run())
        await self.peer.message("session.ready")
        try:
            yield self.peer
        finally:
            self.peer.leave()
            async with asyncio.timeout(PATIENCE_S):
                await running
            # Nothing is left, whatever the test did.
            assert asyncio.all_tasks() == tasks_before
            assert self.engine.counts.live == 0
            assert self.admission.live == 0
            assert (self.counts.opened, self.counts.closed) == (1, 1)


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S * 2))
