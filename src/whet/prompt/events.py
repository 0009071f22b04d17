"""The typed events of an instruction ledger, and their form as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from whet.errors import UsageError, did_you_mean

PROPOSED, ACTIVE, EXPIRED, REJECTED = "proposed", "active", "expired", "rejected"


@dataclass(frozen=True, slots=True)
class Effect:
    """The measured counts: `before` and `after` are (violations, rollouts) without and with the instruction.

    `difference` is the fall of the violation rate, in [-1, 1]; `low` and `high` are its 95% interval.
    """

    before: tuple[int, int]
    after: tuple[int, int]
    difference: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a ledger: who did it and when (text given by the caller)."""

    author: str = ""
    at: str = ""
    kind: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    """The fence was found to hold this layout: at the start, or after a person edited it by hand."""

    kind: ClassVar[str] = "read"
    notes: tuple[tuple[bool, str], ...]
    newline: str = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Event):
    """A new instruction, at once `active` or `proposed` to a person."""

    kind: ClassVar[str] = "add"
    id: str
    text: str
    status: str = ACTIVE
    critiques: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    sources: int = 0
    tokens: int = 0
    whole: bool = False
    """Whether it was written as all that the fence says: where no other instruction stands, it is a text and no list item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite(Event):
    """Another text for an instruction, with what it now rests on in addition."""

    kind: ClassVar[str] = "rewrite"
    id: str
    text: str
    critiques: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    sources: int | None = None
    tokens: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Event):
    """Several instructions become the one `id`, with `text`; the others expire."""

    kind: ClassVar[str] = "merge"
    id: str
    others: tuple[str, ...]
    text: str
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(Event):
    """An instruction leaves the fence."""

    kind: ClassVar[str] = "expire"
    id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Event):
    """An instruction that expired stands again, with the text that it had, behind the others."""

    kind: ClassVar[str] = "restore"
    id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve(Event):
    """A conflict is decided: `keep` stays, `drop` expires."""

    kind: ClassVar[str] = "resolve"
    keep: str
    drop: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Event):
    """A person decides about a proposed instruction: it becomes active or rejected."""

    kind: ClassVar[str] = "decide"
    id: str
    approve: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(Event):
    """The effect of an instruction was measured."""

    kind: ClassVar[str] = "measure"
    id: str
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Event):
    """The state after the first `to` events is the state again."""

    kind: ClassVar[str] = "rollback"
    to: int
    reason: str = ""


EVENTS: Mapping[str, type[Event]] = {
    cls.kind: cls for cls in (Read, Add, Rewrite, Merge, Expire, Restore, Resolve, Decide, Measure, Rollback)
}


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    return {"kind": event.kind, **{key: _plain(value) for key, value in asdict(event).items()}}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def from_json(value: Mapping[str, object]) -> Event:
    """The event that `to_json` wrote. Raises UsageError for an unknown kind or field, and for a missing one."""
    values = {key: _freeze(item) for key, item in value.items()}
    kind = str(values.pop("kind", ""))
    if kind not in EVENTS:
        raise UsageError(f'There is no ledger event "{kind}".{did_you_mean(kind, EVENTS)}')
    try:
        if isinstance(values.get("effect"), Mapping):
            values["effect"] = Effect(**{key: _freeze(item) for key, item in values["effect"].items()})
        return EVENTS[kind](**values)
    except TypeError as error:
        raise UsageError(f"The event {kind} cannot be read: {error}.") from error


def _freeze(value: object) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value
