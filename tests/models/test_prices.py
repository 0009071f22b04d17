"""Prices and secrets."""

from __future__ import annotations

import copy

import pytest

from whet.models.prices import Price
from whet.models.secret import Secret
from whet.types import Usage

CANARY = "sk-canary-7f3a91c2/+b64"


def test_prices() -> None:
    assert Price(0.5, 2).cost(Usage(1_000_000, 250_000)) == 1.0


def test_secret() -> None:
    assert repr(Secret(CANARY)) == str(Secret(CANARY)) == "Secret([key])"
    assert not Secret("")
    assert Secret("ab").scrub("about") == "about"
    assert Secret("").scrub("Bearer abcdef sk-12345") == "Bearer [key] [key]"
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(Secret(CANARY))
