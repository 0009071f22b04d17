"""A result as a notebook shows it: the verdict and the figures of the report, without its style sheet and its pictures."""

from __future__ import annotations

from collections.abc import Sequence

import whet.reporting.number_format as number_format
from whet.engine.comparison_json import ComparisonJSON
from whet.engine.plan_text import plan_lines
from whet.engine.result_json import EvaluationJSON, RunJSON, answered_rows
from whet.reporting.comparison_page import HEAD, best_first, method_cells
from whet.reporting.comparison_sentences import sentences
from whet.reporting.curves import draw_means, interval_rows
from whet.reporting.markup import Child, Html, el
from whet.reporting.record import Record, side
from whet.reporting.svg import IntervalRow
from whet.reporting.verdict import key_figures

_STYLE = "font-family: sans-serif; color: inherit; background: transparent"
_BOX = "white-space: pre-wrap; color: inherit; background: transparent; border: 1px solid currentColor; padding: 0.5em"
_LEFT = "text-align: left"
_SIMULATED = " (simulated: a scripted model answered)"


def result_html(result: RunJSON, prompt: str) -> Html:
    """The result of a run with its folder (`run`) and its best prompt, as it is to be copied."""
    record = Record(str(result.get("run", "")), {}, result)
    title = f"{result['task']} · {result['method']} · seed {result['seed']}"
    head = el("p", el("b", title), bool(result.get("simulated")) and _SIMULATED)
    if result["status"] == "planned":
        return el(
            "div", head, el("ul", [el("li", line) for line in plan_lines(result["plan"])]), style=_STYLE
        )
    figures = (_row(name, value) for name, value in key_figures(record))
    return el(
        "div",
        head,
        el("p", el("b", str(side(result, "improvement").get("reason", "")))),
        el(
            "table",
            _rows("{}, sealed test", draw_means(record))
            or (not side(side(result, "best"), "test") and _row("Sealed test", "not tested")),
            _rows("{}", interval_rows(record)),
            figures,
        ),
        el("pre", prompt, style=_BOX),
        [el("p", f"warning: {warning}") for warning in result.get("warnings") or ()],
        el("p", record.name),
        style=_STYLE,
    )


def _rows(named: str, rows: Sequence[IntervalRow]) -> list[Html]:
    """Numbers with the ends of their intervals, and how these were made."""
    return [_row(named.replace("{}", row.name), row.text, row.method) for row in rows]


def _row(name: str, value: Child, how: str = "") -> Html:
    cells = el("td", value, style=_LEFT), el("td", how, style=_LEFT)
    return el("tr", el("th", name, style=_LEFT), cells)


def evaluation_html(values: EvaluationJSON) -> Html:
    """The result of an evaluation: its mean with the interval, the parts of the reward, accuracy by label."""
    head = el(
        "p",
        el("b", f"{values['task']} · {values['split']} rows"),
        bool(values.get("simulated")) and _SIMULATED,
    )
    if values["status"] == "planned":
        return el(
            "div", head, el("ul", [el("li", line) for line in plan_lines(values["plan"])]), style=_STYLE
        )
    score = values["score"]
    mean, low, high = (number_format.reward_text(score[end], 3) for end in ("mean", "low", "high"))
    rows = [
        _row(
            "Mean reward",
            f"{mean}  [{low} to {high}]",
            f"{answered_rows(score.get('answered'), score.get('of'), None) or number_format.plural(score['n'], 'row')}, "
            "95% interval",
        )
    ]
    rows += [_row(name, number_format.reward_text(mean, 3)) for name, mean in values["parts"].items()]
    if values["failed"]:
        rows.append(_row("Failed", f"{values['failed']:,}", "they count as the lowest reward"))
    rows += [
        _row(
            f"Agreement of {one['reward']} with people",
            f"{number_format.reward_text(one['value'], 2)}  [{number_format.reward_text(one['low'], 2)} to "
            f"{number_format.reward_text(one['high'], 2)}]",
            f"{one['kind']} over {number_format.plural(one['n'], 'answer')}, 95% interval",
        )
        for one in values.get("agreement", ())
    ]
    for label, one in side(values, "labels").get("each", {}).items():
        rows.append(
            _row(
                f"Label {label}",
                number_format.reward_text(one["accuracy"], 3),
                f"{one['right']} of {one['n']} rows",
            )
        )
    warnings = [el("p", f"warning: {warning}") for warning in values["warnings"]]
    return el(
        "div", head, el("table", rows), el("pre", str(values["prompt"]), style=_BOX), warnings, style=_STYLE
    )


def comparison_html(values: ComparisonJSON) -> Html:
    """A comparison: what its pairs show, and the table of its methods."""
    head = el("p", el("b", str(values["task"])))
    if values.get("status") == "planned":
        plan = values.get("plan")
        lines = [] if plan is None else plan_lines(plan)
        return el("div", head, el("ul", [el("li", line) for line in lines]), style=_STYLE)
    methods = best_first(values["methods"])
    cells = [el("tr", [el("td", cell, style=_LEFT) for cell in method_cells(row)]) for row in methods]
    table = el("table", el("tr", [el("th", name, style=_LEFT) for name in HEAD]), cells)
    results = [el("p", sentence) for sentence in sentences(values)]
    return el("div", head, results, table, el("p", f"{values['folder']}/comparison.html"), style=_STYLE)
