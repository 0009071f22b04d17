"""Signing in with a token, and out."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.responses import Response

from whet.live.server.access import SESSION_SECONDS, digest
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages import ui
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import see_other
from whet.live.server.roles import PUBLIC, Role
from whet.reporting import Html, el, note

router = EndpointRouter()
MOST = 2_000


@router("GET", "/login", PUBLIC)
async def show(call: RequestContext) -> Response:
    """The form. A token after `#` in the address never leaves the browser but by this form."""
    return _login(call, safe_path(call.query_params.get("next", "/")), None)


@router("POST", "/login", PUBLIC)
async def enter(call: RequestContext) -> Response:
    """Open a session. The cookie is out of reach of scripts and of other sites."""
    state, onward = call.state, safe_path(call.form.get("next", "/"))
    cookie = await run_in_threadpool(state.access.open_session, call.form.get("token", "").strip()[:MOST])
    if cookie is None:
        state.count_failure(call.request.scope)
        wrong = "This token does not open the page: it is wrong, ended, or a program's."
        return _login(call, onward, el("p", wrong, role="alert", class_="alert"))
    answer = see_other(onward)
    answer.set_cookie(
        state.cookie,
        cookie,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=state.settings.secure,
        path="/",
    )
    return answer


@router("POST", "/logout", Role.VIEWER)
async def leave(call: RequestContext) -> Response:
    """End the session."""
    state = call.state
    cookie = cookie_parser(call.request.headers.get("cookie", "")).get(state.cookie, "")
    await run_in_threadpool(state.access.close_session, digest(cookie.encode("latin-1", "replace")))
    state.forget()
    answer = see_other("/login")
    secure = state.settings.secure
    answer.delete_cookie(state.cookie, path="/", httponly=True, samesite="strict", secure=secure)
    return answer


def _login(call: RequestContext, onward: str, wrong: Html | None) -> Response:
    hint = note("A token is printed when the server first starts; an admin hands out others.")
    field = ui.text_input(
        "token", "Token", type="password", required=True, autocomplete="current-password", autofocus=True
    )
    button = ui.button("Sign in", "main")
    entry = ui.form(call, "/login", ui.hidden(next=onward), field, button, class_="login")
    return ui.bare_page("Sign in", hint, wrong, entry, status=200 if wrong is None else 403)


def safe_path(path: str) -> str:
    """The path if it is one of this server, else the first page.

    >>> safe_path("/review?x=1"), safe_path("//evil.example"), safe_path("https://evil.example")
    ('/review?x=1', '/', '/')
    """
    fine = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() and len(path) <= MOST
    return path if fine else "/"
