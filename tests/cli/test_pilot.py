"""The pilot of `whet advise`: spread, noise and gain worked out by hand; announced, bounded, and paid once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import whet
from whet.api.pilot import call_costs, headroom, spread_of
from whet.cli.main import cli

FORMAT = "Give the answer alone"


def task_of(train: int = 20, **words: Any) -> whet.Task:
    def data(first: int, count: int) -> list[dict[str, str]]:
        return [{"input": f"row {n}", "target": f"answer number {n}"} for n in range(first, first + count)]

    splits = {"train": data(0, train), "validation": data(100, 20), "test": data(200, 30)}
    return whet.Task.of("Answer.", data=splits, **{"reward": "exact_match", **words})


class Model:
    """Right where the prompt says how to answer, and only then; counts what it is asked."""

    version = "1"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Any) -> str:
        self.calls += 1
        text = "\n".join(message.content for message in messages)
        number = text.rpartition("row ")[2].split()[0]
        return f"answer number {number}" if FORMAT in text else "?"


def test_the_spread_is_the_variance_component_of_the_prompts() -> None:
    """Means 0.5 and 1 on 4 rows: mean square of prompts 0.5, of the rest 0.5 / 3; (0.5 - 0.1667) / 4 = 0.0833, its root 0.2887.
    Means that are equal leave nothing."""
    assert spread_of(np.array([[0.0, 1], [0, 1], [1, 1], [1, 1]])) == pytest.approx((1 / 12) ** 0.5)
    assert spread_of(np.array([[0.0, 1], [1, 0], [1, 0], [0, 1]])) == 0.0


def test_noise_is_between_two_answers_to_one_prompt_and_the_gain_is_that_on_rows_that_did_not_pick() -> None:
    """Every second row gets another second answer: sqrt(0.5 / 2) = 0.5. The second part is right on all of 20 rows and the
    start prompt on none, so that it is picked and gains 1 on the 10 others; 10 wins of 10 have the lower end
    2 * 0.025^(1/10) - 1 = 0.383."""
    start, again, worse, better = np.zeros(20), np.tile([0.0, 1.0], 10), np.zeros(20), np.ones(20)
    table = np.column_stack([start, again, worse, better])
    values = headroom(table, range(20), 0.0, 1.0, ["start prompt", "worse", "better"], seed=0)
    assert values["noise"] == pytest.approx(0.5)
    assert values["best"] == "better" and values["picked_on"] == values["measured_on"] == 10
    assert values["gain"]["estimate"] == values["gain"]["high"] == 1.0
    assert values["gain"]["low"] == pytest.approx(2 * 0.025**0.1 - 1, abs=1e-4)
    assert values["best_mean"] == 1.0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=30).filter(lambda kinds: len(set(kinds)) > 1),
    st.integers(0, 9),
)
def test_rows_of_one_cluster_never_pick_and_measure(clusters: list[int], seed: int) -> None:
    """Each cluster's rows earn their cluster's own reward, so that a cluster in both halves would show in both means."""
    size = len(clusters)
    table = np.zeros((size, 3))
    values = headroom(table, clusters, 0.0, 1.0, ["start prompt", "part"], seed)
    assert values["picked_on"] + values["measured_on"] == size
    sums = {0}
    for kind in set(clusters):
        sums |= {total + clusters.count(kind) for total in sums}
    assert values["picked_on"] in sums - {0, size}


def test_the_best_of_equal_prompts_looks_better_on_its_own_rows_and_not_on_fresh_ones() -> None:
    """60 pilots of 8 parts worth the same as the start prompt: the picked one is ahead by chance, on fresh rows it is not."""
    rng, raw, fresh = np.random.default_rng(0), [], []
    for seed in range(60):
        table = (rng.random((40, 10)) < 0.5).astype(float)
        values = headroom(table, range(40), 0.0, 1.0, ["start prompt", *map(str, range(8))], seed)
        prompts = np.delete(table, 1, axis=1)
        raw.append(prompts[:, 1:].mean(axis=0).max() - prompts[:, 0].mean())
        fresh.append(values["gain"]["estimate"])
    assert np.mean(raw) > 0.08 and abs(np.mean(fresh)) < 0.05


def test_a_pilot_is_paid_once_and_its_gain_is_that_of_the_pay_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part `output_format` makes every answer right. A gain of 1 over 100 answers at $1 pays back $100 a month."""
    monkeypatch.chdir(tmp_path)
    model = Model()
    words: dict[str, Any] = {"lm": model, "pilot": True, "progress": False, "pilot_rows": 14}
    planned = whet.advise(task_of(), **words, dry_run=True)
    most = planned["pilot"]["plan"]["calls"]["task"]["most"]
    assert planned["pilot"]["status"] == "planned" and model.calls == 0 and not list(tmp_path.glob("runs/*"))
    with pytest.raises(whet.UsageError, match="does not pay for"):
        whet.advise(task_of(), **words, budget=whet.Budget(calls=most - 1))
    assert model.calls == 0
    advice = whet.advise(task_of(), **words, answers_per_month=100.0, gain_value=1.0)
    pilot = advice["pilot"]
    assert model.calls == most == pilot["usage"]["calls"]["task"]
    assert pilot["best"] == "output_format" and pilot["gain"]["estimate"] == 1.0 and pilot["noise"] == 0.0
    assert advice["pay_back"]["gain"] == pilot["gain"] and advice["start"]["split"] == "training"
    assert (
        advice["decision"]["name"] == "write"
        and "`output_format` gains 1.00" in advice["decision"]["reasons"][0]
    )
    assert not any(step.startswith("Measure the start prompt") for step in advice.first)
    again = whet.advise(task_of(), **words)
    assert model.calls == most and again["pilot"]["gain"] == pilot["gain"]


