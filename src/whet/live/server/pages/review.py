"""The review queue: what waits for somebody, decided one instruction at a time by somebody else than its author."""

from __future__ import annotations

from starlette.responses import Response

from whet.live.registry import Decision, Proposal, ProposalUnit, Version
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.evidence import evidence_section, gate_card
from whet.live.server.pages.instructions import facts_line, support
from whet.live.server.pages.layout import page
from whet.live.server.pages.messages import message_fields, messages_given
from whet.live.server.pages.parts import (
    button,
    crumbs,
    form,
    link,
    listed,
    moment,
    nothing,
    path_to,
    tag,
    text_area,
)
from whet.live.server.pages.probes import probes_section
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, see_other
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import looked_up
from whet.prompt import Prompt
from whet.reporting import number_format
from whet.reporting.diff import diff_html
from whet.reporting.layout import facts, note
from whet.reporting.markup import Html, el, join, prompt_text

book = EndpointRouter()
LISTED = 40
STATES = ("open", "approved", "edited", "rejected", "withdrawn")


@book("GET", "/review", Role.VIEWER)
def queue(call: RequestContext) -> Response:
    """Proposals in a state, the newest first."""
    wanted = call.query_params.get("state", "open")
    state = wanted if wanted in STATES else "open"
    proposals = call.house.live.registry.proposals(
        state=state, before=call.query_params.get("before") or None, limit=LISTED
    )
    tabs = el(
        "nav",
        el("ul", [el("li", _tab(one, state)) for one in STATES]),
        aria_label="States",
        class_="tabs",
    )
    rows = [_row(call, one) for one in proposals.items]
    empty = (
        nothing(
            "Nothing waits.",
            "Proposals come from learning, from editors, and from requests to move a locked label.",
        )
        if state == "open"
        else nothing(f"Nothing was {state} yet.")
    )
    older = (
        link("Older →", path_to("review", state=state, before=proposals.after), rel="next")
        if proposals.after
        else None
    )
    return page(
        call, "Review", "review", tabs, listed(rows) if rows else empty, el("p", older) if older else None
    )


def _tab(state: str, current: str) -> Html:
    return link(
        state.capitalize(), path_to("review", state=state), aria_current="true" if state == current else None
    )


def _row(call: RequestContext, proposal: Proposal) -> Html:
    mine = tag("yours") if proposal.author == call.name else None
    what = (
        "move of a label"
        if proposal.target is not None
        else number_format.plural(len(proposal.units), "instruction")
    )
    return join(
        el(
            "span",
            link(proposal.name, path_to("review", proposal.id), class_="name", data_row=True),
            el("small", proposal.message or what, dir="auto"),
            class_="what",
        ),
        el("span", tag(f"→ {proposal.label}", "live") if proposal.label else None, mine, class_="tags"),
        el("span", what if proposal.units or proposal.target else "whole text", class_="side"),
        el("span", proposal.author, " · ", moment(proposal.created), class_="side"),
    )


