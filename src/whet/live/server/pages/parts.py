"""Pieces of the page: forms and their fields, times, marks, empty states, pagers."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode

from whet.live.database import iso
from whet.live.server.request_context import CSRF_FIELD, RequestContext
from whet.reporting.markup import Child, Html, el


def form(
    call: RequestContext,
    action: str,
    *children: Child,
    class_: str = "",
    label: str | None = None,
    main: bool = False,
) -> Html:
    """A form that sends to `action`, with the secret of the session in it. `main`: Ctrl-Enter sends it."""
    secret = "" if call.who is None else call.who.csrf
    kept = el("input", type="hidden", name=CSRF_FIELD, value=secret)
    return el(
        "form",
        kept,
        *children,
        method="post",
        action=action,
        class_=class_ or None,
        aria_label=label,
        autocomplete="off",
        data_main=main,
    )


def asking(action: str, *children: Child, label: str) -> Html:
    """A GET form: its fields become the query string."""
    return el(
        "form", *children, method="get", action=action, class_="asking", role="search", aria_label=label
    )


def raw(text: str) -> Html:
    """Text exactly as it is, for a box in which it is edited: nothing is drawn, nothing is lost."""
    return Html(html.escape(text))


def hidden(**values: str | int) -> list[Html]:
    """Fields that are sent and not shown."""
    return [el("input", type="hidden", name=name, value=value) for name, value in values.items()]


def text_input(
    name: str,
    label: Child,
    value: str = "",
    *,
    hint: str = "",
    required: bool = False,
    **more: str | int | bool | None,
) -> Html:
    """A labelled line of text."""
    return _labelled(name, label, hint, lambda hint_id: el(
        "input", type=str(more.pop("type", "text")), id=f"f-{name}", name=name, value=value, required=required,
        aria_describedby=hint_id, **more,
    ))  # fmt: skip


def text_area(
    name: str,
    label: Child,
    value: str = "",
    *,
    rows: int = 4,
    hint: str = "",
    **more: str | int | bool | None,
) -> Html:
    """A labelled box of text. The first line end belongs to HTML, not to the text."""
    return _labelled(name, label, hint, lambda hint_id: el(
        "textarea", Html("\n"), raw(value), id=f"f-{name}", name=name, rows=rows, aria_describedby=hint_id, **more
    ))  # fmt: skip


def select(
    name: str, label: Child, options: Iterable[tuple[str, str]], chosen: str = "", **more: str | bool
) -> Html:
    """A labelled choice of one value; `options` are (value, text)."""
    items = [el("option", text, value=value, selected=value == chosen) for value, text in options]
    return _labelled(name, label, "", lambda hint_id: el("select", items, id=f"f-{name}", name=name, **more))


def _labelled(name: str, label: Child, hint: str, make: object) -> Html:
    hint_id = f"h-{name}" if hint else None
    assert callable(make)
    return el(
        "div",
        el("label", label, for_=f"f-{name}"),
        make(hint_id),
        el("small", hint, id=hint_id) if hint else None,
        class_="field",
    )


def button(text: Child, kind: str = "", **more: str | int | bool | None) -> Html:
    """A button that sends its form. `kind` is a style: "main", "danger", "plain"."""
    return el("button", text, type="submit", class_=kind or None, **more)


def choice(name: str, value: str, text: Child, *, key: str = "", hint: str = "", **more: str | bool) -> Html:
    """One round button of a group, drawn as a tile; `key` presses it."""
    box = el(
        "input", type="radio", name=name, value=value, data_key=key or None, data_hint=hint or None, **more
    )
    return el("label", box, el("span", text, key_cap(key)), class_="tile")


def key_cap(key: str) -> Html | None:
    """The key that does this, for those who use keys."""
    return el("kbd", key, aria_hidden="true") if key else None


def moment(microseconds: int | None) -> Html:
    """A time in UTC, to the minute; a dash for none."""
    if microseconds is None:
        return Html("–")
    text = iso(microseconds)
    return el("time", f"{text[:10]} {text[11:16]}", datetime=text, title=f"{text} UTC")


def tag(text: str, kind: str = "") -> Html:
    """A small mark: a label, a state, a role."""
    return el("span", text, class_=f"tag {kind}".strip())


def link(text: Child, path: str, **more: str | bool | None) -> Html:
    """A link within the server."""
    return el("a", text, href=path, **more)


def path_to(*parts: str, **query: str | int | None) -> str:
    """An address of this server: parts are quoted (a `/` inside the last one stays), empty query values left out."""
    path = "/" + "/".join(quote(part, safe="/" if part is parts[-1] else "") for part in parts)
    query_string = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{query_string}" if query_string else path


def nothing(title: str, *explanation: Child) -> Html:
    """What stands where a list would be: why it is empty, and what fills it."""
    return el("div", el("p", title, class_="nothing-title"), el("p", *explanation), class_="nothing")


def pager(path: str, filters: Mapping[str, str], after: str | None, word: str = "Older") -> Html | None:
    """A link to the next page of a list; None at its end."""
    if after is None:
        return None
    query = urlencode({**{k: v for k, v in filters.items() if v and k != "after"}, "after": after})
    return el(
        "nav", el("a", f"{word} →", href=f"{path}?{query}", rel="next"), class_="pager", aria_label="Pages"
    )


def crumbs(*steps: tuple[str, str]) -> Html:
    """Where a page lies: (text, address) of everything above it."""
    return el(
        "p", [[" / " if i else "", link(text, path)] for i, (text, path) in enumerate(steps)], class_="crumbs"
    )


def listed(items: Sequence[Child], class_: str = "rows") -> Html:
    """A list without marks."""
    return el("ul", [el("li", item) for item in items], class_=class_)
