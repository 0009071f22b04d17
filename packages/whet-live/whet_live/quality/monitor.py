"""The watch over the traffic of every prompt: hour by hour, what drifted and which model began to answer.

A user counts once in an hour, with the mean of what came from him or her: rows of one user are no independent evidence. Ratings,
scores, errors and amounts are looked at when their hour is over; what an answer has or has not (a correction, a second try) when
its day is over, so that late signs are not missing from the newest answers only.

A look takes what is over, and what came late for the hours of earlier looks: each row is in one look. A late value counts for the
hour of its own time, but for the newest day of its watch where that day is later, because a watch only goes forward: so it is
evidence in the order in which it arrived. After an alarm, what came late from before it belongs to the watch that ended.

Amounts have no bounds. The first `SAMPLE` values of one are kept, and a later value counts by its rank among them; what an alarm
says of an amount are means of the values themselves, by day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, case, func, or_, select

from whet.errors import show_size
from whet.stats.changes import RISE, ChangeAlarm, ChangeWatch
from whet_client.ids import iso
from whet_live.database import Database, put
from whet_live.quality.alerts import QualityAlert, store_alert
from whet_live.quality.marks import DRIFT, MODEL, model_name
from whet_live.quality.measures import DONE, JUDGED, SCORE, QualityMeasure, measure_named
from whet_live.quality.quality_tables import (
    quality_alerts,
    quality_models,
    quality_prompts,
    quality_watches,
)
from whet_live.quality.rows import (
    AnswerColumns,
    AnswerFilter,
    QualityLook,
    count_answers,
    metadata_text,
    read_answers,
    who_asked,
)
from whet_live.quality.series import DAY, HOUR, SECOND
from whet_live.traffic.dataset import PEOPLE, RATED_BY_PEOPLE
from whet_live.traffic.traffic_tables import feedback, inferences, traffic_counts, traffic_head

FALSE_ALARMS = 1.0
"""Expected false alarms of one prompt in a year, over all its measures and both directions, at most."""
WATCHES = 24
"""The number of watches of a prompt that share its false alarms: eleven measures and all scores together, two directions."""
THRESHOLD = 365.25 * WATCHES / FALSE_ALARMS
"""The capital of a watch that is an alarm: the mean number of days until a false one, at least."""
SAMPLE = 200
BACK = 90 * DAY
"""The time before now at which the first look at a prompt begins, and the longest delay of a row."""
LATE = 600 * SECOND
"""The time between the end of an hour and the look at it: clients send with a delay."""
SETTLED = DAY
AWAY = DAY
"""A model that has not answered for so long, while others did, comes back as a change."""
_MOST_ROWS = 20_000
_MOST_DAYS = 120
"""Days of an amount whose sums are kept apart, as many as a `ChangeWatch` keeps."""
_AMOUNTS = ("latency", "output_tokens", "cost")
_DRAWN = frozenset({"comment", "copy", "edit_distance"})
"""The measures that are drawn and not watched."""
MOST_SCORES = 50
"""Scores of a prompt that are watched at most, the first that came."""

Values = Mapping[str, Sequence[tuple[int, int, float]]]
"""By measure: (hour, cluster, value)."""


@dataclass
class _Watched:
    """The watch of a measure, the sample among which amounts are ranked, since when it runs (the last alarm), of an amount how
    many values each day had, with their sum, and of a score its place among the scores of the prompt in the order in which they
    came, from 1; 0 for another measure."""

    watch: ChangeWatch
    sample: list[float]
    since: int = 0
    days: dict[int, tuple[int, float]] = field(default_factory=dict)
    place: int = 0

    @property
    def threshold(self) -> float:
        """The capital that is an alarm. Scores share the false alarms of one measure: 1 / (k (k + 1)) of them for the k-th, which
        adds up to 1 for however many scores."""
        return THRESHOLD * (self.place * (self.place + 1) or 1)

    def hour_of(self, hour: int) -> int:
        """The hour for which a value counts: its own, or the first one of the newest day where that is later."""
        return max(hour, max(self.watch.days, default=0) * (DAY // HOUR))

    def add_amounts(self, day: int, values: NDArray[np.float64]) -> None:
        """Take values of an amount into the sums of their day."""
        count, total = self.days.get(day, (0, 0.0))
        self.days[day] = count + len(values), total + float(values.sum())
        if len(self.days) > _MOST_DAYS:
            first, second = sorted(self.days)[:2]
            (count, total), (later, more) = self.days.pop(first), self.days[second]
            self.days[second] = count + later, total + more

    def mean_amounts(self, began: int) -> tuple[float, float]:
        """The means of the days before the day `began` and of those since; nan without values. A watch that an earlier version
        began has the sums of its newest days only, and its sample for the days before."""
        before = [sums for day, sums in self.days.items() if day < began] or [
            (len(self.sample), sum(self.sample))
        ]
        return _mean_of(before), _mean_of([sums for day, sums in self.days.items() if day >= began])

    def as_json(self) -> dict[str, Any]:
        """The state of the watch as JSON values."""
        days = [[day, *sums] for day, sums in sorted(self.days.items())]
        places = {"place": self.place} if self.place else {}
        return self.watch.as_json() | ({"amounts": days} if days else {}) | places


def _mean_of(sums: Sequence[tuple[int, float]]) -> float:
    count = sum(number for number, _ in sums)
    return sum(total for _, total in sums) / count if count else math.nan


def watch_once(database: Database, moment: int) -> list[QualityAlert]:
    """One look at every prompt with traffic. What is new is returned and is in the database. Any number of servers may look:
    a stretch of time is looked at once."""
    c = traffic_counts.c
    with database.read() as connection:
        names = connection.execute(select(c.prompt).where(c.prompt != "").distinct()).scalars().all()
    alerts: list[QualityAlert] = []
    for name in sorted(names):
        alerts += watch_prompt(database, name, moment)
    return alerts


def watch_prompt(database: Database, prompt: str, moment: int) -> list[QualityAlert]:
    """Look at the traffic of one prompt up to the last hour that is over, in stretches of at most some ten thousand rows."""
    target = (moment - LATE) // HOUR * HOUR
    alerts: list[QualityAlert] = []
    while True:
        with database.read() as connection:
            stored = connection.execute(select(quality_prompts.c.looks).filter_by(prompt=prompt)).scalar()
            newest = int(connection.execute(select(traffic_head.c.seq)).scalar_one())
            if stored is None:
                first = _first_hour(connection, prompt, target - BACK)
                if first is None:
                    return alerts
                looks = [QualityLook(first, newest)]
            else:
                looks = [QualityLook(*one) for one in stored]
            before = looks[-1]
            if before.until >= target:
                return alerts
            answers = _new_answers(connection, prompt, before, QualityLook(target, newest))
            look = QualityLook(_stretch(connection, answers, before.until), newest)
            answers = replace(answers, until=look.until)
            quick = _quick_values(connection, answers) | _judgements(connection, prompt, before, look)
            standing = _add_look(looks, look)
            settled = _new_answers(connection, prompt, looks[0], standing[0])
            slow = _settled_values(connection, settled) if standing[0] != looks[0] else {}
            models = _models(connection, answers)
        alerts += _write(database, prompt, stored, standing, {**quick, **slow}, models)


def _add_look(looks: Sequence[QualityLook], look: QualityLook) -> list[QualityLook]:
    """The looks with a new one, from the newest on that is a day older than it. After a longer pause, what was found is settled
    by its own time."""
    settled = look.until - SETTLED
    if settled > looks[-1].until:
        looks = [*looks, QualityLook(settled, look.seq)]
    first = max((n for n, one in enumerate(looks) if one.until <= settled), default=0)
    return [*looks[first:], look]


def _new_answers(connection: Connection, prompt: str, before: QualityLook, look: QualityLook) -> AnswerFilter:
    """The answers that a look takes and the one before it did not: of its hours, and late ones of earlier hours."""
    i = inferences.c
    late = select(func.min(case((i.prompt == prompt, i.time)))).where(i.seq > before.seq, i.seq <= look.seq)
    since = _earliest_time(before, [connection.execute(late).scalar()])
    return AnswerFilter(prompt, since, look.until, newest=look.seq, taken=before)


def _earliest_time(before: QualityLook, late: Sequence[int | None]) -> int:
    """The begin of the hours of a look, given the earliest times of the rows that came since the look before."""
    return max(min([before.until, *(one for one in late if one is not None)]), before.until - BACK)


def _first_hour(connection: Connection, prompt: str, earliest: int) -> int | None:
    i = inferences.c
    first = connection.execute(
        select(func.min(i.time)).where(i.prompt == prompt, i.time >= earliest)
    ).scalar()
    return None if first is None else int(first) // HOUR * HOUR


def _stretch(connection: Connection, answers: AnswerFilter, since: int) -> int:
    """The end of the next stretch, which begins at `since`: whole hours, few enough rows to hold."""
    until = answers.until
    while until - since > HOUR and count_answers(connection, replace(answers, until=until)) > _MOST_ROWS:
        until = since + max(HOUR, (until - since) // 2 // HOUR * HOUR)
    return until


def _by_hour(answers: AnswerColumns, names: Sequence[str]) -> dict[str, list[tuple[int, int, float]]]:
    """Values of the answers' measures with their hour and cluster."""
    hours = answers.time // HOUR
    by_measure = {}
    for name in names:
        values = answers.measured.get(name)
        if values is not None:
            known = np.flatnonzero(~np.isnan(values))
            by_measure[name] = [(int(hours[n]), int(answers.cluster[n]), float(values[n])) for n in known]
    return by_measure


