"""Prompts: the list, and one version with its instructions, labels, traffic and neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from whet.errors import show_share, show_size
from whet.reporting import (
    Child,
    Html,
    el,
    facts,
    join,
    note,
    number_format,
    prompt_text,
    region,
    table,
)
from whet_live.registry import Summary, Version
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.evidence import evidence_section, instruction
from whet_live.server.pages.patterns import patterns_section
from whet_live.server.pages.terms import terms_form, terms_line
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import or_404, see_other
from whet_live.server.roles import Role
from whet_live.traffic import Count

router = EndpointRouter()
LISTED = 40
NEIGHBOURS = 20
ABOVE = ("Prompts", "/prompts")
KINDS = {
    "inference": "Answers",
    "rating": "Stars",
    "thumb": "Thumbs",
    "comment": "Comments",
    "correction": "Corrections",
    "regenerate": "Asked again",
    "copy": "Copied",
    "latency": "Seconds",
    "cost": "Dollars",
    "error": "Errors",
}
AVERAGED = ("copy", "latency", "cost")
"""Of ratings and thumbs the last of each person counts, which no count of rows knows: their means are on the page of quality."""


@router("GET", "/prompts", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Every prompt by name, searchable."""
    query, after = call.query_params.get("q", "")[:255], call.query_params.get("after") or None
    summaries = call.state.live.registry.prompts(query, after=after, limit=LISTED)
    field = ui.text_input("q", "Name contains", query, type="search")
    how = "Make one here, or import files: ", el("code", "whet prompts import FOLDER")
    empty = ui.nothing("There is no prompt yet.", *how)
    if query:
        empty = ui.nothing("No prompt has a name like this.")
    new = call.may(Role.EDITOR) and el("p", ui.button_link("New prompt", "/new", key="n"))
    rows = ui.stack_rows(map(_row, summaries.items), empty)
    more = ui.pager(ui.path_to("prompts", q=query, after=summaries.after), summaries.after, "More")
    search = ui.search_form("/prompts", field, label="Prompts")
    return ui.page(call, "Prompts", "prompts", search, rows, more, new)


def _row(summary: Summary) -> Html:
    labels = [label_tag(label, f"v{version}") for label, version in sorted(summary.labels.items())]
    return ui.row(
        ui.name_link(summary.name, ui.path_to("prompts", summary.name)),
        ui.tags(labels),
        ui.by_line(f"version {summary.newest}", summary.changed),
    )


def label_tag(label: str, more: str = "", protected: bool = False) -> Html:
    """A label as a mark; `production` stands out."""
    text = f"{label} {more}".strip()
    return ui.tag(f"{text} · locked" if protected else text, "live" if label == "production" else "")


