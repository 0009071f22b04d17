"""Complaints, and how a critique is taken apart into single demands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.search.lexicon import NUMBER, content, leans, normative, tokens
from whet.types import Example


@dataclass(frozen=True, slots=True)
class Complaint:
    """One demand, verbatim, and the rollout or feedback row that it came from."""

    text: str
    source: str


_COMMENTS = ("critique", "comment", "feedback", "explanation", "annotation")


def human_complaints(examples: Sequence[Example]) -> list[Complaint]:
    """Complaints that stand in the data already: rows with an `output` and a comment on it."""
    found = []
    for example in examples:
        if isinstance(example.row.get("output"), str):
            comments = [example.row[key] for key in _COMMENTS if isinstance(example.row.get(key), str)]
            found += [Complaint(text, f"row {example.id}") for comment in comments for text in split(comment)]
    return found


_ITEM = re.compile(r"^[ \t]*(?:[-*•–‣▪●✗✘❌⚠]️?|\(?\d{1,3}[.):](?=\s)|\[\d{1,3}\])[ \t]*")
_NUMBERED = re.compile(r"(?:^|\s)\(?(\d{1,3})[.)]\s+(?=\S)")
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!\bno\.)(?<!\bapprox\.)[\"'”’)\]]*\s+(?=[\"'“‘`(\[]+\w|[^\Wa-z_])"
)
_LONGEST_UNIT = 600
_MANY = 4


def split(critique: str) -> list[str]:
    """The single demands of a critique, verbatim but for list marks and outer space.

    Lines and list items are demands of their own. Sentences and clauses of one line are taken apart unless the
    later one leans on the earlier, or a report and its remedy stand side by side.

    >>> split("- The title is too long. Keep it under 60 characters.\\n- `price` is missing.")
    ['The title is too long. Keep it under 60 characters.', '`price` is missing.']
    """
    units: list[str] = []
    for line in critique.splitlines():
        for part in _numbered_parts(line):
            bare = _ITEM.sub("", part).strip()
            if bare:
                units += _sentences(bare)
    kept = [u[:_LONGEST_UNIT] for u in units if any(c.isalnum() for c in u) and not u.endswith(":")]
    return list(dict.fromkeys(kept)) or list(
        dict.fromkeys(u[:_LONGEST_UNIT] for u in units if any(c.isalnum() for c in u))
    )


def _numbered_parts(line: str) -> list[str]:
    """The items of a line such as `1. ... 2. ...`; the line itself when its numbers do not count up from 1."""
    starts = [0]
    for match in _NUMBERED.finditer(line):
        if int(match.group(1)) == len(starts):
            starts.append(match.start())
    if len(starts) < 3:
        return [line]
    return [line[a:b] for a, b in zip(starts, [*starts[1:], len(line)], strict=True)]


def _sentences(line: str) -> list[str]:
    pieces = [p.strip() for p in _SENTENCE.split(line) if p.strip()]
    many = len(pieces) >= _MANY
    joined = _join(pieces, " ", many)
    return [clause for sentence in joined for clause in _clauses(sentence)]


def _clauses(sentence: str) -> list[str]:
    """Clauses between semicolons: apart when they are sentences or many, together when one explains the other."""
    pieces = [p.strip() for p in re.split(r";(?=\s)", sentence) if p.strip()]
    if len(pieces) >= _MANY:
        return _join(pieces, "; ", True)
    found: list[str] = []
    for piece in pieces:
        if found and found[-1][-1] not in ".!?":
            found[-1] += f"; {piece}"
        else:
            found.append(piece)
    return found


def _join(pieces: Sequence[str], glue: str, many: bool) -> list[str]:
    """Pieces with those that belong together put together again."""
    found: list[str] = []
    for piece in pieces:
        bare = len(content(piece)) < 2 and (glue != " " or any(t.kind == NUMBER for t in tokens(piece)))
        if found and (bare or leans(piece) or _is_remedy(found[-1], piece, many)):
            found[-1] += glue + piece
        else:
            found.append(piece)
    return found


def _is_remedy(before: str, after: str, many: bool) -> bool:
    """Whether one of the two reports and the other demands, about the same thing."""
    shared = content(before) & content(after)
    least = 2 if many else 1
    return normative(before) != normative(after) and len(shared) >= least
