"""Traffic: what live prompts answered, and the feedback of people and programs on the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.traffic.behaviour import BehaviourModel, Estimate
    from whet_live.traffic.dataset import behaviour_of
    from whet_live.traffic.importers import earlier_ids, read_files, store_imported
    from whet_live.traffic.long_numbers import read_json
    from whet_live.traffic.schema import MOST_ROWS, RefusedRow, RowsRefused, parse_feedback, read_inferences

from whet_live.traffic.answer_search import AnswerMatches
from whet_live.traffic.erase import Erased
from whet_live.traffic.search import (
    EVERYTHING,
    Count,
    Filter,
    RowPage,
    StoredFeedback,
    StoredInference,
    TrafficEvent,
)
from whet_live.traffic.spans import SpanLink
from whet_live.traffic.tallies import DiskQuotaExceeded, RowSender
from whet_live.traffic.traffic_store import Intake, Overloaded, Traffic
from whet_live.traffic.write import IdConflict, Receipt

__all__ = [
    "EVERYTHING",
    "MOST_ROWS",
    "AnswerMatches",
    "BehaviourModel",
    "Count",
    "DiskQuotaExceeded",
    "Erased",
    "Estimate",
    "Filter",
    "IdConflict",
    "Intake",
    "Overloaded",
    "Receipt",
    "RefusedRow",
    "RowPage",
    "RowSender",
    "RowsRefused",
    "SpanLink",
    "StoredFeedback",
    "StoredInference",
    "Traffic",
    "TrafficEvent",
    "behaviour_of",
    "earlier_ids",
    "parse_feedback",
    "read_files",
    "read_inferences",
    "read_json",
    "store_imported",
]

__getattr__ = lazy(
    __name__,
    {
        "whet_live.traffic.behaviour": "BehaviourModel Estimate",
        "whet_live.traffic.dataset": "behaviour_of",
        "whet_live.traffic.importers": "earlier_ids read_files store_imported",
        "whet_live.traffic.long_numbers": "read_json",
        "whet_live.traffic.schema": "MOST_ROWS RefusedRow RowsRefused parse_feedback read_inferences",
    },
)
