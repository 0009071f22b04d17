"""Rows of exports: OpenAI Evals output items, Langfuse observations and scores, Phoenix spans with their annotations, Braintrust
spans with their scores and comments.

Each reader takes one row and says what it holds, or None when the row is of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from whet.feedback.rows import snake_case
from whet_client.records import (
    LARGEST_VERSION,
    LONGEST_ID,
    LONGEST_OUTPUT,
    LONGEST_TEXT,
    Inference,
    read_moment,
)
from whet_live.traffic.adapters import (
    SOURCE_OF,
    as_number,
    fit_id,
    microseconds_of,
    read_evaluation,
    storable_text,
)
from whet_live.traffic.columns import SCORES, read_amounts
from whet_live.traffic.otlp.content import as_text, find_messages, is_message, parse_json_text
from whet_live.traffic.otlp.decode import OtlpSpan
from whet_live.traffic.otlp.records import UNUSABLE, answer_of, evaluations, is_answer, seconds_between
from whet_live.traffic.scales import RawFeedback

_LANGFUSE = frozenset((
    "id", "trace_id", "project_id", "type", "name", "start_time", "end_time", "completion_start_time", "created_at",
    "updated_at", "timestamp", "event_ts", "is_deleted", "environment", "level", "status_message", "version", "release",
    "public", "bookmarked", "tags", "trace_name", "trace_tags", "session_id", "user_id", "html_path", "parent_observation_id",
    "input", "output", "expected_output", "metadata", "scores", "comments", "comment_count", "model", "provided_model_name",
    "model_id", "internal_model", "internal_model_id", "model_parameters", "prompt_id", "prompt_name", "prompt_version",
    "usage", "usage_details", "unit", "latency", "provided_usage_details", "cost_details", "provided_cost_details",
    "total_cost", "input_cost", "output_cost", "calculated_total_cost", "calculated_input_cost", "calculated_output_cost",
    "input_price", "output_price", "total_price", "input_usage", "output_usage", "total_usage", "input_tokens", "output_tokens",
    "total_tokens", "prompt_tokens", "completion_tokens", "time_to_first_token", "tokens_per_second", "usage_pricing_tier_id",
    "usage_pricing_tier_name", "tool_definitions", "tool_calls", "tool_call_names",
))  # fmt: skip
"""The columns of Langfuse's observations."""
_OBSERVATION = frozenset(("trace_id", "type", "start_time"))
_MARKS = frozenset(("parent_observation_id", "provided_model_name"))
_PROMPTED, _TEXTS = frozenset(("id", "prompt_name")), frozenset(("input", "output"))
_SCORE = frozenset(("data_type", "string_value"))
_ANSWERED = "GENERATION"
_KINDS = frozenset((
    _ANSWERED, "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
))  # fmt: skip
"""The columns that all its observations have, those that some have, and no others; those that plain tables have too, but not
together; the columns of scores; the types."""
_SPAN, _BRAINTRUST = (
    frozenset(("span_id", "root_span_id")),
    frozenset(("_xact_id", "span_attributes", "scores")),
)
"""Columns that all spans of Braintrust have, and those of which they have one at least."""
_RUNS = frozenset(("run_type", "feedback_scores"))
"""Columns of which the rows of some tools have one, and plain tables none."""
UNNAMED = ""
"""The prompt of an inference whose row names none."""


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """The content of a row; empty for a row of the tool that is neither answer nor feedback. `backwards` are the ids of
    answers that end before they start, `unusable` names and values of what is left out of its answer, `others` the columns
    of a row with an answer that are none of the tool's. `known_as`: other ids by which feedback may name an answer, with
    kind and id of the target that it has here."""

    inferences: list[Inference] = field(default_factory=list)
    feedback: list[RawFeedback] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    unusable: list[tuple[str, str]] = field(default_factory=list)
    others: Mapping[str, object] = field(default_factory=dict)
    known_as: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def openai_item(row: Mapping[str, object]) -> ExportedRow | None:
    """An output item of an OpenAI eval run: the answer, and a score for each grader."""
    sample = parse_json_text(row.get("sample"))
    if not isinstance(sample, Mapping) or "datasource_item" not in row:
        return None
    usage = _mapping(sample.get("usage"))
    failed = _mapping(sample.get("error")).get("message")
    cut: list[str] = []
    id = id_of(row.get("id"), "id", cut) or ""
    time = microseconds_of(row.get("created_at"))
    finish = short(sample.get("finish_reason"), LONGEST_ID)
    inference = Inference(
        prompt=UNNAMED,
        id=id,
        inputs=as_inputs(row["datasource_item"]),
        output=as_output(sample.get("output") or ""),
        model=id_of(sample.get("model"), "model", cut),
        input_tokens=_whole(usage.get("prompt_tokens")),
        output_tokens=_whole(usage.get("completion_tokens")),
        error=short(failed, LONGEST_TEXT),
        time=time,
        metadata={name: value for name, value in (("finish_reason", finish), ("cut", cut)) if value},
    )
    scores = []
    for number, values in enumerate(_items(row.get("results"))):
        passed = values.get("passed")
        fields = {
            **values,
            "label": None if passed is None else "pass" if passed else "fail",
            "explanation": values.get("explanation") or values.get("reason"),
            "source": "model" if "model" in str(values.get("type", "")) else "code",
        }
        scores.append(read_evaluation(fields, ("inference", id), f"{id}#{number}", time))
    return ExportedRow([inference], [score for score in scores if score is not None])


