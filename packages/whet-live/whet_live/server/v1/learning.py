"""The learning of prompts, as JSON: settings, comments that are read again, and the terms of instructions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

import whet_live.server.v1.shapes as shapes
from whet_live.learner import read_dates, read_review
from whet_live.registry import ANY_PROMPT, check_name
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import json_answer, or_404, or_409
from whet_live.server.roles import Role

router = EndpointRouter()


class TermsChange(shapes.WithReason, kw_only=True):
    """New terms of an instruction; what is left out stays. `dates` is `FIRST..LAST`: days with a year, or for each year without
    (`12-01..01-06`); `..` for none. `review` is a day, empty for none."""

    id: shapes.Key
    locked: bool | None = None
    dates: Annotated[str, Meta(max_length=40)] | None = None
    review: Annotated[str, Meta(max_length=10)] | None = None


class InstructionTermsSchema(shapes.RequestSchema):
    """The terms of an instruction, and who set them last."""

    id: str
    locked: bool
    first_day: str | None
    last_day: str | None
    review: str | None
    terms_by: str | None
    terms_reason: str
    terms_at: str | None


class Restoration(shapes.WithReason, kw_only=True):
    """The instruction that is to stand again."""

    id: shapes.Key


class RestoredSchema(shapes.RequestSchema):
    """The version on which the label stands now, or the proposal that somebody else approves."""

    version: int | None
    proposal: str | None


class LearningChange(shapes.RequestSchema):
    """The changes of the learning settings of a prompt (`*`: every prompt without settings of its own); omitted fields stay.
    `reads` is what the reader sees: the comments, the input and answer with them, or earlier answers of the session as well."""

    mode: Literal["propose", "auto", "off"] | None = None
    label: shapes.Label | None = None
    reads: Literal["comment", "answer", "conversation"] | None = None
    rules: dict[str, Any] | None = None


class LearningSettings(shapes.RequestSchema):
    """The settings by which a prompt learns."""

    mode: str
    label: str
    region: str | None
    policy: dict[str, Any]
    reads: str


class RereadRequest(shapes.WithReason):
    """The comments that are read again: those that could not be read and, with `vague`, those that were too vague."""

    vague: bool = False


class Reread(shapes.RequestSchema):
    """The number of comments that are read again."""

    rows: Annotated[int, Meta(ge=0)]


@router(
    "POST",
    "/v1/learning-settings/{name:path}",
    Role.ADMIN,
    body=LearningChange,
    answer=LearningSettings,
    refusals=(404,),
)
def configure_learning(call: RequestContext) -> Response:
    """Set how a prompt learns."""
    live, name, request = call.state.live, call.path("name"), call.json(LearningChange)
    if name != ANY_PROMPT:
        or_404(live.registry.labels, check_name(name))
    before = live.learner.settings(name)
    changed = replace(
        before,
        mode=request.mode or before.mode,
        label=request.label or before.label,
        reads=request.reads or before.reads,
        rules={**before.rules, **(request.rules or {})},
    )
    live.learner.configure(name, changed, actor=call.name)
    return json_answer(changed.as_json())


@router(
    "POST",
    "/v1/learning-again/{name:path}",
    Role.APPROVER,
    body=RereadRequest,
    answer=Reread,
    refusals=(404,),
)
def read_comments_again(call: RequestContext) -> Response:
    """Have comments read again, for example by a better model."""
    live, name, request = call.state.live, call.path("name"), call.json(RereadRequest)
    or_404(live.registry.labels, check_name(name))
    rows = live.learner.read_again(name, actor=call.name, reason=request.reason, vague=request.vague)
    return json_answer({"rows": rows})


@router("GET", "/v1/instructions/{name:path}", Role.VIEWER, answer={"type": "object"}, refusals=(404, 409))
def list_instructions(call: RequestContext) -> Response:
    """The instructions of the version that is learned for, those that left included, with the terms on which they stand."""
    live, name = call.state.live, call.path("name")
    or_404(live.registry.labels, check_name(name))
    return json_answer({"name": name, "instructions": or_409(live.learner.instructions, name)})


@router(
    "POST",
    "/v1/instructions/{name:path}",
    Role.APPROVER,
    body=TermsChange,
    answer=InstructionTermsSchema,
    refusals=(404, 409),
)
def set_terms(call: RequestContext) -> Response:
    """Lock or unlock an instruction, set the days between which it stands, and the day of its review."""
    live, name, request = call.state.live, call.path("name"), call.json(TermsChange)
    or_404(live.registry.labels, check_name(name))
    if request.dates is not None:
        read_dates(request.dates)
    if request.review is not None:
        read_review(request.review)
    terms = or_409(
        live.learner.set_terms,
        name,
        request.id,
        actor=call.name,
        reason=request.reason,
        locked=request.locked,
        dates=request.dates,
        review=request.review,
    )
    return json_answer({"id": request.id, **terms.as_json()})


class PatternsRequest(shapes.RequestSchema):
    """The number of weeks that are shown."""

    weeks: Annotated[int, Meta(ge=1, le=52)] = 8


class PatternWeekSchema(shapes.RequestSchema):
    """A week from `at` on: critiques, their users, and the share of the `active` users with an answer (null: not counted) with
    the ends of its 95% interval."""

    at: str
    critiques: int
    users: int
    active: int | None
    share: float | None
    low: float | None
    high: float | None


class PatternSchema(shapes.RequestSchema):
    """A pattern of failures, as the reader or a person (`model`) named it, with the ids of its newest answers."""

    id: str
    name: str
    description: str
    model: str
    named: str
    critiques: int
    users: int
    first: str
    last: str
    weeks: list[PatternWeekSchema]
    examples: list[str]


class PatternsSchema(shapes.RequestSchema):
    """The patterns of a prompt, those that most users met lately first, and what became of the other critiques. The reader made
    `calls` calls on `day` (UTC)."""

    prompt: str
    weeks: list[str]
    patterns: list[PatternSchema]
    in_patterns: int
    no_failure: int
    withheld: int
    unreadable: int
    waiting: int
    day: str
    calls: int


class PatternRename(shapes.WithReason, kw_only=True):
    """The new name of a pattern and, where it is not null, its new description."""

    id: shapes.Key
    name: Annotated[str, Meta(min_length=1, max_length=400)]
    description: Annotated[str, Meta(max_length=2000)] | None = None


class RenamedPattern(shapes.RequestSchema):
    """The pattern as it is named now."""

    id: str
    name: str
    description: str


class PatternMerge(shapes.WithReason, kw_only=True):
    """The pattern that becomes a part of the pattern `into`."""

    id: shapes.Key
    into: shapes.Key


class MergedPatterns(shapes.RequestSchema):
    """The number of critiques that came `into` the other pattern."""

    id: str
    into: str
    critiques: Annotated[int, Meta(ge=0)]


@router(
    "GET",
    "/v1/patterns/{name:path}",
    Role.VIEWER,
    query=PatternsRequest,
    answer=PatternsSchema,
    refusals=(404,),
)
def list_patterns(call: RequestContext) -> Response:
    """The ways in which answers of a prompt fail, with counts, trend and examples."""
    name = call.path("name")
    or_404(call.state.live.quality.check_prompt, name)
    return json_answer(call.state.live.learner.patterns(name, call.query(PatternsRequest).weeks).as_json())


@router(
    "POST",
    "/v1/patterns/{name:path}",
    Role.EDITOR,
    body=PatternRename,
    answer=RenamedPattern,
    refusals=(404, 409),
)
def rename_pattern(call: RequestContext) -> Response:
    """Give a pattern of failures another name."""
    live, name, request = call.state.live, call.path("name"), call.json(PatternRename)
    or_404(live.quality.check_prompt, name)
    renamed = or_409(
        live.learner.rename_pattern,
        name,
        request.id,
        request.name,
        description=request.description,
        actor=call.name,
        reason=request.reason,
    )
    return json_answer({"id": renamed.id, "name": renamed.name, "description": renamed.description})


@router(
    "POST",
    "/v1/pattern-merges/{name:path}",
    Role.EDITOR,
    body=PatternMerge,
    answer=MergedPatterns,
    refusals=(404, 409),
)
def merge_patterns(call: RequestContext) -> Response:
    """Make one pattern of failures of two. It cannot be undone."""
    live, name, request = call.state.live, call.path("name"), call.json(PatternMerge)
    or_404(live.quality.check_prompt, name)
    moved = or_409(
        live.learner.merge_patterns,
        name,
        request.id,
        request.into,
        actor=call.name,
        reason=request.reason,
    )
    return json_answer({"id": request.id, "into": request.into, "critiques": moved})


@router(
    "POST",
    "/v1/restorations/{name:path}",
    Role.EDITOR,
    body=Restoration,
    answer=RestoredSchema,
    refusals=(404, 409),
)
def restore_instruction(call: RequestContext) -> Response:
    """Have an instruction that left stand again. On a protected label somebody else approves it."""
    live, name, request = call.state.live, call.path("name"), call.json(Restoration)
    or_404(live.registry.labels, check_name(name))
    done = or_409(live.learner.restore, name, request.id, actor=call.name, reason=request.reason)
    return json_answer(done.as_json())
