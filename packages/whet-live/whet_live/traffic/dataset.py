"""Answers with their signals and ratings, read from the store for `behaviour.fit_behaviour`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, case, select

from whet.errors import UsageError
from whet_client.records import IMPLICIT, Feedback
from whet_live.database import Database
from whet_live.traffic.behaviour import BehaviourModel, RatedAnswer, fit_behaviour
from whet_live.traffic.derived_signals import KEPT
from whet_live.traffic.rows import chunks
from whet_live.traffic.search import (
    Filter,
    StoredInference,
    find_inferences,
    hide_forgotten,
    is_remembered,
    newest_inferences,
    stored_feedback,
)
from whet_live.traffic.traffic_tables import feedback, inferences

MOST_OBSERVED = 100_000
"""Answers that a reward is fitted to, at most."""
PEOPLE = ("user", "annotator")
RATED_BY_PEOPLE = ("rating", "thumb")
"""Kinds of feedback that count as what people say, from `PEOPLE` only. Models and programs send scores under a name."""
JUDGEMENTS = (*RATED_BY_PEOPLE, "score")
"""Kinds of feedback of which the last by one person about one answer, and under one name, counts."""
UNNAMED = "input"
"""The name that an import gives to an input without its own name."""
_ROWS = 1000
OLDEST_FIRST = feedback.c.time, feedback.c.seq
"""The order of feedback about one answer, however late it arrived."""
_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("regenerate", "follow_up", "dwell", "share"), math.fsum),
    "edit_distance": itemgetter(-1),
    "external_check": fmean,
}
"""The value of several signals of one kind; among the kinds, the largest counts."""


def observations(
    database: Database,
    prompt: str,
    version: int | None = None,
    since: int | None = None,
    most: int = MOST_OBSERVED,
) -> Iterator[RatedAnswer]:
    """The newest `most` answers of a prompt, rated or not, newest first.

    A rating of 1 to 5 becomes 0 to 1, a thumb 0 or 1; those of several people are averaged, the last of each, and those of
    models and programs are left out. Of several equal signals counts and seconds are added up, checks averaged, the last
    edit distance and the largest part that was copied count.
    """
    wanted, cursor, left = Filter(prompt=prompt, version=version, since=since), None, most
    while left > 0:
        with database.read() as connection:
            page = find_inferences(connection, wanted, min(_ROWS, left), cursor)
            by_answer = _feedback_by_answer(connection, [row.seq for row in page.rows])
        for row in page.rows:
            rows = by_answer.get(row.seq, [])
            asker = row.inference.user
            yield RatedAnswer(row.inference.id, signals(rows), rating(rows, asker), asker)
        left -= len(page.rows)
        cursor = page.next
        if cursor is None:
            return


def answers_with_feedback(
    database: Database, wanted: Filter, most: int
) -> Iterator[tuple[StoredInference, list[Feedback]]]:
    """The newest `most` answers that fit, newest first, each with the feedback about it, oldest first. Of somebody who is being
    forgotten there is nothing."""
    cursor, left = None, most
    while left > 0:
        with database.read() as connection:
            page = find_inferences(connection, wanted, min(_ROWS, left), cursor)
            by_answer: dict[int, list[Feedback]] = {}
            for part in chunks(row.seq for row in page.rows):
                query = select(feedback).where(feedback.c.about.in_(part)).order_by(*OLDEST_FIRST)
                rows = hide_forgotten(connection, feedback, connection.execute(query).all())
                for one in map(stored_feedback, rows):
                    by_answer.setdefault(one.about or 0, []).append(one.feedback)
        for row in page.rows:
            yield row, by_answer.get(row.seq, [])
        left -= len(page.rows)
        cursor = page.next
        if cursor is None:
            return


def observed_answers(
    database: Database, wanted: Filter, most: int
) -> Iterator[tuple[Any, list[Any], str | None]]:
    """The newest `most` answers that fit, newest first, as rows of those columns alone that ratings, signals and draws are read
    from; each with the rows of feedback about it, oldest first (`text` only where it is the answer as somebody kept it), and,
    where there is such a text, with the text of the answer. Of somebody who is being forgotten there is nothing."""
    f, i = feedback.c, inferences.c
    columns = (
        i.seq,
        i.id,
        i.time,
        i.version,
        i.user,
        i.session,
        i.experiment,
        i.variant,
        i.inputs,
        i.metadata,
    )
    text = case((f.kind.in_(KEPT), f.text)).label("text")
    with database.read() as connection:
        rows = connection.execute(newest_inferences(wanted, most, *columns)).all()
        chosen = newest_inferences(wanted, most, i.seq).subquery()
        about = select(f.about, f.kind, f.name, f.value, f.source, f.user, f.time, f.seq, text)
        about = about.join(chosen, chosen.c.seq == f.about).where(is_remembered(feedback))
        by_answer: dict[int, list[Any]] = {}
        for row in sorted(connection.execute(about).all(), key=attrgetter("time", "seq")):
            by_answer.setdefault(row.about, []).append(row)
        kept = [seq for seq, about_it in by_answer.items() if any(row.text for row in about_it)]
        texts: dict[int, str] = {}
        for part in chunks(kept):
            texts |= {
                row.seq: row.output
                for row in connection.execute(select(i.seq, i.output).where(i.seq.in_(part)))
            }
    for row in rows:
        yield row, by_answer.get(row.seq, []), texts.get(row.seq)


def behaviour_of(
    database: Database,
    prompt: str,
    version: int | None = None,
    since: int | None = None,
    most: int = MOST_OBSERVED,
) -> BehaviourModel:
    """The reward that the newest `most` answers of a prompt teach now; a warning says where there are more.

    Raises UsageError while there is too little to learn it from.
    It does not change with later traffic: keep `model.as_json()` where the same reward is to hold for a while, read it
    with `BehaviourModel.from_json`, and `model.reward(signals(rows))` is what one answer earned.
    """
    answers = list(observations(database, prompt, version, since, most + 1))
    if not answers:
        of = f'"{prompt}"' if version is None else f'version {version} of "{prompt}"'
        raise UsageError(f"No answers of {of} are stored{'' if since is None else ' since then'}.")
    model = fit_behaviour(answers[:most])
    if len(answers) <= most:
        return model
    return replace(model, warnings=(*model.warnings, f"only the newest {most:,} answers are counted"))


def _feedback_by_answer(connection: Connection, numbers: Sequence[int]) -> dict[int, list[object]]:
    by_answer: dict[int, list[object]] = {}
    columns = (
        feedback.c.about,
        feedback.c.kind,
        feedback.c.value,
        feedback.c.source,
        feedback.c.user,
        feedback.c.name,
    )
    for part in chunks(numbers):
        query = select(*columns).where(feedback.c.about.in_(part)).order_by(*OLDEST_FIRST)
        for row in connection.execute(query):
            by_answer.setdefault(row.about, []).append(row)
    return by_answer


def slot_values(slots: Collection[str], inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The inputs of an answer by the slots of a prompt, all inputs for a prompt without slots; None where they do not fill the
    slots. The one input of an import, which no name was given, fills the one slot of a prompt."""
    if not slots:
        return dict(inputs)
    if all(slot in inputs for slot in slots):
        return {slot: inputs[slot] for slot in sorted(slots)}
    (*names,) = slots
    return {names[0]: inputs[UNNAMED]} if len(names) == 1 and list(inputs) == [UNNAMED] else None


