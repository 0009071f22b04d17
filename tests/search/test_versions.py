"""Other versions of a text as a request shows them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whet.search.versions import LONGEST, OtherVersion, compare_rewards, differing_stretches, show_versions
from whet.types import Rollout

WORDS = st.lists(st.sampled_from(["a", "b", "c\n", "d.", "ä"]), max_size=60).map(" ".join)


@given(WORDS, WORDS)
def test_what_is_shown_of_a_version_is_a_part_of_it_with_every_word_that_is_new(old: str, new: str) -> None:
    shown = differing_stretches(old, new)
    assert len(shown) <= LONGEST + 6
    rest, at = new.split(), 0
    for stretch in shown.split("[...]"):
        words = stretch.split()
        found = next(n for n in range(at, len(rest) + 1) if rest[n : n + len(words)] == words)
        at = found + len(words)
    assert set(rest) - set(old.split()) <= set(shown.split())


def test_equal_stretches_are_shortened_and_lines_stay_lines() -> None:
    same = " ".join(f"w{n}" for n in range(30))
    assert (
        differing_stretches(f"{same}\nOld end.", f"{same}\nNew end.")
        == "[...] w24 w25 w26 w27 w28 w29\nNew end."
    )
    assert differing_stretches("a short text", "a short new text") == "a short new text"


def answers(*rewards: float, failed: int | None = None) -> list[Rollout]:
    error = {failed: "provider: HTTP 500"} if failed is not None else {}
    return [Rollout("p", str(n), "x", reward, error=error.get(n)) for n, reward in enumerate(rewards)]


def test_it_is_told_what_a_version_earned_on_the_rows_that_both_answered() -> None:
    earned = compare_rewards(answers(1.0, 0.0, 0.5, 0.5, 1.0), answers(0.0, 0.0, 0.5, 0.5, 1.0, failed=4))
    assert earned == "Mean reward 0.25, the instructions above 0.5 on the same 4 inputs"
    counted = compare_rewards(answers(1.0, 0.0, 1.0, 0.0), answers(0.0, 0.0, 1.0, 0.0))
    assert counted == "1 of 4 right, the instructions above 2 on these inputs"
    assert compare_rewards(answers(*[1.0] * 4), answers(*[0.0] * 4, failed=0)) == "", (
        "three inputs tell nothing"
    )
    shown = show_versions("One two.", [OtherVersion("One three.", earned)])
    assert shown == f"{earned}:\n<version>\nOne three.\n</version>"
