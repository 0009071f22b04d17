"""Runs of methods: the list, and one run with its learning curve, live while it goes on."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from whet.engine import RunRowJSON
from whet.reporting import (
    Child,
    Html,
    Record,
    el,
    facts,
    finite_number,
    join,
    note,
    number_format,
    read_run,
    sections,
    side,
)
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import page_answer
from whet_live.server.roles import Role
from whet_live.server.v1.runs import UNFINISHED, all_runs, run_of_path

router = EndpointRouter()
MOST = 200
STATES = {"completed": "good", "budget_exhausted": "good", "stopped": "bad", UNFINISHED: "live"}


@router("GET", "/runs", Role.VIEWER)
def show_all(call: RequestContext) -> Response:
    """Every run below the root of runs."""
    runs = all_runs(call)
    hint = "A run appears here as soon as it starts: ", el("code", "whet optimize TASK")
    shown, left = list(runs.items())[:MOST], len(runs) - MOST
    rows = ui.stack_rows((_row(name, row) for name, row in shown), ui.nothing("There is no run yet.", *hint))
    return ui.page(call, "Runs", "runs", rows, left > 0 and note(f"{left:,} more are not shown."))


def _row(name: str, row: RunRowJSON) -> Html:
    return ui.row(
        ui.name_link(name, ui.path_to("runs", name)),
        ui.tags(_state(row), bool(row["promoted"]) and ui.tag("promoted", "good")),
        ui.aside(
            "–"
            if row["mean"] is None
            else f"{number_format.reward_text(row['mean'], 3)} on {row['split']}, {row['n']:,} rows"
        ),
        ui.aside(f"{row['method'] or '–'}, {number_format.plural(row['calls'], 'call')}"),
    )


def _state(row: RunRowJSON) -> Html:
    return ui.tag(str(row["status"]).replace("_", " "), STATES.get(row["status"], ""))


@router("GET", "/runs/{id:path}/part", Role.VIEWER)
def part(call: RequestContext) -> Response:
    """The part of a run's page that changes while it goes on, for the script that draws it anew."""
    _, row = run_of_path(call)
    return page_answer(_changing(read_run(Path(row["run"])), row))


@router("GET", "/runs/{id:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One run: how it stands, its learning curve, what changed, its candidates."""
    name, row = run_of_path(call)
    record, path = read_run(Path(row["run"])), ui.path_to("runs", name)
    changing: Child = el("div", _changing(record, row))
    if row["status"] == UNFINISHED:
        waits = el("p", "waiting for news", id="live-state", class_="live-state", role="status")
        live = {"data_live": f"/v1{path}/events", "data_part": f"{path}/part", "data_state": "#live-state"}
        changing = [waits, el("div", _changing(record, row), **live)]
    more = sections(record, ["candidates", "notes"])
    return ui.page(call, name, "runs", changing, more, wide=True, above=[("Runs", "/runs")])


def _changing(record: Record, row: RunRowJSON) -> Html:
    shown = sections(record, ["learning", "figures", "change"])
    empty = ui.nothing("Nothing is measured yet.", "The curve begins with the third score.")
    measured = len(record.validated) + len(record.trained) >= 3
    return join(_summary(record, row), None if measured else empty, shown)


def _summary(record: Record, row: RunRowJSON) -> Html:
    reason = side(record.result, "improvement").get("reason")
    tests = (side(side(record.result, name), "test").get("mean") for name in ("baseline", "best"))
    baseline, best = (number_format.reward_text(mean, record.digits) for mean in tests)
    now = finite_number(record.validation(record.best_id or "").get("mean"))
    if now is None and record.incumbent is not None:
        now = record.incumbent.validation
    pairs: list[tuple[str, Child]] = [
        ("State", _state(row)),
        ("Method", str(record.header.get("method", "–"))),
        ("Task", str(record.header.get("task", "–"))),
        ("Model calls", f"{record.calls:,}"),
        ("Best on validation", number_format.reward_text(now, record.digits)),
        ("Sealed test", f"{baseline} → {best}"),
    ]
    simulated = el("p", el("strong", "Simulated"), " a scripted model answered.", class_="banner")
    return join(
        record.simulated and simulated,
        reason is not None and el("p", str(reason), class_="reason"),
        facts(pairs, "figures plain-figures"),
    )