def _quick_values(connection: Connection, answers: AnswerFilter) -> dict[str, list[tuple[int, int, float]]]:
    """The measures that an answer has at once: errors and amounts."""
    return _by_hour(read_answers(connection, answers, most=_MOST_ROWS), ("error", "refusal", *_AMOUNTS))


def _judgements(
    connection: Connection, prompt: str, before: QualityLook, look: QualityLook
) -> dict[str, list[tuple[int, int, float]]]:
    """Ratings and scores by their own time. What waited for its answer arrived when it was joined to it."""
    f, i = feedback.c, inferences.c
    earliest = select(func.min(case((f.prompt == prompt, f.time))))
    late = [
        connection.execute(earliest.where(*arrived)).scalar()
        for arrived in ([f.seq > before.seq], [f.joined > before.seq, f.joined > f.seq])
    ]
    query = (
        select(f.kind, f.name, f.value, f.time, who_asked().label("who"))
        .join(inferences, i.seq == f.about)
        .where(
            f.prompt == prompt, f.time >= _earliest_time(before, late), f.time < look.until, f.joined <= look.seq,
            or_(f.time >= before.until, f.joined > before.seq), f.kind.in_((*sorted(JUDGED - _DRAWN), "score")),
            or_(f.kind.not_in(RATED_BY_PEOPLE), f.source.in_(PEOPLE)),
        )
        .order_by(f.time, f.seq)
    )  # fmt: skip
    numbers: dict[str, int] = {}
    by_measure: dict[str, list[tuple[int, int, float]]] = {}
    for row in connection.execute(query):
        name = f"{SCORE}{row.name or 'score'}" if row.kind == "score" else row.kind
        if row.value is not None:
            one = row.time // HOUR, numbers.setdefault(row.who, len(numbers)), float(row.value)
            by_measure.setdefault(name, []).append(one)
    return by_measure


