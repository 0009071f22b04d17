"""The feedback that is kept: a pure fold over the events of traffic, the same however they come in batches.

Rows with a text are kept word by word: comments, corrections, and verdicts of any kind that come with an explanation. What of
them looks like an attack is noted beside them. The state of a prompt is bounded: the oldest rows of a source make room, and
those of whoever has the most before those of all others, so that a few who say much do not drive out many who say something.
Bad ratings without words are kept beside them: they say something only to a reader who sees the answer. Of several ratings, or
thumbs, of one source about one answer, the one that arrived last counts: a good one takes a bad one back.
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
MOST_EVALUATED = 200
"""Critiques of evaluators that are kept of a prompt."""
MOST_RATED, WORST_STARS = 200, 2
"""Bad ratings without words that are kept of a prompt; up to so many stars a rating is bad."""
LONGEST = 4000
"""Characters that are kept of a row."""
ERASED = "erased"
_KINDS = frozenset({"comment", "rating", "thumb", "correction", "label", "score", "edit_distance"})
_THUMB = "thumbs down, without a word"
_EDITS = ("correction", "edit_distance")
WORDED_KINDS = tuple(sorted(_KINDS))
"""Kinds of feedback whose words are kept."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One row of feedback about one answer, with its words as they are."""

    id: str
    seq: int
    at: int
    """The time of arrival (microseconds)."""
    who: str
    """The source that it counts for."""
    version: int
    """The version of the prompt that answered."""
    about: str
    """The id of the answer."""
    text: str
    flags: tuple[str, ...] = ()
    """Why it is in quarantine."""


@dataclass(frozen=True)
class PromptFeedback:
    """All that is kept about one prompt: rows with words by id in the order of arrival, when each source of them came first, and
    bad ratings without words, `rated`."""

    rows: Mapping[str, Comment] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    rated: Mapping[str, Comment] = field(default_factory=dict)

    @property
    def all_rows(self) -> Mapping[str, Comment]:
        """The rows with words and those without, by id."""
        return {**self.rows, **self.rated}

    def with_ratings(self) -> PromptFeedback:
        """The same with bad ratings as rows like any other, but for those of somebody who also says in words what is wrong with
        the answer: what a reader learns from who sees the answers."""
        spoken = {(row.who, row.about) for row in self.rows.values()}
        more = {key: row for key, row in self.rated.items() if (row.who, row.about) not in spoken}
        rows = dict(sorted({**self.rows, **more}.items(), key=lambda item: item[1].seq))
        first = dict(self.first)
        for row in more.values():
            first[row.who] = min(row.at, first.get(row.who, row.at))
        return PromptFeedback(rows, first)

    def as_json(self) -> dict[str, object]:
        """The state as JSON values."""
        fields = Comment.__dataclass_fields__
        rows, rated = (
            [[getattr(row, name) for name in fields] for row in kept.values()]
            for kept in (self.rows, self.rated)
        )
        return {"rows": rows, "first": dict(self.first), "rated": rated}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PromptFeedback:
        """The state that `as_json` wrote."""
        names = list(Comment.__dataclass_fields__)
        rows, rated = (
            [Comment(**dict(zip(names, [*row[:-1], tuple(row[-1])], strict=True))) for row in kept]
            for kept in (value["rows"], value["rated"])
        )
        return cls({row.id: row for row in rows}, dict(value["first"]), {row.id: row for row in rated})

    def without(self, gone: Collection[str]) -> PromptFeedback:
        """The same without the rows of these ids, and without those about inferences of these ids."""
        rows, rated = (
            {key: row for key, row in kept.items() if key not in gone and row.about not in gone}
            for kept in (self.rows, self.rated)
        )
        if len(rows) + len(rated) == len(self.rows) + len(self.rated):
            return self
        left = {row.who for row in rows.values()}
        return PromptFeedback(rows, {who: at for who, at in self.first.items() if who in left}, rated)


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
        return FeedbackState(self.seq, self.clock, _kept_prompts(left))


def fold_feedback(state: FeedbackState, events: Iterable[TrafficEvent]) -> FeedbackState:
    """The state after some more events, which come in order. Those that are in the state already change nothing."""
    working: dict[str, _Working] = {}
    seq, clock = state.seq, state.clock

    def of(name: str) -> _Working:
        if name not in working:
            working[name] = _Working.of(of_state(name))
        return working[name]

    def of_state(name: str) -> PromptFeedback:
        return state.prompts.get(name, PromptFeedback())

    for event in events:
        if event.seq <= seq:
            continue
        seq = event.seq
        if event.kind == ERASED:
            for name in [*working, *_mentioning(state, event.id)]:
                of(name).forget(event.id)
        elif event.feedback is not None and event.inference is not None:
            clock = max(clock, event.received)
            row, rating = _row(event, clock), _rating(event, clock)
            name = event.inference.prompt
            if _find_replaced(event, working[name].rated if name in working else of_state(name).rated):
                of(name).take_back(event)
            if row is not None:
                of(name).add(row)
            elif rating is not None:
                of(name).add_rating(rating)
    done = {name: PromptFeedback(one.rows, one.first, one.rated) for name, one in working.items()}
    return FeedbackState(seq, clock, _kept_prompts({**state.prompts, **done}))


def _kept_prompts(prompts: Mapping[str, PromptFeedback]) -> dict[str, PromptFeedback]:
    """Those about which something is kept."""
    return {name: feedback for name, feedback in prompts.items() if feedback.rows or feedback.rated}