def test_the_cost_of_a_call_has_the_interval_of_as_many_calls_as_rows(tmp_path: Path) -> None:
    """Costs 1, 2, 3, 1, 2, 3 have mean 2 and variance 0.8. With 3 rows: 2 +- 4.303 * sqrt(0.8 / 3) = 2 +- 2.222, from 0. A call
    without an answer counts as none."""
    journal = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(journal)) as db, db:
        db.execute("CREATE TABLE calls(role, state, cost)")
        db.executemany("INSERT INTO calls VALUES ('task', 'answered', ?)", [(x,) for x in (1, 2, 3, 1, 2, 3)])
        db.execute("INSERT INTO calls VALUES ('task', 'lost', 9)")
        db.execute("INSERT INTO calls VALUES ('judge', 'answered', 9)")
    costs = call_costs(journal, 3)
    assert costs == {"task": pytest.approx({"mean": 2.0, "low": 0.0, "high": 4.222}, abs=1e-3)}


def test_a_pilot_gives_the_families_an_interval_of_their_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of two lengths: the second plan expects the pilot's tokens, and the interval lies around its dollars."""
    monkeypatch.chdir(tmp_path)
    lm = {"address": Model(), "price": {"input": 100.0, "output": 100.0}}
    words: dict[str, Any] = {"lm": lm, "progress": False, "pilot_rows": 14, "budget": None}
    before = whet.advise(task_of(), lm=lm, progress=False)["families"][0]
    advice = whet.advise(task_of(), **words, pilot=True)
    cost = advice["families"][0]
    interval, dollars = cost["cost_interval"], cost["cost_usd"]["expected"]
    assert before["cost_interval"] is None and dollars < before["cost_usd"]["expected"]
    assert interval["mean"] == dollars and interval["low"] < dollars < interval["high"]
    each = advice["pilot"]["call_cost_usd"]["task"]
    calls = advice["plan"]["calls"]["task"]["expected"]
    assert interval["high"] - dollars == pytest.approx(calls * (each["high"] - each["mean"]))


def test_what_must_be_mended_first_is_not_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Model()
    broken = task_of(reward=lambda example, output: 0.5)
    advice = whet.advise(broken, lm=model, pilot=True, progress=False)
    assert advice["pilot"] is None and any("The pilot did not begin" in text for text in advice["warnings"])
    for words, part in (
        ({"pilot": True, "pilot_rows": 5}, "12 or more"),
        ({"budget": whet.Budget(calls=9)}, "only a pilot makes paid calls"),
        ({"dry_run": True}, "only a pilot makes paid calls"),
    ):
        with pytest.raises(whet.UsageError, match=part):
            whet.advise(task_of(), lm=model, progress=False, **words)
    with pytest.raises(whet.UsageError, match="6 training rows for a pilot beside the 3"):
        whet.advise(task_of(train=9), lm=model, pilot=True, progress=False)
    assert model.calls == 0


def test_the_screen_with_a_pilot_and_a_pay_back_is_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["init", "demo", "--from", "example", "--yes"]).exit_code == 0
    options = ["--pilot", "--pilot-rows", "14", "--answers-per-month", "10", "--gain-value", "1"]
    done = CliRunner().invoke(cli, ["advise", "demo", *options])
    assert done.exit_code == 0 and "84 task calls" in done.stderr
    assert "pilot    standard deviation between 5 prompts" in done.stdout and "(84 calls)" in done.stdout
    assert len(done.stdout.splitlines()) <= 30
