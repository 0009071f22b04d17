"""The feedback explorer: all feedback, searchable; and one answer with its feedback."""

from __future__ import annotations

from starlette.responses import Response

from whet.client.records import KINDS, SOURCES
from whet.errors import UsageError
from whet.live.database import microseconds
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    asking,
    button,
    crumbs,
    form,
    link,
    listed,
    nothing,
    pager,
    path_to,
    select,
    text_input,
)
from whet.live.server.pages.traffic_views import (
    KIND_CHOICES,
    about_inference,
    feedback_line,
    inputs_of,
    text_box,
)
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, not_found, see_other
from whet.live.server.roles import Role
from whet.live.traffic import Filter
from whet.reporting.markup import Html, el

book = EndpointRouter()
LISTED = 50


@book("GET", "/feedback", Role.VIEWER)
def explore(call: RequestContext) -> Response:
    """Feedback that fits, the newest first."""
    filters = {
        name: call.query_params.get(name, "").strip()
        for name in ("prompt", "version", "kind", "source", "user", "text", "since")
    }
    matches = call.house.live.traffic.find(_filter(filters), LISTED, call.query_params.get("after") or None)
    search = asking(
        "/feedback",
        text_input(
            "text", "Words", filters["text"], type="search", data_key="/", data_hint="Search for words"
        ),
        text_input("prompt", "Prompt", filters["prompt"]),
        text_input("version", "Version", filters["version"], inputmode="numeric"),
        select("kind", "Kind", KIND_CHOICES, filters["kind"]),
        select("source", "Said by", [("", "anybody"), *((one, one) for one in SOURCES)], filters["source"]),
        text_input("user", "User", filters["user"]),
        text_input("since", "Since", filters["since"], placeholder="2026-01-31"),
        button("Search"),
        label="Feedback",
    )
    rows = [feedback_line(row, with_target=True) for row in matches.rows]
    empty = (
        nothing("No feedback fits.")
        if any(filters.values())
        else nothing(
            "There is no feedback yet.",
            "Programs send it to ",
            el("code", "POST /v1/feedback"),
            ", people give it under Annotate.",
        )
    )
    return page(
        call,
        "Feedback",
        "feedback",
        search,
        listed(rows) if rows else empty,
        pager("/feedback", filters, matches.next),
        wide=True,
    )


def _filter(filters: dict[str, str]) -> Filter:
    version, kind, source = filters["version"], filters["kind"], filters["source"]
    if version and not (version.isascii() and version.isdecimal() and len(version) < 10):
        raise UsageError("The version is a number.")
    return Filter(
        prompt=filters["prompt"] or None,
        version=int(version) if version else None,
        user=filters["user"] or None,
        since=microseconds(filters["since"]) if filters["since"] else None,
        kind=kind if kind in KINDS else None,
        source=source if source in SOURCES else None,
        text=filters["text"] or None,
    )


@book("GET", "/feedback/{id:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One answer: inputs, output, and its feedback."""
    traffic = call.house.live.traffic
    stored = traffic.inference(call.path("id"))
    if stored is None:
        raise not_found("such answer; its feedback waits for it, or it was deleted")
    rows = [feedback_line(row, with_target=False) for row in traffic.about(stored.seq)]
    one = stored.inference
    rate = (
        link("Rate this answer", path_to("annotate", one.id), class_="button", data_key="a")
        if call.may(Role.ANNOTATOR)
        else None
    )
    return page(
        call,
        "One answer",
        "feedback",
        el("div", inputs_of(one.inputs), text_box("Answer", one.output, big=True)),
        el("div", rate, class_="buttons"),
        el(
            "section",
            el("h2", "Feedback"),
            listed(rows) if rows else nothing("Nobody said anything about it yet."),
        ),
        el("section", el("h2", "About it"), about_inference(one)),
        _forget(call, one.user) if one.user and call.may(Role.ADMIN) else None,
        above=crumbs(("Feedback", "/feedback")),
    )


def _forget(call: RequestContext, user: str) -> Html:
    hint = (
        f"Deletes every answer and all feedback of the user {user}, for ever, and what the learner quotes of them. The ids stay, "
        "so that nothing comes back. Backups, exported files and the run folders of the learner are left to you."
    )
    entry = form(
        call,
        "/forget",
        el("input", type="hidden", name="user", value=user),
        text_input("again", "Write the user's name to confirm", required=True, hint=hint),
        button("Delete this user's data", "danger"),
    )
    return el("section", el("details", el("summary", "Delete this user's data"), entry))


@book("POST", "/forget", Role.ADMIN)
def forget(call: RequestContext) -> Response:
    """Delete the data of one user of the applications."""
    user = call.form.get("user", "")
    if not user or call.form.get("again", "") != user:
        raise Refused(400, "The names differ; nothing was deleted.")
    call.house.forget_user(user, call.name)
    return see_other("/feedback")


@book("GET", "/about/{id}", Role.VIEWER)
def about(call: RequestContext) -> Response:
    """The place of a piece of evidence: an answer here, or a row of a run or a file."""
    key, traffic = call.path("id"), call.house.live.traffic
    feedback_row = traffic.feedback(key)
    inference_row = traffic.inference(key if feedback_row is None else feedback_row.feedback.target)
    if inference_row is not None:
        return see_other(path_to("feedback", inference_row.inference.id))
    reason = "it is a row of a run or of a file that was learned from, or it was deleted"
    raise Refused(404, f'"{key[:200]}" is no answer in this database: {reason}.')
