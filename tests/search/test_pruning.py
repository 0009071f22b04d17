"""What is left of a prompt whose words are dropped."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from whet.prompt import Prompt
from whet.search.demonstrations import Demonstration, with_demonstrations
from whet.search.pruning import PrunableText, drop_words

START = Prompt.parse(
    "Sort it.\n<!-- whet:begin -->\nRead it, then answer (briefly): {{input}} good or bad.\n<!-- whet:end -->\nGo."
)


def test_words_are_dropped_by_place_and_slots_are_no_words() -> None:
    text = PrunableText.of(START, START)
    words = [span.of(text.texts[name]) for name, span in text.words]
    assert words == ["Read", "it", "then", "answer", "(briefly)", "good", "or", "bad"]
    assert text.prompt(text.whole) == START
    pruned = text.prompt((0, 3, 7))
    assert pruned is not None
    assert pruned.region_text().split() == ["Read,", "answer:", "{{input}}", "bad."]


def test_a_prompt_without_a_fence_and_with_demonstrations_is_pruned_as_a_whole() -> None:
    start = Prompt.parse("Answer with a digit. {{input}}")
    base = with_demonstrations(start, [Demonstration("r", "two and two", "4")]) or start
    text = PrunableText.of(start, base)
    assert text.prompt(text.whole) is not None
    last = text.prompt((len(text.words) - 1,))
    assert last is not None and "4" in last.text and "digit" not in last.text and "{{input}}" in last.text


def test_a_region_that_would_be_empty_is_refused_and_one_in_focus_pruned_alone() -> None:
    start = Prompt.parse(
        "<!-- whet:begin a -->\none two\n<!-- whet:end -->\n<!-- whet:begin b -->\nthree\n<!-- whet:end -->\n{{input}}"
    )
    assert PrunableText.of(start, start).prompt((0, 1)) is None
    focused = PrunableText.of(start.with_focus("a"), start)
    pruned = focused.prompt((1,))
    assert len(focused.words) == 2 and pruned is not None
    assert (pruned.region_text("a").strip(), pruned.region_text("b").strip()) == ("two", "three")


@given(st.sets(st.integers(0, 7)))
def test_any_words_may_be_kept(kept: set[int]) -> None:
    text = PrunableText.of(START, START)
    pruned = text.prompt(kept)
    assert pruned is not None and pruned.slots == START.slots
    words = [span.of(text.texts[name]) for name, span in text.words]
    assert [
        w for w in pruned.region_text().replace("{{input}}", "").split() if any(map(str.isalnum, w))
    ] != [] or not kept
    for number in kept:
        assert words[number] in pruned.region_text()


def test_a_random_drop_keeps_the_order_and_a_word() -> None:
    rng = random.Random(0)
    made = {drop_words(rng, (1, 4, 5, 9), 2) for _ in range(200)}
    assert len(made) == 6 and all(tuple(sorted(one)) == one and len(one) == 2 for one in made)
    assert len(drop_words(rng, (1, 4), 9)) == 1
