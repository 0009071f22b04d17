"""Prices and secrets."""

from __future__ import annotations

import copy

import pytest

from whet.errors import UsageError
from whet.models.prices import Price
from whet.models.secret import Secret
from whet.types import Usage

CANARY = "sk-canary-7f3a91c2/+b64"


def test_prices() -> None:
    price = Price.parse({"input": 0.5, "output": 2})
    assert price.cost(Usage(1_000_000, 250_000)) == 1.0
    for bad, said in (
        (3, "expected {input: USD, output: USD}"),
        ({"inptu": 1, "output": 2}, 'Did you mean "input"'),
        ({"input": 1}, 'the key "output" is missing'),
        ({"input": -1, "output": 2}, "0 or more, found -1"),
        ({"input": True, "output": 2}, "0 or more, found True"),
        ({"input": float("nan"), "output": 2}, "found nan"),
    ):
        with pytest.raises(UsageError, match=r"task\.yaml: models\.task\.price") as caught:
            Price.parse(bad, "task.yaml: models.task.price")
        assert said in str(caught.value)


def test_secret() -> None:
    assert repr(Secret(CANARY)) == str(Secret(CANARY)) == "Secret([key])"
    assert not Secret("")
    assert Secret("ab").scrub("about") == "about"
    assert Secret("").scrub("Bearer abcdef sk-12345") == "Bearer [key] [key]"
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(Secret(CANARY))