def langfuse(row: Mapping[str, object]) -> ExportedRow | None:
    """A Langfuse observation or score, in the words of its interface or of its blob storage."""
    named = {snake_case(key): value for key, value in row.items()}
    if "trace_id" in named and "name" in named and named.keys() & _SCORE:
        score = _langfuse_score(named, ("episode", str(named["trace_id"] or "")))
        return ExportedRow(feedback=[score] if score else [])
    kind = str(named.get("type") or _ANSWERED).upper()
    if not _has_observations(named.keys()) or kind not in _KINDS:
        return None
    if kind != _ANSWERED:
        return ExportedRow(known_as=_of_trace(named.get("id"), named.get("trace_id")))
    inference = _langfuse_answer(named)
    scores = map(_plainly, _items(named.get("scores")))
    feedback = [_langfuse_score(score, ("inference", inference.id)) for score in scores]
    backwards = [inference.id] if named.get("end_time") and inference.latency is None else []
    others = {key: value for key, value in row.items() if snake_case(key) not in _LANGFUSE}
    return ExportedRow([inference], [row for row in feedback if row is not None], backwards, others=others)


def _has_observations(names: Set[str]) -> bool:
    """Whether columns are those of observations. Plain tables may name traces and prompts too, beside other columns for texts."""
    known = names & _MARKS or names >= _OBSERVATION or (names >= _PROMPTED and names & _TEXTS)
    return "trace_id" in names and bool(known)


