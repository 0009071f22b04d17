"""The middleware around every request, before and after its endpoint, whatever its path.

Refuses foreign Host headers, adds the security headers to every answer, turns refusals and failures into answers that
hold no secret, bounds how slowly a client may take its answer, counts, and logs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from whet.errors import StorageError, UsageError
from whet_live.server.app_state import address_of, client_of
from whet_live.server.responses import Refused, refusal, see_other

if TYPE_CHECKING:
    from whet_live.server.app_state import AppState

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
]
TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
UNROUTED = "none"

log = logging.getLogger("whet.live.server")


class RequestMiddleware:
    """The outermost ASGI application of a server."""

    def __init__(self, router: Router, state: AppState) -> None:
        self._router = router
        self._state = state
        self._headers = [*SECURITY, TRANSPORT] if state.settings.secure else SECURITY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; other protocols are not supported."""
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, started = self._state, time.perf_counter()
        scope["whet.state"], scope["whet.who"] = state, None
        scope["client"] = client_of(scope, state.settings.proxies)
        answer = _Answer(scope, send, self._headers, state.limits.send)
        state.metrics.in_flight.inc()
        state.under_way[address_of(scope)] += 1
        try:
            await self._try(scope, receive, answer)
        finally:
            state.metrics.in_flight.dec()
            state.left(address_of(scope))
            seconds = time.perf_counter() - started
            endpoint = scope.get("endpoint")
            route = getattr(endpoint, "path", UNROUTED)
            state.metrics.count_answer(
                str(scope["method"]) if endpoint else UNROUTED, route, answer.status, seconds
            )
            if answer.status >= 400 or not getattr(endpoint, "ingest", False):
                _log_answer(scope, route, answer.status, seconds)

    async def _try(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            if self._state.under_way[address_of(scope)] > self._state.limits.address_connections:
                raise Refused(429, "Too many requests at once from this address.", {"Retry-After": "1"})
            self._state.check_host(scope["headers"])
            await self._router(scope, receive, answer)
        except (Refused, UsageError, StorageError) as error:
            refused = error if isinstance(error, Refused) else _as_refused(error)
            await self._end(answer, await _refusal_response(scope, refused), scope, receive)
        except SlowClient:
            log.info("slow client", extra={"facts": {"who": scope["whet.who"]}})
            raise asyncio.CancelledError from None
        except Exception as error:
            number = secrets.token_hex(4)
            log.error("failure", extra={"facts": {"number": number, **_trace(error)}})
            message = f"The server failed; its log has the reason under number {number}."
            await self._end(answer, await _refusal_response(scope, Refused(500, message)), scope, receive)

    async def _end(self, answer: _Answer, response: Response, scope: Scope, receive: Receive) -> None:
        """Send a refusal where nothing was sent yet; else break the connection off, so that no half answer passes for a
        whole one."""
        if answer.status:
            raise asyncio.CancelledError
        await response(scope, receive, answer)


class SlowClient(Exception):
    """The client did not take the next piece of its answer in time."""


class _Answer:
    """`send` with the security headers, where the endpoint sets no others, the leave to read the answer for the page of an
    origin that was admitted, the status remembered, and a deadline for each piece of a stream.

    An answer of one piece never waits here: the connection holds it, and cuts off who does not take it.
    """

    __slots__ = ("_headers", "_scope", "_seconds", "_send", "_streams", "status")

    def __init__(self, scope: Scope, send: Send, headers: list[tuple[bytes, bytes]], seconds: float) -> None:
        self._scope = scope
        self._send = send
        self._headers = headers
        self._seconds = seconds
        self._streams = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message.get("headers", ()))
            named = {name for name, _ in own}
            own += [one for one in self._headers if one[0] not in named]
            if origin := self._scope.get("whet.origin"):
                own += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
            message["headers"] = own
        elif message.get("more_body"):
            self._streams = True
        if not self._streams:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise SlowClient from None


def _as_refused(error: UsageError | StorageError) -> Refused:
    """The refusal for an error: 400 with the reason for unusable input, 503 without details for a storage failure."""
    if isinstance(error, UsageError):
        return Refused(400, str(error))
    log.error("storage", extra={"facts": {"error": str(error)}})
    return Refused(503, "The database does not answer. Try again.", {"Retry-After": "5"})


async def _refusal_response(scope: Scope, error: Refused) -> Response:
    """The response for a refusal: a page for a browser, with the form that was sent, JSON for a program."""
    if not wants_page(scope):
        return refusal(error)
    if error.status == 401 and scope["method"] in ("GET", "HEAD"):
        query = scope["query_string"].decode("latin-1")
        path = str(scope["path"]) + (f"?{query}" if query else "")
        return see_other("/login" if path == "/" else f"/login?next={quote(path, safe='')}")
    if scope.get("whet.form") is not None:
        from whet_live.server.pages.again import refused_form

        call, page = scope["whet.form"]
        return await run_in_threadpool(refused_form, call, page, error)
    from whet_live.server.pages.ui import refused_page

    return refused_page(error)


def wants_page(scope: Scope) -> bool:
    """Whether the response is a page: the client accepts HTML, and the path is not below /v1/."""
    if str(scope["path"]).startswith("/v1/"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _trace(error: Exception) -> dict[str, object]:
    """The place of the failure. Messages and values are left out: they may hold texts of users or secrets."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    return {
        "error": type(error).__name__,
        "at": [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
    }


def _log_answer(scope: Scope, route: str, status: int, seconds: float) -> None:
    facts = {
        "method": scope["method"],
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 2),
        "who": scope["whet.who"],
    }
    log.log(logging.WARNING if status >= 500 else logging.INFO, "answer", extra={"facts": facts})
