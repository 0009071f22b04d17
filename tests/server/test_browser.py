"""The page in a real browser: attacks, flows by keyboard, accessibility, layout. WHET_SCREENSHOTS=DIR keeps images."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.report import runs as recorded
from tests.report.browser import Page, browse, find_browser, launched
from tests.server import attacks
from tests.server.browsing import DESKTOP, LOADED, PHONE, axe, go, press, size, text_of, until, write
from tests.server.conftest import Running, running
from tests.server.test_matrix import WIDE
from tests.server.test_playground import write_config
from tests.server.world import NAME, World, fill, name_failures, rate_often
from tests.serving import server_thread
from whet.engine.journal import Journal
from whet_client.records import Feedback
from whet_live.traffic import Filter

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium")
"""Without one, what these tests hold is held by no other test."""


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """The address of the playground's model."""
    with server_thread("--function", "tests.server.playground_model:answer") as url:
        yield url


@pytest.fixture
def served(
    sqlite_template: Path,
    tmp_path: Path,
    model_url: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Running, World]]:
    """A filled installation with two runs and a playground; with the parameter `hostile` every text in it is an attack."""
    path = tmp_path / "whet.db"
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    shutil.copyfile(sqlite_template, path)
    hostile = getattr(request, "param", "") == "hostile"
    numbers = count()

    def text(said: str) -> str:
        return attacks.many(said, 11 * next(numbers)) if hostile else said

    def short(said: str) -> str:
        return attacks.one_of(next(numbers)) if hostile else said

    models = write_config(tmp_path, model_url)
    with running(f"sqlite:///{path}", limits=WIDE, runs=str(tmp_path / "runs"), playground=models) as server:
        for build in (
            (recorded.hostile, recorded.running) if hostile else (recorded.finished, recorded.running)
        ):
            folder = tmp_path / "runs" / build.__name__
            _, result = build(folder)
            if build is not recorded.running:
                (folder / "result.json").write_bytes(orjson.dumps(result))
        world = fill(server.state.live, text, short)
        name_failures(server.state.live, text, short)
        yield server, world


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    """The address of a browser for all tests of this file."""
    assert BROWSER is not None
    with launched(BROWSER) as address:
        yield address


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    """A tab with cookies and storage of its own."""
    async with browse(chromium) as found:
        await size(found, DESKTOP)
        yield found


async def sign_in(page: Page, server: Running, role: str) -> None:
    """Open the link that the server prints at its first start."""
    await go(page, f"{server.address}/login#token={server.tokens[role]}")
    await until(page, f"location.pathname === '/' && {LOADED}")


PLACES_IN_SIGHT = (
    "[...document.querySelectorAll('.top nav a')].map((a) => a.getBoundingClientRect())"
    ".every((box) => box.left >= 0 && box.right <= innerWidth)"
)


def places(world: World) -> dict[str, str]:
    """Pages worth a look."""
    return {
        "overview": "/",
        "prompts": "/prompts",
        "prompt": f"/prompts/{NAME}?version=2",
        "quality": f"/quality/{NAME}?since=2026-09-01&until=2026-12-01&by=version",
        "compare": f"/compare/{NAME}?before=1&after=2",
        "history": f"/history/{NAME}",
        "edit": f"/edit/{NAME}",
        "queue": "/review",
        "review": f"/review/{world.proposal}",
        "review-move": f"/review/{world.move}",
        "review-text": f"/review/{world.own}",
        "annotate": "/annotate",
        "pairs": "/pairs",
        "answers": "/answers",
        "feedback": "/feedback",
        "answer": "/feedback/answer-12",
        "learning": "/learning",
        "requirements": f"/learning/{NAME}",
        "playground": f"/playground/{NAME}?version=1&other=2&answer=answer-12",
        "experiments": "/experiments",
        "experiment": f"/experiments/{world.experiment}",
        "new-experiment": f"/new-experiment/{NAME}",
        "runs": "/runs",
        "run": "/runs/running",
        "audit": "/audit",
        "access": "/access",
        "nowhere": "/nowhere",
    }


async def look(page: Page, server: Running, world: World, name: str) -> dict[str, Any]:
    """Open a page and say what is in it."""
    await go(page, server.address + places(world)[name])
    found: dict[str, Any] = await page.evaluate(
        "({hacked: window.HACKED ?? null, wide: document.documentElement.scrollWidth - innerWidth, title: document.title, "
        "scripts: [...document.scripts].map(s => s.src), frames: frames.length, forms: [...document.forms].map(f => f.action), "
        "inline: document.querySelectorAll('[style], [onerror], [onload], [onclick], [onfocus], [ontoggle], style').length, "
        "links: [...document.links].map(a => a.protocol)})"
    )
    return found


