"""The review queue: what waits for somebody, decided one instruction at a time by somebody else than its author."""

from __future__ import annotations

from starlette.responses import Response

from whet.prompt import Change, Prompt
from whet.reporting import (
    Child,
    Html,
    details,
    diff_html,
    el,
    facts,
    join,
    note,
    number_format,
    prompt_text,
    prose,
)
from whet_live.registry import Decision, Proposal, ProposalUnit, Version, slot_warnings
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.changes import confirm_changed_slots, message_fields, prompt_in_form
from whet_live.server.pages.evidence import evidence_section, facts_line, gate_card, probes_section, support
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, or_404, see_other
from whet_live.server.roles import Role

router = EndpointRouter()
LISTED = 40
STATES = ("open", "approved", "edited", "rejected", "withdrawn")
KINDS_OF_STATE = {"open": "live", "approved": "good", "rejected": "bad"}


@router("GET", "/review", Role.VIEWER)
def queue(call: RequestContext) -> Response:
    """Proposals in a state, the newest first."""
    state, before = call.query_params.get("state", "open"), call.query_params.get("before") or None
    state = state if state in STATES else "open"
    proposals = call.state.live.registry.proposals(state=state, before=before, limit=LISTED)
    tabs = [
        ui.link(
            one.capitalize(), ui.path_to("review", state=one), aria_current="true" if one == state else None
        )
        for one in STATES
    ]
    nav = el("nav", el("ul", [el("li", tab) for tab in tabs]), aria_label="States", class_="tabs")
    hint = "Proposals come from learning, from editors, and from requests to move a locked label."
    empty = ui.nothing("Nothing waits.", hint)
    if state != "open":
        empty = ui.nothing(f"Nothing was {state} yet.")
    rows = ui.stack_rows((_row(call, one) for one in proposals.items), empty)
    older = ui.pager(ui.path_to("review", state=state, before=proposals.after), proposals.after)
    return ui.page(call, "Review", "review", nav, rows, older)


def _row(call: RequestContext, proposal: Proposal) -> Html:
    what = "whole text"
    if proposal.target is not None:
        what = "move of a label"
    elif proposal.units:
        what = number_format.plural(len(proposal.units), "instruction")
    moves = proposal.label and ui.tag(f"→ {proposal.label}", "live")
    return ui.row(
        ui.name_link(proposal.name, ui.path_to("review", proposal.id)),
        ui.tags(moves, proposal.author == call.name and ui.tag("yours")),
        ui.aside(what),
        ui.by_line(proposal.author, proposal.created),
        sub=proposal.message or what,
    )


