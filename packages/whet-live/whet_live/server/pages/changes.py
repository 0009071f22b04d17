"""Changing prompts by hand: new versions, proposals, labels, patterns of failures; and two versions beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from starlette.responses import Response

from whet.prompt import Change, Prompt
from whet.reporting import Html, diff_html, el, note
from whet.types import Message, content_hash
from whet_live.registry import PromptEdit, slot_warnings
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.again import CONFIRM
from whet_live.server.pages.prompts import show
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, Unconfirmed, or_404, see_other
from whet_live.server.roles import Role
from whet_live.server.v1.prompts import check_rollback

router = EndpointRouter()
START = "You are a helpful assistant.\n\n<!-- whet:begin -->\n<!-- whet:end -->\n\n{{input}}\n"
ABOVE = ("Prompts", "/prompts")
_ONLY_ROLE = "auto"


def message_fields(prompt: Prompt) -> list[Html]:
    """One box of text for each message."""
    titles = [
        "Text" if message.role == _ONLY_ROLE else f"Text of the {message.role} message"
        for message in prompt.messages
    ]
    return [
        ui.text_area(f"message-{i}", title, message.content, rows=14)
        for i, (title, message) in enumerate(zip(titles, prompt.messages, strict=True))
    ]


def prompt_in_form(call: RequestContext, base: Prompt) -> Prompt | None:
    """The prompt that the form holds, with the roles and line ends of `base`; None when the form holds none.

    Browsers send every line end as CR LF; where the base has only such, they stay. Raises UsageError for a broken fence.
    """
    messages: list[Message] = []
    for i, message in enumerate(base.messages):
        text = call.form.get(f"message-{i}")
        if text is None:
            return None
        if "\r\n" in message.content and message.content.count("\r\n") == message.content.count("\n"):
            text = text.replace("\n", "\r\n")
        messages.append(replace(message, content=text))
    if [message.role for message in messages] == [_ONLY_ROLE]:
        return Prompt.parse(messages[0].content)
    return Prompt.from_messages(tuple(messages))


@router("GET", "/new", Role.EDITOR)
def new(call: RequestContext) -> Response:
    """The form of a new prompt."""
    name_hint = "Folders with /, for example shop/greeting"
    text_hint = "{{name}} is a slot. What is learned goes between the two fence markers and nowhere else."
    entry = ui.form(
        call,
        "/new",
        ui.text_input("name", "Name", required=True, maxlength=255, hint=name_hint),
        ui.text_area("text", "Text", START, rows=14, hint=text_hint),
        ui.text_input("message", "What this is", maxlength=4000),
        ui.button("Make the prompt", "main"),
    )
    return ui.page(call, "New prompt", "prompts", entry, above=[ABOVE])


@router("POST", "/new", Role.EDITOR, form=new)
def create(call: RequestContext) -> Response:
    """Make a prompt."""
    registry, name = call.state.live.registry, call.form.get("name", "").strip()
    if registry.exists(name):
        raise Refused(400, f"There is a prompt {name} already. Edit it instead.")
    prompt = Prompt.parse(call.form.get("text", ""))
    made = registry.create(name, prompt, author=call.name, message=call.form.get("message", ""))
    return see_other(ui.path_to("prompts", made.name))


@router("GET", "/edit/{name:path}", Role.EDITOR)
def edit(call: RequestContext) -> Response:
    """The form of the next version."""
    return _edit(call, call.query_params.get("version") or "latest")


def _edit(call: RequestContext, wanted: str) -> Response:
    name = call.path("name")
    version = or_404(call.state.live.registry.get, f"{name}@{wanted}")
    label = next((one for one in version.labels if one != "latest"), "")
    entry = ui.form(
        call,
        ui.path_to("edit", name),
        ui.hidden_fields(base=version.version),
        message_fields(version.prompt),
        ui.text_input("message", "What changes, and why", maxlength=4000),
        ui.text_input("label", "Label that moves when a proposal is approved", label, maxlength=36),
        ui.buttons(
            ui.button("Propose it", "main", name="do", value="propose"),
            ui.button("Save as a new version", name="do", value="save"),
        ),
    )
    hint = "A proposal is seen by somebody else before its label moves. A saved version moves no label."
    above = [ABOVE, (name, ui.path_to("prompts", name))]
    return ui.page(call, f"Edit {name}", "prompts", note(hint), entry, above=above)


def _edit_again(call: RequestContext) -> Response:
    return _edit(call, call.form.get("base", ""))


@router("POST", "/edit/{name:path}", Role.EDITOR, form=_edit_again)
def save(call: RequestContext) -> Response:
    """A new version, or a proposal."""
    registry, name = call.state.live.registry, call.path("name")
    base = ui.whole_number(call.form.get("base", ""), "The base")
    prompt = prompt_in_form(call, or_404(registry.get, f"{name}/{base}").prompt)
    if prompt is None:
        raise Refused(400, "The form holds no text.")
    confirm_changed_slots(call, name, prompt)
    message = call.form.get("message", "")
    if call.form.get("do") == "propose":
        label, edited = call.form.get("label", "").strip() or None, PromptEdit(prompt=prompt)
        made = registry.propose(f"{name}/{base}", edited, author=call.name, message=message, label=label)
        return see_other(ui.path_to("review", made.id))
    version = registry.create(name, prompt, author=call.name, message=message, parent=base)
    return see_other(ui.path_to("prompts", name, version=version.version))


def confirm_changed_slots(call: RequestContext, name: str, prompt: Prompt) -> None:
    """Raises Unconfirmed (409) where a text has other slots than the version that applications get, until the form says that
    this is meant."""
    warnings = slot_warnings(call.state.live.registry.current(name), prompt)
    value = content_hash(warnings)[:16]
    if warnings and call.form.get(CONFIRM) != value:
        raise Unconfirmed(
            "Not saved yet. " + " ".join(warnings), "The slots change on purpose: save it so.", value
        )


@router("POST", "/labels/{name:path}", Role.EDITOR, form=show)
def move(call: RequestContext) -> Response:
    """Move a label; for a locked one, ask somebody else to."""
    registry, name = call.state.live.registry, call.path("name")
    label, reason = call.form.get("label", "").strip(), call.form.get("reason", "")
    version = ui.whole_number(call.form.get("version", ""), "The version")
    if registry.is_protected(name, label):
        proposal = registry.request_move(name, label, version, actor=call.name, reason=reason)
        return see_other(ui.path_to("review", proposal.id))
    registry.move_label(name, label, version, actor=call.name, reason=reason)
    return _to_labels(name)


@router("POST", "/rollback/{name:path}", Role.EDITOR, form=show)
def roll_back(call: RequestContext) -> Response:
    """Put a label back where it stood before. A locked one needs the role approver."""
    name, label = call.path("name"), call.form.get("label", "")
    check_rollback(call, name, label)
    call.state.live.registry.rollback(name, label, actor=call.name, reason=call.form.get("reason", ""))
    return _to_labels(name)


@router("POST", "/protect/{name:path}", Role.ADMIN, form=show)
def protect(call: RequestContext) -> Response:
    """Lock a label, or unlock it."""
    registry, name = call.state.live.registry, call.path("name")
    change = registry.protect if call.form.get("protected") == "yes" else registry.unprotect
    change(name, call.form.get("label", ""), actor=call.name)
    return _to_labels(name)


@router("POST", "/patterns/{name:path}", Role.EDITOR, form=show)
def rename_failure(call: RequestContext) -> Response:
    """Give a pattern of failures another name and, where it was changed, another description: an unchanged one stays the words of
    the reader, which go with the critiques that they were written from."""
    learner, name, key = call.state.live.learner, call.path("name"), call.form.get("key", "")
    or_404(call.state.live.registry.labels, name)
    before = next((one.description for one in learner.patterns(name).patterns if one.id == key), "")
    description = call.form.get("description", "").strip()
    learner.rename_pattern(
        name,
        key,
        call.form.get("name", ""),
        description=None if description == before.strip() else description,
        actor=call.name,
        reason=call.form.get("reason", ""),
    )
    return _to_patterns(name)


@router("POST", "/pattern-merges/{name:path}", Role.EDITOR, form=show)
def merge_failures(call: RequestContext) -> Response:
    """Make a pattern of failures a part of another one. It cannot be undone, so the form is asked to confirm it."""
    name, key, into = call.path("name"), call.form.get("key", ""), call.form.get("into", "")
    or_404(call.state.live.registry.labels, name)
    if not into:
        raise Refused(400, f"Choose the pattern of which {key[:40]} becomes a part.")
    if call.form.get(CONFIRM) != f"{key} {into}":
        question = f"{key[:40]} becomes a part of {into[:40]}."
        raise Unconfirmed("Not merged yet: a merge cannot be undone.", question, f"{key} {into}")
    call.state.live.learner.merge_patterns(
        name, key, into, actor=call.name, reason=call.form.get("reason", "")
    )
    return _to_patterns(name)


def _to_patterns(name: str) -> Response:
    return see_other(ui.path_to("prompts", name) + "#patterns")


def _to_labels(name: str) -> Response:
    return see_other(ui.path_to("prompts", name) + "#labels")


@router("GET", "/compare/{name:path}", Role.VIEWER)
def compare(call: RequestContext) -> Response:
    """Two versions beside each other, by line and by word."""
    name, params = call.path("name"), call.query_params
    before = ui.whole_number(params.get("before", ""), "The older version")
    after = ui.whole_number(params.get("after", ""), "The newer version")
    diff = or_404(call.state.live.registry.diff, f"{name}/{before}", f"{name}/{after}")
    old, new = diff.before.prompt, diff.after.prompt
    return ui.page(
        call,
        f"Version {before} and version {after}",
        "prompts",
        diff.changes and _list_changes(diff.changes),
        note("Both have the same text.") if old == new else diff_html(old.source, new.source),
        el("p", ui.link("The other way round", ui.path_to("compare", name, before=after, after=before))),
        above=[ABOVE, (name, ui.path_to("prompts", name))],
    )


def _list_changes(changes: Mapping[str, Sequence[Change]]) -> Html:
    rows = [_change(change) for group in changes.values() for change in group]
    return ui.section("Instructions that differ", el("ul", rows, class_="changed"))


def _change(change: Change) -> Html:
    if change.before is None or change.after is None:
        sign = "new: " if change.before is None else "removed: "
        body = [el("span", sign), change.after or change.before]
    else:
        body = [diff_html(change.before, change.after, f"Change of {change.id}")]
    reason = change.reason and el("small", change.reason)
    return el("li", el("b", f"{change.id} "), body, reason, dir="auto")
