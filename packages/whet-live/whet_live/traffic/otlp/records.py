"""The contents of spans and log records, as inferences and feedback."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from whet.errors import UsageError
from whet.instructions.guard import visible
from whet_client.ids import now
from whet_client.records import (
    LARGEST_VERSION,
    LONGEST_ID,
    LONGEST_INPUTS,
    LONGEST_NAME,
    LONGEST_OUTPUT,
    LONGEST_TEXT,
    SERVICE,
    Inference,
    prompt_name_fault,
)
from whet_live.traffic.adapters import SOURCE_OF, as_number, fit_id, read_evaluation, storable_text
from whet_live.traffic.long_numbers import clean_inference
from whet_live.traffic.otlp.content import (
    are_choices,
    as_text,
    find_finish_reason,
    first_attribute,
    messages,
    number_attribute,
    parse_json_text,
    plain_text,
    text_of,
)
from whet_live.traffic.otlp.decode import UNNAMED_ERROR, OtelEvent, OtlpSpan
from whet_live.traffic.otlp.frameworks import LANGSMITH_KIND
from whet_live.traffic.scales import RawFeedback

EVALUATION = "gen_ai.evaluation.result"
_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_ANNOTATION = re.compile(
    r"(?:(trace|session)\.)?(?:annotations\.(\d{1,4})\.annotation|evaluations\.(\d{1,4})\.evaluation)\.(\w+)"
)
_USER = ("whet.user", "user.id", "enduser.id", "langfuse.user.id")
_SESSION = ("whet.session", "session.id", "gen_ai.conversation.id", "langfuse.session.id")
_PROMPT = (
    "whet.prompt.name",
    "langfuse.observation.prompt.name",
    "gen_ai.prompt.name",
    "prompt.name",
    "prompt.id",
)
_VERSION = (
    "whet.prompt.version", "langfuse.observation.prompt.version", "gen_ai.prompt.version",
    "llm.prompt_template.version", "prompt.version",
)  # fmt: skip
_VARIABLE = "gen_ai.prompt.variable."
_MODEL = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id",
    "langfuse.observation.model.name", "langsmith.metadata.ls_model_name",
)  # fmt: skip
_FINGERPRINT = ("openai.response.system_fingerprint", "gen_ai.openai.response.system_fingerprint")
PROMPT_NAME, UNUSABLE = "prompt_name", "unusable"
"""The keys of an answer's metadata for the name that its span gives in the place of a prompt, and for the numbers that cannot
be used."""
_MOST_DOLLARS = 1e6
_COST = ("whet.cost", "gen_ai.usage.cost", "llm.cost.total")
_TOKENS = {
    "input": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    ),
    "output": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "ai.usage.outputTokens", "ai.usage.completionTokens",
    ),
}  # fmt: skip
_KINDS_OF_TOKENS = {
    "input": ("input", "input_tokens", "prompt_tokens"),
    "output": ("output", "output_tokens", "completion_tokens"),
}


def is_answer(span: OtlpSpan) -> bool:
    """Whether a span is one call of a language model (no agent, tool, retrieval or embedding)."""
    a = span.attributes
    if LANGSMITH_KIND in a:
        return str(a[LANGSMITH_KIND]) == "llm"
    operation = a.get("gen_ai.operation.name")
    if operation is not None:
        return str(operation) in _OPERATIONS
    if "openinference.span.kind" in a:
        return str(a["openinference.span.kind"]).upper() == "LLM"
    if "langfuse.observation.type" in a:
        return str(a["langfuse.observation.type"]) == "generation"
    if "traceloop.span.kind" in a:
        return False
    if "ai.operationId" in a:
        return str(a["ai.operationId"]).rpartition(".")[2] in ("doGenerate", "doStream")
    named = any(name in a for name in ("gen_ai.request.model", "gen_ai.response.model", "llm.request.type"))
    return named and "gen_ai.tool.name" not in a


def answer_of(span: OtlpSpan) -> Inference:
    """The inference of a span. Its id is `whet.inference.id`, that of LangSmith's run, or the span's own, its episode the trace.

    Ids that are too long end in a hash (`fit_id`). The name of a prompt that cannot be one stands in the metadata, and numbers
    that cannot be used stand there too.
    """
    a = span.attributes
    cut: list[str] = []
    unusable: dict[str, str] = {}
    metadata = _metadata(span)
    prompt, version = _prompt(span, metadata, cut)
    inference = Inference(
        id=_id_of(a, "id", cut, "whet.inference.id", "langsmith.span.id") or span.id,
        prompt=prompt,
        version=version,
        inputs=_bound_inputs(_variables(a) or _inputs(span), cut),
        output=_cut_text(_output(span, metadata), LONGEST_OUTPUT, "output", cut),
        model=_id_of(a, "model", cut, *_MODEL),
        cost=_cost(a, unusable),
        latency=seconds_between(span.start, span.end),
        input_tokens=_tokens(a, "input", unusable),
        output_tokens=_tokens(a, "output", unusable),
        session=_id_of(a, "session", cut, *_SESSION),
        user=_id_of(a, "user", cut, *_USER),
        episode=_episode_of(span, cut) or None,
        experiment=_id_of(a, "experiment", cut, "whet.experiment"),
        variant=_id_of(a, "variant", cut, "whet.variant"),
        response=_id_of(a, "response", cut, "gen_ai.response.id", "ai.response.id"),
        error=_error(span, cut),
        time=span.start // 1000,
    )
    lost = {name: value for name, value in (("cut", cut), (UNUSABLE, unusable)) if value}
    return clean_inference(replace(inference, metadata=metadata | lost))


def _metadata(span: OtlpSpan) -> dict[str, object]:
    """The metadata of a span: its facts that have no field."""
    metadata: dict[str, object] = {"span": span.name, "span_id": span.id, "trace_id": span.trace}
    if fingerprint := _short(span.attributes, LONGEST_ID, *_FINGERPRINT):
        metadata["system_fingerprint"] = fingerprint
    if reason := find_finish_reason(span.attributes, span.events):
        metadata["finish_reason"] = storable_text(reason)[:LONGEST_ID]
    return metadata


def _variables(attributes: Mapping[str, object]) -> Mapping[str, object]:
    """The values of the prompt's slots, if the span states them: in one JSON object, or in an attribute for each."""
    template = parse_json_text(attributes.get("llm.prompt_template.variables"))
    if isinstance(template, Mapping) and template:
        return template
    named = (
        (name.removeprefix(_VARIABLE), value)
        for name, value in attributes.items()
        if name.startswith(_VARIABLE)
    )
    return {name: value for name, value in named if name}


