"""Results by label: accuracy, and which wrong label was answered instead of which right one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import whet.reporting.number_format as number_format
from whet.reporting.layout import Section, note, region, table
from whet.reporting.markup import Child, Html, el, join
from whet.reporting.record import Record, finite_number, side

MOST_CONFUSIONS = 10
PAIR_LETTERS, LEAST_COLUMN = 44, 5
"""Letters that fit in the heading of a matrix on half the page, and the fewest letters of a column."""


def labels(record: Record) -> Section | None:
    """Accuracy by label, the confusion matrices of baseline and best, and the most frequent errors of the best prompt."""
    both = side(record.result, "labels")
    before, after = side(both, "baseline"), side(both, "best")
    if not before or not after:
        return None
    same = side(record.result, "best").get("id") == side(record.result, "baseline").get("id")
    sides = [("Baseline", before)] if same else [("Baseline", before), ("Best", after)]
    matrices = [_matrix(name, figures) for name, figures in sides if figures.get("matrix")]
    caption = note(
        "Accuracy is the share of the rows of a label that got this label as answer. Precision is "
        "the share of the answers with a label that were right. Rows without an answer are left out."
    )
    body = join(
        _accuracy(before, after),
        caption,
        bool(matrices) and el("div", matrices, class_="pair" if _narrow(after) else "stack"),
        _confusions(after),
    )
    return Section("labels", "Labels", body)


def _narrow(figures: Mapping[str, Any]) -> bool:
    """Whether two matrices fit beside each other without breaking a word of a label."""
    columns = [str(column) for column in figures.get("columns", ())]
    words = [max(map(len, column.split()), default=0) for column in columns]
    return sum(max(LEAST_COLUMN, word) for word in words) + max(words, default=0) <= PAIR_LETTERS


def _accuracy(before: Mapping[str, object], after: Mapping[str, object]) -> Html:
    rows: list[list[Child]] = []
    for name, old in side(before, "each").items():
        new = side(side(after, "each"), name)
        accuracies = finite_number(old.get("accuracy")), finite_number(new.get("accuracy"))
        gap = None if None in accuracies else (accuracies[1] or 0.0) - (accuracies[0] or 0.0)
        rows.append(
            [
                name,
                number_format.count(new.get("n")),
                *(number_format.reward_text(value, 3) for value in accuracies),
                number_format.difference(gap, 3),
                *(number_format.reward_text(one.get("precision"), 3) for one in (old, new)),
            ]
        )
    totals = finite_number(before.get("accuracy")), finite_number(after.get("accuracy"))
    gap = (totals[1] or 0.0) - (totals[0] or 0.0)
    means = [*(number_format.reward_text(value, 3) for value in totals), number_format.difference(gap, 3)]
    head = ["Label", "Rows", "Accuracy, baseline", "Best", "Difference", "Precision, baseline", "Best"]
    foot = ["All", number_format.count(after.get("n")), *means, "", ""]
    return table("Results on the sealed test, by the right label", head, rows, foot=foot)


def _matrix(name: str, figures: Mapping[str, Any]) -> Html:
    """Rows are the right labels, columns the answers; the darker, the larger the share of the row."""
    columns = [str(column) for column in figures["columns"]]
    body = []
    for i, counts in enumerate(figures["matrix"]):
        total = sum(counts) or 1
        cells = [
            el(
                "td",
                f"{n:,}" if n else "·",
                class_="right" if i == j else "wrong",
                style=f"--share:{n / total:.2f}",
            )
            for j, n in enumerate(counts)
        ]
        body.append(el("tr", el("th", columns[i], scope="row"), cells))
    head = el(
        "tr", el("th", "Right label", scope="col"), [el("th", column, scope="col") for column in columns]
    )
    inner = el("table", el("caption", f"{name}: answers in columns"), el("thead", head), el("tbody", body))
    return region("div", inner, label=f"Confusion matrix, {name.lower()}", class_="scroll matrix")


def _confusions(figures: Mapping[str, Any]) -> Html | None:
    errors = figures.get("confusions") or []
    if not errors:
        return None
    rows = [
        [f"{error['target']} → {error['answer']}", f"{error['n']:,}"] for error in errors[:MOST_CONFUSIONS]
    ]
    return table("The most frequent errors of the best prompt", ["Wanted → answered", "Rows"], rows)
