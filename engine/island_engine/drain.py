"""SIGTERM: part from clients, stop accepting, let what runs finish, then exit 0.

SGLang polls every 5 s and goes on accepting until a poll finds nothing running; a request that comes between that poll
and the end is cut off, and a client on a kept-alive connection keeps the server up until it is killed. Here every
answer closes its connection first, then uvicorn stops accepting; when it has answered what ran, SGLang's own shutdown
follows.
"""

from __future__ import annotations

import asyncio
from typing import Any

POLL_SECONDS = 0.1
ALIVE_SECONDS = 1.0  # between two looks whether there is still somebody who answers
PARTING_SECONDS = 2.0  # in which a busy client gets an answer that closes its connection, instead of a reset
HTTP_STARTUP, HTTP_SHUTDOWN = "uvicorn.server.Server.startup", "uvicorn.server.Server.shutdown"


class Drain:
    """The hooks share what they know of the one server of this process."""

    def __init__(self) -> None:
        self.server: Any = None
        self.manager: Any = None
        self.finish: Any = None  # SGLang's own shutdown: asks the schedulers to give the device back, then ends them

    async def startup(self, original: Any, server: Any, *args: Any, **kwargs: Any) -> None:
        """AROUND hook on uvicorn's start: which server it is."""
        self.server = server
        await original(server, *args, **kwargs)

    async def watch(self, original: Any, manager: Any) -> None:
        """AROUND hook on the tokenizer manager's watchdog, one task of the HTTP process."""
        self.manager, self.finish = manager, original
        while not manager.gracefully_exit:  # noqa: ASYNC110 - a plain attribute that SGLang's signal handler sets
            await asyncio.sleep(POLL_SECONDS)
        if self.server is None:  # Granian, or several HTTP workers: SGLang's way
            await original(manager)
            return
        self.server.server_state.default_headers.append((b"connection", b"close"))
        await asyncio.sleep(PARTING_SECONDS)
        self.server.should_exit = True

    async def shutdown(self, original: Any, server: Any, *args: Any, **kwargs: Any) -> None:
        """AROUND hook on uvicorn's shutdown, which waits for running requests and closes the others' connections.

        A signal to the whole process group, as Ctrl-C is, has ended the schedulers too: nobody will answer then.
        """
        from sglang.srt.utils.cudacore_pyspy_dump_utils import collect_scheduler_processes

        ending = asyncio.ensure_future(original(server, *args, **kwargs))
        while not (await asyncio.wait({ending}, timeout=ALIVE_SECONDS))[0]:
            server.force_exit = server.force_exit or not collect_scheduler_processes()
        await ending
        if self.manager is not None:
            if server.force_exit:
                self.manager.rid_to_state.clear()  # SGLang's own shutdown would wait for them
            self.manager.gracefully_exit = True  # Ctrl-C comes here without it
            await self.finish(self.manager)


def install() -> None:
    """In the process that serves HTTP."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from island_engine import guards
    from island_engine.touchpoints import DRAIN

    drain = Drain()
    HookRegistry.register(DRAIN.target, drain.watch, HookType.AROUND)
    HookRegistry.register(HTTP_STARTUP, drain.startup, HookType.AROUND)
    HookRegistry.register(HTTP_SHUTDOWN, drain.shutdown, HookType.AROUND)
    HookRegistry.apply_hooks()
    guards.check_hooks()
