"""The report in a real browser: layout, contrast, complaints, attacks. WHET_SCREENSHOTS=DIR keeps images."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.report import runs
from tests.report.browser import Page, browse, find_browser, launched
from whet.reporting import write_report

BUILDERS = (runs.finished, runs.reinforced, runs.hostile, runs.running)
WIDTHS = (1280, 390)

PROBE = Path(__file__).with_name("probe.js").read_text("utf-8")


FOLLOW = """(() => {
  const last = [...document.querySelectorAll(".inside")].at(-1);
  location.hash = last.id;
  return new Promise((done) => requestAnimationFrame(() => done(last.closest("details").open)));
})()"""


@dataclass
class Seen:
    """What one page looked like at each width in each mode, and what the browser said meanwhile. `opened`: whether
    following a link to the last candidate opened its details; `outlines`: what the keyboard's focus looked like."""

    views: dict[tuple[int, bool], dict[str, Any]]
    noted: list[str]
    requested: list[str]
    opened: bool | None
    outlines: list[str]


async def look(binary: str, reports: dict[str, Path]) -> dict[str, Seen]:
    """Open every report at every width, light and dark."""
    with launched(binary) as address:
        async with browse(address) as page:
            return {name: await look_at(page, name, path) for name, path in reports.items()}


async def look_at(page: Page, name: str, path: Path) -> Seen:
    page.noted, page.requested = [], []
    views = {}
    for width in WIDTHS:
        await page.open(path, width)
        for dark in (False, True):
            await page.colours(dark=dark)
            if folder := os.environ.get("WHET_SCREENSHOTS"):
                await page.screenshot(
                    Path(folder) / f"{name}-{width}-{'dark' if dark else 'light'}.png", 6000
                )
            views[width, dark] = await page.evaluate(PROBE)
    await page.evaluate(
        "document.querySelectorAll('*').forEach(e => e.dispatchEvent(new Event('mouseover')))"
    )
    views[WIDTHS[0], False]["hacked_later"] = await page.evaluate("window.hacked ?? null")
    outlines = await press_tab(page, 8)
    return Seen(views, page.noted, page.requested, await page.evaluate(FOLLOW), outlines)


async def press_tab(page: Page, times: int) -> list[str]:
    """Outline styles of what gets the keyboard's focus, one after another."""
    found = []
    for _ in range(times):
        for kind in ("keyDown", "keyUp"):
            await page.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        found.append(await page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    binary = find_browser()
    if binary is None:
        pytest.skip("no chromium or chrome on this machine, so the report was not looked at in a browser")
    root = tmp_path_factory.mktemp("reports")
    reports = {}
    for build in BUILDERS:
        folder, result = build(root / build.__name__)
        reports[build.__name__] = write_report(folder, result)
    return asyncio.run(look(binary, reports))


@pytest.mark.parametrize("name", [build.__name__ for build in BUILDERS])
class TestInTheBrowser:
    def test_nothing_runs_off_the_side(self, seen: dict[str, Seen], name: str) -> None:
        for (width, _), view in seen[name].views.items():
            assert view["inner"] == width
            assert view["scroll"] <= width
            assert view["outside"] == []

    def test_text_stands_out_from_its_ground(self, seen: dict[str, Seen], name: str) -> None:
        for view in seen[name].views.values():
            assert view["tested"] > 40
            assert view["weak"] == []

    def test_the_browser_has_no_complaint_and_asks_for_nothing(
        self, seen: dict[str, Seen], name: str
    ) -> None:
        assert seen[name].noted == []
        assert len(seen[name].requested) == len(WIDTHS)
        assert all(address.startswith("file://") for address in seen[name].requested)

    def test_nothing_was_executed(self, seen: dict[str, Seen], name: str) -> None:
        for view in seen[name].views.values():
            assert view["hacked"] is None
            assert view["title"].endswith(": whet report")
        assert seen[name].views[WIDTHS[0], False]["hacked_later"] is None

    def test_pictures_fit_the_window_and_can_be_read(self, seen: dict[str, Seen], name: str) -> None:
        for (width, _), view in seen[name].views.items():
            assert set(view["pictures"]) == {"narrow" if width < 700 else "wide"}
            assert view["small"] == []

    def test_links_and_keys_lead_everywhere(self, seen: dict[str, Seen], name: str) -> None:
        assert seen[name].opened
        assert set(seen[name].outlines) == {"solid"}
