"""A result as a notebook shows it: the verdict and the figures of the report, without its style sheet and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.engine.forecast import plan_lines
from whet.reporting.curves import differences, means
from whet.reporting.markup import Child, Html, el, join
from whet.reporting.record import Record, side
from whet.reporting.svg import IntervalRow
from whet.reporting.verdict import key_figures

_STYLE = "font-family: sans-serif; color: inherit; background: transparent"
_BOX = "white-space: pre-wrap; color: inherit; background: transparent; border: 1px solid currentColor; padding: 0.5em"
_SIMULATED = " (simulated: a scripted model answered)"


def result_html(result: Mapping[str, Any], prompt: str) -> Html:
    """The result of a run with its folder (`run`) and its best prompt, as it is to be copied."""
    record = Record(str(result.get("run", "")), {}, result)
    title = f"{result['task']} · {result['method']} · seed {result['seed']}"
    head = el("p", el("b", title), bool(result.get("simulated")) and _SIMULATED)
    if result["status"] == "planned":
        return el(
            "div", head, el("ul", [el("li", line) for line in plan_lines(result["plan"])]), style=_STYLE
        )
    figures = (el("tr", el("th", name), el("td", value, colspan=2)) for name, value in key_figures(record))
    return el(
        "div",
        head,
        el("p", el("b", str(side(result, "improvement").get("reason", "")))),
        el(
            "table",
            _rows("Sealed test", means(record)) or el("tr", el("th", "Sealed test"), el("td", "not tested")),
            _rows("Difference", differences(record)),
            figures,
        ),
        el("pre", prompt, style=_BOX),
        [el("p", f"warning: {warning}") for warning in result.get("warnings") or ()],
        el("p", record.name),
        style=_STYLE,
    )


def _rows(what: str, rows: Sequence[IntervalRow]) -> Child:
    """Numbers with the ends of their intervals, and how these were made."""
    return [
        join(el("tr", el("th", f"{what}: {row.name}"), el("td", row.text), el("td", row.method)))
        for row in rows
    ]
