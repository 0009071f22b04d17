"""Learning as one call: propose, ask, write, or take back; everything as JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from whet.engine.progress import Progress
from whet.feedback.prompt_file import ledger_path
from whet.feedback.proposals import LearnProposal, LearnRequest, Write, propose_learning, undo, write_proposal
from whet.prompt.diff import text_diff
from whet.prompt.instructions import Ledger
from whet.prompt.ledger import Change

ADD, REMOVE, CHANGE = "add", "remove", "change"


def proposal_json(proposal: LearnProposal, out: Path | None = None) -> dict[str, object]:
    """A proposal as JSON: what would change and why, what is flagged, what gave nothing."""
    document = proposal.document
    written = out or document.path
    before, after = document.text, proposal.data.decode("utf-8")
    return {
        "prompt": str(document.path),
        "written_to": str(written),
        "ledger": str(ledger_path(written)),
        "region": document.region,
        "fence_added": bool(document.fence),
        "optimizer": proposal.session.address,
        "simulated": proposal.session.simulated,
        "changes": [_change(change, proposal.after) for change in proposal.changed],
        "supported": [_change(Change(i.id, i.text, i.text), proposal.after) for i in proposal.supported],
        "flagged": [
            {"kind": f.kind, "id": f.id, "text": f.text, "reasons": list(f.reasons), "where": f.where}
            for f in proposal.flags
        ],
        "skipped": [
            {"feedback": s.row.id, "where": s.row.where, "reason": s.reason} for s in proposal.skipped
        ],
        "groups": [{**group.as_json(), "instruction": group.instruction} for group in proposal.groups],
        "contradictions": [list(pair) for pair in proposal.contradictions],
        "learned": [row.id for row in proposal.learned],
        "text": after,
        "diff": text_diff(before, after, document.path.name, f"{written.name} (learned)"),
        "warnings": list(proposal.warnings),
        "run": proposal.session.folder,
        "usage": dict(proposal.session.usage),
    }


def _change(change: Change, ledger: Ledger) -> dict[str, object]:
    i = ledger[change.id]
    return {
        **_difference(change),
        "author": i.author,
        "critiques": list(i.critiques),
        "feedback": list(i.evidence),
        "sources": i.sources,
        "tokens": i.tokens,
        "reason": change.reason,
    }


def _difference(change: Change) -> dict[str, object]:
    kind = ADD if change.before is None else REMOVE if change.after is None else CHANGE
    return {"id": change.id, "kind": kind, "before": change.before, "after": change.after}


async def learn(
    request: LearnRequest,
    *,
    out: Path | None = None,
    dry_run: bool = False,
    confirm: Callable[[dict[str, object]], bool],
    write: Write | None = None,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Propose, ask `confirm` with the proposal as JSON, and write. `write` gives the instructions for groups of comments that no
    model reads; `progress` follows the model that reads them. The result is the proposal with its
    `status`: written, proposed (a dry run), declined, or nothing (there is nothing to learn).

    `confirm` is also shown a proposal that will not be written. Raises UsageError, ProviderError,
    StorageError.
    """
    proposal = await propose_learning(request, write, progress)
    shown = proposal_json(proposal, out)
    agreed = confirm(shown)
    if proposal.empty:
        return {**shown, "status": "nothing"}
    if dry_run:
        return {**shown, "status": "proposed"}
    if not agreed:
        return {**shown, "status": "declined"}
    write_proposal(proposal, out)
    return {**shown, "status": "written"}


def unlearn(path: Path) -> dict[str, object]:
    """Undo the last learned step; what it did as JSON."""
    undone = undo(path, datetime.now(UTC).isoformat(timespec="seconds"))
    return {
        "prompt": str(path),
        "ledger": str(ledger_path(path)),
        "undone_at": undone.step.at,
        "changes": [_difference(change) for change in undone.changed],
        "text": undone.after,
        "diff": text_diff(undone.before, undone.after, "learned", "undone"),
        "status": "undone",
    }
