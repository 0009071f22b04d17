"""The terms of an instruction on a page: its lock, its dates, and the forms that set them."""

from __future__ import annotations

from whet.reporting import Child, Html, details, el, join
from whet_live.learner import InstructionTerms
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.roles import Role


def terms_line(terms: InstructionTerms | None, today: str) -> Html | None:
    """The lock, the dates and the review of an instruction in one line; None where there are none."""
    if terms is None or not (terms.locked or terms.dates or terms.review):
        return None
    due = terms.due_for_review(today)
    parts: list[Child] = [
        terms.locked and ui.tag("locked"),
        terms.dates and el("span", f"stands {terms.dates}"),
        terms.review
        and ui.tag(f"review {'due since' if due else 'on'} {terms.review}", "bad" if due else ""),
        el("span", f"by {terms.actor}", terms.reason and f": {terms.reason}"),
    ]
    return el("div", parts, class_="facts-line")


def terms_form(call: RequestContext, name: str, key: str, terms: InstructionTerms | None) -> Html | None:
    """The forms that lock an instruction and set its dates, for whoever may approve."""
    if not call.may(Role.APPROVER):
        return None
    now = terms or InstructionTerms()
    word, then = ("Unlock", "no") if now.locked else ("Lock", "yes")
    path = ui.path_to("terms", name)
    lock = ui.form(
        call,
        path,
        ui.hidden_fields(key=key, lock=then),
        ui.button(word, "plain", aria_label=f"{word} {key}"),
        class_="row-form",
    )
    dates = ui.form(
        call,
        path,
        ui.hidden_fields(key=key),
        _box("dates", f"First and last day of {key}, such as 12-01..01-06", now.dates or ".."),
        _box("review", f"Day of review of {key}", now.review),
        _box("reason", f"Reason for the terms of {key}", ""),
        ui.button("Set"),
        class_="inline",
        label=f"Dates of {key}",
    )
    return details("Lock and dates", join(lock, dates))


def _box(name: str, label: str, value: str) -> Html:
    """A line of text. Every instruction has its own, so that no id can be that of the name."""
    longest = {"dates": 24, "review": 10}.get(name, 4000)
    return el(
        "input", type="text", name=name, value=value, maxlength=longest, placeholder=label, aria_label=label
    )
