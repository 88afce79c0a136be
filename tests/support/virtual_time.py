"""asyncio without waiting: a loop whose clock jumps to the next timer as soon as nothing else is to be done."""

import asyncio
import selectors


class _Selector(selectors.DefaultSelector):
    elapsed = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            self.elapsed += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.jumps = _Selector()
        super().__init__(self.jumps)

    def time(self):
        return self.jumps.elapsed


def virtually(coroutine):
    """Run to the end in virtual time, and return what it returned."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
