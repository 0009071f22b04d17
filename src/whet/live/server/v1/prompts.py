"""Prompts, versions and labels as JSON. Names hold `/`, so that a name always ends its address."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

import whet.live.server.v1.shapes as shapes
from whet.errors import UsageError
from whet.live.registry import EVERY, check_json, check_label, check_name, check_prompt, check_text
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, json_answer, list_answer, or_404, or_409, tagged
from whet.live.server.roles import Role
from whet.prompt import Prompt
from whet.types import Message

router = EndpointRouter()
MADE: dict[str, Any] = {"status": 201, "refusals": (409,)}
CHANGED: dict[str, Any] = {"refusals": (404, 409)}
"""How endpoints answer that make something, and that change something."""
FOR_APPS = ("name", "version", "address", "prompt_id", "messages", "config")
"""What a program gets of a version, beside the label that it asked for."""


def check_words(*, label: str | None = None, reason: str = "") -> None:
    """Raises UsageError for a label that cannot be set, and for a reason or message that cannot be stored."""
    if label is not None:
        check_label(label)
    check_text(reason, "text")


def prompt_from(text: str | None, messages: list[shapes.MessageSchema] | None) -> Prompt:
    """A prompt from one text or from messages. Raises UsageError for both, neither, a broken fence, and one that is too long
    or cannot be stored."""
    if (text is None) == (messages is None):
        raise UsageError("Give either text or messages.")
    if text is not None:
        prompt = Prompt.parse(text)
    else:
        prompt = Prompt.from_messages(tuple(Message(m.role, m.content) for m in messages or ()))
    check_prompt(prompt)
    return prompt


@router("GET", "/v1/prompts", Role.VIEWER, query=shapes.PromptsQuery, answer=shapes.Summaries)
def list_prompts(call: RequestContext) -> Response:
    """Prompts by name."""
    query = call.query(shapes.PromptsQuery)
    page = call.state.live.registry.prompts(
        query.query, label=query.label, after=query.after, limit=query.limit
    )
    return list_answer("prompts", page, "after")


@router("POST", "/v1/prompts", Role.EDITOR, body=shapes.NewVersion, answer=shapes.VersionSchema, **MADE)
def add_version(call: RequestContext) -> Response:
    """Add the next version of a prompt; the first one makes the prompt."""
    request = call.json(shapes.NewVersion)
    prompt = prompt_from(request.text, request.messages)
    check_name(request.name)
    check_json(request.config, "config")
    check_words(label=request.label, reason=request.message)
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
    return json_answer(made.as_json(), 201)


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

    A program gets what it needs to answer: the text, the version and its settings. What the version rests on is for people.
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
    return tagged(call.request, orjson.dumps(answer))


@router(
    "GET",
    "/v1/versions/{name:path}",
    Role.VIEWER,
    query=shapes.PageQuery,
    answer=shapes.VersionsSchema,
    refusals=(404,),
)
def list_versions(call: RequestContext) -> Response:
    """Versions of a prompt, the newest first."""
    query, versions = call.query(shapes.PageQuery), call.state.live.registry.versions
    page = or_404(versions, call.path("name"), before=query.before, limit=query.limit)
    return list_answer("versions", page)


@router(
    "GET",
    "/v1/diff/{name:path}",
    Role.VIEWER,
    query=shapes.DiffQuery,
    answer=shapes.DifferenceSchema,
    refusals=(404,),
)
def compare(call: RequestContext) -> Response:
    """Two versions beside each other."""
    query, name = call.query(shapes.DiffQuery), call.path("name")
    diff = or_404(call.state.live.registry.diff, f"{name}@{query.before}", f"{name}@{query.after}")
    return json_answer(diff.as_json())


@router("GET", "/v1/labels/{name:path}", Role.VIEWER, answer=shapes.Standing, refusals=(404,))
def list_labels(call: RequestContext) -> Response:
    """Where the labels of a prompt stand, and which of them move by approval only."""
    registry, name = call.state.live.registry, call.path("name")
    labels = or_404(registry.labels, name)
    kept = {label for prompt, label in registry.protections() if prompt in (name, EVERY)}
    return json_answer({"labels": labels, "protected": sorted(kept)})


@router(
    "POST",
    "/v1/labels/{name:path}",
    Role.EDITOR,
    body=shapes.LabelMove,
    answer=shapes.MoveSchema,
    refusals=(409,),
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
    refusals=(409,),
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


@router(
    "GET",
    "/v1/history/{name:path}",
    Role.VIEWER,
    query=shapes.MovesQuery,
    answer=shapes.Moves,
    refusals=(404,),
)
def history(call: RequestContext) -> Response:
    """Every move of a prompt's labels, the newest first."""
    query, moves = call.query(shapes.MovesQuery), call.state.live.registry.moves
    page = or_404(moves, call.path("name"), query.label, before=query.before, limit=query.limit)
    return list_answer("moves", page)


@router(
    "POST",
    "/v1/protections",
    Role.ADMIN,
    body=shapes.Protection,
    answer=shapes.Protection,
    refusals=(409,),
)
def protect(call: RequestContext) -> Response:
    """Say whether a label moves by approval only."""
    request, registry = call.json(shapes.Protection), call.state.live.registry
    check_words(label=request.label)
    if request.name != EVERY:
        check_name(request.name)
    change = registry.protect if request.protected else registry.unprotect
    or_409(change, request.name, request.label, actor=call.name)
    return json_answer({"name": request.name, "label": request.label, "protected": request.protected})
