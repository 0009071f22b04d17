"""Measure: how often each instruction is violated before and after it stands, and which are violated still.

A violation is an answer of which the reader said that a critique demands what the instruction says. It is counted for
instructions that stand as well as for those that were added because of it or are left out on trial.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from whet.prompt.events import Effect, Measure
from whet.prompt.instructions import LayoutEntry
from whet.stats.rates import newcombe, tail

SHOWN = 2
"""Earlier wordings of an instruction that are compared at most, the last ones."""
_SURE = 0.05
_FLOOR = 0.01
_SEVERAL = 3
_OVERDUE = 4.6


@dataclass(frozen=True)
class Round:
    """One roll-out: how many answers were judged, the instructions that stood (id to text), the answers that violated each id,
    the rewards, of how many answers the reader mentioned every critique (None: of all), how many answers want the contrary
    of each id, how many got any critique, and in which order the instructions stood among the unmanaged lines."""

    answers: int
    shown: Mapping[str, str]
    violated: Mapping[str, int]
    rewards: Sequence[float] = ()
    read: int | None = None
    opposed: Mapping[str, int] = field(default_factory=dict)
    criticised: int = 0
    layout: tuple[LayoutEntry, ...] = ()

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The texts in the prompt that new texts are compared with: instructions with their ids, and unmanaged lines without
        an id."""
        return (*sorted(self.shown.items()), *(("", entry.text) for entry in self.layout if not entry.id))


@dataclass
class Effects:
    """All rounds so far; `since` says with which round an id appeared."""

    rounds: list[Round] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)

    def add(self, one: Round) -> None:
        """Take a round in."""
        for key in (*one.shown, *one.violated):
            self.since.setdefault(key, len(self.rounds))
        self.rounds.append(one)

    def note_demand(self, key: str, answers: int) -> None:
        """The instruction was added because this many answers of the last round violate it."""
        last = self.rounds[-1]
        self.rounds[-1] = replace(last, violated={**last.violated, key: answers})
        self.since[key] = len(self.rounds) - 1

    def merge(self, keep: str, others: Collection[str]) -> None:
        """Count a violation of one of the `others` as a violation of the instruction that they became part of."""
        for n, one in enumerate(self.rounds):
            hits = sum(one.violated.get(key, 0) for key in (keep, *others))
            if hits:
                self.rounds[n] = replace(one, violated={**one.violated, keep: min(one.answers, hits)})
        self.since[keep] = min(self.since[key] for key in (keep, *others) if key in self.since)

    def count_violations(self, pair: tuple[str, str]) -> tuple[int, int]:
        """Count the answers that violated each of two contradicting instructions, over the roll-outs that treated both alike:
        both stood in the prompt, or neither did."""
        alike = [r for r in self.rounds if (pair[0] in r.shown) == (pair[1] in r.shown)]
        first, second = (sum(r.violated.get(key, 0) for r in alike) for key in pair)
        return first, second

    def rate(self, key: str, stands: Callable[[Round], bool]) -> tuple[int, int]:
        """(violations, answers) over the rounds since the id appeared that `stands` picks."""
        rows = [r for r in self.rounds[self.since.get(key, len(self.rounds)) :] if stands(r)]
        return sum(min(r.answers, r.violated.get(key, 0)) for r in rows), sum(r.answers for r in rows)

    def before(self, key: str) -> tuple[int, int]:
        """(violations, answers) without the instruction."""
        return self.rate(key, lambda r: key not in r.shown)

    def after(self, key: str, text: str) -> tuple[int, int]:
        """(violations, answers) while the instruction stood with this text."""
        return self.rate(key, lambda r: r.shown.get(key) == text)

    def compare_wordings(self, key: str, text: str, tried: Sequence[str]) -> list[str]:
        """Compare the violations of the last earlier wordings of an instruction with those of the present `text`, a line each."""
        hits, answers = self.after(key, text)
        beside = f", the present one in {hits} of {answers}" if answers else ""
        rates = [(old, self.after(key, old)) for old in dict.fromkeys(tried) if old != text]
        return [
            f"Another wording (violated in {h} of {n} answers{beside}): {old}"
            for old, (h, n) in rates[-SHOWN:]
            if n
        ]

    def least_violated(self, key: str, text: str, tried: Sequence[str]) -> str:
        """The text that was violated least of those tried; the present one where it is as good, or was not seen."""
        rates = {t: self.after(key, t) for t in tried}
        tested = {t: (hits + 0.5) / (n + 1) for t, (hits, n) in rates.items() if n}
        return min(tested, key=lambda t: (tested[t], t != text)) if text in tested else text

    def mainstays(self) -> set[str]:
        """Ids that explain more than half of the critiques of a round, of three answers at least: nothing is learned by leaving
        them out."""
        return {
            key
            for r in self.rounds
            for key, hits in r.violated.items()
            if hits >= _SEVERAL and 2 * hits > r.criticised > 0
        }

    def first_rate(self, key: str) -> float:
        """The share of answers that violated the instruction in the round that it was made of; 0 for one of the start."""
        first = self.rounds[self.since[key]]
        return 0.0 if key in first.shown else first.violated.get(key, 0) / max(1, first.answers)

    def missed_rate(self) -> float:
        """The median share of answers that violate an instruction while it is left out on trial, of those that are missed."""
        rates = [
            r.violated[key] / r.answers
            for n, r in enumerate(self.rounds)
            for key in r.violated
            if r.answers and key not in r.shown and self.since[key] < n
        ]
        return median(rates) if rates else 0.0

    def overdue(self, key: str) -> bool:
        """Whether the instruction came late: others that were missing were demanded so often before that one like them would have
        been demanded too (expected 4.6 times, so that silence has a chance of 1%)."""
        expected = 0.0
        for r in self.rounds[: self.since.get(key, 0)]:
            rates = [
                hits / r.answers for other, hits in r.violated.items() if r.answers and other not in r.shown
            ]
            expected += median(rates or [0.0]) * (r.answers if r.read is None else r.read)
        return expected > _OVERDUE

    def still_violated(self, standing: Mapping[str, str]) -> list[str]:
        """Ids that are violated beyond what obeyed instructions show as noise, or half as often as before; worst first.

        The noise is the mean rate of the better four fifths, at least 1%; the test is binomial, at 5% over all instructions.
        """
        rates = {key: self.after(key, text) for key, text in standing.items()}
        seen = sorted(hits / n for hits, n in rates.values() if n)
        better = seen[: max(1, len(seen) * 4 // 5)]
        noise = min(0.2, max(_FLOOR, sum(better) / len(better))) if better else _FLOOR
        failing = []
        for key, (hits, n) in rates.items():
            was, answers = self.before(key)
            as_before = hits >= _SEVERAL and was > 0 and 2 * hits * answers >= was * n
            if n and (as_before or tail(hits, n, noise) < _SURE / len(rates)):
                failing.append((-hits / n, key))
        return [key for _, key in sorted(failing)]

    def measure(self, standing: Mapping[str, str], at: str = "") -> list[Measure]:
        """The effect of each instruction that was seen without and with it: the fall of its rate with a 95% interval
        (Newcombe 1998, method 10)."""
        events = []
        for key, text in standing.items():
            was, now = self.before(key), self.after(key, text)
            if was[1] and now[1]:
                events.append(Measure(id=key, effect=Effect(was, now, *newcombe(was, now)), at=at))
        return events
