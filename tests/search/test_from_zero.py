"""What is tried first where a start prompt earns nothing: which prompts, on which rows, at which price, and when nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.simulated import question_types
from benchmarks.simulated.question_types import TYPES

from whet.environments.environment import Environment
from whet.instructions.guard import secrets
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.run import Budget
from whet.search.archive import Archive, Candidate
from whet.search.from_zero import (
    DEMONSTRATED,
    JOINED,
    LISTED,
    FirstPrompt,
    earns_nothing,
    from_zero,
    leave_zero,
    proposals,
)
from whet.search.plan import fit
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Rollout, Score

ENV = question_types.world(1).env
PLAIN = Prompt.parse("Look.\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n\n{{input}}")
LISTING = "Answer with exactly one of these and with nothing else:\n" + "\n".join(f"- {t}" for t in TYPES)


def made(start: Prompt, env: Environment = ENV, k: int | None = None) -> dict[str, Prompt]:
    return {operator: prompt for operator, prompt, _ in proposals(env, start, env.train[:12], secrets, k)}


async def tried(start: Prompt, env: Environment = ENV) -> tuple[list[FirstPrompt], MeteredRun]:
    run, archive = MeteredRun({"task": env.model}, 1), Archive()
    await archive.validate(run, env, [Candidate(start)])
    return await from_zero(run, env, archive, start, env.train[:12], secrets), run


def test_a_plain_prompt_keeps_its_text_and_gets_all_right_answers_or_a_row_of_each() -> None:
    prompts = made(PLAIN)
    assert prompts[LISTED].region_text().strip() == f"Answer.\n\n{LISTING}"
    shown = prompts[DEMONSTRATED].region_text()
    assert shown.startswith("Answer.\n\nExamples:\n\nInput: Question ")
    assert [shown.count(f"\nAnswer: {name}") for name in TYPES] == [1] * 6
    assert made(PLAIN, k=2)[DEMONSTRATED].region_text().count("\nAnswer: ") == 2
    assert set(made(PLAIN, k=0)) == {LISTED}


def test_a_search_may_try_demonstrations_and_the_list_together() -> None:
    joined = [
        prompt.region_text()
        for operator, prompt, _ in proposals(ENV, PLAIN, ENV.train[:12], secrets, joined=True)
        if operator == JOINED
    ]
    assert [text.count("\nAnswer: ") for text in joined] == [6, 12]
    assert all(text.startswith("Answer.\n\nExamples:\n\nInput: Question ") for text in joined)
    assert all(text.strip().endswith(f"\n\n{LISTING}") for text in joined), "what the answer is stands last"


def test_a_method_may_write_the_list_in_a_way_of_its_own() -> None:
    def write(start: Prompt, answers: Sequence[str]) -> Prompt | None:
        return start.edit(", ".join(answers))

    made_by = {name: prompt for name, prompt, _ in proposals(ENV, PLAIN, ENV.train[:12], secrets, 0, write)}
    assert made_by[LISTED].region_text() == ", ".join(TYPES)


def test_a_chat_prompt_is_edited_in_its_own_message() -> None:
    start = Prompt.of_chat(
        [("system", "<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->"), ("user", "{{input}}")]
    )
    for prompt in made(start).values():
        assert [m.role for m in prompt.messages] == ["system", "user"]
        assert prompt.region_text().startswith("Answer.\n\n")
        assert prompt.messages[1] == start.messages[1]


REGIONS = (
    "<!-- whet:begin task -->\nAnswer.\n<!-- whet:end -->\n<!-- whet:begin form -->\nBe brief.\n<!-- whet:end -->\n"
    "{shown}\n{{input}}"
)


def test_of_several_regions_each_prompt_changes_one() -> None:
    start = Prompt.parse(REGIONS.replace("{shown}", "").replace("{{input}}", "{{" + "input}}"))
    for prompt in made(start).values():
        assert prompt.region_text("task") != "Answer." and prompt.region_text("form") == "Be brief."
    for prompt in made(start.with_focus("form")).values():
        assert prompt.region_text("task") == "Answer." and prompt.region_text("form") != "Be brief."


def test_demonstrations_stand_in_their_own_region() -> None:
    region = "<!-- whet:begin demonstrations -->\nNone.\n<!-- whet:end -->"
    prompts = made(Prompt.parse(REGIONS.replace("{shown}", region)))
    assert prompts[DEMONSTRATED].region_text("demonstrations").startswith("Input: Question ")
    assert prompts[LISTED].region_text("demonstrations") == "None."
    assert prompts[LISTED].region_text("task").rstrip().endswith(LISTING)


async def test_slots_in_the_text_stay_and_both_prompts_earn_something() -> None:
    start = Prompt.parse("Look.\n<!-- whet:begin -->\nAnswer.\n\n{{input}}\n<!-- whet:end -->")
    prompts = made(start)
    assert {prompt.slots for prompt in prompts.values()} == {start.slots}
    first, second = (await tried(PLAIN))[0]
    assert 0 < second.candidate.mean <= first.candidate.mean
    assert {first.candidate.operator, second.candidate.operator} == {DEMONSTRATED, LISTED}


def test_a_target_that_looks_like_a_slot_is_not_written_into_a_prompt() -> None:
    train = tuple(replace(row, target="{{" + str(row.target) + "}}") for row in ENV.train)
    assert made(PLAIN, replace(ENV, train=train)) == {}


async def test_a_prompt_is_not_scored_on_the_rows_that_it_shows() -> None:
    env = replace(ENV, train=ENV.train[:18])
    firsts, _ = await tried(PLAIN, env)
    for first in firsts:
        shown = {demo.row for demo in first.demos}
        assert not shown & {rollout.example_id for rollout in first.rollouts}


async def test_a_prompt_is_not_scored_on_a_copy_of_a_row_that_it_shows_under_another_id() -> None:
    """As a table with the same row twice has it; ids are those of its lines."""
    copies = tuple(replace(row, id=f"{row.id}-again") for row in ENV.train[:12])
    firsts, _ = await tried(PLAIN, replace(ENV, train=(*copies, *ENV.train[:12])))
    assert any(first.demos for first in firsts)
    for first in firsts:
        shown = {demo.row.removesuffix("-again") for demo in first.demos}
        assert not shown & {rollout.example_id.removesuffix("-again") for rollout in first.rollouts}


async def test_nothing_is_tried_for_a_program_a_start_that_earns_or_targets_that_are_no_answers() -> None:
    program = Prompt.of_parts({"first": "Think about {{input}}", "second": "Answer.\n{{input}}"})
    run, archive = MeteredRun({"task": ENV.model}, 1), Archive(validated={program.id: 0.0})
    assert await from_zero(run, ENV, archive, program, ENV.train[:12], secrets) == []
    assert not run.spent["task"]
    earning = Prompt.parse(f"{LISTING}\n\n{{{{input}}}}")
    assert await _none(earning, ENV)
    nobody: Any = Answers(lambda question, sample: "no idea")

    class Never(ExactMatch):
        async def grade(self, run: Any, example: Any, completion: Any) -> Any:
            return replace(await super().grade(run, example, completion), value=0.0)

    assert await _none(PLAIN, replace(ENV, model=nobody, reward=Never()))


async def test_a_start_that_earns_something_on_training_rows_is_kept() -> None:
    run, archive = MeteredRun({"task": ENV.model}, 1), Archive(validated={PLAIN.id: 0.0})
    archive.add(run, Candidate(PLAIN, score=Score(0.1, 10)))
    assert await from_zero(run, ENV, archive, PLAIN, ENV.train[:12], secrets) == []
    assert not run.spent["task"]


async def _none(start: Prompt, env: Environment) -> bool:
    firsts, run = await tried(start, env)
    return not firsts and run.spent["task"] == len(env.validation)


@pytest.mark.parametrize("limit", [60, 120, 300, 2000])
async def test_what_it_takes_is_taken_from_the_plan(limit: int) -> None:
    run, archive = MeteredRun({"task": ENV.model}, 1, limits=Budget(task_calls=limit)), Archive()
    plan = fit(run, ENV, 20, 4, 20)
    await archive.validate(run, plan.env, [Candidate(PLAIN)])
    before = run.spent["task"]
    rest, firsts = await leave_zero(run, plan, archive, PLAIN, secrets)
    assert firsts and plan.rollouts is not None and rest.rollouts is not None
    validated = (len(archive.validated) - 1) * len(plan.env.validation)
    assert plan.rollouts - rest.rollouts == run.spent["task"] - before - validated <= plan.rollouts / 2
    assert rest.rounds <= plan.rounds
    assert rest.examples * (rest.rounds * rest.width) <= rest.rollouts
    again, none = await leave_zero(run, rest, archive, firsts[0].candidate.prompt, secrets)
    assert again == rest and not none


async def test_it_says_how_many_rows_prove_that_a_start_earns_nothing() -> None:
    run, archive = MeteredRun({"task": ENV.model}, 1), Archive()
    env = replace(ENV, validation=ENV.validation[:5])
    assert earns_nothing(env, archive, PLAIN) == 0, "nothing is known yet"
    await archive.validate(run, env, [Candidate(PLAIN)])
    assert earns_nothing(env, archive, PLAIN) == 5
    wrong = [Rollout(PLAIN.id, str(n), "no", 0.0) for n in range(3)]
    failed = Rollout(PLAIN.id, "x", "", 0.0, error="provider: HTTP 500")
    assert earns_nothing(env, archive, PLAIN, [*wrong, failed]) == 8
    assert earns_nothing(env, archive, PLAIN, [*wrong, Rollout(PLAIN.id, "y", "yes", 1.0)]) == 0
    archive.add(run, Candidate(PLAIN, score=Score(0.0, 12)))
    assert earns_nothing(env, archive, PLAIN) == 17
