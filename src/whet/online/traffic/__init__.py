"""Traffic: what live prompts answered, and what people and programs said or did about the answers."""

from __future__ import annotations

from whet.online.traffic.erase import Erased
from whet.online.traffic.intake import Intake, Overloaded
from whet.online.traffic.search import EVERYTHING, Count, Event, Filter, Page, StoredFeedback, StoredInference
from whet.online.traffic.store import Traffic
from whet.online.traffic.write import Clash, Conflict, Receipt

__all__ = [
    "EVERYTHING",
    "Clash",
    "Conflict",
    "Count",
    "Erased",
    "Event",
    "Filter",
    "Intake",
    "Overloaded",
    "Page",
    "Receipt",
    "StoredFeedback",
    "StoredInference",
    "Traffic",
]
