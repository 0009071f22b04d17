"""The last days of many prompts at a glance: one measure of each, day by day, and what the answers cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, func, select

from whet_live.database import Database
from whet_live.quality.measures import SCORE, measure_named
from whet_live.quality.rows import AnswerFilter, count_answers, read_answers
from whet_live.quality.series import DAY, MeasureSeries, begin_of, begins_of, measure_series
from whet_live.traffic.traffic_tables import traffic_counts

MOST_ANSWERS = 5_000
"""Answers of one prompt that are read; of more, one of every few."""
_PEOPLE = ("rating", "thumb", "external_check")
_REST = ("correction", "error")


@dataclass(frozen=True, slots=True)
class PromptGlance:
    """A prompt's last days, from and to the times in `span` (microseconds): its `answers`, the `cost` of them in dollars (None
    where no answer has one), and the `series` that says most of its quality, where there is any."""

    prompt: str
    span: tuple[int, int]
    answers: int
    cost: float | None
    series: MeasureSeries | None


def glance_at(database: Database, prompts: Sequence[str], days: int) -> dict[str, PromptGlance]:
    """The last days of some prompts, by name."""
    until = database.read_time()
    span = begin_of(until, DAY) - (days - 1) * DAY, begin_of(until, DAY) + DAY
    with database.read() as connection:
        return {prompt: _glance(connection, prompt, span) for prompt in prompts}


def _glance(connection: Connection, prompt: str, span: tuple[int, int]) -> PromptGlance:
    wanted = AnswerFilter(prompt, *span)
    many = count_answers(connection, wanted)
    if not many:
        return PromptGlance(prompt, span, 0, None, None)
    answers = read_answers(connection, wanted, most=MOST_ANSWERS)
    costs = answers.measured["cost"]
    known = ~np.isnan(costs)
    cost = float(costs[known].mean() * known.mean() * many) if known.any() else None
    name = main_measure([one for one, values in answers.measured.items() if not np.isnan(values).all()])
    series = None
    if name is not None:
        values = answers.measured[name]
        rated = ~np.isnan(values)
        begins = begins_of(answers.time, DAY)
        series = measure_series(measure_named(name), values[rated], answers.cluster[rated], begins[rated])
    return PromptGlance(prompt, span, many, cost, series)


def main_measure(names: Collection[str]) -> str | None:
    """The measure that says most of the quality: what people said, else a score, else what went wrong."""
    scores = sorted(name for name in names if name.startswith(SCORE))
    return next((name for name in (*_PEOPLE, *scores, *_REST) if name in names), None)


@dataclass(frozen=True, slots=True)
class MeasuredNow:
    """The mean of a measure over the last day, of `n` values."""

    prompt: str
    measure: str
    mean: float
    n: int


def measured_now(database: Database, most: int = 100) -> tuple[dict[str, int], list[MeasuredNow]]:
    """Return the number of answers of each prompt in the last day, and the means of its measures; for at most `most` prompts,
    those with the most answers so far."""
    until = database.read_time()
    c = traffic_counts.c
    total = func.sum(c.n).label("total")
    busiest = select(c.prompt).where(c.kind == "inference", c.prompt != "").group_by(c.prompt)
    counts: dict[str, int] = {}
    means = []
    with database.read() as connection:
        names = connection.execute(busiest.order_by(total.desc(), c.prompt).limit(most)).scalars().all()
        for prompt in names:
            wanted = AnswerFilter(prompt, until - DAY, until)
            counts[prompt] = count_answers(connection, wanted)
            if not counts[prompt]:
                continue
            measured = read_answers(connection, wanted, most=MOST_ANSWERS).measured
            for name, values in sorted(measured.items()):
                known = values[~np.isnan(values)]
                if known.size:
                    means.append(MeasuredNow(prompt, name, float(known.mean()), int(known.size)))
    return counts, means
