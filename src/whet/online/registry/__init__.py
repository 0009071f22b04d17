"""The registry of prompts: versions, labels, proposals, lineage, audit."""

from __future__ import annotations

from whet.online.registry.audit import Entry, Seal, Verdict
from whet.online.registry.names import Address, parse_address
from whet.online.registry.proposals import Decision, Edit
from whet.online.registry.review import Registry
from whet.online.registry.values import Difference, Move, Page, Proposal, Summary, Unit, Version

__all__ = [
    "Address",
    "Decision",
    "Difference",
    "Edit",
    "Entry",
    "Move",
    "Page",
    "Proposal",
    "Registry",
    "Seal",
    "Summary",
    "Unit",
    "Verdict",
    "Version",
    "parse_address",
]
