"""Alerts: what was noticed about a prompt or waits for a person, written down once, and where each one was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Row, select

from whet_live.database import insert_into, iso, new_id
from whet_live.quality.quality_tables import quality_alerts, quality_deliveries
from whet_live.quality.series import DAY

WAITING, SENT, FAILED = "waiting", "sent", "failed"
APPROVAL = "approval"
"""The kind of an alert about a request that waits for a person."""
NEWS = 3 * DAY
"""Only what the traffic showed so recently is sent: of the history that is read at the first start there are marks."""


@dataclass(frozen=True, slots=True)
class QualityAlert:
    """A change of a prompt's quality that was noticed, or a winner that waits for an approval."""

    id: str
    key: str
    """Its name: it is stored once under it."""
    kind: str
    """drift, model or approval."""
    prompt: str
    measure: str
    """The measure that drifted, or that the winner won on."""
    worse: bool
    """Whether it is reported."""
    began: int
    """Since when (microseconds)."""
    at: int
    """The time at which the traffic showed it (microseconds)."""
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    deliveries: Mapping[str, str] = field(default_factory=dict)
    """The state of its delivery on each channel."""

    @property
    def place(self) -> str:
        """The path of the page that shows the subject of the alert."""
        if self.kind == APPROVAL:
            return f"/review/{quote(str(self.details['proposal']), safe='')}"
        return f"/quality/{quote(self.prompt, safe='/')}"

    def as_json(self) -> dict[str, Any]:
        """The alert as JSON values; the key is not shown."""
        shown = {name: getattr(self, name) for name in ("id", "kind", "prompt", "measure", "worse", "text")}
        moments = {"began": iso(self.began), "at": iso(self.at)}
        return {**shown, **moments, "details": dict(self.details), "deliveries": dict(self.deliveries)}


def store_alert(connection: Connection, alert: QualityAlert) -> QualityAlert | None:
    """Write an alert down. None where its key was written down before."""
    row = {name: getattr(alert, name) for name in ("key", "kind", "prompt", "measure", "began", "at", "text")}
    row |= {"id": new_id(), "worse": int(alert.worse), "details": dict(alert.details)}
    new = insert_into(connection, quality_alerts).values(row).on_conflict_do_nothing()
    stored = connection.execute(new.returning(quality_alerts.c.id)).scalar()
    return None if stored is None else replace(alert, id=stored)


def read_alert(connection: Connection, row: Row[Any]) -> QualityAlert:
    """An alert from its row, with the states of its deliveries."""
    d = quality_deliveries.c
    states = connection.execute(select(d.channel, d.state).where(d.alert == row.id).order_by(d.channel))
    values = dict(row._mapping) | {"worse": bool(row.worse)}
    return QualityAlert(**values, deliveries={state.channel: state.state for state in states})


def queue_alerts(connection: Connection, channels: Iterable[str], moment: int) -> None:
    """Have every reported alert that is still news delivered on each of these channels; what is queued already stays as it is."""
    a = quality_alerts.c
    news = select(a.id).where(a.worse == 1, a.at >= moment - NEWS)
    for id in connection.execute(news).scalars().all():
        for channel in channels:
            row = {
                "alert": id,
                "channel": channel,
                "state": WAITING,
                "tries": 0,
                "due": moment,
                "error": None,
            }
            connection.execute(
                insert_into(connection, quality_deliveries).values(row).on_conflict_do_nothing()
            )
