"""Signing in at the identity provider: the way there, and the way back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.responses import Response

from whet.errors import UsageError
from whet.reporting import el
from whet_live.server.access import SIGN_IN_SECONDS
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.oidc.flow import SignInFlow, begin_flow, read_flow
from whet_live.server.pages import ui
from whet_live.server.pages.access import safe_path, set_session
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import SignInRefused, not_found, see_other
from whet_live.server.roles import PUBLIC

if TYPE_CHECKING:
    from whet_live.server.oidc.provider import IdentityProvider

router = EndpointRouter()
CALLBACK = "/login/oidc/callback"
"""The address to which the provider sends the browser back."""

log = logging.getLogger("whet.live.server")


@router("GET", "/login/oidc", PUBLIC)
async def begin(call: RequestContext) -> Response:
    """Send the browser to the provider, with a cookie by which it is known when it comes back."""
    state, provider = call.state, _provider(call)
    moment = await run_in_threadpool(state.access.read_time)
    flow = begin_flow(safe_path(call.query_params.get("next", "/")), moment)
    try:
        answer = see_other(await provider.authorization_url(flow, _callback(call)))
    except (SignInRefused, UsageError) as error:
        return _refuse(call, error)
    answer.set_cookie(
        state.flow_cookie,
        flow.cookie,
        max_age=SIGN_IN_SECONDS,
        httponly=True,
        samesite="lax",  # the browser comes back from another site
        secure=state.settings.secure,
        path="/",
    )
    return answer


@router("GET", CALLBACK, PUBLIC)
async def finish(call: RequestContext) -> Response:
    """Open a session for whom the provider vouches for. The answer is a page, because a browser that comes from another site
    would not send the new cookie, which is for this site only, along with a redirection."""
    state, provider = call.state, _provider(call)
    moment = await run_in_threadpool(state.access.read_time)
    try:
        flow = _flow(call, moment)
    except SignInRefused as error:
        return _refuse(call, error)
    try:
        identity = await provider.identify(call.query_params, flow, _callback(call), moment)
        seconds = provider.settings.session_seconds
        name, cookie = await run_in_threadpool(state.access.admit, identity, flow.state, seconds)
    except (SignInRefused, UsageError) as error:
        answer = _refuse(call, error)
    else:
        state.forget()  # the role may be another one now
        onward = safe_path(flow.page)
        body = el("p", f"You are signed in as {name}. ", ui.link("Go on", onward))
        answer = ui.bare_page("Signed in", body, onward=onward)
        set_session(call, answer, cookie, seconds)
    secure = state.settings.secure
    answer.delete_cookie(state.flow_cookie, path="/", httponly=True, samesite="lax", secure=secure)
    return answer


def _provider(call: RequestContext) -> IdentityProvider:
    if call.state.provider is None:
        raise not_found("identity provider of this server (`whet serve --oidc-issuer`)")
    return call.state.provider


def _callback(call: RequestContext) -> str:
    return call.state.address(call.headers) + CALLBACK


def _flow(call: RequestContext, moment: int) -> SignInFlow:
    """The sign-in that this browser began. Raises SignInRefused where the answer is for another one, or comes too late."""
    cookies = cookie_parser(call.headers.get(b"cookie", b"").decode("latin-1"))
    flow = read_flow(cookies.get(call.state.flow_cookie, ""))
    if flow is None or not flow.matches(call.query_params.get("state", "")):
        raise SignInRefused(
            "state",
            "This browser did not begin this sign-in, or it is over already. Sign in again, at the same address of this server.",
        )
    if not 0 <= moment - flow.began <= SIGN_IN_SECONDS * 1_000_000:
        raise SignInRefused(
            "late", f"This sign-in took longer than {SIGN_IN_SECONDS // 60} minutes. Sign in again."
        )
    return flow


def _refuse(call: RequestContext, error: SignInRefused | UsageError) -> Response:
    """Why nobody is signed in, and the way to try again. The log has the reason as a word."""
    refused = error if isinstance(error, SignInRefused) else SignInRefused("settings", str(error), 502)
    log.warning("sign-in", extra={"facts": {"refused": refused.word}})
    reason = el("p", refused.message, role="alert", class_="alert")
    again = el("p", ui.button_link("Back to the sign-in", "/login"))
    return ui.bare_page("Not signed in", reason, again, status=refused.status)
