"""The instruction ledger: managed instructions, the events that change them, and the fold that rebuilds any state.

A ledger is never stored, only its events are. `fold(events)` is the state; `states(events)` are all
states on the way, so that any of them can be shown, compared or returned to. Returning is an event as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from whet.errors import EditRejected, UsageError, did_you_mean
from whet.prompt.events import (
    ACTIVE,
    EXPIRED,
    PROPOSED,
    REJECTED,
    Add,
    Decide,
    Effect,
    Event,
    Expire,
    Measure,
    Merge,
    Read,
    Resolve,
    Restore,
    Rewrite,
    Rollback,
)
from whet_client.prompt.fence import LOOKS_LIKE_MARKER
from whet_client.prompt.slots import SLOT

LONGEST = 4000
MERGED_INTO = "merged into "
"""The beginning of the reason of an instruction that became part of another instruction, whose id follows."""

_LIST_MARKS = re.compile(r"(?:[-*•][ \t]+)+(?=\S)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One managed rule of a fence. Dates are given by the caller."""

    id: str
    text: str
    status: str = ACTIVE
    critiques: tuple[str, ...] = ()
    """Verbatim wordings of the complaint."""
    evidence: tuple[str, ...] = ()
    """Ids of the rollouts or feedback rows that the critiques came from."""
    sources: int = 0
    """Independent sources of the critiques."""
    author: str = ""
    created: str = ""
    changed: str = ""
    tokens: int = 0
    """The cost of the line in every call."""
    effect: Effect | None = None
    reason: str = ""
    """Why it is expired or rejected."""
    whole: bool = False
    """Whether it stands as a text and not as an item of a list where no other instruction stands."""


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """A piece of the fence in order: unmanaged `text`, or the place of the instruction `id`."""

    id: str = ""
    text: str = ""


@dataclass(frozen=True)
class Ledger:
    """All instructions ever, and the layout of the fence. `counter` numbers ids; it never goes back."""

    instructions: Mapping[str, Instruction] = field(default_factory=dict)
    layout: tuple[LayoutEntry, ...] = ()
    newline: str = "\n"
    counter: int = 0

    def __getitem__(self, key: str) -> Instruction:
        """The instruction of that id. Raises UsageError with the nearest known one."""
        if key not in self.instructions:
            raise UsageError(f'There is no instruction "{key}".{did_you_mean(key, self.instructions)}')
        return self.instructions[key]

    def successor(self, key: str) -> str:
        """The instruction of which that id became part, over any number of merges; the id itself where it did not."""
        one = self.instructions.get(key)
        while one is not None and one.status == EXPIRED and one.reason.startswith(MERGED_INTO):
            key = one.reason.removeprefix(MERGED_INTO)
            one = self.instructions.get(key)
        return key

    @property
    def active(self) -> tuple[Instruction, ...]:
        """The instructions that the fence shows, in order."""
        return tuple(self.instructions[entry.id] for entry in self.layout if entry.id)

    @property
    def tokens(self) -> int:
        """Tokens of all active instructions."""
        return sum(i.tokens for i in self.active)

    @property
    def next_id(self) -> str:
        """The id of the next new instruction."""
        return f"i{self.counter + 1}"


def reason_to_refuse(text: str) -> str | None:
    """Why a text cannot be an instruction, or None. It is refused, never repaired."""
    if not any(c.isalnum() for c in text):
        return "the text says nothing"
    if len(text) > LONGEST:
        return f"the text has {len(text)} characters; an instruction has at most {LONGEST}"
    if text != text.strip():
        return "the text begins or ends with white space"
    if LOOKS_LIKE_MARKER.search(text):
        return "the text contains a fence marker"
    if SLOT.search(text):
        return "the text contains a slot in double braces"
    if _CONTROL.search(text) or any("\ud800" <= c <= "\udfff" for c in text):
        return "the text contains a control character"
    return None


