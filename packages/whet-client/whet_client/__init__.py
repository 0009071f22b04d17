"""The client for apps with live prompts: it fetches a prompt by label, assigns versions, and reports answers and feedback.

It needs the standard library only, never makes the app wait for the network after the first call, and works from bundled
copies while the server is down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy
from whet_client.version import __version__

if TYPE_CHECKING:
    from whet_client.client import Client, feedback_of
    from whet_client.http import Unavailable
    from whet_client.ids import new_id
    from whet_client.live_prompts import LivePrompt
    from whet_client.records import (
        IMPLICIT,
        KINDS,
        LARGEST_VERSION,
        LONGEST_ID,
        LONGEST_LABEL,
        LONGEST_NAME,
        LONGEST_OUTPUT,
        LONGEST_TEXT,
        SOURCES,
        TARGETS,
        Feedback,
        Inference,
    )

__all__ = [
    "IMPLICIT",
    "KINDS",
    "LARGEST_VERSION",
    "LONGEST_ID",
    "LONGEST_LABEL",
    "LONGEST_NAME",
    "LONGEST_OUTPUT",
    "LONGEST_TEXT",
    "SOURCES",
    "TARGETS",
    "Client",
    "Feedback",
    "Inference",
    "LivePrompt",
    "Unavailable",
    "__version__",
    "feedback_of",
    "new_id",
]

__getattr__ = lazy(
    __name__,
    {
        "whet_client.client": "Client feedback_of",
        "whet_client.http": "Unavailable",
        "whet_client.ids": "new_id",
        "whet_client.live_prompts": "LivePrompt",
        "whet_client.records": "IMPLICIT KINDS LARGEST_VERSION LONGEST_ID LONGEST_LABEL LONGEST_NAME LONGEST_OUTPUT LONGEST_TEXT "
        "SOURCES TARGETS Feedback Inference",
    },
)
