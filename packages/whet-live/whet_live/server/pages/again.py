"""A form that was refused is shown again: the message, and every field as it was sent, so that nothing typed is lost.

Each route that takes a form names the page on which the form stands. That page is drawn anew, with a new secret of the
session, and what was sent is put into its form. Where the page cannot be drawn, or no longer holds the form, the fields
stand in a plain form.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from starlette.responses import Response

from whet.reporting import Html, el
from whet_live.server.endpoint import Handler
from whet_live.server.pages import ui
from whet_live.server.request_context import CSRF_FIELD, RequestContext
from whet_live.server.responses import Refused, Unconfirmed, page_answer

ANCHOR = "refused-form"
CONFIRM = "confirm"
"""The field of a form that names the change which its sender confirms."""
_SHORT = 120
"""Characters that a plain form shows in a line; a longer text gets a box."""
_UNTOUCHED = frozenset({"password", "submit", "button", "file", "reset"})

Lists = Mapping[str, Sequence[str]]
Attributes = list[tuple[str, str | None]]


def refused_form(call: RequestContext, page: Handler | None, error: Refused) -> Response:
    """The page with the message and the form as it was sent. It never fails: the last resort is a plain form, which is all
    there is without a page."""
    try:
        lists = call.form_lists
    except Refused:  # more fields than a form may have, or no text
        return ui.refused_page(error)
    drawn = "" if call.who is None or page is None else _draw(call, page)
    if not drawn:
        way = error.status == 401 and el(
            "p", ui.link("Sign in in another tab", "/login", target="_blank"), ", then send it again here."
        )
        drawn = bytes(ui.bare_page("Not sent", way).body).decode()
    answer = page_answer(refill(call, drawn, lists, error), error.status)
    answer.headers.update(error.headers)
    return answer


def _draw(call: RequestContext, page: Handler) -> str:
    """The page; empty where it cannot be drawn, whatever the reason: what was sent is shown all the same."""
    try:
        shown = page(call)
    except Exception:
        return ""
    return bytes(shown.body).decode() if isinstance(shown, Response) and shown.status_code == 200 else ""


def refill(call: RequestContext, page: str, lists: Lists, error: Refused) -> str:
    """A page with the message below its heading, and what was sent in the form that it was sent by."""
    path = str(call.request.scope["path"])
    form = _Forms(page).sent_by(path, lists)
    kept = el("a", "What you sent is kept below.", href=f"#{ANCHOR}")
    alert = el("p", error.message, " ", kept, class_="alert", role="alert")
    heading = page.find("</h1>")
    top = heading + len("</h1>") if heading >= 0 else page.index("<main")
    question = _question(error)
    if form is None:
        plain = _plain_form(call, path, lists, question)
        return page[:top] + str(alert) + str(plain) + page[top:]
    edits = [(top, top, str(alert)), *_edits(form, lists, question)]
    for start, stop, text in sorted(edits, reverse=True):
        page = page[:start] + text + page[stop:]
    return page


def _question(error: Refused) -> Html | None:
    """The box by which somebody confirms what the refusal asks."""
    if not isinstance(error, Unconfirmed):
        return None
    box = el("input", type="checkbox", name=CONFIRM, value=error.value, required=True)
    return el("p", el("label", box, f" {error.label}", class_="keep"), class_="alert")


def _plain_form(call: RequestContext, path: str, lists: Lists, question: Html | None) -> Html:
    """The fields under their names, those that were typed in boxes."""
    fields = [
        (ui.text_area if "\n" in value or len(value) > _SHORT else ui.text_input)(name, name, value)
        for name, values in lists.items()
        for value in values
        if name not in (CSRF_FIELD, CONFIRM)
    ]
    send = ui.button("Send it again", "main")
    return ui.form(call, ui.path_to(path.removeprefix("/")), question, fields, send, id=ANCHOR)


@dataclass
class _Control:
    """A field of a form: its tag from `start` to `stop`, for a box the `text` from `stop` to `end`, and what folds it away."""

    tag: str
    start: int
    stop: int
    attributes: Attributes
    folds: tuple[_Control, ...] = ()
    name: str = ""
    end: int = 0
    text: str = ""

    def get(self, name: str) -> str | None:
        """The value of an attribute; None where it is not there."""
        return next((value or "" for key, value in self.attributes if key == name), None)


@dataclass
class _Form(_Control):
    controls: list[_Control] = field(default_factory=list)

    @property
    def hidden(self) -> dict[str, str]:
        """The hidden fields of the form."""
        return {
            one.name: one.get("value") or ""
            for one in self.controls
            if one.get("type") == "hidden" and one.name != CSRF_FIELD
        }


class _Forms(HTMLParser):
    """The forms of a page that the server drew, with the places of their fields."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._page = page
        self._lines = [0, *(i + 1 for i, letter in enumerate(page) if letter == "\n")]
        self.forms: list[_Form] = []
        self._form: _Form | None = None
        self._folds: list[_Control] = []
        self._select = ""
        self.feed(page)
        self.close()

    def sent_by(self, path: str, lists: Lists) -> _Form | None:
        """The form that sends these fields to that path: all that it does not show is among them."""
        for form in self.forms:
            action = unquote(urlsplit(form.get("action") or "").path)
            same = all(lists.get(name, [""])[-1] == value for name, value in form.hidden.items())
            if form.get("method") == "post" and action == path and same:
                return form
        return None

    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        """A form begins, or a field of one."""
        start = self._at()
        stop = start + len(self.get_starttag_text() or "")
        if tag == "details":
            self._folds.append(_Control(tag, start, stop, attrs))
        elif tag == "form":
            self._form = _Form(tag, start, stop, attrs, tuple(self._folds))
            self.forms.append(self._form)
        elif tag == "select":
            self._select = dict(attrs).get("name") or ""
        elif tag in ("input", "textarea", "option") and self._form is not None:
            name = self._select if tag == "option" else dict(attrs).get("name") or ""
            control = _Control(tag, start, stop, attrs, tuple(self._folds), name)
            self._form.controls.append(control)

    def handle_endtag(self, tag: str) -> None:
        """A form ends, or a box of text."""
        if tag == "details" and self._folds:
            self._folds.pop()
        elif tag == "form":
            self._form = None
        elif tag == "textarea" and self._form is not None:
            box = self._form.controls[-1]
            box.end = self._at()
            box.text = html.unescape(self._page[box.stop : box.end]).removeprefix("\n")


