"""Complaints: taken apart into demands, and grouped by what they demand."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whet.prompt import Prompt
from whet.search import agglomeration
from whet.search.archive import Candidate
from whet.search.clustering import Board
from whet.search.contradictions import clash, same
from whet.search.critiques import Complaint, split
from whet.search.lexicon import NUMBER, normative, tokens
from whet.search.nodes import Node, select
from whet.search.packing import pack
from whet.search.rates import newcombe, tail, wilson
from whet.search.wordings import find_wordings
from whet.types import Rollout

PLACES = ("cover letter", "invoice", "subject line", "delivery note", "warranty card", "product label")
KINDS = {
    "limit": (
        "The {place} counts {seen} letters although {limit} is the limit.",
        "{place}: at most {limit} letters, not {seen}.",
        "Nobody reads a {place} of {seen} letters; stay within {limit}.",
    ),
    "phrase": (
        'I looked for "{word}" in the {place} in vain.',
        'The {place} does not say "{word}".',
        '"{word}" is missing from the {place}.',
    ),
    "voice": (
        "The {place} is written in the passive.",
        "Passive voice in the {place}; use the active voice.",
    ),
}


def complaints(answers: int, seed: int = 0) -> tuple[list[Complaint], dict[str, tuple[str, str]]]:
    """Every answer breaks two thirds of 18 rules; each is told in one of several wordings, with its own numbers."""
    chance = random.Random(seed)
    found, owner = [], {}
    for answer in range(answers):
        for number, place in enumerate(PLACES):
            for kind, wordings in KINDS.items():
                if chance.random() < 1 / 3:
                    continue
                text = chance.choice(wordings).format(
                    place=place,
                    seen=chance.randint(90, 400),
                    limit=20 + number,
                    word=("net", "gross")[number % 2],
                )
                owner[text] = (place, kind)
                found.append(Complaint(text, f"answer {answer}"))
    return found, owner


def test_groups_are_pure_and_few_whatever_the_wordings_and_passing_numbers() -> None:
    found, owner = complaints(15)
    board = Board()
    board.add(found)
    assert 18 <= len(board.groups) <= 20
    for group in board.groups:
        assert len({owner[text] for wording in group.wordings for text in wording.texts}) == 1
    limits = {t.value for g in board.groups for t in g.constants() if t.kind == NUMBER}
    assert limits >= {"20", "21", "22", "23", "24", "25"}


def test_groups_keep_their_ids_and_take_in_what_comes_later() -> None:
    found, _ = complaints(20)
    board = Board()
    board.add(found[:150])
    before = {text: g.id for g in board.groups for w in g.wordings for text in w.texts}
    board.add(found[150:])
    after = {text: g.id for g in board.groups for w in g.wordings for text in w.texts}
    assert all(after[text] == group for text, group in before.items())
    assert sum(g.count for g in board.groups) == len(found)


def test_grouping_is_the_same_every_time() -> None:
    found, _ = complaints(10)
    boards = [Board() for _ in range(2)]
    for board in boards:
        board.add(found)
    assert [g.texts() for g in boards[0].groups] == [g.texts() for g in boards[1].groups]


def test_twenty_thousand_complaints_of_a_hundred_kinds_stay_a_hundred_and_a_few_groups() -> None:
    chance = random.Random(1)
    found = [
        Complaint(
            f"Part {chr(97 + k // 10)}{chr(97 + k % 10)}x needs the note, it had {chance.randint(1, 9999)} words.",
            f"s{n}",
        )
        for n in range(200)
        for k in range(100)
    ]
    board = Board()
    board.add(found)
    assert len(board.groups) == 100
    assert {g.count for g in board.groups} == {200}


def test_values_that_recur_tell_wordings_apart_and_passing_ones_do_not() -> None:
    rows = [Complaint(f"The key `{key}` is missing.", f"s{n}") for n in range(6) for key in ("name", "price")]
    rows += [Complaint(f"The title has {n + 70} letters, at most 60 are allowed.", f"s{n}") for n in range(6)]
    assert sorted(w.count for w in find_wordings(rows)) == [6, 6, 6]


def test_one_sentence_about_two_things_is_two_demands() -> None:
    rows = [
        Complaint(f"The {p} is written in the passive.", f"s{n}")
        for n in range(5)
        for p in ("invoice", "label")
    ]
    board = Board()
    board.add(rows)
    assert len(board.groups) == 2


@pytest.mark.parametrize(
    ("critique", "demands"),
    [
        ("- Too long.\n- No price.", ["Too long.", "No price."]),
        ("Problems:\n1. Too long.\n2) No price.", ["Too long.", "No price."]),
        ("1. Too long. 2. No price. 3. No date.", ["Too long.", "No price.", "No date."]),
        (
            "The price is missing. The tone is too formal.",
            ["The price is missing.", "The tone is too formal."],
        ),
        (
            "The title is too long. Keep it under 60 letters.",
            ["The title is too long. Keep it under 60 letters."],
        ),
        (
            "The title has 73 letters; at most 60 are allowed.",
            ["The title has 73 letters; at most 60 are allowed."],
        ),
        ("Say e.g. the price. Do not shout.", ["Say e.g. the price.", "Do not shout."]),
        ('Wants {"a": 1}; not {{x}}.', ['Wants {"a": 1}; not {{x}}.']),
        ("!!!\n\n  ", []),
    ],
)
def test_critiques_are_taken_apart_into_demands(critique: str, demands: list[str]) -> None:
    assert split(critique) == demands


@given(st.text(max_size=300))
def test_no_critique_is_too_strange_to_read(text: str) -> None:
    found = split(text)
    assert all(any(c.isalnum() for c in demand) for demand in found)
    board = Board()
    board.add([Complaint(demand, "s") for demand in found])
    assert sum(g.count for g in board.groups) == len(found)


def test_tokens_tell_numbers_values_and_names_and_what_was_only_seen() -> None:
    found = tokens('The `hero.title` has 73 words; at most twelve, and "In Full" with userName.')
    assert [(t.kind, t.value) for t in found if t.kind != "word"] == [
        ("quoted", "hero.title"), ("number", "73"), ("number", "12"), ("quoted", "in full"), ("name", "username"),
    ]  # fmt: skip
    assert [t.seen for t in found if t.kind == NUMBER] == [True, False]


def test_demands_are_told_from_reports() -> None:
    assert (
        normative("The title must be short.")
        and normative("Use the active voice.")
        and normative("Never shout.")
    )
    assert not normative("The title is long.") and not normative("The links do not work.")


def test_same_and_contradicting_instructions() -> None:
    assert same("Keep the title within 60 letters.", "Keep the title within sixty letters.")
    assert not same("Keep the title within 60 letters.", "Keep the title within 50 letters.")
    assert not same("Add `ref` to the agenda.", "Add `ref` to the headline.")
    assert not same("Mention the price.", "Never mention the price.")
    assert not same('Put "mark-1" into the note.', 'Put "mark-2" into the note.')
    found = clash("Keep the title within 60 letters.", "Keep the title within 50 letters.")
    assert found is not None and found.why == "60 against 50"
    assert clash("Mention the delivery price.", "Never mention the delivery price.") is not None
    assert clash("Set `theme` to `dark`.", "`theme` must be `light`.") is not None
    assert clash("Mention `dark`, not `light`.", "Mention `light`.") is None
    assert clash("Give the opening line at least 9 words.", "Give the closing line at least 7 words.") is None
    assert clash("Use at least 20 letters for the title.", "Use at most 60 letters for the title.") is None


def test_packs_are_even_and_mix_urgent_with_less_urgent() -> None:
    packs = pack(list(range(25)), 10)
    assert [len(p) for p in packs] == [9, 8, 8]
    assert [p[0] for p in packs] == [0, 1, 2]
    assert pack(list(range(25)), 10, most=1) == [list(range(10))]
    assert pack([], 10) == [] and pack([1], 10, most=0) == []


def test_rates_have_known_intervals() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert [round(x, 4) for x in wilson(81, 263)] == [0.2553, 0.3662]
    assert [round(x, 4) for x in newcombe((56, 70), (48, 80))] == [0.2, 0.0524, 0.3339]
    assert newcombe((0, 0), (1, 2)) == (0.0, -1.0, 1.0)
    assert tail(0, 5, 0.1) == 1.0 and tail(1, 5, 0.0) == 0.0 and tail(3, 5, 1.0) == 1.0
    assert round(tail(2, 10, 0.1), 6) == 0.263901


def test_more_wordings_than_can_be_compared_pairwise_are_still_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agglomeration, "_LARGE", 10)
    found, owner = complaints(15)
    board = Board()
    board.add(found)
    assert sum(g.count for g in board.groups) == len(found)
    kinds = [{owner[t] for w in g.wordings for t in w.texts} for g in board.groups]
    assert 18 <= len(kinds) <= 50 and all(len(kind) == 1 for kind in kinds)


def test_the_hook_of_a_model_joins_what_shares_no_words() -> None:
    rows = [Complaint(text, f"s{n}") for n, text in enumerate(("Far too verbose.", "Cut it down, please."))]

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 1), dtype=np.float32)

    plain, hooked = Board(), Board(embed)
    plain.add(rows)
    hooked.add(rows)
    assert (len(plain.groups), len(hooked.groups)) == (2, 1)


def node(name: str, parent: Node[str] | None = None, **rewards: float) -> Node[str]:
    made = Node(Candidate(Prompt.parse(name)), name, parent)
    made.visit([Rollout("p", example, "", reward) for example, reward in rewards.items()])
    return made


def test_a_loop_goes_on_from_the_newest_a_tree_branches_a_front_picks_winners() -> None:
    root = node("root", a=0.5, b=0.5)
    first, second = node("first", root, a=0.9, b=0.1), node("second", root)
    assert select([root, first], "loop", random.Random(0)).state == "first"
    assert select([root, first], "mcts", random.Random(0)).state == "root"
    assert select([root, first, second], "mcts", random.Random(0)).state == "second"
    assert select([root, first, second], "pareto", random.Random(0)).state == "second"
    best = node("best", root, a=0.9, b=0.8)
    picked = {select([root, first, best], "pareto", random.Random(seed)).state for seed in range(40)}
    assert picked == {"first", "best"}
