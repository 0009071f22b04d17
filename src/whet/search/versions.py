"""Other versions of a text, as an optimizer model is shown them: what differs in each, and what it earned on the same rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from whet.errors import show_size
from whet.search.minibatch import gains, shorten
from whet.types import Rollout

KEPT, LONGEST, TELLING = 6, 1600, 4
"""Words that stay on either side of what differs, characters of a version at most, and inputs that compare it at least."""
VERSION_TAG = "version"
"""Around a version in a question; a new text may take lines of it."""
_CUT = "[...]"
_WORD = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class OtherVersion:
    """Another version of a text, and what it earned beside it, in words."""

    text: str
    earned: str
    wrong: str = ""
    """Some of its wrong answers; empty where none is known."""


def compare_rewards(olds: Sequence[Rollout], news: Sequence[Rollout]) -> str:
    """The rewards of a version (`news`) beside those of the present text (`olds`) on the rows that were answered under both:
    counted where each is 0 or 1. Empty if these rows are too few to tell."""
    rows = [(a, b) for a, b in zip(olds, news, strict=True) if gains([a], [b])]
    if len(rows) < TELLING:
        return ""
    old, new = (sum(one.reward for one in side) for side in zip(*rows, strict=True))
    if {one.reward for pair in rows for one in pair} <= {0, 1}:
        return f"{new:.0f} of {len(rows)} right, the instructions above {old:.0f} on these inputs"
    means = (show_size(total / len(rows), 2) for total in (new, old))
    return "Mean reward {}, the instructions above {} on the same {} inputs".format(*means, len(rows))


def show_versions(text: str, versions: Sequence[OtherVersion]) -> str:
    """Versions of a text, each shortened to what differs from it, with what it earned."""
    shown = list[str]()
    for version in versions:
        wrong = f"; wrong answers: {version.wrong}" if version.wrong else ""
        stretches = differing_stretches(text, version.text)
        shown.append(f"{version.earned}{wrong}:\n<{VERSION_TAG}>\n{stretches}\n</{VERSION_TAG}>")
    return "\n".join(shown)


def differing_stretches(old: str, new: str) -> str:
    """The new text without the middle of long stretches that it shares with the old one.

    >>> differing_stretches("a b c d e f g h i j k l m n o p q r s", "a b c d e f g h i j k l m n o p Q r s")
    '[...] k l m n o p Q r s'
    """
    first, second = _WORD.findall(old.strip()), _WORD.findall(new.strip())
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    pieces: list[str] = []
    for number, (kind, _, _, start, stop) in enumerate(blocks):
        words = second[start:stop]
        before, after = (KEPT if number else 0), (KEPT if number + 1 < len(blocks) else 0)
        if kind == "equal" and len(words) > before + after:
            words = [*words[:before], f"{_CUT} ", *words[len(words) - after :]]
        pieces += words
    return shorten("".join(pieces), LONGEST)
