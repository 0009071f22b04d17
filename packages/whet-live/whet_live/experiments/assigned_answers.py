"""Answers of a prompt as `version_rewards` counts them: their signals and ratings from the store, and the chances with which an
experiment drew their versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection, select

from whet._util.storable import is_number
from whet.errors import UsageError
from whet_live.database import Database
from whet_live.experiments.experiment_store import read_experiments
from whet_live.experiments.experiment_tables import experiments
from whet_live.experiments.version_rewards import (
    LOGGED,
    AssignedAnswer,
    RewardsOverTime,
    VersionRewards,
    estimate_over_time,
    estimate_versions,
)
from whet_live.traffic.behaviour import RatedAnswer
from whet_live.traffic.dataset import observed_answers, rating, signals
from whet_live.traffic.derived_signals import SignalDeriver, changed_share
from whet_live.traffic.search import Filter

MOST_ANSWERS, MOST_CHARTED = 50_000, 10_000
PROPENSITY, POSITION = "propensity", "position"
"""Keys of an inference's metadata: the chance with which the app's own assigner drew the version, and the place of the answer
in a list."""
_METADATA = "metadata."
NO_VALUE = "no value"
"""The segment of answers whose metadata do not have the key."""

Chances = Mapping[tuple[str, str], Mapping[int, float]]
"""The chances of the versions, by the id of an experiment and the number of its revision."""


def version_rewards_of(
    database: Database, prompt: str, *, by: str = "", since: int | None = None, most: int = MOST_ANSWERS
) -> VersionRewards:
    """The estimates for the versions of a prompt from its newest `most` answers since a time (microseconds), and whether there
    are more; `by` names what makes the segments: metadata.KEY, or nothing.

    Raises UsageError for another `by` and where no answers are stored.
    """
    key = _segment_key(by)
    answers = list(assigned_answers(database, prompt, key, since, most + 1))
    if not answers:
        raise UsageError(
            f'No answers of "{prompt[:200]}" are stored{"" if since is None else " since then"}.'
        )
    return replace(estimate_versions(prompt, answers[:most]), newest=len(answers) > most)


def rewards_over_time(
    database: Database, prompt: str, begins: Sequence[int], span: tuple[int, int], most: int = MOST_CHARTED
) -> RewardsOverTime:
    """The estimates for the versions of a prompt in steps of time that begin at `begins`, from the newest `most` answers from
    and to the times in `span` (microseconds)."""
    rows = list(assigned_answers(database, prompt, "", span[0], most, span[1]))
    return replace(estimate_over_time(prompt, rows, begins), newest=len(rows) >= most)


def _segment_key(by: str) -> str:
    if by and not (by.startswith(_METADATA) and len(by) > len(_METADATA)):
        raise UsageError(f'"{by[:80]}" makes no segments. Write metadata.KEY, such as metadata.plan.')
    return by.removeprefix(_METADATA)


def assigned_answers(
    database: Database,
    prompt: str,
    key: str = "",
    since: int | None = None,
    most: int = MOST_ANSWERS,
    until: int | None = None,
) -> Iterator[AssignedAnswer]:
    """The newest answers of a prompt without an error, newest first. Signals that the app did not send are derived
    (`traffic.derived_signals`)."""
    deriver = SignalDeriver()
    with database.read() as connection:
        chances = _chances(connection, prompt)
    wanted = Filter(prompt=prompt, since=since, until=until, failed=False)
    for inference, rows, text in observed_answers(database, wanted, most):
        yield _to_assigned_answer(inference, rows, text, chances, key, deriver)


def _to_assigned_answer(
    inference: Any, rows: Sequence[Any], text: str | None, chances: Chances, key: str, deriver: SignalDeriver
) -> AssignedAnswer:
    values = deriver.derive(inference, (), signals(rows))
    if text is not None:
        kept = [row.text for row in rows if row.text]
        values = {"edit_distance": changed_share(text, kept[-1]), **values}
    user = inference.user or (f"session {inference.session}" if inference.session else None)
    more = inference.metadata or {}
    draw, own = "", chances.get((inference.experiment or "", inference.variant or ""), {})
    if inference.version in own:
        draw = str(inference.experiment)
    else:
        chance = _logged_chance(more)
        draw, own = (LOGGED, {inference.version: chance}) if chance is not None else ("", {})
    place = more.get(POSITION)
    position = place if isinstance(place, int) and not isinstance(place, bool) and place > 0 else 0
    answer = RatedAnswer(inference.id, values, rating(rows, inference.user), user)
    segment = _segment_of(more.get(key)) if key else ""
    unread = not draw and more.get(PROPENSITY) is not None
    return AssignedAnswer(answer, inference.version, inference.time, draw, own, segment, position, unread)


def _logged_chance(metadata: Mapping[str, object]) -> float | None:
    """The chance that the app logged; None for a value that is no number above 0 and up to 1."""
    chance = metadata.get(PROPENSITY)
    usable = isinstance(chance, int | float) and is_number(chance) and 0.0 < chance <= 1.0
    return float(chance) if usable and isinstance(chance, int | float) else None


def _segment_of(value: object) -> str:
    """The name of a segment, as charts of the quality have it: a text, or a value as JSON."""
    if value is None:
        return NO_VALUE
    return (value if isinstance(value, str) else orjson.dumps(value).decode("utf-8"))[:200] or NO_VALUE


def _chances(connection: Connection, prompt: str) -> dict[tuple[str, str], dict[int, float]]:
    rows = connection.execute(select(experiments).where(experiments.c.prompt == prompt)).all()
    return {
        (experiment.id, str(revision.number)): {
            version: weight / sum(revision.weights)
            for version, weight in zip(experiment.definition.versions, revision.weights, strict=True)
            if weight > 0
        }
        for experiment in read_experiments(connection, rows)
        for revision in experiment.revisions
    }
