"""The audit log with the state of its chain."""

from __future__ import annotations

import json

from starlette.responses import Response

from whet.reporting import Html, clip, el, note
from whet_live.registry import AuditEntry, AuditVerdict
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.roles import Role

router = EndpointRouter()
LISTED = 60
SMALL = 500
"""Entries of a log that is checked at every look."""


@router("GET", "/audit", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """The log of actions, the newest first, and whether the log is complete."""
    registry, params = call.state.live.registry, call.query_params
    subject, actor = params.get("subject", ""), params.get("actor", "")
    before = ui.whole_number(params["after"], "The page") if params.get("after") else None
    entries = registry.audit(subject=subject or None, actor=actor or None, before=before, limit=LISTED)
    newest = registry.audit(limit=1).items
    small = not newest or newest[0].seq <= SMALL
    if small or params.get("verify"):
        state = _state(registry.verify_audit())
    else:
        check = ui.button_link("Check the whole chain", "/audit?verify=1")
        state = ui.card("1 entry" if newest[0].seq == 1 else f"{newest[0].seq:,} entries", el("p", check))
    search = ui.search_form(
        "/audit",
        ui.text_input("subject", "About (a prompt, or user:NAME)", subject, type="search"),
        ui.text_input("actor", "Done by", actor, type="search"),
        label="Audit log",
    )
    rows = ui.stack_rows(map(_row, entries.items), ui.nothing("No entry fits."))
    older = ui.path_to("audit", subject=subject, actor=actor, after=entries.after)
    return ui.page(call, "Audit log", "audit", state, search, rows, ui.pager(older, entries.after))


def _state(verdict: AuditVerdict) -> Html:
    """The result of checking the whole chain."""
    heading = f"Broken at entry {verdict.broken}: {verdict.reason}"
    if verdict.whole:
        heading = f"Whole: {verdict.rows:,} entries, each bound to the one before"
    seal = el("p", "Seal ", el("code", str(verdict.seal), class_="hash"))
    hint = "Write the seal down elsewhere: a log that was rewritten as a whole does not match it any more."
    return ui.card(heading, seal, note(hint), kind="good" if verdict.whole else "bad", status=True)


def _row(entry: AuditEntry) -> list[Html]:
    known = {key: value for key, value in entry.details.items() if value not in (None, "", [])}
    details = ", ".join(
        f"{key} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}"
        for key, value in known.items()
    )
    what = [el("b", entry.action), " ", entry.subject]
    return [
        ui.aside(str(entry.seq)),
        ui.row(what, sub=details and clip(details, 400)),
        ui.by_line(entry.actor, entry.at),
        el("span", entry.hash[:12], class_="hash", title=entry.hash),
    ]
