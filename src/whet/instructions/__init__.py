"""From critiques to managed instructions: read, consolidate, change, and the guard in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.lazy import lazy

if TYPE_CHECKING:
    from whet.instructions.guard import visible
    from whet.instructions.reader import NO_DEMAND, TO_READER, VAGUE

__all__ = ["NO_DEMAND", "TO_READER", "VAGUE", "visible"]

__getattr__ = lazy(
    __name__,
    {
        "whet.instructions.guard": "visible",
        "whet.instructions.reader": "NO_DEMAND TO_READER VAGUE",
    },
)
