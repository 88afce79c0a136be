"""Headless Chromium, driven over its DevTools protocol: what a person would see of a page, asked by a test.

async with Browser() as browser:
    page = await browser.open("file:///report.html", width=1280)
    assert not await page.faults()
    assert "PASS" in await page.text()
    await page.screenshot(Path("build/report.png"))
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0"),
)
PHONE, DESK = 360, 1280  # widths, CSS pixels
SECONDS = 120.0  # of one answer; a loaded machine is slow

# What a person stumbles over, as sentences. A table or code block may scroll by itself: it is its box that must fit.
FAULTS = r"""(() => {
  const found = [], wide = document.documentElement.clientWidth;
  if (wide > SCREEN) found.push(`laid out for ${wide} pixels on a screen of ${SCREEN}: no viewport meta element?`);
  for (const image of document.images) if (!(image.complete && image.naturalWidth > 0))
    found.push(`image ${image.currentSrc || image.src} did not load`);
  const hidden = node => { const style = getComputedStyle(node);
    return style.display === 'none' || style.visibility === 'hidden' || +style.opacity === 0; };
  const scrolls = node => { for (let up = node.parentElement; up && up !== document.body; up = up.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return true; return false; };
  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} ` +
    `pixels wide on a screen of ${wide}`);
  for (const node of document.body.querySelectorAll('*')) {
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height || hidden(node) || scrolls(node)) continue;
    const name = `<${node.localName}> ${JSON.stringify((node.textContent || '').trim().slice(0, 40))}`;
    if (box.right > wide + 1 || box.left < -1) found.push(`${name} lies off the screen, ${Math.round(box.left)} to ` +
      `${Math.round(box.right)} of ${wide}`);
    if (node.localName === 'text' && node.ownerSVGElement) {
      const frame = node.ownerSVGElement.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) found.push(`${name} is cut off by its picture`);
    }
  }
  return found;
})()"""

# Texts of one picture that lie upon each other.
OVERLAPS = r"""(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')].filter(node => node.textContent.trim());
    const boxes = texts.map(node => node.getBoundingClientRect());
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const a = boxes[i], b = boxes[j];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        found.push(`"${texts[i].textContent}" and "${texts[j].textContent}" lie upon each other`);
    }
  }
  return found;
})()"""


class Browser:
    """One Chromium with a profile of its own; leaving the block ends it."""

    async def __aenter__(self) -> Self:
        program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise RuntimeError("no Chromium on PATH: run `make testing`")
        self.stack = contextlib.AsyncExitStack()
        profile = Path(self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self.process = await asyncio.create_subprocess_exec(
            *(program, *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # it has many processes: they end together
        )
        self.stack.push_async_callback(self._end)
        self.numbers, self.waiting, self.pages = itertools.count(1), dict[int, asyncio.Future[Any]](), dict[str, Page]()
        try:
            port, path = await _where(profile / "DevToolsActivePort")
            session = await self.stack.enter_async_context(aiohttp.ClientSession())
            self.socket = await self.stack.enter_async_context(
                session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
            )
        except BaseException:
            await self.stack.aclose()
            raise
        self.listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listening.cancel()
        await self.stack.aclose()

    async def open(self, url: str, *, width: int = DESK, height: int = 900, wait: str = "true") -> Page:
        """A page, loaded, its fonts too, and `wait`, an expression of JavaScript, true."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.resize(width, height)
        await page.call("Page.navigate", url=url)
        await asyncio.wait_for(page.loaded.wait(), SECONDS)
        await page.until("document.readyState === 'complete'")  # what was loaded may have been the blank page
        await page.evaluate("document.fonts.ready.then(() => true)")
        await page.until(wait)
        return page

    async def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """The result of one DevTools command. RuntimeError with what the browser says."""
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        asked = {"id": number, "method": method, "params": parameters}
        await self.socket.send_json(asked | ({"sessionId": session} if session else {}))
        return await asyncio.wait_for(self.waiting[number], SECONDS)

    async def _listen(self) -> None:
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                waiting = self.waiting.pop(told["id"])
                if waiting.done():
                    continue
                if "error" in told:
                    waiting.set_exception(RuntimeError(f"Chromium: {told['error']['message']}"))
                else:
                    waiting.set_result(told["result"])
            elif page := self.pages.get(told.get("sessionId", "")):
                page.heard(told["method"], told["params"])

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@dataclass
class Page:
    """One open page. `errors`: what its console complained of, and what it could not load."""

    browser: Browser
    session: str
    width: int = DESK
    errors: list[str] = field(default_factory=list)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, **parameters: Any) -> Any:
        """A DevTools command to this page."""
        return await self.browser.call(method, self.session, **parameters)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript; promises are awaited. RuntimeError when it throws."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"].get("exception", {}).get("description", "it threw"))
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait for an expression to become true. TimeoutError names it."""
        try:
            async with asyncio.timeout(SECONDS):
                while not await self.evaluate(f"Boolean({expression})"):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise TimeoutError(f"{expression} did not become true") from None

    async def resize(self, width: int, height: int = 900) -> None:
        """Another screen: a phone below 600 pixels."""
        self.width = width
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        await self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    async def text(self) -> str:
        """What stands on the page, as a person would read it: nothing hidden, texts of pictures too."""
        drawn = "[...document.querySelectorAll('svg text')].map(node => node.textContent).join('\\n')"
        return str(await self.evaluate(f"document.body.innerText + '\\n' + {drawn}"))

    async def faults(self) -> list[str]:
        """What a person would stumble over: errors, pictures that did not load, what lies off the screen or upon each
        other.
        """
        return [
            *self.errors,
            *await self.evaluate(FAULTS.replace("SCREEN", str(self.width))),
            *await self.evaluate(OVERLAPS),
        ]

    async def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        drawn = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        await asyncio.to_thread(_write, path, base64.b64decode(drawn["data"]))

    def heard(self, event: str, told: dict[str, Any]) -> None:
        """An event of the page."""
        if event == "Page.loadEventFired":
            self.loaded.set()
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"].get("exception", {}).get("description", told)))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}".strip())
        elif event == "Network.loadingFailed" and not told.get("canceled"):
            self.errors.append(f"a {told['type']} did not load: {told['errorText']}")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _listens(file: Path) -> tuple[int, str] | None:
    """Port and path of the protocol, which Chromium writes down when it listens."""
    port, _, path = (file.read_text() if file.exists() else "").partition("\n")
    return (int(port), path.strip()) if path.strip() else None


async def _where(file: Path) -> tuple[int, str]:
    async with asyncio.timeout(SECONDS):
        while (found := _listens(file)) is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return found
