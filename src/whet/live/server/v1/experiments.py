"""Experiments as JSON, and the assignments that apps need to choose versions by themselves."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct
from starlette.responses import Response

from whet.live.experiments.behaviour import with_reward
from whet.live.experiments.definition import read, refuse_tiny
from whet.live.registry.names import check_name
from whet.live.registry.versions import check_json
from whet.live.server.endpoint import EndpointRouter, Spec
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import json_answer, tagged
from whet.live.server.roles import Role
from whet.live.server.v1.prompts import check_words, contradicted, looked_up
from whet.live.server.v1.shapes import Given, Key, Limit, Name, Reason

book = EndpointRouter()


class ExperimentsQuery(Given):
    """Experiments of a prompt, in a state."""

    prompt: Name | None = None
    state: Annotated[str, Meta(max_length=20)] | None = None
    before: Key | None = None
    limit: Limit = 50


class AssignmentsQuery(Given):
    """Running experiments of one prompt, or of all."""

    prompt: Name | None = None


class NewExperiment(Given):
    """An experiment: its definition as docs/experiments.md describes it."""

    definition: dict[str, Any]
    message: Reason = ""


class Stop(Given):
    """Why an experiment ends."""

    reason: Reason = ""


class ExperimentSchema(Struct):
    """An experiment, with its figures (`now`) where one is asked for."""

    id: str
    state: str
    definition: dict[str, Any]
    author: str
    message: str
    created: str
    ended: str | None
    winner: int | None
    reason: str | None
    proposal: str | None
    watch: str | None
    watches: str | None


class ExperimentsSchema(Struct):
    """A page of experiments."""

    experiments: list[ExperimentSchema]
    before: str | None


class Assignments(Struct):
    """Definitions of running experiments."""

    experiments: list[dict[str, Any]]


@book("GET", "/v1/experiments", Role.VIEWER, spec=Spec(query=ExperimentsQuery, answer=ExperimentsSchema))
def list_experiments(call: RequestContext) -> Response:
    """Experiments, the newest first."""
    query = call.query(ExperimentsQuery)
    experiments = call.house.live.experiments.list(
        query.prompt, state=query.state, before=query.before, limit=query.limit
    )
    return json_answer(
        {"experiments": [one.as_json() for one in experiments.items], "before": experiments.after}
    )


@book(
    "POST",
    "/v1/experiments",
    Role.APPROVER,
    spec=Spec(body=NewExperiment, answer=ExperimentSchema, status=201, refusals=(409,)),
)
def start_experiment(call: RequestContext) -> Response:
    """Start an experiment: from now on people see its versions, so that it needs the role approver."""
    request, live = call.json(NewExperiment), call.house.live
    check_json(request.definition, "definition")
    with contradicted():
        definition = with_reward(live.database, request.definition)
    parsed = read(definition)
    refuse_tiny(parsed)
    check_name(parsed.prompt)
    check_words(label=parsed.label, reason=request.message)
    with contradicted():
        made = live.experiments.create(definition, author=call.name, message=request.message)
    return json_answer(made.as_json(), 201)


@book("GET", "/v1/experiments/{id}", Role.VIEWER, spec=Spec(answer=ExperimentSchema, refusals=(404,)))
def get_experiment(call: RequestContext) -> Response:
    """One experiment with counts, posteriors, differences and guard-rails."""
    with looked_up():
        return json_answer(call.house.live.experiments.status(call.path("id")))


@book(
    "POST",
    "/v1/experiments/{id}/stop",
    Role.EDITOR,
    spec=Spec(body=Stop, answer=ExperimentSchema, refusals=(404, 409)),
)
def stop_experiment(call: RequestContext) -> Response:
    """End a running experiment without a decision."""
    request, key = call.json(Stop), call.path("id")
    check_words(reason=request.reason)
    with looked_up():
        call.house.live.experiments.get(key)
    with contradicted():
        return json_answer(
            call.house.live.experiments.stop(key, actor=call.name, reason=request.reason).as_json()
        )


@book(
    "GET",
    "/v1/assignments",
    Role.VIEWER,
    app=True,
    spec=Spec(query=AssignmentsQuery, answer=Assignments, refusals=(304,)),
)
def list_assignments(call: RequestContext) -> Response:
    """Running experiments as an app needs them to assign units by itself. With If-None-Match only when they changed."""
    query = call.query(AssignmentsQuery)
    body = orjson.dumps({"experiments": list(call.house.live.experiments.assignments(query.prompt))})
    return tagged(call.request, body)
