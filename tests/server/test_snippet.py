"""Feedback from pages of an app: the public key, the origins, and the script in a real browser."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.report.browser import PATIENCE, Page, browse, find_browser, launched
from tests.server.browsing import DESKTOP, axe, go, press, size, until, write
from tests.server.client import Answer
from tests.server.conftest import Running, Start
from whet.errors import UsageError
from whet_client.records import Inference
from whet_live.server.limits import ServerLimits, TokenBucket
from whet_live.server.pages.snippet import SCRIPT
from whet_live.server.roles import Role
from whet_live.server.run import ServeOptions, app_settings, origin_of
from whet_live.traffic import Filter, StoredFeedback
from whet_live.traffic.dataset import observations

SHOP = "https://shop.example"
LARGEST = 3_000
BROWSER = find_browser()
in_browser = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium")


def key_of(server: Running, *prompts: str) -> str:
    """A new public key."""
    return server.state.access.add(
        "pages", Role.VIEWER, page=True, by="test", prompts=prompts or ("shop/help",)
    )


def row(**fields: Any) -> dict[str, Any]:
    return {"id": "r1", "kind": "thumb", "target": "a1", "value": 1, **fields}


def send(server: Running, key: str, *rows: dict[str, Any], **headers: str | None) -> Answer:
    """What a page of the shop sends, as a browser sends it."""
    told = {"Origin": SHOP, "Content_Type": "text/plain;charset=UTF-8", **headers}
    body = {"key": key, "feedback": list(rows)}
    return server.client().ask("POST", "/snippet", json.dumps(body).encode(), **told)


def stored(server: Running) -> list[StoredFeedback]:
    return list(server.state.live.traffic.find(Filter()).rows)


@pytest.fixture
def shop(start: Start) -> Iterator[Running]:
    """A server that pages of one shop may send feedback to."""
    with start(snippet_origins=(SHOP,)) as server:
        yield server


def test_the_script_is_small_the_same_for_all_and_cached(shop: Running) -> None:
    client = shop.client()
    plain, packed = client.get("/snippet.js"), client.get("/snippet.js", Accept_Encoding="gzip, br")
    assert plain.body == SCRIPT == gzip.decompress(packed.body)
    assert len(packed.body) <= LARGEST, "browsers load at most 3 kB"
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "public, max-age=3600"
    assert plain.headers["cross-origin-resource-policy"] == "cross-origin"
    assert client.get("/healthz").headers["cross-origin-resource-policy"] == "same-origin"
    known = client.get("/snippet.js", If_None_Match=plain.headers["etag"])
    assert known.status == 304 and known.body == b""


def test_the_script_names_no_cookie_no_storage_and_no_markup() -> None:
    text = SCRIPT.decode()
    for word in (
        "cookie",
        "Storage",
        "indexedDB",
        "innerHTML",
        "insertAdjacentHTML",
        "eval",
        "document.write",
    ):
        assert word not in text, word
    assert "//" not in text.replace("://", ""), "a comment is left"


def test_a_page_of_a_named_origin_adds_feedback_and_reads_nothing(shop: Running) -> None:
    key = key_of(shop)
    shop.state.live.traffic.add([Inference("shop/help", 3, id="a1", user="ann")], [])
    said = row(id="r2", kind="comment", value=None, text="<b>سعر</b> is wrong")
    answer = send(shop, key, row(), said)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SHOP and "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers
    found = {one.feedback.id: one for one in stored(shop)}
    assert {(one.prompt, one.version, one.feedback.source) for one in found.values()} == {
        ("shop/help", 3, "user")
    }
    assert found["r1"].feedback.value == 1 and found["r2"].feedback.text == "<b>سعر</b> is wrong"
    assert send(shop, key, row()).status == 204 and len(stored(shop)) == 2
    taken = send(shop, key, row(value=0))
    assert taken.status == 409 and "r1" not in taken.text and taken.headers["access-control-allow-origin"]


def test_other_origins_are_refused_before_anything_is_read(shop: Running) -> None:
    key = key_of(shop)
    for origin in (None, "null", "https://evil.example", "http://shop.example", f"{SHOP}:8443"):
        answer = send(shop, key, row(), Origin=origin)
        assert answer.status == 403 and "--snippet-origin" in answer.message, origin
        assert "access-control-allow-origin" not in answer.headers and stored(shop) == []


def test_without_a_named_origin_no_page_sends_anything(server: Running) -> None:
    assert send(server, key_of(server), row()).status == 403
    assert send(server, key_of_own(server), row(), Origin=server.address).status == 403


def key_of_own(server: Running) -> str:
    return server.state.access.new_token("pages", by="test", prompts=("shop/help",))


def test_a_public_key_opens_nothing_else(shop: Running) -> None:
    key = key_of(shop)
    assert key.startswith("whetp_")
    client = shop.client()
    client.token = key
    shop.state.live.traffic.add([Inference("shop/help", 1, id="a1", output="private")], [])
    for path in ("/v1/prompts", "/v1/prompts/shop/help", "/v1/inferences/a1", "/v1/assignments", "/access"):
        answer = client.get(path)
        assert answer.status == 403 and "private" not in answer.text, path
    for path, body in (
        ("/v1/inferences", {"inferences": [{"id": "a2", "prompt": "shop/help"}]}),
        ("/v1/feedback", {"feedback": [row()]}),
    ):
        assert client.send(path, body).status == 403, path
    assert "set-cookie" not in shop.client().sign_in(key).headers
    assert stored(shop) == []


def test_a_public_key_keeps_its_role_and_its_prompts(shop: Running) -> None:
    access, key = shop.state.access, key_of(shop)
    access.set_role("pages", Role.ADMIN, by="test")
    shop.state.forget()
    client = shop.client()
    client.token = key
    assert client.get("/v1/prompts").status == 403
    assert next(user.as_json()["role"] for user in access.users() if user.name == "pages") == "page"
    with pytest.raises(UsageError, match="--prompt NAME"):
        access.new_token("pages", by="test", all_prompts=True)
    shop.state.live.traffic.add([Inference("shop/other", 1, id="foreign")], [])
    assert send(shop, key, row(target="foreign")).status == 204
    assert [one.prompt for one in stored(shop)] == [""], "it waits as if there were no such answer"


def test_secret_tokens_and_wrong_keys_are_refused(shop: Running) -> None:
    secret = send(shop, shop.tokens["app"], row())
    assert secret.status == 403 and "revoke it" in secret.message
    assert send(shop, shop.tokens["admin"], row()).status == 403
    assert send(shop, "whetp_wrong", row()).status == 401
    key = key_of(shop)
    assert send(shop, key, row(), Authorization="Bearer wrong", Cookie="whet_session=x").status == 204
    shop.state.access.disable("pages", by="test")
    shop.state.forget()
    assert send(shop, key, row(id="r9")).status == 401


REFUSED: tuple[dict[str, Any], ...] = (
    {"kind": "correction", "value": None, "text": "better"},
    {"kind": "rating"},
    {"kind": "external_check"},
    {"user": "boss"},
    {"source": "annotator"},
    {"target_kind": "session"},
    {"metadata": {}},
    {"time": "2020-01-01T00:00:00Z"},
    {"value": 3},
    {"kind": "comment", "text": "x" * 32_001},
    {"target": ""},
)
"""Fields that no page may send."""


def test_a_page_says_only_what_the_script_says(shop: Running) -> None:
    key = key_of(shop)
    for fields in REFUSED:
        assert send(shop, key, row(**fields)).status == 400, fields
    assert stored(shop) == []


def test_what_a_page_sends_counts_in_quality_and_in_rewards(shop: Running) -> None:
    key, live = key_of(shop), shop.state.live
    live.traffic.add([Inference("shop/help", 1, id=f"a{n}", user=f"u{n}") for n in (1, 2)], [])
    for n, (kind, value) in enumerate(
        [("copy", 0.2), ("dwell", 4), ("thumb", 1), ("copy", 0.6), ("dwell", 5.5)]
    ):
        assert send(shop, key, row(id=f"s{n}", kind=kind, value=value)).status == 204
    assert send(shop, key, row(id="said", kind="comment", value=None, text="Too dear.")).status == 204
    (group,) = shop.client("viewer").get("/v1/quality/shop/help").json["groups"]
    wholes = {one["measure"]["name"]: one["whole"]["mean"] for one in group["measures"]}
    means = {name: wholes[name] for name in ("thumb", "copy", "comment")}
    assert means == {"thumb": 1.0, "copy": 0.5, "comment": 0.5}, "of two answers, one"
    answers = {one.id: one for one in observations(live.database, "shop/help")}
    assert answers["a1"].signals == {"copy": 0.6, "dwell": 9.5} and answers["a1"].rating == 1.0
    assert answers["a2"].signals == {} and answers["a2"].rating is None


def test_the_page_of_access_makes_a_public_key(shop: Running) -> None:
    shown = shop.browser("admin").submit("/access", {"name": "site", "role": "page", "prompts": "shop/help"})
    assert (
        shown.status == 200
        and "where anybody can read it" in shown.text
        and "/login#token=" not in shown.text
    )
    found = re.search(r"whetp_[\w-]{43}", shown.text)
    assert found and send(shop, found[0], row()).status == 204


def test_too_much_is_refused(start: Start) -> None:
    limits = ServerLimits(rows=TokenBucket(0.001, 3))
    with start(limits, snippet_origins=(SHOP,)) as server:
        key = key_of(server)
        assert send(server, key, *(row(id=f"r{n}") for n in range(51))).status == 400
        assert send(server, key, row(kind="comment", text="x" * 66_000)).status == 413
        assert send(server, key, *(row(id=f"r{n}") for n in range(3))).status == 204
        late = send(server, key, row(id="late"))
        assert late.status == 429 and late.headers["access-control-allow-origin"] == SHOP
        assert server.client("app").send("/v1/feedback", {"feedback": [row(id="own")]}).status == 200


def test_visitors_have_the_rate_of_their_address(start: Start) -> None:
    with start(ServerLimits(anonymous=TokenBucket(0.001, 2)), snippet_origins=(SHOP,)) as server:
        key = key_of(server)
        assert [send(server, key, row(id=f"r{n}")).status for n in range(3)] == [204, 204, 429]


@pytest.mark.parametrize(
    "text",
    ["", "*", "null", "shop.example", "https://*.example", "https://a/b", "ftp://a", "https://läden.example"],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--snippet-origin"):
        app_settings(ServeOptions(snippet_origins=(text,)))
    assert origin_of("HTTPS://Shop.Example:443") == SHOP


# In a browser


class ShopPages(BaseHTTPRequestHandler):
    """One page, whatever is asked for; set on the server."""

    def do_GET(self) -> None:
        """The page, under a policy without inline styles."""
        server = self.server
        assert isinstance(server, PageServer)
        policy = f"default-src 'none'; script-src {server.whet}; connect-src {server.whet}; style-src 'self'"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(server.page.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class PageServer(ThreadingHTTPServer):
    """Another origin, which embeds the script of the server at `whet`."""

    daemon_threads = True
    whet = ""
    page = ""

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.server_address[1]}"


@contextmanager
def site() -> Iterator[PageServer]:
    """A site on a port of its own."""
    server = PageServer(("127.0.0.1", 0), ShopPages)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    """The address of a browser for all tests of this file."""
    assert BROWSER is not None
    with launched(BROWSER) as address:
        yield address


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    """A tab whose clock a test turns."""
    async with browse(chromium) as found:
        await size(found, DESKTOP)
        await found.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
        yield found


CLOCK = """
const real = performance.now.bind(performance); let more = 0;
performance.now = () => real() + more;
window.turn = (seconds) => { more += seconds * 1000; };
"""
HOSTILE = '"><img src=x onerror=HACKED=1>'
HTML = """<!doctype html><html lang="en"><title>Shop</title><meta name="color-scheme" content="light dark">
<main><h1>Help</h1><p data-whet="a1">That costs 20 euros.</p><p data-whet="a2" dir="rtl" lang="ar">السعر عشرون يورو</p>
<p>Footer</p></main><script src="{whet}/snippet.js" data-key="{key}" {more}></script></html>"""


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


async def received(server: Running, number: int) -> dict[tuple[str, str], StoredFeedback]:
    """Rows by target and kind, once so many arrived."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE / 6
    while len(rows := await asyncio.to_thread(stored, server)) < number:
        assert loop.time() < end, rows
        await asyncio.sleep(0.02)
    assert len(rows) == number, rows
    return {(one.feedback.target, one.feedback.kind): one for one in rows}


