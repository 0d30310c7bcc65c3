"""An event loop on which time passes only while nothing else happens, and then at once."""

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    now = 1000.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it."""

    def __init__(self):
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self):
        return self._virtual.now


def run_virtually(coroutine):
    """Run to the end, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
