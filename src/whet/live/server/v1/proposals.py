"""Proposals, decisions and the audit log as JSON."""

from __future__ import annotations

from starlette.responses import Response

import whet.live.server.v1.shapes as shapes
from whet.live.registry import Decision, PromptEdit, Seal
from whet.live.registry.names import check_name, parse_address
from whet.live.registry.proposals import GIVEN
from whet.live.registry.versions import check_json
from whet.live.server.endpoint import EndpointRouter, Spec
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, json_answer
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import check_words, contradicted, looked_up, prompt_from

book = EndpointRouter()


@book("GET", "/v1/proposals", Role.VIEWER, spec=Spec(query=shapes.ProposalsQuery, answer=shapes.Proposals))
def list_proposals(call: RequestContext) -> Response:
    """Proposals, the newest first."""
    query = call.query(shapes.ProposalsQuery)
    proposals = call.house.live.registry.proposals(
        state=query.state, name=query.name, before=query.before, limit=query.limit
    )
    return json_answer({"proposals": [one.as_json() for one in proposals.items], "before": proposals.after})


@book(
    "POST",
    "/v1/proposals",
    Role.EDITOR,
    spec=Spec(body=shapes.NewProposal, answer=shapes.ProposalSchema, status=201, refusals=(409,)),
)
def propose(call: RequestContext) -> Response:
    """Propose a text for the version at an address. The evidence is kept and shown as given by who sends it."""
    request = call.json(shapes.NewProposal)
    prompt = prompt_from(request.text, request.messages)
    parse_address(request.base)
    check_json(request.evidence, "evidence")
    check_words(label=request.label, reason=request.message)
    with contradicted():
        made = call.house.live.registry.propose(
            request.base,
            PromptEdit(prompt=prompt),
            author=call.name,
            message=request.message,
            label=request.label,
            evidence=None
            if request.evidence is None
            else {GIVEN: {"by": call.name, "evidence": request.evidence}},
        )
    return json_answer(made.as_json(), 201)


@book(
    "POST",
    "/v1/moves",
    Role.EDITOR,
    spec=Spec(body=shapes.MoveRequest, answer=shapes.ProposalSchema, status=201, refusals=(409,)),
)
def request_move(call: RequestContext) -> Response:
    """Ask somebody else to put a label on a version: what a protected label needs."""
    request = call.json(shapes.MoveRequest)
    check_name(request.name)
    check_words(label=request.label, reason=request.reason)
    with contradicted():
        made = call.house.live.registry.request_move(
            request.name, request.label, request.version, actor=call.name, reason=request.reason
        )
    return json_answer(made.as_json(), 201)


@book("GET", "/v1/proposals/{id}", Role.VIEWER, spec=Spec(answer=shapes.ProposalSchema, refusals=(404,)))
def get_proposal(call: RequestContext) -> Response:
    """One proposal with what it does to each instruction."""
    with looked_up():
        proposal = call.house.live.registry.proposal(call.path("id"))
    return json_answer(proposal.as_json())


@book(
    "POST",
    "/v1/proposals/{id}/decision",
    Role.APPROVER,
    spec=Spec(body=shapes.DecisionSchema, answer=shapes.ProposalSchema, refusals=(404, 409)),
)
def decide(call: RequestContext) -> Response:
    """Approve, edit or reject an open proposal. Nobody approves what they proposed."""
    request, registry, key = call.json(shapes.DecisionSchema), call.house.live.registry, call.path("id")
    with looked_up():
        registry.proposal(key)
    prompt = None if request.text is None else prompt_from(request.text, None)
    check_words(reason=request.reason)
    if request.verdict == "reject" and not request.reason.strip():
        raise Refused(400, "A rejection needs a reason: whoever made the proposal learns from it.")
    if request.verdict == "edit" and prompt is None and not request.texts:
        raise Refused(
            400, "An edit needs the new text of an instruction (texts), or of the whole prompt (text)."
        )
    decision = Decision(request.verdict, request.reason, request.kept, request.texts, prompt)
    with contradicted():
        return json_answer(registry.decide(key, decision, actor=call.name).as_json())


@book(
    "POST",
    "/v1/proposals/{id}/withdrawal",
    Role.EDITOR,
    spec=Spec(body=shapes.Withdrawal, answer=shapes.ProposalSchema, refusals=(404, 409)),
)
def withdraw(call: RequestContext) -> Response:
    """Take one's own open proposal back."""
    request, registry, key = call.json(shapes.Withdrawal), call.house.live.registry, call.path("id")
    check_words(reason=request.reason)
    with looked_up():
        registry.proposal(key)
    with contradicted():
        return json_answer(registry.withdraw(key, actor=call.name, reason=request.reason).as_json())


@book("GET", "/v1/audit", Role.VIEWER, spec=Spec(query=shapes.AuditQuery, answer=shapes.Entries))
def list_audit(call: RequestContext) -> Response:
    """The audit log, the newest entries first."""
    query = call.query(shapes.AuditQuery)
    entries = call.house.live.registry.audit(
        subject=query.subject, actor=query.actor, before=query.before, limit=query.limit
    )
    return json_answer({"entries": [entry.as_json() for entry in entries.items], "before": entries.after})


@book(
    "GET",
    "/v1/audit/verification",
    Role.VIEWER,
    spec=Spec(query=shapes.SealQuery, answer=shapes.Verification),
)
def verify_audit(call: RequestContext) -> Response:
    """Check the whole chain of hashes, and that it still holds what an older seal says."""
    query = call.query(shapes.SealQuery)
    seal = None if query.seal is None else Seal.parse(query.seal)
    if seal is not None and seal.seq > 2**62:
        raise Refused(400, "The seal's number is out of range.")
    return json_answer(call.house.live.registry.verify_audit(seal).as_json())
