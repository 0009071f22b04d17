"""Traffic: what live prompts answered, and what people and programs said or did about the answers."""

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