def _settled_values(connection: Connection, wanted: AnswerFilter) -> Values:
    """The measures that an answer gets within a day."""
    answers = read_answers(connection, wanted, most=_MOST_ROWS)
    for name in DONE - _DRAWN:
        answers.measured.setdefault(name, np.zeros(len(answers.time)))
    return _by_hour(answers, sorted(DONE - _DRAWN))


# Drift


def _write(
    database: Database,
    prompt: str,
    before: Sequence[Sequence[int]] | None,
    looks: Sequence[QualityLook],
    by_measure: Values,
    models: Sequence[_ModelSpan],
) -> list[QualityAlert]:
    """Take a stretch into the watches, unless another server was quicker."""
    alerts: list[QualityAlert] = []
    with database.begin() as connection:
        query = select(quality_prompts.c.looks).filter_by(prompt=prompt)
        if connection.execute(query.with_for_update()).scalar() != before:
            return []
        pairs = [[one.until, one.seq] for one in looks]
        put(connection, quality_prompts, {"prompt": prompt, "looks": pairs})
        alerts += _take_models(connection, prompt, models)
        for name, values in sorted(by_measure.items()):
            watched = _read_watch(connection, prompt, name)
            if watched.place > MOST_SCORES:
                continue
            alerts += _take_values(measure_named(name), watched, prompt, values)
            state = {"sample": watched.sample, "state": watched.as_json()}
            put(connection, quality_watches, {"prompt": prompt, "measure": name, **state})
        return [new for alert in alerts if (new := store_alert(connection, alert)) is not None]


