"""Rows of feedback in the words of other tools (Phoenix, LangSmith, TensorZero, plain tables), in ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

from whet.errors import UsageError
from whet.feedback.rows import LONGEST, FeedbackRow, further_verdicts, read_row, snake_case
from whet_client.ids import new_id, now
from whet_client.records import (
    LONGEST_ID,
    LONGEST_LABEL,
    LONGEST_NAME,
    LONGEST_TEXT,
    SOURCES,
    Feedback,
    read_moment,
)
from whet_live.traffic.scales import STARS, THUMBS, RawFeedback

_ABOUT = {
    "span_id": "inference", "run_id": "inference", "inference_id": "inference", "observation_id": "inference",
    "trace_id": "episode", "episode_id": "episode", "session_id": "session", "response_id": "response",
}  # fmt: skip
_SAYS = frozenset(
    ("metric_name", "key", "score", "result", "annotator_kind", "rating", "comment", "correction", "label")
)
SOURCE_OF = {
    "human": "annotator", "annotator": "annotator", "annotation": "annotator", "api": "user", "app": "user",
    "user": "user", "end_user": "user", "llm": "model", "model": "model", "eval": "model", "code": "code",
    "program": "code",
}  # fmt: skip

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MARK = 32
"""Characters of the hash in an id that was too long: 128 bits."""


def is_foreign(row: Mapping[str, object]) -> bool:
    """Whether a row names its subject and its content as another tool does."""
    names = {snake_case(name) for name in row}
    return bool(names & _ABOUT.keys()) and bool(names & _SAYS)


def is_target(column: str) -> bool:
    """Whether a column, in lower case, names what a row is about."""
    return column in _ABOUT


def target_of(row: Mapping[str, object]) -> tuple[str, str] | None:
    """Target kind and id: the narrowest that the row names."""
    named = {snake_case(name): value for name, value in row.items()}
    for name, kind in _ABOUT.items():
        value = named.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return kind, str(value).strip()
    return None


def translate_row(row: Mapping[str, object], where: str) -> list[RawFeedback]:
    """One row as feedback of ours, with the scale that it states. Raises UsageError (`where` first) when it says nothing, or
    about nothing."""
    target = target_of(row)
    if target is None:
        raise UsageError(f"{where}: the row names nothing that it is about. Add inference_id or span_id.")
    content = read_row(row, where)
    scale = content.metadata.get("scale")
    rows = convert_content(content, row, target)
    for further in further_verdicts(row):
        verdict = read_row(further, where)
        rows += convert_content(verdict, further, target, f"{rows[0].feedback.id}:{verdict.column}")
    return [replace(row, scale=None if scale is None else str(scale)) for row in rows]


def convert_content(
    content: FeedbackRow, row: Mapping[str, object], target: tuple[str, str], own: str = ""
) -> list[RawFeedback]:
    """The content of one row, each item as feedback of its own: a number with its comment, a correction, a label.

    A word such as Good is a thumb. What a number is, all numbers of its column decide. Texts are cut to what is kept. Ids
    follow `own`, or else the row's own id.
    """
    names = {snake_case(name) for name in row}
    metric = next(
        (str(content.metadata[n]) for n in ("metric_name", "key", "name") if content.metadata.get(n)), ""
    )
    cut = _cut_texts(content)
    base = Feedback(
        kind="comment",
        target=fit_id(target[1], "target", cut),
        target_kind=target[0],
        name=storable_text(metric)[:LONGEST_NAME] or None,
        source=SOURCE_OF.get(snake_case(content.source or ""), "user"),
        user=fit_id(content.user or "", "user", cut) or None,
        time=microseconds_of(content.time),
        metadata={"cut": cut} if cut else {},
    )
    column = content.column or ""
    if column not in THUMBS | STARS:
        column = snake_case(metric) or column
    worded = content.liked is not None and (not metric or column in THUMBS | STARS)
    own = own or (content.id if names & {"id", "feedback_id", "row_id"} else "")
    rows = []
    for number, part in enumerate(_parts(base, content, worded)):
        numbered = part.kind == "score"
        part = replace(part, id=_id(own, part.kind, number))
        rows.append(RawFeedback(part, column, content.out_of) if numbered else RawFeedback(part))
    return rows


def _cut_texts(content: FeedbackRow) -> list[str]:
    """The texts of feedback that were too long to be kept whole."""
    texts = {
        "comment": content.comment,
        "correction": content.corrected,
        "explanation": content.explanation,
    }
    return [name for name, text in texts.items() if text is not None and len(text) == LONGEST]


def _parts(base: Feedback, content: FeedbackRow, worded: bool) -> list[Feedback]:
    parts: list[Feedback] = []
    reason = _cut_text(content.explanation or content.comment)
    label = storable_text(content.label or "")[:LONGEST_LABEL] or None
    if content.rating is not None:
        kind = "thumb" if worded else "score"
        parts.append(replace(base, kind=kind, value=content.rating, text=reason, label=label))
    elif label:
        parts.append(replace(base, kind="label", label=label, text=reason))
    texts = {part.text for part in parts}
    if content.corrected:
        parts.append(replace(base, kind="correction", text=_cut_text(content.corrected)))
    for text in dict.fromkeys((_cut_text(content.comment), _cut_text(content.explanation))):
        if text and text not in texts:
            parts.append(replace(base, kind="comment", text=text))
    return parts


def read_evaluation(
    fields: Mapping[str, object], target: tuple[str, str], id: str, time: int
) -> RawFeedback | None:
    """The result of an evaluation as feedback: `name`, `score`, `label`, `explanation`, `source`, `user`, `scale`.

    Numbers for thumbs or stars come from a user unless `source` says otherwise; else the source is a model. None when
    there is neither score, label nor explanation.
    """
    cut: list[str] = []
    name, label = _field(fields, "name", LONGEST_NAME, cut), _field(fields, "label", LONGEST_LABEL, cut)
    reason = _field(fields, "explanation", LONGEST_TEXT, cut)
    score, source = as_number(fields.get("score")), fields.get("source")
    if score is None and label is None and reason is None:
        return None
    kind = "score" if score is not None else "label" if label else "comment"
    metric = snake_case(name or "")
    if kind == "score" and metric in THUMBS | STARS:
        source = source or "user"
    user = fields.get("user")
    feedback = Feedback(
        kind=kind,
        target=fit_id(target[1], "target", cut),
        target_kind=target[0],
        value=score,
        label=label,
        text=reason,
        name=name,
        source=source if source in SOURCES else "model",
        user=None if user is None else fit_id(str(user), "user", cut) or None,
        id=fit_id(id, "id", cut),
        time=time,
        metadata={"cut": cut} if cut else {},
    )
    scale = fields.get("scale")
    return RawFeedback(
        feedback, metric if kind == "score" else "", scale=None if scale is None else str(scale)
    )


def _field(fields: Mapping[str, object], name: str, most: int, cut: list[str]) -> str | None:
    value = fields.get(name)
    text = storable_text(str(value)) if value not in (None, "") else ""
    if len(text) > most:
        cut.append(name)
    return text[:most] or None


def as_number(value: object) -> float | None:
    """A number, also one that is written as a text, true as 1; None when it is none.

    >>> as_number("0.5"), as_number(True), as_number("x")
    (0.5, 1.0, None)
    """
    if not isinstance(value, bool | int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def storable_text(text: str) -> str:
    """A text that every database keeps: no NUL, no half of a surrogate pair."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\x00", "")


def fit_id(text: str, name: str, cut: list[str]) -> str:
    """A text as an id of at most 200 characters on one line. Of a longer one its beginning and a hash of the whole, so that two
    that begin alike stay two, and everything that names one names the same; of one with control characters the same, with
    spaces in their place. Then `name` is added to what was `cut`."""
    text = storable_text(text)
    line = text if text.isprintable() else _CONTROL.sub(" ", text)
    if len(text) <= LONGEST_ID and line == text:
        return text
    cut.append(name)
    mark = hashlib.sha256(text.encode("utf-8")).hexdigest()[:_MARK]
    return f"{line[: LONGEST_ID - _MARK - 1]}#{mark}"


def _cut_text(text: str | None) -> str | None:
    return storable_text(text)[:LONGEST_TEXT] or None if text else None


def microseconds_of(value: object) -> int:
    """A time of another tool in microseconds: ISO 8601, or a number of seconds, milliseconds, microseconds or
    nanoseconds since 1970; now, when it cannot be read."""
    time = read_moment(value)
    return now() if time is None else time


def _id(own: str, kind: str, number: int) -> str:
    if not own:
        return new_id()
    return fit_id(own if number == 0 else f"{own}#{kind}", "id", [])