def without_list_mark(text: str) -> str:
    """A text without the list mark that stands before its only item; a list of several items stays as it is.

    >>> without_list_mark("- Use SI units.\\n  Always."), without_list_mark("- one\\n- two")
    ('Use SI units.\\nAlways.', '- one\\n- two')
    """
    marks = _LIST_MARKS.match(text)
    first, *others = text[marks.end() if marks else 0 :].split("\n")
    if marks is None or any(_LIST_MARKS.match(line) for line in others):
        return text
    blanks = (min(marks.end(), len(line) - len(line.lstrip(" \t"))) for line in others)
    return "\n".join([first, *(line[count:] for line, count in zip(others, blanks, strict=True))])


def fold_events(events: Iterable[Event]) -> Ledger:
    """The state after all events. Raises UsageError for an event that does not fit, EditRejected for a bad text."""
    return ledger_states(events)[-1]


def ledger_states(events: Iterable[Event]) -> list[Ledger]:
    """The empty ledger and the state after every event."""
    ledgers = [Ledger()]
    for event in events:
        if isinstance(event, Rollback):
            if not 0 <= event.to < len(ledgers):
                raise UsageError(
                    f"There is no state {event.to} to return to; there are 0 to {len(ledgers) - 1}."
                )
            ledgers.append(replace(ledgers[event.to], counter=ledgers[-1].counter))
        else:
            ledgers.append(apply_event(ledgers[-1], event))
    return ledgers


def apply_event(ledger: Ledger, event: Event) -> Ledger:
    """The state after one event. A Rollback needs the history: use `fold`."""
    step: Callable[[Ledger, object], Ledger] | None = _STEPS.get(event.kind)
    if step is None:
        raise UsageError(f'The event "{event.kind}" cannot be applied alone.')
    return step(ledger, event)


def _check(text: str) -> None:
    reason = reason_to_refuse(text)
    if reason is not None:
        raise EditRejected(f"The instruction {text[:60]!r} is refused: {reason}.")


def _with(ledger: Ledger, *changed: Instruction) -> Ledger:
    return replace(ledger, instructions={**ledger.instructions, **{i.id: i for i in changed}})


def _place(ledger: Ledger, key: str) -> Ledger:
    """The instruction's line after the last line of the list, or at the end."""
    at = max((n + 1 for n, entry in enumerate(ledger.layout) if entry.id), default=len(ledger.layout))
    return replace(ledger, layout=(*ledger.layout[:at], LayoutEntry(id=key), *ledger.layout[at:]))


def _remove(ledger: Ledger, key: str, status: str, event: Event, reason: str) -> Ledger:
    gone = replace(ledger[key], status=status, changed=event.at, reason=reason)
    return _with(replace(ledger, layout=tuple(e for e in ledger.layout if e.id != key)), gone)


def _add(ledger: Ledger, event: Add) -> Ledger:
    _check(event.text)
    if event.id in ledger.instructions or not event.id:
        raise UsageError(
            f'The id "{event.id}" cannot be given to a new instruction; the next one is {ledger.next_id}.'
        )
    if event.status not in (ACTIVE, PROPOSED):
        raise UsageError(f'A new instruction is active or proposed, not "{event.status}".')
    new = Instruction(
        event.id,
        event.text,
        event.status,
        event.critiques,
        event.evidence,
        event.sources,
        author=event.author,
        created=event.at,
        changed=event.at,
        tokens=event.tokens,
        whole=event.whole,
    )
    grown = _with(replace(ledger, counter=_number(event.id, ledger.counter + 1)), new)
    return _place(grown, event.id) if event.status == ACTIVE else grown


def _number(key: str, least: int) -> int:
    digits = key[1:]
    return max(least, int(digits)) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else least


def _rewrite(ledger: Ledger, event: Rewrite) -> Ledger:
    _check(event.text)
    old = ledger[event.id]
    return _with(
        ledger,
        replace(
            old,
            text=event.text,
            critiques=union(old.critiques, event.critiques),
            evidence=union(old.evidence, event.evidence),
            sources=old.sources if event.sources is None else event.sources,
            changed=event.at,
            tokens=event.tokens,
            effect=None if event.text != old.text else old.effect,
        ),
    )


