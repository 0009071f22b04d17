"""Another name of `whet_live.choices`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.live import alias

if TYPE_CHECKING:
    from whet_live.choices import *
else:
    __getattr__ = alias("whet_live.choices")
