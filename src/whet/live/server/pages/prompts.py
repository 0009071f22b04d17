"""Prompts: the list, and one version with its instructions, labels, traffic and neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from whet.live.registry import Summary, Version
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.evidence import evidence_section
from whet.live.server.pages.instructions import instruction
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    asking,
    button,
    crumbs,
    form,
    hidden,
    link,
    listed,
    moment,
    nothing,
    pager,
    path_to,
    tag,
    text_input,
)
from whet.live.server.request_context import RequestContext
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import looked_up
from whet.reporting import number_format
from whet.reporting.layout import facts, note, table
from whet.reporting.markup import Child, Html, el, join, prompt_text

book = EndpointRouter()
LISTED = 40
NEIGHBOURS = 20
KINDS = {
    "inference": "Answers",
    "rating": "Stars",
    "thumb": "Thumbs up",
    "comment": "Comments",
    "correction": "Corrections",
    "regenerate": "Asked again",
    "copy": "Copied",
    "latency": "Seconds",
    "cost": "Dollars",
    "error": "Errors",
}
AVERAGED = ("rating", "thumb", "copy", "latency", "cost")


@book("GET", "/prompts", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Every prompt by name, searchable."""
    query, after = call.query_params.get("q", "")[:255], call.query_params.get("after") or None
    summaries = call.house.live.registry.prompts(query, after=after, limit=LISTED)
    search = asking(
        "/prompts", text_input("q", "Name contains", query, type="search"), button("Search"), label="Prompts"
    )
    new = (
        el("p", link("New prompt", "/new", class_="button", data_key="n")) if call.may(Role.EDITOR) else None
    )
    if not summaries.items:
        empty = (
            nothing("No prompt has a name like this.")
            if query
            else nothing(
                "There is no prompt yet.",
                "Make one here, or import files: ",
                el("code", "whet prompts import FOLDER"),
            )
        )
        return page(call, "Prompts", "prompts", search, empty, new)
    rows = listed([_row(summary) for summary in summaries.items])
    return page(
        call,
        "Prompts",
        "prompts",
        search,
        rows,
        pager("/prompts", {"q": query}, summaries.after, "More"),
        new,
    )


def _row(summary: Summary) -> Html:
    labels = [label_tag(label, f"v{version}") for label, version in sorted(summary.labels.items())]
    return join(
        el(
            "span",
            link(summary.name, path_to("prompts", summary.name), class_="name", data_row=True),
            class_="what",
        ),
        el("span", labels, class_="tags"),
        el("span", f"version {summary.newest} · ", moment(summary.changed), class_="side"),
    )


def label_tag(label: str, more: str = "", protected: bool = False) -> Html:
    """A label as a mark; `production` stands out."""
    text = f"{label} {more}".strip()
    return tag(f"{text} · locked" if protected else text, "live" if label == "production" else "")


