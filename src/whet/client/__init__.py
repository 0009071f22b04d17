"""The app's side of a live prompt: fetch it by label, try versions, report answers and what people do with them.

It needs the standard library only, never makes the app wait for the network after the first call, and works from bundled
copies while the server is down.
"""

from __future__ import annotations

from whet.client.client import Client, feedback_of
from whet.client.http import Unavailable
from whet.client.ids import new_id
from whet.client.prompts import LivePrompt
from whet.client.records import (
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
    "feedback_of",
    "new_id",
]
