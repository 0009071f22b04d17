"""Another name of `whet_live.registry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.live import alias

if TYPE_CHECKING:
    from whet_live.registry import *
else:
    __getattr__ = alias("whet_live.registry")