def _mentioning(state: FeedbackState, key: str) -> list[str]:
    """Prompts of a state with a row of that id, or about an inference of that id."""
    return [
        name
        for name, feedback in state.prompts.items()
        if any(key in (row.id, row.about) for row in feedback.all_rows.values())
    ]


@dataclass
class _Working:
    """A state that may be changed while it is folded; `own` are the rows of each source in order."""

    rows: dict[str, Comment]
    first: dict[str, int]
    own: dict[str, dict[str, None]]
    rated: dict[str, Comment]

    @classmethod
    def of(cls, feedback: PromptFeedback) -> _Working:
        """A copy to be changed."""
        own: dict[str, dict[str, None]] = {}
        for row in feedback.rows.values():
            own.setdefault(row.who, {})[row.id] = None
        return cls(dict(feedback.rows), dict(feedback.first), own, dict(feedback.rated))

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
        if row.who.startswith(sources.EVALUATOR):
            evaluated = [key for key, one in self.rows.items() if one.who.startswith(sources.EVALUATOR)]
            if len(evaluated) > MOST_EVALUATED:
                self._drop(evaluated[0])
        if len(self.rows) > MOST_ROWS:
            most = max(map(len, self.own.values()))
            self._drop(next(row.id for row in self.rows.values() if len(self.own[row.who]) == most))

    def add_rating(self, row: Comment) -> None:
        """Take a bad rating in; one source has a tenth of them at most, and the oldest make room."""
        if row.id in self.rated:
            return
        self.rated[row.id] = row
        own = [key for key, one in self.rated.items() if one.who == row.who]
        if len(own) > MOST_RATED // 10:
            del self.rated[own[0]]
        if len(self.rated) > MOST_RATED:
            del self.rated[next(iter(self.rated))]

    def take_back(self, event: TrafficEvent) -> None:
        """Drop the bad ratings that a newer one replaces."""
        for key in _find_replaced(event, self.rated):
            del self.rated[key]

    def forget(self, key: str) -> None:
        """Drop a row, or all rows about an inference."""
        self.rated = {k: row for k, row in self.rated.items() if key not in (row.id, row.about)}
        for one in [row.id for row in self.rows.values() if key in (row.id, row.about)]:
            self._drop(one)

    def _drop(self, key: str) -> None:
        row = self.rows.pop(key)
        own = self.own[row.who]
        del own[key]
        if not own:
            del self.own[row.who], self.first[row.who]


def _row(event: TrafficEvent, at: int) -> Comment | None:
    """The part of an event that is kept; None for feedback without words."""
    feedback, inference = event.feedback, event.inference
    assert feedback is not None and inference is not None
    text = (feedback.text or "").strip()
    if feedback.kind not in _KINDS or not text:
        return None
    flags = guard.suspicions(text)
    if feedback.kind in _EDITS:
        if inference.output is None or inference.output.strip() == text:
            return None
        text = correction(inference.output, text)
    who = principal(feedback.source, feedback.user, inference.user or inference.session)
    if not who.startswith(sources.EVALUATOR):
        who = principal(feedback.source, feedback.user, inference.user)
    return Comment(
        feedback.id, event.seq, at, who, inference.version, inference.id, text[:LONGEST], tuple(flags)
    )


def _rating(event: TrafficEvent, at: int) -> Comment | None:
    """A bad rating without words, None for any other event."""
    feedback, inference = event.feedback, event.inference
    assert feedback is not None and inference is not None
    if (feedback.text or "").strip() or feedback.value is None:
        return None
    bad = {"thumb": feedback.value <= 0, "rating": feedback.value <= WORST_STARS}
    if not bad.get(feedback.kind):
        return None
    text = _THUMB if feedback.kind == "thumb" else f"{feedback.value:g} of 5 stars, without a word"
    who = principal(feedback.source, feedback.user, inference.user)
    return Comment(feedback.id, event.seq, at, who, inference.version, inference.id, text)


def _find_replaced(event: TrafficEvent, rated: Mapping[str, Comment]) -> list[str]:
    """Ids of the bad ratings in whose place a rating is: those of the same kind and source about the same answer."""
    feedback, inference = event.feedback, event.inference
    assert feedback is not None and inference is not None
    if feedback.kind not in ("thumb", "rating") or feedback.value is None or not rated:
        return []
    about = [(key, row) for key, row in rated.items() if row.about == inference.id]
    who = principal(feedback.source, feedback.user, inference.user) if about else ""
    return [
        key for key, row in about if row.who == who and (row.text == _THUMB) == (feedback.kind == "thumb")
    ]


def comment_of(event: TrafficEvent) -> Comment | None:
    """The row of a single event as it is kept; None for feedback without words, and for a correction that changes nothing."""
    return _row(event, event.received)


@cache
def rules() -> str:
    """The hash of the rules by which rows are kept: a snapshot of other rules is folded anew."""
    here: Sequence[Any] = (
        comments,
        guard,
        sources,
        Comment,
        PromptFeedback,
        _Working,
        _row,
        _rating,
        _find_replaced,
    )
    texts = [inspect.getsource(part) for part in here]
    return content_hash(
        [
            texts,
            guard.attack_strings(),
            sorted(_KINDS),
            MOST_ROWS,
            MOST_OF_ONE,
            MOST_EVALUATED,
            MOST_RATED,
            WORST_STARS,
        ]
    )
