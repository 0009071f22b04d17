"""The parts of every page: its frame, forms and their fields, rows of lists, marks, empty states, pagers."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.responses import Response

from whet.errors import UsageError
from whet.reporting import Child, Html, el, join, prose
from whet_live.database import iso
from whet_live.registry import EXPERIMENT
from whet_live.server.pages.assets import address
from whet_live.server.request_context import CSRF_FIELD, RequestContext
from whet_live.server.responses import Refused, page_answer
from whet_live.server.roles import Role

NAV_ITEMS = (
    ("", "Overview", Role.VIEWER, "o"),
    ("prompts", "Prompts", Role.VIEWER, "p"),
    ("review", "Review", Role.VIEWER, "r"),
    ("annotate", "Annotate", Role.ANNOTATOR, "a"),
    ("answers", "Answers", Role.VIEWER, "w"),
    ("feedback", "Feedback", Role.VIEWER, "f"),
    ("learning", "Learning", Role.VIEWER, "n"),
    ("experiments", "Experiments", Role.VIEWER, "e"),
    ("runs", "Runs", Role.VIEWER, "u"),
    ("audit", "Audit", Role.VIEWER, "l"),
    ("access", "Access", Role.ADMIN, "x"),
)
"""The main navigation: path without its slash, text, the role it needs, the key after `g`."""

Attribute = str | int | bool | None


def page(
    call: RequestContext,
    title: str,
    place: str,
    *body: Child,
    above: Iterable[tuple[str, str]] = (),
    wide: bool = False,
) -> Response:
    """A page of the signed-in part: `title` is its first heading, `place` the entry of the navigation that it is in,
    `above` are (text, address) of what it lies below."""
    steps = [[" / " if i else "", link(text, path)] for i, (text, path) in enumerate(above)]
    main = el("main", steps and el("p", steps, class_="crumbs"), _heading(title), *body, id="main")
    return page_answer(_document(title, _top(call, place), main, _help(), class_="wide" if wide else None))


def bare_page(title: str, *body: Child, status: int = 200, onward: str | None = None) -> Response:
    """A page for somebody who is not signed in. `onward`: the page of this server that the browser opens next, by itself."""
    brand = el("header", el("span", "whet", class_="home"), class_="top")
    main = el("main", _heading(title), *body, id="main")
    return page_answer(_document(title, brand, main, class_="narrow-page", onward=onward), status)


def refused_page(error: Refused) -> Response:
    """The event and the next step. The page shows nothing of the server: the reader may be a stranger."""
    reason, home = el("p", error.message, class_="reason"), el("p", link("To the first page", "/"))
    answer = bare_page(HTTPStatus(error.status).phrase, reason, home, status=error.status)
    answer.headers.update(error.headers)
    return answer


def _heading(title: str) -> Html:
    return el("h1", title, tabindex=-1)


def _document(title: str, *body: Child, class_: str | None, onward: str | None = None) -> str:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        onward and el("meta", http_equiv="refresh", content=f"0; url={onward}"),
        el("title", f"{title}: whet"),
        el("link", rel="icon", href=address("icon.svg"), type="image/svg+xml"),
        el("link", rel="stylesheet", href=address("report.css")),
        el("link", rel="stylesheet", href=address("page.css")),
        el("script", src=address("page.js"), defer=True),
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    return f"<!doctype html>\n{el('html', head, el('body', skip, *body, class_=class_), lang='en')}\n"


def _top(call: RequestContext, place: str) -> Html:
    links = [
        el("li", link(text, f"/{word}", aria_current="page" if word == place else None, data_go=key))
        for word, text, role, key in NAV_ITEMS
        if call.may(role)
    ]
    who = el("span", call.name, el("small", call.principal.role.word))
    me = form(call, "/logout", who, button("Sign out", "plain"), class_="me", label="Account")
    nav = el("nav", el("ul", links), aria_label="Main")
    return el("header", link("whet", "/", class_="home"), nav, me, class_="top")


def _help() -> Html:
    """Filled by the script, which knows the keys of the page."""
    switch = el("label", el("input", type="checkbox", id="keys-on"), " Single keys work on this device")
    return el(
        "dialog",
        el("h2", "Keys of this page", id="keys-title"),
        el("dl", class_="keys"),
        el("p", switch),
        el("form", button("Close", "plain"), method="dialog"),
        id="keys",
        aria_labelledby="keys-title",
    )


def form(
    call: RequestContext,
    action: str,
    *children: Child,
    class_: str | None = None,
    label: str | None = None,
    main: bool = False,
    id: str | None = None,
) -> Html:
    """A form that sends to `action`, with the secret of the session in it. `main`: Ctrl-Enter sends it."""
    secret = hidden_fields(**{CSRF_FIELD: "" if call.who is None else call.who.csrf})
    return el("form", secret, *children, method="post", action=action, id=id, class_=class_, aria_label=label,
              autocomplete="off", data_main=main)  # fmt: skip


def search_form(action: str, *children: Child, label: str, word: str = "Search") -> Html:
    """A GET form: its fields become the query string."""
    return el("form", *children, button(word), method="get", action=action, class_="asking", role="search",
              aria_label=label)  # fmt: skip


def hidden_fields(**values: str | int) -> list[Html]:
    """Fields that are sent and not shown."""
    return [el("input", type="hidden", name=name, value=value) for name, value in values.items()]


def text_input(
    name: str, label: Child, value: str = "", *, hint: str = "", type: str = "text", **more: Attribute
) -> Html:
    """A labelled line of text."""
    return _label_field(name, label, hint, lambda hint_id: el(
        "input", type=type, id=f"f-{name}", name=name, value=value, aria_describedby=hint_id, **more
    ))  # fmt: skip


def text_area(
    name: str, label: Child, value: str = "", *, rows: int = 4, hint: str = "", **more: Attribute
) -> Html:
    """A labelled box of text, which is edited exactly as it is. The first line end belongs to HTML, not to the text."""
    raw = Html(html.escape(value))
    return _label_field(name, label, hint, lambda hint_id: el(
        "textarea", Html("\n"), raw, id=f"f-{name}", name=name, rows=rows, aria_describedby=hint_id, **more
    ))  # fmt: skip


def select(name: str, label: Child, choices: Iterable[tuple[str, str]], chosen: str = "") -> Html:
    """A labelled choice of one value; `choices` are (value, text)."""
    items = select_choices(choices, chosen)
    return _label_field(name, label, "", lambda hint_id: el("select", items, id=f"f-{name}", name=name))


def select_choices(choices: Iterable[tuple[str, str]], chosen: str) -> list[Html]:
    """The choices of a select box."""
    return [el("option", text, value=value, selected=value == chosen) for value, text in choices]


def _label_field(name: str, label: Child, hint: str, make: Callable[[str | None], Html]) -> Html:
    hint_id = f"h-{name}" if hint else None
    return el(
        "div",
        el("label", label, for_=f"f-{name}"),
        make(hint_id),
        hint and el("small", hint, id=hint_id),
        class_="field",
    )


def button(text: Child, kind: str | None = None, **more: Attribute) -> Html:
    """A button that sends its form. `kind` is a style: "main", "danger", "plain"."""
    return el("button", text, type="submit", class_=kind, **more)


def buttons(*children: Child) -> Html:
    """Buttons beside each other."""
    return el("div", *children, class_="buttons")


def tiles(legend: str, *children: Child, class_: str = "tiles") -> Html:
    """A group of choices with its question."""
    return el("fieldset", el("legend", legend), el("div", *children, class_=class_))


def tile(name: str, value: str | int, text: Child, *, key: str = "", **more: Attribute) -> Html:
    """One round button of a group, drawn as a tile; `key` presses it."""
    box = el("input", type="radio", name=name, value=value, data_key=key or None, **more)
    return el("label", box, el("span", text), class_="tile")


def key_cap(key: str) -> Html:
    """The key that does this, for those who use keys."""
    return el("kbd", key, aria_hidden="true")


def moment(microseconds: int | None, *, seconds: bool = False) -> Html:
    """A time in UTC, to the minute or to the second; a dash for none."""
    if microseconds is None:
        return Html("–")
    text = iso(microseconds)
    clock = text[11:19] if seconds else text[11:16]
    return el("time", f"{text[:10]} {clock}", datetime=text, title=f"{text} UTC")


def tag(text: str, kind: str = "") -> Html:
    """A small mark: a label, a state, a role."""
    return el("span", text, class_=f"tag {kind}".strip())


def link(text: Child, path: str, **more: Attribute) -> Html:
    """A link within the server."""
    return el("a", text, href=path, **more)


def button_link(text: Child, path: str, key: str | None = None) -> Html:
    """A link that looks like a button; `key` follows it."""
    return link(text, path, class_="button", data_key=key)


def path_to(*parts: str, **query: str | int | None) -> str:
    """An address of this server: parts are quoted (a `/` inside the last one stays), empty query values left out."""
    path = "/" + "/".join(quote(part, safe="/" if part is parts[-1] else "") for part in parts)
    query_string = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{query_string}" if query_string else path


def nothing(title: str, *explanation: Child) -> Html:
    """The text in place of an empty list: why it is empty, and how it is filled."""
    return el("div", el("p", title, class_="nothing-title"), el("p", *explanation), class_="nothing")


def pager(path: str, next_page: str | None, word: str = "Older") -> Html | None:
    """A link to the next page of a list, at `path`; None at its end."""
    if next_page is None:
        return None
    return el("nav", link(f"{word} →", path, rel="next"), class_="pager", aria_label="Pages")


def stack_rows(rows: Iterable[Child], empty: Child = None) -> Child:
    """Rows under each other; `empty` where there are none."""
    items = [el("li", row) for row in rows]
    return el("ul", items, class_="rows") if items else empty


def row(what: Child, *more: Child, sub: Child = None) -> Html:
    """A row of a list: its subject, with a smaller line below, and the elements beside it."""
    below = sub and el("small", sub, dir="auto")
    return join(el("span", what, below, class_="what"), *more)


def name_link(text: Child, path: str) -> Html:
    """The link of a row, found by the keys for the next and the previous row."""
    return link(text, path, class_="name", data_row=True)


def aside(*children: Child) -> Html:
    """A smaller fact at the side of a row."""
    return el("span", *children, class_="side")


def tags(*marks: Child) -> Html:
    """Marks beside each other."""
    return el("span", *marks, class_="tags")


def by_line(actor: str, at: int) -> Html:
    """The actor and the time of an action."""
    key = actor.removeprefix(EXPERIMENT)
    who = actor if key == actor else link("an experiment", path_to("experiments", key))
    return aside(who, " · ", moment(at))


def quotes(texts: Iterable[Child]) -> Html:
    """Words of people, one below the other."""
    return el("ul", [el("li", text, dir="auto") for text in texts], class_="quotes")


def card(title: Child, *body: Child, kind: str = "", status: bool = False) -> Html:
    """A box that stands out; `kind` is good or bad, `status` says that it tells how things stand."""
    return el("div", el("h2", title), *body, class_=f"card {kind}".strip(), role="status" if status else None)


def section(title: Child, *body: Child, id: str | None = None) -> Html:
    """A part of a page under its heading."""
    return el("section", el("h2", title), *body, id=id)


def reason(text: str | None) -> Child:
    """The words that somebody gave for a change; nothing where there are none."""
    return text and prose(text, class_="reason")


def whole_number(text: str, what: str, least: int = 1) -> int:
    """The number in a field. Raises UsageError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise UsageError(f"{what} is a number from {least}.")
    return int(text)
