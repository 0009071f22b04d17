"""Baseline and best on the sealed rows: the order of the calls, what is asked again, what does not count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.world import Model, close, open_core, run_of
from whet.engine.pairs import decide_jointly, decide_pairs, evaluate_pairs, example_clusters
from whet.environments.environment import Environment
from whet.errors import ProviderError
from whet.prompt import Prompt
from whet.rewards import Objectives, RewardFailed
from whet.rewards.objectives import OUTPUT_TOKENS, Objective
from whet.rewards.text import ExactMatch
from whet.run import Budget
from whet.stats.joint import Goal
from whet.types import Completion, Example, Request, Rollout

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


async def test_what_the_provider_refuses_is_asked_for_once_more_and_nothing_is_paid_twice(
    tmp_path: Path,
) -> None:
    seen: dict[tuple[str, str], int] = {}

    def behave(number: int, request: Request) -> str:
        key = order([request])[0]
        seen[key] = seen.get(key, 0) + 1
        if (key == ("Old.", "row 1") and seen[key] == 1) or key == ("New.", "row 2"):
            raise ProviderError("HTTP 400", status=400)
        return f"echo: {request.messages[-1].content}"

    env = world(Model(behave))
    core = open_core(tmp_path, env.model)  # type: ignore[arg-type]
    sides = (env, PROMPTS[0]), (env, PROMPTS[1])
    before, after = await evaluate_pairs(run_of(core), sides, rows(4))
    assert [not r.answered for r in before] == [False] * 4
    assert [not r.answered for r in after] == [False, False, True, False]
    assert seen == {(p, f"row {i}"): 1 for p in ("Old.", "New.") for i in range(4)} | {
        ("Old.", "row 1"): 2,
        ("New.", "row 2"): 2,
    }
    await close(core)
    calls, again = sum(seen.values()), open_core(tmp_path, env.model)  # type: ignore[arg-type]
    assert await evaluate_pairs(run_of(again), sides, rows(4)) == (before, after)
    assert sum(seen.values()) == calls, "a second session pays for nothing that was recorded"
    await close(again)


async def test_what_the_budget_cannot_pay_is_no_answer(tmp_path: Path) -> None:
    model = Model()
    env = world(model)
    core = open_core(tmp_path, model, Budget(calls=39), concurrency=1)
    sides = (env, PROMPTS[0]), (env, PROMPTS[1])
    before, after = await evaluate_pairs(run_of(core), sides, rows(20))
    assert sum(not r.answered for r in (*before, *after)) == 1
    assert model.calls == 39
    await close(core)


def answers(n: int, missing: int, error: str = "provider: HTTP 503") -> tuple[list[Rollout], list[Rollout]]:
    """The candidate is right everywhere and the baseline nowhere; of some rows the baseline has no answer."""
    before = [Rollout("a", f"r{i}", "", 0.0, error=error if i < missing else None) for i in range(n)]
    return before, [Rollout("b", f"r{i}", "x", 1.0) for i in range(n)]


def test_pairs_without_an_answer_do_not_count_and_above_two_percent_there_is_no_verdict() -> None:
    few = decide_pairs(answers(100, 2), REWARD, range(100))
    assert few.promoted
    assert (few.n, few.wins) == (98, 98)
    many = decide_pairs(answers(100, 3), REWARD, range(100))
    assert not many.promoted
    assert many.reason.startswith("Not promoted: no verdict. 3 of 100 pairs have no answer")
    assert "Make a new run" in many.reason
    none = decide_pairs(answers(10, 10), REWARD, range(10))
    assert not none.promoted
    parsed = decide_pairs(answers(100, 30, "parse: no label"), REWARD, range(100))
    assert (parsed.n, parsed.promoted) == (100, True), "an answer that cannot be read is an answer"


def test_rows_that_the_provider_refuses_to_the_candidate_alone_count_against_it() -> None:
    """A content filter refuses 20 of 1,000 requests of the candidate, which repairs 20 others: no better, and was promoted."""
    before = [Rollout("a", f"r{i}", "x", float(i >= 20)) for i in range(1000)]
    refused = [Rollout("b", f"r{i}", "", 0.0, error="provider: HTTP 400") for i in range(980, 1000)]
    after = [Rollout("b", f"r{i}", "x", 1.0) for i in range(980)] + refused
    verdict = decide_pairs((before, after), REWARD, range(1000))
    assert not verdict.promoted and (verdict.n, verdict.wins, verdict.losses) == (1000, 20, 20)
    assert verdict.difference == 0


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
    assert [one.difference for one in verdict.objectives.values()] == [0.0, 0.0]


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_an_outage_of_the_baselines_calls_promotes_nothing(share: float) -> None:
    """Two prompts that are alike: before, 20 % of failed calls on one side promoted a quarter of them."""
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
