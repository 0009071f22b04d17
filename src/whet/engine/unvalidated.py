"""The best prompt of a search whose limit ended before any new prompt was validated."""

from __future__ import annotations

from typing import Any

from whet.engine.durable import RunState
from whet.engine.journal import read_events
from whet.errors import quantity
from whet.search.archive import preference

UNVALIDATED = "unvalidated"
"""The event that names such a prompt, the number of its training rows and the limit."""


def best_by_training(core: RunState, start: str) -> dict[str, Any] | None:
    """The candidate with the highest mean reward on training rows, as its event describes it, where nothing but the start prompt,
    whose id is `start`, was validated; None where none is above the start prompt.

    Only those with the most training rows count, because a mean of few rows is easily high by chance. Of equal means, the shorter
    prompt is better.
    """
    tried: dict[str, dict[str, Any]] = {}
    own = float("-inf")
    for event in read_events(core.journal.path, ["candidate", "validated"]):
        record = event.value
        if record["id"] == start:
            own = (
                max(own, record.get("validation") or 0.0) if record.get("train") is None else record["train"]
            )
        elif event.name == "validated":
            return None
        elif record.get("train") is not None:
            tried[record["id"]] = record
    most = max((record["train_n"] for record in tried.values()), default=0)
    full = [record for record in tried.values() if record["train_n"] == most]
    best = max(full, key=lambda record: preference(record["train"], str(record["messages"])), default=None)
    return best if best is not None and best["train"] > own else None


def unvalidated_warnings(core: RunState) -> list[str]:
    """A warning where the best prompt of the search was chosen by its training rows."""
    return [
        f"{str(event.value['limit']).capitalize()} ended the search before a new prompt was validated. The best prompt is "
        f"the one with the highest reward on {quantity(event.value['n'], 'training row')}; a larger limit validates it."
        for event in read_events(core.journal.path, [UNVALIDATED])[:1]
    ]