def signals(rows: Sequence[Any]) -> Mapping[str, float]:
    """Implicit signals of one answer, one value for each kind, from rows with `kind` and `value` in order."""
    if not rows:
        return {}
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.kind in IMPLICIT and row.value is not None:
            values.setdefault(row.kind, []).append(row.value)
    return {kind: _COMBINED.get(kind, max)(amounts) for kind, amounts in values.items()}


def name_rater(source: str, user: str | None, asker: str | None) -> str:
    """The person who rated an answer, as far as that is known: `SOURCE:NAME`, where a user without a name is the `asker`, to
    whom the answer was given. Empty for models and programs, and for annotators without a name, who may be several."""
    if source == "user":
        return f"user:{user or asker or ''}"
    return f"{source}:{user}" if source in PEOPLE and user else ""


def rating(rows: Sequence[Any], asker: str | None) -> float | None:
    """The mean rating by people in 0..1 of an answer to `asker`, from rows with `kind`, `name`, `value`, `source` and `user`,
    oldest first; None without one. Of several thumbs or ratings that one person gave under one name the last counts."""
    ratings: dict[object, float] = {}
    for number, row in enumerate(rows):
        if row.kind in RATED_BY_PEOPLE and row.source in PEOPLE and row.value is not None:
            who = row.kind, row.name or "", name_rater(row.source, row.user, asker) or number
            ratings[who] = (row.value - 1) / 4 if row.kind == "rating" else row.value
    if len(ratings) == 1:
        return next(iter(ratings.values()))
    return fmean(ratings.values()) if ratings else None
