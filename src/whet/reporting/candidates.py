"""Every candidate with its lineage."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

import whet.reporting.number_format as number_format
from whet.errors import show_size
from whet.reporting.diff import diff_lines
from whet.reporting.family_tree import family_tree
from whet.reporting.layout import Section, details, note
from whet.reporting.markup import Html, clip, el, join, prompt_text
from whet.reporting.record import START, Record, ReportedCandidate, finite_number

MOST_DRAWN = 500
LONGEST_PROMPT = 20_000
GLIMPSE = 160
MOST_PARENTS = 12
MOST_RECORDS = 20
LONGEST_RECORD = 2_000
_NOTES = {
    "assigned": "Critiques by the region that they were assigned to",
    "best_so_far": "Best prompt so far, by training rows",
    "conflict": "Instructions that contradict each other",
    "contrasts": "Rows answered several times, and those whose answers earned different rewards",
    "copied": "Texts refused because they copy a row",
    "diversity": "Survivors of each generation: weight of their diversity, and the determinant of their rewards by row",
    "easy_to_hard": "Mean reward of easy and of hard validation rows, after learning from easy rows",
    "from_zero": "Prompts tried first because the start prompt earned nothing",
    "given_way": "Text of the start prompt that was not an instruction and was removed",
    "ledger": "Changes to the instructions",
    "over_budget": "Instructions left out because of their length",
    "regression": "Rounds after which the reward fell",
    "replies": "Replies of the optimizer model: requested and usable",
    "stage": "Calls of the optimizer model, one by one",
    "untested": "Demands that were not tried",
    "warmup": "Supervised steps before the search",
    "withheld": "Critiques that the optimizer model was not shown, and why",
}
"""The subjects of methods' notes, by the name of the event."""


def candidates_section(record: Record) -> Section | None:
    """The way to the best prompt, then all candidates, the best on validation first."""
    if not record.candidates:
        return None
    order = sorted(record.candidates.values(), key=lambda c: c.rank)
    way = lineage(record)
    kept = {c.id for c in way}
    drawn = sorted(
        [*way, *[c for c in order if c.id not in kept][: max(0, MOST_DRAWN - len(way))]], key=lambda c: c.rank
    )
    known = {c.id: c for c in drawn}
    left = len(order) - len(drawn)
    caption = note(
        f"{number_format.plural(len(order), 'candidate')}; the best on {record.search_split} first, "
        "then by training score. Each line shows the text that replaces the baseline's text or, if "
        "that text is long, the words that replace words of the best prompt. Open a line to read the "
        "whole candidate. "
        + (
            f"This figure shows the {len(drawn):,} best candidates; {left:,} more are in the journal."
            if left
            else ""
        )
    )
    rows = [_candidate(record, c, known) for c in drawn]
    body = join(
        _way(record, way, known), family_tree(record, way), caption, el("div", rows, class_="candidates")
    )
    return Section("candidates", "Candidates and their lineage", body)


def lineage(record: Record) -> list[ReportedCandidate]:
    """From the start to the best prompt, along the first parents."""
    path: list[ReportedCandidate] = []
    at = record.candidates.get(record.best_id or "")
    while at is not None and at not in path:
        path.append(at)
        at = record.candidates.get(at.parents[0]) if at.parents else None
    return path[::-1]


def _way(record: Record, way: list[ReportedCandidate], known: Mapping[str, ReportedCandidate]) -> Html | None:
    if len(way) < 2:
        return None
    items = []
    for before, c in zip([None, *way], way, strict=False):
        step = el("span", _step(before, c), class_="glimpse", dir="auto")
        operator, scores = (
            el("span", c.operator, class_="operator"),
            el("span", _scores(record, c), class_="scores"),
        )
        items.append(el("li", _link(c.id, known), operator, step, scores))
    caption = note("Text that each step removed and added.")
    return join(el("h3", "Steps to the best prompt"), caption, el("ol", items, class_="way"))


def _step(before: ReportedCandidate | None, after: ReportedCandidate) -> Html:
    """The text that a candidate removed from its parent, and the text that it added."""
    if before is None:
        return el("i", "the baseline" if after.operator == START else "the first known ancestor")
    signs = (("del", "\u2212 ", after.source, before.source), ("ins", "+ ", before.source, after.source))
    changed = [
        el(tag, sign, short)
        for tag, sign, a, b in signs
        if (short := _short(" ".join(changed_stretch(a, b).split())))
    ]
    return join(changed) if changed else el("i", "only white space changed")


def _short(text: str) -> str:
    return text if len(text) <= GLIMPSE else f"{text[:GLIMPSE].rsplit(' ', 1)[0]} …"