def _edits(form: _Form, lists: Lists, question: Html | None) -> list[tuple[int, int, str]]:
    """The edits of the page, as (start, stop, text), by which the form holds the sent values and asks the needed question."""
    edits = [(form.start, form.stop, _write_tag(form, id=ANCHOR) + (str(question) if question else ""))]
    opened = {one.start: one for one in form.folds}
    for control in form.controls:
        edit = _fill_field(control, lists)
        if edit is not None:
            edits.append(edit)
            if control.get("type") != "hidden":
                opened |= {one.start: one for one in control.folds}
    return edits + [(one.start, one.stop, _write_tag(one, open="")) for one in opened.values()]


def _fill_field(control: _Control, lists: Lists) -> tuple[int, int, str] | None:
    """The edit that gives a field what was sent; None where it holds that already."""
    values, kind = lists.get(control.name), control.get("type") or "text"
    if control.tag == "option" or kind in ("checkbox", "radio"):
        mark = "selected" if control.tag == "option" else "checked"
        wanted = (control.get("value") or "") in (values or ())
        if wanted == (control.get(mark) is not None):
            return None
        return control.start, control.stop, _write_tag(control, **{mark: "" if wanted else None})
    if values is None or kind in _UNTOUCHED or control.name == CSRF_FIELD:
        return None
    if control.tag == "textarea":
        text = "\n" + html.escape(values[-1])
        return None if values[-1] == control.text else (control.stop, control.end, text)
    if control.get("value") == values[-1]:
        return None
    return control.start, control.stop, _write_tag(control, value=values[-1])


def _write_tag(control: _Control, **changed: str | None) -> str:
    """The tag with attributes changed; None takes one away."""
    attributes = {name: value or "" for name, value in control.attributes} | changed
    parts = [f' {name}="{html.escape(value)}"' for name, value in attributes.items() if value is not None]
    return f"<{control.tag}{''.join(parts)}>"
