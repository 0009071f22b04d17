"""The terms of instructions (locks, days, reviews) as files beside those of exported prompts, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from whet.errors import UsageError
from whet.prompt.instructions import fold_events
from whet_live.database import iso, microseconds
from whet_live.learner.terms import (
    BETWEEN,
    InstructionTerms,
    Place,
    all_terms,
    import_terms,
    read_dates,
    read_review,
)
from whet_live.registry import Registry
from whet_live.registry.files import FileImport, PromptFiles, load_beside, write_beside
from whet_live.registry.names import check_actor, check_text

TERMS = "@terms.json"


def export_prompts(registry: Registry, folder: Path, names: Sequence[str] = ()) -> list[str]:
    """Write prompts with their versions and labels (`Registry.export`) and the terms of their instructions; returns their
    names."""
    written = registry.export(folder, names)
    with registry.database.read() as connection:
        for name in written:
            rows = [_entry(place, terms) for place, terms in sorted(all_terms(connection, name).items())]
            write_beside(folder / name / TERMS, {"instructions": rows} if rows else None)
    return written


def import_prompts(registry: Registry, folder: Path, *, actor: str, labels: bool = False) -> list[FileImport]:
    """Add what `export_prompts` wrote, all of it or nothing (`Registry.import_folder`); terms are set where labels are."""
    return registry.import_folder(
        folder, actor=actor, labels=labels, beside=partial(_import_terms, actor=actor)
    )


def _entry(place: Place, terms: InstructionTerms) -> dict[str, object]:
    return {
        "region": place.region,
        "instruction": place.instruction,
        "created": place.created,
        "locked": terms.locked,
        "dates": terms.dates or BETWEEN,
        "review": terms.review,
        "actor": terms.actor,
        "reason": terms.reason,
        "at": iso(terms.at),
    }


def _import_terms(connection: Connection, files: PromptFiles, *, actor: str) -> None:
    path = files.home / TERMS
    rows = load_beside(path).get("instructions", [])
    known = {
        (region, instruction.id, instruction.created)
        for _, ledgers, _ in files.versions
        for region, events in ledgers.items()
        for instruction in fold_events(events).instructions.values()
    }
    try:
        terms = dict(_read(files.name, row) for row in _list_of(rows))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{path}: this does not describe terms ({error!r}). Export it again.") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    strange = next((place for place in terms if place[1:] not in known), None)
    if strange is not None:
        raise UsageError(
            f"{path}: no version of {files.name} has the instruction {strange.instruction[:80]}."
        )
    import_terms(connection, terms, files.name, actor)


def _list_of(rows: object) -> Iterable[Mapping[str, Any]]:
    if not isinstance(rows, list):
        raise TypeError("no list of instructions")
    return rows


def _read(name: str, row: Mapping[str, Any]) -> tuple[Place, InstructionTerms]:
    place = Place(name, str(row["region"]), str(row["instruction"]), str(row["created"]))
    first, last = read_dates(row["dates"])
    if not isinstance(row["locked"], bool):
        raise TypeError(f"locked: {row['locked']!r}")
    terms = InstructionTerms(
        row["locked"],
        first,
        last,
        read_review(row["review"]),
        check_actor(row["actor"]),
        check_text(row["reason"], "reason"),
        microseconds(row["at"]),
    )
    return place, terms
