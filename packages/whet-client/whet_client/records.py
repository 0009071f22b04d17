"""The reports of an app: inferences, and what people and programs say or do about them. One vocabulary, checked here.

The same values travel from the client to the server and into the database. Every text is data from strangers: it is
bounded, and nothing in it is ever executed.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

from whet_client.errors import UsageError, did_you_mean, named_fields
from whet_client.ids import iso, microseconds, new_id, now

LONGEST_ID = 200
LONGEST_NAME = 255
LONGEST_LABEL = 200
LONGEST_TEXT = 32_000
LONGEST_OUTPUT = 256_000
LONGEST_INPUTS = 256_000
LONGEST_METADATA = 16_000
DEEPEST = 64
"""Levels of nesting in a JSON value."""
LARGEST_VERSION = 2**31 - 1
EARLIEST, LATEST = 946_684_800_000_000, 4_102_444_800_000_000
"""Bounds on a time: 2000-01-01 and 2100-01-01 in microseconds since 1970."""
SERVICE = "otlp/"
"""The beginning of the prompt of an answer that names none: the service follows, whatever its name is."""
_SEGMENT = re.compile(r"[\w.+-](?:[\w .+-]*[\w.+-])?")


def read_moment(value: object) -> int | None:
    """The time, in microseconds, of a text in ISO 8601, or of a number of seconds, milli-, micro- or nanoseconds since 1970; None
    for what is none."""
    text = str(value).strip() if value is not None else ""
    if re.fullmatch(r"\d{10,19}(\.\d+)?", text):
        number = float(text) if "." in text else int(text)
        for unit in (1_000_000, 1000, 1):
            if EARLIEST <= number * unit < LATEST:
                return int(number * unit)
        number = int(number) // 1000
        return number if EARLIEST <= number < LATEST else None
    try:
        time = microseconds(text)
    except UsageError:
        return None
    return time if EARLIEST <= time < LATEST else None


SOURCES = ("user", "annotator", "model", "code")
"""The kind of source: a user of the app, a reviewer of answers, a judge model, a program."""

TARGETS = ("inference", "response", "episode", "session")
"""The subject of feedback: an inference, the provider's id of its response, or everything in an episode or session."""


@dataclass(frozen=True, slots=True)
class FeedbackKind:
    """One word of the vocabulary. `low` and `high` bound `value`, `only` says which values there are, if few; `needs` is
    the field that must be there."""

    name: str
    meaning: str
    explicit: bool
    needs: Literal["value", "text", "label"] = "value"
    low: float = 0.0
    high: float = 1.0
    default: float | None = None
    only: tuple[float, ...] = ()


def _kinds(*kinds: FeedbackKind) -> Mapping[str, FeedbackKind]:
    return {kind.name: kind for kind in kinds}


KINDS: Mapping[str, FeedbackKind] = _kinds(
    FeedbackKind("rating", "stars, 1 (worst) to 5", True, low=1, high=5),
    FeedbackKind("thumb", "1 for up, 0 for down", True, only=(0, 1)),
    FeedbackKind("score", "a number under the name of a metric", True, low=-1e12, high=1e12),
    FeedbackKind("comment", "free text about the answer", True, needs="text"),
    FeedbackKind("correction", "the answer as it should have been", True, needs="text"),
    FeedbackKind("label", "a category, with the reason as text", True, needs="label"),
    FeedbackKind(
        "choice",
        "1: preferred to the inference that `label` names, 0: the other one, 0.5: equal",
        True,
        only=(0, 0.5, 1),
    ),
    FeedbackKind("copy", "part of the answer that was copied", False, default=1.0),
    FeedbackKind("edit_distance", "0: used as it was, 1: rewritten altogether", False),
    FeedbackKind(
        "regenerate", "times that another answer was asked for", False, low=1, high=1000, default=1.0
    ),
    FeedbackKind(
        "follow_up", "questions asked back; `text` may hold one", False, low=1, high=1000, default=1.0
    ),
    FeedbackKind("abandon", "1: left without using the answer", False, default=1.0),
    FeedbackKind("dwell", "seconds spent on the answer", False, high=86_400),
    FeedbackKind("share", "times the answer was passed on", False, low=1, high=1000, default=1.0),
    FeedbackKind("external_check", "how well it did outside: tests passed, sale made", False),
)
"""Every kind of feedback. Implicit kinds are those that are not `explicit`."""

IMPLICIT = tuple(name for name, kind in KINDS.items() if not kind.explicit)


