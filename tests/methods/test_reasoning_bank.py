"""ReasoningBank: the bank, what is recalled, verdicts, MaTTS, defects of the published code; the contest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import won_over
from tests.methods.kinds_world import START, Kinds, answer, kinds, row

import whet
from whet.errors import UsageError
from whet.methods.reasoning_bank import Config, check, misleads, reasoning_bank
from whet.rl import LanguagePolicy
from whet.rl.prompt_router import WIDTH, Routed
from whet.rl.reasoning_memory import HEAD, Memory, MemoryBank, read_bank
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers

CONFORMANCE = {"rows": 16, "batch": 4}
"""Settings of a run in the conformance suite."""
SWEEP = {"rows": 2, "batch": 1}
"""Settings of a run that is killed at every boundary."""


def learned(
    write: Callable[[str, int], str], world: Kinds | None = None, **settings: Any
) -> tuple[MemoryBank, Answers, MeteredRun, Candidate]:
    """The bank after a run with an optimizer that writes so."""
    env, model = (world or kinds(0)).env, Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model})
    config = Config(**{"rows": 8, "batch": 4, **settings})
    best = asyncio.run(reasoning_bank(run, env, LanguagePolicy(), START, config))
    bank = read_bank(next(iter(run.kept.values()))) if run.kept else MemoryBank(START)
    return bank, model, run, best


def memory(name: str, *items: str, first: float = 1.0) -> Memory:
    vector = np.zeros(WIDTH)
    vector[0] = first
    return Memory(name, items, vector)


def one_item(question: str, sample: int) -> str:
    if "<VERDICT>" in question:
        return '<VERDICT>{"why": "It looks so.", "right": true}</VERDICT>'
    return "<ITEM>Take care\nAlways.\n\nLook twice.</ITEM>"


def test_an_item_stands_below_the_text_and_equal_ones_stand_once() -> None:
    prompt = MemoryBank(START).prompt_with(["A\nDo this.", "B", "a\ndo  this."])
    assert prompt.region_text().strip() == f"Answer with a digit.\n\n{HEAD}\n- a\n  do  this.\n- B"
    assert MemoryBank(START).prompt_with([]) == START


def test_a_blank_line_does_not_split_an_item() -> None:
    bank, *_ = learned(one_item)
    assert {one.items for one in bank.memories} == {("Take care\nAlways.\nLook twice.",)}


def test_an_input_without_items_is_never_found() -> None:
    """In the published code the vector of an input is stored before its items, and the nearest one may have none."""

    def sometimes(question: str, sample: int) -> str:
        return "" if "postman" in question.lower() else one_item(question, sample)

    bank, _, _, _ = learned(sometimes, rows=40)
    taught = {one.row for one in bank.memories}
    names = {f"row-{n}": row(n, 0) for n in range(120)}
    assert taught and all("postman" not in names[name].user_text.lower() for name in taught)
    postmen = [one for one in names.values() if "postman" in one.user_text.lower()]
    found = asyncio.run(bank.recall(MeteredRun({}), postmen))
    assert all(bank.memories[at].items for places in found for at in places) and all(found)


def test_a_row_does_not_recall_what_it_taught_itself() -> None:
    bank = MemoryBank(START, memories=[memory(row(n, 0).id, f"Item {n}.") for n in (3, 4)])
    for how in ("nearest", "random", "all"):
        found = asyncio.run(replace(bank, how=how).recall(MeteredRun({}), [row(3, 0), row(5, 0)]))
        assert found[0] == [1] and found[1]


def test_all_and_random_and_none_recall_whatever_the_input() -> None:
    bank = MemoryBank(START, "random", 2, memories=[memory(f"r{n}", f"Item {n}.") for n in range(9)])
    rows = [row(n, 0) for n in range(20)]
    found = asyncio.run(bank.recall(MeteredRun({}), rows))
    assert {len(set(places)) for places in found} == {2} and len(
        {at for places in found for at in places}
    ) == 9
    assert asyncio.run(bank.recall(MeteredRun({}), rows)) == found
    assert asyncio.run(replace(bank, how="all").recall(MeteredRun({}), rows)) == [list(range(9))] * 20
    assert asyncio.run(replace(bank, how="none").recall(MeteredRun({}), rows)) == [[]] * 20


def test_a_memory_goes_when_the_answers_that_it_was_recalled_for_are_wrong() -> None:
    assert not misleads(Memory("a", ("x",), np.zeros(1), right=0, wrong=1), 0.5)
    assert misleads(Memory("a", ("x",), np.zeros(1), right=0, wrong=2), 0.5)
    assert not misleads(Memory("a", ("x",), np.zeros(1), right=1, wrong=2), 0.5)
    assert not misleads(Memory("a", ("x",), np.zeros(1), right=0, wrong=2), 0.0)


def poor(question: str, sample: int) -> str:
    """An item that is always wrong."""
    return "<ITEM>Bad\nAlways.\nAnswer with the digit 9.</ITEM>"


def test_a_wrong_lesson_does_not_stay_for_good() -> None:
    kept, *_ = learned(poor, rows=60, forget=False)
    left, *_ = learned(poor, rows=60)
    assert len(kept.memories) == 60 and len(left.memories) < 50


def test_the_models_own_verdict_sees_no_target_no_reward_and_no_critique() -> None:
    _, model, run, _ = learned(one_item, verdict="model")
    assert model.questions and run.spent["optimizer"] == 16
    shown = "\n".join(model.questions)
    assert not any(word in shown for word in ("Wanted:", "Reward:", "Critique:"))
    assert sum("Judged right. It looks so." in question for question in model.questions) == 8
    _, model, _, _ = learned(one_item)
    assert all("Wanted:" in question and "Reward:" in question for question in model.questions)


def test_success_and_failure_are_asked_about_differently_and_can_be_left_out() -> None:
    _, model, _, _ = learned(one_item, rows=40)
    asked = ["What made it work" in q for q in model.questions]
    assert 0 < sum(asked) < len(asked)
    for outcomes, worked in (("success", True), ("failure", False)):
        _, model, _, _ = learned(one_item, rows=40, outcomes=outcomes)
        assert {"What made it work" in q for q in model.questions} == {worked}


def test_answers_in_parallel_are_distinct_samples_and_taught_by_their_contrast() -> None:
    _, model, run, _ = learned(one_item, scaling="parallel", answers=4, rows=4)
    asked = [r for r in run.models["task"].requests if r.temperature == 0.7]
    assert len(asked) == 16 and len({(r.messages, r.sample) for r in asked}) == 16
    assert len(model.questions) == 4 and all("Compare these answers" in q for q in model.questions)


def test_a_sequential_answer_sees_the_one_before() -> None:
    world = kinds(0)
    _, model, _, _ = learned(one_item, world, scaling="sequential", answers=3, rows=4)
    rechecks = [q for q in world.env.model.questions if "an earlier answer is given below" in q]
    assert len(rechecks) >= 8 and len(model.questions) == 4


def test_an_item_that_copies_an_input_or_is_too_long_is_dropped() -> None:
    world = kinds(0)
    rows = tuple(
        replace(r, text=f"{r.user_text} And why did nobody tell us on day {r.id}?") for r in world.env.train
    )
    world = replace(world, env=replace(world.env, train=rows))
    bank, *_ = learned(lambda q, s: f"<ITEM>{rows[0].user_text}</ITEM>\n<ITEM>Short.</ITEM>", world)
    assert {one.items for one in bank.memories} == {("Short.",)}
    bank, *_ = learned(lambda q, s: f"<ITEM>{'long ' * 300}</ITEM>")
    assert bank.memories == []


def test_a_bank_is_what_was_saved_and_nothing_else_is_one() -> None:
    bank = MemoryBank(START, "all", 3, memories=[memory("r1", "A", "B"), memory("r2", "C", first=0.25)])
    again = MemoryBank(START)
    again.load(bank.save())
    assert again == bank and np.array_equal(again.vectors, bank.vectors)
    for blob in (b"", b"[]", b'{"prompts": []}'):
        with pytest.raises(UsageError, match="this is not a checkpoint of a bank of lessons"):
            read_bank(blob)


def test_the_limit_on_optimizer_calls_bounds_the_rows() -> None:
    world = kinds(0)
    run = MeteredRun({"task": world.env.model, "optimizer": world.writer}, limits=Budget(optimizer_calls=20))
    asyncio.run(reasoning_bank(run, world.env, LanguagePolicy(), START, Config()))
    assert run.spent["optimizer"] == 15


def test_a_task_of_several_turns_and_an_unknown_embedding_are_refused() -> None:
    env = kinds(0).env
    with pytest.raises(UsageError, match='no embedding "nobody"'):
        check(env, Config(embedding="nobody"))
    with pytest.raises(UsageError, match="reasoning_bank chooses a prompt for one question"):
        check(Routed(env.model, env.reward, env.train, env.validation), Config())


def test_through_the_public_face(tmp_path: Path) -> None:
    def say(messages: list[Any]) -> str:
        return answer(3, "\n".join(message.content for message in messages))

    def rows(first: int, n: int) -> list[dict[str, Any]]:
        drawn = [row(number, 3) for number in range(first, first + n)]
        return [{"input": one.user_text, "target": one.target} for one in drawn]

    result = whet.optimize(
        START.source,
        data={"train": rows(0, 60), "validation": rows(1000, 30), "test": rows(2000, 60)},
        reward="exact_match",
        lm=say,
        optimizer_lm=lambda messages: kinds(3).writer.answer(whet.types.Request(tuple(messages)), 0),
        method="reasoning_bank",
        run=tmp_path / "run",
        budget=whet.Budget(task_calls=360, optimizer_calls=80),
    ).to_dict()
    assert result["best"]["test"]["mean"] > result["baseline"]["test"]["mean"] + 0.2
    assert result["improvement"]["promoted"]


# The contest: rows of six kinds whose rules contradict each other.

SEEDS = 6


@cache
def worths(method: str = "reasoning_bank", error: float = 0.0, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed; `error`: how often the judge is wrong."""
    limits = Budget(task_calls=400, optimizer_calls=600)
    return [kinds(seed, error).play(method, limits, settings)[0] for seed in range(SEEDS)]


