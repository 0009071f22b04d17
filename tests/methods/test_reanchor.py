"""ReAnchor: candidates by hand, what is kept, that an offset is recovered and its absence left alone, use after a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.methods.figures import won_over

import whet
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.reanchor import Config, check, deploy, read, reanchor
from whet.models.scripted import Scripted
from whet.prompt import Prompt
from whet.rewards.text import F1, ExactMatch
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.label_weights import (
    CONTENT_FREE,
    Reweighted,
    WeightFit,
    candidates,
    contextual_weights,
    deal,
    weigh,
)
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, review_world
from whet.types import Example, Scores

START = Prompt.parse(SOURCE)
REWARD = ExactMatch()


def score(probs: Any, right: Any) -> Any:
    return REWARD.from_labels(probs[None], right)[0]


def test_candidates_lie_between_the_points_where_an_answer_flips() -> None:
    probs = np.array([[0.2, 0.8], [0.5, 0.5], [0.8, 0.2]])
    found = candidates(probs, np.ones(2), 0)
    assert found == pytest.approx([0.25 / 4, 0.5, 2.0, 16.0])
    with_rival = candidates(probs, np.array([1.0, 0.5]), 0)
    assert with_rival == pytest.approx([0.125 / 4, 0.25, 1.0, 8.0])


def test_candidates_survive_certainty_and_are_not_too_many() -> None:
    assert all(np.isfinite(candidates(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones(2), 0)))
    many = np.random.default_rng(0).dirichlet([1, 1, 1], size=500)
    assert len(candidates(many, np.ones(3), 1)) <= 40


def test_weights_turn_answers() -> None:
    assert weigh(np.array([0.4, 0.6]), np.array([3.0, 1.0])) == pytest.approx([2 / 3, 1 / 3])


def test_rows_of_one_group_and_of_one_input_come_to_one_fold() -> None:
    def row(name: str, text: str, group: str | None = None) -> Example:
        return Example(name, {"input": text}, group=group, text=text)

    rows = [row("a", "x"), row("b", "y", "g"), row("c", "x"), row("d", "z", "g"), row("e", "w")]
    assert [fold.tolist() for fold in deal(rows, 5)] == [[0, 2], [1, 3], [4]]
    assert [fold.tolist() for fold in deal(rows, 2)] == [[0, 2, 4], [1, 3]]
    assert deal(rows, 0) == []


# The contest: a classifier whose probabilities carry an offset for each label.

SEPARATION = 1.6


def draws(seed: int, n: int, offset: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities of three labels with noise; the first one carries the offset. And the right labels."""
    rng = np.random.default_rng(seed)
    right = rng.integers(3, size=n)
    logits = rng.normal(size=(n, 3)) + SEPARATION * np.eye(3)[right] + np.array([offset, 0.0, 0.0])
    raised = np.exp(logits)
    return raised / raised.sum(axis=1, keepdims=True), right


def fitted(seed: int, n: int, offset: float, folds: int = 5) -> NDArray[np.float64]:
    probs, right = draws(seed, n, offset)
    rows = np.arange(n)
    return WeightFit(probs, right, score, [rows[rows % folds == f] for f in range(folds)]).fit(2)


def accuracy(weights: NDArray[np.float64], offset: float) -> float:
    """On many rows that nothing was fitted to."""
    probs, right = draws(999, 20_000, offset)
    return float(score(weigh(probs, weights), right).mean())


@pytest.mark.parametrize("offset", [1.5, -1.5])
def test_an_offset_is_recovered_to_within_two_points_of_the_best_weights(offset: float) -> None:
    best = accuracy(np.exp([-offset, 0.0, 0.0]), offset)
    plain = accuracy(np.ones(3), offset)
    found = [accuracy(fitted(seed, 100, offset), offset) for seed in range(10)]
    print(f"\noffset {offset}: from {plain:.3f} to {fmean(found):.3f}, the best weights {best:.3f}")
    assert plain < best - 0.04
    assert fmean(found) > best - 0.02


