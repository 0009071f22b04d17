"""Prompt-OIRL: the log, the pool, the model of rewards and its check, deployment; finished runs; the contest."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over
from tests.methods.routing_worlds import HELPS, START, answer, kind_of, row, share_right, two_kinds

import whet
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.oirl import Config, check, deploy, oirl, ridge
from whet.prompt import Prompt
from whet.rl.prompt_router import (
    Choice,
    RewardModel,
    Routed,
    Router,
    choose,
    cross_validate,
    prompt_kernel,
    read_router,
)
from whet.rl.reward_log import RewardLog, mean_rewards
from whet.run import Budget
from whet.search.label_weights import deal
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, review_world
from whet.types import Rollout

CONFORMANCE = {"method": "bootstrap", "rows": 20, "prompts": 3}
"""Settings of a run in the conformance suite."""
SWEEP = {"method": "bootstrap", "rows": 4, "prompts": 2, "folds": 0}
"""Settings of a run that is killed at every boundary."""

FIRST, SECOND = (START.edit(f"Do it. {HELPS[kind]}\n") for kind in ("sum", "word"))


def known(*rewards: float) -> RewardLog:
    """A log in which the first prompt earned the first reward on row 0, and so on."""
    notes = RewardLog()
    for number, reward in enumerate(rewards):
        notes.add(FIRST, Rollout(FIRST.id, f"row-{number}", "", reward))
    return notes


def test_a_log_keeps_the_first_reward_and_none_where_the_provider_failed() -> None:
    notes = known(1.0, 0.0)
    notes.add(FIRST, Rollout(FIRST.id, "row-1", "", 1.0))
    notes.add(SECOND, Rollout(SECOND.id, "row-0", "", 0.0, error="timeout"))
    table = notes.table([FIRST, SECOND], [row(0), row(1)])
    assert table[:, 0].tolist() == [1.0, 0.0] and np.isnan(table[:, 1]).all()
    assert not notes.compares(row(0)) and SECOND.id not in notes.prompts


def test_means_are_drawn_to_the_mean_of_all() -> None:
    table = np.array([[1.0, 0.0], [1.0, np.nan], [1.0, np.nan], [1.0, np.nan]])
    assert mean_rewards(table) == pytest.approx([(4 + 2 * 0.8) / 6, 2 * 0.8 / 3])


def test_the_pool_takes_prompts_that_are_good_for_something() -> None:
    notes, rows = RewardLog(), [row(number) for number in range(40)]
    kinds = np.array([[float(kind_of(n) == kind) for kind in HELPS] for n in range(40)])
    both = START.edit("Do it well.\n")
    for place, one in enumerate(rows):
        for prompt, reward in ((both, 0.6), (FIRST, kinds[place, 0]), (SECOND, kinds[place, 1])):
            notes.add(prompt, Rollout(prompt.id, one.id, "", reward))
        notes.add(START, Rollout(START.id, one.id, "", 0.5))
    assert notes.pool(START, rows, kinds, 3) == [START, FIRST, SECOND]


def test_a_model_of_products_chooses_by_input_where_one_of_sums_cannot() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    table = np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1).astype(float)
    model = ridge(x, table, 1.0, prompt_kernel(["one", "two"]))
    assert (model.predict(x).argmax(axis=1) == (x[:, 0] <= 0)).mean() > 0.95
    gaps = model.predict(x) @ [1.0, -1.0]
    assert gaps.min() < 0 < gaps.max()  # with features side by side this gap is the same for all inputs


def test_gaps_in_the_log_are_no_rewards() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    table = np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1).astype(float)
    table[rng.random(table.shape) < 0.5] = np.nan
    model = ridge(x, table, 1.0)
    assert (model.predict(x).argmax(axis=1) == (x[:, 0] <= 0)).mean() > 0.9


def test_where_it_does_not_predict_more_by_a_margin_the_single_prompt_stays() -> None:
    predicted = np.array([[0.5, 0.55, 0.2], [0.5, 0.7, 0.2], [0.6, 0.5, 0.5]])
    singles = np.zeros(3, np.int64)
    assert choose(predicted, singles, 0.1).tolist() == [0, 1, 0]
    assert choose(predicted, singles, 0.0).tolist() == [1, 1, 0]


def memorise(x: Any, table: Any, strength: float) -> RewardModel:
    """A fit that knows each row it was fitted to, and nothing of others."""
    return RewardModel(np.hstack([np.full((len(x), 1), -0.5), x]), np.nan_to_num(table), hard=True)


def test_a_model_that_only_knows_its_own_rows_fails_the_check() -> None:
    rng = np.random.default_rng(2)
    x, table = np.eye(60), (rng.random((60, 4)) < 0.5).astype(float)
    assert (memorise(x, table, 0).predict(x) == table).all()
    folds = [np.arange(60)[np.arange(60) % 5 == fold] for fold in range(5)]
    assert not cross_validate(x, table, folds, memorise, [0.0]).holds(0.1)


def test_copies_of_a_row_stand_in_one_fold() -> None:
    """The published split is of pairs of row and prompt, so that each row is on both sides."""
    rng = np.random.default_rng(3)
    twice = np.repeat((rng.random((30, 4)) < 0.5).astype(float), 2, axis=0)
    x = np.repeat(np.eye(30), 2, axis=0)
    rows = [replace(row(number // 2), id=f"copy-{number}") for number in range(60)]
    leaky = [np.arange(60)[np.arange(60) % 2 == fold] for fold in range(2)]
    assert cross_validate(x, twice, leaky, memorise, [0.0]).holds(0.1)
    assert not cross_validate(x, twice, deal(rows, 5), memorise, [0.0]).holds(0.1)


def a_router() -> Router:
    """One that tells the kinds by the first two of its features, whatever they are."""
    weights = np.zeros((2, 1025))
    return Router([FIRST, SECOND], Choice(RewardModel(weights, np.eye(2)), 1, 0.0), "none")


def test_a_router_is_restored_from_what_it_saves() -> None:
    again = read_router(a_router().save())
    assert [p.id for p in again.prompts] == [FIRST.id, SECOND.id]
    assert again.save() == a_router().save()


@pytest.mark.parametrize(
    "blob", [b"", b"{}", b"[1]", json.dumps({**json.loads(a_router().save()), "values": [[1.0]]}).encode()]
)
def test_a_blob_that_holds_no_router_is_refused(blob: bytes) -> None:
    with pytest.raises(UsageError, match="not a checkpoint of a router"):
        read_router(blob)


def test_a_row_is_answered_under_its_prompt_for_one_call() -> None:
    world = two_kinds(0)
    _, best, run = played(0)
    assert best.system is not None
    there = deploy(world.env, None, run.kept[best.system], Config())
    assert isinstance(there, Routed)
    metered = MeteredRun({"task": world.env.model})
    rows = world.env.validation[:10]

    async def answers() -> Any:
        texts = await there.texts(metered, best.prompt, rows)
        rollouts = await there.evaluate(metered, best.prompt, rows)
        alone = [await there.rollout(metered, best.prompt, one) for one in rows]
        return texts, rollouts, alone

    texts, rollouts, alone = asyncio.run(answers())
    assert [r.reward for r in rollouts] == [r.reward for r in alone]
    assert [r.prompt_id for r in rollouts] == [r.prompt_id for r in alone]
    assert len(set(texts)) > 1 and metered.spent["task"] == 20
    (score,) = asyncio.run(there.score(metered, [best.prompt], rows))
    assert score.mean == pytest.approx(np.mean([r.reward for r in rollouts]))


# From finished runs.


def model_of(seed: int) -> Any:
    """The task model of a seed as a function of messages."""

    def say(messages: list[Any]) -> str:
        return answer(seed, "\n".join(message.content for message in messages))

    return say


def data(seed: int) -> dict[str, Any]:
    def rows(first: int, n: int) -> list[dict[str, Any]]:
        drawn = [row(number, seed) for number in range(first, first + n)]
        return [{"input": one.user_text, "target": one.target} for one in drawn]

    return {"train": rows(0, 120), "validation": rows(1000, 40), "test": rows(2000, 60)}


def finished(folder: Path, method: str, lm: Any, **settings: Any) -> dict[str, Any]:
    """A run of `whet.optimize` in that folder."""
    options: Any = {"reward": "exact_match", "lm": lm, "settings": settings, "run": folder}
    return whet.optimize(START.source, data=data(1), method=method, **options).to_dict()


def test_learning_from_a_finished_run_makes_no_call(tmp_path: Path) -> None:
    say = model_of(1)
    finished(tmp_path / "log", "random_search", say, n=24)
    result = finished(tmp_path / "oirl", "oirl", say, runs=str(tmp_path / "log"))
    tested = 1 if result["best"]["id"] == result["baseline"]["id"] else 2
    assert result["usage"]["calls"]["task"] <= 3 * 40 + tested * 60
    assert not [text for text in result["warnings"] if "was never called" in text]
    again = finished(tmp_path / "oirl", "oirl", say, runs=str(tmp_path / "log"))
    assert again["best"]["id"] == result["best"]["id"]


def test_a_run_of_another_model_holds_nothing(tmp_path: Path) -> None:
    finished(tmp_path / "log", "random_search", model_of(1), n=2)

    def other(messages: list[Any]) -> str:
        return "right 1"

    with pytest.raises(UsageError, match="hold no answer to a training row"):
        finished(tmp_path / "oirl", "oirl", other, runs=str(tmp_path / "log"))


async def test_a_task_that_scores_labels_is_routed_row_by_row() -> None:
    env = review_world(train=40, validation=20, scores=True)
    start = Prompt.parse(SOURCE)
    run = MeteredRun({"task": env.model}, limits=Budget(task_calls=900))
    best = await oirl(run, env, None, start, Config(rows=30, prompts=3, folds=0), get_method)
    assert run.spent["task"] <= 900
    blob = next(iter(run.kept.values()))
    there = deploy(env, None, blob, Config())
    rollouts = await there.evaluate(run, best.prompt, env.validation)
    assert [r.example_id for r in rollouts] == [row.id for row in env.validation]
    assert {r.prompt_id for r in rollouts} <= {p.id for p in read_router(blob).prompts}


@pytest.mark.parametrize(
    ("env", "config", "says"),
    [
        (two_kinds(0).env, Config(runs="nowhere"), "runs names nowhere, in which there is no run"),
        (two_kinds(0).env, Config(method="omni"), "omni cannot search before"),
        (two_kinds(0).env, Config(method="reanchor"), "reanchor cannot search before"),
        (two_kinds(0).env, Config(method="nobody"), 'no method "nobody"'),
        (two_kinds(0).env, Config(embedding="nobody"), 'no embedding "nobody"'),
    ],
)
def test_what_cannot_work_is_refused(env: Environment, config: Config, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check(env, config, get_method)


def test_answers_of_a_model_that_scores_labels_are_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").touch()
    with pytest.raises(UsageError, match="asked for one by one"):
        check(review_world(scores=True), Config(runs=str(tmp_path)), get_method)


# The contest: rows of two kinds, each of which a phrase helps that harms the other.

LIMITS = Budget(task_calls=3000, optimizer_calls=40)


@cache
def played(seed: int, method: str = "oirl", **settings: Any) -> Any:
    own = {"method": "evoprompt", **settings} if method == "oirl" else settings
    return two_kinds(seed).play(method, LIMITS, own)


def worths(seeds: int, method: str = "oirl", **settings: Any) -> list[float]:
    return [played(seed, method, **settings)[0] for seed in range(seeds)]


@pytest.mark.long
@pytest.mark.parametrize("seeds", [5])
def test_it_beats_the_search_alone_itself_with_features_shuffled_and_the_best_single_prompt(
    seeds: int,
) -> None:
    best_single = max(
        sum(share_right(kind, text) for kind in HELPS) / 2
        for text in ("", *HELPS.values(), " ".join(HELPS.values()))
    )
    own = worths(seeds)
    assert won_over("the search alone", own, worths(seeds, "evoprompt")).low > 0.05
    assert won_over("features shuffled", own, worths(seeds, features="shuffled")).low > 0.05
    assert won_over("the best single prompt there is", own, [best_single] * seeds).low > 0
