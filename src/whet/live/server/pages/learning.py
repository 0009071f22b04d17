"""What is being learned: demands with their sources, what is quarantined, lessons, and the rules of learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from whet.errors import UsageError
from whet.instructions.reader import NO_DEMAND, TO_READER, VAGUE
from whet.live.learner.learner import REQUIREMENT
from whet.live.learner.learner_store import MODES
from whet.live.learner.reading import UNREADABLE
from whet.live.server.endpoint import EndpointRouter, Spec
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    button,
    crumbs,
    form,
    hidden,
    link,
    listed,
    nothing,
    pager,
    path_to,
    select,
    tag,
    text_input,
)
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import json_answer, see_other
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import looked_up
from whet.reporting import number_format
from whet.reporting.layout import facts, note
from whet.reporting.markup import Child, Html, clipped, el, join

book = EndpointRouter()
MOST = 200
LONGEST = 600
STATES = {"ready": "good", "waiting": "", "contested": "bad", "unwritten": ""}
VERDICTS = {
    NO_DEMAND: "ask for nothing",
    VAGUE: "do not say what should change",
    TO_READER: "speak to the reader",
    UNREADABLE: "could not be read",
}
OUTCOMES = {"proposed": "live", "staged": "live", "refused": "bad", "empty": "", "stale": "", "open": "live"}


@book("GET", "/learning", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """The prompts about which something was heard."""
    learner = call.house.live.learner
    after = call.query_params.get("after", "")
    names, unread = learner.glance(after)
    summary = note(
        "A model reads feedback about live prompts. What enough independent people demand becomes a proposal; nothing "
        "changes a prompt before somebody approves, unless its mode is auto."
    )
    if unread:
        summary = join(summary, note(f"{number_format.count(unread)} events of traffic are not read yet."))
    if not names.items and not after:
        empty = nothing(
            "Nothing was heard yet.",
            "Comments, corrections and ratings with words are what is learned from.",
        )
        return page(call, "Learning", "learning", summary, empty)
    rows = [
        join(
            el("span", link(name, path_to("learning", name), class_="name", data_row=True), class_="what"),
            tag(mode),
        )
        for name, mode in zip(names.items, learner.modes(names.items), strict=True)
    ]
    return page(
        call, "Learning", "learning", summary, listed(rows), pager("/learning", {}, names.after, "More")
    )


@book(
    "GET",
    "/v1/learning/{name:path}",
    Role.VIEWER,
    spec=Spec(answer={"type": "object"}, refusals=(404,), name="learning"),
)
def status(call: RequestContext) -> Response:
    """What is known and waited for about a prompt: settings, demands, quarantine, newest lessons."""
    return json_answer(_status(call)[1])


def _status(call: RequestContext) -> tuple[str, dict[str, Any]]:
    live, name = call.house.live, call.path("name")
    with looked_up():
        live.registry.labels(name)
    return name, live.learner.status(name, wait=False)


@book("GET", "/learning/{name:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One prompt: what people want of it."""
    name, state = _status(call)
    return page(
        call,
        f"What {name} hears",
        "learning",
        _summary(state),
        _demands(call, name, state["requirements"]),
        _quarantine(call, name, state["quarantine"]),
        _lessons(state["updates"]),
        _rules(call, name, state["settings"]),
        above=crumbs(("Learning", "/learning"), (name, path_to("prompts", name))),
    )


def _summary(state: Mapping[str, Any]) -> Html:
    version, label = state["version"], state["settings"]["label"]
    idle = ", ".join(f"{n} {VERDICTS.get(why, why)}" for why, n in state["verdicts"].items())
    shown = facts(
        [
            ("Mode", tag(state["settings"]["mode"])),
            ("Teaches", f"version {version}, {label}" if version else f"nothing: there is no label {label}"),
            ("Feedback kept in mind", number_format.count(state["rows"])),
            ("Events not read yet", number_format.count(state["unread"])),
            ("Sources", number_format.count(state["sources"])),
            ("Reader", state["reader"] or "none here: a person writes the instructions"),
            ("Comments that wait for a reader", number_format.count(state["to_read"])),
            ("Comments that", idle or "ask for nothing: none"),
        ]
    )
    return join(shown, note(state["warning"])) if state["warning"] else shown


def _demands(call: RequestContext, name: str, demands: list[Mapping[str, Any]]) -> Html:
    if not demands:
        body: Child = note("Nobody demands anything that is not learned yet.")
    else:
        body = el("ol", [_demand(call, name, one) for one in demands[:MOST]], class_="instructions")
    return el("section", el("h2", "Demands"), body)


def _demand(call: RequestContext, name: str, one: Mapping[str, Any]) -> Html:
    against = [
        el("p", el("b", "Against it: "), clipped(text, LONGEST), f" ({n:g})", dir="auto")
        for text, n in one["against"].items()
    ]
    rows: list[Child] = []
    for i, key in enumerate(one["rows"][:MOST]):
        rows += [", " if i else "", link(key, path_to("about", key))]
    quotes = [el("li", clipped(text, LONGEST), dir="auto") for text in one["texts"]]
    line = el(
        "div",
        tag(one["state"], STATES.get(one["state"], "")),
        el("span", f"{one['sources']:g} of {one['needed']:g} sources"),
        None if one["state"] == "unwritten" else el("span", f"{one['confirmed']:g} confirmed"),
        el("span", f"about instruction {one['instruction']}") if one["instruction"] else None,
        el("span", f"written by {one['author']}") if one["author"] else None,
        class_="facts-line",
    )
    before = (
        el("p", el("b", "Rejected before: "), clipped(one["rejected"], LONGEST), dir="auto")
        if one["rejected"]
        else None
    )
    words = el(
        "details",
        el("summary", "In their words"),
        el("ul", quotes, class_="quotes"),
        el("p", "Rows: ", rows, class_="quiet"),
    )
    verdict = None
    if one["state"] == "unwritten":
        verdict = join(
            _writing(call, name, one), _verdict(call, name, REQUIREMENT + one["key"], None, "Dismiss")
        )
    elif one["state"] != "ready":
        verdict = _verdict(call, name, REQUIREMENT + one["key"], "Learn it anyway", "Dismiss")
    return el(
        "li",
        el("p", clipped(one["text"], LONGEST), class_="text", dir="auto"),
        line,
        against,
        before,
        words,
        verdict,
        class_="instruction",
    )


