"""The registry as JSON: prompts, versions, labels; proposals and decisions; the audit log. Names hold `/`, so that a name
always ends its address."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict
from starlette.responses import Response

import whet_live.server.v1.shapes as shapes
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.types import Message
from whet_live.registry import (
    ANY_PROMPT,
    GIVEN,
    AuditCheckpoint,
    Decision,
    ListPage,
    PromptEdit,
    check_json,
    check_label,
    check_name,
    check_prompt,
    check_text,
    parse_address,
    slot_warnings,
)
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, json_answer, or_404, or_409, respond_with_etag
from whet_live.server.roles import Role

router = EndpointRouter()
MADE: dict[str, Any] = {"status": 201, "refusals": (409,)}
CHANGED: dict[str, Any] = {"refusals": (404, 409)}
MOVED: dict[str, Any] = {"refusals": (409,)}
NAMED: dict[str, Any] = {"refusals": (404,)}
"""The refusals of endpoints that make or change something, move a label, or show a named object."""
FOR_APPS = ("name", "version", "address", "prompt_id", "messages", "config")
"""The version's data for a program, with the label that it asked for."""


def check_words(*, label: str | None = None, reason: str = "") -> None:
    """Raises UsageError for a label that cannot be set, and for a reason or message that cannot be stored."""
    if label is not None:
        check_label(label)
    check_text(reason, "text")


def list_page(
    call: RequestContext,
    kind: type[Struct],
    rows: str,
    read: Callable[..., ListPage[Any]],
    cursor: str = "before",
) -> Response:
    """A page of what `read` lists, which takes the fields of the query: its rows, and where the next page begins."""
    page = read(**asdict(call.query(kind)))
    return json_answer({rows: [row.as_json() for row in page.items], cursor: page.after})


def prompt_from(text: str | None, messages: list[shapes.MessageSchema] | None) -> Prompt:
    """A prompt from one text or from messages. Raises UsageError for both, neither, a broken fence, and one that is too long
    or cannot be stored."""
    if (text is None) == (messages is None):
        raise UsageError("Give either text or messages.")
    if text is not None:
        prompt = Prompt.parse(text)
    else:
        prompt = Prompt.from_messages(tuple(Message(m.role, m.content, m.name) for m in messages or ()))
    check_prompt(prompt)
    return prompt


@router("GET", "/v1/prompts", Role.VIEWER, query=shapes.PromptsQuery, answer=shapes.Summaries)
def list_prompts(call: RequestContext) -> Response:
    """Prompts by name."""
    return list_page(call, shapes.PromptsQuery, "prompts", call.state.live.registry.prompts, "after")


@router("POST", "/v1/prompts", Role.EDITOR, body=shapes.NewVersion, answer=shapes.AddedVersion, **MADE)
def add_version(call: RequestContext) -> Response:
    """Add the next version of a prompt; the first one makes the prompt."""
    request = call.json(shapes.NewVersion)
    prompt = prompt_from(request.text, request.messages)
    check_name(request.name)
    check_json(request.config, "config")
    check_words(label=request.label, reason=request.message)
    warnings = slot_warnings(call.state.live.registry.current(request.name), prompt)
    made = or_409(
        call.state.live.registry.create,
        request.name,
        prompt,
        author=call.name,
        message=request.message,
        config=request.config,
        label=request.label,
        parent=request.parent,
    )
    return json_answer({**made.as_json(), "warnings": warnings}, 201)


@router(
    "GET",
    "/v1/prompts/{name:path}",
    Role.VIEWER,
    app=True,
    query=shapes.VersionQuery,
    answer=shapes.ServedSchema,
    refusals=(304, 404),
)
def get_prompt(call: RequestContext) -> Response:
    """The version that a label stands on, and the experiment that runs on the label. With If-None-Match only if new.

    A program gets the data that it needs to answer: the text, the version and its settings. The evidence of the version is for
    people.
    """
    query = call.query(shapes.VersionQuery)
    if query.label is not None and query.version is not None:
        raise Refused(400, "Give a label or a version, not both.")
    which = str(query.version or query.label or "production")
    live, name = call.state.live, call.path("name")
    call.check_scope(name)
    version = or_404(live.registry.get, f"{name}@{which}")
    label = None if query.version else query.label or "production"
    running = [one for one in live.experiments.assignments(name) if one["label"] == label]
    whole = version.as_json()
    shown = {key: whole[key] for key in FOR_APPS} | {"labels": [label] if label in whole["labels"] else []}
    answer = {**(shown if call.principal.app else whole), "experiment": running[0] if running else None}
    return respond_with_etag(call.request, orjson.dumps(answer))


@router(
    "GET",
    "/v1/versions/{name:path}",
    Role.VIEWER,
    query=shapes.PageQuery,
    answer=shapes.VersionsSchema,
    **NAMED,
)
def list_versions(call: RequestContext) -> Response:
    """Versions of a prompt, the newest first."""
    versions = partial(or_404, call.state.live.registry.versions, call.path("name"))
    return list_page(call, shapes.PageQuery, "versions", versions)


@router(
    "GET",
    "/v1/diff/{name:path}",
    Role.VIEWER,
    query=shapes.DiffQuery,
    answer=shapes.DifferenceSchema,
    **NAMED,
)
def compare(call: RequestContext) -> Response:
    """Two versions beside each other."""
    query, name = call.query(shapes.DiffQuery), call.path("name")
    diff = or_404(call.state.live.registry.diff, f"{name}@{query.before}", f"{name}@{query.after}")
    return json_answer(diff.as_json())


