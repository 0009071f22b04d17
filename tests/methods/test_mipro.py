"""MIPRO: texts and demonstrations are chosen together; a surrogate that knows what a minibatch is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.methods.codes import DEMONSTRATIONS_ALONE, START, codes_world, shown_rows, writing

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.mipro import Config, check, mipro, wanted_trials
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.surrogate import Observed, suggest
from whet.testing.paired_benchmark import T_95, KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, ConstantReward

CONFORMANCE = {"trials": 4, "minibatch": 8, "instructions": 3, "sets": 3, "full": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"trials": 2, "minibatch": 1, "instructions": 2, "sets": 2, "full": 1, "choice": "random"}
"""Settings of a run that is killed at every boundary."""

pytest.importorskip("optuna", reason="mipro needs optuna: pip install 'whet[mipro]'")

SMALL: dict[str, Any] = {"instructions": 4, "sets": 4, "trials": 8, "minibatch": 20, "full": 3}
LIMITS = Budget(task_calls=2500)


async def search(
    env: Environment | None = None, start: Prompt = START, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or codes_world(0, False).env, writing(0)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**(SMALL | settings))
    return await mipro(run, env, LanguagePolicy(), start, config), model, run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_texts_are_grounded_in_a_summary_demonstrations_and_tips() -> None:
    _, model, _ = await search(instructions=7)
    summary, *proposals = model.questions
    assert summary.count("Input: ") == 10
    assert len(proposals) == 6 and len({q.rpartition("Do not copy the inputs.")[2] for q in proposals}) == 6
    assert all("Questions with a digit as the answer." in q for q in proposals)
    assert all(shown_rows(q) for q in proposals)
    assert all(f"<INSTRUCTION>\n{START.region_text('instructions')}\n</INSTRUCTION>" in q for q in proposals)


async def test_combinations_of_texts_and_sets_are_tried_each_once() -> None:
    _, _, run = await search(trials=12)
    prompts = [c["messages"][0][1] for c in logged(run, "candidate")]
    assert len(prompts) == len(set(prompts)) == 12
    texts = {Prompt.parse(p).region_text("instructions") for p in prompts}
    sets = {Prompt.parse(p).region_text("demonstrations") for p in prompts}
    assert len(texts) > 2 and len(sets) > 2


async def test_the_number_of_trials_is_that_of_the_settings_also_with_many_rows() -> None:
    """DSPy issue 9068: one trial only with 376 and 138 rows."""
    assert wanted_trials(6, 1, True) == 11
    assert wanted_trials(6, 1, False) == 9
    env = codes_world(0, False).env
    env = replace(env, train=env.train * 3, validation=env.validation * 3)
    _, _, run = await search(env, trials=9)
    assert len(logged(run, "candidate")) == 9


async def test_a_combination_that_comes_again_is_observed_on_rows_that_it_has_not_seen() -> None:
    """The same answer from the cache is no second evidence."""
    env = codes_world(0, False).env
    model = Answers(lambda q, s: "1")
    limits = Budget(task_calls=1000)
    await search(
        replace(env, model=model), limits=limits, instructions=1, sets=1, k=0, trials=3, minibatch=10
    )
    train = {row.user_text for row in env.train}
    rows = [q.rpartition("Question: ")[2] for q in model.questions]
    assert len([row for row in rows if row in train]) == len({*rows} & train) == 30


async def test_with_no_demonstrations_wanted_none_are_shown() -> None:
    """DSPy issue 8508: demonstrations although 0 were asked for."""
    _, _, run = await search(k=0)
    assert not any(shown_rows(c["messages"][0][1]) for c in logged(run, "candidate"))


async def test_flat_scores_leave_the_start() -> None:
    """DSPy issue 8038."""
    best, _, _ = await search(replace(codes_world(0).env, reward=ConstantReward(0.5)))
    assert best.prompt == START


async def test_no_prompt_is_observed_on_a_row_that_a_set_shows() -> None:
    env = codes_world(0).env
    model = Answers(lambda q, s: "1")
    await search(replace(env, model=model), trials=6)
    for question in model.questions:
        head, _, row = question.rpartition("Question: ")
        assert row not in {shown for shown, _ in shown_rows(head)}


async def test_each_region_has_texts_of_its_own() -> None:
    start = Prompt.parse(
        START.source.replace("Question:", "<!-- whet:begin end -->\nGo.\n<!-- whet:end -->\nQuestion:")
    )
    _, model, run = await search(start=start)
    assert sum("<INSTRUCTION>\nGo.\n" in q for q in model.questions) == 3
    prompts = [Prompt.parse(c["messages"][0][1]) for c in logged(run, "candidate")]
    assert len({p.region_text("end") for p in prompts}) > 1
    assert len({p.region_text("instructions") for p in prompts}) > 1


async def test_a_prompt_with_demonstrations_alone_gets_demonstrations_alone() -> None:
    for start in (DEMONSTRATIONS_ALONE, START.with_focus("demonstrations")):
        best, model, run = await search(start=start)
        assert model.questions == [] and len(logged(run, "candidate")) > 2
        assert len(shown_rows(best.prompt.text)) > 1
        assert best.prompt.restore("demonstrations", start) == start


@pytest.mark.parametrize("most", [100, 300, 1000])
async def test_a_limit_is_kept_and_used(most: int) -> None:
    _, _, run = await search(limits=Budget(task_calls=most), **vars(Config()))
    assert 0.4 * most <= run.spent["task"] <= most
    assert len(logged(run, "validated")) >= 2


def test_a_few_rows_do_not_make_a_winner() -> None:
    """DSPy feeds minibatches and full evaluations to the surrogate as equally precise."""
    lucky = Observed({"a": 0}, dict.fromkeys("abcde", 1.0))
    solid = Observed({"a": 1}, {str(n): float(n < 80) for n in range(100)})
    assert lucky.mean(0.5, 35) < solid.mean(0.5, 35)


def test_the_surrogate_repeats_itself_and_never_a_combination() -> None:
    sizes = {"a": 3, "b": 2}
    seen: list[Observed] = []
    for number in range(6):
        choices = suggest(sizes, seen, 10, seed=number)
        assert choices == suggest(sizes, seen, 10, seed=number)
        assert choices not in [one.choices for one in seen] or number > 4
        seen.append(Observed(choices, {"row": float(choices["a"] == 2)}))


def test_without_optuna_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "optuna" else find_spec(name)
    )
    with pytest.raises(UsageError, match=r"pip install 'whet\[mipro\]'"):
        check(codes_world(0).env, Config())
    check(codes_world(0).env, Config(choice="random"))


# Contests.

WIDE: dict[str, Any] = {"instructions": 10, "sets": 10, "trials": 20, "minibatch": 40}
SEEDS = range(12)


def world(seed: int) -> KnownWorld:
    return replace(codes_world(seed, False), optimizer=writing(seed, 0.5, 4))


@cache
def whole(seed: int) -> float:
    """What the method is worth with all its mechanisms."""
    return play_world("mipro", world(seed), seed, LIMITS, WIDE)


def low(others: Sequence[float]) -> float:
    """The lower end of the interval of what the method is worth above others, by seed."""
    pairs = [whole(seed) - other for seed, other in zip(SEEDS, others, strict=True)]
    half: float = T_95[len(pairs)] * stdev(pairs) / len(pairs) ** 0.5
    return fmean(pairs) - half


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param("mipro", {**WIDE, "choice": "random"}, id="random combinations", marks=pytest.mark.long),
        pytest.param("mipro", {**WIDE, "k": 0}, id="instructions alone", marks=pytest.mark.long),
        pytest.param("bootstrap", {}, id="demonstrations alone"),
        pytest.param("random_search", {}, id="random search", marks=pytest.mark.long),
    ],
)
def test_with_its_mechanism_switched_off_it_loses(method: str, settings: dict[str, Any]) -> None:
    assert low([play_world(method, world(seed), seed, LIMITS, settings) for seed in SEEDS]) > 0