def _writing(call: RequestContext, name: str, one: Mapping[str, Any]) -> Html | None:
    """Where a person writes the instruction for comments; None for those who may not."""
    if not call.may(Role.APPROVER):
        return None
    return form(
        call,
        path_to("learning-instruction", name),
        hidden(key=one["key"]),
        el(
            "input",
            type="text",
            name="text",
            required=True,
            maxlength=LONGEST,
            aria_label=f"Instruction for {one['key']}",
        ),
        button("Learn this instruction"),
        class_="inline",
        label=f"Instruction for {one['key']}",
    )


def _verdict(call: RequestContext, name: str, key: str, yes: str | None, no: str) -> Html | None:
    """The form to decide about a demand or a row; None for callers without the permission."""
    if not call.may(Role.APPROVER):
        return None
    return form(
        call,
        path_to("learning-verdict", name),
        hidden(key=key),
        el(
            "div",
            button(yes, name="accept", value="yes") if yes else None,
            button(no, "plain", name="accept", value="no"),
            class_="buttons",
        ),
        class_="decide",
        label=key,
    )


def _quarantine(call: RequestContext, name: str, rows: list[Mapping[str, Any]]) -> Html | None:
    if not rows:
        return None
    items = [
        join(
            el(
                "span",
                link(row["id"], path_to("about", row["id"])),
                el("small", ", ".join(map(str, row["reasons"]))),
                el(
                    "ul",
                    [el("li", clipped(text, LONGEST), dir="auto") for text in row["texts"]],
                    class_="quotes",
                ),
                class_="what",
            ),
            el("span", clipped(str(row["source"]), 200), class_="side"),
            _verdict(call, name, row["id"], "Let it count", "Dismiss"),
        )
        for row in rows[:MOST]
    ]
    hint = note(
        "These look like instructions to a model, or hide something. They count for nothing until somebody says otherwise."
    )
    return el("section", el("h2", f"Quarantine: {len(rows)}"), hint, listed(items))


def _lessons(lessons: list[Mapping[str, Any]]) -> Html | None:
    if not lessons:
        return None
    items = [
        join(
            el(
                "span",
                el("b", number_format.plural(len(one["requirements"]), "requirement")),
                el("small", clipped(one["reason"], LONGEST)),
                class_="what",
            ),
            tag(one["outcome"], OUTCOMES.get(one["outcome"], "")),
            link("proposal", path_to("review", one["proposal"])) if one["proposal"] else None,
            link("experiment", path_to("experiments", one["experiment"])) if one["experiment"] else None,
            el("span", f"version {one['base']} · {one['at'][:16].replace('T', ' ')}", class_="side"),
        )
        for one in lessons
    ]
    return el("section", el("h2", "Lessons"), listed(items))


def _rules(call: RequestContext, name: str, settings: Mapping[str, Any]) -> Html:
    policy: Mapping[str, Any] = settings["policy"]
    shown: list[tuple[str, Child]] = [
        ("Independent sources needed", f"{policy['quorum']:g}"),
        ("And this share of all", f"{policy['share']:.0%}"),
        ("Demands one source supports", f"{policy['per_source']}"),
        ("Hours until a new source counts", f"{policy['probation']:g}"),
    ]
    change = None
    if call.may(Role.ADMIN):
        kinds = [
            ("propose", "propose: somebody decides"),
            ("auto", "auto: gated, then tried in stages"),
            ("off", "off"),
        ]
        change = form(
            call,
            path_to("learning-settings", name),
            select("mode", "Mode", kinds, settings["mode"]),
            text_input("label", "Label that it teaches", settings["label"], maxlength=36),
            button("Change"),
            class_="inline",
        )
    return el("section", el("h2", "Rules"), facts(shown), change)


@book("POST", "/learning-verdict/{name:path}", Role.APPROVER)
def verdict(call: RequestContext) -> Response:
    """Store a person's decision about a row in quarantine or a demand."""
    name, accept = call.path("name"), call.form.get("accept", "")
    if accept not in ("yes", "no"):
        raise UsageError("Say yes or no.")
    call.house.live.learner.decide(
        name, call.form.get("key", ""), accept == "yes", actor=call.name, reason=call.form.get("reason", "")
    )
    return see_other(path_to("learning", name))


@book("POST", "/learning-instruction/{name:path}", Role.APPROVER)
def write(call: RequestContext) -> Response:
    """The instruction that a person writes for a demand."""
    name = call.path("name")
    call.house.live.learner.write(
        name,
        call.form.get("key", ""),
        call.form.get("text", ""),
        actor=call.name,
        reason=call.form.get("reason", ""),
    )
    return see_other(path_to("learning", name))


@book("POST", "/learning-settings/{name:path}", Role.ADMIN)
def configure(call: RequestContext) -> Response:
    """Set how a prompt learns."""
    learner, name, mode = call.house.live.learner, call.path("name"), call.form.get("mode", "")
    if mode not in MODES:
        raise UsageError("Choose a mode.")
    changed = replace(learner.settings(name), mode=mode, label=call.form.get("label", "").strip())
    learner.configure(name, changed, actor=call.name)
    return see_other(path_to("learning", name))