@router("GET", "/review/{id}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One proposal: what changes, the evidence, its author, and the form to decide."""
    registry = call.state.live.registry
    proposal = or_404(registry.proposal, call.path("id"))
    name, is_open = proposal.name, proposal.state == "open"
    base = registry.get(f"{name}/{proposal.base}")
    stale = registry.out_of_date(proposal) if is_open else ""
    title = f"Change to {name}"
    if proposal.target is not None:
        title = f"Move {proposal.label} to version {proposal.target}"
    return ui.page(
        call,
        title,
        "review",
        _head(proposal),
        ui.reason(proposal.message),
        stale
        and ui.card("Out of date", el("p", f"{stale} It can only be rejected."), kind="bad", status=True),
        not is_open and _outcome(proposal),
        is_open
        and [
            el("p", text, class_="alert") for text in slot_warnings(registry.current(name), proposal.prompt)
        ],
        proposal.gate and gate_card(proposal.gate),
        not proposal.units and _whole(proposal, base),
        _decision(call, proposal, bool(stale)) if is_open else _changes(call, proposal),
        bool(proposal.units) and _whole(proposal, base),
        evidence_section(proposal.evidence, proposal.run),
        above=[("Review", "/review"), (name, ui.path_to("prompts", name))],
    )


def _head(proposal: Proposal) -> Html:
    name, base = proposal.name, proposal.base
    version = ui.link(f"{name} version {base}", ui.path_to("prompts", name, version=base))
    return facts(
        [
            ("State", ui.tag(proposal.state, KINDS_OF_STATE.get(proposal.state, ""))),
            ("Proposed by", join(proposal.author, ", ", ui.moment(proposal.created))),
            ("On version", version),
            ("Then", f"the label {proposal.label} moves there" if proposal.label else "no label moves"),
        ]
    )


def _outcome(proposal: Proposal) -> Html:
    there = ui.path_to("prompts", proposal.name, version=proposal.version)
    moved = f"{proposal.label} moved to " if proposal.target is not None else "It became "
    made = proposal.version is not None and el("p", moved, ui.link(f"version {proposal.version}", there), ".")
    onward = proposal.successor and ui.link("the edited proposal", ui.path_to("review", proposal.successor))
    left_out = [u.id for u in proposal.units if proposal.kept is not None and u.id not in proposal.kept]
    reason = proposal.reason or ""
    return ui.card(
        f"{proposal.state.capitalize()} by {proposal.decider}",
        prose(ui.moment(proposal.decided), ": " if reason else "", reason),
        made,
        onward and el("p", "It went on as ", onward, "."),
        bool(left_out) and el("p", f"Left out: {', '.join(left_out)}."),
        kind="good" if proposal.state in ("approved", "edited") else "bad",
    )


def _decision(call: RequestContext, proposal: Proposal, stale: bool) -> Html:
    path, own = ui.path_to("review", proposal.id), proposal.author == call.name
    if not call.may(Role.APPROVER) and not own:
        return join(_changes(call, proposal), note("Deciding needs the role approver."))
    if own:
        box = ui.text_area("reason", "Why you take it back", rows=2, maxlength=4000)
        button = ui.button("Take it back", "danger", name="verdict", value="withdraw")
        rule = note("You made this proposal. Somebody else approves it, so that two people have seen it.")
        withdraw = call.may(Role.EDITOR) and ui.form(call, path, box, ui.buttons(button))
        return join(_changes(call, proposal), rule, withdraw)
    shaped = call.state.live.registry.refusal(proposal, call.name)
    whole = proposal.target is None and not proposal.units
    hint = "Needed to reject; it is shown to the author and kept."
    keys = {"data_key": "r", "data_hint": "Write a reason"}
    reason = ui.text_area("reason", "Reason", rows=2, maxlength=4000, hint=hint, **keys)
    return ui.form(
        call,
        path,
        shaped and note(f"{shaped}. Somebody else approves it; you may reject it."),
        _changes(call, proposal, decides=True),
        whole and details("Edit the text first", message_fields(proposal.prompt)),
        el("div", reason, _verdicts(proposal, stale or bool(shaped)), class_="decision-bar"),
        class_="decision",
        label="Decision",
    )


def _verdicts(proposal: Proposal, only_reject: bool) -> Html:
    def verdict(text: Child, value: str, kind: str | None, key: str, hint: str | None = None) -> Html:
        disabled = only_reject and value != "reject"
        return ui.button(
            text, kind, name="verdict", value=value, disabled=disabled, data_key=key, data_hint=hint
        )

    edit = "Approve with my changes"
    return ui.buttons(
        verdict(["Approve", ui.key_cap("a")], "approve", "main", "a", "Approve what is ticked"),
        proposal.target is None and verdict(edit, "edit", None, "e"),
        verdict(["Reject", ui.key_cap("x")], "reject", "danger", "x", "Reject all of it"),
    )


def _changes(call: RequestContext, proposal: Proposal, decides: bool = False) -> Html:
    """The changes, instruction by instruction, and their effect on answers. `decides`: each may be left out."""
    items = [_unit(unit, i, proposal, decides) for i, unit in enumerate(proposal.units)]
    hint = (
        "What is ticked is done, what is not is left out. Characters that cannot be seen are drawn as boxes."
    )
    title = f"What changes: {number_format.plural(len(items), 'instruction')}"
    body = el("ol", items, class_="instructions")
    changes = items and ui.section(title, decides and note(hint), body, id="changes")
    return join(changes, probes_section(call, proposal))


def _unit(unit: ProposalUnit, i: int, proposal: Proposal, decides: bool) -> Html:
    kind, shown = _change(unit)
    also = [
        prose(el("b", f"{one.id}: "), one.before or "", one.reason and f" ({one.reason})", class_="quiet")
        for one in unit.also
    ]
    keep: Child = None
    if decides:
        box = el("input", type="checkbox", name="keep", value=unit.id, checked=True)
        keep = el("label", box, f" {_deed(unit.change)} {unit.id}", class_="keep")
    elif proposal.kept is not None:
        keep = ui.tag("done", "good") if unit.id in proposal.kept else ui.tag("left out", "bad")
    own: Child = None
    if decides and unit.change is not None and unit.change.after is not None:
        title = f"Text of {unit.id}"
        box = ui.text_area(f"text-{unit.id}", title, unit.change.after, rows=3, maxlength=1000)
        own = details("Change the text", box)
    return el(
        "li",
        shown,
        facts_line(unit.instruction, f"u{i}"),
        support(unit.instruction),
        also and el("div", el("p", "It also replaces:"), also),
        keep and el("div", keep, class_="decide"),
        own,
        class_=f"instruction {kind}",
    )


def _deed(change: Change | None) -> str:
    """The effect of approving on the instruction, as the label of the box beside it."""
    if change is None:
        return "Add evidence to"
    if change.after is None:
        return "Remove"
    return "Add" if change.before is None else "Change"


def _change(unit: ProposalUnit) -> tuple[str, Html]:
    change = unit.change
    if change is None:
        more = el("small", "Only its evidence grows.")
        return "", prose(prompt_text(unit.instruction.text), more, class_="text")
    if change.before is not None and change.after is not None:
        return "added", diff_html(change.before, change.after, f"Change of {unit.id}")
    text, sign, kind, word = change.before, "\u2212", "removed", "Removed: "
    if change.before is None:
        text, sign, kind, word = change.after, "+", "added", "New: "
    mark = el("span", sign, class_="sign", aria_hidden="true")
    return kind, prose(mark, el("span", word, class_="when"), prompt_text(text or ""), class_="text")


def _whole(proposal: Proposal, base: Version) -> Html:
    body = diff_html(base.prompt.source, proposal.prompt.source)
    if base.prompt == proposal.prompt:
        body = note(f"Nothing: {proposal.label} stands on no version yet.")
    if proposal.units:
        return el("section", details("The whole prompt, line by line", body), id="whole")
    there = ui.path_to("prompts", proposal.name, version=proposal.target)
    hint = proposal.target is not None and el(
        "p", "What an application gets then: ", ui.link(f"version {proposal.target}", there)
    )
    return ui.section("What changes", hint, body, id="changes")


@router("POST", "/review/{id}", Role.EDITOR, form=show)
def decide(call: RequestContext) -> Response:
    """Take the decision of the form. Approving and rejecting needs the role approver; an author may only withdraw."""
    registry, key = call.state.live.registry, call.path("id")
    verdict, reason = call.form.get("verdict", ""), call.form.get("reason", "").strip()
    proposal = or_404(registry.proposal, key)
    if verdict == "withdraw":
        registry.withdraw(key, actor=call.name, reason=reason)
        return see_other(ui.path_to("review", key))
    if not call.may(Role.APPROVER):
        raise Refused(403, "Deciding needs the role approver.")
    made = registry.decide(key, _read(call, proposal, verdict, reason), actor=call.name)
    return see_other(ui.path_to("review", made.successor or key))


def _read(call: RequestContext, proposal: Proposal, verdict: str, reason: str) -> Decision:
    """The decision in the form. Raises Refused when text was changed and would be lost."""
    if verdict == "reject":
        return Decision("reject", reason)
    texts = {
        unit.id: text
        for unit in proposal.units
        if (text := call.form.get(f"text-{unit.id}")) is not None
        and unit.change is not None
        and text != unit.change.after
    }
    prompt: Prompt | None = None
    if not proposal.units and proposal.target is None:
        edited = prompt_in_form(call, proposal.prompt)
        prompt = edited if edited is not None and edited != proposal.prompt else None
        if prompt is not None and verdict == "edit":
            confirm_changed_slots(call, proposal.name, prompt)
    if verdict != "edit" and (texts or prompt):
        raise Refused(400, 'You changed the text: choose "Approve with my changes", or undo the change.')
    kept: list[str] | None = None
    if proposal.units:
        ticked = set(call.form_lists.get("keep", []))
        kept = [unit.id for unit in proposal.units if unit.id in ticked]
        if not kept and verdict == "approve":
            raise Refused(400, "Nothing is ticked. Reject the proposal instead.")
        kept = None if len(kept) == len(proposal.units) else kept
    return Decision(verdict, reason, kept, texts or None, prompt)
