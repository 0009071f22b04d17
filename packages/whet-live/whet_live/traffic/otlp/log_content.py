"""Messages that come as log records: those of one span become one answer, which lies inside of that of the span.

Instrumentations that keep content out of spans write it so: `gen_ai.user.message`, ..., `gen_ai.choice`, each a record, or
`gen_ai.client.inference.operation.details`, one for a call. They come before the span or after it, and in several requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson

from whet.errors import UsageError
from whet_client.records import Inference
from whet_live.traffic.otlp.content import CONTENT_EVENTS, DETAILS, messages
from whet_live.traffic.otlp.decode import OtelEvent, OtlpSpan
from whet_live.traffic.otlp.records import answer_of
from whet_live.traffic.spans import LOG_RECORDS, LOGS

_OWN_ID = "whet.inference.id"
_CONTENT = ("gen_ai.event.content", "gen_ai.prompt", "gen_ai.completion")


def group_logs(logs: Iterable[OtelEvent]) -> tuple[list[OtlpSpan], list[str]]:
    """The records with messages as spans inside of those that they name, and why each of the others cannot be used. Records
    without any content are passed over."""
    groups: dict[tuple[str, str, str], list[OtelEvent]] = {}
    reasons = []
    for log in logs:
        if log.name not in CONTENT_EVENTS:
            continue
        if log.span or log.name == DETAILS:
            alone = "" if log.span else _digest([log])
            groups.setdefault((log.trace, log.span, alone), []).append(log)
        else:
            reasons.append(
                f"The log record {log.name} names no span, so that nobody knows which call it belongs to."
            )
    spans = [_as_span(trace, span, own) for (trace, span, _), own in groups.items()]
    return [span for span in spans if _has_content(span)], reasons


def log_answer(span: OtlpSpan) -> Inference:
    """The log records of a span as a separate answer, until the span arrives."""
    answer = answer_of(span)
    return replace(answer, metadata={**answer.metadata, "span_id": span.parent})


def _as_span(trace: str, span: str, logs: Sequence[OtelEvent]) -> OtlpSpan:
    ordered = sorted(logs, key=lambda one: one.time)
    attributes: dict[str, object] = {}
    for log in ordered:
        own = log.attributes.items()
        if log.name != DETAILS:
            own = ((name, value) for name, value in own if "." in name and name not in _CONTENT)  # type: ignore[assignment]
        attributes |= {name: value for name, value in own if name != _OWN_ID}
    return OtlpSpan(
        trace=trace,
        id=f"{LOGS}{_digest(ordered)}"[:16],
        name=LOG_RECORDS,
        start=ordered[0].time,
        end=0,
        attributes=attributes,
        events=tuple(ordered),
        resource=ordered[0].resource,
        parent=span,
    )


def _has_content(span: OtlpSpan) -> bool:
    return any(
        message["content"]
        for side in ("input", "output")
        for message in messages(side, span.attributes, span.events)
    )


def _digest(logs: Sequence[OtelEvent]) -> str:
    """Follows from what the records say, so that an exporter may repeat a request, and send those of one span in several."""
    rows = [[log.trace, log.span, log.name, log.time, log.attributes] for log in logs]
    try:
        return hashlib.sha256(orjson.dumps(rows, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()
    except orjson.JSONEncodeError as error:
        raise UsageError(f"A log record cannot be written as JSON: {error}.") from None
