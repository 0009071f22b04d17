"""The frame of every page: head, main navigation, who is signed in, messages, keyboard help."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from whet.live.server.pages.assets import address
from whet.live.server.pages.parts import button, form
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import page_answer
from whet.live.server.roles import Role
from whet.reporting.markup import Child, Html, el


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """An entry of the main navigation: anchor word, text, address, the role it needs, the key after `g`."""

    word: str
    text: str
    path: str
    role: Role
    key: str


PLACES = (
    NavigationEntry("prompts", "Prompts", "/prompts", Role.VIEWER, "p"),
    NavigationEntry("review", "Review", "/review", Role.VIEWER, "r"),
    NavigationEntry("annotate", "Annotate", "/annotate", Role.ANNOTATOR, "a"),
    NavigationEntry("feedback", "Feedback", "/feedback", Role.VIEWER, "f"),
    NavigationEntry("learning", "Learning", "/learning", Role.VIEWER, "n"),
    NavigationEntry("experiments", "Experiments", "/experiments", Role.VIEWER, "e"),
    NavigationEntry("runs", "Runs", "/runs", Role.VIEWER, "u"),
    NavigationEntry("audit", "Audit", "/audit", Role.VIEWER, "l"),
    NavigationEntry("access", "Access", "/access", Role.ADMIN, "x"),
)


def page(
    call: RequestContext,
    title: str,
    place: str,
    *body: Child,
    above: Child = None,
    status: int = 200,
    wide: bool = False,
) -> Response:
    """A page of the signed-in part: `title` is its first heading, `place` the word of the navigation entry it is in;
    `above` stands over the heading."""
    main = el("main", above, el("h1", title, tabindex=-1), *body, id="main")
    inner = [_top(call, place), main, _help()]
    return page_answer(document(f"{title}: whet", *inner, class_="wide" if wide else ""), status)


def bare(title: str, *body: Child, status: int = 200) -> Response:
    """A page for somebody who is not signed in."""
    brand = el("header", el("span", "whet", class_="home"), class_="top")
    main = el("main", el("h1", title, tabindex=-1), *body, id="main")
    return page_answer(document(f"{title}: whet", brand, main, class_="narrow-page"), status)


def document(title: str, *body: Child, class_: str = "") -> str:
    """The whole document as text."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("link", rel="icon", href=address("icon.svg"), type="image/svg+xml"),
        el("link", rel="stylesheet", href=address("report.css")),
        el("link", rel="stylesheet", href=address("page.css")),
        el("script", src=address("page.js"), defer=True),
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    return f"<!doctype html>\n{el('html', head, el('body', skip, *body, class_=class_ or None), lang='en')}\n"


def _top(call: RequestContext, place: str) -> Html:
    links = [
        el(
            "li",
            el(
                "a",
                entry.text,
                href=entry.path,
                aria_current="page" if entry.word == place else None,
                data_go=entry.key,
            ),
        )
        for entry in PLACES
        if call.may(entry.role)
    ]
    who = call.principal
    me = form(
        call,
        "/logout",
        el("span", who.name, el("small", who.role.word)),
        button("Sign out", "plain"),
        class_="me",
        label="Account",
    )
    return el(
        "header",
        el("a", "whet", href="/", class_="home"),
        el("nav", el("ul", links), aria_label="Main"),
        me,
        class_="top",
    )


def _help() -> Html:
    """Filled by the script, which knows the keys of the page."""
    return el(
        "dialog",
        el("h2", "Keys of this page", id="keys-title"),
        el("dl", class_="keys"),
        el("p", el("label", el("input", type="checkbox", id="keys-on"), " Single keys work on this device")),
        el("form", button("Close", "plain"), method="dialog"),
        id="keys",
        aria_labelledby="keys-title",
    )
