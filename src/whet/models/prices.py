"""Prices of a model's tokens, as the task file states them. No table ships with whet: it would go stale."""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import Usage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million input tokens, per million output tokens, and for a `picture`; all finite and not negative.

    `cached_input`: the price of input tokens that the provider read from its cache, `cache_write`: of those that it wrote into
    it; None: that of the others. `cache_write_1h`: the price of those that it wrote for an hour; None: that of `cache_write`.
    `batch`: the share of all this that a call in a batch costs.

    >>> Price(0.15, 0.60).cost(Usage(2_000_000, 500_000))
    0.6
    >>> Price(1.0, 2.0, cached_input=0.1).cost(Usage(2_000_000, 0, cached_input_tokens=1_000_000))
    1.1
    >>> Price(1.0, 2.0, cache_write=1.25).cost(Usage(2_000_000, 0, cache_write_tokens=1_000_000))
    2.25
    >>> written = Usage(1_000_000, 0, cache_write_tokens=1_000_000, cache_write_1h_tokens=600_000)
    >>> Price(1.0, 2.0, cache_write=1.25, cache_write_1h=2.0).cost(written)
    1.7
    >>> Price(5.0, 0.0, picture=0.04).cost(Usage(100_000, pictures=2))
    0.58
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    picture: float = 0.0
    batch: float = 0.5

    def cost(self, usage: Usage) -> float:
        """US dollars for the tokens of `usage`, whatever the provider says that they cost."""
        reduced = self.input if self.cached_input is None else self.cached_input
        raised = self.input if self.cache_write is None else self.cache_write
        for_hour = raised if self.cache_write_1h is None else self.cache_write_1h
        read = (usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens) * self.input
        long = usage.cache_write_1h_tokens
        stored = (usage.cache_write_tokens - long) * raised + long * for_hour
        cached = usage.cached_input_tokens * reduced
        tokens = read + cached + stored + usage.output_tokens * self.output
        return tokens / _MILLION + usage.pictures * self.picture

    def most(self, usage: Usage) -> float:
        """US dollars for the tokens of `usage` at most: all of its input may be read from the provider's cache or written into
        it."""
        dearest = max(
            self.input, self.cached_input or 0.0, self.cache_write or 0.0, self.cache_write_1h or 0.0
        )
        tokens = usage.input_tokens * dearest + usage.output_tokens * self.output
        return tokens / _MILLION + usage.pictures * self.picture