@in_browser
async def test_nothing_happens_before_consent_and_everything_by_keyboard_after(
    start: Start, page: Page
) -> None:
    with site() as shop, start(snippet_origins=(shop.origin,)) as server:
        shop.whet = server.address
        shop.page = HTML.format(whet=server.address, key=key_of(server), more="")
        server.state.live.traffic.add(
            [Inference("shop/help", 2, id="a1"), Inference("shop/help", 2, id="a2")], []
        )
        await go(page, shop.origin)
        assert await page.evaluate("document.querySelectorAll('button').length") == 0
        page.requested, page.noted = [], []
        await page.evaluate("turn(60), getSelection().selectAllChildren(document.querySelector('main'))")
        await page.evaluate("document.dispatchEvent(new ClipboardEvent('copy'))")
        await page.evaluate("getSelection().removeAllRanges(), window.whet.consent()")
        for dark in (False, True):
            await size(page, DESKTOP, dark=dark)
            serious = [v for v in await axe_findings(page) if v["impact"] in ("serious", "critical")]
            assert not serious, (dark, serious)
        await press(page, "Tab")  # the thumb up of the first answer
        assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Good answer"
        await press(page, " ")
        assert await page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        await press(page, "Tab")
        await press(page, " ")  # another mind: down
        await press(page, "Tab")
        await press(page, "Enter")
        assert await page.evaluate("document.activeElement.tagName") == "TEXTAREA"
        await write(page, "بدون ضريبة <img src=x onerror=HACKED=1>")
        await press(page, "Tab")
        await press(page, "Enter")
        assert await page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
        await page.evaluate(
            "(() => { const t = document.querySelector('[data-whet=a1]').firstChild, r = document.createRange(); "
            "r.setStart(t, 0); r.setEnd(t, 10); getSelection().removeAllRanges(); getSelection().addRange(r); "
            "document.dispatchEvent(new ClipboardEvent('copy')); })()"
        )
        await until(page, "document.querySelectorAll('[role=status]').length === 2")
        await page.evaluate("new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
        await page.evaluate("turn(7)")
        assert stored(server) == []
        assert await page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == [
            "",
            0,
            0,
        ]
        assert await page.evaluate("window.HACKED ?? null") is None
        assert not [one for one in page.noted if "Content Security" in one], page.noted
        await page.call("Page.navigate", url="about:blank")
        rows = await received(server, 5)
    assert {one.version for one in rows.values()} == {2}
    assert rows["a1", "thumb"].feedback.value == 0
    assert rows["a1", "comment"].feedback.text == "بدون ضريبة <img src=x onerror=HACKED=1>"
    assert rows["a1", "copy"].feedback.value == 0.5
    for target in ("a1", "a2"):
        seconds = rows[target, "dwell"].feedback.value
        assert seconds is not None and 7 <= seconds < 60, "what was before consent does not count"


async def axe_findings(page: Page) -> list[dict[str, Any]]:
    """What axe finds; skipped without it."""
    pytest.importorskip("axe_core_python", reason="axe-core-python brings axe")
    return await axe(page)


@in_browser
async def test_texts_of_a_page_stay_texts_and_withdrawn_consent_sends_nothing(
    start: Start, page: Page
) -> None:
    with site() as shop, start(snippet_origins=(shop.origin,)) as server:
        labels = f'data-consent data-labels="{escape("|".join([HOSTILE] * 6))}"'
        shop.whet = server.address
        shop.page = HTML.format(whet=server.address, key=key_of(server), more=labels)
        await go(page, shop.origin)
        buttons = "document.querySelectorAll('[role=group] button')"
        assert await page.evaluate(f"{buttons}.length") == 6
        assert await page.evaluate(f"{buttons}[0].getAttribute('aria-label')") == HOSTILE
        await page.evaluate(
            "(() => { const p = document.createElement('p'); p.textContent = 'New'; p.dataset.whet = "
            + repr(HOSTILE)
            + "; "
            "document.querySelector('main').append(p); })()"
        )
        await until(page, f"{buttons}.length === 9")
        await page.evaluate("document.querySelector('main > p').remove()")
        await until(page, f"{buttons}.length === 6")
        await page.evaluate(f"{buttons}[3].click(), turn(9), window.whet.consent(false)")
        assert await page.evaluate(f"{buttons}.length") == 0
        await page.evaluate("turn(9), window.whet.consent()")
        await page.evaluate(f"{buttons}[3].click(), dispatchEvent(new Event('pagehide'))")
        rows = await received(server, 1)
        assert await page.evaluate("[window.HACKED ?? null, document.images.length]") == [None, 0]
    assert rows[HOSTILE, "thumb"].feedback.value == 1
