"""Two changed texts as one, line by line, as version control merges two branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from whet.prompt import Prompt
from whet.search.copies import normalize_wording
from whet.search.demonstrations import editable
from whet.search.edits import replace_region, text_in


def merged_text(base: str, first: str, second: str) -> str | None:
    """The text `base` with what two texts made from it have changed; None where there is nothing to merge.

    A line of the base goes where both dropped it, or one put something in its place: what one lost and the other kept stays.
    A line that both add stands once. There is nothing to merge where a text keeps less than half of the lines of the base
    (always so for an empty base), or where both put different lines in the place of the same one.

    >>> merged_text("a\\nb", "a\\nb\\nc", "a\\nd").splitlines()
    ['a', 'd', 'c']
    >>> merged_text("a\\nb\\nc", "a\\nb\\nc\\nd", "b\\nc").splitlines()
    ['a', 'b', 'c', 'd']
    """
    lines = base.splitlines()
    one, two = _changes(lines, first.splitlines()), _changes(lines, second.splitlines())
    contested = {
        place for place in one.replaced & two.replaced if one.added.get(place) != two.added.get(place)
    }
    if not lines or contested or 2 * max(len(one.gone), len(two.gone)) > len(lines):
        return None
    gone = one.replaced | two.replaced | (one.gone & two.gone)
    known = {line for block in one.added.values() for line in block if line.strip()}
    merged: list[str] = []
    for place in range(len(lines) + 1):
        merged += one.added.get(place, [])
        merged += [
            line for line in two.added.get(place, []) if not any(alike(line, other) for other in known)
        ]
        merged += [lines[place]] if place < len(lines) and place not in gone else []
    return "\n".join(merged)


def alike(line: str, other: str) -> bool:
    """Whether all but a quarter of the shorter line stands in the other one, in a row. Then one of them is enough to try."""
    short, long = sorted((normalize_wording(line), normalize_wording(other)), key=len)
    if short[len(short) // 4 : len(short) * 3 // 4] not in long:  # any such row holds the middle of the line
        return False
    return (
        4 * SequenceMatcher(None, short, long, autojunk=False).find_longest_match().size >= 3 * len(short) > 0
    )


@dataclass
class _Changes:
    """The changes of a text: lines added before each line of the base, deleted lines, and those of them that were replaced."""

    added: dict[int, Sequence[str]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    replaced: set[int] = field(default_factory=set)


def _changes(base: Sequence[str], text: Sequence[str]) -> _Changes:
    changes = _Changes()
    for tag, start, stop, begin, end in SequenceMatcher(None, base, text, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        changes.added[start] = text[begin:end]
        changes.gone.update(range(start, stop))
        changes.replaced.update(range(start, stop) if tag == "replace" else ())
    return changes


def merged_prompt(start: Prompt, base: Prompt, first: Prompt, second: Prompt) -> Prompt | None:
    """The prompt `first` with what `second` has changed besides since `base`, region by region; None where that is nothing.

    All four descend from `start`. Of a region in which there is nothing to merge, the text of `first` stays if it is a new one.
    """
    merged = first
    for region in editable(start):
        focused = start.with_focus(region)
        before, one, two = (text_in(focused, prompt) for prompt in (base, first, second))
        text = merged_text(before, one, two)
        if text is None:
            text = two if one == before else one
        merged = replace_region(merged.restore(region, start), text, region) or merged
    return None if merged == first else merged
