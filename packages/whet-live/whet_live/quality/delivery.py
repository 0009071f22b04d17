"""The delivery of alerts: each once on every channel, again later after a failure, by one server at a time.

A server takes a delivery for as long as a try may last, and then sends. If it dies in between, another one tries again: the
same alert then arrives twice, under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from whet_live.database import Database
from whet_live.quality.alerts import FAILED, SENT, WAITING, QualityAlert, queue_alerts, read_alert
from whet_live.quality.channels import SECONDS, AlertChannel, DeliveryError
from whet_live.quality.quality_tables import quality_alerts, quality_deliveries
from whet_live.quality.series import SECOND

PAUSES = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
"""Seconds until the next try, after the first one, the second one, ...; after the last one an alert counts as failed."""
_TAKEN = int(6 * SECONDS) * SECOND
_AT_ONCE = 20


def deliver_due(
    database: Database, channels: Sequence[AlertChannel], address: str = "", moment: int | None = None
) -> int:
    """Send what is due on these channels, some at once; returns how many alerts arrived. Whatever a channel does, the next one
    is tried. `address` is that of the server's pages, `moment` stands for now. Raises StorageError."""
    by_name = {channel.name: channel for channel in channels}
    if not by_name:
        return 0
    at = database.read_time() if moment is None else moment
    with database.begin() as connection:
        queue_alerts(connection, by_name, at)
    arrived = 0
    for _ in range(_AT_ONCE):
        with database.begin() as connection:
            taken = _take(connection, by_name, at)
        if taken is None:
            break
        alert, channel, tries = taken
        error = None
        try:
            by_name[channel].send(alert, address)
        except DeliveryError as failure:
            error = str(failure)
        with database.begin() as connection:
            _note(connection, alert.id, channel, tries, error, at)
        arrived += error is None
    return arrived


def _take(
    connection: Connection, channels: Mapping[str, AlertChannel], moment: int
) -> tuple[QualityAlert, str, int] | None:
    """The delivery that is due for the longest time, taken so that no other server sends it too."""
    d = quality_deliveries.c
    query = (
        select(quality_deliveries)
        .where(d.state == WAITING, d.due <= moment, d.channel.in_(list(channels)))
        .order_by(d.due, d.alert)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    here = (d.alert == row.alert) & (d.channel == row.channel)
    connection.execute(
        quality_deliveries.update().where(here).values(tries=row.tries + 1, due=moment + _TAKEN)
    )
    alert = connection.execute(select(quality_alerts).where(quality_alerts.c.id == row.alert)).one()
    return read_alert(connection, alert), row.channel, row.tries + 1


def _note(
    connection: Connection, alert: str, channel: str, tries: int, error: str | None, moment: int
) -> None:
    """Store the outcome of a delivery attempt."""
    d = quality_deliveries.c
    values: dict[str, object] = {"state": SENT, "error": None}
    if error is not None:
        last = tries > len(PAUSES)
        pause = 0 if last else PAUSES[tries - 1]
        values = {"state": FAILED if last else WAITING, "error": error, "due": moment + pause * SECOND}
    connection.execute(
        quality_deliveries.update().where(d.alert == alert, d.channel == channel).values(values)
    )
