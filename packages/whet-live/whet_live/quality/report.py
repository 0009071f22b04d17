"""The quality of one prompt over a period: what is asked for, and the report of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, select

from whet.errors import UsageError, did_you_mean
from whet.instructions.guard import visible
from whet_client.records import EARLIEST
from whet_live.database import Database, iso
from whet_live.quality.marks import ChangeMark, label_spans, read_marks
from whet_live.quality.rows import AnswerColumns, AnswerFilter, count_answers, read_answers
from whet_live.quality.series import DAY, QualityGroup, begin_of, group_series, largest_groups, step_for
from whet_live.registry import NEWEST
from whet_live.registry.registry_tables import label_moves, prompts, versions
from whet_live.traffic.traffic_tables import inferences, traffic_counts

METADATA = "metadata."
BY = ("version", "label", "model")
MOST_DAYS = 3 * 366
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class QualityQuery:
    """The answers whose quality is asked for."""

    prompt: str
    days: int = 30
    """Days before now, where no `since` is given."""
    since: int | None = None
    """Microseconds, included."""
    until: int | None = None
    """Microseconds, excluded."""
    version: int | None = None
    label: str | None = None
    """The label that stood on the version when the answer was given."""
    model: str | None = None
    by: str = ""
    """The key by which answers are split: version, label, model, or `metadata.KEY`."""
    step: str = ""
    """hour, day or week; by default what fits the period."""


class QualityOptions(TypedDict, total=False):
    """The fields of `QualityQuery` that need not be named."""

    days: int
    since: int | None
    until: int | None
    version: int | None
    label: str | None
    model: str | None
    by: str
    step: str


@dataclass(frozen=True, slots=True)
class QualityReport:
    """The quality of a prompt over a period."""

    prompt: str
    since: int
    """Microseconds, included."""
    until: int
    """Microseconds, excluded."""
    width: int
    """Microseconds of a step."""
    answers: int
    """All answers of the period."""
    every: int
    """One of so many answers was read."""
    groups: tuple[QualityGroup, ...]
    """All answers, or the parts that were asked for."""
    marks: tuple[ChangeMark, ...]
    """The changes in the period."""

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values: times in ISO 8601, the step in seconds."""
        return {
            "prompt": self.prompt,
            "since": iso(self.since),
            "until": iso(self.until),
            "step_seconds": self.width // 1_000_000,
            "answers": self.answers,
            "every": self.every,
            "groups": [group.as_json() for group in self.groups],
            "marks": [mark.as_json() for mark in self.marks],
        }


def measure_quality(database: Database, query: QualityQuery) -> QualityReport:
    """The report that is asked for. Raises UsageError for a period, step or split that cannot be, and for a prompt that has
    neither a version nor an answer, for a label that never stood on it, for a model that never answered, and for a version that
    is not there."""
    until = database.read_time() if query.until is None else query.until
    if not 1 <= query.days <= MOST_DAYS:
        raise UsageError(f"days is {query.days}; it must lie between 1 and {MOST_DAYS}.")
    if until < EARLIEST:
        raise UsageError("until lies before the year 2000, and no answer can. Write a later end, or none.")
    since = until - query.days * DAY if query.since is None else query.since
    if since >= until:
        raise UsageError("The period is empty: since must lie before until.")
    width = step_for(since, until, query.step)
    if query.since is None:
        since = begin_of(since, width)
    key = query.by.removeprefix(METADATA) if query.by.startswith(METADATA) else ""
    if query.by and query.by not in BY and not key:
        raise UsageError(f'"{query.by[:60]}" splits nothing. Write {", ".join(BY)} or {METADATA}KEY.')
    wanted = AnswerFilter(query.prompt, since, until, query.version, query.model)
    with database.read() as connection:
        check_prompt_known(connection, query.prompt)
        _check_answered(connection, query)
        answers = read_answers(connection, wanted, key)
        chosen = np.ones(len(answers.time), dtype=bool)
        if query.label is not None:
            chosen = _under_label(answers, _spans_of_label(connection, query.prompt, query.label))
        labels = None
        if query.by == "label":
            labels = _labels_of(connection, answers, query.prompt)
        marks = tuple(read_marks(connection, query.prompt, since, until))
        many = count_answers(connection, wanted) if query.label is None else int(chosen.sum()) * answers.every
    groups = _groups(answers, chosen, query.by, labels, width)
    return QualityReport(query.prompt, since, until, width, many, answers.every, groups, marks)