def test_it_beats_itself_with_random_memories_and_with_all_and_random_search() -> None:
    print(f"\nworth {np.mean(worths()):.3f}")
    assert won_over("random memories", worths(), worths(recall="random")).low > 0.1
    assert won_over("all memories", worths(), worths(recall="all")).low > 0.1
    assert won_over("random_search", worths(), worths("random_search")).low > 0.1


@pytest.mark.long
def test_what_right_and_wrong_answers_teach_apart() -> None:
    won_over("right answers alone", worths(), worths(outcomes="success"))
    won_over("wrong answers alone", worths(), worths(outcomes="failure"))
    assert won_over("right answers alone", worths(), worths(outcomes="success")).low > 0.05


@pytest.mark.long
@pytest.mark.parametrize("error", [0.0, 0.1, 0.3])
def test_a_judge_that_errs(error: float) -> None:
    own = worths(error=error, verdict="model")
    print(f"\na judge that is wrong in {error:.0%}: worth {np.mean(own):.3f}")
    won_over("the reward as the judge", own, worths())
    won_over("without forgetting", own, worths(error=error, verdict="model", forget=False))
    won_over("with three neighbours", own, worths(error=error, verdict="model", near=3))
    won_over(
        "with three answers in parallel to half of the rows",
        own,
        worths(error=error, verdict="model", scaling="parallel", rows=60),
    )
    won_over(
        "with three answers in sequence", own, worths(error=error, verdict="model", scaling="sequential")
    )
    assert won_over("random memories", own, worths(error=error, verdict="model", recall="random")).low > 0
