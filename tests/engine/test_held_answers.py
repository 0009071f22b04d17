"""Answers of a run in memory: the same as they were put there, large ones in less space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.engine.held_answers import HeldAnswers

VALUES = st.binary(max_size=30) | st.integers(65_000, 70_000).map(lambda size: b"again " * size)


@given(st.lists(st.tuples(st.sampled_from("abc"), VALUES), max_size=6))
def test_answers_are_those_that_were_put_there(puts: list[tuple[str, bytes]]) -> None:
    held, plain = HeldAnswers(), dict[str, bytes]()
    for digest, value in puts:
        held[digest] = plain[digest] = value
    assert dict(held) == plain and len(held) == len(plain)
    assert all(digest in held for digest in plain) and "z" not in held
    for digest in plain:
        assert held.pop(digest) == plain[digest]
    assert len(held) == 0 and held.get("a") is None
    with pytest.raises(KeyError):
        held["a"]


def test_large_answers_take_less_space() -> None:
    held = HeldAnswers()
    for number in range(20):
        held[str(number)] = b"The same again. " * 65_536
    assert held.size < 1 << 20 < sum(map(len, held.values()))
