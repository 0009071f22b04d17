"""People's preferences among the answers of a live prompt, as rows that `whet.learn_preferences` reads.

Thumbs, ratings, corrections and choices of people about inferences without an error; of a person who is being forgotten there is
nothing. The rows are a copy, which a later erasure does not reach.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.errors import UsageError
from whet_client.records import Feedback, Inference
from whet_live.tasks import inferences_of
from whet_live.traffic import Filter, Traffic
from whet_live.traffic.dataset import PEOPLE, RATED_BY_PEOPLE, name_rater

MOST = 20_000
"""Inferences that are read, the newest first."""


def preference_rows(
    traffic: Traffic, prompt: str, *, since: int | None = None, most: int = MOST
) -> list[dict[str, Any]]:
    """Rows for `whet.learn_preferences` from the newest `most` inferences of a prompt since a time (microseconds), oldest first.
    Of the thumbs or ratings that one person gave an answer the last counts.

    Raises UsageError where people judged no answer of the prompt.
    """
    answers: dict[str, Inference] = {}
    judgements = []
    for stored in inferences_of(traffic, Filter(prompt=prompt, since=since)):
        if len(answers) == most:
            break
        inference = stored.inference
        if inference.error is not None or not inference.id:
            continue
        answers[inference.id] = inference
        judgements += [
            (one.feedback.time, one.seq, inference, one.feedback) for one in traffic.about(stored.seq)
        ]
    judgements.sort(key=lambda one: one[:2])
    last = {_judgement(seq, inference, feedback): seq for _, seq, inference, feedback in judgements}
    rows = []
    for _, seq, inference, feedback in judgements:
        if feedback.source not in PEOPLE or last[_judgement(seq, inference, feedback)] != seq:
            continue
        shared: dict[str, Any] = {
            "id": f"live-{seq}",
            "input": input_text(inference.inputs),
            "user": feedback.user or inference.user or "",
        }
        if feedback.kind in ("thumb", "rating"):
            rows.append(
                shared | {"output": inference.output, "metric_name": feedback.kind, "value": feedback.value}
            )
        elif feedback.kind == "correction":
            rows.append(shared | {"output": inference.output, "corrected": feedback.text})
        elif feedback.kind == "choice" and (other := answers.get(str(feedback.label))) is not None:
            verdict = "tie" if feedback.value == 0.5 else 1 if feedback.value else 2
            rows.append(
                shared | {"output_1": inference.output, "output_2": other.output, "preferred": verdict}
            )
    if not rows:
        raise UsageError(
            f"No answer of {prompt} was judged by people: there are no thumbs, ratings, choices or corrections. "
            "`whet feedback add` and the page Compare two answers collect them."
        )
    return rows


def _judgement(seq: int, inference: Inference, feedback: Feedback) -> tuple[object, ...]:
    """The key of a judgement: a later thumb or rating of the same person with the same key replaces it. It is the row alone
    if nobody can tell."""
    rater = name_rater(feedback.source, feedback.user, inference.user)
    replaces = rater and feedback.kind in RATED_BY_PEOPLE
    return (inference.id, feedback.kind, feedback.name, rater) if replaces else (seq,)


def input_text(inputs: Mapping[str, Any]) -> str:
    """The input as one text: the value where there is one, else all as JSON."""
    if len(inputs) == 1:
        (value,) = inputs.values()
        if isinstance(value, str):
            return value
    return json.dumps(dict(inputs), ensure_ascii=False, sort_keys=True)
