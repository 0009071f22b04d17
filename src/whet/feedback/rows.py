"""Feedback rows in the spellings of other tools, read into one value.

Phoenix (label, score, explanation, annotator_kind, span_id), LangSmith (key, score, value, comment,
correction), TensorZero (metric_name, value, inference_id; comment and demonstration), OpenAI Evals exports
(output_feedback, Good and Bad ratings, grader results) and plain tables are told apart by their keys, row by
row. Text in a row is data from strangers: it is typed and bounded here, and nothing in it is ever executed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whet._util.verdicts import Verdicts, order_values
from whet.errors import UsageError, parameter
from whet.task.delimited import MISSING, read_delimited
from whet.task.files import kind_of
from whet.task.rows import LINES, TABLES, SourceRow, check_columns, is_missing, read_rows
from whet.types import content_hash
from whet_client.storable import show_value

LONGEST = 8000
MOST_ROWS = 100_000
_MISSPELT = 0.75
"""The least similarity (of 1) at which a column counts as a misspelt known name; model and ideal have 0.6."""
COLUMNS = ("input", "output", "comment")
"""The forms of a file of feedback, for its errors."""
_KINDS = (*LINES, ".json", *TABLES)


class SaysNothing(UsageError):
    """A row that says nothing about an answer; `plain` is the message without the columns that may be misspelt."""

    def __init__(self, message: str, columns: Sequence[str]) -> None:
        super().__init__(message + misspelt_columns(columns))
        self.plain, self.columns = message, columns


@dataclass(frozen=True)
class FeedbackRow:
    """One row of feedback about one answer. A text is None where the row has none."""

    id: str
    input: str | None = None
    output: str | None = None
    comment: str | None = None
    rating: float | None = None
    """The number as it was given."""
    corrected: str | None = None
    """The answer as it should have been."""
    label: str | None = None
    """The label of a grader."""
    explanation: str | None = None
    """The explanation of a grader."""
    source: str | None = None
    """human, model, program, or what the row says."""
    user: str | None = None
    time: str | None = None
    liked: bool | None = None
    """The meaning of the rating, or else of the label: True, False, or None if that is unclear."""
    about: str | None = None
    """The rated object: a span, a run, an inference."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """All other columns."""
    where: str = ""
    """file:line."""
    cut: bool = False
    """Whether a text was longer than 8,000 characters."""
    instruction: str | None = None
    """A text that somebody wrote for the prompt itself."""
    column: str | None = None
    """The column of the rating."""
    out_of: float | None = None
    """The best rating, if the row states it, as in 4/5 and 4 out of 5."""
    word: str | None = None
    """The text in the place of the rating, if it is short and not a number."""
    scale: tuple[float, float] | None = None
    """The lowest and the highest rating of the scale by which `liked` was read; None: no scale was needed, or none is known."""
    signed: bool = False
    """Whether the rating is written with a plus sign, as on a scale that goes below 0."""

    @property
    def metric(self) -> str:
        """The name of what was rated, empty where the row has none."""
        return str(self.metadata.get("metric_name", self.metadata.get("key", self.metadata.get("name", ""))))

    @property
    def key(self) -> str:
        """The id with a hash of the content: small numbers name rows in many files."""
        return f"{self.id}:{content_hash(_content(self))[:8]}"


_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "feedback_id", "row_id"),
    "input": (
        "input", "inputs", "input_value", "item_input", "question", "query", "prompt", "user_message", 
        "request",
    ),
    "output": (
        "output", "outputs", "output_value", "output_text", "sample_output_text", "answer", "response",
        "completion", "generation", "model_output",
    ),
    "comment": (
        "comment", "comments", "output_feedback", "feedback", "critique", "note", "notes", 
        "annotation", "remark",
    ),
    "rating": (
        "rating", "score", "stars", "thumb", "thumbs", "thumbs_up", "vote", "like", "user_rating", "user_feedback",
        "passed", "pass",
    ),
    "corrected": (
        "corrected", "correction", "corrected_output", "demonstration", "expected_output", "edited",
        "edited_output", "should_be", "ideal", "reference_output",
    ),
    "label": ("label", "labels", "category"),
    "explanation": ("explanation", "reason", "reasoning", "rationale", "justification"),
    "source": (
        "source", "annotator_kind", "feedback_source_type", "feedback_source", "source_type", "annotator",
    ),
    "user": ("user", "user_id", "annotator_id", "author", "reviewer", "identifier", "end_user"),
    "time": ("time", "timestamp", "created_at", "created", "date", "updated_at", "modified_at"),
    "about": ("span_id", "run_id", "inference_id", "episode_id", "trace_id", "about", "item_id"),
}  # fmt: skip
_TEXTS = (
    "input",
    "output",
    "comment",
    "corrected",
    "label",
    "explanation",
    "source",
    "user",
    "time",
    "about",
)
_QUOTED = ("input", "output", "corrected", "label")
"""The columns whose values may be a text such as NULL."""
_SAYS = ("comment", "corrected", "label", "explanation")
_GRADERS = ("grader_results", "graders", "results")
_PREFIXES = ("attributes_", "annotation_", "result_")
_NESTED = ("result", "annotation", "sample", "item")

_NUMBER = re.compile(
    r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s*/\s*(\d{1,6})|(?:\s+[^\W\d_]+){1,2}\s+(5|10|100)(?!\d))?"
    r"(?:\s*[★⭐]|(?:\s+|-)[^\W\d_]+|\s*[-\u2013:(]\s*[^\W\d_]+(?:\s+[^\W\d_]+){0,4}\)?)?"
)
"""A rating with the best one (4/5, 4 out of 5), the word for what is counted (4 stars), or what it means (4 - Good)."""
_REMARK = re.compile(r"(?<!_)_*\([^()]*\)\Z")
"""The text in brackets behind the name of a column, as in `Rating (1-5)`."""
_INFINITE = ("inf", "infinity")
_WORDS = 2
"""A rating of more words is a comment."""


def read_feedback(
    sources: Sequence[str | Path | Mapping[str, object]],
    notes: list[str] | None = None,
    good: Sequence[str] = (),
    bad: Sequence[str] = (),
) -> list[FeedbackRow]:
    """All rows of feedback files (.jsonl, .json, .csv) or of mappings, in order, equal ones once.

    Rows about the same answer lend each other input and output. What had to be decided to read a table is added to `notes`.
    `good` and `bad` are values of ratings that are words, as the user orders them. Raises UsageError with file and line for a row
    that cannot be used, and for a rating of two words that nothing orders.
    """
    return read_judged_rows(sourced_rows(sources, [] if notes is None else notes), good, bad)


def sourced_rows(
    sources: Sequence[str | Path | Mapping[str, object]],
    notes: list[str] | None = None,
    columns: Sequence[str] = COLUMNS,
) -> list[SourceRow]:
    """The rows of feedback files or mappings as they stand, each with its place; `columns` are those that the error for a file
    without rows asks for. Raises UsageError as `table_rows` does."""
    sourced: list[SourceRow] = []
    for number, source in enumerate(sources, 1):
        if isinstance(source, Mapping):
            sourced.append(SourceRow(dict(source), f"row {number}"))
        else:
            sourced += table_rows(Path(source), notes, columns)
    if len(sourced) > MOST_ROWS:
        raise UsageError(
            f"There are {len(sourced)} rows of feedback; at most {MOST_ROWS} are read at once. Give fewer."
        )
    return sourced


def read_judged_rows(
    sourced: Sequence[SourceRow],
    good: Sequence[str] = (),
    bad: Sequence[str] = (),
    scale: tuple[float, float] | None = None,
) -> list[FeedbackRow]:
    """Rows as feedback, equal ones once; see `read_feedback`. `scale`: the lowest and the highest rating, else what the ratings
    show (`shown_scale`). Raises UsageError for a rating outside a stated scale."""
    rows = [read_row(row.value, row.where, instructed=True) for row in sourced]
    verdicts = order_ratings(rows, good, bad)
    if verdicts.stated:
        rows = [read_row(row.value, row.where, instructed=True, verdicts=verdicts) for row in sourced]
    return _unique(_complete_rows(_with_likes(rows, verdicts, scale)))


def order_ratings(rows: Iterable[FeedbackRow], good: Sequence[str] = (), bad: Sequence[str] = ()) -> Verdicts:
    """The meanings of the words in the columns of ratings, and in the column of labels if `good` or `bad` names one of them.
    Raises UsageError as `order_values` does."""
    columns: dict[str, dict[str, None]] = {}
    numbered, labels = set(), dict[str, None]()
    stated = {value.strip().casefold() for value in (*good, *bad)}
    for row in rows:
        name = row.metric or row.column or "rating"
        if row.word is not None:
            columns.setdefault(name, {})[row.word] = None
        elif row.rating is not None:
            numbered.add(name)
        elif row.label is not None:
            labels[row.label] = None
    if any(label.strip().casefold() in stated for label in labels):
        columns["label"] = {**columns.get("label", {}), **labels}
    alone = {name: [*words] for name, words in columns.items() if stated or name not in numbered}
    return order_values(alone, good, bad)


def table_rows(
    path: Path, notes: list[str] | None = None, columns: Sequence[str] = COLUMNS
) -> list[SourceRow]:
    """Rows of a feedback file (.jsonl, .json, .csv), each with its place; what had to be decided to read a table is added to
    `notes`. `columns` are those that the error for a file without rows asks for. Raises UsageError with file and line."""
    if kind_of(path) not in _KINDS:
        raise UsageError(f"{path}: feedback files end in {', '.join(_KINDS)}. Convert it.")
    if kind_of(path) not in TABLES:
        return read_rows(path, "feedback", example=json.dumps(dict.fromkeys(columns, "...")))
    return _csv(path, [] if notes is None else notes, columns)


def _csv(path: Path, notes: list[str], columns: Sequence[str]) -> list[SourceRow]:
    """Rows of a table: the first line names the columns; empty cells are absent."""
    table = read_delimited(path)
    check_columns(table.header, f"{path}:{table.header_line}")
    roles = {column: _role(column) for column in table.header}
    notes += table.all_notes(lambda column: roles[column] not in _QUOTED)
    rows = []
    for line, cells in table.records:
        filled = {
            column: cell
            for column, cell in zip(table.header, cells, strict=True)
            if cell.strip() and (roles[column] in _QUOTED or cell.strip() not in MISSING)
        }
        rows.append(SourceRow(filled, f"{path}:{line}"))
    if not rows:
        raise UsageError(f"{path}:1: there are no rows in the file. Write {','.join(columns)} and rows.")
    return rows


def read_row(
    row: Mapping[str, object],
    where: str = "row 1",
    *,
    instructed: bool = False,
    verdicts: Verdicts = Verdicts(),  # noqa: B008
) -> FeedbackRow:
    """One row as Feedback; `verdicts` say which words are good. Raises UsageError (`where` first) for a value of the wrong kind,
    and for a row without a rating, a comment, a correction, a label or an explanation; with `instructed` an instruction alone is
    enough."""
    left = flatten_row(row)
    metric = _metric(left, where)
    values: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for name, spellings in _NAMES.items():
        key = next((s for s in spellings if s in left), None)
        if key is not None:
            values[name], columns[name] = left.pop(key), key
    values = {**_graders(left), **values, **metric}
    texts = {name: read_text_value(values.get(name), name, where) for name in _TEXTS}
    rating = _rating(values.get("rating"), where, verdicts)
    liked = verdicts.of(values.get("rating"))
    text, word = values.get("rating"), None
    if isinstance(text, str) and (rating is None or liked is not None):
        word = text.strip() if len(text.split()) <= _WORDS else None
    if rating is None and isinstance(text, str):
        kind = "comment" if word is None else "label"
        texts[kind] = texts[kind] or text.strip()
    own = left.get("instruction")
    instruction = own.strip()[: LONGEST + 1] if isinstance(own, str) else ""
    if rating is None and not (instructed and instruction) and not any(texts[name] for name in _SAYS):
        raise SaysNothing(
            f"{where}: the row says nothing about an answer: no comment, rating, correction, label or "
            f"explanation. Its columns: {', '.join(map(str, row)) or 'none'}.",
            [*row],
        )
    key = values.get("id")
    row_id = str(key).strip() if isinstance(key, str | int) else ""
    fields: dict[str, Any] = {name: None if text is None else text[:LONGEST] for name, text in texts.items()}
    name = row_id[:200] or content_hash(_plain(row))[:12]
    cut = any(len(text or "") > LONGEST for text in (*texts.values(), instruction))
    fields["instruction"] = instruction[:LONGEST] or None
    fields["column"] = columns.get("rating")
    fields["out_of"] = _best_of(values.get("rating"))
    fields["signed"] = isinstance(text, str) and text.strip().startswith("+")
    return FeedbackRow(
        name, rating=rating, liked=liked, metadata=left, where=where, cut=cut, word=word, **fields
    )


def name_in(flat: Mapping[str, object], role: str) -> object:
    """The value of a flat row that `FeedbackRow` calls `role`, in whatever spelling; None where the row has none."""
    return next((flat[name] for name in _NAMES[role] if name in flat), None)


def further_verdicts(row: Mapping[str, object]) -> list[dict[str, object]]:
    """Of a row with several columns of verdicts (`thumb` beside `rating`), a row for each after the one that `read_row` reads:
    that column, and who said it when.

    >>> further_verdicts({"output": "a", "rating": 4, "passed": False, "user": "ann"})
    [{'user': 'ann', 'passed': False}]
    """
    roles = {column: _role(column) for column in map(str, row)}
    verdicts = sorted(
        (column for column, role in roles.items() if role == "rating" and not _is_empty(row[column])),
        key=lambda column: _NAMES["rating"].index(_without_prefix(snake_case(column))),
    )
    about = {column: row[column] for column, role in roles.items() if role in ("user", "time", "source")}
    return [{**about, column: row[column]} for column in verdicts[1:]]


def misspelt_columns(columns: Iterable[str], others: Iterable[str] = ()) -> str:
    """The columns that nothing reads and whose names are near to one that is read, each with that; '' where there are none.
    `others` are names that are read beside those of feedback.

    >>> misspelt_columns(["input", "ratng", "model"])
    ' Nothing reads the column \\'ratng\\'. Did you mean "rating"?'
    """
    import difflib  # a message that nobody may ever see

    present = {_without_prefix(snake_case(column)): str(column) for column in columns}
    known = {*others, *(name for names in _NAMES.values() for name in names)}
    near = {
        column: difflib.get_close_matches(name, sorted(known - present.keys()), 1, _MISSPELT)
        for name, column in present.items()
        if name not in known
    }
    return "".join(
        f' Nothing reads the column {show_value(column, 40)}. Did you mean "{words[0]}"?'
        for column, words in near.items()
        if words
    )


def snake_case(name: object) -> str:
    """A column's name in lower case with underscores: `userFeedback`, `user-feedback` are `user_feedback`.

    >>> snake_case("userFeedback"), snake_case("User Rating")
    ('user_feedback', 'user_rating')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.\-/:]+", "_", str(name).strip()).casefold().strip("_")