def with_observation_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a table, which leaves out empty cells: where it has Langfuse's observations or scores, with the columns by
    which each of them is known."""
    names = {snake_case(key): key for row in rows for key in row}
    if "trace_id" not in names:
        return [dict(row) for row in rows]
    known = (
        _OBSERVATION | _MARKS | _PROMPTED | _TEXTS if _has_observations(names.keys()) else frozenset[str]()
    )
    blank = {names[name]: None for name in sorted(names.keys() & known)}
    trace = {names["trace_id"]: None}
    return [{**(trace if _SCORE & {*map(snake_case, row)} else blank), **row} for row in rows]


def langfuse_trace(row: Mapping[str, object]) -> ExportedRow | None:
    """A whole Langfuse trace: its generations, its own scores and theirs. Without a generation it is the answer itself."""
    named = {snake_case(key): value for key, value in row.items()}
    parts = parse_json_text(named.get("observations"))
    if (
        "trace_id" in named
        or not isinstance(parts, list)
        or not all(isinstance(part, Mapping) for part in parts)
    ):
        return None
    key = short(named.get("id"), LONGEST_TEXT) or ""
    shared = {
        "user_id": named.get("user_id"),
        "session_id": named.get("session_id"),
        "parent_observation_id": None,
    }
    rows = map(_plainly, (*parts, *_items(named.get("scores"))))
    read = [langfuse({**shared, **row, "trace_id": key}) or ExportedRow() for row in rows]
    inferences = [inference for exported in read for inference in exported.inferences]
    if not inferences:
        inferences = [_langfuse_answer({**named, "trace_id": key, "start_time": named.get("timestamp")})]
    feedback = [row for exported in read for row in exported.feedback]
    backwards = [one for exported in read for one in exported.backwards]
    known_as = {id: target for exported in read for id, target in exported.known_as.items()}
    return ExportedRow(inferences, feedback, backwards, known_as=known_as)


def _of_trace(span: object, trace: object) -> dict[str, tuple[str, str]]:
    """The id of a span that is no answer, with its trace: what is said about it is said about the answer in there."""
    id, episode = id_of(span, "id", []), id_of(trace, "episode", [])
    return {id: ("episode", episode)} if id and episode else {}


def _plainly(value: object) -> dict[str, object]:
    return {snake_case(key): inner for key, inner in _mapping(value).items()}


def _langfuse_answer(named: Mapping[str, object]) -> Inference:
    usage = _mapping(named.get("usage_details")) or _mapping(named.get("usage"))
    costs = (
        named.get("total_cost"),
        named.get("calculated_total_cost"),
        _mapping(named.get("cost_details")).get("total"),
    )
    cost = next((value for raw in costs if (value := as_number(raw)) is not None), None)
    amounts = read_amounts(named)
    start, end, latency = named.get("start_time"), named.get("end_time"), as_number(named.get("latency"))
    if latency is None and start and end:
        latency = seconds_between(microseconds_of(start) * 1000, microseconds_of(end) * 1000)
    failed = str(named.get("level") or "").upper() == "ERROR"
    output = as_output(named.get("output"))
    cut = ["output"] if len(output) == LONGEST_OUTPUT else []
    inference = Inference(
        prompt=short(named.get("prompt_name"), LONGEST_TEXT) or UNNAMED,
        version=_whole(named.get("prompt_version")) or 0,
        id=id_of(named.get("id"), "id", cut) or "",
        inputs=as_inputs(named.get("input")),
        output=output,
        model=id_of(named.get("model") or named.get("provided_model_name"), "model", cut),
        cost=cost,
        latency=latency,
        input_tokens=_whole(usage.get("input", usage.get("promptTokens", amounts.get("input_tokens")))),
        output_tokens=_whole(
            usage.get("output", usage.get("completionTokens", amounts.get("output_tokens")))
        ),
        session=id_of(named.get("session_id"), "session", cut),
        user=id_of(named.get("user_id"), "user", cut),
        episode=id_of(named.get("trace_id"), "episode", cut),
        error=short(named.get("status_message") or "error", LONGEST_TEXT) if failed else None,
        time=microseconds_of(start),
    )
    return replace(inference, metadata={"cut": cut} if cut else {})


def _langfuse_score(named: Mapping[str, object], target: tuple[str, str]) -> RawFeedback | None:
    if named.get("observation_id"):
        target = ("inference", str(named["observation_id"]))
    elif not target[1] and named.get("session_id"):
        target = ("session", str(named["session_id"]))
    kind = str(named.get("data_type") or "").upper()
    text = kind in ("TEXT", "CORRECTION")
    label = None if text or kind in ("NUMERIC", "BOOLEAN") else named.get("string_value")
    fields = {
        "name": named.get("name"),
        "score": None if text or label else named.get("value"),
        "label": label,
        "explanation": (named.get("string_value") if text else None) or named.get("comment"),
        "source": SOURCE_OF.get(str(named.get("source") or "").casefold(), "user"),
        "user": named.get("author_user_id"),
    }
    time = microseconds_of(named.get("timestamp") or named.get("created_at"))
    score = read_evaluation(fields, target, str(named.get("id") or ""), time)
    if score is not None:
        score = replace(score, updated=read_moment(named.get("updated_at")))
    if score is not None and score.feedback.text and kind == "CORRECTION":
        return replace(score, feedback=replace(score.feedback, kind="correction"))
    return score


def phoenix_span(row: Mapping[str, object]) -> ExportedRow | None:
    """A Phoenix span (a row of its data frame, or an object of its interface) with its annotations."""
    context = _mapping(row.get("context"))
    id, trace = (
        row.get("context.span_id", context.get("span_id")),
        row.get("context.trace_id", context.get("trace_id")),
    )
    if not isinstance(id, str) or "start_time" not in row:
        return None
    attributes: dict[str, object] = {}
    for key, value in row.items():
        if key == "attributes" or key.startswith("attributes."):
            _flatten(key[len("attributes.") :], parse_json_text(value), attributes)
    if row.get("span_kind"):
        attributes.setdefault("openinference.span.kind", row["span_kind"])
    failed = str(row.get("status_code") or "").upper() == "ERROR"
    span = OtlpSpan(
        trace=str(trace or ""),
        id=id,
        name=str(row.get("name") or ""),
        start=microseconds_of(row["start_time"]) * 1000,
        end=microseconds_of(row["end_time"]) * 1000 if row.get("end_time") else 0,
        attributes=attributes,
        error=str(row.get("status_message") or "error") if failed else None,
    )
    inference = answer_of(span) if is_answer(span) else None
    if inference is not None and inference.prompt == "otlp/unknown":
        inference = replace(inference, prompt=UNNAMED)
    feedback = [
        evaluation for evaluation in evaluations(span, inference) if isinstance(evaluation, RawFeedback)
    ]
    for number, one in enumerate(_items(row.get("annotations"))):
        annotation = _phoenix_annotation(one, ("inference", id), f"{id}#{number}", span.end or span.start)
        feedback += [annotation] if annotation else []
    backwards = [inference.id] if inference is not None and span.end and inference.latency is None else []
    unusable = inference.metadata.get(UNUSABLE, {}) if inference is not None else {}
    known_as = {} if inference is not None else _of_trace(id, trace)
    return ExportedRow(
        [inference] if inference else [], feedback, backwards, list(unusable.items()), known_as=known_as
    )


def _phoenix_annotation(
    one: Mapping[str, object], target: tuple[str, str], key: str, nanoseconds: int
) -> RawFeedback | None:
    result = {**one, **_mapping(one.get("result"))}
    source = SOURCE_OF.get(str(one.get("annotator_kind") or "").casefold(), "model")
    fields = {**result, "source": source, "user": one.get("user_id")}
    return read_evaluation(
        fields,
        target,
        str(one.get("id") or key),
        microseconds_of(one.get("created_at") or nanoseconds // 1000),
    )


def braintrust(row: Mapping[str, object]) -> ExportedRow | None:
    """A span of Braintrust's logs or experiments, as its interface, its queries or a CSV file have it. The root of a trace is an
    answer, and so is any other span that somebody scored or commented; what a scorer itself did is none."""
    if not (row.keys() >= _SPAN and row.keys() & _BRAINTRUST):
        return None
    scores = {name: value for name, value in _mapping(row.get("scores")).items() if value is not None}
    comments = _items(row.get("comments"))
    parents, kind = parse_json_text(row.get("span_parents")), _mapping(row.get("span_attributes")).get("type")
    is_root = row["span_id"] == row["root_span_id"] or not parents
    if kind == "score" or not (is_root or scores or comments):
        return ExportedRow()
    cut: list[str] = []
    id, time = id_of(row.get("id") or row["span_id"], "id", cut) or "", microseconds_of(row.get("created"))
    metrics, more = _mapping(row.get("metrics")), _mapping(row.get("metadata"))
    start, end = as_number(metrics.get("start")), as_number(metrics.get("end"))
    failed = parse_json_text(row.get("error"))
    inference = Inference(
        prompt=UNNAMED,
        id=id,
        inputs=as_inputs(row.get("input")),
        output=as_output(row.get("output")),
        model=id_of(more.get("model"), "model", cut),
        cost=as_number(metrics.get("estimated_cost")),
        latency=end - start if start is not None and end is not None and end >= start else None,
        input_tokens=_whole(metrics.get("prompt_tokens")),
        output_tokens=_whole(metrics.get("completion_tokens")),
        session=id_of(more.get("session_id"), "session", cut),
        user=id_of(more.get("user_id"), "user", cut),
        episode=id_of(row["root_span_id"], "episode", cut),
        error=short(failed, LONGEST_TEXT),
        time=time,
    )
    inference = replace(inference, metadata={"cut": cut} if cut else {})
    entries: list[tuple[dict[str, object], str, int]] = [
        ({"name": name, "score": value, "source": "code", "scale": "score"}, f"{id}#{name}", time)
        for name, value in scores.items()
    ]
    for number, one in enumerate(comments):
        words: dict[str, object] = {"explanation": _mapping(one.get("comment")).get("text"), "source": "user"}
        entries.append(
            (
                words,
                str(one.get("id") or f"{id}#{number}"),
                microseconds_of(one.get("created") or row.get("created")),
            )
        )
    feedback = [read_evaluation(fields, ("inference", id), key, when) for fields, key, when in entries]
    return ExportedRow([inference], [row for row in feedback if row is not None])


def _flatten(prefix: str, value: object, attributes: dict[str, object]) -> None:
    """Nested attributes under dotted names, the whole ones beside them."""
    if prefix:
        attributes[prefix] = value
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in items:
        _flatten(f"{prefix}.{key}" if prefix else str(key), parse_json_text(inner), attributes)


def row_id_of(row: Mapping[str, object]) -> object:
    """The id of a plain table's row."""
    named = {snake_case(key): value for key, value in row.items()}
    value = named.get("id", named.get("row_id"))
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def run_id_of(row: Mapping[str, object]) -> str:
    """The id of a run of LangSmith or a trace of Opik, which no other one has; '' for rows of tables, which may be numbered."""
    names = set(map(snake_case, row))
    return str(row_id_of(row) or "") if names & _RUNS else ""


