"""Experiments as JSON, and the assignments that apps need to choose versions by themselves."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct, defstruct
from starlette.responses import Response

from whet.errors import UsageError
from whet_live.experiments import (
    Definition,
    Experiment,
    ExperimentEntry,
    read_definition,
    refuse_tiny,
    with_reward,
)
from whet_live.registry import check_json, check_name
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, json_answer, or_404, or_409, respond_with_etag
from whet_live.server.roles import Role
from whet_live.server.v1.prompts import CHANGED, MADE, NAMED, check_words, list_page
from whet_live.server.v1.shapes import Key, Limit, Name, Reason, RequestSchema, WithReason, page_of, schema_of

router = EndpointRouter()


EXAMPLE = (
    'The body is like {"definition": {"prompt": "shop/help", "label": "production", "arms": [{"version": 1}, {"version": 2}], '
    '"unit": "user", "goal": "thumb"}, "message": "why"}; docs/experiments.md has every key.'
)


class ExperimentsQuery(RequestSchema):
    """Experiments of a prompt, in a state."""

    prompt: Name | None = None
    state: Annotated[str, Meta(max_length=20)] | None = None
    before: Key | None = None
    limit: Limit = 50


class AssignmentsQuery(RequestSchema):
    """Running experiments of one prompt, or of all."""

    prompt: Name | None = None


class NewExperiment(RequestSchema):
    """An experiment: its definition as docs/experiments.md describes it, for example `{"prompt": "shop/help", "label":
    "production", "arms": [{"version": 1}, {"version": 2}], "unit": "user", "goal": "thumb"}`."""

    definition: dict[str, Any]
    message: Reason = ""


NewExperimentSchema = defstruct(
    "NewExperiment",
    [("definition", ExperimentEntry), ("message", Reason, "")],
    namespace={"__doc__": NewExperiment.__doc__},
)
"""`NewExperiment` for readers of the API: the definition is decoded by `read_definition`, which names the nearest key."""

ExperimentSchema = schema_of(
    Experiment,
    "An experiment, with its figures (`now`) where one is asked for.",
    **dict.fromkeys(("salt", "start", "label_move")),
    definition=Definition,
    revisions=list[dict[str, Any]],
    created=str,
    ended=str | None,
)
StartedExperiment = defstruct(
    "StartedExperiment",
    [("warnings", list[str])],
    bases=(ExperimentSchema,),
    namespace={
        "__doc__": "An experiment that began; `warnings` say where the traffic does not name what it counts."
    },
)
ExperimentsSchema = page_of("ExperimentsSchema", "experiments", ExperimentSchema)


class Assignments(Struct):
    """Definitions of running experiments."""

    experiments: list[dict[str, Any]]


@router("GET", "/v1/experiments", Role.VIEWER, query=ExperimentsQuery, answer=ExperimentsSchema)
def list_experiments(call: RequestContext) -> Response:
    """Experiments, the newest first."""
    return list_page(call, ExperimentsQuery, "experiments", call.state.live.experiments.list)


@router("POST", "/v1/experiments", Role.APPROVER, body=NewExperimentSchema, answer=StartedExperiment, **MADE)
def start_experiment(call: RequestContext) -> Response:
    """Start an experiment: from now on people see its versions, so that it needs the role approver."""
    try:
        request, live = call.json(NewExperiment), call.state.live
    except Refused as error:
        raise Refused(error.status, f"{error.message} {EXAMPLE}") from None
    check_json(request.definition, "definition")
    definition = or_409(with_reward, live.database, request.definition)
    try:
        parsed = read_definition(definition)
    except UsageError as error:
        raise Refused(400, f"{error} {EXAMPLE}") from None
    refuse_tiny(parsed)
    check_name(parsed.prompt)
    check_words(label=parsed.label, reason=request.message)
    made = or_409(live.experiments.create, definition, author=call.name, message=request.message)
    warning = live.experiments.unit_warning(made)
    return json_answer({**made.as_json(), "warnings": [warning] if warning else []}, 201)


@router("GET", "/v1/experiments/{id}", Role.VIEWER, answer=ExperimentSchema, **NAMED)
def get_experiment(call: RequestContext) -> Response:
    """One experiment with counts, posteriors, differences and guard-rails."""
    return json_answer(or_404(call.state.live.experiments.status, call.path("id")))


@router("POST", "/v1/experiments/{id}/stop", Role.EDITOR, body=WithReason, answer=ExperimentSchema, **CHANGED)
def stop_experiment(call: RequestContext) -> Response:
    """End a running experiment without a decision."""
    reason, key, experiments = call.json(WithReason).reason, call.path("id"), call.state.live.experiments
    check_words(reason=reason)
    or_404(experiments.get, key)
    return json_answer(or_409(experiments.stop, key, actor=call.name, reason=reason).as_json())


@router(
    "GET",
    "/v1/assignments",
    Role.VIEWER,
    app=True,
    query=AssignmentsQuery,
    answer=Assignments,
    refusals=(304,),
)
def list_assignments(call: RequestContext) -> Response:
    """Running experiments as an app needs them to assign units by itself. With If-None-Match only when they changed."""
    query = call.query(AssignmentsQuery)
    if query.prompt is not None:
        call.check_scope(query.prompt)
    running = call.state.live.experiments.assignments(query.prompt)
    body = orjson.dumps({"experiments": [one for one in running if call.principal.reaches(one["prompt"])]})
    return respond_with_etag(call.request, body)
