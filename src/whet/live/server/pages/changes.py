"""Changing prompts by hand: new versions, proposals, labels; and two versions beside each other."""

from __future__ import annotations

from starlette.responses import Response

from whet.errors import UsageError
from whet.live.registry import PromptEdit
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.messages import message_fields, messages_given
from whet.live.server.pages.parts import button, crumbs, form, hidden, link, path_to, text_area, text_input
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import see_other
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import check_rollback, looked_up
from whet.prompt import Prompt
from whet.reporting.diff import diff_html
from whet.reporting.layout import note
from whet.reporting.markup import Html, el, join

book = EndpointRouter()
START = "You are a helpful assistant.\n\n<!-- whet:begin -->\n<!-- whet:end -->\n\n{{input}}\n"


def whole_number(text: str, what: str) -> int:
    """The number of a version. Raises UsageError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{what} is a number from 1.")
    return int(text)


@book("GET", "/new", Role.EDITOR)
def new(call: RequestContext) -> Response:
    """The form of a new prompt."""
    entry = form(
        call,
        "/new",
        text_input(
            "name", "Name", required=True, maxlength=255, hint="Folders with /, for example shop/greeting"
        ),
        text_area(
            "text",
            "Text",
            START,
            rows=14,
            hint="{{name}} is a slot. What is learned goes between the two fence markers and nowhere else.",
        ),
        text_input("message", "What this is", maxlength=4000),
        button("Make the prompt", "main"),
    )
    return page(call, "New prompt", "prompts", entry, above=crumbs(("Prompts", "/prompts")))


@book("POST", "/new", Role.EDITOR)
def create(call: RequestContext) -> Response:
    """Make a prompt."""
    registry, name = call.house.live.registry, call.form.get("name", "").strip()
    if registry.exists(name):
        raise UsageError(f"There is a prompt {name} already. Edit it instead.")
    prompt = Prompt.parse(call.form.get("text", ""))
    made = registry.create(name, prompt, author=call.name, message=call.form.get("message", ""))
    return see_other(path_to("prompts", made.name))


@book("GET", "/edit/{name:path}", Role.EDITOR)
def edit(call: RequestContext) -> Response:
    """The form of the next version."""
    registry, name = call.house.live.registry, call.path("name")
    with looked_up():
        version = registry.get(f"{name}@{call.query_params.get('version') or 'latest'}")
    label = next((one for one in version.labels if one != "latest"), "")
    entry = form(
        call,
        path_to("edit", name),
        hidden(base=version.version),
        message_fields(version.prompt),
        text_input("message", "What changes, and why", maxlength=4000),
        text_input("label", "Label that moves when a proposal is approved", label, maxlength=36),
        el(
            "div",
            button("Propose it", "main", name="do", value="propose"),
            button("Save as a new version", name="do", value="save"),
            class_="buttons",
        ),
    )
    hint = note("A proposal is seen by somebody else before its label moves. A saved version moves no label.")
    return page(
        call,
        f"Edit {name}",
        "prompts",
        hint,
        entry,
        above=crumbs(("Prompts", "/prompts"), (name, path_to("prompts", name))),
    )


@book("POST", "/edit/{name:path}", Role.EDITOR)
def save(call: RequestContext) -> Response:
    """A new version, or a proposal."""
    registry, name = call.house.live.registry, call.path("name")
    base = whole_number(call.form.get("base", ""), "The base")
    with looked_up():
        base_version = registry.get(f"{name}/{base}")
    prompt = messages_given(call, base_version.prompt)
    if prompt is None:
        raise UsageError("The form holds no text.")
    message = call.form.get("message", "")
    if call.form.get("do") == "propose":
        label = call.form.get("label", "").strip() or None
        made = registry.propose(
            f"{name}/{base}", PromptEdit(prompt=prompt), author=call.name, message=message, label=label
        )
        return see_other(path_to("review", made.id))
    version = registry.create(name, prompt, author=call.name, message=message, parent=base)
    return see_other(path_to("prompts", name, version=version.version))


@book("POST", "/labels/{name:path}", Role.EDITOR)
def move(call: RequestContext) -> Response:
    """Move a label; for a locked one, ask somebody else to."""
    registry, name = call.house.live.registry, call.path("name")
    label, reason = call.form.get("label", "").strip(), call.form.get("reason", "")
    version = whole_number(call.form.get("version", ""), "The version")
    if registry.is_protected(name, label):
        proposal = registry.request_move(name, label, version, actor=call.name, reason=reason)
        return see_other(path_to("review", proposal.id))
    registry.move_label(name, label, version, actor=call.name, reason=reason)
    return see_other(path_to("prompts", name) + "#labels")


@book("POST", "/rollback/{name:path}", Role.EDITOR)
def roll_back(call: RequestContext) -> Response:
    """Put a label back where it stood before. A locked one needs the role approver."""
    name, label = call.path("name"), call.form.get("label", "")
    check_rollback(call, name, label)
    call.house.live.registry.rollback(name, label, actor=call.name, reason=call.form.get("reason", ""))
    return see_other(path_to("prompts", name) + "#labels")


@book("POST", "/protect/{name:path}", Role.ADMIN)
def protect(call: RequestContext) -> Response:
    """Lock a label, or unlock it."""
    registry, name = call.house.live.registry, call.path("name")
    change = registry.protect if call.form.get("protected") == "yes" else registry.unprotect
    change(name, call.form.get("label", ""), actor=call.name)
    return see_other(path_to("prompts", name) + "#labels")


@book("GET", "/compare/{name:path}", Role.VIEWER)
def compare(call: RequestContext) -> Response:
    """Two versions beside each other, by line and by word."""
    registry, name = call.house.live.registry, call.path("name")
    before = whole_number(call.query_params.get("before", ""), "The older version")
    after = whole_number(call.query_params.get("after", ""), "The newer version")
    with looked_up():
        diff = registry.diff(f"{name}/{before}", f"{name}/{after}")
    same = diff.before.prompt == diff.after.prompt
    return page(
        call,
        f"Version {before} and version {after}",
        "prompts",
        _changed(diff.changes) if diff.changes else None,
        note("Both have the same text.")
        if same
        else diff_html(diff.before.prompt.source, diff.after.prompt.source),
        el("p", link("The other way round", path_to("compare", name, before=after, after=before))),
        above=crumbs(("Prompts", "/prompts"), (name, path_to("prompts", name))),
    )


def _changed(changes: object) -> Html:
    assert isinstance(changes, dict)
    rows = [
        el(
            "li",
            el("b", f"{change.id} "),
            diff_html(change.before, change.after, f"Change of {change.id}")
            if change.before is not None and change.after is not None
            else join(
                el("span", "new: " if change.before is None else "removed: "), change.after or change.before
            ),
            el("small", change.reason) if change.reason else None,
            dir="auto",
        )
        for group in changes.values()
        for change in group
    ]
    return el("section", el("h2", "Instructions that differ"), el("ul", rows, class_="changed"))
