"""MemAlign: guidelines with sources, the most alike judgements, what is taken back; a judge with a memory; the contest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.taste_world import SHORT, START, THANKS, Taste, judged, row, tastes
from tests.rewards.judging import FakeJudge, built

from whet.errors import UsageError
from whet.methods import configure, get_method
from whet.methods.memalign import Config, check, deploy, memalign
from whet.prompt import Prompt
from whet.rewards.agreement import agreement
from whet.rewards.judge import Judge
from whet.rewards.judge_memory import (
    EXAMPLES,
    GUIDELINES,
    Guideline,
    JudgeMemory,
    LabelledText,
    read_memory,
    sourced_guidelines,
)
from whet.rl import LanguagePolicy
from whet.rl.remembering_judge import RememberingJudge, read_judge
from whet.run import Budget, MemoryRun
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example

CONFORMANCE = {"batch": 20}
"""Settings of a run in the conformance suite."""
SWEEP = {"batch": 4}
"""Settings of a run that is killed at every boundary."""


def memory_of(world: Taste, **settings: Any) -> tuple[JudgeMemory, MeteredRun]:
    """The memory that was tried first, and the run."""
    run = MeteredRun({"task": world.env.model, "optimizer": world.writer})
    asyncio.run(memalign(run, world.env, LanguagePolicy(), START, Config(**settings)))
    return read_judge(next(iter(run.kept.values()))).memory, run


def test_a_guideline_without_a_valid_source_is_dropped_and_equal_ones_are_put_together() -> None:
    proposed = [("A.", ["r1", "r9"]), ("B.", ["r9"]), ("C.", []), ("A.", ["r2"]), ("  ", ["r1"])]
    assert sourced_guidelines(proposed, {"r1", "r2"}) == [Guideline("A.", ("r1", "r2"))]
    memory, run = memory_of(tastes(0))
    assert {one.text for one in memory.guidelines} == {SHORT, THANKS}
    assert all(set(one.sources) <= {row.id for row in tastes(0).env.train} for one in memory.guidelines)
    counts = next(value for name, value in run.logged if name == "guidelines")
    assert counts["held"] == 2 < counts["proposed"]  # type: ignore[index, call-overload, operator]


def test_what_is_taken_back_takes_along_the_guidelines_that_rest_on_nothing_else() -> None:
    judgements = tuple(LabelledText(key, f"text {key}", "4") for key in ("r1", "r2", "r3"))
    memory = JudgeMemory((Guideline("A.", ("r1",)), Guideline("B.", ("r1", "r2"))), judgements)
    left = memory.without({"r1"})
    assert left.guidelines == (Guideline("B.", ("r2",)),)
    assert [one.key for one in left.judgements] == ["r2", "r3"]
    assert "text r1" not in left.to_json() and "A." not in left.to_json()


def test_the_most_alike_judgements_are_shown_and_never_its_own() -> None:
    shown = ("a red boat", "a red boot", "green tea", "nothing like it")
    memory = JudgeMemory(
        (), tuple(LabelledText(str(n), text, "3", "Why?") for n, text in enumerate(shown)), 2
    )
    assert [one.key for one in memory.nearest("a red boat!")] == ["0", "1"]
    assert [one.key for one in memory.nearest("a red boat")] == ["1", "2"]
    text = memory.extend("Be fair.\n", "a red boat!")
    assert text.startswith(f"Be fair.\n\n{EXAMPLES}\n\na red boat\nA person's judgement: 3\nReason: Why?")
    assert GUIDELINES not in text and JudgeMemory().extend("Be fair.\n", "x") == "Be fair."


def test_a_memory_is_what_was_written_and_nothing_else_is_one() -> None:
    memory, _ = memory_of(tastes(1))
    assert read_memory(memory.to_json()) == memory
    for text in ("", "[]", '{"guidelines": [{"text": 3}]}'):
        with pytest.raises(UsageError, match="not the memory of a judge"):
            read_memory(text)
    with pytest.raises(UsageError, match="not a checkpoint of memalign"):
        read_judge(b"{}")


async def test_the_reward_judge_asks_what_the_aligned_prompt_asks(tmp_path: Path) -> None:
    """Word by word: the agreement that a run found holds for the judge that uses its memory."""
    example = Example("e", {"input": "question 3"}, None, {}, "question 3")
    shown = Judge.shows(example, "Thanks for asking.")
    memory = JudgeMemory(
        (Guideline("Be brief.", ("r1",)),), (LabelledText("r1", Judge.shows(example, "Well."), "4"),)
    )
    (tmp_path / "memory.json").write_text(memory.to_json())
    asked = FakeJudge(['{"explanation": "x", "score": 3}'])
    options = {"rubric": "Long is good.", "reference": "ignore", "memory": "memory.json"}
    reward = built({"judge": options}, tmp_path)
    await reward.grade(MemoryRun({"judge": asked}), example, Completion("Thanks for asking."))
    prompt = start_of("Long is good.")
    row = Example("r", {"shown": shown}, "4", {"shown": shown}, shown)
    (found,) = await RememberingJudge(prompt, memory).route(MemoryRun(), [row])
    assert [m.content for m in found.render(row)] == [m.content for m in asked.asked[0].messages]
    assert "Be brief." in asked.asked[0].messages[0].content and "Well." in asked.asked[0].messages[0].content


def start_of(rubric: str) -> Prompt:
    judge = Judge(rubric)
    messages = judge.as_messages(lambda text: f"<!-- whet:begin -->\n{text}\n<!-- whet:end -->", "{{shown}}")
    return Prompt(tuple(messages))


async def test_reasons_of_people_are_read_and_shown() -> None:
    world = tastes(0)
    rows = tuple(replace(one, row={**one.row, "reason": "It was kind."}) for one in world.env.train)
    model = Answers(lambda question, sample: "<GUIDELINES>None.</GUIDELINES>")
    run = MeteredRun({"task": world.env.model, "optimizer": model})
    await memalign(run, replace(world.env, train=rows), LanguagePolicy(), START, Config())
    assert all("Reason: It was kind." in question for question in model.questions)
    assert len(model.questions) == 2, "60 rows in batches of 50"


def test_rows_without_targets_are_refused() -> None:
    env = tastes(0).env
    bare = replace(env, train=tuple(replace(one, target=None) for one in env.train))
    with pytest.raises(UsageError, match="no training row has a target"):
        check(bare, Config())


# The contest: a rater with three preferences, of which one depends on the topic.

SEEDS = 8


def aligned(
    world: Taste, settings: dict[str, Any], method: str = "memalign"
) -> tuple[list[str], list[float]]:
    """The text under which the result judges each of 300 answers that nobody saw, and what the rater gives them."""
    loaded = get_method(method)
    config = configure(loaded, settings)
    run = MeteredRun(
        {"task": world.env.model, "optimizer": world.writer},
        world.seed,
        limits=Budget(task_calls=200, optimizer_calls=20),
    )
    best = asyncio.run(loaded.coroutine(run, world.env, LanguagePolicy(), START, config))  # type: ignore[arg-type]
    fresh = [row(number, world.seed) for number in range(5000, 5300)]
    texts = [best.prompt.region_text()] * len(fresh)
    if best.system is not None:
        there = deploy(world.env, None, run.kept[best.system], Config())
        texts = asyncio.run(there.texts(run, best.prompt, fresh))
    return texts, [float(str(one.target)) for one in fresh]


def scores_of(seed: int, texts: list[str]) -> list[float]:
    """What the judge gives each of the fresh answers under these texts."""
    return [
        judged(text, row(number, seed).user_text)
        for number, text in zip(range(5000, 5300), texts, strict=True)
    ]


@cache
def near(
    seeds: int = SEEDS, method: str = "memalign", shuffled: bool = False, **settings: Any
) -> list[float]:
    """How near the scores are to the rater's: the mean of 1 less their distance as a share of the scale, for each seed."""
    found = [aligned(tastes(seed, shuffled=shuffled), settings, method) for seed in range(seeds)]
    pairs = [(scores_of(seed, texts), people) for seed, (texts, people) in enumerate(found)]
    return [fmean(1 - abs(a - b) / 4 for a, b in zip(*pair, strict=True)) for pair in pairs]


