"""Headless Chromium driven through the DevTools protocol; no package beyond aiohttp."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it, and a page that finds none crashes
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 180.0  # seconds until a browser that does not answer is given up


def find_browser() -> str | None:
    """A Chromium binary of this machine, or None."""
    return next((found for name in BINARIES if (found := shutil.which(name))), None)


class Page:
    """One tab. `noted` collects what the browser complains about, `requested` the addresses it asks for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.session: str | None = None
        self.noted: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        """Take messages until the socket closes."""
        async for message in self._socket:
            self._take(message.json())

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.pop(message["id"]).set_result(message)
            return
        method, given = message["method"], message["params"]
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Log.entryAdded":
            self.noted.append(f"{given['entry']['source']}: {given['entry']['text']}")
        elif method == "Runtime.exceptionThrown":
            self.noted.append(str(given["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled":
            self.noted.append(f"console: {given['args']}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(given["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result. Raises RuntimeError when the browser refuses it."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        session = {} if self.session is None else {"sessionId": self.session}
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **session})
        found = await asyncio.wait_for(answer, PATIENCE)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']['message']}")
        result: dict[str, Any] = found["result"]
        return result

    async def attach(self) -> None:
        """Open a blank tab in a context of its own and follow what happens in it."""
        context = await self.call("Target.createBrowserContext", disposeOnDetach=True)
        target = await self.call("Target.createTarget", url="about:blank", **context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def colours(self, *, dark: bool) -> None:
        """Light or dark mode."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, path: Path, width: int, scale: float = 1.0) -> None:
        """Load a file at a window width."""
        size = {"width": width, "height": 844, "deviceScaleFactor": scale, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded.clear()
        await self.call("Page.navigate", url=path.resolve().as_uri())
        await asyncio.wait_for(self._loaded.wait(), PATIENCE)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises RuntimeError when it throws."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    async def screenshot(self, path: Path, height: int | None = None) -> None:
        """A PNG of the page from its top, of the whole page or of its first `height` pixels."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        shown = min(height or 16_000, size["height"])
        clip = {"x": 0, "y": 0, "width": size["width"], "height": shown, "scale": 1}
        found = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def launched(binary: str) -> Iterator[str]:
    """The DevTools address of a fresh browser with a profile of its own; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="whet-browser-", ignore_cleanup_errors=True) as profile:
        command = [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        own, quiet = {**os.environ, "TMPDIR": profile}, subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=own) as process:
            try:
                yield _address(process, Path(profile) / "DevToolsActivePort")
            finally:
                process.kill()


def _address(process: subprocess.Popen[bytes], written: Path) -> str:
    """The address that the browser writes into its profile when it is ready."""
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        if written.exists() and len(lines := written.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.02)
    raise RuntimeError("the browser does not listen")


@asynccontextmanager
async def browse(address: str) -> AsyncIterator[Page]:
    """A tab of a running browser that shares nothing with others: cookies, storage and cache are its own."""
    async with aiohttp.ClientSession() as session:
        socket = await session.ws_connect(address, max_msg_size=0)
        page = Page(socket)
        listening = asyncio.create_task(page.listen())
        await page.attach()
        yield page
        await socket.close()
        await listening