def nested_scores(row: Mapping[str, object], target: tuple[str, str], time: int) -> list[RawFeedback]:
    """The scores that stand in a row with an answer: a list of them (`feedback_scores` of Opik), or names with numbers (`scores`
    of Braintrust)."""
    read = []
    for column, value in row.items():
        if snake_case(column) not in SCORES:
            continue
        content = parse_json_text(value)
        if isinstance(content, Mapping):
            listed: list[Mapping[str, object]] = [
                {"name": name, "value": one} for name, one in content.items()
            ]
        else:
            listed = _items(content)
        for number, one in enumerate(listed):
            by_person = str(one.get("source") or "").casefold() == "ui"
            fields = {
                "name": one.get("name"), "score": one.get("value", one.get("score")), "label": one.get("category_name"),
                "explanation": one.get("reason"), "source": "annotator" if by_person else None,
                "user": one.get("created_by") if by_person else None,
            }  # fmt: skip
            at = microseconds_of(one["created_at"]) if one.get("created_at") else time
            read.append(read_evaluation(fields, target, f"{target[1]}:{column}#{number}", at))
    return [one for one in read if one is not None]


def _mapping(value: object) -> Mapping[str, object]:
    content = parse_json_text(value)
    return content if isinstance(content, Mapping) else {}


