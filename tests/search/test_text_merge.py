"""Two changed texts, or prompts, as one."""

from __future__ import annotations

import pytest

from whet.prompt import Prompt
from whet.search.text_merge import alike, merged_prompt, merged_text


@pytest.mark.parametrize(
    ("base", "first", "second", "merged"),
    [
        pytest.param("ab", "abc", "abd", "abcd", id="both add"),
        pytest.param("ab", "cab", "abd", "cabd", id="at both ends"),
        pytest.param("abc", "abcd", "bc", "abcd", id="one lost a line that the other kept"),
        pytest.param("abc", "bc", "bcd", "bcd", id="both dropped a line"),
        pytest.param("abc", "axc", "abcd", "axcd", id="one replaced a line"),
        pytest.param("abc", "axc", "axcd", "axcd", id="both replaced it by the same"),
        pytest.param("abc", "axc", "ayc", None, id="both replaced it, by different lines"),
        pytest.param("abc", "abcd", "abcd", "abcd", id="both add the same"),
        pytest.param("abc", "abcd", "xyz", None, id="one is written anew"),
        pytest.param("", "ab", "cd", None, id="nothing to edit"),
    ],
)
def test_lines_are_merged_as_in_version_control_but_a_loss_needs_both(
    base: str, first: str, second: str, merged: str | None
) -> None:
    """Each letter is a line."""
    result = merged_text(*("\n".join(text) for text in (base, first, second)))
    assert (None if result is None else result.replace("\n", "")) == merged


@pytest.mark.parametrize(
    ("line", "other", "same"),
    [
        ("- The title is short.", "- Always: the title is short.", True),
        (
            "- \u6807\u9898\u8981\u77ed\u4e14\u6e05\u695a\u3002",
            "* \u6807\u9898\u8981\u77ed\u4e14\u6e05\u695a\u3002",
            True,
        ),
        ("- The title is short.", "- The footer is long.", False),
        ("", "- The title is short.", False),
    ],
)
def test_lines_are_alike_where_most_of_the_shorter_stands_in_the_other(
    line: str, other: str, same: bool
) -> None:
    assert alike(line, other) is alike(other, line) is same
    merged = merged_text("a\nb", f"a\nb\n{line}", f"a\nb\n{other}")
    assert merged is not None
    assert (other in merged.splitlines()) is not same


def test_a_prompt_takes_each_region_from_the_one_that_changed_it() -> None:
    def pair(one: str, two: str) -> Prompt:
        return Prompt.parse(
            f"Sort.\n<!-- whet:begin one -->\n{one}\n<!-- whet:end -->\n"
            f"<!-- whet:begin two -->\n{two}\n<!-- whet:end -->\n{{{{input}}}}"
        )

    start, first, second = (
        pair("Be quick.", "Guess."),
        pair("Be slow.", "Guess."),
        pair("Be quick.", "Think."),
    )
    assert merged_prompt(start, start, first, second) == pair("Be slow.", "Think.")
    assert merged_prompt(start, start, first, pair("Be calm.", "Guess.")) is None
    assert merged_prompt(start, start, first, start) is None
