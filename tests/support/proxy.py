"""A TCP proxy in front of the API server whose connections can fall silent: open, but nothing goes through any more."""

import asyncio
import contextlib
from pathlib import Path


class Proxy:
    """Use as an async context manager; `kubeconfig` leads through it."""

    def __init__(self, plane):
        self._target, self.kubeconfig = plane.port, plane.dir / "through-proxy.conf"
        self._text = Path(plane.kubeconfig).read_text()
        self._open = asyncio.Event()
        self._tasks, self._ends = set(), set()

    async def __aenter__(self):
        self._open.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.kubeconfig.write_text(self._text.replace(f"127.0.0.1:{self._target}", f"127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for _ in range(10):  # turns of the loop, not a time: what was accepted meanwhile is known now
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()
        await asyncio.sleep(0)  # the transports close

    def silence(self):
        """Every connection there is falls silent for ever; new ones are served."""
        self._open.clear()
        self._open = asyncio.Event()
        self._open.set()

    def _accept(self, reader, writer):
        self._ends.add(writer)
        task = asyncio.create_task(self._serve(self._open, reader, writer))  # the gate of the time of its birth
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, gate, reader, writer):
        with contextlib.suppress(OSError, ExceptionGroup):  # either side goes away
            answers, upstream = await asyncio.open_connection("127.0.0.1", self._target)
            self._ends.add(upstream)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(gate, reader, upstream))
                both.create_task(_pump(gate, answers, writer))
        writer.transport.abort()


async def _pump(gate, source, sink):
    while data := await source.read(65_536):
        await gate.wait()
        sink.write(data)
        await sink.drain()
    raise ConnectionError("one side is done")