@cache
def picked(seeds: int, **settings: Any) -> list[float]:
    """What the rater gives the answers that the aligned judge picks, for each seed."""
    return [chosen(seed, aligned(tastes(seed), settings)[0]) for seed in range(seeds)]


def chosen(seed: int, texts: list[str]) -> float:
    """What the rater gives the answers that a judge under these texts likes best, each among six."""
    fresh = [row(number, seed) for number in range(5000, 5300)]
    given = [judged(text, one.user_text) for one, text in zip(fresh, texts, strict=True)]
    groups = [range(at, at + 6) for at in range(0, 300, 6)]
    return fmean(float(str(fresh[max(group, key=lambda n: given[n])].target)) for group in groups)


@cache
def unaligned(seeds: int = SEEDS) -> list[float]:
    """As `near`, of the rubric as it was."""
    rows = [[row(number, seed) for number in range(5000, 5300)] for seed in range(seeds)]
    return [
        fmean(1 - abs(judged("", one.user_text) - float(str(one.target))) / 4 for one in some)
        for some in rows
    ]


@on_seeds(3, SEEDS)
def test_both_memories_beat_each_alone_and_the_rubric_and_random_search(seeds: int) -> None:
    both, plain = near(seeds), unaligned(seeds)
    print(f"\nboth {fmean(both):.3f}, the rubric {fmean(plain):.3f}")
    assert won_over("the rubric as it was", both, plain).low > 0.1
    assert won_over("guidelines alone", both, near(seeds, memory="guidelines")).low > 0.02
    assert won_over("examples alone", both, near(seeds, memory="examples")).low > 0.02
    texts, people = aligned(tastes(0), {})
    held_out = agreement(list(zip(scores_of(0, texts), people, strict=True)))
    print(
        f"agreement on held-out answers, seed 0: {held_out.value:.3f} [{held_out.low:.3f}, {held_out.high:.3f}]"
    )
    assert held_out.low > 0.8


@pytest.mark.long
@pytest.mark.parametrize("seeds", [SEEDS])
def test_shuffled_labels_give_no_gain(seeds: int) -> None:
    shuffled = near(seeds, shuffled=True)
    assert won_over("the rubric as it was (labels shuffled)", shuffled, unaligned(seeds)).high < 0.02


@on_seeds(3, SEEDS)
def test_it_beats_random_search(seeds: int) -> None:
    assert won_over("random_search", near(seeds), near(seeds, "random_search")).low > 0.1


@pytest.mark.long
@pytest.mark.parametrize("seeds", [SEEDS])
def test_the_answers_that_the_aligned_judge_picks_are_those_that_the_rater_likes(seeds: int) -> None:
    own, plain = picked(seeds), [chosen(seed, [""] * 300) for seed in range(seeds)]
    print(f"\npicked by the aligned judge {fmean(own):.3f}, by the rubric {fmean(plain):.3f}")
    assert won_over("picked by the rubric as it was", own, plain).low > 0.5
    assert won_over("picked by guidelines alone", own, picked(seeds, memory="guidelines")).low > 0.2
    assert won_over("picked by examples alone", own, picked(seeds, memory="examples")).low > 0.2