@named_fields
@dataclass(frozen=True, slots=True)
class Inference:
    """One answer of a prompt in production.

    A blank user, session, episode or other such name counts as absent. The same id and content twice are one row.
    """

    prompt: str
    version: int = 0
    """The version of the prompt; 0: unknown."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """The values of the prompt's slots."""
    output: str = ""
    id: str = field(default_factory=new_id)
    """The idempotency key."""
    model: str | None = None
    cost: float | None = None
    """US dollars."""
    latency: float | None = None
    """Seconds."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str | None = None
    user: str | None = None
    episode: str | None = None
    """Joins all calls that share an outcome."""
    experiment: str | None = None
    """The experiment that assigned the version."""
    variant: str | None = None
    """The variant that was assigned."""
    response: str | None = None
    """The provider's own id of the answer."""
    error: str | None = None
    time: int = field(default_factory=now)
    """Microseconds since 1970-01-01 UTC."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _drop_blank_names(self)

    def as_json(self) -> dict[str, Any]:
        """The fields with a value, in the form that the server reads."""
        return _as_json(self)


@named_fields
@dataclass(frozen=True, slots=True)
class Feedback:
    """One rating, comment or action of a person about `target`.

    A blank user counts as absent. The same id and content twice are one row.
    """

    kind: str
    """A word of KINDS; it bounds `value`."""
    target: str
    value: float | None = None
    text: str | None = None
    """The comment, the correction, or the reason of a label or score."""
    label: str | None = None
    name: str | None = None
    """The metric of a score or label."""
    target_kind: str = "inference"
    """The kind of `target`."""
    source: str = "user"
    user: str | None = None
    id: str = field(default_factory=new_id)
    """The idempotency key."""
    time: int = field(default_factory=now)
    """Microseconds since 1970-01-01 UTC."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _drop_blank_names(self)

    def as_json(self) -> dict[str, Any]:
        """The fields with a value, in the form that the server reads."""
        return _as_json(self)


NAMES = ("model", "session", "user", "episode", "experiment", "variant", "response")
"""Fields that name something beside the record: a blank one names nothing, as `user=""` for somebody who has not signed in."""


def is_blank(value: object) -> bool:
    """Whether a value is a text without a character that shows."""
    return isinstance(value, str) and not value.strip()


def _drop_blank_names(record: Inference | Feedback) -> None:
    for name in NAMES if isinstance(record, Inference) else ("user",):
        if is_blank(getattr(record, name)):
            object.__setattr__(record, name, None)


_USUAL = {"version": 0, "output": "", "target_kind": "inference", "source": "user"}


def _as_json(record: Inference | Feedback) -> dict[str, object]:
    data: dict[str, object] = {}
    for one in fields(record):
        value = getattr(record, one.name)
        empty = value is None or (isinstance(value, Mapping) and not value)
        if not empty and (one.name not in _USUAL or value != _USUAL[one.name]):
            data[one.name] = iso(value) if one.name == "time" else value
    return data


_CONTENT = {
    kind: tuple(one.name for one in fields(kind) if one.name != "time") for kind in (Inference, Feedback)
}


def encode_with_size(record: Inference | Feedback) -> tuple[bytes, int]:
    """The digest of a record, 16 bytes, and the bytes of its content as JSON. Two records with one id and other digests
    contradict each other.

    The time is no content: a sender that leaves it out may send the same record again later.
    """
    values = [getattr(record, name) for name in _CONTENT[type(record)]]
    plain = [float(value) if isinstance(value, int) else value for value in values]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), default=dict)
    import hashlib

    return hashlib.sha256(text.encode("ascii")).digest()[:16], len(text)


def describe_record(record: Inference | Feedback) -> str:
    """The record in a few words, for a message: `thumb=1 about inference "x"`."""
    if isinstance(record, Inference):
        summary = f"an answer of {record.prompt} version {record.version} at {iso(record.time)}"
        return f'{summary}: "{_short(record.output)}"'
    value = record.label if record.value is None else f"{record.value:g}"
    summary = record.kind if value is None else f"{record.kind}={value}"
    text = f': "{_short(record.text)}"' if record.text else ""
    return f'{summary} about {record.target_kind} "{_short(record.target)}" at {iso(record.time)}{text}'


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:60]}…"


THUMBS: Mapping[str, float] = {
    "up": 1.0, "thumbs_up": 1.0, "thumb_up": 1.0, "like": 1.0, "positive": 1.0, "true": 1.0, "1": 1.0, "+1": 1.0, "👍": 1.0,
    "down": 0.0, "thumbs_down": 0.0, "thumb_down": 0.0, "dislike": 0.0, "negative": 0.0, "false": 0.0, "0": 0.0, "-1": 0.0,
    "👎": 0.0,
}  # fmt: skip
"""Values of a thumb as programs write them, in lower case."""


