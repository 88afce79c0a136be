"""SIGTERM: stop accepting, let what runs finish, then exit 0.

SGLang polls every 5 s and goes on accepting until a poll finds nothing running; a request that comes between that poll
and the end is cut off, and a client on a kept-alive connection keeps the server up until it is killed. Here uvicorn
stops accepting first and closes idle connections; when it has answered what ran, SGLang's own shutdown follows.
"""

from __future__ import annotations

import asyncio
from typing import Any

POLL_SECONDS = 0.1
HTTP_SHUTDOWN = "uvicorn.server.Server.shutdown"


class Drain:
    """Both hooks share what they know of the one server of this process."""

    def __init__(self) -> None:
        self.manager: Any = None
        self.finish: Any = None  # SGLang's own shutdown: asks the schedulers to give the device back, then ends them

    async def watch(self, original: Any, manager: Any) -> None:
        """AROUND hook on the tokenizer manager's watchdog."""
        self.manager, self.finish = manager, original
        while not manager.gracefully_exit:  # noqa: ASYNC110 - a plain attribute that SGLang's signal handler sets
            await asyncio.sleep(POLL_SECONDS)
        if manager._server_stop_hook is None:  # noqa: SLF001 - several HTTP workers: SGLang's way
            await original(manager)
        else:
            manager._server_stop_hook()  # noqa: SLF001

    async def shutdown(self, original: Any, server: Any, *args: Any, **kwargs: Any) -> None:
        """AROUND hook on uvicorn's shutdown, which waits for running requests and closes the others' connections."""
        await original(server, *args, **kwargs)
        if self.manager is not None:
            self.manager.gracefully_exit = True
            await self.finish(self.manager)


def install() -> None:
    """In the process that serves HTTP."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from island_engine.touchpoints import DRAIN

    drain = Drain()
    HookRegistry.register(DRAIN.target, drain.watch, HookType.AROUND)
    HookRegistry.register(HTTP_SHUTDOWN, drain.shutdown, HookType.AROUND)
    HookRegistry.apply_hooks()