@book("GET", "/prompts/{name:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One version: the one asked for, else that in production, else the newest."""
    registry, name = call.house.live.registry, call.path("name")
    wanted = call.query_params.get("version", "")
    with looked_up():
        standing = registry.labels(name)
        number = (
            int(wanted)
            if wanted.isascii() and wanted.isdecimal()
            else standing.get("production", standing["latest"])
        )
        version = registry.get(f"{name}/{number}")
    versions = registry.versions(name, limit=NEIGHBOURS)
    protected = {label for prompt, label in registry.protections() if prompt in (name, "*")}
    labels = [label_tag(label, protected=label in protected) for label in version.labels if label != "latest"]
    head = el(
        "p",
        el("b", f"Version {version.version}"),
        el("span", " by ", version.author, ", ", moment(version.created), " "),
        el("span", labels, class_="tags"),
        class_="run-line",
    )
    return page(
        call,
        name,
        "prompts",
        head,
        el("p", version.message, class_="reason", dir="auto") if version.message else None,
        _actions(call, version),
        _instructions(version),
        _text(version),
        _traffic(call, name),
        evidence_section(version.evidence, version.run),
        _labels(call, name, standing, protected),
        _neighbours(version, versions.items),
    )


def _actions(call: RequestContext, version: Version) -> Html:
    name, number = version.name, version.version
    return el(
        "div",
        link("Edit", path_to("edit", name, version=number), class_="button", data_key="e")
        if call.may(Role.EDITOR)
        else None,
        link(
            "Compare with version before",
            path_to("compare", name, before=version.parent, after=number),
            class_="button",
        )
        if version.parent
        else None,
        link("Experiment", path_to("new-experiment", name), class_="button")
        if call.may(Role.EDITOR)
        else None,
        link("Annotate", path_to("annotate", prompt=name), class_="button")
        if call.may(Role.ANNOTATOR)
        else None,
        link("What it hears", path_to("learning", name), class_="button"),
        class_="buttons",
    )


def _instructions(version: Version) -> Html:
    rows = version.instructions
    if not rows:
        body: Child = note(
            "This version has no managed instructions. They appear when something is learned or added."
        )
    else:
        many = len(version.ledgers) > 1
        body = el(
            "ol",
            [
                instruction(one, f"e{i}", el("p", f"Region {region}", class_="quiet") if many else None)
                for i, (region, one) in enumerate(rows)
            ],
            class_="instructions",
        )
    title = f"Instructions: {len(rows)}" if rows else "Instructions"
    return el("section", el("h2", title), body, id="instructions")


def _text(version: Version) -> Html:
    many = len(version.prompt.messages) > 1
    parts = [
        join(
            el("h3", message.role) if many else None,
            el(
                "pre",
                prompt_text(message.content),
                tabindex=0,
                role="region",
                aria_label=f"Prompt, {message.role}",
                dir="auto",
            ),
        )
        for message in version.prompt.messages
    ]
    hint = note(
        "Slots are blue, fence markers grey; only the text between fence markers is ever changed by learning. "
        f"Id {version.prompt.id}."
    )
    config = facts([(key, str(value)) for key, value in version.config.items()]) if version.config else None
    return el("section", el("h2", "Text"), hint, parts, config, id="text")


def _traffic(call: RequestContext, name: str) -> Html:
    counts: dict[int, dict[str, Any]] = {}
    for count in call.house.live.traffic.counts([name]):
        counts.setdefault(count.version, {})[count.kind] = count
    if not counts:
        return el(
            "section",
            el("h2", "Traffic"),
            note("No answer of this prompt has been logged yet."),
            id="traffic",
        )
    kinds = [kind for kind in KINDS if any(kind in by for by in counts.values())]
    rows: list[list[Child]] = []
    for version in sorted(counts, reverse=True)[:NEIGHBOURS]:
        title = f"version {version}" if version else "unknown version"
        rows.append([title, *(_count(kind, counts[version].get(kind)) for kind in kinds)])
    body = table("By version: how many, and means", ["Version", *(KINDS[kind] for kind in kinds)], rows)
    more = el("p", link("Feedback about this prompt", path_to("feedback", prompt=name)), class_="after")
    return el("section", el("h2", "Traffic"), body, more, id="traffic")


def _count(kind: str, stats: Any) -> Child:
    if stats is None:
        return "–"
    if kind not in AVERAGED:
        return f"{stats.n:,}"
    mean = f"{stats.mean:.0%}" if kind in ("thumb", "copy") else f"{stats.mean:.4g}"
    return join(mean, el("small", f"{stats.n:,}"))


def _labels(call: RequestContext, name: str, standing: Mapping[str, int], protected: set[str]) -> Html:
    rows = [
        join(
            el("span", label_tag(label, protected=label in protected), class_="what"),
            link(f"version {number}", path_to("prompts", name, version=number)),
            _label_forms(call, name, label, label in protected)
            if label != "latest"
            else el("small", "always the newest"),
        )
        for label, number in sorted(standing.items())
    ]
    hint = note("An application fetches by label. A locked label moves only when somebody else approves.")
    move = None
    if call.may(Role.EDITOR):
        move = form(
            call,
            path_to("labels", name),
            text_input("label", "Label", "staging", required=True, maxlength=36),
            text_input(
                "version", "Version", str(standing["latest"]), required=True, inputmode="numeric", maxlength=9
            ),
            text_input("reason", "Reason", maxlength=4000),
            button("Move the label"),
            class_="inline",
        )
    history = el("p", link("Every move of the labels", path_to("history", name)), class_="after")
    return el("section", el("h2", "Labels"), hint, listed(rows), move, history, id="labels")


def _label_forms(call: RequestContext, name: str, label: str, protected: bool) -> Html | None:
    forms: list[Html] = []
    if call.may(Role.APPROVER if protected else Role.EDITOR):
        back = button("Roll back", "plain", aria_label=f"Roll {label} back")
        forms.append(form(call, path_to("rollback", name), hidden(label=label), back, class_="row-form"))
    if call.may(Role.ADMIN):
        word = "Unlock" if protected else "Lock"
        lock = button(word, "plain", aria_label=f"{word} {label}")
        kept = hidden(label=label, protected="no" if protected else "yes")
        forms.append(form(call, path_to("protect", name), kept, lock, class_="row-form"))
    return el("span", forms, class_="side") if forms else None


def _neighbours(version: Version, versions: Sequence[Version]) -> Html:
    rows = [
        join(
            el(
                "span",
                link(
                    f"Version {one.version}",
                    path_to("prompts", one.name, version=one.version),
                    class_="name",
                    data_row=True,
                ),
                el("small", one.message or "no message", dir="auto"),
                class_="what",
            ),
            el("span", [label_tag(label) for label in one.labels if label != "latest"], class_="tags"),
            el("span", one.author, " · ", moment(one.created), class_="side"),
            link("compare", path_to("compare", one.name, before=one.version, after=version.version))
            if one.version != version.version
            else el("span", "shown", class_="side"),
        )
        for one in versions
    ]
    return el("section", el("h2", "Versions"), listed(rows), id="versions")


@book("GET", "/history/{name:path}", Role.VIEWER)
def history(call: RequestContext) -> Response:
    """Every move of the labels of a prompt."""
    name, before = call.path("name"), call.query_params.get("before", "")
    with looked_up():
        number = int(before) if before.isascii() and before.isdecimal() and len(before) < 16 else None
        moves = call.house.live.registry.moves(name, before=number, limit=LISTED)
    rows = [
        join(
            el("span", el("b", move.label), f" {_moved(move.old, move.new, move.kind)}", class_="what"),
            el("span", move.reason, class_="quiet", dir="auto"),
            el("span", move.actor, " · ", moment(move.at), class_="side"),
        )
        for move in moves.items
    ]
    older = path_to("history", name, before=moves.after)
    return page(
        call,
        "Moves of labels",
        "prompts",
        listed(rows) if rows else nothing("No label was moved yet."),
        el("p", link("Older →", older, rel="next")) if moves.after else None,
        note(number_format.plural(len(rows), "move") + " shown."),
        above=crumbs(("Prompts", "/prompts"), (name, path_to("prompts", name))),
    )


def _moved(old: int | None, new: int | None, kind: str) -> str:
    word = {"rollback": "rolled back", "remove": "removed"}.get(kind, "moved")
    start = "nowhere" if old is None else f"version {old}"
    return f"{word} from {start}" + ("" if new is None else f" to version {new}")
