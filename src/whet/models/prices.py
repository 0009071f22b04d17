"""Prices of a model's tokens, as the task file states them. No table ships with whet: it would go stale."""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import Usage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million input tokens and per million output tokens; all finite and not negative.

    `cached_input`: the price of input tokens that the provider read from its cache; None: that of the others.

    >>> Price(0.15, 0.60).cost(Usage(2_000_000, 500_000))
    0.6
    >>> Price(1.0, 2.0, cached_input=0.1).cost(Usage(2_000_000, 0, cached_input_tokens=1_000_000))
    1.1
    """

    input: float
    output: float
    cached_input: float | None = None

    def cost(self, usage: Usage) -> float:
        """US dollars for the tokens of `usage`, whatever the provider says that they cost."""
        reduced = self.input if self.cached_input is None else self.cached_input
        read = (usage.input_tokens - usage.cached_input_tokens) * self.input
        return (read + usage.cached_input_tokens * reduced + usage.output_tokens * self.output) / _MILLION