def _error(span: OtlpSpan, cut: list[str]) -> str | None:
    """The message of a failed status; where it has none, the class of the error."""
    kind = text_of(span.attributes, "error.type")
    if span.error is None or (kind is not None and span.error == UNNAMED_ERROR):
        return None if kind is None else _cut_text(kind, LONGEST_TEXT, "error", cut) or None
    return _cut_text(span.error, LONGEST_TEXT, "error", cut)


def seconds_between(start: int, end: int) -> float | None:
    """The time of a call from its start and end in nanoseconds; None without an end, and where it lies before the start."""
    return (end - start) / 1e9 if end and end >= start else None


def _prompt(span: OtlpSpan, metadata: dict[str, object], cut: list[str]) -> tuple[str, int]:
    """The prompt's name and version; without a name that can be one, the service's, so that its traffic stands together. What the
    span says instead of a name or a version goes into the metadata."""
    a = span.attributes
    name, number = text_of(a, *_PROMPT), number_attribute(a, *_VERSION)
    named = name is not None and (name.startswith(SERVICE) or not prompt_name_fault(name))
    whole = number is not None and 0 <= number <= LARGEST_VERSION and number == int(number)
    if name is not None and not named:
        metadata[PROMPT_NAME] = _cut_text(name, LONGEST_NAME, PROMPT_NAME, cut)
    if not (whole and (named or name is None)) and first_attribute(a, *_VERSION) is not None:
        metadata["prompt_version"] = storable_text(text_of(a, *_VERSION) or "")[:LONGEST_ID]
    if name is None or not named:
        service = text_of(span.resource, "service.name", "openinference.project.name") or "unknown"
        service_name = f"{SERVICE}{service}".replace("|", "/")
        prompt = service_name if len(service_name) <= LONGEST_ID else fit_id(service_name, "prompt", cut)
        return storable_text(prompt), int(number or 0) if whole and name is None else 0
    return name, int(number or 0) if whole else 0


