"""Signing in with a token, and out."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.responses import Response

from whet.live.server.access import SESSION_SECONDS, digest
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import bare
from whet.live.server.pages.parts import button, form, hidden, text_input
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import see_other
from whet.live.server.roles import PUBLIC, Role
from whet.reporting.layout import note
from whet.reporting.markup import Html, el

book = EndpointRouter()
MOST = 2_000


@book("GET", "/login", PUBLIC)
async def show(call: RequestContext) -> Response:
    """The form. A token after `#` in the address never leaves the browser but by this form."""
    return _login(call, safe_path(call.query_params.get("next", "/")), None)


@book("POST", "/login", PUBLIC)
async def enter(call: RequestContext) -> Response:
    """Open a session. The cookie is out of reach of scripts and of other sites."""
    house, onward = call.house, safe_path(call.form.get("next", "/"))
    cookie = await run_in_threadpool(house.access.open_session, call.form.get("token", "").strip()[:MOST])
    if cookie is None:
        house.count_failure(call.request.scope)
        wrong = el(
            "p",
            "This token does not open the page: it is wrong, ended, or a program's.",
            role="alert",
            class_="alert",
        )
        return _login(call, onward, wrong)
    answer = see_other(onward)
    answer.set_cookie(
        house.cookie,
        cookie,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=house.settings.secure,
        path="/",
    )
    return answer


@book("POST", "/logout", Role.VIEWER)
async def leave(call: RequestContext) -> Response:
    """End the session."""
    house = call.house
    cookie = cookie_parser(call.request.headers.get("cookie", "")).get(house.cookie, "")
    await run_in_threadpool(house.access.close_session, digest(cookie.encode("latin-1", "replace")))
    house.forget()
    answer = see_other("/login")
    answer.delete_cookie(
        house.cookie, path="/", httponly=True, samesite="strict", secure=house.settings.secure
    )
    return answer


def _login(call: RequestContext, onward: str, wrong: Html | None) -> Response:
    hint = note("A token is printed when the server first starts; an admin hands out others.")
    entry = form(
        call,
        "/login",
        hidden(next=onward),
        text_input(
            "token", "Token", type="password", required=True, autocomplete="current-password", autofocus=True
        ),
        button("Sign in", "main"),
        class_="login",
    )
    return bare("Sign in", hint, wrong, entry, status=200 if wrong is None else 403)


def safe_path(path: str) -> str:
    """The path if it is one of this server, else the first page.

    >>> safe_path("/review?x=1"), safe_path("//evil.example"), safe_path("https://evil.example")
    ('/review?x=1', '/', '/')
    """
    fine = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() and len(path) <= MOST
    return path if fine else "/"
