"""Access: users, roles, tokens; signing in with a token, and out."""

from __future__ import annotations

import re
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.responses import Response

from whet.reporting import Html, el, join, note, region
from whet_live.registry import ANY_PROMPT
from whet_live.server.access import SESSION_SECONDS, Token, User, digest_secret
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, link_with, see_other
from whet_live.server.roles import PAGE, PUBLIC, Role

router = EndpointRouter()
APP = "app"
DAYS = "Empty: until somebody ends it"
SCOPE = "For an app: names of prompts with commas between them, or * for all"
ROLES = [
    ("viewer", "viewer: reads"),
    ("annotator", "annotator: also rates answers"),
    ("editor", "editor: also writes versions and proposals"),
    ("approver", "approver: also decides about what others wrote"),
    ("admin", "admin: also gives and takes access"),
]
KINDS = [
    *ROLES,
    (APP, "app: a program that fetches prompts and sends what it saw"),
    (PAGE, "page: a public key, with which pages of an app add feedback"),
]
LONGEST = 2_000


@router("GET", "/access", Role.ADMIN)
def show(call: RequestContext) -> Response:
    """Everybody with what they may do, and a form to add somebody."""
    return _page(call, None)


@router("POST", "/access", Role.ADMIN, form=show)
def add(call: RequestContext) -> Response:
    """Add a user and show the token once."""
    name, kind = call.form.get("name", "").strip(), call.form.get("role", "")
    program = kind in (APP, PAGE)
    role = Role.VIEWER if program else Role.of(kind)
    if role is None:
        raise Refused(400, "Choose a role.")
    add, scope = call.state.access.add, _scope(call)
    secret = add(name, role, app=program, page=kind == PAGE, by=call.name, **scope)
    return _show_secret(call, name, secret, kind)


@router("POST", "/access/{name}/token", Role.ADMIN, form=show)
def token(call: RequestContext) -> Response:
    """Another token for a user."""
    name, access = call.path("name"), call.state.access
    secret = access.new_token(name, by=call.name, **_scope(call))
    return _show_secret(call, name, secret, next(user.kind for user in access.users() if user.name == name))


@router("POST", "/access/{name}/role", Role.ADMIN, form=show)
def change(call: RequestContext) -> Response:
    """Another role for a user, or none at all."""
    name, word, access = call.path("name"), call.form.get("role", ""), call.state.access
    role = Role.of(word)
    if word == "none":
        access.disable(name, by=call.name)
    elif role is not None:
        access.set_role(name, role, by=call.name)
    else:
        raise Refused(400, "Choose a role.")
    call.state.forget()
    return see_other("/access")


@router("POST", "/access/{name}/revoke", Role.ADMIN, form=show)
def revoke(call: RequestContext) -> Response:
    """End a token."""
    call.state.access.revoke(call.form.get("token", ""), by=call.name)
    call.state.forget()
    return see_other("/access")


def _scope(call: RequestContext) -> dict[str, Any]:
    """The prompts that a program's token is for, one in a line of the form; * for all. And when the token ends."""
    names = [line.strip() for line in re.split(r"[\n,]", call.form.get("prompts", "")) if line.strip()]
    days = call.form.get("days", "").strip()
    expires = call.state.access.expiry(ui.whole_number(days, "The number of days") if days else None)
    scope: dict[str, object] = {"all_prompts": True} if names == [ANY_PROMPT] else {"prompts": names}
    return {**scope, "expires": expires}


def _show_secret(call: RequestContext, name: str, secret: str, kind: str) -> Response:
    """The token of a new user or an old one of that kind, with the link that signs a person in."""
    care = (
        "It stands in pages, where anybody can read it."
        if kind == PAGE
        else "Pass it on through a channel that nobody else reads."
    )
    warning = el("p", f"This is the only time it is shown. {care}")
    box = region("pre", secret, label="Token")
    address = call.state.settings.url.rstrip("/") or call.request.headers.get("origin", "")
    link = kind not in (APP, PAGE) and [
        el("p", "This link signs in:"),
        region("pre", link_with(address, secret), label="Link"),
    ]
    return _page(call, ui.card(f"A token for {name}", warning, box, link, kind="good", status=True))


def _page(call: RequestContext, notice: Html | None) -> Response:
    entry = ui.form(
        call,
        "/access",
        ui.text_input("name", "Name", required=True, maxlength=64, hint="Letters, digits and . _ @ + -"),
        ui.select("role", "Role", KINDS, "viewer"),
        ui.text_input("prompts", "Prompts", hint=SCOPE),
        ui.text_input("days", "Days that the token works", hint=DAYS, inputmode="numeric", maxlength=5),
        ui.button("Add", "main"),
        class_="inline",
    )
    hint = "Tokens are stored as SHA-256 digests; nobody can read them again. Every change here is in the audit log."
    users = [_user(call, user) for user in call.state.access.users()]
    return ui.page(call, "Access", "access", notice, note(hint), users, ui.section("Add somebody", entry))


