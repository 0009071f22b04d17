"""Between a ledger and its region: rendering, reading back, comparing, and the edit of the prompt itself.

The fence holds lines. A line `- text` is an instruction, a line of two blanks and text under it continues it;
every other line is unmanaged text and stays where and as it is. Reading and rendering are exact inverses, but for the only
instruction of a fence that was written as all that it says (`whole`): that is a text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.prompt.events import ACTIVE, Event, Read
from whet.prompt.instructions import LayoutEntry, Ledger, fold_events
from whet_client.prompt.document import Prompt
from whet_client.prompt.fence import MARKER

BULLET, INDENT = "- ", "  "


def render_instructions(ledger: Ledger) -> str:
    """The text of the fence."""
    own = [ledger.instructions[entry.id] for entry in ledger.layout if entry.id]
    if len(own) == 1 and own[0].whole:
        return _render_alone(ledger, own[0].text)
    pieces = [
        BULLET + ledger.instructions[entry.id].text.replace("\n", ledger.newline + INDENT)
        if entry.id
        else entry.text
        for entry in ledger.layout
    ]
    return ledger.newline.join(pieces)


def _render_alone(ledger: Ledger, text: str) -> str:
    """The text of a fence with one instruction as a paragraph: an empty line parts it from the unmanaged text around it."""
    end = ledger.newline
    at = next(n for n, entry in enumerate(ledger.layout) if entry.id)
    before = end.join(entry.text for entry in ledger.layout[:at])
    after = end.join(entry.text for entry in ledger.layout[at + 1 :])
    if before.strip():
        before += end if before.endswith(end) else end * 2
    if after.strip():
        after = (end if after.startswith(end) else end * 2) + after
    return before + text.replace("\n", end) + after


def newline_of(text: str) -> str:
    """The line end of a text."""
    return "\r\n" if "\r\n" in text and text.count("\r\n") == text.count("\n") else "\n"


def parse(text: str) -> tuple[tuple[tuple[bool, str], ...], str]:
    """The pieces of a fence, (is it an instruction, its text), and the kind of line ending.

    >>> parse("Be brief.\\n- Use SI units.\\n  Always.")
    (((False, 'Be brief.'), (True, 'Use SI units.\\nAlways.')), '\\n')
    """
    newline = newline_of(text)
    pieces: list[tuple[bool, str]] = []
    for line in text.split(newline) if text else ():
        if line.startswith(BULLET) and line[len(BULLET) :].strip():
            pieces.append((True, line[len(BULLET) :]))
        elif line.startswith(INDENT) and pieces and pieces[-1][0]:
            pieces[-1] = (True, f"{pieces[-1][1]}\n{line[len(INDENT) :]}")
        elif pieces and not pieces[-1][0]:
            pieces[-1] = (False, pieces[-1][1] + newline + line)
        else:
            pieces.append((False, line))
    return tuple(pieces), newline


def read_ledger(text: str, author: str = "hand", at: str = "") -> Read:
    """The event with the present content of a fence."""
    notes, newline = parse(text)
    return Read(author=author, at=at, notes=notes, newline=newline)


def first_event(prompt: Prompt, region: str | None = None, at: str = "") -> Read:
    """The first event of a prompt's ledger: what its author wrote."""
    return read_ledger(prompt.region_text(region), "author", at)


def write_ledger(prompt: Prompt, ledger: Ledger, region: str | None = None) -> Prompt:
    """The prompt with the ledger's text in its region. Raises EditRejected, never repairs."""
    text = render_instructions(ledger)
    return prompt if text == prompt.region_text(region) else prompt.edit(text, region)


