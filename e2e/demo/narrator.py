"""How the demo speaks: plain words, the commands a person would type, and live progress while it waits."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.kube import Kube

T = TypeVar("T")
POLL = 0.5  # seconds between looks while waiting


class WaitedTooLongError(RuntimeError):
    """What was waited for did not come; the text says what and what stood there instead."""


class Narrator:
    """Prints to a terminal with a live line, or to a file with one line per change."""

    def __init__(self, console: Console | None = None) -> None:
        # A log has no width of its own, and tables cut at 80 columns are of no use to anybody.
        self.console = console or Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)
        self.begun = time.monotonic()
        self.chapters: list[tuple[str, float]] = []  # title, seconds since the start

    @property
    def clock(self) -> str:
        """Minutes and seconds since the start."""
        passed = int(time.monotonic() - self.begun)
        return f"{passed // 60}:{passed % 60:02d}"

    def chapter(self, title: str) -> None:
        """A new step."""
        self.chapters.append((title, time.monotonic() - self.begun))
        self.console.print(f"\n[bold cyan]{len(self.chapters)}. {escape(title)}[/] [dim]{self.clock}[/]")

    def say(self, text: str) -> None:
        """A sentence for the person who watches."""
        self.console.print(escape(text))

    def command(self, text: str) -> None:
        """A command, as it would be typed."""
        self.console.print(f"[bold green]$[/] [bold]{escape(text)}[/]")

    def show(self, kube: Kube, *args: str) -> str:
        """Type `kubectl args...` and show what it prints."""
        self.command(f"kubectl {' '.join(args)}")
        text = kube.run(*args)
        self.console.print(escape(text.rstrip()), style="dim")
        return text

    def wait(self, what: str, look: Callable[[], T | None], state: Callable[[], str], timeout: float) -> T:
        """Poll `look` until it returns something, telling `state` (one line) whenever it changes."""
        begun, told = time.monotonic(), ""
        with self.console.status(what) as status:
            while (found := look()) is None:
                passed = time.monotonic() - begun
                line = state()
                if line != told:
                    told = line
                    self.console.print(f"  [dim]{self.clock}  {escape(line)}[/]")
                status.update(f"{escape(what)} [dim]({passed:.0f} s) {escape(line)}[/]")
                if passed > timeout:
                    raise WaitedTooLongError(f"{what}: not after {timeout:.0f} s; last seen: {line}")
                time.sleep(POLL)
        self.console.print(
            f"  [dim]{self.clock}[/]  [green]{escape(what)}[/] [dim](after {time.monotonic() - begun:.0f} s)[/]"
        )
        return found


def fail(message: str) -> None:
    """One sentence on stderr."""
    print(f"demo: {message}", file=sys.stderr)
