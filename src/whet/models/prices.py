"""Prices of a model's tokens, as the task file states them. No table ships with whet: it would go stale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from whet.errors import UsageError, did_you_mean
from whet.types import Usage

_KEYS = ("input", "output")
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million input tokens and per million output tokens; both finite and not negative.

    >>> Price(0.15, 0.60).cost(Usage(2_000_000, 500_000))
    0.6
    """

    input_per_million: float
    output_per_million: float

    def cost(self, usage: Usage) -> float:
        """US dollars for the tokens of `usage`."""
        spent = usage.input_tokens * self.input_per_million + usage.output_tokens * self.output_per_million
        return spent / _MILLION

    @classmethod
    def parse(cls, value: object, where: str = "price") -> Price:
        """Price from `{input: USD, output: USD}`, both per million tokens.

        Raises UsageError, beginning with `where`, for another shape, an unknown or missing key, or a
        number that is negative or not finite.
        """
        if not isinstance(value, Mapping):
            raise UsageError(
                f"{where}: expected {{input: USD, output: USD}} per million tokens, found {value!r}."
            )
        for key in value:
            if key not in _KEYS:
                raise UsageError(f'{where}: unknown key "{key}".{did_you_mean(str(key), _KEYS)}')
        return cls(*(_amount(value, key, where) for key in _KEYS))


def _amount(value: Mapping[object, object], key: str, where: str) -> float:
    if key not in value:
        raise UsageError(f'{where}: the key "{key}" is missing. Give US dollars per million {key} tokens.')
    amount = value[key]
    if (
        isinstance(amount, bool)
        or not isinstance(amount, (int, float))
        or not math.isfinite(amount)
        or amount < 0
    ):
        raise UsageError(
            f"{where}.{key}: expected US dollars per million tokens, 0 or more, found {amount!r}."
        )
    return float(amount)
