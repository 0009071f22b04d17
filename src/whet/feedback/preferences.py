"""The answer of two that people prefer, read out of pairs, choices, ratings, thumbs and corrections.

The rules, row by row, then input by input:

1. A row with a preferred and a rejected answer is a pair. So is a row with two answers and a verdict on them.
2. A row with an answer and its correction is a pair: the correction is preferred.
3. Rows that rate an answer are taken together by input: of two answers to one input the one with the higher mean rating is
   preferred. A thumb is an end of the scale that ratings beside it have; ratings of different metrics are not mixed.
4. A rated answer that stands in no such pair is a thumb: up or down as its rating says. Two answers to one input with the same
   rating are a tie, which gives no pair: both are thumbs.

A rating is up above the middle of its scale and down below it (`whet.feedback.rows.shown_scale`, or the stated scale).

Dropped, and counted by reason: ties, ratings in the middle, rows without an input or an answer, verdicts that are left open, what
a person judged again later, and rows that say nothing of the kind.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NoReturn

from whet.errors import UsageError, parameter
from whet.feedback.rows import (
    FeedbackRow,
    SaysNothing,
    flatten_row,
    further_verdicts,
    misspelt_columns,
    name_in,
    read_judged_rows,
    read_text_value,
    sourced_rows,
)
from whet.rewards.preference import JudgedAnswers, PreferenceLabel, PreferencePair
from whet.task.rows import SourceRow
from whet_client.records import read_moment
from whet_client.storable import show_value

CHOSEN = ("chosen", "preferred_output", "preferred_response", "better", "winning_response")
REJECTED = ("rejected", "non_preferred_output", "dispreferred_response", "worse", "losing_response")
SIDES = (("output", "response", "answer", "completion"), (("1", "2"), ("a", "b")))
VERDICTS = ("preferred", "preference", "choice", "winner", "label", "vote")
CONTEXT = ("context", "instruction")
COLUMNS = ("input", "chosen", "rejected")
"""The forms of a file of preferences, for its errors."""
NEEDED = (
    "Give rows with input, chosen and rejected; or with input, output_1, output_2 and preferred (1, 2 or tie); or with input, "
    "output and one of rating, thumb and corrected. docs/preferences.md has the other names that are read."
)
_NAMES = (
    *CHOSEN,
    *REJECTED,
    *VERDICTS,
    *CONTEXT,
    *(f"{side}{mark}{end}" for side in SIDES[0] for ends in SIDES[1] for end in ends for mark in ("_", "")),
)
"""The columns that are read beside those of feedback."""
MOST_OF_INPUT = 200
"""Pairs of rated answers to one input; of more, those whose ratings differ most."""
END = 20
"""Answers to one input with the best ratings, and as many with the worst, that are compared where there are more."""

TIE = "ties"
OPEN = "without a verdict"
MIDDLE = "neither good nor bad"
NO_INPUT = "without an input"
NO_ANSWER = "without an answer"
SAME = "with the same answer twice"
TWICE = "equal rows"
AGAIN = "judged again by the same person"
BESIDE = "beside another judgement in their row, of which the first column counts"
SILENT = "without a judgement (comments alone; `whet learn` reads them)"
MORE = "beyond the pairs that count of one input"


@dataclass(frozen=True)
class _Tie:
    """Two answers to an input that a person calls equally good."""

    query: str
    answers: frozenset[str]
    person: str


@dataclass(frozen=True)
class ReadPreferences:
    """The judgements that were read; the dropped rows by reason; the number of rows; notes on how tables were read; pairs of
    answers to one input that nobody compared (input, first, second); and the scales (lowest, highest) of the ratings."""

    judged: JudgedAnswers
    dropped: Mapping[str, int]
    rows: int
    notes: tuple[str, ...] = ()
    open_pairs: tuple[tuple[str, str, str], ...] = ()
    scales: tuple[tuple[float, float], ...] = ()

    @property
    def thumbs(self) -> tuple[int, int, int]:
        """The numbers of thumbs up, of thumbs down, and of ratings in the middle of the scale, which were dropped."""
        up = sum(label.good for label in self.judged.labels)
        return up, len(self.judged.labels) - up, self.dropped.get(MIDDLE, 0)


def read_preferences(
    sources: Sequence[str | Path | Mapping[str, object]],
    good: Sequence[str] = (),
    bad: Sequence[str] = (),
    person: str | None = None,
    scale: tuple[float, float] | None = None,
) -> ReadPreferences:
    """Pairs and thumbs from feedback files (.jsonl, .json, .csv) or mappings; see the module. `person`: of this one alone.
    `scale`: the lowest and the highest rating, else what the ratings show (`whet.feedback.rows.shown_scale`).

    Raises UsageError with file and line for a row that cannot be used, for thumbs that are to be read from ratings of no known
    scale, and for rows of which nothing is left.
    """
    notes: list[str] = []
    sourced = _by_time(sourced_rows(sources, notes, COLUMNS))
    _check_numbering(sourced)
    dropped: Counter[str] = Counter()
    pairs: dict[tuple[object, ...], PreferencePair] = {}
    open_pairs: dict[tuple[str, frozenset[str]], tuple[str, str, str]] = {}
    others: list[SourceRow] = []
    seen: set[str] = set()
    for number, row in enumerate(sourced):
        pair = _pair_of(row)
        if pair is not None:
            content = json.dumps(row.value, sort_keys=True, default=str)
            if content in seen and not _says_it_again(pairs, pair):
                dropped[TWICE] += 1
                continue
            seen.add(content)
        if pair is None:
            others.append(row)
        elif isinstance(pair, str):
            dropped[pair] += 1
        elif isinstance(pair, _Tie):
            dropped[TIE] += 1
            if pair.person and pairs.pop((pair.query, pair.answers, pair.person), None) is not None:
                dropped[AGAIN] += 1
        elif isinstance(pair, tuple):
            open_pairs.setdefault((pair[0], frozenset(pair[1:])), pair)
            dropped[OPEN] += 1
        elif person in (None, pair.person):
            _take(pairs, pair, number, dropped)
    if beside := sum(len(further_verdicts(row.value)) for row in others):
        dropped[BESIDE] = beside
    rated: list[FeedbackRow] = []
    for number, judged in enumerate(_read_others(others, good, bad, scale), len(sourced)):
        if person not in (None, judged.user):
            continue
        reason = _reason_to_drop(judged)
        if reason:
            dropped[reason] += 1
        elif judged.corrected and judged.corrected != judged.output:
            one = PreferencePair(str(judged.input), judged.corrected, str(judged.output), judged.user or "")
            _take(pairs, one, number, dropped)
        else:
            rated.append(judged)
    compared, labels = _of_ratings(rated, dropped)
    read = JudgedAnswers((*pairs.values(), *compared), tuple(labels))
    if not len(read):
        _refuse_nothing(sourced, dropped, person)
    scales = tuple(sorted({row.scale for row in rated if row.scale is not None}))
    return ReadPreferences(
        read, dict(dropped), len(sourced), tuple(notes), tuple(open_pairs.values()), scales
    )


def describe_thumbs(up: int, down: int, middle: int, scales: Sequence[Sequence[float]]) -> str:
    """Summarise ratings and thumbs in words.

    >>> describe_thumbs(12, 3, 1, [(1, 7)])
    '12 up, 3 down, 1 dropped in the middle; scale 1 to 7'
    """
    shown = " and ".join(f"{low:g} to {high:g}" for low, high in scales)
    return f"{up:,} up, {down:,} down, {middle:,} dropped in the middle{f'; scale {shown}' if shown else ''}"


def _read_others(
    rows: Sequence[SourceRow],
    good: Sequence[str],
    bad: Sequence[str],
    scale: tuple[float, float] | None,
) -> list[FeedbackRow]:
    """Rows about one answer. Raises UsageError that says what preferences need for one that says nothing of it."""
    try:
        return read_judged_rows(rows, good, bad, scale)
    except SaysNothing as error:
        raise UsageError(f"{error.plain}{misspelt_columns(error.columns, _NAMES)} {NEEDED}") from None


def _refuse_nothing(rows: Sequence[SourceRow], dropped: Mapping[str, int], person: str | None) -> NoReturn:
    why = ", ".join(f"{n} {reason}" for reason, n in dropped.items())
    who = f" by {show_value(person)}" if person is not None else ""
    columns = dict.fromkeys(name for row in rows for name in row.value)
    raise UsageError(
        f"There is no preference{who} in {len(rows)} rows{f' (dropped: {why})' if why else ''}."
        f"{misspelt_columns(columns, _NAMES)} {NEEDED}"
    )


def _by_time(rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
    """The rows from old to new where each has a time, as exports list the newest first; else as they stand."""
    times = [read_moment(name_in(flatten_row(row.value), "time")) for row in rows]
    known = [time for time in times if time is not None]
    if len(known) < len(rows):
        return rows
    return [rows[at] for at in sorted(range(len(rows)), key=known.__getitem__)]


def _check_numbering(rows: Sequence[SourceRow]) -> None:
    """Raise UsageError for verdicts on two answers that hold 0 and no 2: they may count the answers from 0, or call a tie."""
    verdicts: dict[str, str] = {}
    for row in rows:
        left = flatten_row(row.value)
        verdict = next((left[name] for name in VERDICTS if name in left), None)
        if _sides(left) is not None and verdict is not None and not isinstance(verdict, bool):
            verdicts.setdefault(str(verdict).strip().removesuffix(".0"), row.where)
    if "0" in verdicts and "2" not in verdicts:
        raise UsageError(
            f"{verdicts['0']}: the verdict 0 may name the first answer or a tie, and no row has the verdict 2. Write 1 or 2 (or "
            "a or b) for the better answer, and tie."
        )


def _says_it_again(pairs: Mapping[tuple[object, ...], PreferencePair], pair: object) -> bool:
    """Whether a named person goes back to a judgement after another one."""
    if isinstance(pair, _Tie):
        return (pair.query, pair.answers, pair.person) in pairs
    if not isinstance(pair, PreferencePair) or not pair.person:
        return False
    return pairs.get((pair.query, frozenset((pair.better, pair.worse)), pair.person)) != pair


def _take(
    pairs: dict[tuple[object, ...], PreferencePair], pair: PreferencePair, number: int, dropped: Counter[str]
) -> None:
    """Keep a pair; the last one that a named person says about two answers counts."""
    if pair.better == pair.worse:
        dropped[SAME] += 1
        return
    key: tuple[object, ...] = (pair.query, frozenset((pair.better, pair.worse)), pair.person)
    if pair.person and key in pairs:
        dropped[AGAIN] += 1
        del pairs[key]
    pairs[key if pair.person else (*key, number)] = pair


def _pair_of(row: SourceRow) -> PreferencePair | _Tie | tuple[str, str, str] | str | None:
    """The pair of a row, or a tie; (input, first, second) where its verdict is open; the reason where it is dropped; None where
    the row holds no two answers."""
    left = flatten_row(row.value)
    chosen, rejected = (next((n for n in names if n in left), None) for names in (CHOSEN, REJECTED))
    sides = _sides(left)
    if chosen is None and rejected is None and sides is None:
        return None
    if (chosen is None) != (rejected is None) and sides is None:
        return NO_ANSWER
    query = _query(left, row.where)
    person = read_text_value(name_in(left, "user"), "user", row.where) or ""
    if chosen is not None and rejected is not None:
        talks = _continue_talk(left[chosen], left[rejected])
        if talks is not None and not query:
            return PreferencePair(*talks, person)
        better, worse = (_answer(left[name], row.where) for name in (chosen, rejected))
        if not query:
            return NO_INPUT
        return PreferencePair(query, better, worse, person)
    assert sides is not None
    first, second = (_answer(left[name], row.where) for name in sides)
    if not query:
        return NO_INPUT
    verdict = next((left[name] for name in VERDICTS if name in left), None)
    won = _winner(verdict, sides, row.where)
    if won is None:
        return query, first, second
    if won == 0:
        return _Tie(query, frozenset((first, second)), person)
    return PreferencePair(query, *((first, second) if won == 1 else (second, first)), person)


def _continue_talk(chosen: object, rejected: object) -> tuple[str, str, str] | None:
    """The common beginning of two lists of messages, and the rest of each; None for other values, and without a common
    beginning."""
    if not (isinstance(chosen, list) and isinstance(rejected, list)):
        return None
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    parts = chosen[:shared], chosen[shared:], rejected[shared:]
    texts = [read_text_value(part, "output", "") if part else None for part in parts]
    query, better, worse = texts
    return None if not query or not better or not worse else (query, better, worse)


def _sides(left: Mapping[str, object]) -> tuple[str, str] | None:
    """The names of the columns of two answers."""
    for name in SIDES[0]:
        for first, second in SIDES[1]:
            for mark in ("_", ""):
                one, other = f"{name}{mark}{first}", f"{name}{mark}{second}"
                if one in left and other in left:
                    return one, other
    return None


def _query(left: Mapping[str, object], where: str) -> str:
    """The input; an instruction stands before it where a row has both."""
    parts = [left[name] for name in CONTEXT if name in left]
    own = name_in(left, "input")
    texts = [read_text_value(value, "input", where) for value in [*parts, *([] if own is None else [own])]]
    return "\n\n".join(text for text in texts if text)


def _answer(value: object, where: str) -> str:
    text = read_text_value(value, "output", where)
    if text is None:
        raise UsageError(f"{where}: an answer must be a text; this is {show_value(value)}.")
    return text


def _winner(verdict: object, sides: tuple[str, str], where: str) -> int | None:
    """1 or 2; 0 for a tie; None where nobody has chosen yet."""
    if verdict is None:
        return None
    if isinstance(verdict, int | float) and not isinstance(verdict, bool) and verdict in (0, 1, 2):
        return int(verdict)
    text = (
        str(verdict).strip().casefold().removesuffix(".0")
    )  # as tables write whole numbers beside empty cells
    for place, names in enumerate((("1", "a", sides[0]), ("2", "b", sides[1])), 1):
        if text in names:
            return place
    if text in ("0", "tie"):
        return 0
    raise UsageError(
        f"{where}: the verdict {show_value(verdict, 40)} names neither answer. Write 1 or 2 (or a or b, or {sides[0]} "
        f"or {sides[1]}), "
        "tie, or leave it empty."
    )


def _reason_to_drop(row: FeedbackRow) -> str:
    """Why a row about one answer says nothing about preferences; empty where it does."""
    if row.rating is None and row.liked is None and not row.corrected:
        return SILENT
    if not row.input:
        return NO_INPUT
    if not row.output:
        return NO_ANSWER
    return SAME if row.corrected == row.output and row.rating is None and row.liked is None else ""


def _of_ratings(
    rated: Sequence[FeedbackRow], dropped: Counter[str]
) -> tuple[list[PreferencePair], list[PreferenceLabel]]:
    """Pairs of rated answers to one input, and thumbs on the answers that were compared with no other."""
    latest: dict[tuple[str, str, str, str], FeedbackRow] = {}
    for number, row in enumerate(rated):
        key = (str(row.input), str(row.output), row.metric, row.user or f"#{number}")
        if key in latest:
            dropped[AGAIN] += 1
        latest[key] = row
    groups: dict[tuple[str, str, bool], list[FeedbackRow]] = defaultdict(list)
    for row in latest.values():
        groups[str(row.input), row.metric, _share_of_scale(row) is not None].append(row)
    pairs: list[PreferencePair] = []
    compared: set[tuple[str, str]] = set()
    for (query, _, _), rows in groups.items():
        scores: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            share = _share_of_scale(row)
            scores[str(row.output)].append(float(row.rating or 0) if share is None else share)
        people = {row.user or "" for row in rows}
        person = people.pop() if len(people) == 1 else ""
        means = {answer: round(sum(values) / len(values), 9) for answer, values in scores.items()}
        for better, worse in _compare(means, dropped):
            pairs.append(PreferencePair(query, better, worse, person))
            compared |= {(query, better), (query, worse)}
    labels = []
    for row in latest.values():
        if (str(row.input), str(row.output)) in compared:
            continue
        if row.liked is None and row.scale is None:
            _refuse_scale(
                [one.rating for one in latest.values() if one.metric == row.metric and one.liked is None]
            )
        if row.liked is None:
            dropped[MIDDLE] += 1
            continue
        labels.append(PreferenceLabel(str(row.input), str(row.output), row.liked, row.user or ""))
    return pairs, labels


def _share_of_scale(row: FeedbackRow) -> float | None:
    """A rating from 0 (worst) to 1 (best), so that a thumb and stars can be compared; None for one of no known scale."""
    if row.scale is not None and row.rating is not None:
        low, high = row.scale
        return (row.rating - low) / (high - low)
    return None if row.liked is None else float(row.liked)


def _refuse_scale(ratings: Sequence[float | None]) -> NoReturn:
    values = sorted({rating for rating in ratings if rating is not None})
    shown = ", ".join(f"{value:g}" for value in (values if len(values) <= 10 else [values[0], values[-1]]))
    raise UsageError(
        f"The ratings {'are' if len(values) <= 10 else 'lie between'} {shown}, which shows no scale, so that nothing says which "
        f"are good. State the lowest and the highest rating that could be given: {parameter('scale', 'LOW,HIGH')}."
    )


def _compare(means: Mapping[str, float], dropped: Counter[str]) -> list[tuple[str, str]]:
    """(better, worse) of answers to one input by their mean ratings; those that differ most where there are many."""
    order = sorted(means, key=lambda answer: (-means[answer], answer))
    ends = order if len(order) <= 2 * END else [*order[:END], *order[-END:]]
    both = list(combinations(ends, 2))
    ordered = [(one, other) for one, other in both if means[one] > means[other]]
    ordered.sort(key=lambda pair: means[pair[1]] - means[pair[0]])
    ties, more = len(both) - len(ordered), len(order) * (len(order) - 1) // 2 - len(both)
    for reason, n in ((TIE, ties), (MORE, more + max(0, len(ordered) - MOST_OF_INPUT))):
        if n:
            dropped[reason] += n
    return ordered[:MOST_OF_INPUT]


def read_open_pairs(
    sources: Sequence[str | Path | Mapping[str, object]], known: Sequence[PreferencePair] = ()
) -> list[tuple[str, str, str]]:
    """Pairs (input, first, second) of different answers to one input that are not among the `known` ones.

    A row holds an input and an answer, or an input and two answers; all answers to one input are paired, those of at most 20
    answers an input. Raises UsageError with file and line for another row, and where no input has two answers.
    """
    answers: dict[str, dict[str, None]] = {}
    for row in sourced_rows(sources):
        left = flatten_row(row.value)
        sides = _sides(left) or next(
            ((c, r) for c, r in zip(CHOSEN, REJECTED, strict=True) if c in left and r in left), None
        )
        query = _query(left, row.where)
        own = [left[name] for name in sides] if sides else [name_in(left, "output")]
        if not query or any(value is None for value in own):
            raise UsageError(
                f"{row.where}: the row needs an input and an answer (or two). Its columns: "
                f"{', '.join(map(str, row.value)) or 'none'}."
            )
        answers.setdefault(query, {}).update(dict.fromkeys(_answer(value, row.where) for value in own))
    done = {(pair.query, frozenset((pair.better, pair.worse))) for pair in known}
    pairs = [
        (query, one, other)
        for query, texts in answers.items()
        for one, other in combinations(list(texts)[:END], 2)
        if (query, frozenset((one, other))) not in done
    ]
    if not pairs:
        raise UsageError(
            "No input has two answers that nobody has compared. Give two or more answers to an input."
        )
    return pairs
