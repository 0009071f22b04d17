"""The registry of prompts: versions, labels, proposals, lineage, audit."""

from __future__ import annotations

from whet_live.database import ListPage
from whet_live.registry.audit import (
    AuditCheckpoint,
    AuditEntry,
    AuditVerdict,
    append_entry,
    audited_transaction,
)
from whet_live.registry.names import (
    ANY_PROMPT,
    NEWEST,
    Address,
    check_label,
    check_name,
    check_text,
    parse_address,
)
from whet_live.registry.proposals import GIVEN, PROBES, Decision, PromptEdit
from whet_live.registry.review import Registry
from whet_live.registry.values import (
    EXPERIMENT,
    Difference,
    Move,
    Proposal,
    ProposalUnit,
    Summary,
    Version,
    slot_warnings,
)
from whet_live.registry.versions import check_json, check_prompt

__all__ = [
    "ANY_PROMPT",
    "EXPERIMENT",
    "GIVEN",
    "NEWEST",
    "PROBES",
    "Address",
    "AuditCheckpoint",
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
    "Summary",
    "Version",
    "append_entry",
    "audited_transaction",
    "check_json",
    "check_label",
    "check_name",
    "check_prompt",
    "check_text",
    "parse_address",
    "slot_warnings",
]
