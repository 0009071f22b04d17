"""What was heard: a pure fold over the events of traffic, the same however they come in batches.

Only feedback that says what should change is kept: comments, corrections, and verdicts of any kind with words. Its text is taken
apart into complaints here, by rules; what of it looks like an attack is noted beside it. The state of a prompt is bounded:
the oldest rows of a source, and then of all, make room.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from whet.client import records
from whet.online import complaints, feedback, guard, screen, trust, wishes
from whet.online.complaints import hear
from whet.online.feedback import Feedback, read_feedback
from whet.online.screen import flag_row
from whet.online.traffic import Event
from whet.online.trust import principal
from whet.search import critiques, lexicon
from whet.types import content_hash

MOST_ROWS, MOST_OF_ONE = 1000, 20
ERASED = "erased"
_DECISIVE = (complaints, critiques, feedback, guard, lexicon, screen, trust, wishes)


@dataclass(frozen=True, slots=True)
class Said:
    """One row of feedback about one answer. `at` is when it came in (microseconds), `about` the id of the inference,
    `version` that of the prompt which answered. `flags` say why it is in quarantine."""

    id: str
    seq: int
    at: int
    who: str
    version: int
    about: str
    complaints: tuple[str, ...]
    flags: tuple[str, ...] = ()


def _row(values: Sequence[Any]) -> Said:
    key, seq, at, who, version, about, found, flags = values
    return Said(key, seq, at, who, version, about, tuple(found), tuple(flags))


@dataclass(frozen=True)
class Heard:
    """All that is kept about one prompt: rows by id in the order of arrival, and when each source was first heard."""

    rows: Mapping[str, Said] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        fields = Said.__dataclass_fields__
        rows = [[getattr(row, name) for name in fields] for row in self.rows.values()]
        return {"rows": rows, "first": dict(self.first)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Heard:
        """The state that `as_json` wrote."""
        rows = [_row(row) for row in value["rows"]]
        return cls({row.id: row for row in rows}, dict(value["first"]))

    def without(self, gone: Collection[str]) -> Heard:
        """The same without the rows of these ids, and without those about inferences of these ids."""
        rows = {key: row for key, row in self.rows.items() if key not in gone and row.about not in gone}
        if len(rows) == len(self.rows):
            return self
        left = {row.who for row in rows.values()}
        return Heard(rows, {who: at for who, at in self.first.items() if who in left})


@dataclass(frozen=True)
class State:
    """What was heard up to the event `seq`, whose time is `clock` (microseconds)."""

    seq: int = 0
    clock: int = 0
    prompts: Mapping[str, Heard] = field(default_factory=dict)

    def without(self, gone: Collection[str]) -> State:
        """The same without what rests on rows of traffic of these ids."""
        if not gone:
            return self
        left = {name: heard.without(gone) for name, heard in self.prompts.items()}
        return State(self.seq, self.clock, {name: heard for name, heard in left.items() if heard.rows})


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after some more events, which come in order. Those that are in the state already change nothing."""
    working: dict[str, _Working] = {}
    seq, clock = state.seq, state.clock

    def of(name: str) -> _Working:
        if name not in working:
            working[name] = _Working.of(state.prompts.get(name, Heard()))
        return working[name]

    for event in events:
        if event.seq <= seq:
            continue
        seq = event.seq
        if event.kind == ERASED:
            for name in [*working, *_mentioning(state, event.id)]:
                of(name).forget(event.id)
        elif event.feedback is not None and event.inference is not None:
            clock = max(clock, event.received)
            said = _said(event, clock)
            if said is not None:
                of(event.inference.prompt).add(said)
    done = {name: Heard(one.rows, one.first) for name, one in working.items()}
    kept = {name: heard for name, heard in {**state.prompts, **done}.items() if heard.rows}
    return State(seq, clock, kept)


def _mentioning(state: State, key: str) -> list[str]:
    """Prompts of a state with a row of that id, or about an inference of that id."""
    return [
        name
        for name, heard in state.prompts.items()
        if any(key in (row.id, row.about) for row in heard.rows.values())
    ]


@dataclass
class _Working:
    """A state that may be changed while it is folded; `own` are the rows of each source in order."""

    rows: dict[str, Said]
    first: dict[str, int]
    own: dict[str, dict[str, None]]

    @classmethod
    def of(cls, heard: Heard) -> _Working:
        """A copy to be changed."""
        own: dict[str, dict[str, None]] = {}
        for row in heard.rows.values():
            own.setdefault(row.who, {})[row.id] = None
        return cls(dict(heard.rows), dict(heard.first), own)

    def add(self, said: Said) -> None:
        """Take a row in; a row that is there already stays as it is."""
        if said.id in self.rows:
            return
        self.rows[said.id] = said
        self.first.setdefault(said.who, said.at)
        own = self.own.setdefault(said.who, {})
        own[said.id] = None
        if len(own) > MOST_OF_ONE:
            self._drop(next(iter(own)))
        if len(self.rows) > MOST_ROWS:
            self._drop(next(iter(self.rows)))

    def forget(self, key: str) -> None:
        """Drop a row, or all rows about an inference."""
        for one in [row.id for row in self.rows.values() if key in (row.id, row.about)]:
            self._drop(one)

    def _drop(self, key: str) -> None:
        row = self.rows.pop(key)
        own = self.own[row.who]
        del own[key]
        if not own:
            del self.own[row.who], self.first[row.who]


def _said(event: Event, at: int) -> Said | None:
    """What a row says, None when it says nothing that could be learned."""
    given, asked = event.feedback, event.inference
    assert given is not None and asked is not None
    if given.kind not in _FIELDS or not given.text:
        return None
    row = as_row(given, asked)
    flag = flag_row(row)
    found = hear(row).complaints
    if not found and flag is None:
        return None
    who = principal(given.source, given.user or (asked.user if given.source == "user" else None))
    texts = tuple(complaint.text for complaint in found)
    return Said(given.id, event.seq, at, who, asked.version, asked.id, texts, flag.reasons if flag else ())


_FIELDS = {
    "comment": "comment",
    "rating": "comment",
    "thumb": "comment",
    "correction": "corrected",
    "label": "explanation",
    "score": "explanation",
}
_MIDDLE = {"rating": 3.0, "thumb": 0.5}
"""The value of a verdict that neither likes nor dislikes."""


def as_row(given: records.Feedback, asked: records.Inference) -> Feedback:
    """Feedback of the traffic in the words of `whet learn`."""
    row: dict[str, Any] = {
        "id": given.id,
        "output": asked.output,
        _FIELDS[given.kind]: given.text,
        "label": given.label,
        "user": given.user,
    }
    if given.kind in ("label", "score"):
        row["rating"] = given.value
    elif given.kind in _MIDDLE and given.value != _MIDDLE[given.kind]:
        row["rating"] = (given.value or 0.0) > _MIDDLE[given.kind]
    return read_feedback([row])[0]


@cache
def rules() -> str:
    """The hash of the rules by which rows are read: a snapshot of other rules is folded anew."""
    sources = [inspect.getsource(module) for module in _DECISIVE]
    here = [inspect.getsource(part) for part in (Heard, _said, as_row)]
    return content_hash([*sources, *here, _FIELDS, _MIDDLE])
