"""Who has access: users, roles, tokens."""

from __future__ import annotations

from starlette.responses import Response

from whet.errors import UsageError
from whet.live.server.access import Token, User
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import button, form, hidden, moment, select, tag, text_input
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, see_other
from whet.live.server.roles import Role
from whet.reporting.layout import note
from whet.reporting.markup import Child, Html, el, join

book = EndpointRouter()
APP = "app"
ROLES = [
    ("viewer", "viewer: reads"),
    ("annotator", "annotator: also rates answers"),
    ("editor", "editor: also writes versions and proposals"),
    ("approver", "approver: also decides about what others wrote"),
    ("admin", "admin: also gives and takes access"),
]
KINDS = [*ROLES, (APP, "app: a program that fetches prompts and sends what it saw")]


@book("GET", "/access", Role.ADMIN)
def show(call: RequestContext) -> Response:
    """Everybody with what they may do, and a form to add somebody."""
    return _page(call, None)


@book("POST", "/access", Role.ADMIN)
def add(call: RequestContext) -> Response:
    """Add a user and show the token once."""
    name, kind = call.form.get("name", "").strip(), call.form.get("role", "")
    role = Role.VIEWER if kind == APP else Role.of(kind)
    if role is None:
        raise Refused(400, "Choose a role.")
    return _shown(call, name, call.house.access.add(name, role, app=kind == APP, by=call.name))


@book("POST", "/access/{name}/token", Role.ADMIN)
def token(call: RequestContext) -> Response:
    """Another token for a user."""
    name = call.path("name")
    return _shown(call, name, call.house.access.new_token(name, by=call.name))


@book("POST", "/access/{name}/role", Role.ADMIN)
def change(call: RequestContext) -> Response:
    """Another role for a user, or none at all."""
    name, word, access = call.path("name"), call.form.get("role", ""), call.house.access
    role = Role.of(word)
    if word == "none":
        access.disable(name, by=call.name)
    elif role is not None:
        access.set_role(name, role, by=call.name)
    else:
        raise UsageError("Choose a role.")
    call.house.forget()
    return see_other("/access")


@book("POST", "/access/{name}/revoke", Role.ADMIN)
def revoke(call: RequestContext) -> Response:
    """End a token."""
    call.house.access.revoke(call.form.get("token", ""), by=call.name)
    call.house.forget()
    return see_other("/access")


def _shown(call: RequestContext, name: str, secret: str) -> Response:
    notice = el(
        "div",
        el("h2", f"A token for {name}"),
        el("p", "This is the only time it is shown. Hand it over on a way that nobody else reads."),
        el("pre", secret, tabindex=0, role="region", aria_label="Token"),
        class_="card good",
        role="status",
    )
    return _page(call, notice)


def _page(call: RequestContext, notice: Html | None) -> Response:
    users = call.house.access.users()
    entry = form(
        call,
        "/access",
        text_input("name", "Name", required=True, maxlength=64, hint="Letters, digits and . _ @ + -"),
        select("role", "Role", KINDS, "viewer"),
        button("Add", "main"),
        class_="inline",
    )
    return page(
        call,
        "Access",
        "access",
        notice,
        note(
            "Tokens are stored as SHA-256 digests; nobody can read them again. Every change here is in the audit log."
        ),
        [_user(call, user) for user in users],
        el("section", el("h2", "Add somebody"), entry),
    )


def _user(call: RequestContext, user: User) -> Html:
    state = tag("disabled", "bad") if user.disabled else tag(APP if user.app else user.role.word)
    chosen = "none" if user.disabled else user.role.word
    roles: Child = form(
        call,
        f"/access/{user.name}/role",
        el("label", "Role ", el("select", _options(chosen), name="role", aria_label=f"Role of {user.name}")),
        button("Change", "plain"),
        class_="row-form",
    )
    more = form(call, f"/access/{user.name}/token", button("New token", "plain"), class_="row-form")
    return el(
        "section",
        el("h2", user.name, " ", state, class_="row-title"),
        el("p", "Since ", moment(user.created), f", added by {user.created_by}", class_="quiet"),
        el("div", None if user.app else roles, more, class_="row-actions"),
        el("ul", [el("li", _token(call, user, t)) for t in user.tokens], class_="rows"),
    )


def _options(chosen: str) -> list[Html]:
    kinds = [*ROLES, ("none", "no access")]
    return [el("option", text, value=value, selected=value == chosen) for value, text in kinds]


def _token(call: RequestContext, user: User, token: Token) -> Html:
    what = el("code", f"{token.hint}…")
    if token.revoked is not None:
        return join(what, el("span", " ended ", moment(token.revoked), class_="quiet"))
    end = form(
        call,
        f"/access/{user.name}/revoke",
        hidden(token=token.id),
        button("End", "plain", aria_label=f"End token {token.hint}"),
        class_="row-form",
    )
    return join(what, el("span", " since ", moment(token.created), class_="quiet"), end)
