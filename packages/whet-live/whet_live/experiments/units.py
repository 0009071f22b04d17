"""The units that the answers of a prompt name, so that an experiment counts units that exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from whet_client.assignment import UNITS
from whet_live.traffic.traffic_tables import inferences

LOOKED_AT = 200
"""Answers that are looked at, the newest."""
_USUAL = ("session", "user", "episode")


@dataclass(frozen=True, slots=True)
class NamedUnits:
    """The numbers of the newest `answers` of a prompt that name a user, a session, an episode."""

    answers: int
    named: Mapping[str, int]

    @property
    def fitting(self) -> str:
        """The unit that most answers name; a session where nothing is known."""
        return max(_USUAL, key=lambda unit: self.named.get(unit, 0))

    def missing(self, unit: str) -> str:
        """A sentence about an experiment that counts this unit and has none so far; empty if the answers name it, or if
        there are no answers."""
        if not self.answers or self.named.get(unit):
            return ""
        others = [f"{one}s" for one in UNITS if self.named.get(one)]
        newest = "the last answer names" if self.answers == 1 else f"the last {self.answers} answers name"
        begin = f"Units so far: 0. This experiment counts {unit}s; {newest} "
        if not others:
            return f"{begin}none, and no users or episodes either. Log {unit}= with each answer."
        return f"{begin}{' and '.join(others)} only. Make it anew with unit: {self.fitting}."


def units_of(connection: Connection, prompt: str) -> NamedUnits:
    """The units that the newest answers of a prompt name."""
    columns = {unit: inferences.c[unit] for unit in UNITS}
    newest = (
        select(*columns.values())
        .where(inferences.c.prompt == prompt)
        .order_by(inferences.c.time.desc(), inferences.c.seq.desc())
        .limit(LOOKED_AT)
    )
    rows = connection.execute(newest).all()
    return NamedUnits(
        len(rows), {unit: sum(row[i] is not None for row in rows) for i, unit in enumerate(UNITS)}
    )
