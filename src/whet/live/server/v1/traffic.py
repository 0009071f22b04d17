"""Traffic to be read: inferences, feedback, counts; and one user's data to be deleted."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

import whet.live.server.v1.rows as rows
from whet.live.database import iso, microseconds
from whet.live.server.endpoint import EndpointRouter, Spec
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import json_answer, not_found
from whet.live.server.roles import Role
from whet.live.traffic import Filter, StoredFeedback, StoredInference

book = EndpointRouter()


def inference_json(found: StoredInference) -> dict[str, Any]:
    """An inference as JSON values."""
    return {**found.inference.as_json(), "received": iso(found.received)}


def feedback_json(found: StoredFeedback) -> dict[str, Any]:
    """Feedback as JSON values."""
    about = {"prompt": found.prompt, "version": found.version, "received": iso(found.received)}
    return {**found.feedback.as_json(), **about}


def filter_of(asked: rows.TrafficQuery, **more: Any) -> Filter:
    """The filter that a query asks for. Raises UsageError for a time that is none."""
    return Filter(
        prompt=asked.prompt,
        version=asked.version,
        user=asked.user,
        since=None if asked.since is None else microseconds(asked.since),
        until=None if asked.until is None else microseconds(asked.until),
        **more,
    )


@book("GET", "/v1/inferences", Role.VIEWER, spec=Spec(query=rows.InferenceQuery, answer=rows.InferencePage))
def list_inferences(call: RequestContext) -> Response:
    """Inferences, the newest first."""
    asked = call.query(rows.InferenceQuery)
    wanted = filter_of(asked, session=asked.session, episode=asked.episode, unreviewed=asked.unreviewed)
    found = call.house.live.traffic.inferences(wanted, asked.limit, asked.after)
    return json_answer({"inferences": [inference_json(row) for row in found.rows], "after": found.next})


@book("GET", "/v1/inferences/{id:path}", Role.VIEWER, spec=Spec(answer=rows.About, refusals=(404,)))
def get_inference(call: RequestContext) -> Response:
    """One inference with everything that was said or done about it."""
    traffic = call.house.live.traffic
    found = traffic.inference(call.path("id"))
    if found is None:
        raise not_found("such inference")
    said = [feedback_json(row) for row in traffic.about(found.seq)]
    return json_answer({"inference": inference_json(found), "feedback": said})


@book("GET", "/v1/feedback", Role.VIEWER, spec=Spec(query=rows.FeedbackQuery, answer=rows.FeedbackPage))
def list_feedback(call: RequestContext) -> Response:
    """Feedback, the newest first."""
    asked = call.query(rows.FeedbackQuery)
    wanted = filter_of(asked, kind=asked.kind, source=asked.source, text=asked.text)
    found = call.house.live.traffic.find(wanted, asked.limit, asked.after)
    return json_answer({"feedback": [feedback_json(row) for row in found.rows], "after": found.next})


@book("GET", "/v1/counts", Role.VIEWER, spec=Spec(query=rows.CountsQuery, answer=rows.CountsSchema))
def list_counts(call: RequestContext) -> Response:
    """How many answers and how much feedback of each kind every version has, with means."""
    asked = call.query(rows.CountsQuery)
    prompts = None if asked.prompt is None else [asked.prompt]
    found = call.house.live.traffic.counts(prompts, asked.version)
    told = [
        {
            "prompt": c.prompt,
            "version": c.version,
            "kind": c.kind,
            "n": c.n,
            "mean": c.mean,
            "deviation": c.deviation,
        }
        for c in found
    ]
    return json_answer({"counts": told})


@book("DELETE", "/v1/users/{user:path}", Role.ADMIN, spec=Spec(answer=rows.ErasedSchema))
def forget_user(call: RequestContext) -> Response:
    """Delete every inference and all feedback of one user of the applications."""
    user = call.path("user")
    gone = call.house.forget_user(user, call.name)
    return json_answer({"inferences": gone.inferences, "feedback": gone.feedback})
