"""Answers to a few fixed questions under the version that stands and under the proposed one, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.live.registry import Proposal
from whet.live.registry.proposals import PROBES
from whet.live.server.pages.parts import tag
from whet.live.server.pages.traffic_views import inputs_of, text_box
from whet.live.server.request_context import RequestContext
from whet.reporting import number_format
from whet.reporting.layout import note
from whet.reporting.markup import Html, clipped, el

MOST = 20
TITLE = "Answers before and after"


def probes_section(call: RequestContext, proposal: Proposal) -> Html:
    """What a proposal shows of its effect; where it shows nothing, that and why.

    Questions out of traffic are read where they lie: when their user's data was deleted, the answers are not shown either.
    """
    probes = (proposal.evidence or {}).get(PROBES)
    rows = [one for row in _rows(probes) if (one := _row(call, row, proposal)) is not None]
    if not rows or not isinstance(probes, Mapping):
        return el("section", el("h2", TITLE), note(_why_none(proposal, probes)), id="probes")
    by = clipped(str(probes.get("model") or "an unnamed model"), 200)
    simulated = tag("simulated", "bad") if probes.get("simulated") else None
    summary = el(
        "p",
        f"{number_format.plural(len(rows), 'fixed question')} from {probes.get('of', 'the traffic')}, answered by ",
        by,
        ". ",
        simulated,
        " The model is a simulator: these are no answers of a real one." if simulated is not None else None,
    )
    return el("section", el("h2", TITLE), summary, el("ol", rows, class_="probes"), id="probes")


def _rows(probes: Any) -> list[Mapping[str, Any]]:
    rows = probes.get("rows") if isinstance(probes, Mapping) else None
    return [row for row in rows if isinstance(row, Mapping)][:MOST] if isinstance(rows, list) else []


def _why_none(proposal: Proposal, probes: Any) -> str:
    reason = probes.get("reason") if isinstance(probes, Mapping) else None
    if reason is not None:
        return f"There are none. {reason}"
    if _rows(probes):
        return (
            "There are none any more: the questions were deleted with the data of the users who asked them."
        )
    if proposal.target is not None:
        return "There are none: a request to move a label brings no answers. Look at the version's traffic."
    return "There are none: only the learner brings answers, when it has a task (--gate) or a model (--lm)."


def _row(call: RequestContext, row: Mapping[str, Any], proposal: Proposal) -> Html | None:
    """One question with both answers; None when the question is gone."""
    about, inputs = row.get("about"), row.get("inputs")
    if isinstance(about, str):
        stored = call.house.live.traffic.inference(about)
        inputs = None if stored is None else stored.inference.inputs
    if not isinstance(inputs, Mapping):
        return None
    before, after = (str(row.get(key, "")) for key in ("before", "after"))
    answers = [text_box(f"Version {proposal.base}", before, level=3), text_box("As proposed", after, level=3)]
    if before == after:
        answers = [text_box(f"Version {proposal.base} and as proposed: the same answer", before, level=3)]
    shown = el("div", answers, class_="duel" if len(answers) > 1 else None)
    return el("li", inputs_of(inputs, level=3), shown)
