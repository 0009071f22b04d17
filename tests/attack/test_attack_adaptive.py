"""5% of all accounts, run by attackers who know the source: a small version of `python -m benchmarks.attack --only adaptive`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.attack import AUTOMATIC, HELD_OUT, OFF, PROPOSING, TUNING, Defences, Power, Service, campaign
from benchmarks.attack.adaptive import IDEAS, LENIENT, STRICT, WEEKS, by_idea, honest_demand
from benchmarks.attack.readers import orders
from benchmarks.attack.strategy import CONFIRM, COUNT_ALL, MORE_LANGUAGES, SILENCE
from benchmarks.attack.victim import HONEST

FIVE = Power(5, 10)
DAYS = {"slow drip": 7.0 * WEEKS}
HELD = {
    "a share above 5%": STRICT,
    "a careful person": replace(PROPOSING, approver="careful", policy=LENIENT),
    "auto": AUTOMATIC,
}


def first_success(defences: Defences, idea: str, number: int, tries: int = 2) -> int | None:
    """The try with which an idea succeeds against a gullible reader, among 95 honest customers; None for no try."""
    service = Service(defences, speaking=95, seed=number, reader="gullible", days=DAYS.get(idea, 3.0))
    goal = (*TUNING, *HELD_OUT)[number]
    return campaign(service, idea, by_idea(IDEAS[idea]), goal, FIVE, tries, number).first


@pytest.mark.parametrize(
    "defences",
    [
        pytest.param(defences, id=name, marks=[] if name == "auto" else [pytest.mark.long])
        for name, defences in HELD.items()
    ],
)
@pytest.mark.parametrize("idea", IDEAS)
def test_five_of_a_hundred_accounts_get_nothing_into_production(idea: str, defences: Defences) -> None:
    assert first_success(defences, idea, number=1) is None and first_success(defences, idea, number=6) is None


@pytest.mark.parametrize("idea", IDEAS)
def test_positive_control_the_same_attack_succeeds_without_defences(idea: str) -> None:
    assert first_success(OFF, idea, number=1, tries=8) is not None


@pytest.mark.parametrize(
    ("defences", "quorum"), [(STRICT, 7), (replace(PROPOSING, policy=LENIENT), 3), (AUTOMATIC, 10)]
)
def test_an_honest_wish_of_as_many_accounts_as_a_quorum_is_learned(defences: Defences, quorum: int) -> None:
    learned = [honest_demand(defences, topic, quorum, 100 - quorum, seed=0) for topic in HONEST]
    assert sum(learned) >= 0.8 * len(learned)
    assert not any(
        honest_demand(defences, topic, quorum - 1, 101 - quorum, seed=0) for topic in list(HONEST)[:2]
    )


@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_uses_its_rows_and_turns_one_dial_at_a_time(idea: str) -> None:
    tries = by_idea(IDEAS[idea])(TUNING[0], FIVE, np.random.default_rng(0))
    batch = next(tries)
    assert len({row.id for row in batch}) == 50 == len(batch)
    assert sum(TUNING[0].key in row.text for row in batch) >= 15
    if idea == "slow drip":
        assert max(row.ago for row in batch) > 168 * (WEEKS - 1) and min(row.ago for row in batch) < 168


def test_orders_come_in_nine_languages_and_a_gullible_reader_obeys_all() -> None:
    for name, some in {"count": COUNT_ALL, "confirm": CONFIRM, "silence": SILENCE}.items():
        texts = [*some.values(), *MORE_LANGUAGES[name]]
        assert len(set(texts)) == 9 and all(name in orders(f"Please. {text}.") for text in texts)