def test_without_an_offset_the_weights_seldom_change_and_cost_little() -> None:
    kept = [bool((fitted(seed, 80, 0.0) == 1.0).all()) for seed in range(20)]
    lost = [accuracy(np.ones(3), 0.0) - accuracy(fitted(seed, 80, 0.0), 0.0) for seed in range(20)]
    print(f"\nno offset: weights stay in {fmean(kept):.2f} of the seeds, lost {fmean(lost):.3f}")
    assert fmean(kept) >= 0.6
    assert fmean(lost) < 0.01


def calibrated(seed: int, offset: float, noise: float) -> NDArray[np.float64]:
    """Contextual weights from three inputs that say nothing: the offset with some noise, and no right label."""
    logits = np.random.default_rng(5000 + seed).normal(size=(3, 3)) * noise + np.array([offset, 0.0, 0.0])
    raised = np.exp(logits)
    return contextual_weights(raised / raised.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("noise", [0.5, 1.0])
@pytest.mark.parametrize("offset", [1.5, -1.5, 0.0])
def test_contextual_calibration_mends_an_offset_that_empty_inputs_show(offset: float, noise: float) -> None:
    plain = accuracy(np.ones(3), offset)
    found = [accuracy(calibrated(seed, offset, noise), offset) for seed in range(20)]
    print(f"\noffset {offset}, noise {noise}: from {plain:.3f} to {fmean(found):.3f}")
    won = won_over("without weights", found, [plain] * 20)
    if not offset:
        assert won.high < 0, "there is nothing to mend, and the noise costs accuracy"
    elif noise < 1.0:
        assert won.low > 0, won


def test_without_the_check_it_over_fits_where_rows_are_few() -> None:
    checked = [accuracy(fitted(seed, 20, 0.0), 0.0) for seed in range(20)]
    loose = [accuracy(fitted(seed, 20, 0.0, folds=0), 0.0) for seed in range(20)]
    won = won_over("without the check", checked, loose)
    assert won.low > 0, won


# Through the method.


class Offset(Scripted):
    """A model that scores labels: the draws above by the number of the row, the first label said too often."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    can_score = True

    def __init__(self, offset: float) -> None:
        super().__init__("offset", {})
        self.probs, self.right = draws(7, 300, offset)

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Scores:
        rows = [int(values["input"].split()[-1]) for values in inputs]
        logprobs = np.log(self.probs[rows])[None].repeat(len(prompts), axis=0)
        return Scores(logprobs, np.ones(logprobs.shape[1:], dtype=np.int64))


LABELS = ("red", "green", "blue")


def offset_world(offset: float) -> Environment:
    """200 rows to learn from, 100 to validate on."""
    model: Any = Offset(offset)
    rows = tuple(
        Example(f"row-{i}", {"input": f"row {i}"}, LABELS[label], text=f"row {i}")
        for i, label in enumerate(model.right)
    )
    return Environment(model, REWARD, rows[:200], rows[200:], {name: name for name in LABELS}, scores=True)


async def search(
    env: Environment, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    run = MeteredRun({"task": env.model}, limits=limits)
    return await reanchor(run, env, None, START, Config(**settings), get_method), run


async def test_the_weights_are_kept_with_the_candidate_and_used_by_its_environment() -> None:
    env = offset_world(1.5)
    best, run = await search(env)
    assert best.system is not None and best.prompt == START
    there = deploy(env, None, run.kept[best.system], Config())
    assert isinstance(there, Reweighted) and there.weights[0] < min(there.weights[1:])
    before, after = [(await one.score(run, [START], env.validation))[0].mean for one in (env, there)]
    assert after > before + 0.04
    rollouts = await there.evaluate(run, START, env.validation)
    assert fmean(r.reward for r in rollouts) == pytest.approx(after)


async def test_one_pass_over_the_rows_is_all_that_is_paid() -> None:
    env = offset_world(1.5)
    _, run = await search(env)
    assert run.spent["task"] == 200 + 2 * 100
    _, run = await search(env, Budget(task_calls=150))
    assert run.spent["task"] <= 150


def test_labels_are_equally_likely_on_inputs_that_say_nothing_under_contextual_weights() -> None:
    seen = np.array([[0.6, 0.3, 0.1], [0.4, 0.5, 0.1]])
    weights = contextual_weights(seen)
    assert weigh(seen.mean(axis=0), weights) == pytest.approx([1 / 3] * 3)
    assert weights == pytest.approx(np.array([2.0, 2.5, 10.0]) / 50 ** (1 / 3))


class Wordy(Offset):
    """The offset model, which gives the three labels .6, .2 and .2 where the input is no row."""

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Scores:
        self.asked = [values["input"] for values in inputs]
        if any(text.startswith("row") for text in self.asked):
            return await super().score(prompts, inputs, continuations)
        self.blank = self.asked
        logprobs = np.log(np.tile([0.6, 0.2, 0.2], (len(prompts), len(inputs), 1)))
        return Scores(logprobs, np.ones(logprobs.shape[1:], dtype=np.int64))


async def test_contextual_calibration_asks_about_inputs_that_say_nothing_and_needs_no_label() -> None:
    model: Any = Wordy(1.5)
    env = replace(offset_world(1.5), model=model)
    unlabelled = replace(env, train=tuple(replace(row, target="none") for row in env.train))
    best, run = await search(unlabelled, fit="content-free")
    assert model.blank == [*CONTENT_FREE]
    assert run.spent["task"] == len(CONTENT_FREE) + 2 * 100
    assert best.system is not None
    there: Any = deploy(env, None, run.kept[best.system], Config())
    shares = np.array(there.weights) * [0.6, 0.2, 0.2]
    assert shares == pytest.approx([shares[0]] * 3, rel=1e-4)


async def test_without_an_offset_the_start_stays() -> None:
    best, _ = await search(offset_world(0.0))
    assert best.prompt == START and best.system is None


async def test_a_search_comes_first_where_a_method_is_named() -> None:
    env = review_world(train=40, validation=20, scores=True)
    best, run = await search(env, Budget(task_calls=400), method="random_search")
    operators = [value["operator"] for name, value in run.logged if name == "validated"]  # type: ignore[index, call-overload]
    assert operators[0] == "start" and "random_search" in [*operators, best.operator]
    assert run.spent["task"] <= 400
    assert best.prompt != START


def test_a_result_of_whet_optimize_answers_with_its_weights(tmp_path: Path) -> None:
    env = offset_world(1.5)
    rows = [{"input": e.user_text, "target": e.target} for e in (*env.train, *env.validation)]
    data = {"train": rows[:150], "validation": rows[150:200], "test": rows[200:]}
    result = whet.optimize(
        "Name the colour.\n\n{{input}}",
        data=data,
        labels=list(LABELS),
        reward="exact_match",
        lm=env.model,
        method="reanchor",
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["test"]["mean"] > result["baseline"]["test"]["mean"] + 0.02
    assert result["best"]["prompt"] == result["baseline"]["prompt"]


@pytest.mark.parametrize(
    ("env", "config", "says"),
    [
        (replace(offset_world(0.0), reward=F1()), Config(), "the reward f1 cannot be computed"),
        (offset_world(0.0), Config(method="opro"), "opro cannot search before"),
        (offset_world(0.0), Config(method="omni"), "omni cannot search before"),
        (offset_world(0.0), Config(method="nobody"), 'no method "nobody"'),
    ],
)
def test_what_cannot_work_is_refused(env: Environment, config: Config, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check(env, config, get_method)


@pytest.mark.parametrize("blob", [b"", b"{}x", b"[1]", b'{"red": "2"}', b'{"red": -1.0}', b'{"red": 0.0}'])
def test_a_blob_that_holds_no_weights_is_refused(blob: bytes) -> None:
    with pytest.raises(UsageError, match="not a checkpoint of reanchor"):
        read(blob)


def test_weights_of_other_labels_are_refused() -> None:
    with pytest.raises(UsageError, match="the weights are of the labels red"):
        deploy(review_world(), None, b'{"red": 1.5}', Config())