def _role(column: str) -> str:
    """The field of `FeedbackRow` that a column of a table fills; empty for any other column."""
    name = _without_prefix(snake_case(column))
    return next((role for role, spellings in _NAMES.items() if name in spellings), "")


def _without_prefix(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix) or name
    plain = _REMARK.sub("", name)
    return plain if any(plain in spellings for spellings in _NAMES.values()) else name


def flatten_row(row: Mapping[str, object]) -> dict[str, object]:
    """Keys in lower case with underscores and without the prefixes of exports; nested results lifted up."""
    flat: dict[str, object] = {}
    for key, value in row.items():
        name = snake_case(key)
        if name in _NESTED and isinstance(value, Mapping):
            flat.update({k: v for k, v in flatten_row(value).items() if k not in flat})
            continue
        if name == "feedback_source" and isinstance(value, Mapping):
            value = value.get("type")
        flat[_without_prefix(name)] = value
    return {key: value for key, value in flat.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    """Whether a value says that there is none: nothing, an empty text, or what data frames write (NaN)."""
    return (
        value is None or value == "" or is_missing(value) or (isinstance(value, float) and math.isnan(value))
    )


def _metric(left: dict[str, object], where: str) -> dict[str, Any]:
    """TensorZero's and LangSmith's named values: a comment, a demonstration, or a rating under the metric's
    name.
    """
    name = left.pop("metric_name", None)
    if name is None and (score := _langfuse_score(left)) is not None:
        return score
    if name is None:
        if "key" not in left or "score" in left or "value" not in left:
            return {}
        value = left.pop("value")
        return {"label": value} if isinstance(value, str) else {"rating": value}
    if "value" not in left:
        raise UsageError(f'{where}: the metric "{name}" has no `value`. Add it.')
    value = left.pop("value")
    if name in ("comment", "demonstration"):
        return {"comment" if name == "comment" else "corrected": value}
    left["metric_name"] = name
    return {"rating": value}


_SCORES = {
    "NUMERIC": "rating",
    "BOOLEAN": "rating",
    "CATEGORICAL": "label",
    "TEXT": "comment",
    "CORRECTION": "corrected",
}
"""The meaning of Langfuse's scores, by their `dataType`."""


def _langfuse_score(left: dict[str, object]) -> dict[str, Any] | None:
    """A score as Langfuse exports it: what it says stands in `stringValue` beside a `value` that is a number also where it counts
    nothing; None for any other row."""
    role = _SCORES.get(str(left.get("data_type")).upper())
    if role is None or "name" not in left or not {"value", "string_value"} & left.keys():
        return None
    left["metric_name"] = left.pop("name")
    value, text = left.pop("value", None), left.pop("string_value", None)
    if left["data_type"] == "BOOLEAN" and text is None:
        text = str(value) in ("1", "1.0", "True")
    return {role: value if text is None or left["data_type"] == "NUMERIC" else text}


def _graders(left: Mapping[str, Any]) -> dict[str, object]:
    """Label and explanation from grader results, a list of {name, passed or score, reason}."""
    lists: list[list[object]] = [left[key] for key in _GRADERS if isinstance(left.get(key), list)]
    results = lists[0] if lists else []
    rows = [flatten_row(row) for row in results if isinstance(row, Mapping)]
    failed = [row for row in rows if row.get("passed", row.get("pass")) is False or row.get("score") == 0]
    reasons = [str(r) for row in failed for k in _NAMES["explanation"] if (r := row.get(k))]
    if not rows:
        return {}
    return {"label": "fail" if failed else "pass", "explanation": "\n".join(reasons) or None}


def read_text_value(value: object, name: str, where: str) -> str | None:
    """A text; messages and content blocks become their text, other objects with one entry their value, else
    JSON.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value.strip() if name not in ("input", "output", "corrected") else value
    if isinstance(value, bool) or (
        isinstance(value, int | float) and name in ("comment", "explanation", "corrected")
    ):
        raise UsageError(f"{where}: {name} must be a text; this is {show_value(value)}. Put it in quotes.")
    if isinstance(value, list):
        parts = [part.get("text", part.get("content")) for part in value if isinstance(part, Mapping)]
        if parts and all(isinstance(part, str) for part in parts):
            return "\n".join(str(part) for part in parts)
    if isinstance(value, Mapping) and len(value) == 1:
        return read_text_value(next(iter(value.values())), name, where)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: {name} must be a text; this is {show_value(value)}.") from None


def _rating(value: object, where: str, verdicts: Verdicts) -> float | None:
    """A number; a value that `verdicts` know is 1 or 0; another word is no rating but a label.

    Raises UsageError for a text that is meant as a number and is not written as one: `0,5`, `50%`, `inf`.
    """
    if value is None:
        return None
    verdict = verdicts.of(value)
    if verdict is not None:
        return float(verdict)
    if isinstance(value, int | float):
        if abs(value) <= sys.float_info.max:
            return float(value)
    elif isinstance(value, str):
        if set(value.strip()) == {"★"} or set(value.strip()) == {"⭐"}:
            return float(len(value.strip()))
        match = _NUMBER.fullmatch(value.strip())
        number = float(match[1]) if match else math.inf
        if math.isfinite(number):
            return number
        unread = re.search(r"\d", value) is not None and re.search(r"[^\W\d_]", value) is None
        if match or unread or value.strip().lstrip("+-").casefold() in _INFINITE:
            raise UsageError(
                f"{where}: the rating {show_value(value, 40)} is no plain number. Write one such as 0.5 or 4: with a point, "
                "without a percent sign, finite."
            )
        return None
    raise UsageError(
        f"{where}: the rating must be a number or a word such as Good; this is {show_value(value)}."
    )


def _best_of(value: object) -> float | None:
    """The best rating where a text says it: 5 for 4/5 and for stars that are drawn."""
    text = value.strip() if isinstance(value, str) else ""
    match = _NUMBER.fullmatch(text)
    best = None if match is None else match[2] or match[3]
    if best is not None:
        return float(best)
    return 5.0 if text and set(text) in ({"★"}, {"⭐"}) and len(text) <= 5 else None


def _with_likes(
    rows: Sequence[FeedbackRow], verdicts: Verdicts, stated: tuple[float, float] | None
) -> list[FeedbackRow]:
    """`liked` and `scale` from the rating, on the stated scale or the one that all rows of one metric show, else from the
    label."""
    ratings: dict[str, list[float]] = {}
    best: dict[str, float] = {}
    for row in rows:
        if row.rating is not None and row.liked is None:
            ratings.setdefault(row.metric, []).extend(
                [row.rating, -row.rating] if row.signed else [row.rating]
            )
            if row.out_of is not None:
                best[row.metric] = max(row.out_of, best.get(row.metric, 0.0))
            if stated is not None and not stated[0] <= row.rating <= stated[1]:
                raise UsageError(
                    f"{row.where}: the rating {row.rating:g} is outside the scale {stated[0]:g} to {stated[1]:g}. Mend the "
                    f"rating, or {parameter('scale')}."
                )
    scales = {
        metric: stated or shown_scale(min(values), max(values), best.get(metric))
        for metric, values in ratings.items()
    }
    rated = []
    for row in rows:
        if row.liked is None and row.rating is not None:
            scale = scales[row.metric]
            row = replace(row, liked=None if scale is None else _likes(row.rating, *scale), scale=scale)
        elif row.liked is None:
            row = replace(row, liked=verdicts.of(row.label))
        rated.append(row)
    return rated


def shown_scale(low: float, high: float, best: float | None = None) -> tuple[float, float] | None:
    """The lowest and the highest rating of the scale that ratings between `low` and `high` show; None where they show none.

    `best` is the best rating where a row says it, as in 4/7. Below 0 the scale is symmetric. Up to 1 it is 0..1, but a lone 1 may
    be its best as well as the worst of 1..5. Ratings from 0 or 1 to a whole number up to 10, at least 2 more, show just that
    scale. Others up to 5 are taken to be stars, others up to 10 are of no known scale unless they reach it, and those from there
    to 100 are percent.

    >>> shown_scale(1, 7), shown_scale(0, 100), shown_scale(2, 4), shown_scale(5, 6), shown_scale(5, 6, best=7)
    ((1.0, 7.0), (0.0, 100.0), (1.0, 5.0), None, (1.0, 7.0))
    """
    if low < 0:
        end = max(-low, high)
        return -end, end
    high = max(high, best or 0.0)
    if high <= 1:
        return None if low == high == 1 else (0.0, 1.0)
    lowest = 0.0 if low < 1 or high > 10 else 1.0
    if best is not None or (low == lowest and lowest + 2 <= high <= 10 and high == round(high)):
        return lowest, float(high)
    if high <= 5:
        return lowest, 5.0
    if high == 10 or 10 < high <= 100:
        return lowest, 10.0 if high == 10 else 100.0
    return None


def _likes(rating: float, low: float, high: float) -> bool | None:
    """Whether a rating is in the upper half of its scale; None in the middle."""
    middle = (low + high) / 2
    return None if rating == middle else rating > middle


def _complete_rows(rows: Sequence[FeedbackRow]) -> list[FeedbackRow]:
    """Input and output from another row about the same answer, where a row has none."""
    known: dict[str, FeedbackRow] = {}
    for row in rows:
        if row.about is not None:
            best = known.setdefault(row.about, row)
            known[row.about] = replace(best, input=best.input or row.input, output=best.output or row.output)
    lent = {about: (best.input, best.output) for about, best in known.items()}
    pairs = [(row, lent[row.about] if row.about is not None else (None, None)) for row in rows]
    return [replace(row, input=row.input or i, output=row.output or o) for row, (i, o) in pairs]


def _unique(rows: Iterable[FeedbackRow]) -> list[FeedbackRow]:
    """Equal rows once; different rows with one id get ids of their own."""
    unique: dict[str, FeedbackRow] = {}
    for row in rows:
        content = _content(row)
        other = unique.get(row.id)
        if other is not None and _content(other) != content:
            row = replace(row, id=f"{row.id}#{content_hash(content)[:6]}")
        unique.setdefault(row.id, row)
    return list(unique.values())


def _content(row: FeedbackRow) -> list[object]:
    texts = [getattr(row, name) for name in _TEXTS]
    return [*texts, row.rating, row.metric, *filter(None, [row.instruction])]


def _plain(row: Mapping[str, object]) -> object:
    """The row as JSON, whatever it holds."""
    return json.loads(json.dumps(dict(row), default=str, sort_keys=True))
