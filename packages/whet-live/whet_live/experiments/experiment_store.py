"""Rows of experiments as values, and the only statements that write them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, select
from sqlalchemy.exc import IntegrityError

from whet.errors import UsageError
from whet_live.database import iso, new_id, time_of
from whet_live.experiments.definition import Definition, read_definition
from whet_live.experiments.experiment_tables import experiment_revisions, experiments
from whet_live.experiments.reducer import Revision
from whet_live.experiments.verdict import State
from whet_live.registry import Move
from whet_live.registry.registry_store import moves_of
from whet_live.registry.registry_tables import label_moves
from whet_live.traffic.search import head

RUNNING = "running"
WAITING = "waiting"
"""In place of the id of a watch: the winner's move waits for an approval."""


@dataclass(frozen=True)
class Experiment:
    """One experiment: its definition, the shares so far, and how it ended. Times are in microseconds."""

    id: str
    definition: Definition
    salt: str
    state: State
    """running, winner, no_difference, futile, rolled_back or stopped; of a watch that is over: passed if it found no harm,
    unmeasured if it saw no outcomes."""
    author: str
    message: str
    created: int
    start: int
    """The number of the last row of traffic before the experiment."""
    label_move: int
    """The number of the newest move of the label that the experiment knows."""
    ended: int | None
    winner: int | None
    reason: str | None
    proposal: str | None
    """The id of the request that waits, or waited, for an approval."""
    verdict: dict[str, Any] | None
    """The figures at the end, as JSON."""
    revisions: tuple[Revision, ...]
    watch: str | None = None
    """The id of the experiment that watches the label after the winner's move; WAITING before the move."""
    watches: str | None = None
    """For a watch: the id of the experiment that it follows."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Present shares of the arms, which add up to 1."""
        return self.revisions[-1].weights

    @property
    def live(self) -> list[int]:
        """Indexes of the arms that get units."""
        return [arm for arm, weight in enumerate(self.weights) if weight > 0]

    def assignment(self) -> dict[str, object]:
        """The data with which an app assigns units by itself (`whet_client.assignment.version_for`). It logs `id` as the
        inference's experiment and `revision`, as a text, as its variant."""
        arms = zip(self.definition.versions, self.weights, strict=True)
        return {
            "id": self.id,
            "salt": self.salt,
            "unit": self.definition.unit,
            "revision": self.revisions[-1].number,
            "prompt": self.definition.prompt,
            "label": self.definition.label,
            "control": self.definition.control,
            "arms": [{"version": version, "weight": weight} for version, weight in arms],
        }

    def as_json(self) -> dict[str, Any]:
        """The experiment as JSON values, without its counts."""
        shown = {name: value for name, value in vars(self).items() if name not in _OWN}
        return {
            **shown,
            "definition": self.definition.to_json(),
            "assignment": self.assignment(),
            "created": iso(self.created),
            "ended": None if self.ended is None else iso(self.ended),
            "revisions": [{**asdict(revision), "at": iso(revision.at)} for revision in self.revisions],
        }


_OWN = ("salt", "start", "label_move")
"""The internal data of an experiment; apps get the salt in the assignment."""


def start(
    connection: Connection,
    definition: Definition,
    shares: tuple[float, ...],
    author: str,
    *,
    message: str,
    watches: str | None = None,
) -> str:
    """Add an experiment that begins now with these shares of its arms; its id. Raises UsageError where one is running on
    the label."""
    moment, newest = time_of(connection), newest_move(connection, definition.prompt, definition.label)
    row: dict[str, Any] = {
        "id": new_id(),
        "prompt": definition.prompt,
        "label": definition.label,
        "salt": secrets.token_hex(16),
        "definition": definition.to_json(),
        "state": RUNNING,
        "author": author,
        "message": message,
        "created": moment,
        "start": head(connection),
        "label_move": 0 if newest is None else newest.number,
        "watches": watches,
    }
    try:
        connection.execute(experiments.insert().values(row))
    except IntegrityError:
        raise UsageError(
            f"An experiment is running on {row['prompt']}@{row['label']} already. Stop it, or wait for its end."
        ) from None
    revise(connection, row["id"], Revision(1, moment, shares, "start"))
    return str(row["id"])


def revise(connection: Connection, experiment: str, revision: Revision) -> None:
    """Add shares that hold from now on."""
    connection.execute(experiment_revisions.insert().values(experiment=experiment, **asdict(revision)))


