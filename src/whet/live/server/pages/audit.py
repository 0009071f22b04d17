"""The audit log with the state of its chain."""

from __future__ import annotations

import json

from starlette.responses import Response

from whet.live.registry import AuditEntry, AuditVerdict
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.changes import whole_number
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import asking, button, link, listed, moment, nothing, pager, text_input
from whet.live.server.request_context import RequestContext
from whet.live.server.roles import Role
from whet.reporting.layout import note
from whet.reporting.markup import Html, clipped, el, join

book = EndpointRouter()
LISTED = 60
SMALL = 500
"""Entries of a log that is checked at every look."""


@book("GET", "/audit", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """What was done, the newest first, and whether the log is whole."""
    registry, params = call.house.live.registry, call.query_params
    subject, actor = params.get("subject") or None, params.get("actor") or None
    before = whole_number(params["after"], "The page") if params.get("after") else None
    entries = registry.audit(subject=subject, actor=actor, before=before, limit=LISTED)
    newest = registry.audit(limit=1).items
    small = not newest or newest[0].seq <= SMALL
    state = _state(registry.verify_audit()) if small or params.get("verify") else _unverified(newest[0])
    search = asking(
        "/audit",
        text_input("subject", "About (a prompt, or user:NAME)", subject or "", type="search"),
        text_input("actor", "Done by", actor or "", type="search"),
        button("Search"),
        label="Audit log",
    )
    rows = [_row(entry) for entry in entries.items]
    kept = {"subject": subject or "", "actor": actor or ""}
    return page(
        call,
        "Audit log",
        "audit",
        state,
        search,
        listed(rows) if rows else nothing("No entry fits."),
        pager("/audit", kept, entries.after),
    )


def _state(verdict: AuditVerdict) -> Html:
    """What checking the whole chain found."""
    heading = (
        f"Whole: {verdict.rows:,} entries, each bound to the one before"
        if verdict.whole
        else f"Broken at entry {verdict.broken}: {verdict.reason}"
    )
    hint = "Write the seal down elsewhere: a log that was rewritten as a whole does not match it any more."
    return el(
        "div",
        el("h2", heading),
        el("p", "Seal ", el("code", str(verdict.seal), class_="hash")),
        note(hint),
        class_="card good" if verdict.whole else "card bad",
        role="status",
    )


def _unverified(newest: AuditEntry) -> Html:
    """The card of a log that is too long to verify on every visit."""
    check = link("Check the whole chain", "/audit?verify=1", class_="button")
    return el("div", el("h2", f"{newest.seq:,} entries"), el("p", check), class_="card")


def _detail_text(value: object) -> str:
    """A detail as readable text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _row(entry: AuditEntry) -> Html:
    details = ", ".join(
        f"{key} {_detail_text(value)}" for key, value in entry.details.items() if value not in (None, "", [])
    )
    return join(
        el("span", f"{entry.seq}", class_="side"),
        el(
            "span",
            el("b", entry.action),
            " ",
            entry.subject,
            el("small", clipped(details, 400), dir="auto") if details else None,
            class_="what",
        ),
        el("span", entry.actor, " · ", moment(entry.at), class_="side"),
        el("span", entry.hash[:12], class_="hash", title=entry.hash),
    )
