"""Live prompts: database, registry, traffic, experiments, the always-on learner, and the server around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.lazy import lazy

if TYPE_CHECKING:
    from whet.live.choices import Choice, apart, choices_of, next_of, standings
    from whet.live.erasure import expire, forget_user, retain
    from whet.live.installation import Live, open_live

__all__ = [
    "Choice",
    "Live",
    "apart",
    "choices_of",
    "expire",
    "forget_user",
    "next_of",
    "open_live",
    "retain",
    "standings",
]

__getattr__ = lazy(
    __name__,
    {
        "whet.live.choices": "Choice apart choices_of next_of standings",
        "whet.live.erasure": "expire forget_user retain",
        "whet.live.installation": "Live open_live",
    },
)
