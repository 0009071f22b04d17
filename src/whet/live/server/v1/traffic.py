"""Traffic to be read: inferences, feedback, counts; and one user's data to be deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

import whet.live.server.v1.rows as rows
from whet.live.database import iso, microseconds
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import json_answer, not_found
from whet.live.server.roles import Role
from whet.live.traffic import Filter, StoredFeedback, StoredInference

router = EndpointRouter()


def inference_json(stored: StoredInference) -> dict[str, Any]:
    """An inference as JSON values."""
    return {**stored.inference.as_json(), "received": iso(stored.received)}


def feedback_json(stored: StoredFeedback) -> dict[str, Any]:
    """Feedback as JSON values."""
    about = {"prompt": stored.prompt, "version": stored.version, "received": iso(stored.received)}
    return {**stored.feedback.as_json(), **about}


def filter_of(query: rows.TrafficQuery, **more: Any) -> Filter:
    """The filter for a query. Raises UsageError for an invalid time."""
    return Filter(
        prompt=query.prompt,
        version=query.version,
        user=query.user,
        since=None if query.since is None else microseconds(query.since),
        until=None if query.until is None else microseconds(query.until),
        **more,
    )


@router("GET", "/v1/inferences", Role.VIEWER, query=rows.InferenceQuery, answer=rows.InferencePage)
def list_inferences(call: RequestContext) -> Response:
    """Inferences, the newest first."""
    query = call.query(rows.InferenceQuery)
    wanted = filter_of(query, session=query.session, episode=query.episode, unreviewed=query.unreviewed)
    matches = call.state.live.traffic.inferences(wanted, query.limit, query.after)
    return json_answer({"inferences": [inference_json(row) for row in matches.rows], "after": matches.next})


@router("GET", "/v1/inferences/{id:path}", Role.VIEWER, answer=rows.About, refusals=(404,))
def get_inference(call: RequestContext) -> Response:
    """One inference with everything that was said or done about it."""
    traffic = call.state.live.traffic
    stored = traffic.inference(call.path("id"))
    if stored is None:
        raise not_found("such inference")
    feedback = [feedback_json(row) for row in traffic.about(stored.seq)]
    return json_answer({"inference": inference_json(stored), "feedback": feedback})


@router("GET", "/v1/feedback", Role.VIEWER, query=rows.FeedbackQuery, answer=rows.FeedbackPage)
def list_feedback(call: RequestContext) -> Response:
    """Feedback, the newest first."""
    query = call.query(rows.FeedbackQuery)
    wanted = filter_of(query, kind=query.kind, source=query.source, text=query.text)
    matches = call.state.live.traffic.find(wanted, query.limit, query.after)
    return json_answer({"feedback": [feedback_json(row) for row in matches.rows], "after": matches.next})


@router("GET", "/v1/counts", Role.VIEWER, query=rows.CountsQuery, answer=rows.CountsSchema)
def list_counts(call: RequestContext) -> Response:
    """How many answers and how much feedback of each kind every version has, with means."""
    query = call.query(rows.CountsQuery)
    prompts = None if query.prompt is None else [query.prompt]
    counts = call.state.live.traffic.counts(prompts, query.version)
    return json_answer({"counts": [asdict(count) for count in counts]})


@router("DELETE", "/v1/users/{user:path}", Role.ADMIN, answer=rows.ErasedSchema)
def forget_user(call: RequestContext) -> Response:
    """Delete every inference and all feedback of one user of the applications."""
    user = call.path("user")
    gone = call.state.forget_user(user, call.name)
    return json_answer({"inferences": gone.inferences, "feedback": gone.feedback})
