"""The bound on the length of a prompt travels through its edits."""

from __future__ import annotations

import pytest

from whet.errors import EditRejected
from whet.prompt import Prompt
from whet_client.prompt.length import LengthLimit


def test_a_text_beyond_the_limit_is_refused_with_both_numbers() -> None:
    from dataclasses import replace

    start = replace(Prompt.parse("Be kind.\n{{a}}"), limit=LengthLimit(20))
    assert start.edit("Be kind and brief.").edit("Be brief.").limit == start.limit
    with pytest.raises(EditRejected, match="would have 27 tokens; it may have at most 20"):
        start.edit("Be brief. " * 10)


def test_what_is_too_long_already_may_become_shorter() -> None:
    limit = LengthLimit(5)
    limit.check("a" * 100, "a" * 80)
    with pytest.raises(EditRejected):
        limit.check("a" * 100, "a" * 120)


def test_the_default_is_three_times_the_start_and_at_least_2000_tokens() -> None:
    assert LengthLimit.of("short", None).tokens == 2000
    assert LengthLimit.of("a" * 4000, None).tokens == 3000
    assert LengthLimit.of("short", 7).tokens == 7
    assert LengthLimit.of("one two", None, lambda text: 1000 * len(text.split())).tokens == 6000
