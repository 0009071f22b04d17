"""Another model in the task model's place: what stays as it is, and what a run leaves for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rl.test_stimulus import Lines, small
from whet.engine.assemble import TransferModel
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.engine.transfer import check_enough, compare_sides, limits_left
from whet.environments.environment import Environment, Generation
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import BudgetExceeded
from whet.methods.dsp import Hinted, with_hints
from whet.prompt import Prompt
from whet.run import Budget, MemoryRun

USAGE = {
    "calls": {"task": 30, "optimizer": 4, "judge": 0},
    "cached": {"task": 6, "optimizer": 0, "judge": 0},
    "input_tokens": 900,
    "output_tokens": 100,
    "cost_usd": 0.25,
}


def other(env: Environment, scores: bool = False) -> TransferModel:
    return TransferModel(ModelClient(env.model, AdaptiveLimiter(4)), Generation(0.5, 7), scores)


async def test_hints_go_with_their_inputs_to_another_model() -> None:
    home = small(lambda request: "no").env
    elsewhere = small(lambda request: "yes" if "Hint: seen" in request.messages[-1].content else "no").env
    system = with_hints(home, Lines(lambda conversation: "seen"))
    moved = other(elsewhere).answers(system)
    assert isinstance(moved, Hinted) and moved.adviser is system.adviser
    assert moved.generation == Generation(0.5, 7) and moved.train == home.train
    (score,) = await moved.score(MemoryRun({"task": moved.model}), [Prompt.parse("so")], home.validation)
    assert score.mean == 1.0


def test_labels_are_scored_where_the_other_model_can_and_the_task_is_one_question() -> None:
    env = replace(small(lambda request: "yes").env, labels={"yes": "yes", "no": "no"})
    assert other(env, scores=True).answers(env).scores
    assert not other(env, scores=False).answers(replace(env, scores=True)).scores
    turns = other(env, scores=True).answers(multiturn(env, actor=Lines(lambda conversation: "yes")))
    assert isinstance(turns, MultiTurn) and not turns.scores


def test_rows_that_either_prompt_has_no_answer_to_are_left_out_of_the_gain() -> None:
    measured = {"usage": USAGE, "failed": 1, "score": {}}
    start = {**measured, "rewards": [0.0, 0.0, 1.0, 1.0], "unanswered": [0]}
    found = {**measured, "rewards": [1.0, 1.0, 0.0, 1.0], "unanswered": [2]}
    assert compare_sides((start, found), (0.0, 1.0), range(4))["difference"] == 0.5


def test_what_a_run_left_counts_answers_from_the_cache_and_no_time() -> None:
    rest = limits_left(Budget(50, 40, None, None, 1500, 1.0, 60.0), USAGE)
    assert rest == Budget(10, 4, None, None, 500, 0.75, None)
    assert limits_left(Budget(calls=20), USAGE) == Budget(calls=0)


@pytest.mark.parametrize(
    ("rest", "need", "said"),
    [
        (
            Budget(calls=4),
            Budget(calls=5),
            "left 4 of its calls, but the trial may take 5: give a larger budget.calls",
        ),
        (Budget(task_calls=4), Budget(calls=9, task_calls=5), "budget.task_calls"),
        (Budget(tokens=10), Budget(tokens=11), "budget.tokens"),
        (Budget(cost_usd=0.1), Budget(cost_usd=0.2), "budget.cost_usd"),
    ],
)
def test_too_little_is_said_with_the_limit_to_raise(rest: Budget, need: Budget, said: str) -> None:
    with pytest.raises(BudgetExceeded, match=said):
        check_enough(rest, need)


def test_just_enough_is_enough() -> None:
    check_enough(Budget(calls=5, cost_usd=0.2), Budget(calls=5, task_calls=5, cost_usd=0.2))
    check_enough(Budget(), Budget(calls=10**9))