@router("GET", "/prompts/{name:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One version: the one that the address names, else that in production, else the newest."""
    registry, name = call.state.live.registry, call.path("name")
    wanted = call.query_params.get("version", "")
    labels = or_404(registry.labels, name)
    number = labels.get("production", labels["latest"])
    if wanted.isascii() and wanted.isdecimal():
        number = int(wanted)
    version = or_404(registry.get, f"{name}/{number}")
    protected = {label for prompt, label in registry.protections() if prompt in (name, "*")}
    marks = [label_tag(label, protected=label in protected) for label in version.labels if label != "latest"]
    by = el("span", " by ", version.author, ", ", ui.moment(version.created), " ")
    return ui.page(
        call,
        name,
        "prompts",
        el("p", el("b", f"Version {version.version}"), by, ui.tags(marks), class_="run-line"),
        ui.reason(version.message),
        _actions(call, version),
        _instructions(call, version),
        _text(version),
        _traffic(call, name),
        patterns_section(call, name),
        evidence_section(version.evidence, version.run),
        _labels(call, name, labels, protected),
        _neighbours(version, registry.versions(name, limit=NEIGHBOURS).items),
    )


def _actions(call: RequestContext, version: Version) -> Html:
    name, number = version.name, version.version
    before = ui.path_to("compare", name, before=version.parent, after=number)
    edits = call.may(Role.EDITOR)
    annotate = ui.path_to("annotate", prompt=name)
    return ui.buttons(
        edits and ui.button_link("Edit", ui.path_to("edit", name, version=number), key="e"),
        bool(version.parent) and ui.button_link("Compare with version before", before),
        edits and ui.button_link("Experiment", ui.path_to("new-experiment", name)),
        edits
        and call.state.playground is not None
        and ui.button_link("Try it", ui.path_to("playground", name, version=number), key="t"),
        call.may(Role.ANNOTATOR) and ui.button_link("Annotate", annotate),
        ui.button_link("Quality over time", ui.path_to("quality", name), key="q"),
        ui.button_link("What people want", ui.path_to("learning", name)),
    )


@router("POST", "/terms/{name:path}", Role.APPROVER, form=show)
def set_terms(call: RequestContext) -> Response:
    """Lock or unlock an instruction, or set its dates."""
    lock, name = call.form.get("lock", ""), call.path("name")
    call.state.live.learner.set_terms(
        name, call.form.get("key", ""), actor=call.name, reason=call.form.get("reason", ""),
        locked={"yes": True, "no": False}.get(lock), dates=call.form.get("dates"), review=call.form.get("review"),
    )  # fmt: skip
    return see_other(ui.path_to("prompts", name))


def _instructions(call: RequestContext, version: Version) -> Html:
    rows, many = version.instructions, len(version.ledgers) > 1
    learner = call.state.live.learner
    terms, (taught, region) = learner.terms(version), learner.version_and_region(version.name)
    trials = learner.trials(version)
    ours = {one.id for _, one in rows} if taught == version.version else set()
    if not rows:
        hint = "This version has no managed instructions. They appear when something is learned or added."
        return ui.section("Instructions", note(hint), id="instructions")
    items = [
        instruction(
            one,
            f"e{i}",
            many and el("p", f"Region {where}", class_="quiet"),
            terms_line(terms.get((where, one.id)), learner.context.today()),
            one.id in ours
            and where == region
            and terms_form(call, version.name, one.id, terms.get((where, one.id))),
            trial=trials.get((where, one.id)),
        )
        for i, (where, one) in enumerate(rows)
    ]
    body = el("ol", items, class_="instructions")
    return ui.section(f"Instructions: {len(rows)}", body, id="instructions")


def _text(version: Version) -> Html:
    messages = version.prompt.messages
    parts = [
        join(
            len(messages) > 1 and el("h3", message.role),
            region("pre", prompt_text(message.content), label=f"Prompt, {message.role}"),
        )
        for message in messages
    ]
    hint = note(
        "Slots are blue, fence markers grey; only the text between fence markers is ever changed by learning. "
        f"Id {version.prompt.id}."
    )
    config = facts([(key, str(value)) for key, value in version.config.items()])
    return ui.section("Text", hint, parts, bool(version.config) and config, id="text")


def _traffic(call: RequestContext, name: str) -> Html:
    counts: dict[int, dict[str, Count]] = {}
    for count in call.state.live.traffic.counts([name]):
        counts.setdefault(count.version, {})[count.kind] = count
    if not counts:
        hint = "No answer of this prompt has been logged yet."
        return ui.section("Traffic", note(hint), id="traffic")
    kinds = [kind for kind in KINDS if any(kind in by for by in counts.values())]
    rows: list[list[Child]] = []
    for version in sorted(counts, reverse=True)[:NEIGHBOURS]:
        title = f"version {version}" if version else "unknown version"
        rows.append([title, *(_count(counts[version].get(kind)) for kind in kinds)])
    body = table("By version: how many came, and means", ["Version", *(KINDS[kind] for kind in kinds)], rows)
    there = ui.link("Feedback about this prompt", ui.path_to("feedback", prompt=name))
    return ui.section("Traffic", body, el("p", there, class_="after"), id="traffic")


def _count(stats: Count | None) -> Child:
    if stats is None:
        return "–"
    if stats.kind not in AVERAGED:
        return f"{stats.n:,}"
    mean = show_share(stats.mean) if stats.kind == "copy" else show_size(stats.mean)
    return join(mean, el("small", f"{stats.n:,}"))


def _labels(call: RequestContext, name: str, labels: Mapping[str, int], protected: set[str]) -> Html:
    always = el("small", "always the newest")
    rows = [
        ui.row(
            label_tag(label, protected=label in protected),
            ui.link(f"version {number}", ui.path_to("prompts", name, version=number)),
            always if label == "latest" else _label_forms(call, name, label, label in protected),
        )
        for label, number in sorted(labels.items())
    ]
    hint = note("An application fetches by label. A locked label moves only when somebody else approves.")
    move = call.may(Role.EDITOR) and ui.form(
        call,
        ui.path_to("labels", name),
        ui.text_input("label", "Label", "staging", required=True, maxlength=36),
        ui.text_input(
            "version", "Version", str(labels["latest"]), required=True, inputmode="numeric", maxlength=9
        ),
        ui.text_input("reason", "Reason", maxlength=4000),
        ui.button("Move the label"),
        class_="inline",
    )
    there = ui.link("Every move of the labels", ui.path_to("history", name))
    return ui.section("Labels", hint, ui.stack_rows(rows), move, el("p", there, class_="after"), id="labels")


def _label_forms(call: RequestContext, name: str, label: str, protected: bool) -> Html:
    word, then = ("Unlock", "no") if protected else ("Lock", "yes")
    back = ui.button("Roll back", "plain", aria_label=f"Roll {label} back")
    lock = ui.button(word, "plain", aria_label=f"{word} {label}")
    roll_back = ui.form(
        call, ui.path_to("rollback", name), ui.hidden_fields(label=label), back, class_="row-form"
    )
    protect = ui.form(
        call,
        ui.path_to("protect", name),
        ui.hidden_fields(label=label, protected=then),
        lock,
        class_="row-form",
    )
    may_move = call.may(Role.APPROVER if protected else Role.EDITOR)
    return ui.aside(may_move and roll_back, call.may(Role.ADMIN) and protect)


def _neighbours(version: Version, versions: Sequence[Version]) -> Html:
    rows = []
    for one in versions:
        other = ui.path_to("compare", one.name, before=one.version, after=version.version)
        same = one.version == version.version
        rows.append(
            ui.row(
                ui.name_link(f"Version {one.version}", ui.path_to("prompts", one.name, version=one.version)),
                ui.tags(label_tag(label) for label in one.labels if label != "latest"),
                ui.by_line(one.author, one.created),
                ui.aside("shown") if same else ui.link("compare", other),
                sub=one.message or "no message",
            )
        )
    return ui.section("Versions", ui.stack_rows(rows), id="versions")


@router("GET", "/history/{name:path}", Role.VIEWER)
def history(call: RequestContext) -> Response:
    """Every move of the labels of a prompt."""
    name, before = call.path("name"), call.query_params.get("before", "")
    number = int(before) if before.isascii() and before.isdecimal() and len(before) < 16 else None
    moves = or_404(call.state.live.registry.moves, name, before=number, limit=LISTED)
    rows = [
        ui.row(
            [el("b", move.label), f" {_describe_move(move.old, move.new, move.kind)}"],
            el("span", move.reason, class_="quiet", dir="auto"),
            ui.by_line(move.actor, move.at),
        )
        for move in moves.items
    ]
    return ui.page(
        call,
        "Moves of labels",
        "prompts",
        ui.stack_rows(rows, ui.nothing("No label was moved yet.")),
        ui.pager(ui.path_to("history", name, before=moves.after), moves.after),
        note(number_format.plural(len(rows), "move") + " shown."),
        above=[ABOVE, (name, ui.path_to("prompts", name))],
    )


def _describe_move(old: int | None, new: int | None, kind: str) -> str:
    word = {"rollback": "rolled back", "remove": "removed"}.get(kind, "moved")
    start = "nowhere" if old is None else f"version {old}"
    return f"{word} from {start}" + ("" if new is None else f" to version {new}")
