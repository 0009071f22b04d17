"""Traffic to be read, and one user's data to be deleted; the shapes of traffic for queries and for the OpenAPI document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs
from starlette.responses import Response

from whet_client import (
    KINDS,
    LARGEST_VERSION,
    LONGEST_ID,
    LONGEST_LABEL,
    LONGEST_NAME,
    LONGEST_OUTPUT,
    LONGEST_TEXT,
    SOURCES,
    TARGETS,
)
from whet_live import erased_completely, forget_user
from whet_live.database import iso, microseconds
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import json_answer, not_found
from whet_live.server.roles import Role
from whet_live.server.v1.shapes import Limit, RequestSchema, page_of, schema_of
from whet_live.traffic import MOST_ROWS, Count, Filter, Receipt, StoredFeedback, StoredInference

Schema = dict[str, Any]
_NO_NUL = r"^[^\u0000]*$"
_TIME: Schema = {"type": ["string", "null"], "format": "date-time", "description": "ISO 8601; default: now."}
_MORE: Schema = {"type": ["object", "null"]}
_AMOUNT: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1e6}
_WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": LARGEST_VERSION}


def _text(most: int, least: int = 0) -> Schema:
    return {
        "type": ["string", "null"] if not least else "string",
        "maxLength": most,
        "minLength": least,
        "pattern": _NO_NUL,
    }


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_ID = _text(LONGEST_ID, 1)
_OPTIONAL_ID = _text(LONGEST_ID)

_INFERENCE = _object(
    {
        "id": {**_ID, "description": "UUIDv7 made by the sender; the idempotency key."},
        "prompt": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^|\u0000]+$"},
        "version": _WHOLE,
        "inputs": _MORE,
        "output": _text(LONGEST_OUTPUT),
        "cost": {**_AMOUNT, "description": "Dollars."},
        "latency": {**_AMOUNT, "description": "Seconds."},
        "input_tokens": _WHOLE,
        "output_tokens": _WHOLE,
        **dict.fromkeys(
            ("model", "session", "user", "episode", "experiment", "variant", "response"), _OPTIONAL_ID
        ),
        "error": _text(LONGEST_TEXT),
        "time": _TIME,
        "metadata": _MORE,
    },
    ["prompt"],
)
_FEEDBACK = _object(
    {
        "id": {**_ID, "description": "UUIDv7 made by the sender; the idempotency key."},
        "kind": {
            "enum": list(KINDS),
            "description": "; ".join(f"{k.name}: {k.meaning}" for k in KINDS.values()),
        },
        "target": {**_ID, "description": "The id of the inference, or what target_kind says."},
        "target_kind": {"enum": [*TARGETS, None]},
        "value": {
            "type": ["number", "boolean", "string", "null"],
            "description": "A number; for a thumb also true, false, up, down and the words of other tools.",
        },
        "scale": {
            **_text(40),
            "description": "Of a rating that is not 1 to 5: its worst and its best value, such as 1..10.",
        },
        "text": _text(LONGEST_TEXT),
        "label": _text(LONGEST_LABEL),
        "name": _text(LONGEST_NAME),
        "source": {"enum": [*SOURCES, None]},
        "user": _OPTIONAL_ID,
        "time": _TIME,
        "metadata": _MORE,
    },
    ["kind", "target"],
)

Inferences = _object(
    {"inferences": {"type": "array", "items": _INFERENCE, "maxItems": MOST_ROWS}}, ["inferences"]
)
"""The body of `POST /v1/inferences`."""
FeedbackRows = _object(
    {"feedback": {"type": "array", "items": _FEEDBACK, "maxItems": MOST_ROWS}}, ["feedback"]
)
"""The body of `POST /v1/feedback`. Rows in the words of Phoenix, LangSmith and TensorZero are taken too."""


def otlp(signal: str) -> dict[str, Any]:
    """The input and output of an OTLP endpoint."""
    name = {"traces": "resourceSpans", "logs": "resourceLogs"}[signal]
    rejected = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}[signal]
    groups = {"type": "array", "items": {"type": "object"}}
    partial = {
        "type": "object",
        "properties": {rejected: {"type": "string"}, "errorMessage": {"type": "string"}},
    }
    body = {"type": "object", "properties": {name: groups}}
    return {"body": body, "answer": {"type": "object", "properties": {"partialSuccess": partial}}}


Stored = schema_of(
    Receipt, "What became of a request's rows, once they are durable. `ids` are in the order given."
)

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]


class TrafficQuery(RequestSchema):
    """The choice of rows; a field that is left out means any. Times in ISO 8601, `until` excluded; `after` is what the page
    before gave."""

    prompt: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    version: Annotated[int, Meta(ge=0, le=LARGEST_VERSION)] | None = None
    user: Id | None = None
    since: str | None = None
    until: str | None = None
    after: Annotated[str, Meta(max_length=40)] | None = None
    limit: Limit = 50


class FeedbackQuery(TrafficQuery):
    """The choice of feedback. `text`: words that must all be in it."""

    kind: Literal[tuple(KINDS)] | None = None  # type: ignore[valid-type]
    source: Literal[SOURCES] | None = None  # type: ignore[valid-type]
    text: Annotated[str, Meta(max_length=400)] | None = None


class InferenceQuery(TrafficQuery):
    """The choice of inferences. `unreviewed`: those that no annotator said anything about."""

    session: Id | None = None
    episode: Id | None = None
    unreviewed: bool = False


class CountsQuery(RequestSchema):
    """Counts of one prompt or of all, of one version or of all."""

    prompt: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    version: Annotated[int, Meta(ge=0, le=LARGEST_VERSION)] | None = None


class StoredInferenceSchema(Struct):
    """An inference with the time of its arrival."""

    id: str
    prompt: str
    received: str


InferencePage = page_of("InferencePage", "inferences", StoredInferenceSchema, "after")


class StoredFeedbackSchema(Struct):
    """Feedback with the version that it is about; version 0 while the inference has not arrived."""

    id: str
    kind: str
    target: str
    prompt: str
    version: int
    received: str


FeedbackPage = page_of("FeedbackPage", "feedback", StoredFeedbackSchema, "after")


class About(Struct):
    """An inference with everything that was said or done about it."""

    inference: StoredInferenceSchema
    feedback: list[StoredFeedbackSchema]


class CountsSchema(Struct):
    """Counts by version and kind."""

    counts: list[Count]


class ErasedSchema(Struct):
    """The numbers of rows of a user that were deleted. `complete` is false while a reader of the database keeps SQLite's log
    from being emptied; the server empties it when the reader is done."""

    inferences: int
    feedback: int
    complete: bool


router = EndpointRouter()


def inference_json(stored: StoredInference) -> dict[str, object]:
    """An inference as JSON values."""
    return {**stored.inference.as_json(), "received": iso(stored.received)}


def feedback_json(stored: StoredFeedback) -> dict[str, object]:
    """Feedback as JSON values."""
    about = {"prompt": stored.prompt, "version": stored.version, "received": iso(stored.received)}
    return {**stored.feedback.as_json(), **about}


def filter_of(query: TrafficQuery) -> Filter:
    """The filter for a query. Raises UsageError for an invalid time."""
    wanted = {name: value for name, value in structs.asdict(query).items() if name not in ("after", "limit")}
    for name in ("since", "until"):
        wanted[name] = None if wanted[name] is None else microseconds(wanted[name])
    return Filter(**wanted)


@router("GET", "/v1/inferences", Role.VIEWER, query=InferenceQuery, answer=InferencePage)
def list_inferences(call: RequestContext) -> Response:
    """Inferences, the newest first."""
    query = call.query(InferenceQuery)
    matches = call.state.live.traffic.inferences(filter_of(query), query.limit, query.after)
    return json_answer({"inferences": [inference_json(row) for row in matches.rows], "after": matches.next})


@router("GET", "/v1/inferences/{id:path}", Role.VIEWER, answer=About, refusals=(404,))
def get_inference(call: RequestContext) -> Response:
    """One inference with everything that was said or done about it."""
    traffic = call.state.live.traffic
    stored = traffic.inference(call.path("id"))
    if stored is None:
        raise not_found("such inference")
    feedback = [feedback_json(row) for row in traffic.about(stored.seq)]
    return json_answer({"inference": inference_json(stored), "feedback": feedback})


@router("GET", "/v1/feedback", Role.VIEWER, query=FeedbackQuery, answer=FeedbackPage)
def list_feedback(call: RequestContext) -> Response:
    """Feedback, the newest first."""
    query = call.query(FeedbackQuery)
    matches = call.state.live.traffic.find(filter_of(query), query.limit, query.after)
    return json_answer({"feedback": [feedback_json(row) for row in matches.rows], "after": matches.next})


@router("GET", "/v1/counts", Role.VIEWER, query=CountsQuery, answer=CountsSchema)
def list_counts(call: RequestContext) -> Response:
    """The numbers of answers and of feedback of each kind that every version has, with means."""
    query = call.query(CountsQuery)
    prompts = None if query.prompt is None else [query.prompt]
    counts = call.state.live.traffic.counts(prompts, query.version)
    return json_answer({"counts": [asdict(count) for count in counts]})


@router("DELETE", "/v1/users/{user:path}", Role.ADMIN, answer=ErasedSchema, name="forget_user")
def forget(call: RequestContext) -> Response:
    """Delete every inference and all feedback of one user of the applications."""
    user = call.path("user")
    gone = forget_user(call.state.live.database, user, actor=call.name)
    complete = erased_completely(call.state.live.database)
    return json_answer({"inferences": gone.inferences, "feedback": gone.feedback, "complete": complete})
