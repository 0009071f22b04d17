"""The feedback that is kept: a pure fold over the events of traffic, the same however they come in batches.

Rows with a text are kept word by word: comments, corrections, and verdicts of any kind that come with an explanation. What of
them looks like an attack is noted beside them. The state of a prompt is bounded: the oldest rows of a source make room, and
those of whoever has the most before those of all others, so that a few who say much do not drive out many who say something.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from whet.feedback import comments, sources
from whet.feedback.comments import correction
from whet.feedback.sources import principal
from whet.instructions import guard
from whet.types import content_hash
from whet_live.traffic import TrafficEvent

MOST_ROWS, MOST_OF_ONE = 1000, 20
LONGEST = 4000
"""Characters that are kept of a row."""
ERASED = "erased"
_KINDS = frozenset({"comment", "rating", "thumb", "correction", "label", "score"})


@dataclass(frozen=True, slots=True)
class Comment:
    """One row of feedback about one answer, with its words as they are. `at` is when it came in (microseconds), `who` the
    source that it counts for, `about` the id of the inference, `version` that of the prompt which answered. `flags` say why it
    is in quarantine."""

    id: str
    seq: int
    at: int
    who: str
    version: int
    about: str
    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PromptFeedback:
    """All that is kept about one prompt: rows by id in the order of arrival, and when each source came first."""

    rows: Mapping[str, Comment] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The state as JSON values."""
        fields = Comment.__dataclass_fields__
        rows = [[getattr(row, name) for name in fields] for row in self.rows.values()]
        return {"rows": rows, "first": dict(self.first)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PromptFeedback:
        """The state that `as_json` wrote."""
        names = list(Comment.__dataclass_fields__)
        rows = [
            Comment(**dict(zip(names, [*row[:-1], tuple(row[-1])], strict=True))) for row in value["rows"]
        ]
        return cls({row.id: row for row in rows}, dict(value["first"]))

    def without(self, gone: Collection[str]) -> PromptFeedback:
        """The same without the rows of these ids, and without those about inferences of these ids."""
        rows = {key: row for key, row in self.rows.items() if key not in gone and row.about not in gone}
        if len(rows) == len(self.rows):
            return self
        left = {row.who for row in rows.values()}
        return PromptFeedback(rows, {who: at for who, at in self.first.items() if who in left})


@dataclass(frozen=True)
class FeedbackState:
    """The feedback up to the event `seq`, whose time is `clock` (microseconds)."""

    seq: int = 0
    clock: int = 0
    prompts: Mapping[str, PromptFeedback] = field(default_factory=dict)

    def without(self, gone: Collection[str]) -> FeedbackState:
        """The same without what rests on rows of traffic of these ids."""
        if not gone:
            return self
        left = {name: feedback.without(gone) for name, feedback in self.prompts.items()}
        return FeedbackState(
            self.seq, self.clock, {name: feedback for name, feedback in left.items() if feedback.rows}
        )


def fold_feedback(state: FeedbackState, events: Iterable[TrafficEvent]) -> FeedbackState:
    """The state after some more events, which come in order. Those that are in the state already change nothing."""
    working: dict[str, _Working] = {}
    seq, clock = state.seq, state.clock

    def of(name: str) -> _Working:
        if name not in working:
            working[name] = _Working.of(state.prompts.get(name, PromptFeedback()))
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
            row = _row(event, clock)
            if row is not None:
                of(event.inference.prompt).add(row)
    done = {name: PromptFeedback(one.rows, one.first) for name, one in working.items()}
    kept = {name: feedback for name, feedback in {**state.prompts, **done}.items() if feedback.rows}
    return FeedbackState(seq, clock, kept)


def _mentioning(state: FeedbackState, key: str) -> list[str]:
    """Prompts of a state with a row of that id, or about an inference of that id."""
    return [
        name
        for name, feedback in state.prompts.items()
        if any(key in (row.id, row.about) for row in feedback.rows.values())
    ]


@dataclass
class _Working:
    """A state that may be changed while it is folded; `own` are the rows of each source in order."""

    rows: dict[str, Comment]
    first: dict[str, int]
    own: dict[str, dict[str, None]]

    @classmethod
    def of(cls, feedback: PromptFeedback) -> _Working:
        """A copy to be changed."""
        own: dict[str, dict[str, None]] = {}
        for row in feedback.rows.values():
            own.setdefault(row.who, {})[row.id] = None
        return cls(dict(feedback.rows), dict(feedback.first), own)

    def add(self, row: Comment) -> None:
        """Take a row in; a row that is there already stays as it is."""
        if row.id in self.rows:
            return
        self.rows[row.id] = row
        self.first.setdefault(row.who, row.at)
        own = self.own.setdefault(row.who, {})
        own[row.id] = None
        if len(own) > MOST_OF_ONE:
            self._drop(next(iter(own)))
        if len(self.rows) > MOST_ROWS:
            most = max(map(len, self.own.values()))
            self._drop(next(row.id for row in self.rows.values() if len(self.own[row.who]) == most))

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


def _row(event: TrafficEvent, at: int) -> Comment | None:
    """What is kept of an event, None for feedback without words."""
    feedback, inference = event.feedback, event.inference
    assert feedback is not None and inference is not None
    text = (feedback.text or "").strip()
    if feedback.kind not in _KINDS or not text:
        return None
    flags = guard.suspicions(text)
    if feedback.kind == "correction":
        if inference.output is None or inference.output.strip() == text:
            return None
        text = correction(inference.output, text)
    who = principal(feedback.source, feedback.user, inference.user)
    return Comment(
        feedback.id, event.seq, at, who, inference.version, inference.id, text[:LONGEST], tuple(flags)
    )


@cache
def rules() -> str:
    """The hash of the rules by which rows are kept: a snapshot of other rules is folded anew."""
    here: Sequence[Any] = (comments, guard, sources, Comment, PromptFeedback, _Working, _row)
    texts = [inspect.getsource(part) for part in here]
    return content_hash([texts, guard.attack_strings(), sorted(_KINDS), MOST_ROWS, MOST_OF_ONE])
