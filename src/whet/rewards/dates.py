"""The reward that compares dates, however they are written."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex

from whet._util.words import fold, strip_wrapping
from whet.errors import UsageError
from whet.replies.alternatives import marks_nothing, names_several
from whet.replies.marked import marked_results
from whet.rewards.month_names import month_names
from whet.rewards.reward import TARGET
from whet.rewards.targets import accepted_answers, quote_target, show_target
from whet.run import Run
from whet.types import Completion, Example, Reward

_LONGEST, _LONGEST_WRAPPED, _MOST_WORDS = 60, 400, 60
_GAP = r"(?:\s?[-/.,\u2010-\u2014\p{Han}\p{Hangul}]\s?|\s)"
_NUMERIC = regex.compile(
    rf"(?<![0-9])([0-9]{{1,4}})({_GAP})([0-9]{{1,2}})({_GAP})([0-9]{{1,4}})(?![0-9])\s?[\p{{Han}}\p{{Hangul}}]?"
)
_ISO = regex.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[t ][0-9]{1,2}:?[0-9]{2}[0-9:.,]*\s?(?:z|[-+][0-9]{2}:?[0-9]{2})?)?"
)
_COMPACT = regex.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})")
_CLOCK = regex.compile(r"\s+(?:[0-9]{1,2}:[0-9]{2}[0-9:.,]*.{0,12})\Z")
_COMMA = regex.compile(r"(?<=[0-9]),(?=[0-9])")
_TIME = regex.compile(
    r"(?<![0-9])(?:[0-9]{1,2}(?::[0-9]{2}){1,2}(?:[.,][0-9]+)?(?:\s?[ap]\.?m\b\.?)?|[0-9]{1,2}\s?[ap]\.?m\b\.?)"
    r"(?:\s?(?:utc|gmt|z|[ecmp][sd]t)\b)?(?:\s?[-+][0-9]{1,2}(?::?[0-9]{2})?)?"
)
"""A time of the day, with its zone."""
_OF_DAY = regex.compile(
    r"(?<![0-9])[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?![0-9])|(?<=t[0-9]{2})[0-9]{2,4}(?![0-9])|[0-9]{1,2}\s?[ap]\.?m\b"
)
_RANGE = regex.compile(r"(?<![0-9])[0-9]{1,2}\s?-\s?[0-9]{1,2}(?![0-9])")
_DAY_AND_YEAR = 2
_DAY_FIRST, _MONTH_FIRST = "day", "month"
_TWO_DIGITS = 69
"""The years 69 to 99 of two digits are those of the 20th century (POSIX)."""


def readings(text: str, first: str = "", language: str = "") -> list[datetime.date]:
    """The dates that a text may mean as a whole: none, one, or two where day and month could be either.

    `first` says which stands first in such a text, `day` or `month`. Where points divide the parts, the day does. Names of
    months are read in English and in each `language`, numbers in every script.

    >>> [str(day) for day in readings("2024年3月5日")], len(readings("03/04/2024")), len(readings("13/04/2024"))
    (['2024-03-05'], 2, 1)
    """
    if len(text) > _LONGEST_WRAPPED:
        return []
    folded = strip_wrapping(fold(text))
    if not 0 < len(folded) <= _LONGEST:
        return []
    iso = _ISO.fullmatch(folded) or _COMPACT.fullmatch(folded)
    if iso is not None:
        return _days((iso[1], iso[2], iso[3]))
    match = _NUMERIC.fullmatch(_CLOCK.sub("", folded))
    if match is not None:
        return _numeric(match, first)
    if not any(c.isalpha() for c in folded):
        return []
    names = month_names(language)
    return (names.read(_TIME.sub(" ", folded)) if names is not None else []) or _parse_named_month(
        folded, first
    )


def time_of_day(text: str) -> str:
    """The time of the day that a text holds beside its date, other than midnight; '' where there is none.

    >>> time_of_day("2024-03-05 14:30"), time_of_day("2024-03-05T00:00:00Z"), time_of_day("5 March 2024")
    ('14:30', '', '')
    """
    match = _OF_DAY.search(fold(text))
    return "" if match is None or not match.group().strip("0:") else match.group()


def _days(*parts: tuple[str, str, str]) -> list[datetime.date]:
    days = []
    for year, month, day in parts:
        try:
            days.append(datetime.date(int(year), int(month), int(day)))
        except ValueError:
            continue
    return list(dict.fromkeys(days))


def _numeric(match: Any, first: str) -> list[datetime.date]:
    one, gap, two, other, three = match.groups()
    if len(one) == 4:
        return _days((one, two, three)) if len(three) <= 2 else []
    if len(three) not in (2, 4) or len(one) > 2:
        return []
    year = three if len(three) == 4 else str((1900 if int(three) >= _TWO_DIGITS else 2000) + int(three))
    day_first, month_first = (year, two, one), (year, one, two)
    if "." in gap and "." in other:
        return _days(day_first)
    both = _days(day_first, month_first)
    if len(both) < 2:
        return both
    return both if not first else _days(day_first if first == _DAY_FIRST else month_first)


def _parse_named_month(text: str, first: str) -> list[datetime.date]:
    """A date with the name of a month, read by dateutil, or in numbers beside that of a weekday; none that lacks its day, month
    or year, or has more numbers than these beside the time of the day."""
    from dateutil import parser

    dates = _TIME.sub(" ", _COMMA.sub(", ", text)).strip()
    numeric = _NUMERIC.search(dates)
    several = len(regex.findall(r"[0-9]+", dates)) > _DAY_AND_YEAR or _RANGE.search(dates) is not None
    if several and (numeric is None or numeric[2] != numeric[4]):
        return []
    days = set()
    for default in (datetime.datetime(2000, 1, 1), datetime.datetime(2003, 2, 2)):
        try:
            days.add(parser.parse(dates, default=default, dayfirst=first == _DAY_FIRST).date())
        except (ValueError, OverflowError, TypeError, AttributeError):
            return []
    if several and numeric is not None:
        return _numeric(numeric, first)
    return list(days) if len(days) == 1 else []


def _names_several_days(text: str, first: str, language: str) -> bool:
    """Whether a text names several dates and none of them as its result."""

    def read(piece: str) -> datetime.date | None:
        days = readings(piece, first, language)
        return days[0] if days else None

    return names_several(text, read)


def _last(text: str, first: str, language: str) -> list[datetime.date]:
    """The readings of the date that a text marks as its result, else of the last date in it; none where it names several."""
    if _names_several_days(text, first, language):
        return []
    marked = [days for piece in marked_results(text) if (days := readings(piece, first, language))]
    if len(marked) == 1 or marks_nothing(text):
        return marked[0] if len(marked) == 1 else []
    folded = fold(text)
    numeric = [m for m in _NUMERIC.finditer(folded) if readings(m.group(), first)]
    for words in _windows(folded[numeric[-1].end() :] if numeric else folded, language):
        days = readings(words, first, language)
        if days:
            return days
    return readings(numeric[-1].group(), first) if numeric else []


def _windows(text: str, language: str) -> Iterator[str]:
    """Pieces of two to four words that hold letters and digits, from the end of a text; of up to six where months have names in
    some `language`, which may need more words."""
    words = [word.strip("()[]*_`\"'") for word in text.split()][-_MOST_WORDS:]
    for end in range(len(words), 1, -1):
        for size in (6, 5, 4, 3, 2) if language else (4, 3, 2):
            piece = " ".join(words[max(0, end - size) : end]).rstrip(".,;:!?")
            if any(c.isalpha() for c in piece) and any(c.isdecimal() for c in piece):
                yield piece


def date_of(target: object) -> datetime.date | None:
    """The date that a value is by its type, else None."""
    if isinstance(target, datetime.datetime):
        return target.date()
    return target if isinstance(target, datetime.date) else None


@dataclass(frozen=True)
class Date:
    """1 when the answer is the date of the target, however both are written; times of the day are left aside.

    The answer is wholly a date; with `last`, the last date in it counts, and none where it names several
    and none as its result. `first` (`day` or `month`) says how to read dates such
    as 03/04/2024; without it, such a target is refused, and such an answer is wrong. `language` names the languages, beside
    English, in which a month may be named: `de`, or several as `de, fr` (needs whet[dates]).
    """

    first: str = ""
    last: bool = False
    language: str = ""
    name: str = "date"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def __post_init__(self) -> None:
        if self.first not in ("", _DAY_FIRST, _MONTH_FIRST):
            raise UsageError(f"the option first of date is day or month; this is {self.first!r}.")
        month_names(self.language)

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that is no date, or one of two."""
        for target in accepted_answers(example):
            days = self._readings(target)
            if not days:
                named = any(c.isalpha() for c in show_target(target)) and not self.language
                month = (
                    "name the language of its month with reward: {date: {language: de}}, " if named else ""
                )
                raise UsageError(
                    f"the target {quote_target(show_target(target))} of {example.place} is no date. Write it as YYYY-MM-DD, "
                    f"{month}or compare texts with reward: exact_match."
                )
            if len(days) > 1:
                raise UsageError(
                    f"the target {quote_target(show_target(target))} of {example.place} is {days[0]} or {days[1]}. Say which "
                    "stands first: reward: {date: {first: day}} or {date: {first: month}}."
                )

    def _readings(self, target: object) -> list[datetime.date]:
        day = date_of(target)
        return [day] if day is not None else readings(str(target), self.first, self.language)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        targets = accepted_answers(example)
        days = readings(completion.text, self.first, self.language)
        if not days and self.last:
            days = _last(completion.text, self.first, self.language)
        wanted = {day for target in targets for day in self._readings(target)}
        if len(days) == 1 and days[0] in wanted:
            return Reward(1.0)
        answer, should = (
            f"The answer {quote_target(completion.text)}",
            f"it should be {show_target(targets[0])}.",
        )
        if not days and self.last and _names_several_days(completion.text, self.first, self.language):
            return Reward(
                0.0, critique=f"{answer} names several dates, and none of them as its result; {should}"
            )
        if not days:
            return Reward(0.0, critique=f"{answer} is no date that can be read; {should}")
        if len(days) > 1:
            return Reward(0.0, critique=f"{answer} may mean {days[0]} or {days[1]}; {should}")
        return Reward(0.0, critique=f"{answer} is {days[0]}; {should}")