def _user(call: RequestContext, user: User) -> Html:
    mark = ui.tag("disabled", "bad") if user.disabled else ui.tag(user.kind)
    choices = ui.select_choices([*ROLES, ("none", "no access")], "none" if user.disabled else user.role.word)
    box = el("select", choices, name="role", aria_label=f"Role of {user.name}")
    roles = ui.form(
        call,
        f"/access/{user.name}/role",
        el("label", "Role ", box),
        ui.button("Change", "plain"),
        class_="row-form",
    )
    scope = user.app and el("label", "Prompts ", el("input", name="prompts", required=True, title=SCOPE))
    days = el(
        "label", "Days ", el("input", name="days", inputmode="numeric", maxlength=5, size=5, title=DAYS)
    )
    button = ui.button("New token", "plain")
    there = user.email and f", signs in at the provider as {user.email}"
    more = ui.form(call, f"/access/{user.name}/token", scope, days, button, class_="row-form")
    return el(
        "section",
        el("h2", user.name, " ", mark, class_="row-title"),
        el("p", "Since ", ui.moment(user.created), f", added by {user.created_by}", there, class_="quiet"),
        el("div", not user.app and roles, more, class_="row-actions"),
        ui.stack_rows(_token(call, user, t) for t in user.tokens),
    )


def _token(call: RequestContext, user: User, token: Token) -> Html:
    what = el("code", f"{token.hint}…")
    if token.revoked is not None:
        return join(what, el("span", " ended ", ui.moment(token.revoked), class_="quiet"))
    scope = "" if token.prompts is None else f", for {', '.join(token.prompts)}"
    button = ui.button("End", "plain", aria_label=f"End token {token.hint}")
    path = f"/access/{user.name}/revoke"
    end = ui.form(call, path, ui.hidden_fields(token=token.id), button, class_="row-form")
    until = token.expires is not None and [
        ", expired " if token.expired else ", until ",
        ui.moment(token.expires),
    ]
    since = el("span", " since ", ui.moment(token.created), scope, until, class_="quiet")
    return join(what, since, end)


@router("GET", "/login", PUBLIC)
async def sign_in_form(call: RequestContext) -> Response:
    """The form. A token after `#` in the address never leaves the browser but by this form."""
    notice = await _sign_out_there(call) if call.query_params.get("signed-out") else None
    return _login(call, safe_path(call.query_params.get("next", "/")), notice, 200)


@router("POST", "/login", PUBLIC)
async def enter(call: RequestContext) -> Response:
    """Open a session. The cookie is out of reach of scripts and of other sites."""
    state, onward = call.state, safe_path(call.form.get("next", "/"))
    cookie = await run_in_threadpool(state.access.open_session, call.form.get("token", "").strip()[:LONGEST])
    if cookie is None:
        state.count_failure(call.request.scope)
        wrong = "This token does not open the page: it is wrong, ended, or a program's."
        return _login(call, onward, el("p", wrong, role="alert", class_="alert"), 403)
    answer = see_other(onward)
    set_session(call, answer, cookie, SESSION_SECONDS)
    return answer


def set_session(call: RequestContext, answer: Response, cookie: str, seconds: int) -> None:
    """Give the browser the cookie of a session, for so many seconds."""
    state = call.state
    answer.set_cookie(
        state.cookie,
        cookie,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=state.settings.secure,
        path="/",
    )


@router("POST", "/logout", Role.VIEWER)
async def leave(call: RequestContext) -> Response:
    """End the session."""
    state = call.state
    cookie = cookie_parser(call.request.headers.get("cookie", "")).get(state.cookie, "")
    await run_in_threadpool(state.access.close_session, digest_secret(cookie.encode("latin-1", "replace")))
    state.forget()
    answer = see_other("/login" if state.provider is None else "/login?signed-out=1")
    secure = state.settings.secure
    answer.delete_cookie(state.cookie, path="/", httponly=True, samesite="strict", secure=secure)
    return answer


def _login(call: RequestContext, onward: str, notice: Html | None, status: int) -> Response:
    """The ways to sign in; `notice` stands above them."""
    hint = note("A token is printed when the server first starts; an admin hands out others.")
    provider = call.state.provider
    there = provider is not None and el(
        "p",
        ui.button_link(
            f"Sign in with {provider.settings.host}",
            call.state.address(call.headers) + ui.path_to("login/oidc", next=onward),
        ),
    )
    field = ui.text_input(
        "token",
        "Token",
        type="password",
        required=True,
        autocomplete="current-password",
        autofocus=provider is None,
    )
    button = ui.button("Sign in", "main")
    entry = ui.form(call, "/login", ui.hidden_fields(next=onward), field, button, class_="login")
    return ui.bare_page("Sign in", notice, there, hint, entry, status=status)


async def _sign_out_there(call: RequestContext) -> Html | None:
    """The address at which the provider's own session ends, if the provider names one."""
    provider = call.state.provider
    address = "" if provider is None else await provider.sign_out_url()
    if provider is None or not address:
        return None
    there = ui.link(f"Sign out of {provider.settings.host} too", address)
    return el("p", "You are signed out here. ", there, role="status")


def safe_path(path: str) -> str:
    """The path if it is one of this server, else the first page.

    >>> safe_path("/review?x=1"), safe_path("//evil.example"), safe_path("https://evil.example")
    ('/review?x=1', '/', '/')
    """
    fine = (
        path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() and len(path) <= LONGEST
    )
    return path if fine else "/"
