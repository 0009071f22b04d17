"""Typed edits of a text at an anchor, a piece of the text itself: what they do not name stays byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.search.copies import normalize_wording

APPEND, INSERT, REPLACE, DELETE = "append", "insert_after", "replace", "delete"


@dataclass(frozen=True, slots=True)
class AnchoredEdit:
    """`append` puts `text` on a line of its own at the end, `insert_after` behind the line in which `anchor` ends; `replace` puts
    it in the place of `anchor`; `delete` takes `anchor` out."""

    op: str
    text: str = ""
    anchor: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for edits that do the same, whatever their blanks and capitals."""
        return self.op, normalize_wording(self.text), normalize_wording(self.anchor)

    def of(self, text: str) -> str | None:
        """The edited text; None where the anchor is not in it. The first place with the anchor counts."""
        if self.op == APPEND:
            return f"{text.rstrip()}\n{self.text}".lstrip("\n")
        before, anchor, after = text.partition(self.anchor)
        if not anchor:
            return None
        if self.op == INSERT:
            line, _, rest = after.partition("\n")
            return f"{before}{anchor}{line}\n{self.text}" + (f"\n{rest}" if rest else "")
        return f"{before}{self.text}{after}" if self.op == REPLACE else _close_gap(before, after)


def _close_gap(before: str, after: str) -> str:
    """Two pieces of a text; a line of which nothing is left goes with its line break."""
    alone = (not before or before.endswith("\n")) and (not after or after.startswith("\n"))
    return (before + after[1:] if after else before.rstrip("\n")) if alone else before + after


def read_edit(operation: Mapping[str, object]) -> AnchoredEdit | None:
    """The edit that a model wrote as JSON; None where it lacks its text or its anchor, or is of no known kind."""
    op, text, anchor = (
        value.strip() if isinstance(value := operation.get(name), str) else ""
        for name in ("op", "text", "anchor")
    )
    if op == APPEND:
        return AnchoredEdit(op, text) if text else None
    if not anchor or op not in (INSERT, REPLACE, DELETE) or (op != DELETE and not text):
        return None
    return AnchoredEdit(op, "" if op == DELETE else text, anchor)


def rank_edits(proposals: Sequence[Sequence[AnchoredEdit]]) -> list[AnchoredEdit]:
    """Different edits, those that most proposals hold first, then in the order in which they came."""
    support = Counter(key for edits in proposals for key in {edit.key for edit in edits})
    first = {edit.key: edit for edits in reversed(proposals) for edit in reversed(edits)}
    order = list(dict.fromkeys(edit.key for edits in proposals for edit in edits))
    return [first[key] for key in sorted(order, key=lambda key: -support[key])]