@pytest.mark.parametrize("looks", ["few", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("served", ["hostile"], indirect=True)
async def test_no_text_of_anybody_becomes_anything_but_text(
    served: tuple[Running, World], page: Page, looks: str
) -> None:
    """`make test` looks at the pages with the most texts of others, `make test-long` at all of them."""
    server, world = served
    few = [
        "overview",
        "prompt",
        "quality",
        "answers",
        "compare",
        "history",
        "edit",
        "review",
        "annotate",
        "feedback",
        "requirements",
        "experiment",
        "playground",
        "run",
    ]
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    await sign_in(page, server, "admin")
    page.noted, page.requested = [], []
    for name in places(world) if looks == "all" else few:
        found = await look(page, server, world, name)
        assert found["hacked"] is None and found["frames"] == 0 and found["inline"] == 0, name
        assert all(source.startswith(server.address) for source in found["scripts"] + found["forms"]), name
        assert set(found["links"]) <= {"http:"}, name
        await page.evaluate(TOUCH)
        assert await page.evaluate("[window.HACKED ?? null, violations]") == [None, []], name
    assert not [said for said in page.noted if "Content Security Policy" in said or "evil" in said], (
        page.noted
    )
    assert all(asked.startswith((server.address, "about:")) for asked in page.requested)


WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
for (const name of ["alert", "confirm", "prompt", "open"]) window[name] = () => { violations.push(name); };
"""
TOUCH = """(() => {
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const kinds = ["mouseover", "focus", "toggle"];
  document.querySelectorAll("main *").forEach((e) => kinds.forEach((kind) => e.dispatchEvent(new Event(kind))));
  return new Promise((done) => setTimeout(done, 30));
})()"""


@pytest.mark.parametrize("served", ["hostile"], indirect=True)
async def test_hidden_characters_are_drawn(served: tuple[Running, World], page: Page) -> None:
    server, world = served
    await sign_in(page, server, "viewer")
    boxes = 0
    for name in ("prompt", "review", "answer", "feedback"):
        await go(page, server.address + places(world)[name])
        boxes += await page.evaluate("document.querySelectorAll('main .ctl').length")
        raw = await page.evaluate(
            "/[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\u{e0041}]/u.test(document.querySelector('main').innerText)"
        )
        assert not raw, name
    assert boxes > 0


@pytest.mark.parametrize("looks", ["few", pytest.param("all", marks=pytest.mark.long)])
async def test_axe_finds_nothing_serious_and_everything_fits(
    served: tuple[Running, World], page: Page, looks: str
) -> None:
    """`make test` looks at the richest pages, at each in one of the ways; `make test-long` at all of them."""
    server, world = served
    pytest.importorskip("axe_core_python", reason="axe-core-python brings axe")
    await sign_in(page, server, "admin")
    page.noted = []
    few, each = ["prompt", "review", "annotate", "experiment", "run", "access"], list(places(world))
    ways = (
        ((DESKTOP, False, each), (PHONE, False, few), (DESKTOP, True, few))
        if looks == "all"
        else (
            (DESKTOP, False, [*few[:2], "overview"]),
            (PHONE, False, [*few[2:4], "access", "quality", "playground"]),
            (DESKTOP, True, [*few[4:5], "quality"]),
        )
    )
    for width, dark, names in ways:
        await size(page, width, dark=dark)
        for name in names:
            found = await look(page, server, world, name)
            assert found["wide"] <= 0, (name, width)
            assert await page.evaluate(PLACES_IN_SIGHT), (name, width)
            await page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            serious = [v for v in await axe(page) if v["impact"] in ("serious", "critical")]
            assert not serious, (name, width, dark, serious)
            if folder := os.environ.get("WHET_SCREENSHOTS"):
                await page.screenshot(Path(folder) / f"{name}-{width}{'-dark' if dark else ''}.png", 4000)
    assert [said for said in page.noted if "Failed to load" not in said] == []


async def test_long_labels_wrap_and_names_written_from_right_to_left_leave_the_line_in_its_order(
    served: tuple[Running, World], page: Page
) -> None:
    server, _ = served
    said = Feedback(
        "label", "answer-12", label="l" * 200, name="n" * 255, user="\u05e2\u05d1\u05e8\u05d9\u05ea 7"
    )
    server.state.live.traffic.add([], [said])
    await sign_in(page, server, "viewer")
    await size(page, PHONE)
    for place in ("/feedback", "/feedback/answer-12"):
        await go(page, server.address + place)
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
        name, time = await page.evaluate(
            "(() => { const line = [...document.querySelectorAll('.side')].find((e) => e.innerText.includes('\u05e2')); "
            "const range = document.createRange(); range.selectNodeContents(line.querySelector('bdi')); "
            "return [range.getBoundingClientRect().left, line.querySelector('time').getBoundingClientRect().left]; })()"
        )
        assert name < time, place


async def test_the_link_of_the_first_start_signs_in_and_leaves_no_token_behind(
    served: tuple[Running, World], page: Page
) -> None:
    server, _ = served
    page.requested = []
    await sign_in(page, server, "viewer")
    token = server.tokens["viewer"]
    assert not [asked for asked in page.requested if token in asked and not asked.endswith(f"#token={token}")]
    assert token not in await page.evaluate(
        "location.href + document.documentElement.outerHTML + document.cookie"
    )
    assert await page.evaluate("document.cookie") == ""
    await page.evaluate("document.querySelector('form.me').requestSubmit()")
    await until(page, f"location.pathname === '/login' && {LOADED}")
    await go(page, f"{server.address}/prompts")
    await until(page, "location.pathname === '/login'")


async def test_annotating_by_keyboard(served: tuple[Running, World], page: Page) -> None:
    server, _ = served
    await sign_in(page, server, "annotator")
    await go(page, f"{server.address}/annotate?prompt={NAME}")
    first = await page.evaluate("document.querySelector('[name=target]').value")
    await press(page, "2")
    assert await page.evaluate("document.querySelector('[name=rating]:checked').value") == "2"
    await press(page, "c")
    await write(page, "It names no tax. 5 s x")
    await press(page, "Enter", control=True)
    await until(page, f"{LOADED} && document.querySelector('[name=target]').value !== {first!r}")
    second = await page.evaluate("document.querySelector('[name=target]').value")
    await press(page, "s")
    await until(page, f"{LOADED} && document.querySelector('[name=target]').value !== {second!r}")
    await press(page, "w")
    assert await page.evaluate("document.querySelector('textarea[name=correction]').checkVisibility()")
    rows = server.state.live.traffic.find(Filter(source="annotator")).rows
    assert sorted((r.feedback.target, r.feedback.kind, r.feedback.value, r.feedback.text) for r in rows) == [
        (first, "comment", None, "It names no tax. 5 s x"),
        (first, "rating", 2.0, None),
    ]


async def test_reviewing_by_keyboard(served: tuple[Running, World], page: Page) -> None:
    server, world = served
    await sign_in(page, server, "approver")
    await press(page, "g")
    await press(page, "r")
    await until(page, f"location.pathname === '/review' && {LOADED}")
    for _ in range(3):
        await press(page, "j")
    assert await page.evaluate("document.activeElement.getAttribute('href')") == f"/review/{world.proposal}"
    await press(page, "Enter")
    await until(page, f"location.pathname === '/review/{world.proposal}' && {LOADED}")
    await page.evaluate("document.querySelector('[name=keep][value=i4]').focus()")
    await press(page, " ")
    assert await page.evaluate("document.querySelector('[name=keep][value=i4]').checked") is False
    await press(page, "r")
    await write(page, "The tone is fine.")
    await press(page, "Escape")
    await press(page, "a")
    await until(page, f"{LOADED} && document.body.innerText.includes('Approved by approver')")
    found = server.state.live.registry.get(f"{NAME}@production")
    assert found.version == 3 and [i.id for _, i in found.instructions] == ["i1", "i2"]
    assert "Left out: i4" in await text_of(page)


async def test_the_keys_are_listed_and_can_be_turned_off(served: tuple[Running, World], page: Page) -> None:
    server, _ = served
    await sign_in(page, server, "annotator")
    await go(page, f"{server.address}/annotate")
    await press(page, "?")
    told = await text_of(page, "#keys")
    for part in (
        "1: useless",
        "5: perfect",
        "Write a comment",
        "Skip this answer",
        "Send the form",
        "Go to Feedback",
    ):
        assert part in told, part
    await page.evaluate("document.querySelector('#keys-on').click()")
    await press(page, "?")
    assert await page.evaluate("document.querySelector('#keys').open") is False
    await press(page, "4")
    assert await page.evaluate("document.querySelector('[name=rating]:checked')") is None


async def test_an_answer_is_tried_with_two_versions_in_the_playground(
    served: tuple[Running, World], page: Page
) -> None:
    server, _ = served
    await sign_in(page, server, "editor")
    await go(page, f"{server.address}/feedback/answer-12")
    asked = server.state.live.traffic.inference("answer-12")
    assert asked is not None
    await press(page, "t")
    await until(page, f"location.pathname === '/playground/{NAME}' && {LOADED}")
    box = "document.querySelector('textarea[name=slot-question]')"
    assert await page.evaluate(f"{box}.value") == asked.inference.inputs["question"]
    await page.evaluate("document.querySelector('#f-other').focus()")
    await write(page, "2")
    await press(page, "Enter")
    await until(page, f"{LOADED} && document.querySelector('h2').innerText === 'Version 1 and version 2'")
    assert await page.evaluate(f"{box}.value") == asked.inference.inputs["question"]
    await page.evaluate(f"{box}.focus()")
    await write(page, " And in winter?")
    await page.evaluate("document.querySelector('button[value=estimate]').click()")
    await until(page, f"{LOADED} && document.body.innerText.includes('Nothing was asked yet.')")
    await page.evaluate("document.querySelector('button[value^=run]').click()")
    await until(page, f"{LOADED} && document.querySelector('#answers') !== null")
    shown = await text_of(page, "#answers")
    assert shown.count("And in winter?") == 2 and "It cost $" in shown
    assert await page.evaluate(
        "[window.HACKED ?? null, document.querySelectorAll('#answers img').length]"
    ) == [None, 0]


DRAWN = (
    "(() => { const part = document.querySelector(%r); "
    "const box = (part.closest('svg') ?? part.querySelector('svg'))?.getBoundingClientRect(); "
    "return box !== undefined && box.width > 40 && box.height > 10 && box.right <= innerWidth; })()"
)


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_patterns_and_the_joined_reward_are_drawn(
    served: tuple[Running, World], page: Page, width: int
) -> None:
    server, _ = served
    rate_often(server.state.live)
    await sign_in(page, server, "viewer")
    await size(page, width)
    await go(page, f"{server.address}/prompts/{NAME}")
    shown = await text_of(page, "#patterns")
    assert "Prices without tax" in shown and "6 critiques, 6 users" in shown
    assert await page.evaluate(DRAWN % "#patterns")
    await page.evaluate("document.querySelector('#patterns details summary').click()")
    await until(page, "document.querySelector('#patterns details').innerText.includes('95% interval')")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await go(page, f"{server.address}/quality/{NAME}?by=version")
    assert await page.evaluate(DRAWN % "#joined-title")
    assert await page.evaluate("document.querySelectorAll('svg:has(#joined-title) circle').length") >= 2


async def test_the_focus_is_always_seen(served: tuple[Running, World], page: Page) -> None:
    server, world = served
    await sign_in(page, server, "admin")
    await go(page, server.address + places(world)["review"])
    for _ in range(14):
        await press(page, "Tab")
        seen = await page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e); "
            "return e === document.body || s.outlineStyle !== 'none' || e.matches('.tile input'); })()"
        )
        assert seen


async def test_a_run_is_followed_live(served: tuple[Running, World], page: Page, tmp_path: Path) -> None:
    server, _ = served
    await sign_in(page, server, "viewer")
    await go(page, f"{server.address}/runs/running")
    await until(page, "document.querySelector('#live-state').classList.contains('on')")
    before = await text_of(page, ".figures")
    journal = Journal(tmp_path / "runs" / "running" / "journal.sqlite")
    row = ("/new", "step", orjson.dumps({"reward": 0.5}), 987_654)
    journal.append([("INSERT INTO events(key, name, value, calls) VALUES (?,?,?,?)", row)])
    journal.close()
    await until(page, f"document.querySelector('.figures').innerText !== {before!r}")
    result = tmp_path / "runs" / "running" / "result.json.partial"
    result.write_text('{"status": "stopped"}')
    result.replace(result.with_suffix(""))
    await until(page, "document.querySelector('#live-state').innerText === 'finished'")
