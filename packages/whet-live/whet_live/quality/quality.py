"""Quality: the charts of every prompt, and what was noticed in its traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from sqlalchemy import select

from whet_live.database import Database, ListPage, one_more
from whet_live.quality.alerts import QualityAlert, read_alert
from whet_live.quality.glance import MeasuredNow, PromptGlance, glance_at, measured_now
from whet_live.quality.monitor import watch_once
from whet_live.quality.quality_tables import quality_alerts
from whet_live.quality.report import (
    QualityOptions,
    QualityQuery,
    QualityReport,
    check_prompt_known,
    measure_quality,
)


class Quality:
    """The quality of live prompts in a database. Threads may share it; every method raises StorageError when the database
    cannot be used."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def measure(self, prompt: str, **options: Unpack[QualityOptions]) -> QualityReport:
        """The quality of a prompt over time; `options` are the fields of `QualityQuery`. Raises UsageError as
        `measure_quality` does."""
        return measure_quality(self.database, QualityQuery(prompt, **options))

    def check_prompt(self, prompt: str) -> None:
        """Raises UsageError for a prompt that has neither a version nor any traffic."""
        with self.database.read() as connection:
            check_prompt_known(connection, prompt)

    def glance(self, prompts: Sequence[str], days: int = 14) -> dict[str, PromptGlance]:
        """The last days of some prompts, each in one small series."""
        return glance_at(self.database, prompts, days)

    def now(self) -> tuple[dict[str, int], list[MeasuredNow]]:
        """Of the last day: the answers of each prompt, and the means of its measures."""
        return measured_now(self.database)

    def watch(self, moment: int | None = None) -> list[QualityAlert]:
        """Look at the traffic that came since the last look, and write down what changed; `moment` stands for now. Returns
        what is new."""
        return watch_once(self.database, self.database.read_time() if moment is None else moment)

    def alerts(
        self, prompt: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> ListPage[QualityAlert]:
        """The alerts, the newest first. Raises UsageError for a page size that is 0 or too large."""
        query = select(quality_alerts).order_by(quality_alerts.c.id.desc()).limit(one_more(limit))
        if prompt is not None:
            query = query.where(quality_alerts.c.prompt == prompt)
        if before is not None:
            query = query.where(quality_alerts.c.id < before)
        with self.database.read() as connection:
            alerts = [read_alert(connection, row) for row in connection.execute(query).all()]
        return ListPage.of(alerts, limit, lambda one: one.id)
