"""Prices of a model's tokens, as the task file states them. No table ships with whet: it would go stale."""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import Usage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million input tokens and per million output tokens; both finite and not negative.

    >>> Price(0.15, 0.60).cost(Usage(2_000_000, 500_000))
    0.6
    """

    input: float
    output: float

    def cost(self, usage: Usage) -> float:
        """US dollars for the tokens of `usage`."""
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / _MILLION
