"""The terms on which an instruction stands, as a person sets them: a lock, a first and a last day, a day of review.

A locked instruction is what a person wrote to every stage: no model rewords it, merges it or takes it out. Days are those of UTC;
the first and the last one belong to the time in which an instruction stands. Who set which terms, and why, is in the audit log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from whet.errors import UsageError
from whet.instructions.changes import AUTHOR as OPTIMIZER
from whet.instructions.changes import BY_HAND
from whet.prompt.events import EXPIRED, Event, Expire, Restore
from whet.prompt.instructions import Ledger
from whet_live.database import iso, put, time_of
from whet_live.learner.learner_tables import instruction_terms
from whet_live.registry import audit
from whet_live.registry.names import check_actor, check_text
from whet_live.registry.registry_store import known_prompt

OUT_OF_DATE, IN_DATE = "its dates say that it does not stand now", "its dates say that it stands again"
_DAY = re.compile(r"(?:(\d{4})-)?(\d{2}-\d{2})")
_LEAP = "2000-"
BETWEEN = ".."


@dataclass(frozen=True, slots=True)
class InstructionTerms:
    """The terms of one instruction."""

    locked: bool = False
    first_day: str = ""
    """A date, or a month and a day (`12-01`) of each year; empty: none."""
    last_day: str = ""
    """A date, or a month and a day of each year; empty: none."""
    review: str = ""
    """A date; empty: none."""
    actor: str = ""
    """The person who set the terms last."""
    reason: str = ""
    """Why they were set."""
    at: int = 0
    """The time at which the terms were set (microseconds, UTC)."""

    @property
    def dates(self) -> str:
        """`FIRST..LAST`, either of which may be missing; empty where neither is set."""
        return f"{self.first_day}{BETWEEN}{self.last_day}" if self.first_day or self.last_day else ""

    def stand_on(self, today: str) -> bool:
        """Whether the instruction stands on a day, an ISO date.

        >>> winter = InstructionTerms(first_day="12-01", last_day="01-06")
        >>> winter.stand_on("2026-12-24"), winter.stand_on("2027-01-07")
        (True, False)
        """
        first, last = self.first_day, self.last_day
        day = today[5:] if max(len(first), len(last)) == len("12-01") else today
        if first and last and first > last:
            return day >= first or day <= last
        return (not first or day >= first) and (not last or day <= last)

    def due_for_review(self, today: str) -> bool:
        """Whether the day of review has come."""
        return bool(self.review) and self.review <= today

    def as_json(self) -> dict[str, object]:
        """The terms as JSON values."""
        return {
            "locked": self.locked,
            "first_day": self.first_day or None,
            "last_day": self.last_day or None,
            "review": self.review or None,
            "terms_by": self.actor or None,
            "terms_reason": self.reason,
            "terms_at": iso(self.at) if self.at else None,
        }


def read_dates(text: str) -> tuple[str, str]:
    """The first and last day of `FIRST..LAST`, either of which may be missing. Raises UsageError for other texts, days that are
    none, and a last day before the first.

    >>> read_dates("12-01..01-06"), read_dates("..2026-12-31"), read_dates("..")
    (('12-01', '01-06'), ('', '2026-12-31'), ('', ''))
    """
    parts = [part.strip() for part in text.split(BETWEEN)]
    if len(parts) != 2:
        raise UsageError(
            f'"{text[:80]}" does not say FIRST..LAST. Write 2026-12-01..2027-01-06 for once, 12-01..01-06 for each year, '
            "..2026-12-31 for an end alone, or .. for no dates."
        )
    first, last = (_check_day(part) if part else "" for part in parts)
    if first and last and len(first) != len(last):
        raise UsageError(
            f'"{text}" has one day with a year and one without. Give both a year, or neither for each year.'
        )
    if len(first) == len(last) == len(_LEAP) + 5 and first > last:
        raise UsageError(f"{last} is before {first}. Swap them.")
    if len(first or last) == 5 and not (first and last):
        raise UsageError(f'"{text}" is for each year: give the first and the last day.')
    return first, last


def read_review(text: str) -> str:
    """A day of review, an ISO date; empty for none. Raises UsageError."""
    day = _check_day(text.strip()) if text.strip() else ""
    if len(day) == 5:
        raise UsageError(f'A review has a year: 2027-{day}, not "{day}".')
    return day


def _check_day(text: str) -> str:
    match = _DAY.fullmatch(text)
    try:
        if match is not None and text.isascii():
            date.fromisoformat(text if match[1] else _LEAP + text)
            return text
    except ValueError:
        pass
    raise UsageError(f'"{text[:40]}" is no day. Write 2026-12-31, or 12-31 for each year.')


# Stored


def read_terms(connection: Connection, name: str, region: str, ledger: Ledger) -> dict[str, InstructionTerms]:
    """The terms of the instructions of a ledger, by id."""
    query = select(instruction_terms).filter_by(name=name, region=region)
    terms = {}
    for row in connection.execute(query):
        one = ledger.instructions.get(row.instruction)
        if one is not None and one.created == row.created:
            terms[row.instruction] = _terms_in(row)
    return terms


def _terms_in(row: Row[Any]) -> InstructionTerms:
    return InstructionTerms(
        bool(row.locked), row.first_day, row.last_day, row.review, row.actor, row.reason, row.at
    )


def write_terms(
    connection: Connection, where: tuple[str, str], ledger: Ledger, key: str, terms: InstructionTerms
) -> InstructionTerms:
    """Set the terms of an instruction of a ledger; `where` is the prompt and its region. What changed is in the audit log. Raises
    UsageError for an unknown instruction."""
    name, region = where
    check_actor(terms.actor)
    check_text(terms.reason, "reason")
    known_prompt(connection, name)
    created = ledger[key].created
    before = read_terms(connection, name, region, ledger).get(key, InstructionTerms())
    terms = replace(terms, at=time_of(connection))
    _write(connection, Place(name, region, key, created), before, terms, terms.actor)
    return terms


class Place(NamedTuple):
    """The instruction that terms are about; `created` tells it from one with the same id on another branch of versions."""

    name: str
    region: str
    instruction: str
    created: str


def all_terms(connection: Connection, name: str) -> dict[Place, InstructionTerms]:
    """The terms of all instructions that a prompt ever had."""
    rows = connection.execute(select(instruction_terms).filter_by(name=name))
    return {Place(name, row.region, row.instruction, row.created): _terms_in(row) for row in rows}


def import_terms(
    connection: Connection, terms: Mapping[Place, InstructionTerms], name: str, actor: str
) -> None:
    """Set terms of a prompt's instructions as they were elsewhere, with who set them and when; the audit log says that `actor`
    brought them in."""
    here = all_terms(connection, name)
    for place, one in terms.items():
        _write(connection, place, here.get(place, InstructionTerms()), one, actor)


def _write(
    connection: Connection, place: Place, before: InstructionTerms, terms: InstructionTerms, by: str
) -> None:
    changes = {
        "instruction.lock" if terms.locked else "instruction.unlock": before.locked != terms.locked,
        "instruction.dates": before.dates != terms.dates,
        "instruction.review": before.review != terms.review,
    }
    for action in (action for action, changed in changes.items() if changed):
        details = {"instruction": place.instruction, "region": place.region, **terms.as_json()}
        audit.append_entry(connection, actor=by, action=action, subject=place.name, details=details)
    row = {
        **place._asdict(), "locked": int(terms.locked),
        "first_day": terms.first_day, "last_day": terms.last_day, "review": terms.review, "actor": terms.actor,
        "reason": terms.reason, "at": terms.at,
    }  # fmt: skip
    put(connection, instruction_terms, row)


def names_with_dates(connection: Connection) -> set[str]:
    """The prompts of which an instruction has a first or last day."""
    t = instruction_terms.c
    query = select(t.name).where((t.first_day != "") | (t.last_day != "")).distinct()
    return set(connection.execute(query).scalars())


# What they mean


def locked_ids(terms: Mapping[str, InstructionTerms]) -> set[str]:
    """The instructions that are locked."""
    return {key for key, one in terms.items() if one.locked}


def as_stages_see(ledger: Ledger, terms: Mapping[str, InstructionTerms]) -> Ledger:
    """The ledger in which what a person wrote or locked is by hand, which no stage changes."""
    hand = BY_HAND[1]
    kept = locked_ids(terms)
    instructions = {
        key: one if one.author == OPTIMIZER and key not in kept else replace(one, author=hand)
        for key, one in ledger.instructions.items()
    }
    return replace(ledger, instructions=instructions)


def events_of_dates(
    ledger: Ledger, terms: Mapping[str, InstructionTerms], today: str, author: str, at: str
) -> list[Event]:
    """The events that the dates require on `today`, an ISO date: instructions that leave, and instructions that return after
    they left because of their dates."""
    standing = {instruction.id for instruction in ledger.active}
    events = list[Event]()
    for key, one in terms.items():
        if key in standing and not one.stand_on(today):
            reason = f"{OUT_OF_DATE} ({one.dates}, set by {one.actor})"
            events.append(Expire(id=key, reason=reason, author=author, at=at))
        elif _has_left_by_date(ledger, key) and one.stand_on(today):
            reason = f"{IN_DATE} ({one.dates})" if one.dates else IN_DATE
            events.append(Restore(id=key, reason=reason, author=author, at=at))
    return events


def _has_left_by_date(ledger: Ledger, key: str) -> bool:
    one = ledger.instructions[key]
    return one.status == EXPIRED and one.reason.startswith(OUT_OF_DATE)
