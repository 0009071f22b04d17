"""OTLP/HTTP: traces and logs of any OpenTelemetry exporter, read as inferences and feedback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from whet.errors import UsageError
from whet.instructions.guard import visible
from whet_client.records import (
    SERVICE,
    Feedback,
    Inference,
    checked_feedback,
    checked_inference,
    prompt_name_fault,
)
from whet_live.traffic.otlp.calls import merge_calls, span_key
from whet_live.traffic.otlp.decode import (
    SIGNALS,
    OtelEvent,
    OtlpSpan,
    Unsupported,
    decode_request,
    encode_success,
    failure_body,
    media_type,
)
from whet_live.traffic.otlp.frameworks import translate
from whet_live.traffic.otlp.log_content import group_logs, log_answer
from whet_live.traffic.otlp.records import (
    EVALUATION,
    PROMPT_NAME,
    UNUSABLE,
    answer_of,
    evaluations,
    is_answer,
    log_evaluation,
)
from whet_live.traffic.scales import RawFeedback, settle_batch
from whet_live.traffic.spans import SpanKey, SpanLink

__all__ = ["Parsed", "Unsupported", "failure_body", "parse_otlp"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The content of a request. Spans that are not answers of a model are neither stored nor rejected."""

    kind: str
    signal: str
    inferences: tuple[Inference, ...]
    feedback: tuple[Feedback, ...]
    received: int
    """Its spans or log records."""
    rejected: int = 0
    """Spans or log records that could not be used."""
    message: str = ""
    """Why one of them could not be used."""
    warning: str = ""
    """A warning about decisions on stored spans."""
    spans: tuple[SpanLink, ...] = ()
    """The position of each span in its trace, so that a call whose spans come in several requests is one answer."""

    def without(self, ids: Iterable[str], reason: str) -> Parsed:
        """The same without the records of these ids, which count as rejected."""
        gone = set(ids)
        inferences = tuple(inference for inference in self.inferences if inference.id not in gone)
        feedback = tuple(row for row in self.feedback if row.id not in gone)
        lost = len(self.inferences) + len(self.feedback) - len(inferences) - len(feedback)
        return replace(
            self,
            inferences=inferences,
            feedback=feedback,
            spans=tuple(span for span in self.spans if span.inference not in gone),
            rejected=self.rejected + lost,
            message=self.message or reason,
        )

    def response(self) -> bytes:
        """The body of the answer (status 200, content type `kind`), a partial success when something was rejected; without
        any rejection a message is a warning, as the protocol has it."""
        text = " ".join(one for one in (self.message, self.warning) if one)
        return encode_success(self.kind, self.signal, self.rejected, text)


def parse_otlp(body: bytes, content_type: str | None, signal: str = "traces") -> Parsed:
    """Read the body of `POST .../v1/traces` or `.../v1/logs`, JSON or protobuf, already unpacked.

    Every call of a model is one inference, also where an outer and an inner span record it, or log records hold its messages.
    `gen_ai.evaluation.result` events and OpenInference annotations are feedback, about the span, its trace (an episode) or its
    session. Ids follow the spans, so that an exporter may repeat a request. Texts longer than what is kept are cut, and their
    names stand in `metadata.cut`; numbers that cannot be used stand in `metadata.unusable`, and a name that no prompt can have
    in `metadata.prompt_name`. Raises Unsupported (415) for a type that cannot be read, and UsageError (400) for a body that
    is no such request; answer those with `failure_body`.
    """
    kind = media_type(content_type)
    if signal not in SIGNALS:
        raise UsageError(f'"{signal}" is no signal that is read here. Send {" or ".join(SIGNALS)}.')
    spans, logs, reasons = decode_request(body, kind, signal)
    rows: list[tuple[str, RawFeedback]] = []
    received = len(spans) + len(logs) + len(reasons)
    answers: dict[SpanKey, Inference] = {}
    usable: list[OtlpSpan] = []
    for raw in spans:
        try:
            span = translate(raw)
            inference = _answer(span)
            if inference is not None and answers.get(span_key(span), inference) != inference:
                raise UsageError(f"The span {span.id} is there twice, with different content.")
        except UsageError as error:
            reasons.append(str(error))
            continue
        usable.append(span)
        if inference is not None:
            answers[span_key(span)] = inference
    contents, refused = group_logs(logs)
    reasons += refused
    for content in contents:
        try:
            answers[span_key(content)] = checked_inference(log_answer(content), "log records")
        except UsageError as error:
            reasons.append(str(error))
        else:
            usable.append(content)
    merged, roots, links = merge_calls(usable, answers)
    for where, one in _evaluations(usable, logs, merged, roots):
        try:
            if isinstance(one, UsageError):
                raise UsageError(f"{where}: {one}")
            checked_feedback(
                one.feedback, f'{where}: the evaluation "{visible((one.feedback.name or "")[:60])}"'
            )
        except UsageError as error:
            reasons.append(str(error))
        else:
            rows.append((where, one))
    settled = settle_batch(rows)
    feedback = tuple(one for one in settled if isinstance(one, Feedback))
    reasons += [str(one) for one in settled if isinstance(one, UsageError)]
    return Parsed(
        kind,
        signal,
        tuple(merged.values()),
        feedback,
        received,
        len(reasons),
        reasons[0] if reasons else "",
        _warning(usable, answers, roots),
        links,
    )


