"""Baseline and best on the sealed rows: the order of the calls, what is asked again, what does not count."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.world import Model, close, open_core, run_of
from whet.engine.pairs import decide_jointly, decide_pairs, evaluate_pairs, example_clusters, summary
from whet.environments.environment import Environment
from whet.errors import ProviderError
from whet.prompt import Prompt
from whet.rewards import Objectives, RewardFailed
from whet.rewards.objectives import OUTPUT_TOKENS, Objective
from whet.rewards.text import ExactMatch
from whet.run import Budget
from whet.stats import decide
from whet.stats.joint import Goal
from whet.types import Completion, Example, Request, Rollout, mean_score

PROMPTS = Prompt.parse("Old."), Prompt.parse("New.")
REWARD = ExactMatch()


def world(model: Model) -> Environment:
    return Environment(model, REWARD, (), ())


def rows(n: int) -> list[Example]:
    return [Example(f"r{i}", {"input": f"row {i}"}, f"echo: row {i}", text=f"row {i}") for i in range(n)]


def order(requests: list[Request]) -> list[tuple[str, str]]:
    return [(r.messages[0].content, r.messages[1].content) for r in requests]


async def test_both_prompts_take_turns_and_every_second_pair_begins_with_the_other(tmp_path: Path) -> None:
    requests: list[Request] = []

    def behave(number: int, request: Request) -> str:
        requests.append(request)
        return f"echo: {request.messages[-1].content}"

    env = world(Model(behave))
    core = open_core(tmp_path, env.model, concurrency=1)  # type: ignore[arg-type]
    sides = (env, PROMPTS[0]), (env, PROMPTS[1])
    before, after = await evaluate_pairs(run_of(core), sides, rows(4))
    assert order(requests) == [
        (prompt, f"row {i}") for i in range(4) for prompt in (("Old.", "New."), ("New.", "Old."))[i % 2]
    ]
    assert [r.example_id for r in before] == [r.example_id for r in after] == ["r0", "r1", "r2", "r3"]
    assert {r.prompt_id for r in before} == {PROMPTS[0].id}
    assert all(r.reward == 1 for r in (*before, *after))
    await close(core)


async def test_what_the_provider_refuses_is_asked_for_once_and_nothing_is_paid_twice(
    tmp_path: Path,
) -> None:
    seen: dict[tuple[str, str], int] = {}

    def behave(number: int, request: Request) -> str:
        key = order([request])[0]
        seen[key] = seen.get(key, 0) + 1
        if key in (("Old.", "row 1"), ("New.", "row 2")):
            raise ProviderError("HTTP 400", status=400)
        return f"echo: {request.messages[-1].content}"

    env = world(Model(behave))
    # A request that is refused before the first answer may be the model's fault, and is tried again.
    core = open_core(tmp_path, env.model, concurrency=1)  # type: ignore[arg-type]
    sides = (env, PROMPTS[0]), (env, PROMPTS[1])
    before, after = await evaluate_pairs(run_of(core), sides, rows(4))
    assert [not r.answered for r in before] == [False, True, False, False]
    assert [not r.answered for r in after] == [False, False, True, False]
    assert seen == {(p, f"row {i}"): 1 for p in ("Old.", "New.") for i in range(4)}
    await close(core)
    calls, again = sum(seen.values()), open_core(tmp_path, env.model)  # type: ignore[arg-type]
    assert await evaluate_pairs(run_of(again), sides, rows(4)) == (before, after)
    assert sum(seen.values()) == calls, "a second session pays for nothing that was recorded"
    await close(again)


async def test_what_the_budget_cannot_pay_is_no_answer(tmp_path: Path) -> None:
    model = Model()
    env = world(model)
    core = open_core(tmp_path, model, Budget(calls=199), concurrency=1)
    sides = (env, PROMPTS[0]), (env, PROMPTS[1])
    before, after = await evaluate_pairs(run_of(core), sides, rows(100))
    assert sum(not r.answered for r in (*before, *after)) == 1
    assert model.calls == 199
    await close(core)


def answers(n: int, missing: int, error: str = "provider: HTTP 503") -> tuple[list[Rollout], list[Rollout]]:
    """The candidate is right everywhere and the baseline nowhere; of some rows the baseline has no answer."""
    before = [Rollout("a", f"r{i}", "", 0.0, error=error if i < missing else None) for i in range(n)]
    return before, [Rollout("b", f"r{i}", "x", 1.0) for i in range(n)]


def test_a_verdict_on_missing_answers_is_given_where_the_worst_case_does_not_change_it() -> None:
    few = decide_pairs(answers(100, 20), REWARD, range(100))
    assert few.promoted and not few.withheld
    assert (few.n, few.wins, few.missing, few.difference) == (80, 80, 20, 1.0)
    assert few.p_value == decide([1.0] * 20 + [0.0] * 80, [1.0] * 100, 0, 1).p_value, (
        "each missing row at its worst"
    )
    assert "20 of 100 pairs have no answer" in few.reason and few.low < 0.8 < few.high
    before, after = answers(100, 30)
    after = [replace(r, reward=float(i < 34)) for i, r in enumerate(after)]
    open_ = decide_pairs((before, after), REWARD, range(100))
    assert (open_.promoted, open_.withheld, open_.n, open_.missing) == (False, True, 70, 30)
    assert open_.reason.startswith("Not promoted: no verdict. 30 of 100 pairs have no answer")
    worse = decide_pairs((after, before), REWARD, range(100))
    assert not worse.promoted and not worse.withheld, "no answer that is missing could promote it"
    none = decide_pairs(answers(10, 10), REWARD, range(10))
    assert (none.promoted, none.withheld, none.n, none.difference) == (False, True, 0, 0.0)


@pytest.mark.parametrize("error", ["model: refused: no", "model: empty answer", "parse: no label"])
def test_what_the_model_answered_is_an_answer_with_the_lowest_reward(error: str) -> None:
    """3 of 90 refused, .43 to .965: the refusals count for both prompts alike, and block nothing."""
    before = [Rollout("a", f"r{i}", "x", float(i % 100 < 43)) for i in range(90)]
    after = [Rollout("b", f"r{i}", "x", 1.0) for i in range(90)]
    for side in (before, after):
        side[:3] = [replace(r, output="", reward=0.0, error=error) for r in side[:3]]
    verdict = decide_pairs((before, after), REWARD, range(90))
    assert verdict.promoted and (verdict.n, verdict.missing, verdict.losses) == (90, 0, 0)


def test_a_mean_is_that_of_the_answered_rows_and_says_of_how_many() -> None:
    before, _ = answers(10, 4)
    assert summary(before, 0, 1, rows(10)) | {"low": 0, "high": 0} == {
        "mean": 0.0,
        "low": 0,
        "high": 0,
        "n": 6,
        "method": "Wilson",
        "answered": 6,
        "of": 10,
    }
    assert summary(before[:4], 0, 1, rows(10))["mean"] is None
    assert mean_score([*before[:4], Rollout("a", "x", "x", 1.0)]).mean == 1.0


def test_the_first_verdict_after_any_number_of_withheld_ones_promotes_an_equal_prompt_as_rarely_as_it_should() -> (
    None
):
    """Every run loses the answers of 10 rows of 60 and is repeated, with another candidate, until there is a verdict."""
    chance, promoted, alpha = random.Random(5), 0, 0.1
    for _ in range(60):
        baseline = [float(chance.random() < 0.5) for _ in range(60)]
        while True:
            candidate = [float(chance.random() < 0.5) for _ in range(60)]
            sides = [
                [Rollout(name, f"r{i}", "x", r) for i, r in enumerate(side)]
                for name, side in (("a", baseline), ("b", candidate))
            ]
            sides[1][:10] = [replace(r, error="provider: HTTP 503") for r in sides[1][:10]]
            verdict = decide_pairs((sides[0], sides[1]), REWARD, range(60), alpha)
            if not verdict.withheld:
                break
        promoted += verdict.promoted
    assert promoted <= 60 * alpha / 2


def test_rows_that_the_provider_refuses_to_the_candidate_alone_count_against_it() -> None:
    """A content filter refuses 20 of 1,000 requests of the candidate, which repairs 20 others: no better, and was promoted."""
    before = [Rollout("a", f"r{i}", "x", float(i >= 20)) for i in range(1000)]
    refused = [Rollout("b", f"r{i}", "", 0.0, error="provider: HTTP 400") for i in range(980, 1000)]
    after = [Rollout("b", f"r{i}", "x", 1.0) for i in range(980)] + refused
    verdict = decide_pairs((before, after), REWARD, range(1000))
    assert not verdict.promoted and (verdict.n, verdict.wins, verdict.missing) == (980, 20, 20)
    assert verdict.low < 0 < verdict.high, "at worst the refused rows are lost, and outweigh the others"


@pytest.mark.parametrize("parts", [{}, {"right": 0.0, "length": 0.0}])
def test_objectives_hold_a_refused_row_against_the_candidate_which_is_not_short_for_that(
    parts: dict[str, float],
) -> None:
    items = Objective(Goal("right", True, 1.0), part=0), Objective(Goal("length", False), OUTPUT_TOKENS)
    reward = Objectives([(1.0, REWARD)], items=items)
    before, after = (
        [Rollout(name, f"r{i}", "x", right(i), {"right": right(i), "length": 20.0}) for i in range(1000)]
        for name, right in (("a", lambda i: float(i >= 20)), ("b", lambda i: 1.0))
    )
    after[980:] = [
        replace(r, output="", reward=0.0, parts=parts, error="provider: HTTP 400") for r in after[980:]
    ]
    verdict = decide_jointly((before, after), reward, range(1000))
    assert verdict is not None and not verdict.promoted
    right, length = verdict.objectives.values()
    assert right.low < 0 < right.high and right.verdict == "not worse"
    assert length.difference == 0.0, "a refused row is not short for that"


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_an_outage_of_the_baselines_calls_promotes_nothing(share: float) -> None:
    """Two prompts that are alike: before, 20% of failed calls on one side promoted a quarter of them."""
    failed = int(100 * share)
    right = [Rollout("a", f"r{i}", "x", float(i % 2)) for i in range(100)]
    lost = [Rollout("a", f"r{i}", "", 0.0, error="provider: HTTP 503") for i in range(failed)]
    assert not decide_pairs((lost + right[failed:], right), REWARD, range(100)).promoted


def test_equal_requests_and_groups_are_clusters() -> None:
    sides = (world(Model()), PROMPTS[0]), (world(Model()), PROMPTS[1])
    twice = [*rows(3), *(Example(f"again {e.id}", e.values, "other", text=e.text) for e in rows(3))]
    assert example_clusters(sides, twice) == [0, 1, 2, 0, 1, 2]


async def test_a_judge_that_its_provider_fails_is_no_evidence(tmp_path: Path) -> None:
    class Failing(ExactMatch):
        async def grade(self, run: object, example: Example, completion: Completion) -> object:
            raise RewardFailed("provider: HTTP 503")

    model = Model()
    core = open_core(tmp_path, model)
    env = Environment(model, Failing(), (), ())  # type: ignore[arg-type]
    rollouts = await env.evaluate(run_of(core), PROMPTS[0], rows(1))
    assert rollouts[0].error == "provider: HTTP 503"
    assert not rollouts[0].answered
    await close(core)
