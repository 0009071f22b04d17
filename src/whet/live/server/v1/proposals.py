"""Proposals, decisions and the audit log as JSON."""

from __future__ import annotations

from starlette.responses import Response

import whet.live.server.v1.shapes as shapes
from whet.live.registry import GIVEN, Decision, PromptEdit, Seal, check_json, check_name, parse_address
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, json_answer, list_answer, or_404, or_409
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import CHANGED, MADE, check_words, prompt_from

router = EndpointRouter()


@router("GET", "/v1/proposals", Role.VIEWER, query=shapes.ProposalsQuery, answer=shapes.Proposals)
def list_proposals(call: RequestContext) -> Response:
    """Proposals, the newest first."""
    query = call.query(shapes.ProposalsQuery)
    page = call.state.live.registry.proposals(
        state=query.state, name=query.name, before=query.before, limit=query.limit
    )
    return list_answer("proposals", page)


@router("POST", "/v1/proposals", Role.EDITOR, body=shapes.NewProposal, answer=shapes.ProposalSchema, **MADE)
def propose(call: RequestContext) -> Response:
    """Propose a text for the version at an address. The evidence is kept and shown as given by who sends it."""
    request = call.json(shapes.NewProposal)
    edited = PromptEdit(prompt=prompt_from(request.text, request.messages))
    parse_address(request.base)
    check_json(request.evidence, "evidence")
    check_words(label=request.label, reason=request.message)
    evidence = {GIVEN: {"by": call.name, "evidence": request.evidence}}
    made = or_409(
        call.state.live.registry.propose,
        request.base,
        edited,
        author=call.name,
        message=request.message,
        label=request.label,
        evidence=None if request.evidence is None else evidence,
    )
    return json_answer(made.as_json(), 201)


@router("POST", "/v1/moves", Role.EDITOR, body=shapes.MoveRequest, answer=shapes.ProposalSchema, **MADE)
def request_move(call: RequestContext) -> Response:
    """Ask somebody else to put a label on a version: what a protected label needs."""
    request, registry = call.json(shapes.MoveRequest), call.state.live.registry
    check_name(request.name)
    check_words(label=request.label, reason=request.reason)
    what = request.name, request.label, request.version
    made = or_409(registry.request_move, *what, actor=call.name, reason=request.reason)
    return json_answer(made.as_json(), 201)


@router("GET", "/v1/proposals/{id}", Role.VIEWER, answer=shapes.ProposalSchema, refusals=(404,))
def get_proposal(call: RequestContext) -> Response:
    """One proposal with what it does to each instruction."""
    return json_answer(or_404(call.state.live.registry.proposal, call.path("id")).as_json())


@router(
    "POST",
    "/v1/proposals/{id}/decision",
    Role.APPROVER,
    body=shapes.DecisionSchema,
    answer=shapes.ProposalSchema,
    **CHANGED,
)
def decide(call: RequestContext) -> Response:
    """Approve, edit or reject an open proposal. Nobody approves what they shaped."""
    request, registry, key = call.json(shapes.DecisionSchema), call.state.live.registry, call.path("id")
    or_404(registry.proposal, key)
    prompt = None if request.text is None else prompt_from(request.text, None)
    check_words(reason=request.reason)
    if request.verdict == "reject" and not request.reason.strip():
        raise Refused(400, "A rejection needs a reason: whoever made the proposal learns from it.")
    if request.verdict == "edit" and prompt is None and not request.texts:
        raise Refused(
            400, "An edit needs the new text of an instruction (texts), or of the whole prompt (text)."
        )
    decision = Decision(request.verdict, request.reason, request.kept, request.texts, prompt)
    return json_answer(or_409(registry.decide, key, decision, actor=call.name).as_json())


@router(
    "POST",
    "/v1/proposals/{id}/withdrawal",
    Role.EDITOR,
    body=shapes.Withdrawal,
    answer=shapes.ProposalSchema,
    **CHANGED,
)
def withdraw(call: RequestContext) -> Response:
    """Take one's own open proposal back."""
    reason, registry, key = call.json(shapes.Withdrawal).reason, call.state.live.registry, call.path("id")
    check_words(reason=reason)
    or_404(registry.proposal, key)
    return json_answer(or_409(registry.withdraw, key, actor=call.name, reason=reason).as_json())


@router("GET", "/v1/audit", Role.VIEWER, query=shapes.AuditQuery, answer=shapes.Entries)
def list_audit(call: RequestContext) -> Response:
    """The audit log, the newest entries first."""
    query = call.query(shapes.AuditQuery)
    page = call.state.live.registry.audit(
        subject=query.subject, actor=query.actor, before=query.before, limit=query.limit
    )
    return list_answer("entries", page)


@router("GET", "/v1/audit/verification", Role.VIEWER, query=shapes.SealQuery, answer=shapes.Verification)
def verify_audit(call: RequestContext) -> Response:
    """Check the whole chain of hashes, and that it still holds what an older seal says."""
    query = call.query(shapes.SealQuery)
    seal = None if query.seal is None else Seal.parse(query.seal)
    if seal is not None and seal.seq > 2**62:
        raise Refused(400, "The seal's number is out of range.")
    return json_answer(call.state.live.registry.verify_audit(seal).as_json())
