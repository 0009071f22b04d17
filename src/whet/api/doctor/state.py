"""The place of a user's or a team's state, and whether it can be written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from whet._util.arguments import write_fault
from whet.api.doctor.checkup import DoctorReport
from whet.engine.ledger_store import LEDGER, reading_ledger
from whet.engine.state_place import STATE, StateDatabase, state_place
from whet.errors import StorageError, UsageError, quantity

CHECK = "state"


async def examine_state(checkup: DoctorReport) -> None:
    """Note where the ledger of openings lies, and what is in its way. Nothing is written."""
    try:
        place = state_place()
        if isinstance(place, StateDatabase):
            checkup.begin(f"reaching {place.name}")
            await asyncio.to_thread(_database, checkup, place)
        else:
            _folder(checkup, place)
    except (UsageError, StorageError) as error:
        checkup.fail(
            CHECK,
            str(error),
            f"correct {STATE}, or restore the connection; without the ledger there is no verdict",
        )
    except RuntimeError as error:  # the user has no home
        checkup.fail(CHECK, f"there is no place for the ledger ({error})", f"set {STATE} to a folder")


def _database(checkup: DoctorReport, place: StateDatabase) -> None:
    server = place.try_out()
    what = f"PostgreSQL {server['version']}, {quantity(server['openings'], 'opening')} in the ledger"
    checkup.ok(CHECK, f"{place.name} can be written: {what}")
    if not (server["encrypted"] or server["local"]):
        checkup.warn(
            CHECK, f"the connection to {place.name} is not encrypted", f"add ?sslmode=require to {STATE}"
        )


def _folder(checkup: DoctorReport, folder: Path) -> None:
    if (reason := write_fault(folder)) is not None:
        checkup.fail(
            CHECK,
            f"{folder} cannot be written: {reason}",
            f"set {STATE} to a writable folder; without the ledger there is no verdict",
        )
        return
    with reading_ledger() as db:
        openings = 0 if db is None else db.find("SELECT count(*) FROM openings")[0][0]
    checkup.ok(CHECK, f"{folder / LEDGER} can be written: {quantity(openings, 'opening')} in the ledger")
