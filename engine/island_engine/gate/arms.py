"""Boots and stops one engine process per arm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from island_engine import flags
from island_engine.gate import arguments, guard
from island_engine.gate.client import EngineClient
from island_engine.gate.compare import ON, ON_B
from island_engine.gate.outcome import Conclude, error

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

SERVE = (sys.executable, "-m", "island_engine", "serve")
READY_POLL_SECONDS = 0.25
STOP_SECONDS = 20.0  # the guard kills at once; this bounds what the kernel may take to free a device
# A dying engine's last process is gone some moments after it dropped a connection, or gave a strange answer.
DROPPED_SECONDS, DYING_SECONDS = 20.0, 2.0
LAST_BYTES = 32_768  # of a log, searched for last words
PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # first and last of outgoing connections
T = TypeVar("T")


@dataclass(frozen=True)
class Arm:
    """One boot: the verbatim arguments and the position of the switch."""

    name: str  # off-A, on, off-B, on-B
    engine_args: tuple[str, ...]
    decode_interval: int | None = None  # tokens; None: the engine's own default
    env: dict[str, str] = field(default_factory=dict)  # on top of the gate's environment

    def command(self, port: int, serve: tuple[str, ...] = SERVE) -> tuple[str, ...]:
        """The process arguments, serving on loopback."""
        on = self.name in (ON, ON_B)
        switch: tuple[str, ...] = ("--islands", "on" if on else "off")
        if on and self.decode_interval is not None:
            switch += ("--island-decode-interval", str(self.decode_interval))
        return (*serve, *switch, *self.engine_args, "--host", "127.0.0.1", "--port", str(port))


class Engine:
    """A booted arm: `async with Engine(arm, log) as engine`. Leaving stops every process of it."""

    def __init__(self, arm: Arm, log: Path, serve: tuple[str, ...] = SERVE) -> None:
        self.arm = arm
        self.log = log
        self.serve = serve
        self.port = 0  # before it is booted
        self.boot_seconds = 0.0

    async def __aenter__(self) -> Self:
        started = time.monotonic()
        port = self.port = free_port()
        self.log.unlink(missing_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guard.__file__, str(self.log)),
            *self.arm.command(port, self.serve),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **self.arm.env},
            start_new_session=True,  # so that Ctrl-C reaches the gate alone, which then stops the engine
        )
        self.exited = asyncio.create_task(self.process.wait())
        keys = [flags.value(self.arm.engine_args, flag) for flag in reversed(arguments.SECRET)]
        self.client = EngineClient(f"http://127.0.0.1:{port}", self.arm.name, next((k for k in keys if k), ""))
        try:
            while not await self.alive(self.client.ready()):  # noqa: ASYNC110 - another process: only polling tells
                await asyncio.sleep(READY_POLL_SECONDS)
        except BaseException:
            await self.stop()
            raise
        self.boot_seconds = time.monotonic() - started
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def alive(self, call: Coroutine[None, None, T]) -> T:
        """The result of `call`, or Conclude ERROR EngineDied as soon as the engine ends."""
        task = asyncio.create_task(call)
        try:
            await asyncio.wait({task, self.exited}, return_when=asyncio.FIRST_COMPLETED)
            if not self.exited.done() and isinstance(fault := task.exception(), Conclude):
                dropped = fault.reason == "NoAnswer"
                await asyncio.wait({self.exited}, timeout=DROPPED_SECONDS if dropped else DYING_SECONDS)
            if self.exited.done():
                raise self.died()
            return task.result()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Conclude):
                await task

    def died(self) -> Conclude:
        """Why the engine ended, in its own last words."""
        try:
            log = self.log.read_bytes()[-LAST_BYTES:].decode("utf-8", "replace")
        except OSError:
            log = ""
        said = last_words(log)
        if re.search(r"address already in use|Errno 98", log, re.IGNORECASE):
            return error("PortTaken", f"arm {self.arm.name} could not listen on its port: {said}")
        code = self.process.returncode
        return error("EngineDied", f"arm {self.arm.name} ended with code {code}: {said or 'it said nothing'}")

    async def stop(self) -> None:
        """End every process of this engine and wait for it, so that its memory is free."""
        stopping, cancelled = asyncio.create_task(self._stop()), False
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:  # a deadline may pass now; the device is still freed first
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()  # the guard's sign to end the engine
        await self.client.close()
        try:
            await asyncio.wait_for(asyncio.shield(self.exited), STOP_SECONDS)
        except TimeoutError:
            self.process.kill()  # then the engine's first process dies with its guard


def free_port() -> int:
    """A TCP port on loopback that nobody listens on. Below those that the kernel gives to outgoing connections: one of
    these would take it while the engine loads its weights, before it listens.
    """
    first = int(PORTS.read_text(encoding="ascii").split()[0])
    while True:
        port = secrets.choice(range(10_000, first) if first > 10_000 else range(10_000, 60_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


_BLAME = re.compile(r"^(\w+\.)*\w*(Error|Exception|error)\b.*:")


def last_words(log: str) -> str:
    """The line of a log that best says why a process ended: its last exception, else its last line. One line, short."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    blame = next((line for line in reversed(lines) if _BLAME.match(line)), lines[-1] if lines else "")
    return blame[:500]
