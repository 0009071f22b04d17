"""SkillOpt-Sleep: distinct answers to each row, contrast, recall, the gate, abstaining; the contests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.rule_worlds import LAST_WORD, GroupWriter, RuleWriter, many_codes, optimized, poisoned

from whet.methods.skillopt_sleep import (
    CONTRASTS,
    FAILURES,
    Config,
    contrasts,
    held_size,
    leaks,
    skillopt_sleep,
)
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.lessons import HEAD
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Message, Request, Rollout

CONFORMANCE = {"nights": 3, "rows": 12, "rollouts": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"nights": 2, "rows": 4, "rollouts": 2}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def operations(*texts: str) -> str:
    return f"<OPERATIONS>{json.dumps([{'op': 'add', 'text': text} for text in texts])}</OPERATIONS>"


def search(
    answer: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"nights": 3, "rows": 12, "rollouts": 1, **settings})
    return asyncio.run(skillopt_sleep(run, env, LanguagePolicy(), START, config)), model, run


def warm_requests(**settings: Any) -> list[Request]:
    """What the task model was asked above temperature 0 in a run over 48 different rows."""
    world = many_codes(0, 12, ops, base=GroupWriter)
    run = MeteredRun({"task": world.env.model, "optimizer": Answers(lambda q, s: operations("Guess."))})
    config = Config(**{"rows": 12, **settings})
    asyncio.run(skillopt_sleep(run, world.env, LanguagePolicy(), world.start, config))
    return [request for request in world.env.model.requests if request.temperature > 0]  # type: ignore[attr-defined]


def row_of(request: Request) -> str:
    """The input in a request."""
    return request.messages[-1].content.rpartition("Question: ")[2]


def nights(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "night"]


def test_the_answers_to_a_row_are_distinct_samples() -> None:
    """In the published code several answers were one cached sample for a time, so that no row had a spread."""
    asked: dict[str, set[int]] = {}
    for request in warm_requests(nights=1, rollouts=5):
        asked.setdefault(row_of(request), set()).add(request.sample)
    assert len(asked) == 8 and all(len(samples) == 5 for samples in asked.values())


def test_samples_of_two_nights_differ_too() -> None:
    drawn = [request.sample for request in warm_requests(rollouts=3, nights=2)]
    assert set(drawn) == {0, 1, 2, 3, 4, 5}


def test_rows_with_the_largest_spread_come_first_and_those_without_one_are_left_out() -> None:
    rows = review_world().train[:3]
    rewards = [(0.2, 0.6, 0.4), (0.5, 0.5, 0.5), (1.0, 0.0, 0.5)]
    groups = [
        [Rollout("p", row.id, f"answer {reward}", reward) for reward in three]
        for row, three in zip(rows, rewards, strict=True)
    ]
    shown = contrasts(rows, groups, 6)
    assert len(shown) == 2 and rows[2].user_text in shown[0] and rows[0].user_text in shown[1]
    assert shown[1].index("answer 0.6") < shown[1].index("answer 0.2") and "answer 0.4" not in shown[1]
    assert len(contrasts(rows, groups, 1)) == 1


def test_one_answer_teaches_by_failures_and_several_by_their_contrast() -> None:
    _, model, _ = search(lambda q, s: operations("Guess."))
    assert model.questions and all(FAILURES in q for q in model.questions)
    world = many_codes(0, 6, ops, base=GroupWriter)
    for samples, heading in (("distinct", CONTRASTS), ("same", FAILURES)):
        writer = Answers(lambda q, s: operations("Guess."))
        run = MeteredRun({"task": world.env.model, "optimizer": writer})
        config = Config(nights=1, rows=12, rollouts=5, samples=samples)  # type: ignore[arg-type]
        asyncio.run(skillopt_sleep(run, world.env, LanguagePolicy(), world.start, config))
        assert writer.questions and all(heading in q for q in writer.questions)


def test_rules_are_adopted_where_held_rows_earn_more_and_rejected_elsewhere() -> None:
    best, _, run = search(lambda q, s: operations("Mind the tone."))
    assert "adopted" in [one["verdict"] for one in nights(run)]
    assert best.prompt.region_text().strip().endswith(f"{HEAD}\n- Mind the tone.")
    best, model, run = search(lambda q, s: operations("Guess."))
    assert {one["verdict"] for one in nights(run)} == {"rejected"} and best.prompt == START
    assert not any("[L1]" in q for q in model.questions)
    _, model, run = search(lambda q, s: operations("Guess."), gate="off")
    assert nights(run)[0]["verdict"] == "adopted" and "[L1] Guess." in model.questions[-1]


def test_no_more_edits_than_allowed_are_made_in_a_night() -> None:
    _, _, run = search(lambda q, s: operations(*(f"Rule {s} {i}." for i in range(9))), gate="off", edits=2)
    assert [one["rules"] for one in nights(run)] == [2, 4, 6]


def test_a_night_whose_held_rows_were_taught_changes_nothing() -> None:
    env = review_world()
    twins = tuple(replace(row, id=f"{row.id}-twin") for row in env.train[:12])
    _, model, run = search(
        lambda q, s: operations("Mind the tone."), replace(env, train=env.train[:12] + twins)
    )
    assert [one["verdict"] for one in nights(run)][1] == "unverified"
    assert len(model.questions) == 1
    assert leaks(twins[:1], env.train[:1]) and not leaks(twins[:1], env.train[1:2])


def test_recalled_rows_are_earlier_teaching_rows_and_never_held_ones() -> None:
    rows = warm_requests(rollouts=2, recall=4, nights=3)
    by_night = [{row_of(r) for r in rows if r.sample // 2 == night} for night in range(3)]
    new = 12 - held_size(12)
    assert [len(one) for one in by_night] == [new, new + 4, new + 4]
    assert len(by_night[1] & by_night[0]) == 4 and len(by_night[2] & (by_night[0] | by_night[1])) == 4
    taught = {name for night in by_night for name in night}
    assert len(taught) == 3 * new, "held rows never teach"


@pytest.mark.parametrize("most", [150, 300])
def test_small_budgets_buy_fewer_nights(most: int) -> None:
    limits = Budget(task_calls=most, optimizer_calls=15)
    env = review_world(train=80, validation=20)
    _, _, run = search(lambda q, s: operations("Guess."), env, limits, **vars(Config()))
    assert 1 <= len(nights(run)) < 4 and run.spent["task"] <= most


def test_through_the_public_face(tmp_path: Path) -> None:
    text = optimized(tmp_path, "skillopt_sleep", lambda question: operations(LAST_WORD), rollouts="1")
    assert f"- {LAST_WORD}" in text


# The contests: answers that are right now and then, from a writer that sees only which; a writer whose rules help or harm.

SEEDS, LIMITS = 12, Budget(task_calls=1500)


def ops(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """Phrases as rules to add."""
    return operations(*phrases)


def played(world: KnownWorld, seed: int, settings: dict[str, Any]) -> tuple[float, float]:
    """What the result is worth, and the rules after the worst night, by the law of the world."""
    run = MeteredRun({"task": world.env.model, "optimizer": world.optimizer}, seed, limits=LIMITS)
    best = asyncio.run(skillopt_sleep(run, world.env, LanguagePolicy(), world.start, Config(**settings)))
    adopted: list[Any] = [v for name, v in run.logged if name == "candidate" and v["operator"][:5] == "night"]  # type: ignore[index, call-overload]
    prompts = [Prompt(tuple(Message(*m) for m in one["messages"])) for one in adopted]
    return world.worth(best.prompt), min([world.worth(p) for p in prompts], default=world.worth(world.start))


@cache
def codes(seeds: int = SEEDS, **settings: Any) -> list[float]:
    """24 facts, of which the model knows 15 % by chance; the writer sees which answers were right and not what was wanted."""
    worlds = [many_codes(seed, 24, ops, base=GroupWriter) for seed in range(seeds)]
    return [played(world, seed, settings)[0] for seed, world in enumerate(worlds)]


@cache
def poisoned_runs(**settings: Any) -> list[tuple[float, float]]:
    """A writer half of whose rules do harm: the worth of the result and of the worst night."""
    worlds = [poisoned(seed, ops, right="0.5") for seed in range(SEEDS)]
    return [played(world, seed, {"rollouts": 1, **settings}) for seed, world in enumerate(worlds)]


def poison(which: int, **settings: Any) -> list[float]:
    """Of these runs, the result (0) or the worst night (1)."""
    return [worths[which] for worths in poisoned_runs(**settings)]


@on_seeds(5, SEEDS)
def test_several_distinct_answers_beat_one_and_one_that_is_repeated(seeds: int) -> None:
    several, one = codes(seeds), codes(seeds, rollouts=1)
    print(f"\nfive distinct answers {fmean(several):.3f}")
    assert codes(seeds, samples="same") == one, "one answer again and again is one answer"
    assert won_over("one answer", several, one).low > 0.3


def test_with_the_gate_the_worst_night_is_better() -> None:
    print(f"\nwith the gate: result {fmean(poison(0)):.3f}, worst night {fmean(poison(1)):.3f}")
    assert won_over("result, gate off", poison(0), poison(0, gate="off")).low > 0
    assert won_over("worst night, gate off", poison(1), poison(1, gate="off")).low > 0.05


@pytest.mark.long
def test_held_rows_of_earlier_nights_pay() -> None:
    assert won_over("result, held rows of the day alone", poison(0), poison(0, growing=False)).low > 0
    won_over("worst night, held rows of the day alone", poison(1), poison(1, growing=False))


@pytest.mark.long
def test_no_benefit_of_recall_is_shown() -> None:
    assert won_over("10 rows recalled", codes(), codes(recall=10)).high > 0
    assert (
        won_over("10 random rows recalled", codes(recall=10), codes(recall=10, recalled="random")).low < 0.05
    )
    won_over("gate off, where no rule harms", codes(), codes(gate="off"))


@pytest.mark.long
@pytest.mark.parametrize("seeds", [SEEDS])
def test_it_beats_random_search(seeds: int) -> None:
    there = [play_world("random_search", many_codes(seed, 24, ops), seed, LIMITS) for seed in range(seeds)]
    assert won_over("random_search, facts", codes(seeds), there).low > 0.3


@pytest.mark.long
def test_where_rules_harm_no_benefit_over_random_search_is_shown() -> None:
    edited = [
        play_world("random_search", poisoned(seed, ops), seed, LIMITS, {"edits": 16}) for seed in range(SEEDS)
    ]
    assert won_over("random_search, harmful rules", poison(0), edited).low < 0