def _merge(ledger: Ledger, event: Merge) -> Ledger:
    _check(event.text)
    kept, others = ledger[event.id], [ledger[key] for key in event.others]
    if event.id in event.others:
        raise UsageError(f"{event.id} cannot be merged into itself.")
    for other in others:
        ledger = _remove(ledger, other.id, EXPIRED, event, f"{MERGED_INTO}{event.id}")
    evidence = reduce(union, [i.evidence for i in others], kept.evidence)
    merged = replace(
        kept,
        text=event.text,
        critiques=reduce(union, [i.critiques for i in others], kept.critiques),
        evidence=evidence,
        sources=max(len(evidence), kept.sources, *(i.sources for i in others), 0),
        changed=event.at,
        tokens=event.tokens,
        effect=None if event.text != kept.text else kept.effect,
    )
    return _with(ledger, merged)


def _expire(ledger: Ledger, event: Expire) -> Ledger:
    return _remove(ledger, event.id, EXPIRED, event, event.reason)


def _restore(ledger: Ledger, event: Restore) -> Ledger:
    old = ledger[event.id]
    if old.status != EXPIRED:
        raise UsageError(f"{event.id} is {old.status}; only an expired instruction can come back.")
    return _place(_with(ledger, replace(old, status=ACTIVE, changed=event.at, reason=event.reason)), event.id)


def _resolve(ledger: Ledger, event: Resolve) -> Ledger:
    kept = ledger[event.keep]
    return _remove(ledger, event.drop, EXPIRED, event, event.reason or f"in conflict with {kept.id}")


def _decide(ledger: Ledger, event: Decide) -> Ledger:
    if ledger[event.id].status != PROPOSED:
        raise UsageError(
            f"{event.id} is {ledger[event.id].status}; only a proposed instruction can be decided."
        )
    if not event.approve:
        return _remove(ledger, event.id, REJECTED, event, event.reason)
    return _place(_with(ledger, replace(ledger[event.id], status=ACTIVE, changed=event.at)), event.id)


def _measure(ledger: Ledger, event: Measure) -> Ledger:
    return _with(ledger, replace(ledger[event.id], effect=event.effect))


def _read(ledger: Ledger, event: Read) -> Ledger:
    """Lines with a known text keep their instruction; the others are new; known ones that are gone expire."""
    known: dict[str, list[str]] = {}
    for instruction in ledger.active:
        known.setdefault(instruction.text, []).append(instruction.id)
    layout: list[LayoutEntry] = []
    fresh: list[Instruction] = []
    counter = ledger.counter
    for managed, text in event.notes:
        if not managed:
            layout.append(LayoutEntry(text=text))
        elif known.get(text):
            layout.append(LayoutEntry(id=known[text].pop(0)))
        else:
            counter += 1
            fresh.append(
                Instruction(
                    f"i{counter}",
                    text,
                    author=event.author,
                    created=event.at,
                    changed=event.at,
                    tokens=estimate_tokens(text),
                )
            )
            layout.append(LayoutEntry(id=f"i{counter}"))
    for key in (key for keys in known.values() for key in keys):
        ledger = _remove(ledger, key, EXPIRED, event, f"removed by {event.author or 'hand'}")
    return _with(replace(ledger, layout=tuple(layout), newline=event.newline, counter=counter), *fresh)


_STEPS: Mapping[str, Callable[[Ledger, Any], Ledger]] = {
    "read": _read,
    "add": _add,
    "rewrite": _rewrite,
    "merge": _merge,
    "expire": _expire,
    "restore": _restore,
    "resolve": _resolve,
    "decide": _decide,
    "measure": _measure,
}


def union(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Both without repeats, in order."""
    return tuple(dict.fromkeys((*first, *second)))


def estimate_tokens(text: str) -> int:
    """Tokens of an instruction's line where no tokenizer is known: a quarter of its UTF-8 bytes, list mark included."""
    return -(-(len(text.encode("utf-8", "surrogatepass")) + 3) // 4)
