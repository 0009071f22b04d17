"""The models that answered at an address: a gateway may hand calls on to others, and an alias may move to a newer model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from whet.engine.journal import Journal, Statement, meta_row
from whet.types import Completion

SERVED = "served"
"""The key under which the journal says for each address which models its answers named, in their order."""
_LISTED = 4


def read_served(journal: Journal) -> dict[str, list[str]]:
    """The models that answers named so far, by address."""
    served: dict[str, list[str]] = orjson.loads(journal.meta(SERVED) or "{}")
    return served


def note_served(served: dict[str, list[str]], address: str, answers: Sequence[Completion]) -> list[Statement]:
    """Note the models that answers name; the statement that records them, none where nothing is new."""
    known = served.get(address, [])
    if not (new := [name for name in dict.fromkeys(c.model for c in answers) if name and name not in known]):
        return []
    served[address] = [*known, *new]
    return [meta_row(SERVED, orjson.dumps(served).decode())]


def served_warnings(served: Mapping[str, Sequence[str]]) -> list[str]:
    """For each address whose answers name several models, that the figures mix them."""
    warnings = []
    for address, names in served.items():
        if len(names) > 1:
            others = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            warnings.append(
                f"Answers of {address} name {len(names)} models: {', '.join(names[:_LISTED])}{others}. The figures of this run "
                "mix them. Switch fallbacks and routing off where you can, or name one model with its version."
            )
    return warnings