def _read_watch(connection: Connection, prompt: str, name: str) -> _Watched:
    row = connection.execute(select(quality_watches).filter_by(prompt=prompt, measure=name)).first()
    if row is None:
        return _Watched(
            ChangeWatch(), [], place=_next_place(connection, prompt) if name.startswith(SCORE) else 0
        )
    a = quality_alerts.c
    alarms = select(func.max(a.at)).where(a.prompt == prompt, a.kind == DRIFT, a.measure == name)
    since = connection.execute(alarms).scalar() or 0
    days = {int(day): (int(count), float(total)) for day, count, total in row.state.get("amounts", ())}
    place = int(row.state.get("place", name.startswith(SCORE)))
    return _Watched(ChangeWatch.from_json(row.state), list(row.sample), since, days, place)


def _next_place(connection: Connection, prompt: str) -> int:
    """The place of a score that comes for the first time."""
    w = quality_watches.c
    known = select(func.count()).where(w.prompt == prompt, w.measure.startswith(SCORE, autoescape=True))
    return int(connection.execute(known).scalar_one()) + 1


def _take_values(
    measure: QualityMeasure, watched: _Watched, prompt: str, values: Sequence[tuple[int, int, float]]
) -> Iterator[QualityAlert]:
    """Show the watch the hours of a stretch, and say what it finds. After an alarm it begins anew, with what is later."""
    for own, means in _hourly_means(values):
        if own * HOUR < watched.since:
            continue
        hour = watched.hour_of(own)
        scaled = (means - measure.low) / (measure.high - measure.low)
        if measure.kind == "amount":
            watched.add_amounts(hour * HOUR // DAY, means)
        values_of_hour = _rank(watched, means) if measure.kind == "amount" else scaled
        watched.watch.add(hour * HOUR // DAY, np.clip(values_of_hour, 0.0, 1.0).tolist())
        if (alarm := watched.watch.alarm(watched.threshold)) is not None:
            yield _drift_alert(measure, watched, alarm, prompt, hour)
            watched.watch, watched.sample, watched.days = ChangeWatch(), [], {}
            watched.since = (hour + 1) * HOUR


def _hourly_means(values: Sequence[tuple[int, int, float]]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The hours in their order, each with the means of its users."""
    if not values:
        return
    table = np.array(values, dtype=np.float64)
    table = table[np.argsort(table[:, 0], kind="stable")]
    hours, edges = np.unique(table[:, 0], return_index=True)
    for hour, part in zip(hours, np.split(table, edges[1:]), strict=True):
        _, index = np.unique(part[:, 1], return_inverse=True)
        yield int(hour), np.bincount(index, weights=part[:, 2]) / np.bincount(index)


def _rank(watched: _Watched, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks in [0, 1] among the sample, ties in the middle; the sample is filled first."""
    missing = SAMPLE - len(watched.sample)
    watched.sample += values[:missing].tolist() if missing > 0 else []
    rest = values[max(missing, 0) :]
    ordered = np.sort(np.array(watched.sample))
    below, up_to = np.searchsorted(ordered, rest, "left"), np.searchsorted(ordered, rest, "right")
    ranks: NDArray[np.float64] = (below + up_to) / 2.0 / SAMPLE
    return ranks


def _drift_alert(
    measure: QualityMeasure, watched: _Watched, alarm: ChangeAlarm, prompt: str, hour: int
) -> QualityAlert:
    rises = alarm.direction == RISE
    amount = measure.kind == "amount"
    means = watched.mean_amounts(alarm.began) if amount else (alarm.before, alarm.after)
    before, after = (_show_mean(measure, mean) for mean in means)
    worse = measure.better == 0 or rises == (measure.better < 0)
    word = "rose" if rises else "fell"
    if amount and (means[1] > means[0]) != rises:  # a few large values move a mean, and hardly the ranks
        word += " for most users, and its mean went"
    since = iso(alarm.began * DAY)[:10]
    text = f"{prompt}: {measure.title.lower()} {word} from {before} to {after} (mean since {since}, UTC)"
    details = {
        "direction": alarm.direction,
        "before": before,
        "after": after,
        "evidence": min(alarm.evidence, 1e300),
        "threshold": watched.threshold,
    }
    key = f"{DRIFT}|{prompt}|{measure.name}|{hour}"
    return QualityAlert(
        "", key, DRIFT, prompt, measure.name, worse, alarm.began * DAY, (hour + 1) * HOUR, text, details
    )


def _show_mean(measure: QualityMeasure, value: float) -> str:
    """A mean as people read it: a share in percent, stars, an amount in its unit."""
    if not np.isfinite(value):
        return "unknown"
    if measure.kind == "share":
        return f"{value:.1%}"
    bounded = measure.kind == "bounded"
    shown = show_size(measure.low + value * (measure.high - measure.low) if bounded else value, 3)
    return f"${shown}" if measure.unit == "$" else f"{shown} {measure.unit}".strip()


# Models


@dataclass(frozen=True, slots=True)
class _ModelSpan:
    """A model with its fingerprint, and when it answered first and last in a stretch."""

    model: str
    fingerprint: str
    first: int
    last: int

    @property
    def key(self) -> tuple[str, str]:
        """The key by which the model is identified."""
        return self.model, self.fingerprint


def _models(connection: Connection, answers: AnswerFilter) -> list[_ModelSpan]:
    """The models that gave these answers on each day, in the order of their first answers. Answers that name none say nothing."""
    i = inferences.c
    mark = func.coalesce(metadata_text(connection, inferences, "system_fingerprint"), "").label("mark")
    model = func.coalesce(i.model, "")
    query = (
        select(model.label("model"), mark, func.min(i.time).label("first"), func.max(i.time).label("last"))
        .where(*answers.conditions, i.error.is_(None), model != "")
        .group_by(model, mark, i.time - i.time % DAY)
    )
    spans = [_ModelSpan(row.model, row.mark[:200], row.first, row.last) for row in connection.execute(query)]
    return sorted(spans, key=lambda one: (one.first, one.model, one.fingerprint))


def _take_models(connection: Connection, prompt: str, spans: Sequence[_ModelSpan]) -> Iterator[QualityAlert]:
    """Note which models answered: one that never did, or that comes back after others, is a change. One of which answers come
    late, from before all others, is none. An answer without a fingerprint is of the system that the model had last."""
    query = select(quality_models).filter_by(prompt=prompt).order_by(quality_models.c.began)
    noted = [_ModelSpan(*row[1:]) for row in connection.execute(query)]
    standing = {one.key: one for one in noted}
    changed = set()
    for span in spans:
        if not span.fingerprint:
            own = [one for one in standing.values() if one.model == span.model]
            latest = max(own, key=lambda one: one.last, default=span)
            span = replace(span, fingerprint=latest.fingerprint)
        key = span.key
        known = standing.get(key)
        others = [one for one in (*noted, *standing.values()) if one.key != key and one.first <= span.first]
        last = max(others, key=lambda one: one.last, default=None)
        away = (
            known is not None
            and span.first - known.last > AWAY
            and last is not None
            and last.last > known.last
        )
        changed.add(key)
        if known is not None and not away:
            standing[key] = replace(known, last=max(known.last, span.last))
            continue
        if known is not None:
            _put_model(connection, prompt, known)
        standing[key] = span
        if last is not None and (last.model != span.model or last.fingerprint):
            yield _model_alert(prompt, last, span)
    for key in changed:
        _put_model(connection, prompt, standing[key])


def _put_model(connection: Connection, prompt: str, span: _ModelSpan) -> None:
    row = {"model": span.model, "fingerprint": span.fingerprint, "began": span.first, "last": span.last}
    put(connection, quality_models, {"prompt": prompt, **row})


def _model_alert(prompt: str, before: _ModelSpan, span: _ModelSpan) -> QualityAlert:
    what = "the system behind the model changed" if before.model == span.model else "another model answers"
    name, earlier = model_name(span.model, span.fingerprint), model_name(before.model, before.fingerprint)
    details = {"before": earlier, "after": name, "model": span.model, "fingerprint": span.fingerprint}
    key = f"{MODEL}|{prompt}|{span.model}|{span.fingerprint}|{span.first}"
    text = f"{prompt}: {what}: {name}, before {earlier}"
    return QualityAlert("", key, MODEL, prompt, "", True, span.first, span.first, text, details)
