"""A search spends what it may: never more, and no less than the price of one more step that its settings want."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.environments.environment import Environment
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.run import Budget, MemoryRun
from whet.search.archive import Archive, Candidate
from whet.search.plan import fit, may_be_lost, rounds_of, share_out, validate_finalists
from whet.search.stages import Stage
from whet.testing.runs import MeteredRun, RecordedRun
from whet.testing.simulated_task import Answers, review_world

START = Prompt.parse("<!-- whet:begin -->\nSort it, please.\n<!-- whet:end -->\n\n{{input}}")


def answer(question: str, sample: int) -> str:
    """Right or wrong by chance: no prompt is ever perfect."""
    return "positive" if chance("answer", question) < 0.5 else "negative"


def world(train: int = 40, validation: int = 20) -> Environment:
    return replace(review_world(train=train, validation=validation), model=Answers(answer))


async def search(run: MemoryRun, env: Environment, width: int, examples: int) -> tuple[int, Archive]:
    """A search of 1,000 rounds in which each new prompt is new: what its next step costs, 0 without rounds; and its prompts."""
    plan, archive = fit(run, env, 1000, width, examples, asks=0), Archive()
    rows = env.train[: plan.examples]
    await archive.validate(run, plan.env, [Candidate(START)])
    if env.start_answers and isinstance(run, MeteredRun):
        run.spent.clear()  # as where they are recorded
    archive.add(run, Candidate(START, score=(await env.score(run, [START], rows))[0]))
    async for number, most in rounds_of(run, plan, archive):
        made = [START.edit(f"Sort it {number}, {place}.") for place in range(most)]
        new = [prompt for prompt in made if prompt is not None]
        for prompt, score in zip(new, await env.score(run, new, rows), strict=True):
            archive.add(run, Candidate(prompt, (START.id,), "new", score))
    await validate_finalists(run, plan, archive, archive.top(3))
    return (plan.examples + len(plan.env.validation)) * bool(plan.rounds), archive


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(20, 500),
    train=st.integers(8, 60),
    validation=st.integers(5, 40),
    width=st.integers(1, 9),
    examples=st.integers(4, 20),
    recorded=st.booleans(),
)
async def test_rounds_go_on_until_another_prompt_cannot_be_paid(
    limit: int, train: int, validation: int, width: int, examples: int, recorded: bool
) -> None:
    env = replace(world(train, validation), start_answers=validation * recorded)
    run = MeteredRun({"task": env.model}, 1, limits=Budget(task_calls=limit))
    step, archive = await search(run, env, width, examples)
    left = limit - run.spent["task"]
    assert left >= 0
    assert not step or (left < step + may_be_lost(limit) and len(archive.validated) > 1)


async def test_a_resumed_search_has_the_same_rounds() -> None:
    env = world()
    run = RecordedRun({"task": env.model}, 1, limits=Budget(task_calls=300))
    _, archive = await search(run, env, 4, 8)
    again = await search(run.replay(), env, 4, 8)
    assert list(again[1].members) == list(archive.members)


async def test_without_limits_the_rounds_are_those_of_the_settings() -> None:
    env, run = world(), MemoryRun()
    plan = fit(run, env, 3, 4, 8)
    assert [each async for each in rounds_of(run, plan, Archive())] == [(0, 4), (1, 4), (2, 4)]


def test_the_start_costs_nothing_where_its_answers_are_recorded() -> None:
    env, run = world(), MemoryRun()
    run.limits = Budget(task_calls=200)
    paid, free = (share_out(run, one, 5, 3) for one in (env, replace(env, start_answers=20)))
    assert free.rollouts is not None and paid.rollouts is not None
    assert free.rollouts - paid.rollouts == len(free.env.validation) > 0


async def test_a_stage_knows_what_is_left_of_its_own_limits() -> None:
    env = world()
    run = MeteredRun({"task": env.model}, 1, limits=Budget(task_calls=30))
    first = Stage(run, Budget(task_calls=12), leads=True)
    await env.evaluate(first, START, env.train[:5])
    second = Stage(run, Budget(task_calls=40), leads=True, spent=first.spent)
    assert (await first.read_remaining()).task_calls == 7
    assert (await second.read_remaining()).task_calls == 25, "no more than the run has"
    await env.evaluate(second, START, env.train[:1])
    assert (await second.branch("later").read_remaining()).task_calls == 24


@pytest.mark.parametrize("asks", [7, 16])
async def test_rounds_leave_a_quarter_of_the_optimizer_calls_for_replies_that_fail(asks: int) -> None:
    env = world()
    run = MeteredRun({"task": env.model}, 1, limits=Budget(task_calls=2000, optimizer_calls=asks))
    plan = fit(run, env, 50, 4, 8)
    widths = []
    async for _, width in rounds_of(run, plan, Archive()):
        widths.append(width)
        run.spent["optimizer"] += width
    assert asks * 3 // 4 <= sum(widths) < asks