@router("GET", "/v1/labels/{name:path}", Role.VIEWER, answer=shapes.Standing, **NAMED)
def list_labels(call: RequestContext) -> Response:
    """The versions of a prompt's labels, and which labels move by approval only."""
    registry, name = call.state.live.registry, call.path("name")
    labels = or_404(registry.labels, name)
    kept = {label for prompt, label in registry.protections() if prompt in (name, ANY_PROMPT)}
    return json_answer({"labels": labels, "protected": sorted(kept)})


@router(
    "POST", "/v1/labels/{name:path}", Role.EDITOR, body=shapes.LabelMove, answer=shapes.MoveSchema, **MOVED
)
def move_label(call: RequestContext) -> Response:
    """Put a label on a version, or take it away. A protected label is refused: request the move instead."""
    request, registry = call.json(shapes.LabelMove), call.state.live.registry
    name = check_name(call.path("name"))
    check_words(label=request.label, reason=request.reason)
    why = {"actor": call.name, "reason": request.reason}
    if request.version is None:
        moved = or_409(registry.remove_label, name, request.label, **why)
    else:
        moved = or_409(registry.move_label, name, request.label, request.version, **why)
    return json_answer(moved.as_json())


@router(
    "POST",
    "/v1/rollback/{name:path}",
    Role.EDITOR,
    body=shapes.LabelRollback,
    answer=shapes.MoveSchema,
    **MOVED,
)
def roll_back(call: RequestContext) -> Response:
    """Put a label back where it stood before. A protected label needs the role approver."""
    request, name = call.json(shapes.LabelRollback), check_name(call.path("name"))
    check_words(label=request.label, reason=request.reason)
    check_rollback(call, name, request.label)
    rollback = call.state.live.registry.rollback
    return json_answer(
        or_409(rollback, name, request.label, actor=call.name, reason=request.reason).as_json()
    )


def check_rollback(call: RequestContext, name: str, label: str) -> None:
    """Raises Refused (403) for a protected label, unless the caller may approve."""
    if not call.may(Role.APPROVER) and call.state.live.registry.is_protected(name, label):
        raise Refused(403, f"{label} is protected: rolling it back needs the role approver.")


@router("GET", "/v1/history/{name:path}", Role.VIEWER, query=shapes.MovesQuery, answer=shapes.Moves, **NAMED)
def history(call: RequestContext) -> Response:
    """Every move of a prompt's labels, the newest first."""
    moves = partial(or_404, call.state.live.registry.moves, call.path("name"))
    return list_page(call, shapes.MovesQuery, "moves", moves)


@router("POST", "/v1/protections", Role.ADMIN, body=shapes.Protection, answer=shapes.Protection, **MOVED)
def protect(call: RequestContext) -> Response:
    """Say whether a label moves by approval only."""
    request, registry = call.json(shapes.Protection), call.state.live.registry
    check_words(label=request.label)
    if request.name != ANY_PROMPT:
        check_name(request.name)
    change = registry.protect if request.protected else registry.unprotect
    or_409(change, request.name, request.label, actor=call.name)
    return json_answer({"name": request.name, "label": request.label, "protected": request.protected})


@router("GET", "/v1/proposals", Role.VIEWER, query=shapes.ProposalsQuery, answer=shapes.Proposals)
def list_proposals(call: RequestContext) -> Response:
    """Proposals, the newest first."""
    return list_page(call, shapes.ProposalsQuery, "proposals", call.state.live.registry.proposals)


@router("POST", "/v1/proposals", Role.EDITOR, body=shapes.NewProposal, answer=shapes.AddedProposal, **MADE)
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
    warnings = slot_warnings(call.state.live.registry.current(made.name), made.prompt)
    return json_answer({**made.as_json(), "warnings": warnings}, 201)


@router("POST", "/v1/moves", Role.EDITOR, body=shapes.MoveRequest, answer=shapes.ProposalSchema, **MADE)
def request_move(call: RequestContext) -> Response:
    """Ask somebody else to put a label on a version: what a protected label needs."""
    request, registry = call.json(shapes.MoveRequest), call.state.live.registry
    check_name(request.name)
    check_words(label=request.label, reason=request.reason)
    what = request.name, request.label, request.version
    made = or_409(registry.request_move, *what, actor=call.name, reason=request.reason)
    return json_answer(made.as_json(), 201)


@router("GET", "/v1/proposals/{id}", Role.VIEWER, answer=shapes.ProposalSchema, **NAMED)
def get_proposal(call: RequestContext) -> Response:
    """One proposal with its change of each instruction."""
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
    body=shapes.WithReason,
    answer=shapes.ProposalSchema,
    **CHANGED,
)
def withdraw(call: RequestContext) -> Response:
    """Take one's own open proposal back."""
    reason, registry, key = call.json(shapes.WithReason).reason, call.state.live.registry, call.path("id")
    check_words(reason=reason)
    or_404(registry.proposal, key)
    return json_answer(or_409(registry.withdraw, key, actor=call.name, reason=reason).as_json())


@router("GET", "/v1/audit", Role.VIEWER, query=shapes.AuditQuery, answer=shapes.Entries)
def list_audit(call: RequestContext) -> Response:
    """The audit log, the newest entries first."""
    return list_page(call, shapes.AuditQuery, "entries", call.state.live.registry.audit)


@router("GET", "/v1/audit/verification", Role.VIEWER, query=shapes.SealQuery, answer=shapes.Verification)
def verify_audit(call: RequestContext) -> Response:
    """Check the whole chain of hashes, and that it still holds what an older seal says."""
    query = call.query(shapes.SealQuery)
    seal = None if query.seal is None else AuditCheckpoint.parse(query.seal)
    if seal is not None and seal.seq > 2**62:
        raise Refused(400, "The seal's number is out of range.")
    return json_answer(call.state.live.registry.verify_audit(seal).as_json())
