"""Quality over time as JSON: the report of a prompt, and what was noticed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from whet_client import LARGEST_VERSION, LONGEST_ID, LONGEST_NAME
from whet_live.database import microseconds
from whet_live.experiments import version_rewards_of
from whet_live.quality import QualityAlert
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import json_answer, or_404
from whet_live.server.roles import Role
from whet_live.server.v1.shapes import Label, Limit, RequestSchema, page_of, schema_of

router = EndpointRouter()


class QualityRequest(RequestSchema):
    """The choice of answers: those of the last `days`, or from `since` to before `until` (ISO 8601), of a version, a label (the
    version on which it stood then) or a model. `by` splits them: version, label, model, or metadata.KEY."""

    days: Annotated[int, Meta(ge=1, le=1098)] = 30
    since: str | None = None
    until: str | None = None
    version: Annotated[int, Meta(ge=0, le=LARGEST_VERSION)] | None = None
    label: Label | None = None
    model: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)] | None = None
    by: Annotated[str, Meta(max_length=LONGEST_ID)] = ""
    step: Literal["", "hour", "day", "week"] = ""


class QuantileSchema(Struct):
    """The value up to which a share of the answers lies, with the ends of its 95% interval (null: beyond what was seen)."""

    share: float
    value: float
    low: float | None
    high: float | None


class PointSchema(Struct):
    """A mean of `n` values of `clusters` users with the ends of its 95% interval, from `at` on."""

    at: str
    n: int
    clusters: int
    mean: float
    low: float | None
    high: float | None
    method: str
    quantiles: list[QuantileSchema]


class MeasureSchema(Struct):
    """A measure. `kind`: a share of answers, a bounded number, an amount; `better`: 1 where more is better, -1 where less is."""

    name: str
    title: str
    kind: Literal["share", "bounded", "amount"]
    better: int
    unit: str
    of: str
    low: float | None
    high: float | None


class MeasureSeriesSchema(Struct):
    """A measure over time, and over the whole period."""

    measure: MeasureSchema
    points: list[PointSchema]
    whole: PointSchema


class StepCount(Struct):
    """The number of answers from `at` on."""

    at: str
    n: int


class QualityGroupSchema(Struct):
    """The answers of one version, label, model or segment; of all under the empty name."""

    name: str
    answers: list[StepCount]
    measures: list[MeasureSeriesSchema]


class MarkSchema(Struct):
    """Something that changed: a version, a label, a model, or drift that was noticed, and whether that is one to the worse."""

    at: str
    kind: str
    text: str
    worse: bool | None


class QualitySchema(Struct):
    """The quality of a prompt over time. Of `answers` one of `every` was read."""

    prompt: str
    since: str
    until: str
    step_seconds: int
    answers: int
    every: int
    groups: list[QualityGroupSchema]
    marks: list[MarkSchema]


class RewardsRequest(RequestSchema):
    """The choice of answers: those since a time (ISO 8601); `by` (metadata.KEY) names what makes segments."""

    by: Annotated[str, Meta(max_length=LONGEST_ID)] = ""
    since: str | None = None


class EstimateSchema(Struct):
    """A value from 0 to 1 with the ends of its 95% interval."""

    value: float
    low: float
    high: float
    method: str


class VersionRewardSchema(Struct):
    """The quality of a version's answers in a segment (empty: all). `naive` is the mean of the ratings, `weighted` the same
    with inverse propensities, `value` the joined estimate over a `population` of answers; `drawn`: corrected for the draw."""

    version: int
    segment: str
    state: Literal["calibrated", "not calibrated"]
    answers: int
    rated: int
    people: int
    drawn: bool
    population: int
    naive: EstimateSchema | None
    weighted: EstimateSchema | None
    value: EstimateSchema | None
    clipped: int
    notes: list[str]


class SignalWeight(Struct):
    """The weight of a signal, in log-odds of a good rating for a standard deviation; `rates` is its addition to those of a
    rating."""

    feature: str
    mean: float
    scale: float
    weight: EstimateSchema
    naive: EstimateSchema
    rates: float


class RewardsSchema(Struct):
    """The estimates of all versions; `weights` are null, with a `reason`, where too few answers are rated. `newest`: there are
    more answers than were read."""

    prompt: str
    answers: int
    rewards: list[VersionRewardSchema]
    weights: list[SignalWeight] | None
    warnings: list[str]
    reason: str
    newest: bool


class AlertsQuery(RequestSchema):
    """The observations about one prompt, or about all; `before` is the cursor from the previous page."""

    prompt: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    before: Annotated[str, Meta(max_length=36)] | None = None
    limit: Limit = 50


AlertSchema: Any = schema_of(
    QualityAlert,
    "Something that was noticed. `worse` is reported, the rest only marked; `deliveries` are the states by channel.",
    key=None,
    began=str,
    at=str,
    details=dict[str, Any],
    deliveries=dict[str, str],
)
Alerts = page_of("Alerts", "alerts", AlertSchema)


@router(
    "GET", "/v1/quality/{name:path}", Role.VIEWER, query=QualityRequest, answer=QualitySchema, refusals=(404,)
)
def get_quality(call: RequestContext) -> Response:
    """Ratings, thumbs, corrections, refusals, errors, latency, tokens and cost of a prompt over time, with intervals."""
    query: Any = asdict(call.query(QualityRequest))
    for name in ("since", "until"):
        query[name] = None if query[name] is None else microseconds(query[name])
    quality, prompt = call.state.live.quality, call.path("name")
    or_404(quality.check_prompt, prompt)
    return json_answer(call.state.measure_quality(prompt, query).as_json())


@router(
    "GET", "/v1/rewards/{name:path}", Role.VIEWER, query=RewardsRequest, answer=RewardsSchema, refusals=(404,)
)
def get_rewards(call: RequestContext) -> Response:
    """The quality of each version's answers: ratings and signals in one estimate, with intervals."""
    query, prompt = call.query(RewardsRequest), call.path("name")
    or_404(call.state.live.quality.check_prompt, prompt)
    since = None if query.since is None else microseconds(query.since)
    return json_answer(
        version_rewards_of(call.state.live.database, prompt, by=query.by, since=since).as_json()
    )


@router("GET", "/v1/alerts", Role.VIEWER, query=AlertsQuery, answer=Alerts)
def list_alerts(call: RequestContext) -> Response:
    """The observations in the traffic, the newest first."""
    page = call.state.live.quality.alerts(**asdict(call.query(AlertsQuery)))
    return json_answer({"alerts": [one.as_json() for one in page.items], "before": page.after})