def thumb_value(value: object, where: str) -> float | None:
    """A thumb as a number: 1 for up, 0 for down, from a number, a truth value or a word of other tools. Raises UsageError
    (`where` first) for anything else."""
    if value is None:
        return None
    word = str(value).strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else ""
    known = THUMBS.get(word, THUMBS.get(str(value).strip()))
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        known = float(value)
    if known is None:
        raise UsageError(f'{where} is {_shorten(value)}; a thumb is "up" or "down", true or false, 1 or 0.')
    return known


@lru_cache(1000)
def prompt_name_fault(name: str) -> str:
    """Why a text cannot be the name of a prompt; '' for one that can.

    At most 255 characters; folders are separated by `/`; letters and digits of any script, blanks inside, and `_ . + -`.
    The last part is not a number, which would be read as a version. A part has at most 255 bytes in UTF-8, so that it can
    be the name of a folder.

    >>> prompt_name_fault("shop/help"), prompt_name_fault("shop/3")
    ('', 'its last part is a number, which would be read as a version.')
    """
    if len(name) > LONGEST_NAME:
        return f"it has {len(name)} characters, at most {LONGEST_NAME} are allowed."
    if unicodedata.normalize("NFC", name) != name:
        return "write its accents composed (Unicode NFC)."
    parts = name.split("/")
    if not all(_SEGMENT.fullmatch(part) and set(part) != {"."} for part in parts):
        return "use letters, digits, blanks inside and _ . + - in each part, and / between the parts."
    if any(len(part.encode("utf-8")) > LONGEST_NAME for part in parts):
        return f"a part of it has more than {LONGEST_NAME} bytes, too long for the name of a folder."
    if parts[-1].isascii() and parts[-1].isdecimal():
        return "its last part is a number, which would be read as a version."
    return ""


def checked_inference(record: Inference, where: str = "inference") -> Inference:
    """The record itself, if every field is as it must be. Raises UsageError naming the field (`where` first)."""
    checked_name(record.id, "id", where, least=1)
    _text(record.prompt, "prompt", where, LONGEST_NAME, least=1)
    if "|" in record.prompt:
        raise UsageError(f'{where}: prompt: "{record.prompt[:60]}" has a |, which no name has. Leave it out.')
    if not record.prompt.startswith(SERVICE) and (fault := prompt_name_fault(record.prompt)):
        raise UsageError(
            f"{where}: prompt: {_shorten(record.prompt)} cannot be the name of a prompt: {fault}"
        )
    _whole(record.version, "version", where, LARGEST_VERSION)
    _text(record.output, "output", where, LONGEST_OUTPUT)
    for name in NAMES:
        checked_name(getattr(record, name), name, where)
    _text(record.error, "error", where, LONGEST_TEXT)
    for name, high in (("cost", 1e6), ("latency", 1e7)):
        _number(getattr(record, name), name, where, 0, high)
    for name in ("input_tokens", "output_tokens"):
        _whole(getattr(record, name), name, where, LARGEST_VERSION)
    _mapping(record.inputs, "inputs", where, LONGEST_INPUTS)
    _mapping(record.metadata, "metadata", where, LONGEST_METADATA)
    _moment(record.time, where)
    return record


def checked_feedback(record: Feedback, where: str = "feedback") -> Feedback:
    """The record itself, if every field is as it must be. Raises UsageError naming the field (`where` first)."""
    kind = KINDS.get(record.kind) if isinstance(record.kind, str) else None
    if kind is None:
        known = did_you_mean(str(record.kind), KINDS)
        raise UsageError(f"{where}: kind: {_shorten(record.kind)} is no kind of feedback.{known}")
    checked_name(record.id, "id", where, least=1)
    checked_name(record.target, "target", where, least=1)
    _one_of(record.target_kind, TARGETS, "target_kind", where)
    _one_of(record.source, SOURCES, "source", where)
    _text(record.text, "text", where, LONGEST_TEXT)
    _text(record.label, "label", where, LONGEST_LABEL)
    _text(record.name, "name", where, LONGEST_NAME)
    checked_name(record.user, "user", where)
    if getattr(record, kind.needs) in (None, ""):
        raise UsageError(f"{where}: {kind.needs}: a {kind.name} ({kind.meaning}) needs one. Add it.")
    if kind.name == "choice" and not record.label:
        raise UsageError(f"{where}: label: a choice names the other inference there. Add it.")
    if kind.name == "choice" and record.label == record.target:
        raise UsageError(
            f"{where}: label: a choice is between two inferences; this names the same one twice."
        )
    if kind.needs != "value" and record.value is not None:
        raise UsageError(
            f"{where}: value: a {kind.name} has none; a number belongs to a score. Leave it out."
        )
    unit = "Give it in a larger unit, such as millions." if kind.name == "score" else ""
    _number(record.value, "value", where, kind.low, kind.high, unit)
    if kind.only and record.value is not None and record.value not in kind.only:
        few = " or ".join([", ".join(f"{one:g}" for one in kind.only[:-1]), f"{kind.only[-1]:g}"])
        raise UsageError(f"{where}: value must be {few}; this is {_shorten(record.value)}.")
    _mapping(record.metadata, "metadata", where, LONGEST_METADATA)
    _moment(record.time, where)
    return record