@book("GET", "/review/{id}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One proposal: what changes, the evidence, its author, and the form to decide."""
    registry = call.house.live.registry
    with looked_up():
        proposal = registry.proposal(call.path("id"))
    base = registry.get(f"{proposal.name}/{proposal.base}")
    stale = registry.out_of_date(proposal) if proposal.state == "open" else ""
    title = (
        f"Move {proposal.label} to version {proposal.target}"
        if proposal.target is not None
        else f"Change to {proposal.name}"
    )
    return page(
        call,
        title,
        "review",
        _head(proposal),
        el("p", proposal.message, class_="reason", dir="auto") if proposal.message else None,
        _stale(stale) if stale else None,
        _outcome(proposal),
        gate_card(proposal.gate) if proposal.gate else None,
        None if proposal.units else _whole(proposal, base),
        _decision(call, proposal, bool(stale)) if proposal.state == "open" else _seen(call, proposal),
        _whole(proposal, base) if proposal.units else None,
        evidence_section(proposal.evidence, proposal.run),
        above=crumbs(("Review", "/review"), (proposal.name, path_to("prompts", proposal.name))),
    )


def _head(proposal: Proposal) -> Html:
    return facts(
        [
            (
                "State",
                tag(
                    proposal.state,
                    {"open": "live", "approved": "good", "rejected": "bad"}.get(proposal.state, ""),
                ),
            ),
            ("Proposed by", join(proposal.author, ", ", moment(proposal.created))),
            (
                "On version",
                link(
                    f"{proposal.name} version {proposal.base}",
                    path_to("prompts", proposal.name, version=proposal.base),
                ),
            ),
            ("Then", f"the label {proposal.label} moves there" if proposal.label else "no label moves"),
        ]
    )


def _stale(why: str) -> Html:
    return el(
        "div",
        el("h2", "Out of date"),
        el("p", f"{why} It can only be rejected."),
        class_="card bad",
        role="status",
    )


def _outcome(proposal: Proposal) -> Html | None:
    if proposal.state == "open":
        return None
    made = (
        link(f"version {proposal.version}", path_to("prompts", proposal.name, version=proposal.version))
        if proposal.version is not None
        else None
    )
    onward = (
        link("the edited proposal", path_to("review", proposal.successor)) if proposal.successor else None
    )
    left_out = [u.id for u in proposal.units if proposal.kept is not None and u.id not in proposal.kept]
    return el(
        "div",
        el("h2", f"{proposal.state.capitalize()} by {proposal.decider}"),
        el("p", moment(proposal.decided), ": " if proposal.reason else "", proposal.reason or "", dir="auto"),
        el("p", f"{proposal.label} moved to " if proposal.target is not None else "It became ", made, ".")
        if made
        else None,
        el("p", "It went on as ", onward, ".") if onward else None,
        el("p", f"Left out: {', '.join(left_out)}.") if left_out else None,
        class_="card good" if proposal.state in ("approved", "edited") else "card bad",
    )


def _decision(call: RequestContext, proposal: Proposal, stale: bool) -> Html:
    if not call.may(Role.APPROVER) and proposal.author != call.name:
        hint = note("Deciding needs the role approver.")
        return join(_seen(call, proposal), hint)
    if proposal.author == call.name:
        back = form(
            call,
            path_to("review", proposal.id),
            text_area("reason", "Why you take it back", rows=2, maxlength=4000),
            el("div", button("Take it back", "danger", name="verdict", value="withdraw"), class_="buttons"),
        )
        hint = note("You made this proposal. Somebody else approves it, so that two people have seen it.")
        return join(_seen(call, proposal), hint, back if call.may(Role.EDITOR) else None)
    whole = proposal.target is None and not proposal.units
    edit = (
        el("details", el("summary", "Edit the text first"), message_fields(proposal.prompt))
        if whole
        else None
    )
    reason = text_area(
        "reason", "Reason", rows=2, maxlength=4000, hint="Needed to reject; it is shown to the author and kept.", data_key="r",
        data_hint="Write a reason",
    )  # fmt: skip
    verdicts = el(
        "div",
        button(join("Approve", el("kbd", "a", aria_hidden="true")), "main", name="verdict", value="approve", disabled=stale,
               data_key="a", data_hint="Approve what is ticked"),
        button("Approve with my changes", name="verdict", value="edit", disabled=stale, data_key="e")
        if proposal.target is None
        else None,
        button(join("Reject", el("kbd", "x", aria_hidden="true")), "danger", name="verdict", value="reject", data_key="x",
               data_hint="Reject all of it"),
        class_="buttons",
    )  # fmt: skip
    return form(
        call,
        path_to("review", proposal.id),
        _seen(call, proposal, open_=True),
        edit,
        el("div", reason, verdicts, class_="decision-bar"),
        class_="decision",
        label="Decision",
    )


def _seen(call: RequestContext, proposal: Proposal, open_: bool = False) -> Html:
    """What there is to see before deciding: the changes, and what they do to answers."""
    return join(_parts(proposal, open_), probes_section(call, proposal))


def _parts(proposal: Proposal, open_: bool) -> Html | None:
    """What changes, instruction by instruction."""
    if not proposal.units:
        return None
    items = [_unit(unit, i, proposal, open_) for i, unit in enumerate(proposal.units)]
    hint = (
        note(
            "What is ticked is done, what is not is left out. Characters that cannot be seen are drawn as boxes."
        )
        if open_
        else None
    )
    return el(
        "section",
        el("h2", f"What changes: {number_format.plural(len(items), 'instruction')}"),
        hint,
        el("ol", items, class_="instructions"),
        id="changes",
    )


def _unit(unit: ProposalUnit, i: int, proposal: Proposal, open_: bool) -> Html:
    kind, shown = _change(unit)
    also = [
        el(
            "p",
            el("b", f"{c.id}: "),
            c.before or "",
            f" ({c.reason})" if c.reason else "",
            class_="quiet",
            dir="auto",
        )
        for c in unit.also
    ]
    keep = None
    if open_:
        box = el("input", type="checkbox", name="keep", value=unit.id, checked=True)
        keep = el("label", box, f" {_deed(unit)} {unit.id}", class_="keep")
    elif proposal.kept is not None:
        keep = tag("done", "good") if unit.id in proposal.kept else tag("left out", "bad")
    own = None
    if open_ and unit.change is not None and unit.change.after is not None:
        own = el(
            "details",
            el("summary", "Change the text"),
            text_area(f"text-{unit.id}", f"Text of {unit.id}", unit.change.after, rows=3, maxlength=1000),
        )
    return el(
        "li",
        shown,
        facts_line(unit.instruction, f"u{i}"),
        support(unit.instruction),
        el("div", el("p", "It also replaces:"), also) if also else None,
        el("div", keep, class_="decide") if keep is not None else None,
        own,
        class_=f"instruction {kind}",
    )


def _deed(unit: ProposalUnit) -> str:
    """What approving does to the instruction, as the label of the box beside it."""
    change = unit.change
    if change is None:
        return "Add evidence to"
    if change.after is None:
        return "Remove"
    return "Add" if change.before is None else "Change"


def _change(unit: ProposalUnit) -> tuple[str, Html]:
    change = unit.change
    if change is None:
        return "", el(
            "p",
            prompt_text(unit.instruction.text),
            el("small", "Only its evidence grows."),
            class_="text",
            dir="auto",
        )
    if change.before is not None and change.after is not None:
        return "added", diff_html(change.before, change.after, f"Change of {unit.id}")
    text = change.after if change.before is None else change.before
    sign, kind, word = (
        ("+", "added", "New: ") if change.before is None else ("\u2212", "removed", "Removed: ")
    )
    label = el("span", word, class_="when")
    return kind, el(
        "p",
        el("span", sign, class_="sign", aria_hidden="true"),
        label,
        prompt_text(text or ""),
        class_="text",
        dir="auto",
    )


def _whole(proposal: Proposal, base: Version) -> Html:
    body = diff_html(base.prompt.source, proposal.prompt.source)
    if base.prompt == proposal.prompt:
        body = note(f"Nothing: {proposal.label} stands on no version yet.")
    if proposal.target is not None:
        where = link(f"version {proposal.target}", path_to("prompts", proposal.name, version=proposal.target))
        hint = el("p", "What an application gets then: ", where)
        return el("section", el("h2", "What changes"), hint, body, id="changes")
    if not proposal.units:
        return el("section", el("h2", "What changes"), body, id="changes")
    return el("section", el("details", el("summary", "The whole prompt, line by line"), body), id="whole")


@book("POST", "/review/{id}", Role.EDITOR)
def decide(call: RequestContext) -> Response:
    """Take the decision of the form. Approving and rejecting needs the role approver; an author may only withdraw."""
    registry, key = call.house.live.registry, call.path("id")
    verdict, reason = call.form.get("verdict", ""), call.form.get("reason", "").strip()
    with looked_up():
        proposal = registry.proposal(key)
    if verdict == "withdraw":
        registry.withdraw(key, actor=call.name, reason=reason)
        return see_other(path_to("review", key))
    if not call.may(Role.APPROVER):
        raise Refused(403, "Deciding needs the role approver.")
    made = registry.decide(key, _read(call, proposal, verdict, reason), actor=call.name)
    return see_other(path_to("review", made.successor or key))


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
        edited = messages_given(call, proposal.prompt)
        prompt = edited if edited is not None and edited != proposal.prompt else None
    if verdict != "edit" and (texts or prompt):
        raise Refused(
            400, 'You changed the text: go back and choose "Approve with my changes", or undo the change.'
        )
    kept: list[str] | None = None
    if proposal.units:
        ticked = set(call.form_lists.get("keep", []))
        kept = [unit.id for unit in proposal.units if unit.id in ticked]
        if not kept and verdict == "approve":
            raise Refused(400, "Nothing is ticked. Reject the proposal instead.")
        kept = None if len(kept) == len(proposal.units) else kept
    return Decision(verdict, reason, kept, texts or None, prompt)
