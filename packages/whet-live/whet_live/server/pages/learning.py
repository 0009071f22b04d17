"""The learning state: demands with their sources, quarantined rows, lessons, and the rules of learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from whet.errors import UsageError
from whet.instructions import NO_DEMAND, TO_READER, VAGUE
from whet.reporting import Child, Html, clip, details, el, facts, join, note, number_format, prose
from whet_live.learner import MODES, REQUIREMENT, UNREADABLE
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.evidence import against, rows_line
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import json_answer, or_404, see_other
from whet_live.server.roles import Role

router = EndpointRouter()
MOST = 200
LONGEST = 600
STATES = {"ready": "good", "waiting": "", "contested": "bad", "unwritten": ""}
VERDICTS = {
    NO_DEMAND: "ask for nothing",
    VAGUE: "do not say what should change",
    TO_READER: "speak to the reader",
    UNREADABLE: "could not be read",
}
SEEN = [
    ("comment", "comments only"),
    ("answer", "comments with input and answer, masked"),
    ("conversation", "the same, and earlier answers of the session"),
]
STEPS = {"merge": "join", "compact": "shorten", "without": "try without"}
OUTCOMES = {
    "proposed": "live",
    "staged": "live",
    "moved": "live",
    "refused": "bad",
    "empty": "",
    "stale": "",
    "open": "live",
}


@router("GET", "/learning", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """The prompts that have feedback to learn from."""
    learner = call.state.live.learner
    after = call.query_params.get("after", "")
    names, unread = learner.cached_state(after)
    summary = (
        "A model reads feedback about live prompts. What enough independent people demand becomes a proposal; nothing "
        "changes a prompt before somebody approves, unless its mode is auto."
    )
    fault = learner.fault()
    broken = fault and ui.card(
        "The reader does not answer", el("p", fault, class_="reason"), kind="bad", status=True
    )
    waits = unread > 0 and note(
        f"{number_format.plural(unread, 'event')} of traffic {'is' if unread == 1 else 'are'} not read yet."
    )
    hint = "Comments, corrections and ratings with words are what is learned from."
    rows = [
        ui.row(ui.name_link(name, ui.path_to("learning", name)), ui.tag(mode))
        for name, mode in zip(names.items, learner.modes(names.items), strict=True)
    ]
    empty = None if after else ui.nothing("There is no feedback yet.", hint)
    more = ui.pager(ui.path_to("learning", after=names.after), names.after, "More")
    return ui.page(
        call, "Learning", "learning", note(summary), broken, waits, ui.stack_rows(rows, empty), more
    )


@router(
    "GET",
    "/v1/learning/{name:path}",
    Role.VIEWER,
    answer={"type": "object"},
    refusals=(404,),
    name="learning",
)
def status(call: RequestContext) -> Response:
    """The learner's state of a prompt: settings, demands, quarantine, newest lessons."""
    return json_answer(_status(call)[1])


def _status(call: RequestContext) -> tuple[str, dict[str, Any]]:
    live, name = call.state.live, call.path("name")
    or_404(live.registry.labels, name)
    return name, live.learner.status(name, wait=False)


