"""From critiques to managed instructions: read, consolidate, change, and the guard in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.instructions.answers import NO_DEMAND, TO_READER, VAGUE
    from whet.instructions.guard import visible

__all__ = ["NO_DEMAND", "TO_READER", "VAGUE", "visible"]

__getattr__ = lazy(
    __name__,
    {
        "whet.instructions.guard": "visible",
        "whet.instructions.answers": "NO_DEMAND TO_READER VAGUE",
    },
)
