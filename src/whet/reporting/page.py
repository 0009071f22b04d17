"""`report.html`: the whole page, written at once or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path

import whet.reporting.candidates as candidates
import whet.reporting.cost as cost
import whet.reporting.evidence as evidence
import whet.reporting.examples as examples
import whet.reporting.front as front
import whet.reporting.labels as labels
import whet.reporting.programs as programs
import whet.reporting.verdict as verdict
from whet._util.storable import write_whole
from whet.errors import StorageError, quantity
from whet.reporting.curves import learning_curve, step_figures
from whet.reporting.layout import Section, note
from whet.reporting.markup import Child, Html, el, join
from whet.reporting.next_steps import next_steps
from whet.reporting.record import Record, read_record

REPORT = "report.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_report(folder: Path, result: Mapping[str, object] | None) -> Path:
    """Write the report of the run in `folder` and return its path.

    `result` is the content of `result.json`, or None while the run is going on. The page depends on the
    journal and the result only, so that writing it again gives the same bytes. Raises UsageError when the
    folder has no journal, StorageError when the disk refuses the file; an older report then stays as it was.
    """
    return write_page(folder / REPORT, render_report(read_record(folder, result)))


def write_page(path: Path, page: str) -> Path:
    """Write a page at once or not at all, and return its path. Raises StorageError when the disk refuses it."""
    try:
        write_whole(path, page.encode())
    except OSError as error:
        raise StorageError(f"{path}: the page could not be written: {error}.") from error
    return path


def render_report(record: Record) -> str:
    """The page as text."""
    title = f"{record.result.get('task') or record.header.get('task') or record.name}: whet report"
    shown = _sections(record)
    end = "whet wrote this page from the journal of the run. The page loads and sends nothing."
    return document(
        title,
        el("a", "Skip to the verdict", href="#verdict", class_="skip"),
        verdict.header(record),
        verdict.simulation_banner(record),
        el("main", verdict.verdict_section(record), _contents(shown), [section.html() for section in shown]),
        el("footer", el("p", end)),
    )


def document(title: str, *body: Child) -> str:
    """A whole page that loads nothing and runs no script."""
    style = Html(files("whet.reporting").joinpath("style.css").read_text("utf-8"))
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", style),
    )
    return f"<!doctype html>\n{el('html', head, el('body', *body), lang='en')}\n"


def sections(record: Record, anchors: Collection[str]) -> list[Html]:
    """Some of the sections of the page, in its order."""
    return [section.html() for section in _sections(record) if section.anchor in anchors]


def _sections(record: Record) -> list[Section]:
    everything = (
        next_steps(record),
        front.objectives(record),
        evidence.cases_section(record),
        evidence.diff_section(record),
        programs.ablation(record),
        evidence.prompts(record),
        labels.labels(record),
        _learning(record),
        _figures(record),
        examples.examples_section(record),
        evidence.parts_section(record),
        evidence.failures(record),
        evidence.control(record),
        cost.cost_section(record),
        candidates.candidates_section(record),
        candidates.others(record),
        cost.reproduction(record),
    )
    return [section for section in everything if section is not None]


def _contents(shown: list[Section]) -> Html:
    links = [el("li", el("a", section.title, href=f"#{section.anchor}")) for section in shown]
    return el("nav", el("ul", links), aria_label="Contents")


def _learning(record: Record) -> Section | None:
    curve = learning_curve(record)
    return None if curve is None else Section("learning", "Learning curve", curve)


def _figures(record: Record) -> Section | None:
    panels = step_figures(record)
    if panels is None:
        return None
    caption = note(f"What the method noted at each of its {quantity(len(record.steps), 'step')}.")
    return Section("figures", "Figures of the method", join(caption, panels))
