"""Runs of methods: the list, and one run with its learning curve, live while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from starlette.responses import Response

from whet import api
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import crumbs, link, listed, nothing, path_to, tag
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import page_answer
from whet.live.server.roles import Role
from whet.live.server.v1.runs import UNFINISHED, all_runs, find_run
from whet.reporting import candidates, evidence, number_format
from whet.reporting.curves import learning_curve, step_figures
from whet.reporting.layout import Section, facts, note
from whet.reporting.markup import Child, Html, el, join
from whet.reporting.record import Record, read_record, side

book = EndpointRouter()
MOST = 200
STATES = {"completed": "good", "budget_exhausted": "good", "stopped": "bad", UNFINISHED: "live"}


@book("GET", "/runs", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Every run below the root of runs."""
    runs = all_runs(call)
    if not runs:
        hint = "A run appears here as soon as it starts: ", el("code", "whet optimize TASK")
        return page(call, "Runs", "runs", nothing("There is no run yet.", *hint))
    rows = [_row(name, row) for name, row in list(runs.items())[:MOST]]
    left = len(runs) - len(rows)
    return page(call, "Runs", "runs", listed(rows), note(f"{left:,} more are not shown.") if left else None)


def _row(name: str, row: dict[str, Any]) -> Html:
    score = "–" if row["test"] is None else f"{row['test']:.3f} on the sealed test"
    return join(
        el("span", link(name, path_to("runs", name), class_="name", data_row=True), class_="what"),
        el(
            "span",
            tag(row["status"].replace("_", " "), STATES.get(row["status"], "")),
            tag("promoted", "good") if row["promoted"] else None,
            class_="tags",
        ),
        el("span", score, class_="side"),
        el("span", f"{row['method'] or '–'}, {number_format.plural(row['calls'], 'call')}", class_="side"),
    )


@book("GET", "/runs/{id:path}/part", Role.VIEWER)
def part(call: RequestContext) -> Response:
    """The part of a run's page that changes while it goes on, for the script that draws it anew."""
    _, row = find_run(call)
    return page_answer(_changing(_record(row), row))


@book("GET", "/runs/{id:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One run: how it stands, its learning curve, what changed, its candidates."""
    name, row = find_run(call)
    record = _record(row)
    going = row["status"] == UNFINISHED
    live = f"/v1{path_to('runs', name)}/events"
    more = [
        section
        for section in (candidates.candidates(record), candidates.others(record))
        if section is not None
    ]
    return page(
        call,
        name,
        "runs",
        el("p", "waiting for news", id="live-state", class_="live-state", role="status") if going else None,
        el(
            "div",
            _changing(record, row),
            data_live=live if going else None,
            data_part=f"{path_to('runs', name)}/part" if going else None,
            data_state="#live-state" if going else None,
        ),
        [section.html() for section in more],
        wide=True,
        above=crumbs(("Runs", "/runs")),
    )


def _record(row: dict[str, Any]) -> Record:
    folder = Path(row["run"])
    path = folder / api.RESULT
    result = orjson.loads(path.read_bytes()) if path.is_file() else None
    return read_record(folder, result)


def _changing(record: Record, row: dict[str, Any]) -> Html:
    curve, figures = learning_curve(record), step_figures(record)
    sections = [
        Section("learning", "Learning curve", curve) if curve is not None else None,
        Section("figures", "Figures of the method", figures) if figures is not None else None,
        evidence.change(record),
    ]
    empty = (
        nothing("Nothing is measured yet.", "The curve begins with the third score.")
        if curve is None
        else None
    )
    return join(_summary(record, row), empty, [section.html() for section in sections if section is not None])


def _summary(record: Record, row: dict[str, Any]) -> Html:
    reason = side(record.result, "improvement").get("reason")
    baseline, best = (side(side(record.result, name), "test").get("mean") for name in ("baseline", "best"))
    now = record.incumbent.validation if record.incumbent is not None else None
    pairs: list[tuple[str, Child]] = [
        ("State", tag(str(row["status"]).replace("_", " "), STATES.get(row["status"], ""))),
        ("Method", str(record.header.get("method", "–"))),
        ("Task", str(record.header.get("task", "–"))),
        ("Model calls", f"{record.calls:,}"),
        ("Best on validation", number_format.reward(now, record.digits)),
        (
            "Sealed test",
            f"{number_format.reward(baseline, record.digits)} → {number_format.reward(best, record.digits)}",
        ),
    ]
    simulated = (
        el("p", el("strong", "Simulated"), " a scripted model answered.", class_="banner")
        if record.simulated
        else None
    )
    return join(
        simulated,
        el("p", str(reason), class_="reason") if reason else None,
        facts(pairs, "figures plain-figures"),
    )