def _inputs(span: OtlpSpan) -> dict[str, object]:
    conversation = messages("input", span.attributes, span.events)
    if conversation:
        return {"messages": conversation}
    text = plain_text("input", span.attributes)
    return {} if text is None else {"input": text}


def _output(span: OtlpSpan, metadata: dict[str, object]) -> str:
    """The text of the answer: of several choices the first, and their number goes into the metadata."""
    conversation = messages("output", span.attributes, span.events)
    if len(conversation) > 1 and are_choices(conversation, span.attributes, span.events):
        metadata["choices"] = len(conversation)
        return conversation[0]["content"]
    if conversation:
        return "\n".join(message["content"] for message in conversation)
    return plain_text("output", span.attributes) or ""


def _bound_inputs(inputs: Mapping[str, object], cut: list[str]) -> dict[str, object]:
    text = as_text(inputs)
    if len(text) <= LONGEST_INPUTS // 2:
        return dict(inputs)
    cut.append("inputs")
    return {"input": storable_text(text)[: LONGEST_INPUTS // 4]}


def _cut_text(text: str, most: int, name: str, cut: list[str]) -> str:
    if len(text) > most:
        cut.append(name)
    return storable_text(text)[:most]


def _short(attributes: Mapping[str, object], most: int, *names: str) -> str | None:
    text = text_of(attributes, *names)
    return None if text is None else storable_text(text)[:most] or None


def _id_of(attributes: Mapping[str, object], name: str, cut: list[str], *names: str) -> str | None:
    text = text_of(attributes, *names)
    return None if text is None else fit_id(text, name, cut) or None


def _amount(
    value: float | None, most: float, stated: object, name: str, unusable: dict[str, str]
) -> float | None:
    """The number itself, if it is one from 0 to `most`; what is `stated` else goes to those that are unusable."""
    if value is not None and 0 <= value <= most:
        return value
    if stated is not None:
        unusable[name] = storable_text(str(stated))[:LONGEST_ID]
    return None


def _details(attributes: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Amounts by their kinds, as Langfuse writes them: a JSON object in one attribute."""
    value = parse_json_text(attributes.get(f"langfuse.observation.{name}_details"))
    return value if isinstance(value, Mapping) else {}


def _cost(attributes: Mapping[str, object], unusable: dict[str, str]) -> float | None:
    """Dollars: one amount, or the sum of the amounts by kind where there is no total of them."""
    stated = first_attribute(attributes, *_COST)
    if stated is not None:
        return _amount(as_number(stated), _MOST_DOLLARS, stated, "cost", unusable)
    kinds = _details(attributes, "cost")
    parts = [
        value for value in ([kinds["total"]] if "total" in kinds else kinds.values()) if value is not None
    ]
    if not parts:
        return None
    amounts = [amount for amount in map(as_number, parts) if amount is not None]
    total = sum(amounts) if len(amounts) == len(parts) else None
    return _amount(total, _MOST_DOLLARS, dict(kinds), "cost", unusable)


def _tokens(attributes: Mapping[str, object], side: str, unusable: dict[str, str]) -> int | None:
    """Tokens of the input or the output: a whole number."""
    names: Sequence[str] = _TOKENS[side]
    if first_attribute(attributes, *names) is None:
        attributes, names = _details(attributes, "usage"), _KINDS_OF_TOKENS[side]
    stated = first_attribute(attributes, *names)
    number = as_number(stated)
    whole = number if number is not None and number.is_integer() else None
    amount = _amount(whole, LARGEST_VERSION, stated, f"{side}_tokens", unusable)
    return None if amount is None else int(amount)


def _episode_of(span: OtlpSpan, cut: list[str]) -> str:
    return _id_of(span.attributes, "episode", cut, "whet.episode", "langsmith.trace.id") or span.trace


def evaluations(span: OtlpSpan, inference: Inference | None) -> Iterator[RawFeedback | UsageError]:
    """The statements of a span about itself, its trace or its session: evaluation events and OpenInference annotations. An
    unreadable evaluation is replaced by the reason.

    `inference` is the span's own; an evaluation of a span without one counts for its whole trace.
    """
    episode = inference.episode if inference and inference.episode else _episode_of(span, [])
    mine = ("inference", inference.id) if inference else ("episode", episode)
    for number, event in enumerate(span.events):
        if event.name == EVALUATION:
            key = (span.trace, span.id, f"event {number}")
            yield _try(evaluation, event, mine, span.attributes, key)
    session = _id_of(span.attributes, "session", [], *_SESSION) or ""
    targets = {"": mine, "trace": ("episode", episode), "session": ("session", session)}
    for (scope, place), fields in sorted(_annotations(span.attributes).items()):
        if first_attribute(fields, "score", "label", "explanation") is not None:
            yield _try(_annotation, span, fields, targets[scope], f"{scope}{place}")


def _try(read: Callable[..., RawFeedback], *arguments: object) -> RawFeedback | UsageError:
    try:
        return read(*arguments)
    except UsageError as error:
        return error


def evaluation(
    event: OtelEvent, target: tuple[str, str], around: Mapping[str, object], key: Iterable[str]
) -> RawFeedback:
    """A `gen_ai.evaluation.result` as feedback. Raises UsageError for one that says nothing, or about nothing.

    The judge is a model unless `whet.source` or `annotator_kind` says otherwise, or the metric is one that only users give.
    """
    a = event.attributes
    fields = {
        "name": a.get("gen_ai.evaluation.name"),
        "score": first_attribute(a, "gen_ai.evaluation.score.value"),
        "label": first_attribute(a, "gen_ai.evaluation.score.label"),
        "explanation": first_attribute(a, "gen_ai.evaluation.explanation"),
        "source": a.get("whet.source") or SOURCE_OF.get(str(a.get("annotator_kind")).casefold()),
        "scale": a.get("whet.scale"),
        "user": text_of(a, *_USER) or text_of(around, *_USER),
    }
    return _feedback(fields, target, _id(*key, str(event.time), str(fields["name"])), _time(event.time))


def _feedback(fields: Mapping[str, object], target: tuple[str, str], id: str, time: int) -> RawFeedback:
    """Raises UsageError as `evaluation` does."""
    name = visible(str(fields.get("name") or "")[:60])
    if not target[1]:
        raise UsageError(f'The evaluation "{name}" names no span, response, trace or session. Add the id.')
    feedback = read_evaluation(fields, target, id, time)
    if feedback is None:
        score = fields.get("score")
        stated = "" if score is None else f"; its score is {visible(repr(score)[:60])}"
        raise UsageError(
            f'The evaluation "{name}" has no number as its score, no label and no explanation{stated}.'
        )
    return feedback


def log_evaluation(event: OtelEvent) -> RawFeedback:
    """An evaluation that came as a log record: about the response that it names, else about its span or its trace."""
    response = text_of(event.attributes, "gen_ai.response.id")
    spans = (("response", response), ("inference", event.span), ("episode", event.trace))
    target = next(((kind, id) for kind, id in spans if id), ("response", ""))
    return evaluation(event, target, {}, (*target, event.trace, event.span))


def _annotations(attributes: Mapping[str, object]) -> dict[tuple[str, str], dict[str, object]]:
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for key, value in attributes.items():
        match = _ANNOTATION.fullmatch(key)
        if match is not None:
            scope, annotation, evaluation, name = match.groups()
            place = f"e{evaluation}" if annotation is None else f"a{annotation}"
            rows.setdefault((scope or "", place), {})[name] = value
    return rows


def _annotation(
    span: OtlpSpan, fields: Mapping[str, object], target: tuple[str, str], place: str
) -> RawFeedback:
    kind = SOURCE_OF.get(str(fields.get("annotator_kind", "")).casefold(), "model")
    user = text_of(span.attributes, *_USER) if kind == "user" else None
    values = {**fields, "source": kind, "user": user}
    key = _id(span.trace, span.id, place, str(fields.get("name")))
    return _feedback(values, target, key, _time(span.end or span.start))


def _id(*parts: str) -> str:
    """An id that follows from where an evaluation stands, so that an exporter may repeat a request."""
    return f"otlp-{hashlib.sha256(chr(31).join(parts).encode('utf-8', 'replace')).hexdigest()[:32]}"


def _time(nanoseconds: int) -> int:
    return nanoseconds // 1000 or now()
