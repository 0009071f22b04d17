"""Traffic: what live prompts answered, and the feedback of people and programs on the answers."""

from __future__ import annotations

from whet.live.traffic.erase import Erased
from whet.live.traffic.intake import Intake, Overloaded
from whet.live.traffic.search import (
    EVERYTHING,
    Count,
    Filter,
    RowPage,
    StoredFeedback,
    StoredInference,
    TrafficEvent,
)
from whet.live.traffic.traffic_store import Traffic
from whet.live.traffic.write import Clash, IdConflict, Receipt

__all__ = [
    "EVERYTHING",
    "Clash",
    "Count",
    "Erased",
    "Filter",
    "IdConflict",
    "Intake",
    "Overloaded",
    "Receipt",
    "RowPage",
    "StoredFeedback",
    "StoredInference",
    "Traffic",
    "TrafficEvent",
]