def _candidate(record: Record, c: ReportedCandidate, known: Mapping[str, ReportedCandidate]) -> Html:
    best = c.id == record.best_id
    word = "best" if best else "was best" if c.incumbent and c.operator != START else None
    mark = None if word is None else el("span", word, class_="tag" if best else "tag past")
    summary = join(
        el("span", f"#{c.number}", class_="number"),
        el("span", _glimpse(record, c), mark, class_="glimpse", dir="auto"),
        el("span", _scores(record, c), class_="scores"),
    )
    parts = ", ".join(f"{name} {show_size(value)}" for name, value in c.parts.items())
    origin = (
        el("b", "Operator "),
        c.operator or "–",
        el("b", " Parents "),
        _parents(c, known),
        el("b", " Id "),
        c.id,
    )
    seen = f"Found after {number_format.plural(c.calls, 'model call')}."
    inner = el(
        "div",
        el("p", *origin),
        el("p", seen, f" Training parts: {parts}." if parts else ""),
        el("pre", prompt_text(c.source, LONGEST_PROMPT), dir="auto"),
        id=f"c{c.number}",
        class_="inside",
    )
    return details(summary, inner, class_="candidate best" if best else "candidate")


def _parents(c: ReportedCandidate, known: Mapping[str, ReportedCandidate]) -> Html:
    if not c.parents:
        return join("none")
    links = join(*(join(" " if i else "", _link(p, known)) for i, p in enumerate(c.parents[:MOST_PARENTS])))
    left = len(c.parents) - MOST_PARENTS
    return join(links, f" and {left} more" if left > 0 else None)


def _link(candidate: str, known: Mapping[str, ReportedCandidate]) -> Html:
    row = known.get(candidate)
    return el("span", candidate) if row is None else el("a", f"#{row.number}", href=f"#c{row.number}")


def _scores(record: Record, c: ReportedCandidate) -> Html:
    again = finite_number(record.validation(c.id).get("mean")) if record.measured_again else None
    search = "search" if record.measured_again else "validation"
    scores = [
        join(el("small", split), f" {number_format.reward_text(score, record.digits)}")
        for split, score in (("train", c.train), (search, c.validation), ("validation", again))
        if score is not None
    ]
    return join([[" " if i else "", el("span", score)] for i, score in enumerate(scores)])


def _glimpse(record: Record, c: ReportedCandidate) -> Html:
    """The stretch in which a candidate differs from the baseline, which is named as such. Of a stretch that is too long to show
    only what the best prompt does not have."""
    base, best = record.baseline_text or "", record.best_text or ""
    if c.source == base:
        return el("i", "the baseline")
    text = " ".join(changed_stretch(base, c.source).split())
    if not text:
        return el("i", "a part was deleted")
    if len(text) <= GLIMPSE or best in (base, c.source):
        return join(_short(text))
    own, lost = _beside(c.source, best), _beside(best, c.source)
    if not own:
        return join(el("i", "the best without "), _short(lost))
    return join(el("i", "instead of words of the best prompt: " if lost else "the best and "), _short(own))


def _beside(text: str, other: str) -> str:
    """The words of a text that another one does not have in that place."""
    pieces = [
        piece.strip()
        for line in diff_lines(other, text)
        if line.sign == "+"
        for piece, changed in line.pieces
        if changed or len(line.pieces) == 1
    ]
    return " … ".join(piece for piece in pieces if piece)


def changed_stretch(before: str, after: str) -> str:
    """The part of `after` without its common beginning and end with `before`, in whole words.

    >>> changed_stretch("Sort it quickly. Text: {{x}}", "Sort it with great care. Text: {{x}}")
    'with great care.'
    """
    most = min(len(before), len(after))
    head = next((i for i in range(most) if before[i] != after[i]), most)
    while not _between_words(after, head):
        head -= 1
    room = most - head
    tail = next((i for i in range(room) if before[-1 - i] != after[-1 - i]), room)
    while not _between_words(after, len(after) - tail):
        tail -= 1
    return after[head : len(after) - tail]


def _between_words(text: str, at: int) -> bool:
    return at in (0, len(text)) or text[at - 1].isspace() or text[at].isspace()


def others(record: Record) -> Section | None:
    """Further notes of the method, as it wrote them."""
    if not record.others:
        return None
    groups = []
    for name, values in record.others.items():
        shown = values[-MOST_RECORDS:]
        which = f"the last {len(shown)} of {len(values):,}" if len(shown) < len(values) else "all"
        lines = el("ol", [el("li", clip(_compact(v), LONGEST_RECORD)) for v in shown], class_="notes")
        size = el("small", f"{number_format.plural(len(values), 'record')}, {which}")
        groups.append(details([_NOTES.get(name, name.replace("_", " ")), size], lines))
    return Section("notes", "Notes of the method", join(groups))


def _compact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            f"{k}: {v if isinstance(v, str) else orjson.dumps(v).decode()}" for k, v in value.items()
        )
    return orjson.dumps(value).decode()