def surroundings(prompt: Prompt, region: str | None = None, *, unmanaged: bool = True) -> str:
    """The prompt's text without the instructions of the region and without markers: what instructions must not contradict.
    `unmanaged` says whether the region's text that is no instruction belongs to it."""
    spot = prompt.region(region)
    texts = [m.content for m in prompt.messages]
    pieces = parse(prompt.region_text(region))[0] if unmanaged else ()
    own = "\n".join(text for managed, text in pieces if not managed)
    texts[spot.message] = texts[spot.message][: spot.start] + own + texts[spot.message][spot.stop :]
    bare = "\n\n".join(MARKER.sub("", text).strip() for text in texts)
    return re.sub(r"\n(?:[ \t]*\n)+", "\n\n", bare).strip()


def unmanaged_lines(ledger: Ledger, blocks: Sequence[str] = ()) -> list[str]:
    """The different lines of the fence that are no instruction and say something, in their order, and behind them those `blocks`
    of several lines that stand there as they are."""
    texts = ["\n".join(entry.text.splitlines()) for entry in ledger.layout if not entry.id]
    whole = [block for block in blocks if any(block in text for text in texts)]
    for block in whole:
        texts = [text.replace(block, "") for text in texts]
    lines = dict.fromkeys(line.strip() for text in texts for line in text.splitlines())
    return [*(line for line in lines if any(c.isalnum() for c in line)), *whole]


def without_line(ledger: Ledger, line: str, at: str = "") -> Read:
    """The event that takes an unmanaged line, or a block of them, out of the fence."""
    notes = []
    for entry in ledger.layout:
        left = [] if entry.id else _without(entry.text.split(ledger.newline), line.split("\n"))
        if entry.id:
            notes.append((True, ledger[entry.id].text))
        elif left:
            notes.append((False, ledger.newline.join(left)))
    return Read(author="optimizer", at=at, notes=tuple(notes), newline=ledger.newline)


def with_layout(ledger: Ledger, layout: Sequence[LayoutEntry], at: str = "") -> Read:
    """The event that brings the unmanaged lines of an earlier layout back to their places. Instructions that stand stay, those
    that came later behind the others."""
    standing, then = [entry.id for entry in ledger.layout if entry.id], [entry.id for entry in layout]
    places = [entry for entry in layout if not entry.id or entry.id in standing]
    places += [LayoutEntry(id=key) for key in standing if key not in then]
    notes = tuple((bool(place.id), ledger[place.id].text if place.id else place.text) for place in places)
    return Read(author="optimizer", at=at, notes=notes, newline=ledger.newline)


def _without(lines: Sequence[str], gone: Sequence[str]) -> list[str]:
    """Lines without those of `gone`, wherever they stand one after the other, and without an empty line that would follow another
    empty line, or be the first or the last one, because of that."""
    left, at = list[str](), 0
    while at < len(lines):
        here = [line.strip() for line in lines[at : at + len(gone)]]
        if here != [one.strip() for one in gone]:
            left.append(lines[at])
            at += 1
            continue
        at += len(gone)
        while at < len(lines) and not lines[at].strip() and not (left and left[-1].strip()):
            at += 1
        while at == len(lines) and left and not left[-1].strip():
            left.pop()
    return left


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one instruction between two states; `before` or `after` is None if it was not active."""

    id: str
    before: str | None
    after: str | None
    reason: str = ""


def changes(before: Ledger, after: Ledger) -> list[Change]:
    """The instructions that differ between two states, in the order of the fence."""
    old = {i.id: i for i in before.active}
    new = {i.id: i for i in after.active}
    rows = []
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        if (was and was.text) != (now and now.text):
            latest = after.instructions.get(key)
            reason = latest.reason if latest is not None and latest.status != ACTIVE else ""
            rows.append(Change(key, was.text if was else None, now.text if now else None, reason))
    return rows


def read_back(
    prompt: Prompt, events: Sequence[Event], region: str | None = None, at: str = ""
) -> list[Event]:
    """The events with a last one for edits made by hand, when the fence does not hold what they say."""
    text = prompt.region_text(region)
    return (
        list(events)
        if events and render_instructions(fold_events(events)) == text
        else [*events, read_ledger(text, at=at)]
    )
