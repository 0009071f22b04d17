"""Endpoints: a handler with its permission in one object, so that no route can be served without its check.

The permission belongs to the object that answers, never to a pattern of addresses: whatever path leads here, the same
check is made. An endpoint that declares none cannot be served at all (`check`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from whet.errors import UsageError
from whet_live.server.request_context import (
    CSRF_FIELD,
    FORM,
    RequestContext,
    form_value,
    read_body,
    too_large,
)
from whet_live.server.responses import Refused
from whet_live.server.roles import PAGES, PROGRAMS, PUBLIC, Permission, Principal

if TYPE_CHECKING:
    from whet_live.server.app_state import AppState

Handler = Callable[[RequestContext], "Response | Awaitable[Response]"]
SAFE = frozenset({"GET", "HEAD"})
FORM_SIZE, JSON_SIZE, INGEST_SIZE = "form_bytes", "json_bytes", "ingest_bytes"
KEPT = 4
"""A form may be this many times as large as its limit and still be shown again."""


class PageKey(msgspec.Struct):
    """The part of a page's request that says whose it is."""

    key: str


@dataclass(frozen=True, slots=True)
class Spec:
    """The input and output of an endpoint, for the OpenAPI document: structs, or None where there is none.

    `status` is that of success, `kind` its media type, `takes` that of the body, `refusals` the further statuses that it
    may answer with, `name` the operation's (by default that of the handler). A JSON schema may stand for a struct.
    """

    query: object = None
    body: object = None
    answer: object = None
    status: int = 200
    kind: str = "application/json"
    takes: str = "application/json"
    refusals: tuple[int, ...] = ()
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One method on one path. As an ASGI application it admits the caller, reads the body and runs the handler.

    A plain function runs in a thread, because it may wait for the database; a coroutine runs in the loop. `app`:
    programs may use it. `ingest`: it counts against the rate and size of what programs send. `spec`: what the OpenAPI
    document says of it; None leaves it out. `form`: draws the page whose form is sent here, which is shown again where the
    form is refused.
    """

    method: str
    path: str
    needs: Permission | None
    handle: Handler
    app: bool = False
    ingest: bool = False
    spec: Spec | None = None
    form: Handler | None = None

    @property
    def __name__(self) -> str:
        return getattr(self.handle, "__name__", "handler")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Refused; the middleware turns that into a response."""
        state: AppState = scope["whet.state"]
        headers = dict(scope["headers"])
        if self.needs is PAGES:
            call = await self._admit_page(state, scope, receive, headers)
        else:
            call = await self._admit_caller(state, scope, receive, headers)
        if inspect.iscoroutinefunction(self.handle):
            answer = await self.handle(call)
        else:
            answer = await run_in_threadpool(self.handle, call)
        await answer(scope, receive, send)

    async def _admit_page(
        self, state: AppState, scope: Scope, receive: Receive, headers: dict[bytes, bytes]
    ) -> RequestContext:
        """The request of a page of the app. Its key stands in the body: for a header, a browser would ask the server first,
        which is too late for a page that is left. Cookies and tokens in headers count for nothing."""
        scope["whet.origin"] = state.check_page_origin(headers)
        state.spend(None, scope, self.ingest)
        body = await read_body(receive, headers, state.limits.page_bytes, state.limits.receive)
        try:
            key = msgspec.json.decode(body, type=PageKey).key
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"The body does not fit: {error}.") from None
        who = await state.find_page(scope, key)
        scope["whet.who"] = who.name
        state.spend(who, scope, self.ingest)
        state.spend_bytes(who, len(body))
        return RequestContext(Request(scope, receive), headers, state, who, body)

    async def _admit_caller(
        self, state: AppState, scope: Scope, receive: Receive, headers: dict[bytes, bytes]
    ) -> RequestContext:
        """The request of a person or a program, which is known by a header."""
        if self.method not in SAFE:
            state.check_origin(scope, headers)
        who = await state.who(scope, headers)
        try:
            self._admit(state, scope, who)
        except Refused:
            if self._keeps(headers):
                body = await self._read(state, receive, headers, who)
                call = RequestContext(Request(scope, receive), headers, state, who, body)
                scope["whet.form"] = call, None  # the page is not for this caller, or not now
            raise
        scope["whet.who"] = None if who is None else who.name
        body = b""
        if self.method not in SAFE:
            body = await self._read(state, receive, headers, who)
            if self.ingest:
                state.spend_bytes(who, len(body))
        call = RequestContext(Request(scope, receive), headers, state, who, body)
        if self._keeps(headers):
            scope["whet.form"] = call, self.form
            if len(body) > state.limits.form_bytes:
                raise too_large(state.limits.form_bytes, "Shorten a text of the form.")
        self._check_csrf(who, headers, body)
        return call

    async def _read(
        self, state: AppState, receive: Receive, headers: dict[bytes, bytes], who: Principal | None
    ) -> bytes:
        """The body. A form of somebody who is known may be `KEPT` times as large as it is taken, so that it is shown again."""
        limits = state.limits
        if who is None or not self._keeps(headers):
            size = INGEST_SIZE if self.ingest else FORM_SIZE if self._form(headers) else JSON_SIZE
            return await read_body(receive, headers, getattr(limits, size), limits.receive)
        try:
            return await read_body(receive, headers, KEPT * limits.form_bytes, limits.receive)
        except Refused as error:
            if error.status != 413:
                raise
            lost = "It is too large to be shown here again: your browser's Back may still have it. Shorten it there."
            raise too_large(limits.form_bytes, lost) from None

    def _admit(self, state: AppState, scope: Scope, who: Principal | None) -> None:
        """Raises Refused where the caller may not make this request: 401, 403, or 429 with Retry-After."""
        state.spend(who, scope, self.ingest)
        if self.needs is PUBLIC:
            return
        if who is None:
            raise Refused(
                401, "Sign in, or send a token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
            )
        if self.needs is None or not who.may(self.needs, self.app):
            raise Refused(403, self._describe_need(who))

    def _describe_need(self, who: Principal) -> str:
        if who.page:
            return "A public key adds feedback from a page; it may do nothing else."
        if who.app:
            return "A program's token fetches prompts and sends what it saw; it may do nothing else."
        if self.needs is PROGRAMS:
            return (
                "Only programs say what an application did. Make a token for one: "
                "whet access add NAME --role app --prompt PROMPT."
            )
        word = getattr(self.needs, "word", "nobody")
        return f"This needs the role {word}; {who.name} is {who.role.word}."

    def _form(self, headers: dict[bytes, bytes]) -> bool:
        return headers.get(b"content-type", b"").startswith(FORM.encode())

    def _keeps(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a refusal shows the form again: a form of our own page, whose sender the browser names."""
        return self.form is not None and b"origin" in headers and self._form(headers)

    def _check_csrf(self, who: Principal | None, headers: dict[bytes, bytes], body: bytes) -> None:
        """A browser sends a session cookie by itself; only our own page knows the session's secret."""
        if self.method in SAFE or who is None or not who.csrf:
            return
        if b"origin" not in headers:
            raise Refused(
                403, "The request names no Origin. Browsers send one; programs send a token instead."
            )
        token = headers.get(b"x-csrf-token", b"").decode("latin-1")
        if not token and self._form(headers):
            token = form_value(body, CSRF_FIELD)
        if not compare_digest(token.encode("latin-1", "replace"), who.csrf.encode()):
            raise Refused(403, "The form is not from this session. Send it once more.")


class EndpointRouter:
    """The endpoints of one module, collected by decorators."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def __call__(
        self,
        method: str,
        path: str,
        needs: Permission | None = None,
        *,
        app: bool = False,
        ingest: bool = False,
        form: Endpoint | Handler | None = None,
        **spec: Any,
    ) -> Callable[[Handler], Endpoint]:
        """Declare a handler. `needs` may be left out here, but `check` refuses to serve such a route. `form` as
        in `Endpoint`, or the endpoint of that page. `spec` are fields of `Spec`; without any the OpenAPI document leaves the
        endpoint out."""
        page = form.handle if isinstance(form, Endpoint) else form

        def declare(handle: Handler) -> Endpoint:
            shown = Spec(**spec) if spec else None
            endpoint = Endpoint(method, path, needs, handle, app, ingest, shown, page)
            self.endpoints.append(endpoint)
            return endpoint

        return declare


def routes(routers: Iterable[EndpointRouter]) -> list[BaseRoute]:
    """One route for each endpoint. Raises UsageError when one declares no permission."""
    all_routes: list[BaseRoute] = [
        Route(endpoint.path, endpoint, methods=[endpoint.method])
        for router in routers
        for endpoint in router.endpoints
    ]
    check(all_routes)
    return all_routes


def check(all_routes: Iterable[BaseRoute]) -> None:
    """Deny by default: raises UsageError for a route that is no endpoint, or one without a declared permission."""
    for route in all_routes:
        endpoint = getattr(route, "endpoint", None)
        if not isinstance(route, Route) or not isinstance(endpoint, Endpoint) or route.app is not endpoint:
            raise UsageError(f"The route {route!r} is no endpoint with a permission, and is not served.")
        if endpoint.needs is None:
            raise UsageError(f"{endpoint.method} {endpoint.path} declares no permission, and is not served.")
