"""/healthz, /readyz and /metrics on one port."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LONGEST_STALL = 120.0  # seconds with work waiting and no pass ending: longer than any request may take


@contextlib.asynccontextmanager
async def serving(
    port: int, stalled: Callable[[], float], ready: Callable[[], str], metrics: Callable[[], bytes]
) -> AsyncIterator[int]:
    """Serve while inside; yields the port (0 asks for a free one on loopback). `ready()` says what is missing, or "".

    Raises ValueError (one sentence) when the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        seconds = stalled()
        text = f"no pass ended for {seconds:.0f} s\n" if seconds > LONGEST_STALL else "ok\n"
        return web.Response(text=text, status=503 if seconds > LONGEST_STALL else 200)

    async def readyz(_: web.Request) -> web.Response:
        missing = ready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, None if port else "127.0.0.1", port).start()
        except OSError as error:
            raise ValueError(f"--port {port} cannot be served ({error.strerror}): give a free one") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