def _items(value: object) -> list[Mapping[str, object]]:
    """The objects of a list, which may be written as a text; none where it is no list."""
    content = parse_json_text(value)
    return [_mapping(item) for item in content] if isinstance(content, list) else []


def _whole(value: object) -> int | None:
    number = as_number(value)
    return int(number) if number is not None and 0 <= number <= LARGEST_VERSION else None


def short(value: object, most: int) -> str | None:
    """The value as a text that is kept; None when there is none."""
    return storable_text(as_text(value))[:most] or None if value not in (None, "") else None


def id_of(value: object, name: str, cut: list[str]) -> str | None:
    """The value as an id (`fit_id`); None when there is none."""
    return fit_id(as_text(value), name, cut) or None if value not in (None, "") else None


def as_inputs(value: object) -> dict[str, object]:
    """An input as the values of slots: an object as it is, a list of messages as `messages`, a text as `input`."""
    content = parse_json_text(value)
    if isinstance(content, Mapping):
        return dict(content)
    if isinstance(content, list) and content and all(map(is_message, content)):
        return {"messages": content}
    return {} if value in (None, "") else {"input": storable_text(as_text(value))}


def as_output(value: object) -> str:
    """The text of an answer: of the last message, where it is a list of them; an answer that is JSON itself as it stands."""
    if value is None:
        return ""
    conversation = find_messages(value, "assistant")
    text = conversation[-1]["content"] if conversation else as_text(value)
    return storable_text(text)[:LONGEST_OUTPUT]
