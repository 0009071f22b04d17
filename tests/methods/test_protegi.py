"""ProTeGi: errors lead to criticism, criticism to edits, a bandit selects, parents stay in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
from tests.methods.readers import TOPICS, Blinded, ErrorReader, TopicModel, letters, with_other_inputs

from whet.environments.environment import Environment
from whet.methods.protegi import CRITICISED, Config, protegi, within
from whet.models.scripted import chance, load
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.bandits import Rule
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world
from whet.types import Completion, Example, Reward

CONFORMANCE = {"rounds": 2, "beam": 2, "minibatch": 12, "gradients": 2, "successors": 4, "budget": 80}
"""Settings of a run in the conformance suite."""
SWEEP = {
    "rounds": 1,
    "beam": 1,
    "gradients": 1,
    "paraphrases": 1,
    "successors": 2,
    "budget": 8,
    "minibatch": 3,
}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
SMALL: dict[str, Any] = {
    "rounds": 2,
    "beam": 2,
    "minibatch": 20,
    "gradients": 2,
    "successors": 4,
    "budget": 200,
}


def editor(question: str, sample: int) -> str:
    """Criticises, edits and paraphrases in words that tell which of the three it was."""
    if "<REASON>" in question:
        return f"<REASON>It is too vague ({sample}).</REASON>"
    kind = "Edited" if "too vague" in question else "Restated"
    return f"<PROMPT>{kind} {sample}.</PROMPT>"


async def search(
    answer: Callable[[str, int], str] = editor, env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    return await protegi(run, env, LanguagePolicy(), START, Config(**settings)), model, run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def test_errors_are_criticised_and_the_criticism_is_edited_in() -> None:
    _, model, _ = await search(**SMALL, errors=3)
    critics = [q for q in model.questions if "<REASON>" in q]
    assert critics
    assert all(
        1 <= q.count("\nAnswered: ") <= 3 and "Reward: 0" in q and "Reward: 1" not in q for q in critics
    )
    edits = [q for q in model.questions if CRITICISED in q]
    assert len(edits) == len(critics)
    assert all("It is too vague" in q for q in edits)
    assert len({q for q in critics}) > 1


async def test_critiques_of_the_reward_reach_the_critic() -> None:
    class Critical(ExactMatch):
        async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
            return Reward(0.0, critique=f"Row {example.id} needs more warmth.")

    _, model, _ = await search(env=replace(review_world(), reward=Critical()), **SMALL)
    assert all("needs more warmth." in q for q in model.questions if "<REASON>" in q)


async def test_a_minibatch_without_errors_leads_to_paraphrases_only() -> None:
    best, model, run = await search(env=replace(review_world(), reward=ConstantReward(1.0)), **SMALL)
    assert best.prompt == START
    assert not any("<REASON>" in q for q in model.questions)
    assert {c["operator"] for c in logged(run, "candidate")} == {"start", "paraphrase"}


async def test_a_critic_that_says_nothing_leaves_paraphrases() -> None:
    def silent(question: str, sample: int) -> str:
        return "" if "<REASON>" in question else editor(question, sample)

    _, _, run = await search(silent, **SMALL)
    assert {c["operator"] for c in logged(run, "candidate")} == {"start", "paraphrase"}


class Lucky(ExactMatch):
    """Texts with `lucky` in them are perfect on training rows and useless elsewhere."""

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        validation = example.id.startswith("review-10")
        lucky = "lucky" in completion.text and not validation
        return Reward(float(lucky) or 0.5 * ("Honest" in completion.text))


async def test_the_result_is_chosen_on_validation_not_by_luck() -> None:
    def tempted(question: str, sample: int) -> str:
        words = ("Honest work", "lucky guess")
        return "<REASON>Bad.</REASON>" if "<REASON>" in question else f"<PROMPT>{words[sample % 2]}.</PROMPT>"

    env = replace(review_world(Answers(lambda q, s: q)), reward=Lucky(), labels={})
    best, _, run = await search(tempted, env=env, **SMALL)
    leader = max(logged(run, "candidate"), key=lambda v: -1 if v["train"] is None else v["train"])
    assert "lucky" in leader["messages"][0][1]
    assert "Honest" in best.prompt.region_text()


async def test_parents_stay_in() -> None:
    def worse(question: str, sample: int) -> str:
        return (
            "<REASON>Bad.</REASON>" if "<REASON>" in question else f"<PROMPT>Guess quick {sample}.</PROMPT>"
        )

    env = review_world(load("labels", {"words": "like", "harmful": "quick,guess", "harm": "0.2"}))
    best, _, _ = await search(worse, env=env, **{**SMALL, "rounds": 3})
    assert best.prompt == START


@pytest.mark.parametrize("rule", get_args(Rule))
async def test_every_bandit_selects_within_its_budget(rule: Rule) -> None:
    env = review_world(train=60, validation=10)
    best, _, run = await search(env=env, **{**SMALL, "bandit": rule})
    validated = len(logged(run, "validated"))
    assert run.spent["task"] <= 2 * (2 * 20 + 200) + 10 * validated
    assert best.prompt.edit(START.region_text()) == START


async def test_no_more_successors_than_asked_for() -> None:
    _, _, run = await search(**{**SMALL, "rounds": 1, "gradients": 4, "successors": 3})
    assert len(logged(run, "candidate")) == 1 + 3


async def test_no_round_repeats_the_requests_of_another() -> None:
    _, model, _ = await search(lambda q, s: "", **{**SMALL, "rounds": 3})
    assert len({(request.messages, request.sample) for request in model.requests}) == len(model.requests)


def share(rollouts: int | None, asks: int | None = None) -> SearchPlan:
    return SearchPlan(review_world(), rollouts, asks, 5, 2)


def test_the_papers_sizes_where_the_budget_pays_them() -> None:
    assert within(Config(), share(None)) == Config()
    assert within(Config(), share(6 * (4 * 64 + 2048))) == Config()


def test_sizes_shrink_with_the_budget_but_two_rounds_remain() -> None:
    for rollouts in range(2, 14_000, 37):
        small = within(Config(), share(rollouts))
        assert small.rounds * (small.beam * small.minibatch + small.budget) <= rollouts
        assert small.successors >= 1 and small.gradients >= 1 and small.beam >= 1
        if rollouts >= 40:
            assert small.rounds >= 2


def test_optimizer_calls_shrink_the_sizes_too() -> None:
    for asks in range(0, 500, 7):
        small = within(Config(), share(None, asks))
        each = 2 * small.gradients + small.paraphrases * (small.gradients + 1)
        assert small.rounds * small.beam * each <= asks


@pytest.mark.parametrize("most", [150, 200, 300])
async def test_small_budgets_buy_two_rounds_and_a_validated_newcomer(most: int) -> None:
    env = review_world(train=40, validation=20)
    _, model, run = await search(env=env, limits=Budget(task_calls=most))
    assert {request.sample // 100 for request in model.requests} >= {0, 1}
    assert len(logged(run, "validated")) >= 2
    assert 0.6 * most < run.spent["task"] <= most


# The contest: a critic that reads the failed inputs wins by them, and by nothing else.

SORT = Prompt.parse("You sort letters.\n<!-- whet:begin -->\nSay yes or no.\n<!-- whet:end -->\n{{input}}")
SEEDS, CALLS = range(6), Budget(task_calls=2500)
Change = Callable[[str], str]
AS_THEY_ARE: Change = str
ALWAYS_THE_SAME = with_other_inputs(lambda line: 0)
OF_ANY_ROW = with_other_inputs(lambda line: int(chance(line, "other") * TOPICS))


def topics(seed: int, change: Change) -> KnownWorld:
    """Four of twelve topics fail until the prompt holds their phrase; of 24 phrases, which random search knows as well."""
    model = TopicModel("topics", {"seed": str(seed)})
    reader: Any = Blinded(ErrorReader("reader", {"seed": str(seed)}), change)
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    return KnownWorld(env, SORT, lambda p: model.accuracy(p.source), reader)


@cache
def reached(method: str, change: Change = AS_THEY_ARE) -> list[float]:
    """What a method finds in the world of each seed; random search edits as often as the beam has rounds for."""
    settings = {"edits": 16} if method == "random_search" else None
    return [play_world(method, topics(seed, change), seed, CALLS, settings) for seed in SEEDS]


def test_a_critic_that_reads_the_errors_beats_random_search() -> None:
    won = paired_difference(reached("protegi"), reached("random_search"))
    assert won.low > 0.05, won


@pytest.mark.long
def test_with_errors_that_are_always_the_same_it_loses_to_random_search() -> None:
    lost = paired_difference(reached("protegi", ALWAYS_THE_SAME), reached("random_search"))
    assert lost.high < 0, lost


@pytest.mark.long
@pytest.mark.parametrize("change", [ALWAYS_THE_SAME, OF_ANY_ROW])
def test_with_errors_of_other_rows_it_loses_what_it_won(change: Change) -> None:
    lost = paired_difference(reached("protegi"), reached("protegi", change))
    assert lost.low > 0, lost
