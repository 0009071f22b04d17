"""OTLP/HTTP: traces and logs of any OpenTelemetry exporter, read as inferences and feedback."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from whet.errors import UsageError
from whet_client.records import Feedback, Inference, checked_feedback, checked_inference
from whet_live.traffic.otlp.decode import (
    SIGNALS,
    Unsupported,
    answer,
    decode_request,
    failure_body,
    media_type,
)
from whet_live.traffic.otlp.records import EVALUATION, answer_of, evaluations, is_answer, log_evaluation

__all__ = ["Parsed", "Unsupported", "failure_body", "parse_otlp"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a request holds. `received` counts its spans or log records, `rejected` those that could not be used, and
    `message` says why one of them could not. Spans that are no answer of a model are neither stored nor
    rejected."""

    kind: str
    signal: str
    inferences: tuple[Inference, ...]
    feedback: tuple[Feedback, ...]
    received: int
    rejected: int = 0
    message: str = ""

    def without(self, ids: Iterable[str], reason: str) -> Parsed:
        """The same without the records of these ids, which count as rejected."""
        gone = set(ids)
        inferences = tuple(one for one in self.inferences if one.id not in gone)
        feedback = tuple(one for one in self.feedback if one.id not in gone)
        lost = len(self.inferences) + len(self.feedback) - len(inferences) - len(feedback)
        return replace(
            self,
            inferences=inferences,
            feedback=feedback,
            rejected=self.rejected + lost,
            message=self.message or reason,
        )

    def response(self) -> bytes:
        """The body of the answer (status 200, content type `kind`), a partial success when something was rejected."""
        return answer(self.kind, self.signal, self.rejected, self.message)


def parse_otlp(body: bytes, content_type: str | None, signal: str = "traces") -> Parsed:
    """Read the body of `POST .../v1/traces` or `.../v1/logs`, JSON or protobuf, already unpacked.

    Every span that is one call of a model is an inference; `gen_ai.evaluation.result` events and OpenInference
    annotations are feedback, about the span, its trace (an episode) or its session. Ids follow the spans, so that
    an exporter may repeat a request. Texts longer than what is kept are cut, and their names stand in
    `metadata.cut`. Raises Unsupported (415) for a type that cannot be read, and UsageError (400) for a body that is
    no such request; answer those with `refusal`.
    """
    kind = media_type(content_type)
    if signal not in SIGNALS:
        raise UsageError(f'"{signal}" is no signal that is read here. Send {" or ".join(SIGNALS)}.')
    spans, logs, reasons = decode_request(body, kind, signal)
    inferences: list[Inference] = []
    feedback: list[Feedback] = []
    received = len(spans) + len(logs) + len(reasons)
    for span in spans:
        try:
            inference = None
            if is_answer(span):
                if not span.id:
                    raise UsageError(f'The span "{span.name[:60]}" has no valid id.')
                inference = checked_inference(answer_of(span), f"span {span.id}")
            more = [
                checked_feedback(one, f"span {span.id}") for one in evaluations(span, inference) if one.target
            ]
        except UsageError as error:
            reasons.append(str(error))
            continue
        inferences += [inference] if inference else []
        feedback += more
    for log in logs:
        if log.name != EVALUATION:
            continue
        try:
            one = log_evaluation(log)
            if one is None:
                raise UsageError(
                    "An evaluation names no span or response, or has no score, label or explanation."
                )
            feedback.append(checked_feedback(one, "log record"))
        except UsageError as error:
            reasons.append(str(error))
    message = reasons[0] if reasons else ""
    return Parsed(kind, signal, tuple(inferences), tuple(feedback), received, len(reasons), message)
