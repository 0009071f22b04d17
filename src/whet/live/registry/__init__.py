"""The registry of prompts: versions, labels, proposals, lineage, audit."""

from __future__ import annotations

from whet.live.registry.audit import AuditEntry, AuditVerdict, Seal
from whet.live.registry.names import Address, parse_address
from whet.live.registry.proposals import Decision, PromptEdit
from whet.live.registry.review import Registry
from whet.live.registry.values import Difference, ListPage, Move, Proposal, ProposalUnit, Summary, Version

__all__ = [
    "Address",
    "AuditEntry",
    "AuditVerdict",
    "Decision",
    "Difference",
    "ListPage",
    "Move",
    "PromptEdit",
    "Proposal",
    "ProposalUnit",
    "Registry",
    "Seal",
    "Summary",
    "Version",
    "parse_address",
]
