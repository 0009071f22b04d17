"""Consolidating: doubles become one, nothing is lost, contradictions have both sides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.instructions.optimizer import constant, critiques, entry, form, numbered, run_with

from whet.instructions.answers import Known, Requirement
from whet.instructions.consolidate import MOST, compare, consolidate
from whet.instructions.reader import read_critiques

EURO, EUROS, DATE = "State prices in euros.", "Give every price in euro.", "Name the delivery date."
PROPOSALS = [Requirement(EURO, (0, 1)), Requirement(EUROS, (2,)), Requirement(DATE, (3,))]


def groups(*ids: list[str], best: str = "", opposite: Any = ()) -> dict[str, Any]:
    return {
        "duplicates": [{"ids": one, "best": best or one[0]} for one in ids],
        "contradictions": list(opposite),
    }


async def test_the_same_meaning_becomes_one_with_the_best_wording_and_all_critiques() -> None:
    run, _ = run_with(constant(groups(["n1", "n2"], best="n2")))
    result = await consolidate(run, PROPOSALS, [])
    assert {(r.text, tuple(sorted(r.critiques))) for r in result.requirements} == {
        (EUROS, (0, 1, 2)),
        (DATE, (3,)),
    }


async def test_what_is_known_takes_the_critiques() -> None:
    run, _ = run_with(constant(groups(["i4", "n1", "n2"])))
    result = await consolidate(run, PROPOSALS, [Known("i4", "All prices are in euros.")])
    assert [(r.text, r.violates, len(r.critiques)) for r in result.requirements if r.violates] == [
        ("", "i4", 3)
    ]
    assert [r.text for r in result.requirements if r.text] == [DATE]


async def test_equal_texts_need_no_model() -> None:
    run, optimizer = run_with(constant({}))
    twice = [Requirement(EURO, (0,)), Requirement(" state  PRICES in euros", (1,))]
    result = await consolidate(run, twice, [], most=0)
    assert [(r.text, r.critiques) for r in result.requirements] == [(EURO, (0, 1))]
    assert optimizer.seen == []


async def test_a_contradiction_is_named_with_both_sides_unless_it_is_called_a_double_too() -> None:
    run, _ = run_with(constant(groups(opposite=[["n1", "n3"], ["n1", "n77"], "n1"])))
    assert (await consolidate(run, PROPOSALS, [])).contradictions == ((EURO, DATE),)
    run, _ = run_with(constant(groups(["n1", "n2"], opposite=[["n1", "n2"]])))
    assert (await consolidate(run, PROPOSALS, [])).contradictions == ()


@pytest.mark.parametrize(
    "answer",
    [
        {"result": groups(["n1", "n2"], best="n2", opposite=[["n2", "n3"]])},
        {"groups": [{"members": ["n1", "n2"], "keep": "n2"}], "contradictions": [["n2", "n3"]]},
        {"answer": {"sets": [{"same": ["n1", "n2"], "wording": "n2"}], "contradictions": [["n2", "n3"]]}},
    ],
)
async def test_doubles_count_whatever_key_an_answer_puts_them_under(answer: Any) -> None:
    run, _ = run_with(constant(answer))
    result = await consolidate(run, PROPOSALS, [])
    assert [r.text for r in result.requirements] == [EUROS, DATE]
    assert result.contradictions == ((EUROS, DATE),)


async def test_a_wording_that_none_of_the_doubles_has_may_be_written() -> None:
    answer = groups(["n1", "n2"], best="n2")
    answer["duplicates"][0]["merged"] = f"{EUROS} Add the tax."
    fresh = [Known(f"n{n}", r.text) for n, r in enumerate(PROPOSALS, 1)]
    compared = await compare(run_with(constant(answer))[0], fresh, [])
    assert compared.groups == (("n2", "n1"),)
    assert compared.merged == {frozenset({"n1", "n2"}): f"{EUROS} Add the tax."}


async def test_lists_of_ids_are_no_doubles() -> None:
    run, _ = run_with(constant({"contradictions": [], "unclear": ["n1", "n2"], "improper": ["n3"]}))
    fresh = [Known(f"n{n}", r.text) for n, r in enumerate(PROPOSALS, 1)]
    compared = await compare(run, fresh, [])
    assert (compared.groups, compared.unclear, compared.improper) == ((), (), ("n3",))


async def test_known_texts_that_say_the_same_are_reported() -> None:
    known = [Known("i1", EURO), Known("i2", EUROS)]
    run, _ = run_with(constant(groups(["i2", "i1"])))
    assert (await consolidate(run, [Requirement(DATE)], known)).same == (("i2", "i1"),)


BAD: list[Any] = [
    "I see no duplicates.", {"duplicates": "none"}, [], {"duplicates": [{"ids": ["n9", "n8"]}]}, {"duplicates": [[]]},
    {"duplicates": [{"ids": ["n1"], "best": "n1"}]}, {"contradictions": None},
]  # fmt: skip


@pytest.mark.parametrize("answer", BAD)
async def test_an_answer_without_use_loses_nothing(answer: Any) -> None:
    run, _ = run_with(constant(answer))
    assert {r.text for r in (await consolidate(run, PROPOSALS, [])).requirements} == {EURO, EUROS, DATE}


async def test_a_group_of_nearly_everything_counts_where_it_is_merged_in_its_own_words() -> None:
    """Each of six requests brought the whole instruction once more; a capable reader called them doubles and merged them."""
    tails = ("the ending", "the case", "the number", "the gender", "the tense", "the prefix")
    fresh = [
        Known(f"i{n}", f"Answer with the opposite of the word and nothing else; keep {tail}.")
        for n, tail in enumerate(tails)
    ]
    answer = groups([k.id for k in fresh], best="i0")
    assert (await compare(run_with(constant(answer))[0], fresh, [])).groups == ()
    merged = f"Answer with the opposite of the word and nothing else; keep {', '.join(tails)}."
    answer["duplicates"][0]["merged"] = merged
    compared = await compare(run_with(constant(answer))[0], fresh, [])
    assert compared.groups == (tuple(k.id for k in fresh),) and [*compared.merged.values()] == [merged]
    answer["duplicates"][0]["merged"] = "Answer well."
    assert (await compare(run_with(constant(answer))[0], fresh, [])).groups == ()


async def test_a_group_of_nearly_everything_is_a_slip() -> None:
    many = [Requirement(f"Do the thing number {n} in its own way.", (n,)) for n in range(8)]
    run, _ = run_with(constant(groups([f"n{n}" for n in range(1, 8)])))
    assert len((await consolidate(run, many, [])).requirements) == 8


async def test_long_lists_are_compared_in_parts_and_across_parts_within_the_calls() -> None:
    texts = [
        f"{word} {n}" for n in range(75) for word in ("Count the sheep of field", "Paint a picture of wall")
    ]
    fresh = [Known(f"n{n}", text) for n, text in enumerate(texts)]
    run, optimizer = run_with(constant(groups()))
    result = await compare(run, fresh, [])
    sizes = [len(re.findall(r"(?m)^\[n\d+\]", text)) for _, text in optimizer.seen]
    assert result.calls == 4 and max(sizes) <= MOST
    run, optimizer = run_with(constant(groups()))
    assert (await compare(run, fresh, [], most=1)).calls == 1


async def test_what_fits_into_one_list_is_compared_in_one() -> None:
    texts = [f"Count the sheep of field {n}." for n in range(60)]
    fresh, known = [Known(f"n{n}", text) for n, text in enumerate(texts)], [Known("i1", DATE)]
    run, optimizer = run_with(constant(groups()))
    assert (await compare(run, fresh, known)).calls == 1
    assert all(f"[n{n}]" in optimizer.seen[0][1] for n in range(60))


async def test_without_consolidation_two_packs_leave_two_of_the_same() -> None:
    """The ablation: packs do not know of each other."""

    def reply(stage: str, text: str) -> Any:
        if stage == "consolidate":
            ids = re.findall(r"(?m)^\[(n\d+)\] .*euro", text)
            return groups(ids) if len(ids) > 1 else groups()
        lines = numbered(text)
        wording = EURO if any(line.startswith("a") for line in lines.values()) else EUROS
        return form(entry(tuple(lines), None, wording))

    run, _ = run_with(reply)
    seen = await read_critiques(
        run, critiques(*(["a price without euro"] * 3 + ["zu teuer! welche Währung?"] * 3)), [], size=3
    )
    apart = await consolidate(run, seen.requirements, [], most=0)
    together = await consolidate(run, seen.requirements, [])
    assert (len(apart.requirements), len(together.requirements)) == (2, 1)
    assert sorted(together.requirements[0].critiques) == [0, 1, 2, 3, 4, 5]


async def test_what_the_model_calls_improper_is_marked() -> None:
    run, _ = run_with(constant({"duplicates": [], "contradictions": [], "improper": ["n3"]}))
    marked = (await consolidate(run, PROPOSALS, [])).requirements
    assert [(r.text, r.improper) for r in marked] == [(EURO, False), (EUROS, False), (DATE, True)]
