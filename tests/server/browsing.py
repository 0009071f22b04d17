"""Walking through the page in a real browser: addresses, keys, waiting for what the page says of itself."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

from tests.report.browser import PATIENCE, Page

PHONE, DESKTOP = 390, 1280
LOADED = "document.readyState === 'complete'"


async def size(page: Page, width: int, *, dark: bool = False) -> None:
    """The window's width, and the system's colours."""
    given = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    await page.call("Emulation.setDeviceMetricsOverride", **given)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await page.call("Emulation.setEmulatedMedia", features=[scheme])


async def go(page: Page, address: str) -> None:
    """Open an address and wait until it is loaded."""
    await page.call("Page.navigate", url="about:blank")
    await until(page, "location.href === 'about:blank'")
    await page.call("Page.navigate", url=address)
    await until(page, f"location.href !== 'about:blank' && {LOADED}")


async def until(page: Page, expression: str) -> None:
    """Wait until an expression is true in the page, over any number of pages. Raises TimeoutError."""
    waiting = (
        f"new Promise((done) => {{ const look = () => {{ if ({expression}) done(true); else setTimeout(look, 15); }}; "
        "look(); })"
    )
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await page.evaluate(waiting)
                return
            except RuntimeError as error:  # the page was left meanwhile: look again in the next one
                assert "context" in str(error) or "navigated" in str(error), error


async def press(page: Page, key: str, *, control: bool = False) -> None:
    """One key, as a keyboard sends it."""
    codes = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}
    number, text = codes.get(key, (ord(key[0].upper()), key))
    given: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": number, "modifiers": 2 if control else 0}
    if text and not control:
        given["text"] = text
    await page.call("Input.dispatchKeyEvent", type="keyDown", **given)
    await page.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=number)


async def write(page: Page, text: str) -> None:
    """Text into what has the focus."""
    await page.call("Input.insertText", text=text)


async def text_of(page: Page, selector: str = "main") -> str:
    """What an element says."""
    return str(await page.evaluate(f"document.querySelector({selector!r}).innerText"))


async def axe(page: Page) -> list[dict[str, Any]]:
    """What axe finds in the page: violations with their impact and the elements concerned."""
    source = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    await page.evaluate(source + "\n;undefined")
    found: list[dict[str, Any]] = await page.evaluate(
        "axe.run({resultTypes: ['violations']}).then(r => r.violations.map(v => ({id: v.id, impact: v.impact, "
        "nodes: v.nodes.slice(0, 5).map(n => n.html + ' | ' + n.failureSummary)})))"
    )
    return found