def _text(value: object, name: str, where: str, most: int, least: int = 0) -> None:
    if value is None and not least:
        return
    if not isinstance(value, str):
        raise UsageError(f"{where}: {name} must be a text; this is {_shorten(value)}.")
    if not least <= len(value) <= most:
        few = "is empty" if len(value) < least else f"has {len(value)} characters, at most {most}"
        raise UsageError(f"{where}: {name} {few}. {'Fill it in' if len(value) < least else 'Shorten it'}.")
    check_storable(value, f"{where}: {name}")


def checked_name(value: object, name: str, where: str, least: int = 0) -> None:
    """Refuse a text that is no id and no name, which stand in addresses: a text on one line, without control characters, of 200
    characters at most. Raises UsageError naming it (`where` first)."""
    _text(value, name, where, LONGEST_ID, least)
    if not isinstance(value, str) or value.isprintable():
        return
    if any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in value):  # Unicode's category Cc
        raise UsageError(f"{where}: {name} holds a control character: {_shorten(value)}. Leave it out.")


def check_storable(value: object, where: str) -> None:
    """Refuse a text that no database keeps: one with a NUL or half a surrogate pair. Raises UsageError."""
    if isinstance(value, str) and ("\x00" in value or not _encodable(value)):
        raise UsageError(f"{where} has a NUL or half a surrogate pair, which is no text. Remove it.")


def checked_depth(value: Mapping[str, object], where: str) -> None:
    """Refuse a JSON object of more than `DEEPEST` levels: the database and every answer must hold it. Raises UsageError."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner = (one for outer in level for one in (outer.values() if isinstance(outer, Mapping) else outer))
        level = [item for item in inner if isinstance(item, Mapping | list | tuple)]
        if not level:
            return
    raise UsageError(f"{where} is nested more than {DEEPEST} levels deep. Make it flatter.")


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _number(value: object, name: str, where: str, low: float, high: float, remedy: str = "") -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        refusal = f"{where}: {name} must be a number from {low:g} to {high:g}; this is {_shorten(value)}."
        raise UsageError(f"{refusal} {remedy}".rstrip() if number and abs(value) < math.inf else refusal)  # type: ignore[arg-type]


def _whole(value: object, name: str, where: str, high: int) -> None:
    if value is None and name != "version":
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise UsageError(f"{where}: {name} must be a whole number from 0; this is {_shorten(value)}.")


def _moment(value: object, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(
            f"{where}: time must be a whole number, the microseconds since 1970; this is {_shorten(value)}."
        )
    if not EARLIEST <= value < LATEST:
        raise UsageError(
            f"{where}: time must lie between the years 2000 and 2100; this is {_shorten(value)}."
        )


def _one_of(value: object, known: tuple[str, ...], name: str, where: str) -> None:
    if value not in known:
        raise UsageError(f"{where}: {name}: {_shorten(value)} is none of {', '.join(known)}.")


def _mapping(value: object, name: str, where: str, most: int) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {name} must be an object; this is {_shorten(value)}.")
    if not value:
        return
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {name} is not JSON: {error}.") from None
    if text.count("{") + text.count("[") > DEEPEST:
        checked_depth(value, f"{where}: {name}")
    _check_members(value, f"{where}: {name}")
    if len(text) > most:
        raise UsageError(f"{where}: {name} has {len(text)} characters as JSON, at most {most}. Shorten it.")


def _check_members(value: object, where: str) -> None:
    """Refuse a JSON value with a key that is no text, or with a text or a whole number that no database keeps."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise UsageError(f"{where}: the key {_shorten(key)} is no text. Write it as one.")
            check_storable(key, f"{where}: the key {_shorten(key)}")
            _check_members(inner, where)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_members(inner, where)
    elif isinstance(value, str):
        check_storable(value, f"{where}: {_shorten(value)}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise UsageError(f"{where}: {_shorten(value)} has more than 64 bits. Write it as a text.")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
