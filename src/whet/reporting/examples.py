"""Single rows of the sealed test: what was asked and wanted, what was answered before and after, and what was wrong with it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import whet.reporting.number_format as number_format
from whet.reporting.layout import Section, details, note
from whet.reporting.markup import LARGEST_PICTURE, Html, clip, el, join, picture
from whet.reporting.programs import trace
from whet.reporting.record import Record, finite_number
from whet.rewards.verifiers.svg_scene import picture_in
from whet.rewards.verifiers.svg_shapes import NoPicture, read_shapes
from whet.types import lacks_answer
from whet_client.media import pieces_of

MOST_EXAMPLES = 100
OPEN_EXAMPLES = 10
LONGEST_TEXT = 4_000
SHORT = 240
"""Characters of an image as a data URL that a page shows at most."""

Pair = tuple[Mapping[str, Any], Mapping[str, Any], float]


def examples_section(record: Record) -> Section | None:
    """Test examples whose reward rose, fell and stayed the same, in groups that open and close."""
    pairs = _pairs(record)
    if not pairs:
        return None
    fixed = sorted((p for p in pairs if p[2] > 0), key=lambda p: -p[2])
    broken = sorted((p for p in pairs if p[2] < 0), key=lambda p: p[2])
    same = [p for p in pairs if p[2] == 0]
    caption = note(
        f"Of {number_format.plural(len(pairs), 'test example')}, {len(fixed):,} got better, "
        f"{len(broken):,} got worse and {len(same):,} stayed the same.{_lacking(record)}"
    )
    groups = [
        _group(record, "Fixed", fixed, shown=True),
        _group(record, "Broken", broken, shown=True),
        _group(record, "Same", same, shown=False),
    ]
    return Section("examples", "Examples fixed and broken", join(caption, groups))


def _lacking(record: Record) -> str:
    """Say the number of rows that are left out because a prompt has no answer to them."""
    rows = {
        str(row.get("id"))
        for name in ("baseline", "best")
        for row in sealed_rows(record, name)
        if lacks_answer(row.get("error"))
    }
    return (
        f" {number_format.plural(len(rows), 'row')} without an answer of one of the prompts are left out."
        if rows
        else ""
    )


def sealed_rows(record: Record, name: str) -> list[Mapping[str, Any]]:
    """The rows of the sealed test of baseline or best."""
    rows = record.final.get(name) or []
    return [row for row in rows if isinstance(row, Mapping)]


def collapse_text(text: str) -> Html:
    """A short text as it is; a long one behind its beginning."""
    if len(text) <= SHORT:
        return join(text)
    return details(f"{text[:SHORT].rstrip()}…", clip(text, LONGEST_TEXT))


def _pairs(record: Record) -> list[Pair]:
    after = {str(row.get("id")): row for row in sealed_rows(record, "best")}
    pairs: list[Pair] = []
    for old in sealed_rows(record, "baseline"):
        new = after.get(str(old.get("id")))
        values = finite_number(old.get("reward")), finite_number(new.get("reward")) if new else None
        if new is None or lacks_answer(old.get("error")) or lacks_answer(new.get("error")):
            continue
        if values[0] is not None and values[1] is not None:
            pairs.append((old, new, values[1] - values[0]))
    return pairs


def _group(record: Record, title: str, pairs: Sequence[Pair], *, shown: bool) -> Html | None:
    if not pairs:
        return None
    questions = {str(row.get("id")): row for row in sealed_rows(record, "examples")}
    items = [
        _example(record, old, new, questions.get(str(old.get("id")), {}))
        for old, new, _ in pairs[:MOST_EXAMPLES]
    ]
    first, more = items[:OPEN_EXAMPLES], items[OPEN_EXAMPLES:]
    left = len(pairs) - len(items)
    rest = details(
        f"Show {len(more):,} more",
        el("ol", more, class_="examples"),
        left > 0 and note(f"{left:,} more are not shown; the journal holds all of them."),
    )
    return el(
        "details",
        el("summary", el("h3", f"{title}: {number_format.plural(len(pairs), 'example')}")),
        el("ol", first, class_="examples"),
        bool(more) and rest,
        open=shown,
        class_="group",
    )


def _example(
    record: Record, old: Mapping[str, object], new: Mapping[str, object], question: Mapping[str, object]
) -> Html:
    shown = [
        el("div", el("span", name, class_="when"), _text(str(question[key])), class_="question")
        for name, key in (("Input", "input"), ("Target", "target"))
        if question.get(key) is not None
    ]
    critiques = [
        el(
            "div",
            el("span", f"Critique {when}", class_="when"),
            _text(str(row["critique"])),
            class_="critique",
        )
        for when, row in (("before", old), ("after", new))
        if row.get("critique")
    ]
    name = el("span", clip(str(old.get("id")), 200), class_="id")
    answers = _answer(record, "Before", old), _answer(record, "After", new)
    traces = [trace(row, when) for when, row in (("before", old), ("after", new))]
    return el("li", name, shown, answers, critiques, traces)


def _answer(record: Record, when: str, row: Mapping[str, object]) -> Html:
    score = el("span", number_format.reward_text(row.get("reward"), record.example_digits), class_="score")
    output = str(row.get("output") or "")
    shown = _text(output) if output else el("div", el("i", "no answer"))
    thought = row.get("thought")
    folded_thought = details(
        "Thought", el("div", clip(str(thought), LONGEST_TEXT), dir="auto", class_="output")
    )
    return el(
        "div",
        el("span", when, " ", score, class_="when"),
        shown,
        folded_thought if thought else None,
        class_=when.lower(),
    )


def _text(text: str) -> Html:
    """A user's or model's text, in the direction of its letters, with its images; an SVG picture above its source."""
    drawn = _picture_of(text)
    pieces = [collapse_text(one) if isinstance(one, str) else picture(one) for one in pieces_of(text) if one]
    return el("div", drawn, pieces, dir="auto", class_="output")


def _picture_of(text: str) -> Html | None:
    """The SVG picture in a text as an image, in which no script runs and nothing is fetched; None where there is none that can be
    read."""
    if "<svg" not in text or len(text) > LARGEST_PICTURE // 2:
        return None
    try:
        picture = picture_in(text)
        read_shapes(picture)
    except NoPicture:
        return None
    data = base64.b64encode(picture.encode("utf-8", "replace")).decode()
    return el("img", src=f"data:image/svg+xml;base64,{data}", alt="picture", class_="picture", loading="lazy")
