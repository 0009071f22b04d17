"""Escaping, hidden characters, the diff and the small pieces of charts."""

from __future__ import annotations

import doctest
import importlib
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.reporting import svg
from whet.reporting.candidates import changed_stretch
from whet.reporting.diff import diff_html, diff_lines
from whet.reporting.markup import clip, el, escape_plainly, escape_visibly, join, prompt_text

MODULES = ("markup", "number_format", "svg", "candidates")
WORDS = st.lists(st.sampled_from(["a", "b", "word", ".", "  ", "\n", "\n\n", "é", "{{x}}"]), max_size=30).map(
    "".join
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"whet.reporting.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


class Reader(HTMLParser):
    """Text and tags of a piece of markup."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    found = read(el("p", text, title=text))
    assert found.tags[0] == "p"
    assert set(found.tags[1:]) <= {"span"}
    assert not any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in found.text if c not in "\n\t\u200d"
    )


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_ascii_is_shown_as_it_is(text: str) -> None:
    assert read(escape_visibly(text)).text == text
    assert escape_visibly(text) == escape_plainly(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "aU+202Eb"),
        ("a\u200bb", "aU+200Bb"),
        ("\u2066x\u2069", "U+2066xU+2069"),
        ("\x1b[31m", "U+001B[31m"),
        ("a\rb", "aU+000Db"),
        ("a\u00a0b", "a⍽b"),
        ("\ufeffa", "U+FEFFa"),
        ("\U000e0041", "U+E0041"),
        ("\ud800", "U+D800"),
        ("a\ufe00b", "aU+FE00b"),
        ("a\ufe0fb", "aU+FE0Fb"),
        ("a\u200db", "aU+200Db"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("日本 שלום\n\tx", "日本 שלום\n\tx"),
    ],
)
def test_hidden_characters_are_named_and_others_left_alone(text: str, shown: str) -> None:
    assert read(escape_visibly(text)).text == shown


def test_a_title_holds_no_markup() -> None:
    assert el("title", "a\u202e<b>") == "<title>a[U+202E]&lt;b&gt;</title>"


def test_markup_survives_only_when_it_was_built() -> None:
    built = el("b", "x")
    assert join(built, "<i>", ["<u>", built]) == "<b>x</b>&lt;i&gt;&lt;u&gt;<b>x</b>"
    assert join(f"{built}") == "&lt;b&gt;x&lt;/b&gt;"


def test_attributes_cannot_be_left() -> None:
    assert el("a", href='"><script>', hidden=True, id=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden></a>'
    )


def test_long_text_says_how_much_is_missing() -> None:
    assert read(clip("x" * 1500, 500)).text == "x" * 500 + " … and 1,000 more characters"
    assert read(clip("x" * 500, 500)).text == "x" * 500


def test_slots_and_fences_stand_out_in_a_prompt() -> None:
    found = prompt_text("a {{x}} <!-- whet:begin --> {{<b>}}")
    assert '<span class="slot">{{x}}</span>' in found
    assert '<span class="fence">&lt;!-- whet:begin --&gt;</span>' in found
    assert read(found).text == "a {{x}} <!-- whet:begin --> {{<b>}}"


@given(WORDS, WORDS)
def test_the_diff_holds_both_texts(before: str, after: str) -> None:
    lines = diff_lines(before, after)
    text = ["".join(piece for piece, _ in line.pieces) for line in lines]
    old = [t for t, line in zip(text, lines, strict=True) if line.sign != "+"]
    new = [t for t, line in zip(text, lines, strict=True) if line.sign != "-"]
    assert "\n".join(old) == before
    assert "\n".join(new) == after


def test_the_diff_marks_the_words_that_changed() -> None:
    lines = diff_lines("Read it quickly.\nEnd", "Read it slowly.\nEnd")
    assert [(line.sign, [p for p, changed in line.pieces if changed]) for line in lines] == [
        ("-", ["quickly"]),
        ("+", ["slowly"]),
        (" ", []),
    ]


def test_words_that_changed_together_are_one_mark() -> None:
    before, after = diff_lines("Say it very quickly now, please.", "Say it quite slowly now, please.")
    assert [piece for piece, changed in before.pieces if changed] == ["very quickly"]
    assert [piece for piece, changed in after.pieces if changed] == ["quite slowly"]


def test_lines_without_anything_in_common_are_not_marked_word_by_word() -> None:
    lines = diff_lines("Sort the messages by topic.", "xyzzy plugh")
    assert [[changed for _, changed in line.pieces] for line in lines] == [[False], [False]]


def test_long_unchanged_stretches_are_folded() -> None:
    same = "\n".join(f"line {i}" for i in range(20))
    found = read(diff_html(f"{same}\nold", f"{same}\nnew"))
    assert "17 unchanged lines" in found.text
    assert found.tags.count("ins") == found.tags.count("del") == 1


def test_giant_texts_are_compared_at_their_ends() -> None:
    before = "head\n" + "\n".join(str(i) for i in range(3000)) + "\ntail"
    after = "head\n" + "\n".join(str(-i) for i in range(1, 3001)) + "\ntail"
    lines = diff_lines(before, after)
    assert [line.sign for line in lines] == [" "] + ["-"] * 3000 + ["+"] * 3000 + [" "]


@given(WORDS, WORDS)
def test_the_changed_stretch_is_part_of_the_new_text(before: str, after: str) -> None:
    found = changed_stretch(before, after)
    assert found in after
    if before == after:
        assert found == ""


FLOATS = st.floats(-1e9, 1e9, allow_nan=False)


@given(FLOATS, st.floats(1e-6, 1e9), st.integers(2, 10))
def test_ticks_are_round_and_within_the_range(low: float, width: float, most: int) -> None:
    high = low + width
    if high - low < 1e-9 * max(1.0, abs(low)):
        return
    marks, step = svg.ticks(low, high, most)
    slack = step * 1e-3
    assert len(marks) <= most + 1
    assert all(low - slack <= mark <= high + slack for mark in marks)
    assert f"{step:e}"[0] in "125"


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-5, 5)), min_size=1, max_size=300), st.integers(1, 40))
def test_a_thinned_series_keeps_its_extremes(points: list[tuple[float, float]], columns: int) -> None:
    points.sort()
    found = svg.envelope(points, columns)
    assert len(found) <= max(2 * columns, 1)
    assert {min(y for _, y in found), max(y for _, y in found)} == {
        min(y for _, y in points),
        max(y for _, y in points),
    }
    assert found == sorted(found, key=lambda p: p[0])


def test_the_running_mean_stands_at_the_middle() -> None:
    points = [(float(x), float(x * x)) for x in range(5)]
    assert svg.running_mean(points, 3) == [(1.0, 5 / 3), (2.0, 14 / 3), (3.0, 29 / 3)]


def test_a_step_line_keeps_its_value_until_the_next() -> None:
    assert svg.stairs([(0, 1), (5, 2)], 9) == [(0, 1), (5, 1), (5, 2), (9, 2)]
    assert svg.stairs([], 9) == []


def test_dots_of_one_pixel_are_drawn_once() -> None:
    assert svg.dots([(1.1, 2.0), (0.9, 2.2), (3, 4)], "d") == '<path d="M1 2h0M3 4h0" class="d"></path>'
