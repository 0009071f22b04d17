"""Wordings: complaints that say the same in the same way, values that change from rollout to rollout left aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.search.critiques import Complaint
from whet.search.lexicon import NAME, NUMBER, QUOTED, Token, tokens


@dataclass
class Wording:
    """Complaints that say the same in the same way: verbatim texts with counts, and their sources in order."""

    texts: Counter[str] = field(default_factory=Counter)
    sources: dict[str, int] = field(default_factory=dict)
    values: frozenset[Token] = frozenset()

    @property
    def text(self) -> str:
        """The most frequent verbatim text; the first of equals."""
        return max(self.texts, key=lambda t: self.texts[t])

    @property
    def count(self) -> int:
        """How many complaints there are."""
        return self.texts.total()


def find_wordings(complaints: Sequence[Complaint]) -> list[Wording]:
    """Complaints gathered into wordings: the same words, and the same of all values that recur.

    A place for a value holds passing values when what stands there is nearly always new: more than half of its
    values differ among 4 complaints or more of different sources (2 for a number that follows words like "found" or "has",
    which is passing anyway beside a number that does not).
    """
    frames: dict[str, list[tuple[Complaint, tuple[Token, ...]]]] = {}
    for complaint in complaints:
        key, values = _frame(complaint.text)
        frames.setdefault(key, []).append((complaint, values))
    found: dict[tuple[str, ...], Wording] = {}
    for key, members in frames.items():
        passing = _passing([values for _, values in members], [c.source for c, _ in members])
        for complaint, values in members:
            lasting = tuple(v for v, gone in zip(values, passing, strict=True) if not gone)
            wording = found.setdefault((key, *(v.value for v in lasting)), Wording(values=_anchors(lasting)))
            wording.texts[complaint.text] += 1
            wording.sources[complaint.source] = wording.sources.get(complaint.source, 0) + 1
    return list(found.values())


def _frame(text: str) -> tuple[str, tuple[Token, ...]]:
    found = tokens(text)
    frame = " ".join(t.value if t.kind not in (NUMBER, QUOTED, NAME) else f"<{t.kind}>" for t in found)
    return frame, tuple(t for t in found if t.kind in (NUMBER, QUOTED, NAME))


def _passing(rows: Sequence[tuple[Token, ...]], sources: Sequence[str]) -> list[bool]:
    """For each place of a frame, whether its values only report what one answer held."""
    flags = []
    for place in range(len(rows[0])):
        column = [row[place] for row in rows]
        seen = sum(t.seen for t in column) * 2 > len(column)
        if column[0].kind == NAME:
            flags.append(False)
            continue
        rest = [tuple(t.value for n, t in enumerate(row) if n != place) for row in rows]
        wanted = any(t.kind == NUMBER and not t.seen for n, t in enumerate(rows[0]) if n != place)
        flags.append((seen and wanted) or _is_passing(column, rest, sources, 2 if seen else 4))
    return flags


def _is_passing(
    column: Sequence[Token], rest: Sequence[tuple[str, ...]], sources: Sequence[str], least: int
) -> bool:
    """Judged within complaints that agree in their other values; where they do not agree, over all of them."""
    seen = least == 2
    best = 0
    for key in dict.fromkeys(rest):
        rows = [i for i, r in enumerate(rest) if r == key]
        values = {column[i].value for i in rows}
        apart = len({(sources[i]) for i in rows})
        if (
            len(rows) >= least and len(values) * 2 > len(rows) and len(values) > 1 and apart * 2 > len(rows)
        ) or (seen and len(rows) >= least and len(values) > 1 and apart == len(rows)):
            best += len(rows)
    return best * 2 >= len(column)


def _anchors(values: Sequence[Token]) -> frozenset[Token]:
    return frozenset(Token(t.kind, t.value) for t in values)