def end(connection: Connection, experiment: str, values: dict[str, Any]) -> bool:
    """Leave the state running; False if another process ended it first."""
    changed = (
        experiments.update()
        .where(experiments.c.id == experiment, experiments.c.state == RUNNING)
        .values(values)
        .returning(experiments.c.id)
    )
    return connection.execute(changed).first() is not None


def record_outcome(connection: Connection, experiment: str, **values: Any) -> None:
    """Write down what became known: the `proposal` that waits for an approval, the `watch` after the winner's move, or the
    `label_move` that is the experiment's own."""
    connection.execute(experiments.update().where(experiments.c.id == experiment).values(values))


def open_ones(connection: Connection) -> list[str]:
    """Ids of experiments that are running."""
    return list(connection.execute(select(experiments.c.id).where(experiments.c.state == RUNNING)).scalars())


def waiting_ones(connection: Connection) -> list[str]:
    """Ids of experiments whose watch waits for the winner's approval."""
    return list(connection.execute(select(experiments.c.id).where(experiments.c.watch == WAITING)).scalars())


def is_running(connection: Connection, experiment: str, revision: int) -> bool:
    """Whether the experiment still runs with the shares of this revision; holds its row until the transaction ends."""
    state = select(experiments.c.state).where(experiments.c.id == experiment).with_for_update()
    if connection.execute(state).scalar() != RUNNING:
        return False
    newest = select(experiment_revisions.c.number).where(experiment_revisions.c.experiment == experiment)
    return bool(max(connection.execute(newest).scalars()) == revision)


def running_on(connection: Connection, prompt: str, label: str) -> Experiment | None:
    """The experiment that runs on a label."""
    mine = (experiments.c.prompt == prompt, experiments.c.label == label, experiments.c.state == RUNNING)
    rows = read_experiments(connection, connection.execute(select(experiments).where(*mine)).all())
    return rows[0] if rows else None


def in_force(connection: Connection, prompt: str | None, limit: int) -> list[Experiment]:
    """Running experiments whose label nobody moved since, of a prompt or of all, the newest first."""
    moved = select(func.max(label_moves.c.number)).where(
        label_moves.c.name == experiments.c.prompt, label_moves.c.label == experiments.c.label
    )
    query = select(experiments).where(
        experiments.c.state == RUNNING,
        func.coalesce(moved.scalar_subquery(), 0) == experiments.c.label_move,
    )
    if prompt is not None:
        query = query.where(experiments.c.prompt == prompt)
    return read_experiments(
        connection, connection.execute(query.order_by(experiments.c.id.desc()).limit(limit)).all()
    )


def newest_move(connection: Connection, prompt: str, label: str) -> Move | None:
    """The newest move of a label."""
    moves = moves_of(connection, prompt, label, 1)
    return moves[0] if moves else None


def latest_foreign_move(connection: Connection, experiment: Experiment) -> Move | None:
    """The newest move of the label, if the experiment does not know of it."""
    newest = newest_move(connection, experiment.definition.prompt, experiment.definition.label)
    return newest if newest is not None and newest.number > experiment.label_move else None


def prompts_of(connection: Connection, ids: Iterable[str]) -> dict[str, str]:
    """The prompt of each of these ids that is an experiment's."""
    query = select(experiments.c.id, experiments.c.prompt).where(experiments.c.id.in_(list(ids)))
    return {id: prompt for id, prompt in connection.execute(query)}


def find_experiment(connection: Connection, experiment: str) -> Experiment:
    """One experiment. Raises UsageError for an unknown id."""
    row = connection.execute(select(experiments).where(experiments.c.id == experiment)).first()
    if row is None:
        raise UsageError(f'There is no experiment "{experiment[:80]}". List them first.')
    return read_experiments(connection, [row])[0]


def read_experiments(connection: Connection, rows: Sequence[Row[Any]]) -> list[Experiment]:
    """Rows of `experiments` as values."""
    shares: dict[str, list[Revision]] = {row.id: [] for row in rows}
    query = select(experiment_revisions).where(experiment_revisions.c.experiment.in_(shares))
    for row in connection.execute(query.order_by(experiment_revisions.c.number)):
        weights = tuple(float(weight) for weight in row.weights)
        shares[row.experiment].append(Revision(row.number, row.at, weights, row.reason, row.settled))
    return [
        Experiment(
            **{name: row._mapping[name] for name in _COLUMNS},
            definition=read_definition({"watch": None, **row.definition}),
            revisions=tuple(shares[row.id]),
        )
        for row in rows
    ]


_COLUMNS = [column.name for column in experiments.c if column.name not in ("prompt", "label", "definition")]
