"""Measuring and upkeep: rates by hand, trials by halving, what a silence tells."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.instructions.effects import Effects, Round
from whet.instructions.upkeep import Trials, over_budget, suspects, worse
from whet.prompt import Prompt
from whet.prompt.events import Add, Event
from whet.prompt.instructions import Ledger, fold_events
from whet.prompt.ledger import first_event

START = Prompt.parse("Answer.\n<!-- whet:begin -->\n- By hand.\n<!-- whet:end -->")


def ledger(*texts: str, critiques: tuple[tuple[str, ...], ...] = ()) -> Ledger:
    events: list[Event] = [first_event(START)]
    for n, text in enumerate(texts):
        quotes = critiques[n] if critiques else ("why",)
        events.append(
            Add(
                id=f"i{n + 2}",
                text=text,
                author="optimizer",
                critiques=quotes,
                sources=len(quotes),
                tokens=10,
            )
        )
    return fold_events(events)


def shown(*keys: str) -> dict[str, str]:
    return {key: key.upper() for key in keys}


def test_rates_before_and_after_are_those_of_the_rounds_without_and_with_the_text() -> None:
    effects = Effects()
    effects.add(Round(40, shown("i1"), {}))
    effects.note_demand("i2", 12)
    effects.add(Round(30, shown("i1", "i2"), {"i2": 3}))
    effects.add(Round(20, shown("i1"), {"i2": 5}))
    effects.add(Round(10, {**shown("i1"), "i2": "another text"}, {"i2": 1}))
    assert effects.before("i2") == (17, 60)
    assert effects.after("i2", "I2") == (3, 30)
    assert effects.after("i2", "another text") == (1, 10)
    (measure,) = [m for m in effects.measure({"i2": "I2"})]
    assert measure.effect.difference == pytest.approx(17 / 60 - 3 / 30)
    assert measure.effect.low < measure.effect.difference < measure.effect.high


def test_an_instruction_is_still_violated_beyond_noise_or_half_as_often_as_before() -> None:
    effects, texts = Effects(), shown(*(f"i{n}" for n in range(1, 9)))
    effects.add(Round(40, {}, {key: 20 for key in texts}))
    effects.add(Round(40, texts, {"i1": 15, "i2": 1, "i3": 2}))
    assert effects.still_violated(texts) == ["i1"]
    effects.add(Round(40, texts, {"i1": 0, "i3": 12}))
    assert effects.still_violated(texts)[0] == "i1" and "i2" not in effects.still_violated(texts)


def test_the_reward_of_a_trial_decides_where_no_critique_does() -> None:
    full = Round(20, shown("i1", "i2", "i3", "i4"), {}, [1.0, 0.9] * 10)
    assert worse(Round(20, shown("i1"), {}, [0.5, 0.4] * 10), full)
    assert not worse(Round(20, shown("i1"), {}, [0.9, 1.0] * 10), full)
    assert not worse(Round(1, {}, {}, [0.0]), full)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.5, 0.7, 0.9])
def test_a_few_answers_are_called_worse_by_chance_as_rarely_as_many(rate: float) -> None:
    """The exact probability that 8 of 48 answers, all right at the same rate, count as worse than the other 40."""

    def chance(right: int, size: int) -> float:
        return math.comb(size, right) * rate**right * (1 - rate) ** (size - right)

    def binary(right: int, size: int) -> Round:
        return Round(size, {}, {}, [1.0] * right + [0.0] * (size - right))

    false = sum(
        chance(few, 8) * chance(many, 40)
        for few in range(9)
        for many in range(41)
        if worse(binary(few, 8), binary(many, 40))
    )
    assert false < 0.08
    assert worse(binary(0, 8), binary(20, 40)) and not worse(binary(0, 8), binary(4, 40))


def test_a_group_that_matters_is_halved_until_the_instruction_is_known() -> None:
    """Only i3 matters; the reader names no numbers, so that the reward alone tells."""
    current = ledger("a", "b", "c", "d")
    keys = [i.id for i in current.active if i.author == "optimizer"]
    needed, trials, effects = keys[1], Trials(), Effects()
    effects.add(Round(40, shown(*keys), {}, [1.0, 0.9] * 20))
    trials.propose(keys)
    gone: list[str] = []
    for _ in range(12):
        group = trials.next(current)
        if not group:
            break
        reward = [0.4, 0.5] * 20 if needed in group else [1.0, 0.9] * 20
        effects.add(Round(40, shown(*(k for k in keys if k not in group)), {}, reward))
        gone += trials.judge(group, effects, False)
    assert sorted(gone) == sorted(set(keys) - {needed})
    assert needed in trials.settled


def test_one_that_critiques_miss_stays_and_the_others_are_tried_again_without_it() -> None:
    current, trials, effects = ledger("a", "b"), Trials(), Effects()
    effects.add(Round(40, {}, {}, [0.5] * 40))
    for key in ("i2", "i3"):
        effects.note_demand(key, 20)
    effects.add(Round(40, shown("i2", "i3"), {}, [1.0] * 40))
    trials.propose(["i2", "i3"])
    group = trials.next(current)
    effects.add(Round(40, {}, {"i2": 9}, [0.9] * 40))
    assert trials.judge(group, effects, True) == []
    assert trials.next(current) == {"i3"}
    effects.add(Round(40, shown("i2"), {}, [1.0] * 40))
    assert trials.judge({"i3"}, effects, True) == ["i3"]


@pytest.mark.parametrize(("others", "leaves"), [((), True), (("i4",), False)])
def test_what_harms_leaves_where_nothing_else_was_different(others: tuple[str, ...], leaves: bool) -> None:
    """One of 40 answers demanded it, so that the silence of 40 tells nothing; the reward does."""
    effects, trials = Effects(), Trials()
    effects.add(Round(40, shown("i2"), {}, [0.5] * 40))
    effects.note_demand("i3", 1)
    effects.add(Round(40, shown("i2", "i3"), {}, [0.7, 0.8] * 20))
    effects.add(Round(40, shown("i2", *others), {}, [0.9, 1.0] * 20))
    assert trials.judge({"i3"}, effects, True) == (["i3"] if leaves else [])


def test_a_regression_is_tried_before_what_waits() -> None:
    trials = Trials()
    trials.propose(["i2"])
    trials.propose(["i3"], first=True)
    assert trials.next(ledger("a", "b")) == {"i3"}


def test_who_wants_which_of_two_is_counted_where_both_were_treated_alike() -> None:
    """Both demands before either stood, then the second one while only the first stood, then both while both stood."""
    effects = Effects()
    effects.add(Round(40, {}, {"i2": 5, "i3": 2}))
    effects.add(Round(40, shown("i2"), {"i3": 9}))
    effects.add(Round(40, shown("i2", "i3"), {"i2": 8, "i3": 1}))
    assert effects.count_violations(("i2", "i3")) == (13, 3)


def test_what_was_demanded_of_a_double_counts_for_what_it_became_part_of() -> None:
    effects = Effects()
    effects.add(Round(40, {}, {"i2": 3}))
    effects.add(Round(40, shown("i2"), {"i3": 4, "i2": 1}))
    effects.merge("i3", ["i2"])
    assert effects.before("i3") == (8, 80)


@pytest.mark.parametrize(("answers", "telling"), [(10, False), (90, True)])
def test_silence_tells_only_where_critiques_were_to_be_expected(answers: int, telling: bool) -> None:
    """1 of 40 answers complained before: 10 silent ones happen by chance (.78), 90 do not (.10)."""
    effects, trials = Effects(), Trials()
    effects.add(Round(40, {}, {}, [0.5] * 40))
    effects.note_demand("i2", 1)
    effects.add(Round(answers, {}, {}, [0.5] * answers))
    effects.add(Round(5, {}, {}, [0.5] * 5))
    assert trials.judge({"i2"}, effects, True) == (["i2"] if telling else [])
    assert ("i2" in trials.settled) == telling


def test_what_explains_more_than_half_of_the_critiques_is_not_tried_without() -> None:
    current, trials, effects = ledger("a", "b", "c"), Trials(), Effects()
    effects.add(Round(40, shown(), {"i2": 20, "i3": 15, "i4": 2}, criticised=37))
    assert effects.mainstays() == {"i2"}
    trials.propose(["i2"])
    assert trials.next(current, ["i2", "i4"], effects.mainstays()) == {"i4"}
    effects.add(Round(40, shown("i2", "i3"), {"i4": 2}, criticised=2))
    assert effects.mainstays() == {"i2"}, "two answers tell nothing"


def test_of_equally_suspicious_ones_the_least_demanded_is_the_first() -> None:
    same = "the right answer is exactly one of the labels"
    current, effects = ledger("a", "b", critiques=((same, "x", "y"), (same,))), Effects()
    effects.since = {"i2": 0, "i3": 0}
    assert suspects(current, effects) == ["i3"]


def test_what_a_person_wrote_is_neither_tried_nor_left_out() -> None:
    current, trials = ledger("a"), Trials()
    trials.propose(["i1"])
    assert trials.next(current) == frozenset()
    assert [i.id for i in over_budget(current, Effects(), 0)] == ["i2"]
    assert over_budget(current, Effects(), None) == []


def test_suspects_are_those_whose_critiques_led_to_another_instruction() -> None:
    same = "nav-1 has position left; the nav sits at the top"
    quotes = (
        (same,),
        ("prices lack euros", "no euros"),
        ("nav-2 has position left; the nav sits at the top",),
    )
    current, effects = (
        ledger("Take care of the nav.", "Use euros.", "Put the nav at the top.", critiques=quotes),
        Effects(),
    )
    effects.since = {"i2": 0, "i3": 0, "i4": 1}
    assert suspects(current, effects) == ["i2"]
    assert suspects(current, effects, {"i2"}) != ["i2"]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=6))
def test_rates_never_exceed_their_answers(rounds: list[tuple[int, int]]) -> None:
    effects = Effects()
    for n, (answers, hits) in enumerate(rounds):
        effects.add(Round(answers, shown("i1") if n % 2 else {}, {"i1": hits}))
    for hits, n in (effects.before("i1"), effects.after("i1", "I1")):
        assert 0 <= hits <= n