@router("GET", "/learning/{name:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One prompt: what people want of it."""
    name, status = _status(call)
    return ui.page(
        call,
        f"What people want of {name}",
        "learning",
        [_fault(one) for one in status["faults"]],
        _summary(status),
        _unreadable(call, name, status),
        _requirements(call, name, status["requirements"]),
        status["quarantine"] and _quarantine(call, name, status["quarantine"]),
        status["updates"] and _updates(status["updates"]),
        _rules(call, name, status["settings"]),
        above=[("Learning", "/learning"), (name, ui.path_to("prompts", name))],
    )


def _fault(fault: Mapping[str, str]) -> Html:
    """The error that keeps the learner from going on."""
    when = el("p", "At ", fault["at"][:16].replace("T", " "), " UTC. It is tried again.", class_="quiet")
    return ui.card(
        "Nothing can be learned now",
        el("p", fault["message"], class_="reason"),
        when,
        kind="bad",
        status=True,
    )


def _unreadable(call: RequestContext, name: str, status: Mapping[str, Any]) -> Html | None:
    """The comments for which the reader gave no answer that can be used, and the button to have them read again."""
    count = status["verdicts"].get(UNREADABLE, 0)
    if not count:
        return None
    reader = status["reader"] or "whoever reads"
    text = f"{number_format.plural(count, 'comment')} could not be read: no answer of the reader could be used, three times."
    button = ui.button(f"Read again with {reader}")
    again = call.may(Role.APPROVER) and ui.form(
        call, ui.path_to("learning-again", name), button, class_="row-form"
    )
    return el("div", el("p", text), again, class_="card")


def _summary(status: Mapping[str, Any]) -> Html:
    version, label = status["version"], status["settings"]["label"]
    idle = ", ".join(f"{n} {VERDICTS.get(why, why)}" for why, n in status["verdicts"].items())
    taught = f"version {version}, {label}" if version else f"nothing: there is no label {label}"
    pairs: list[tuple[str, Child]] = [
        ("Mode", ui.tag(status["settings"]["mode"])),
        ("Learns for", taught),
        ("Rows of feedback that count", number_format.count(status["rows"])),
        ("Events not read yet", number_format.count(status["unread"])),
        ("Sources", number_format.count(status["sources"])),
        ("Reader", status["reader"] or "none here: a person writes the instructions"),
        ("The reader sees", dict(SEEN)[status["settings"]["reads"]]),
        *((f"Search of {one['day']}", _describe_search(one)) for one in status["searches"][:1]),
        *((f"Evaluator {one['evaluator']}", _describe_evaluator(one)) for one in status["evaluators"]),
        ("Comments that wait for a reader", number_format.count(status["to_read"])),
        ("Comments without a demand", idle or "0"),
    ]
    return join(facts(pairs), bool(status["warning"]) and note(status["warning"]))


def _describe_search(one: Mapping[str, Any]) -> Child:
    shown = f"{one['method'] or 'a method'}, {one['state']}. {one['reason']}"
    return ui.link(shown, ui.path_to("review", one["proposal"])) if one["proposal"] else shown


def _describe_evaluator(one: Mapping[str, Any]) -> str:
    graded = number_format.plural(one["answers"], "answer")
    return f"{graded} graded on {one['day']}, {one['low']} low, {one['failed']} could not be graded"


def _requirements(call: RequestContext, name: str, requirements: list[Mapping[str, object]]) -> Html:
    body = note("Nobody demands anything that is not learned yet.")
    if requirements:
        body = el("ol", [_requirement(call, name, one) for one in requirements[:MOST]], class_="instructions")
    return ui.section("Demands", body)


def _requirement(call: RequestContext, name: str, one: Mapping[str, Any]) -> Html:
    unwritten, rejected = one["state"] == "unwritten", one["rejected"]
    line = el(
        "div",
        ui.tag(one["state"], STATES.get(one["state"], "")),
        el("span", one["counted"]),
        not unwritten and el("span", f"{one['confirmed']:g} confirmed"),
        one["instruction"] and el("span", f"about instruction {one['instruction']}"),
        one["author"] and el("span", f"written by {one['author']}"),
        class_="facts-line",
    )
    quotes = ui.quotes(clip(text, LONGEST) for text in one["texts"])
    decision = (
        one["state"] != "ready"
        and call.may(Role.APPROVER)
        and [
            unwritten and _writing(call, name, one["key"]),
            _verdict(call, name, REQUIREMENT + one["key"], None if unwritten else "Learn it anyway"),
        ]
    )
    return el(
        "li",
        prose(clip(one["text"], LONGEST), class_="text"),
        line,
        [against(text, f"{n:g}") for text, n in one["against"].items()],
        rejected and prose(el("b", "Rejected before: "), clip(rejected, LONGEST)),
        details("In their words", quotes, rows_line(one["rows"], MOST)),
        decision,
        class_="instruction",
    )


def _writing(call: RequestContext, name: str, key: str) -> Html:
    """The form in which a person writes the instruction for comments."""
    label = f"Instruction for {key}"
    box = el("input", type="text", name="text", required=True, maxlength=LONGEST, aria_label=label)
    path, button = ui.path_to("learning-instruction", name), ui.button("Learn this instruction")
    return ui.form(call, path, ui.hidden_fields(key=key), box, button, class_="inline", label=label)


def _verdict(call: RequestContext, name: str, key: str, yes: str | None) -> Html:
    """The form to decide about a demand or a row."""
    accept = yes and ui.button(yes, name="accept", value="yes")
    buttons = ui.buttons(accept, ui.button("Dismiss", "plain", name="accept", value="no"))
    path = ui.path_to("learning-verdict", name)
    return ui.form(call, path, ui.hidden_fields(key=key), buttons, class_="decide", label=key)


def _quarantine(call: RequestContext, name: str, rows: list[Mapping[str, Any]]) -> Html:
    items = []
    for row in rows[:MOST]:
        there = ui.link(row["id"], ui.path_to("about", row["id"]))
        reasons = el("small", ", ".join(map(str, row["reasons"])))
        quotes = ui.quotes(clip(text, LONGEST) for text in row["texts"])
        decision = call.may(Role.APPROVER) and _verdict(call, name, row["id"], "Let it count")
        items.append(ui.row([there, reasons, quotes], ui.aside(clip(str(row["source"]), 200)), decision))
    hint = note(
        "These look like instructions to a model, or hide something. They count for nothing until somebody says otherwise."
    )
    return ui.section(f"Quarantine: {len(rows)}", hint, ui.stack_rows(items))


def _subject(update: Mapping[str, Any]) -> str:
    """The subject of an update: the number of requirements, or a step of upkeep with the instruction that is omitted on
    trial."""
    plan = update["plan"]
    if not plan:
        return number_format.plural(len(update["requirements"]), "requirement")
    return f"Upkeep: {' '.join([STEPS.get(plan['step'], plan['step']), *plan.get('ids', ())])}"


def _updates(updates: list[Mapping[str, Any]]) -> Html:
    items = [
        ui.row(
            el("b", _subject(one)),
            ui.tag(one["outcome"], OUTCOMES.get(one["outcome"], "")),
            one["proposal"] and ui.link("proposal", ui.path_to("review", one["proposal"])),
            one["experiment"] and ui.link("experiment", ui.path_to("experiments", one["experiment"])),
            ui.aside(f"version {one['base']} · {one['at'][:16].replace('T', ' ')}"),
            sub=clip(one["reason"], LONGEST),
        )
        for one in updates
    ]
    return ui.section("Lessons", ui.stack_rows(items))


def _rules(call: RequestContext, name: str, settings: Mapping[str, Any]) -> Html:
    policy: Mapping[str, object] = settings["policy"]
    shown: list[tuple[str, Child]] = [
        ("Independent sources needed", f"{policy['quorum']:g}"),
        ("And this share of all", f"{policy['share']:.0%}"),
        ("Demands one source supports", f"{policy['per_source']}"),
        ("Hours until a new source counts", f"{policy['probation']:g}"),
    ]
    modes = [
        ("propose", "propose: somebody decides"),
        ("auto", "auto: gated, then tried in stages"),
        ("off", "off"),
    ]
    change = call.may(Role.ADMIN) and ui.form(
        call,
        ui.path_to("learning-settings", name),
        ui.select("mode", "Mode", modes, settings["mode"]),
        ui.text_input("label", "Label of the version to improve", settings["label"], maxlength=36),
        ui.select("reads", "The reader sees", SEEN, settings["reads"]),
        ui.button("Change"),
        class_="inline",
    )
    return ui.section("Rules", facts(shown), change)


@router("POST", "/learning-verdict/{name:path}", Role.APPROVER, form=show)
def verdict(call: RequestContext) -> Response:
    """Store a person's decision about a row in quarantine or a demand."""
    name, accept = call.path("name"), call.form.get("accept", "")
    if accept not in ("yes", "no"):
        raise UsageError("Say yes or no.")
    call.state.live.learner.decide(
        name, call.form.get("key", ""), accept == "yes", actor=call.name, reason=call.form.get("reason", "")
    )
    return see_other(ui.path_to("learning", name))


@router("POST", "/learning-instruction/{name:path}", Role.APPROVER, form=show)
def write(call: RequestContext) -> Response:
    """The instruction that a person writes for a demand."""
    name = call.path("name")
    call.state.live.learner.write(
        name,
        call.form.get("key", ""),
        call.form.get("text", ""),
        actor=call.name,
        reason=call.form.get("reason", ""),
    )
    return see_other(ui.path_to("learning", name))


@router("POST", "/learning-again/{name:path}", Role.APPROVER, form=show)
def read_again(call: RequestContext) -> Response:
    """Read the comments again that the reader model failed to read."""
    name = call.path("name")
    call.state.live.learner.read_again(name, actor=call.name)
    return see_other(ui.path_to("learning", name))


@router("POST", "/learning-settings/{name:path}", Role.ADMIN, form=show)
def configure(call: RequestContext) -> Response:
    """Set how a prompt learns."""
    learner, name, mode = call.state.live.learner, call.path("name"), call.form.get("mode", "")
    if mode not in MODES:
        raise UsageError("Choose a mode.")
    before = learner.settings(name)
    reads, label = call.form.get("reads", before.reads), call.form.get("label", "").strip()
    changed = replace(before, mode=mode, label=label, reads=reads)
    learner.configure(name, changed, actor=call.name)
    return see_other(ui.path_to("learning", name))