def check_prompt_known(connection: Connection, prompt: str) -> None:
    """Raises UsageError for a prompt that has neither a version nor any traffic."""
    in_registry = connection.execute(select(prompts.c.name).where(prompts.c.name == prompt)).first()
    c = traffic_counts.c
    if (
        in_registry is None
        and connection.execute(select(c.prompt).where(c.prompt == prompt).limit(1)).first() is None
    ):
        raise UsageError(f'There is no prompt "{prompt[:200]}". See them with: whet prompts list.')


def _check_answered(connection: Connection, query: QualityQuery) -> None:
    """Raises UsageError for a model that never answered the prompt, and for a version that neither stands nor answered."""
    i, v = inferences.c, versions.c
    of_prompt = i.prompt == query.prompt
    if query.model is not None and not _has_row(
        connection, select(i.seq).where(of_prompt, i.model == query.model)
    ):
        models = connection.execute(
            select(i.model).where(of_prompt, i.model.is_not(None)).distinct().limit(_MOST_NAMED + 1)
        )
        raise UsageError(
            f'No answer of {query.prompt} is by the model "{visible(query.model[:60])}".'
            f"{_those_there('models', sorted(map(visible, models.scalars())))}"
        )
    if query.version is None:
        return
    answered = select(i.seq).where(of_prompt, i.version == query.version)
    stands = select(v.version).where(v.name == query.prompt)
    if not (_has_row(connection, answered) or _has_row(connection, stands.where(v.version == query.version))):
        numbers = connection.execute(stands.order_by(v.version.desc()).limit(_MOST_NAMED + 1)).scalars()
        raise UsageError(
            f"{query.prompt} has no version {query.version}.{_those_there('versions', list(map(str, numbers)))}"
        )


def _has_row(connection: Connection, query: Select[Any]) -> bool:
    return connection.execute(query.limit(1)).first() is not None


def _those_there(what: str, names: Sequence[str]) -> str:
    """The first few names that exist instead."""
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f" Its {what}: {', '.join(names[:_MOST_NAMED])}{more}." if names else f" It has no {what}."


def _groups(
    answers: AnswerColumns, chosen: NDArray[np.bool_], by: str, labels: Sequence[str] | None, width: int
) -> tuple[QualityGroup, ...]:
    if not by:
        return (group_series(answers, "", chosen, width),)
    if by == "version":
        names = [f"version {one}" if one else "unknown version" for one in answers.version.tolist()]
    elif by == "model":
        names = [one or "no model named" for one in answers.model]
    elif labels is not None:
        names = list(labels)
    else:
        names = [one or "no value" for one in answers.segment]
    names = largest_groups(names)
    where = np.array(names, dtype=object)
    return tuple(
        group_series(answers, name, chosen & (where == name), width)
        for name in sorted(set(names))
        if (chosen & (where == name)).any()
    )


def _spans_of_label(connection: Connection, prompt: str, label: str) -> list[tuple[int, int | None]]:
    """The spans of a label as `label_spans` gives them. Raises UsageError for a label that never stood on the prompt."""
    spans = label_spans(connection, prompt, label)
    if not spans:
        known = {NEWEST, *_labels_that_stood(connection, prompt)}
        raise UsageError(
            f'{prompt} never had the label "{visible(label[:60])}".{did_you_mean(label, known)} See its labels with: '
            f"whet prompts history {prompt}."
        )
    return spans


def _labels_that_stood(connection: Connection, prompt: str) -> list[str]:
    m = label_moves.c
    query = select(m.label).where(m.name == prompt).distinct().order_by(m.label)
    return list(connection.execute(query).scalars())


def _under_label(answers: AnswerColumns, spans: Sequence[tuple[int, int | None]]) -> NDArray[np.bool_]:
    """Mark the answers of the version on which the label stood when they were given."""
    standing = np.zeros(len(answers.time), dtype=np.int64)
    for at, version in spans:
        standing[answers.time >= at] = version or 0
    under: NDArray[np.bool_] = (standing > 0) & (standing == answers.version)
    return under


def _labels_of(connection: Connection, answers: AnswerColumns, prompt: str) -> list[str]:
    """The labels that stood on the version of each answer when it was given, in one text."""
    names: list[list[str]] = [[] for _ in answers.time]
    for label in _labels_that_stood(connection, prompt):
        for n in np.flatnonzero(_under_label(answers, label_spans(connection, prompt, label))):
            names[n].append(label)
    return [" + ".join(name) or "no label" for name in names]