def _answer(span: OtlpSpan) -> Inference | None:
    """The inference of a span that is a call of a model. Raises UsageError for one that cannot be stored."""
    if not is_answer(span):
        return None
    if not span.id:
        raise UsageError(f'The span "{span.name[:60]}" has no valid id.')
    return checked_inference(answer_of(span), f"span {span.id}")


def _evaluations(
    spans: Iterable[OtlpSpan],
    logs: Iterable[OtelEvent],
    answers: Mapping[SpanKey, Inference],
    roots: Mapping[SpanKey, SpanKey],
) -> Iterator[tuple[str, RawFeedback | UsageError]]:
    """The evaluations of a request, each with its place; in the place of one that cannot be read stands the reason."""
    for span in spans:
        inference = answers.get(roots.get(span_key(span), span_key(span)))
        yield from ((f"span {span.id}", evaluation) for evaluation in evaluations(span, inference))
    for log in logs:
        if log.name == EVALUATION:
            try:
                yield "log record", log_evaluation(log)
            except UsageError as error:
                yield "log record", error


def _warning(
    spans: Iterable[OtlpSpan], answers: Mapping[SpanKey, Inference], roots: Mapping[SpanKey, SpanKey]
) -> str:
    """A warning about decisions on stored spans."""
    warnings = []
    if roots:
        (_, inner), (_, outer) = next(iter(roots.items()))
        warnings.append(
            f"Spans inside of another span of the same call are counted with it ({len(roots)}; the span {inner} with {outer})."
        )
    late = [span.id for span in spans if span_key(span) in answers and 0 < span.end < span.start]
    if late:
        warnings.append(
            f"Spans that end before they start have no latency ({len(late)}; the first is {late[0]})."
        )
    return " ".join([*warnings, *_find_unused(answers.values())])


def _find_unused(answers: Iterable[Inference]) -> Iterator[str]:
    """Yield warnings about content that cannot be used, without which answers are stored."""
    answers = list(answers)
    numbers = [(one.id, *pair) for one in answers for pair in one.metadata.get(UNUSABLE, {}).items()]
    if numbers:
        id, name, value = numbers[0]
        yield f"Numbers that cannot be used are left out ({len(numbers)}; the first is {name} {value[:60]} of {id})."
    names = [one.metadata[PROMPT_NAME] for one in answers if PROMPT_NAME in one.metadata]
    if names:
        fault = prompt_name_fault(names[0]) or "it is too long."
        yield (
            f"Answers whose prompt no prompt can be called stand under {SERVICE}SERVICE ({len(names)}; "
            f'the first is "{visible(names[0][:60])}": {fault.removesuffix(".")}).'
        )
