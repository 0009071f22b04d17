"""The usage of calls so far, and the reservation for later calls that follows from it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.types import Usage

KNOWN_AFTER = 3
"""Answers after which what a model took, with a margin, is reserved for its next call instead of all that it may take."""
MARGIN = 1.25
OTHERS = 2.0
"""Margin where only other models of the run say how many tokens a text has."""
MORE_WRITTEN = 32
"""Tokens beyond the margin for an answer that is longer than all before."""
RECENT = 16
"""Answers of the task model that tell how much dearer the prompts of a search are than the start prompt."""
SPREADS = 1.3
"""Standard deviations beyond the expectation that are kept for the sealed test."""
LEAST_SPREAD = 0.02
_LONG, _CUT = 1_000, 0.5
"""Tokens, as whet counts them, from which a prompt may have been cut, and the share of what is expected below which it was."""
_LETTERS = 3
"""Characters of a token at least where words may be counted at all, which takes time."""


@dataclass
class ObservedUsage:
    """The usage of one model client's answered calls."""

    answers: int = 0
    ratio: float = 0.0
    """The largest ratio of tokens read to tokens that whet counts."""
    written: int = 0
    """The most tokens of one completion, its thought included."""
    dearest: float = 1.0
    """The largest ratio of the US dollars of a completion to those that the price expects."""
    tokens: int = 0
    wasted: int = 0
    """Tokens of calls that were billed and gave no answer."""
    others: float = 0.0
    """The largest ratio of the run's other models, used until this model has its own."""
    least: float = math.inf
    """The smallest ratio."""
    cut: bool = False
    """Whether an answer had as many tokens as its bound allowed."""
    passed: bool = False
    """Whether an answer had more tokens than its bound allowed."""
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def known(self) -> bool:
        """Whether enough calls were answered to expect the next ones to be alike."""
        return self.answers >= KNOWN_AFTER

    @property
    def keeps_bounds(self) -> bool:
        """Whether answers have shown that the server counts all that the model writes, and ends it at its bound."""
        return self.cut and not self.passed

    def note(
        self, counted: int, n: int, usage: Usage, cost: float, price: float, bound: int | None = None
    ) -> None:
        """A call with `n` completions of at most `bound` tokens was answered; whet had counted so many input tokens. `price`: its
        dollars by the price."""
        self.answers += 1
        tokens = usage.input_tokens + usage.output_tokens
        ratio = usage.input_tokens / max(1, counted)
        self.ratio = max(self.ratio, ratio)
        if not self.lost_input(counted, usage):
            self.least = min(self.least, ratio)
        self.written = max(self.written, math.ceil(usage.output_tokens / max(1, n)))
        if bound is not None and not usage.estimated:
            self.cut |= n == 1 and usage.output_tokens == bound
            self.passed |= usage.output_tokens > n * bound
        if price:
            self.dearest = max(self.dearest, cost / price)
        self.tokens += tokens
        self.recent.append((float(tokens), cost))

    def lost_input(self, counted: int, usage: Usage) -> bool:
        """Whether an answer reports so few input tokens that the server must have cut the prompt: less than half of what the
        other requests say a text of its length has."""
        if not self.known or usage.estimated or counted < _LONG or usage.input_tokens == 0:
            return False
        return usage.input_tokens < _CUT * self.least * counted

    @staticmethod
    def lost_words(texts: Sequence[str], usage: Usage) -> int:
        """Count the words that the server must have cut from a prompt, even if the server cuts every prompt: an answer reports
        fewer input tokens than the prompt has words between blanks, and each such word has at least one token. 0 where there
        are enough."""
        if (
            usage.estimated
            or usage.input_tokens < _LONG
            or sum(map(len, texts)) < _LETTERS * usage.input_tokens
        ):
            return 0
        words = sum(len(text.split()) for text in texts)
        return words if words > MARGIN * usage.input_tokens else 0

    def read_at_most(self, counted: int) -> int:
        """Input tokens to reserve for a request for which whet counts so many."""
        if self.known or self.ratio > 1:
            return math.ceil(MARGIN * self.ratio * counted)
        likely = OTHERS * max(self.others, self.ratio)
        return min(counted, math.ceil(likely * counted)) if self.others else counted

    def written_at_most(self, bound: int, n: int) -> int:
        """Output tokens to reserve for `n` completions with a bound each. A model that thinks beyond its bound may think for
        longer than it did."""
        most = math.ceil(MARGIN * self.written)
        if self.written > bound:
            return most * n
        return min(bound, most + MORE_WRITTEN) * n if self.known else bound * n


@dataclass
class SealedReserve:
    """The cost of the sealed test of two prompts. The first prompt costs as much as on validation. The second costs more by
    the factor by which the task model's newest answers, or those that validated the best prompt, cost more.

    `baseline`: tokens and dollars of each row that was measured; `call`: those of a call of the task model on average, by which
    the newest are judged. `longer`: how much longer the test rows are. `last`: tokens and dollars of one call at its longest, so
    that the last calls find room for what they may take.
    """

    rows: int
    baseline: Sequence[tuple[float, float]]
    call: tuple[float, float]
    observed: ObservedUsage
    longer: float = 1.0
    last: tuple[float, float] = (0.0, 0.0)
    _best: tuple[float, float] = (1.0, 1.0)

    def note_best(self) -> None:
        """The newest answers are those of the best prompt so far."""
        self._best = self._growth(0), self._growth(1)

    def _growth(self, k: int) -> float:
        recent = self.observed.recent
        if len(recent) < RECENT or not self.call[k]:
            return 1.0
        return max(1.0, sum(pair[k] for pair in recent) / len(recent) / self.call[k])

    @property
    def tokens(self) -> int:
        """Tokens that are kept for the test."""
        return math.ceil(self._estimate_need(0))

    @property
    def cost(self) -> float:
        """US dollars that are kept for the test."""
        return self._estimate_need(1)

    def _estimate_need(self, k: int) -> float:
        """The expectation, some standard deviations of sum and mean, and one call at its longest."""
        values, rows = [row[k] for row in self.baseline], 2 * self.rows
        mean = sum(values) / len(values)
        growth = max(self._growth(k), self._best[k])
        repeated = 1 + self.observed.wasted / max(1, self.observed.tokens)
        expected = self.rows * mean * (1 + growth) * self.longer * repeated
        variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
        spread = SPREADS * growth * math.sqrt(variance * (rows + rows * rows / len(values)))
        longest = max(MARGIN * max(values) * growth, self.last[k])
        return expected + max(spread, LEAST_SPREAD * expected) + longest
