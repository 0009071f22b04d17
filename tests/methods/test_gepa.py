"""GEPA: reflection on rollouts, a paired test at the door, a front per example, merges of regions."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import fmean, stdev
from typing import Any

import pytest
from benchmarks.simulated import load as simulated
from benchmarks.simulated import question_types
from benchmarks.simulated.language import Stance, sentences
from benchmarks.simulated.rules import first, stances
from scipy.stats import t
from tests.methods.test_meta_prompt import Rules

from whet.environments.environment import Environment
from whet.methods.gepa import Config, gepa
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget, Run
from whet.search.archive import Candidate
from whet.search.minibatch import better
from whet.testing.paired_benchmark import KnownWorld, advantage, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world, reviews
from whet.types import Completion, Example, Request, Reward, Rollout, Usage

CONFORMANCE = {"rounds": 4, "proposals": 2, "minibatch": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "proposals": 2, "minibatch": 1, "looks": 2}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
GOOD = "Sort carefully: evidence, tone, a single word."
SMALL: dict[str, Any] = {"rounds": 6, "proposals": 1, "minibatch": 8}
PAIR = Prompt.parse(
    "Sort.\n<!-- whet:begin one -->\nBe quick.\n<!-- whet:end -->\n"
    "<!-- whet:begin two -->\nGuess.\n<!-- whet:end -->\nReview: {{input}}\nAnswer:"
)

PROGRAM = Prompt.of_parts({"one": "Be quick.", "two": "Guess."})


async def search(
    answer: Callable[[str, int], str],
    env: Environment | None = None,
    start: Prompt = START,
    limits: Budget | None = None,
    seed: int = 0,
    **settings: Any,
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, seed, limits=limits)
    return await gepa(run, env, LanguagePolicy(), start, Config(**(SMALL | settings))), model, run


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


class Critical(ExactMatch):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        reward = await super().grade(run, example, completion)
        return replace(reward, critique=None if reward.value == 1 else f"{example.id} needs more warmth.")


# Reflection.


class Kind(ExactMatch):
    """Right where the answer is positive: every answer is held against that."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(float(completion.text == "positive"))


async def test_the_optimizer_is_shown_the_rollouts_of_the_minibatch_with_their_critiques() -> None:
    env = replace(review_world(), reward=Critical())
    _, model, _ = await search(lambda q, s: f"<INSTRUCTION>Text {s}.</INSTRUCTION>", env)
    for question in model.questions:
        shown = question.split("<example>\n")[1:]
        failed = ["Reward: 1" not in row for row in shown]
        assert not any("Reward: 0" in row for row in shown), "beside the wanted answer it says nothing"
        assert 0 < len(shown) <= 8 and failed == sorted(failed, reverse=True), "failures first"
        assert failed.count(False) <= failed.count(True) // 3
        assert all(("needs more warmth." in row) == wrong for row, wrong in zip(shown, failed, strict=True))
    assert f"<instructions>\n{START.region_text()}\n</instructions>" in model.questions[0]
    assert "[INSTRUCTION]\nReview: {{input}}" in model.questions[0]
    assert len({(r.messages, r.sample) for r in model.requests}) == len(model.requests)


async def test_a_request_says_how_long_an_answer_may_be_where_answers_were_cut_off() -> None:
    class Cutting(Answers):
        async def generate(self, request: Request) -> list[Completion]:
            usage = Usage(input_tokens=9, output_tokens=8)
            return [replace(one, finish="length", usage=usage) for one in await super().generate(request)]

    env = replace(review_world(Cutting(lambda q, s: "The tone of this review is that of")), labels={})
    _, model, _ = await search(lambda q, s: f"<INSTRUCTION>Text {s}.</INSTRUCTION>", env)
    assert model.questions
    told = re.compile(r"An answer may have 8 tokens at most: of these answers, \d+ were cut off there\.")
    assert all(told.search(question) for question in model.questions)
    _, model, _ = await search(lambda q, s: f"<INSTRUCTION>Text {s}.</INSTRUCTION>")
    assert model.questions and not any("cut off" in question for question in model.questions)


async def test_a_request_names_a_label_that_is_answered_too_often_and_inputs_that_the_text_holds() -> None:
    env = review_world(Answers(lambda q, s: "positive"))
    good = [row for row in env.train if row.target == "positive"]
    train = [*good[:3], *(row for row in env.train if row.target == "negative")]
    held = next(row for row in train if row.target == "negative")
    start = START.edit(f"Sort. For example, {held.user_text} is negative.")
    _, model, _ = await search(
        lambda q, s: f"<INSTRUCTION>Text {s}.</INSTRUCTION>",
        replace(env, train=tuple(train)),
        start,
        minibatch=33,
        shown=33,
    )
    first = model.questions[0]
    assert re.search(r'The model answered "positive" \d+ times, and it was wanted 3 times\.', first)
    marked = re.findall(r"Input: (.*)\n(?:.*\n){2}Stands in the instructions already\n", first)
    assert marked == [held.user_text]


async def test_a_parent_that_is_only_copied_gives_way_to_the_others() -> None:
    half = "Sort: tone."

    def reflected(question: str) -> str:
        return question.partition("<instructions>\n")[2].partition("\n</instructions>")[0]

    def answer(question: str, sample: int) -> str:
        same = reflected(question) == half or sample < 2
        return f"<INSTRUCTION>{half if same else 'Sort well.'}</INSTRUCTION>"

    _, model, _ = await search(answer, rounds=3, proposals=2)
    shown = [(START.region_text() == text, half == text) for text in map(reflected, model.questions)]
    assert shown == [(True, False)] * 2 + [(False, True)] * 2 + [(True, False)] * 2


async def test_a_reflection_sees_the_children_of_its_parent_with_what_they_earned_on_the_same_rows() -> None:
    env = replace(review_world(), reward=ConstantReward(0.5))
    _, model, _ = await search(
        lambda q, s: f"<INSTRUCTION>Guess {s}.</INSTRUCTION>", env, rounds=3, proposals=1
    )
    first, second, third = model.questions
    assert "<version>" not in first
    earned = r"Mean reward 0.5, the instructions above 0.5 on the same 8 inputs; wrong answers: (.*):\n<version>\n(.*)"
    assert [text for _, text in re.findall(earned, second)] == ["Guess 0."]
    assert [text for _, text in re.findall(earned, third)] == ["Guess 0.", "Guess 1."]
    assert all(re.match(r'"\w+"', wrong) for wrong, _ in re.findall(earned, third)), (
        "what the model answered then"
    )


async def test_a_row_that_an_ancestor_answered_rightly_is_marked() -> None:
    """The child is right on more rows than its parent, and wrong on some of those that the parent had right."""

    def label(question: str, sample: int) -> str:
        good, child = "good" in question or "lovely" in question, "Child" in question
        return ("negative" if child and "soup" in question else "positive") if good or child else "no"

    env = replace(review_world(), model=Answers(label))
    _, model, _ = await search(
        lambda q, s: "<INSTRUCTION>Child.</INSTRUCTION>" if "Child" not in q else "<INSTRUCTION>No.</INSTRUCTION>",
        replace(env, reward=Kind()), rounds=6, proposals=1, minibatch=30, shown=30,
    )  # fmt: skip
    marked = [
        row
        for q in model.questions
        for row in q.split("<example>\n")
        if "Before: right" in row.split("</example>")[0]
    ]
    assert marked and all(re.match(r"Input: Visit \d+: the soup was (good|lovely)", row) for row in marked)
    told = ["was answered rightly with an earlier version" in q for q in model.questions]
    assert told == ["\nBefore: right\n" in q for q in model.questions]


async def test_a_request_says_first_what_is_to_be_done() -> None:
    _, model, _ = await search(lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", rounds=2, proposals=2)
    assert model.questions and all(
        q.startswith("Your task is to rewrite the instructions below") for q in model.questions
    )


async def test_a_perfect_minibatch_is_not_reflected_on() -> None:
    env = replace(review_world(), reward=ConstantReward(1.0))
    best, model, run = await search(lambda q, s: "<INSTRUCTION>New.</INSTRUCTION>", env)
    assert best.prompt == START
    assert not model.requests
    assert run.spent["task"] == 20  # nothing can be better than full reward on all validation rows


async def test_no_prompt_answers_a_training_row_twice() -> None:
    questions: Counter[str] = Counter()
    real: Any = review_world().model

    def answer(question: str, sample: int) -> str:
        questions[question] += 1
        return str(real._label(question, ""))

    env = replace(review_world(train=12), model=Answers(answer))
    texts = [f"<INSTRUCTION>Sort carefully {n}. {'evidence ' * (n > 2)}</INSTRUCTION>" for n in range(9)]
    await search(lambda q, s: texts[s % 9], env, rounds=9)
    assert max(questions.values()) == 1


async def test_a_text_that_copies_the_input_of_one_example_is_dropped() -> None:
    """gepa issue 261: training inputs end up in the prompt. What several inputs have in common may be quoted."""
    rows = tuple(
        replace(r, text=f"{r.text} It rained on day {n * n} of our long, long trip there.")
        for n, r in enumerate(reviews(20))
    )
    env = replace(review_world(), train=rows)
    _, _, run = await search(
        lambda q, s: f"<INSTRUCTION>Carefully, evidence. {rows[3].text}</INSTRUCTION>", env
    )
    assert [c["operator"] for c in logged(run, "candidate")] == ["start"]
    assert sum(logged(run, "copied")) > 0
    shared = "of our long, long trip there. Carefully, evidence, tone, single."
    _, _, run = await search(lambda q, s: f"<INSTRUCTION>Say nothing {shared}</INSTRUCTION>", env)
    assert len(logged(run, "validated")) == 2


# Acceptance.


def graded(*rewards: float | None) -> list[Rollout]:
    return [
        Rollout("p", f"e{i}", "", 0.0 if r is None else r, error="provider: HTTP 500" if r is None else None)
        for i, r in enumerate(rewards)
    ]


def test_a_child_is_accepted_by_a_paired_test_and_left_open_while_ahead() -> None:
    zeros = graded(0, 0, 0, 0)
    assert better(zeros, graded(1, 1, 1, 0), 1.0, 0.2) is True
    assert better(zeros, graded(1, 0, 0, 0), 1.0, 0.2) is None
    assert better(zeros, zeros, 1.0, 0.2) is False
    assert better(graded(1, 0, 0, 0), graded(0, 1, 0, 0), 1.0, 0.2) is False


def test_a_call_that_failed_speaks_for_nobody() -> None:
    assert better(graded(None, None, None, None), graded(1, 1, 1, 1), 1.0, 0.2) is False
    assert better(graded(0, None, 0, 0), graded(1, 1, 1, 1), 1.0, 0.2) is True


async def test_an_undecided_child_is_compared_on_further_rows_and_validated_at_the_end() -> None:
    class Slight(ExactMatch):
        """The text with `slight` in it wins one row of each six, and none other."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            row = int(example.id.partition("-")[2])
            return Reward(float("slight" in completion.text and row % 30 == 0))

    env = replace(review_world(Answers(lambda q, s: q)), reward=Slight(), labels={})
    best, _, run = await search(
        lambda q, s: f"<INSTRUCTION>slight {s}</INSTRUCTION>", env, rounds=12, minibatch=4, looks=3, alpha=0.2
    )
    sizes = {c["train_n"] for c in logged(run, "candidate") if c["train_n"]}
    assert sizes == {4, 12}
    assert "slight" in best.prompt.source, "ahead on training rows, and not behind on validation rows"
    assert next(c["operator"] for c in logged(run, "validated")) == "start"


@pytest.mark.parametrize("most", [60, 100, 150, 300])
async def test_a_small_budget_tries_several_children(most: int) -> None:
    """gepa issue 375: a budget that ends after one proposal looks like success."""
    env = review_world(train=40, validation=20)
    limits = Budget(task_calls=most)
    _, model, run = await search(lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", env, limits=limits)
    assert len({r.sample for r in model.requests}) >= 4
    assert run.spent["task"] <= most


async def test_the_smallest_budgets_pay_for_one_reflection() -> None:
    for most in range(8, 20):
        env, limits = review_world(train=40, validation=20), Budget(calls=most)
        _, model, run = await search(lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", env, limits=limits)
        assert model.requests and run.spent["task"] + len(model.requests) <= most


async def test_reflections_of_a_round_have_parents_and_rows_of_their_own() -> None:
    _, model, _ = await search(lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", rounds=1, proposals=4)
    assert len(model.questions) == len(set(model.questions)) == 4


async def test_reflections_of_a_round_show_different_failures_though_all_see_the_same_rows() -> None:
    env = review_world()
    few = replace(env, train=env.train[:10])
    _, model, _ = await search(
        lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", few, rounds=1, proposals=4, minibatch=10
    )
    failed = [
        frozenset(row.partition("\n")[0] for row in q.split("<example>\n")[1:] if "Reward: 1" not in row)
        for q in model.questions
    ]
    assert len(failed) == len(set(failed)) == 4 and all(failed)


async def test_a_failure_that_all_reflections_of_a_round_would_show_is_asked_about_once() -> None:
    class Rare(ExactMatch):
        """All validation rows fail, and one of 12 training rows."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return Reward(float(int(example.id.partition("-")[2]) in {*range(12)} - {5}))

    env = replace(review_world(train=12, validation=4), reward=Rare())
    _, model, run = await search(
        lambda q, s: f"<INSTRUCTION>Try {s}.</INSTRUCTION>", env, rounds=1, proposals=4, minibatch=12
    )
    assert len(model.questions) == 1
    (child,) = logged(run, "candidate")[1:]
    assert child["train_n"] == 12, "it is compared on the rows of all four"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("words", ["", "carefully, tone"], ids=["useless texts", "useful texts"])
async def test_a_run_that_is_not_perfect_spends_nine_tenths_of_one_of_its_limits(
    words: str, seed: int
) -> None:
    env = review_world(train=100, validation=30)
    limits = Budget(task_calls=300, optimizer_calls=20)
    _, model, run = await search(
        lambda q, s: f"<INSTRUCTION>Try {s} {words}.</INSTRUCTION>",
        env,
        limits=limits,
        seed=seed,
        proposals=4,
    )
    assert run.spent["task"] <= 300 and len(model.requests) <= 20
    assert run.spent["task"] >= 270 or len(model.requests) >= 18
    assert {c["n"] for c in logged(run, "validated")} == {30}, "validation is not cut"


async def test_replies_that_are_asked_for_again_count_and_no_limit_is_exceeded() -> None:
    for most in range(1, 12):
        env, limits = review_world(train=40, validation=20), Budget(task_calls=300, optimizer_calls=most)
        _, model, _ = await search(lambda q, s: "no tags\n\nat all", env, limits=limits, proposals=4)
        assert len(model.requests) == most


async def test_a_perfect_minibatch_takes_no_request_from_the_budget() -> None:
    class Rare(ExactMatch):
        """One of 40 training rows has something to learn from, and all validation rows."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return Reward(float(int(example.id.partition("-")[2]) in {*range(40)} - {30}))

    env = replace(review_world(train=40, validation=20), reward=Rare())
    limits = Budget(task_calls=200, optimizer_calls=2)
    _, model, _ = await search(lambda q, s: "<INSTRUCTION>New.</INSTRUCTION>", env, limits=limits)
    assert model.requests


# Better children are kept.


async def test_a_child_that_earns_more_on_its_minibatch_is_validated_though_no_test_shows_it() -> None:
    class OneMore(ExactMatch):
        """The text with `slight` in it wins one row of each eight."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            number = int(example.id.partition("-")[2])
            return Reward(float(number % 2 == 0 or ("slight" in completion.text and number % 8 == 1)))

    env = replace(review_world(Answers(lambda q, s: q)), reward=OneMore(), labels={})
    best, _, run = await search(lambda q, s: f"<INSTRUCTION>slight {s}</INSTRUCTION>", env, rounds=2)
    assert "slight" in best.prompt.source
    assert len(logged(run, "validated")) > 1


def label_law(seed: int) -> Callable[[Budget, dict[str, Any]], tuple[float, MeteredRun]]:
    def play_once(limits: Budget, settings: dict[str, Any]) -> tuple[float, MeteredRun]:
        world = question_types.world(seed)
        run = MeteredRun({"task": world.env.model, "optimizer": world.optimizer}, seed, limits=limits)
        search = gepa(run, world.env, LanguagePolicy(), world.start, Config(**settings))
        return world.worth(asyncio.run(search).prompt), run

    return play_once


def test_from_a_start_that_earns_nothing_labels_are_learned() -> None:
    """Six question types, 300 task and 20 optimizer calls: the package gepa 0.1.4 with its defaults comes to .68 here."""
    played = [label_law(seed)(Budget(task_calls=300, optimizer_calls=20), {}) for seed in range(6)]
    assert fmean(worth for worth, _ in played) > 0.7
    for _, run in played:
        assert run.spent["task"] >= 270
        assert {c["n"] for c in logged(run, "validated")} == {28}
        (tried,) = logged(run, "from_zero")
        assert [operator for operator, _ in tried["tried"]] == [
            "targets as demonstrations",
            "right answers listed",
            *["targets as demonstrations, right answers listed"] * 2,
        ]


async def test_where_targets_are_labels_all_right_answers_and_the_confusions_are_told() -> None:
    world = question_types.world(1)
    questions: list[str] = []
    real: Any = world.optimizer

    class Listening(Answers):
        async def generate(self, request: Request) -> list[Completion]:
            questions.append(request.messages[0].content)
            return list(await real.generate(request))

    run = MeteredRun({"task": world.env.model, "optimizer": Listening(lambda q, s: "")}, 1)
    await gepa(run, world.env, LanguagePolicy(), world.start, Config(rounds=2, proposals=1))
    assert questions
    for question in questions:
        assert all(f"\n- {name}\n" in question for name in question_types.TYPES)
        shown = question.split("<example>\n")[1:]
        wanted = [row.partition("Wanted: ")[2].partition("\n")[0] for row in shown if "Reward: 1" not in row]
        assert len(set(wanted)) == min(len(wanted), len(set(wanted)), 6) and len(wanted) >= 3 * (
            len(shown) - len(wanted)
        )
    assert any(re.search(r"- wanted \w+, answered \w+: \d+ times?", question) for question in questions)


# What the reflections of a round learned, in one child.

LINES = Prompt.parse("Sort.\n<!-- whet:begin -->\nOne.\nTwo.\nThree.\n<!-- whet:end -->\n{{input}}")


class Stated(ExactMatch):
    """The share of the lines `One.` to `Six.` that the prompt has."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        words = ("One.", "Two.", "Three.", "Four.", "Five.", "Six.")
        return Reward(sum(word in completion.text for word in words) / len(words))


def by_turns(*texts: str) -> Callable[[str, int], str]:
    return lambda question, sample: f"<INSTRUCTION>\n{texts[sample % len(texts)]}\n</INSTRUCTION>"


def stating(train: int = 60) -> Environment:
    model = Answers(lambda question, sample: question)
    return replace(review_world(model, train=train), reward=Stated(), labels={})


async def test_what_all_reflections_of_a_round_add_is_tried_as_one_child_and_what_one_forgot_stays() -> None:
    texts = ("One.\nTwo.\nThree.\nFour.", "Two.\nThree.\nFive.", "One.\nThree.\nSix.\nFour.")
    best, _, run = await search(by_turns(*texts), stating(), LINES, rounds=1, proposals=3)
    assert set(best.prompt.region_text().split()) == {"One.", "Two.", "Three.", "Four.", "Five.", "Six."}
    tried = [c for c in logged(run, "candidate") if c["operator"] != "start"]
    assert [(c["operator"], c["train_n"]) for c in tried] == [("union of reflections", 24)]
    assert len(logged(run, "validated")) == 2


async def test_texts_that_are_no_edits_of_the_parent_are_tried_alone() -> None:
    texts = ("One.\nTwo.\nThree.\nFour.", "Something else.\nFour.\nFive.\nSix.\nOne.")
    _, _, run = await search(by_turns(*texts), stating(), LINES, rounds=1, proposals=2)
    assert {c["operator"] for c in logged(run, "candidate")} == {"start", "reflection on instructions"}
    assert len(logged(run, "validated")) == 3


async def test_a_union_that_is_no_better_leaves_its_parts_to_be_tried() -> None:
    class Alone(Stated):
        """`Four.` helps where `Five.` is not there."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return Reward(float("Four." in completion.text and "Five." not in completion.text))

    texts = ("One.\nTwo.\nThree.\nFour.", "One.\nTwo.\nThree.\nFive.")
    env = replace(stating(), reward=Alone())
    best, _, _ = await search(by_turns(*texts), env, LINES, rounds=1, proposals=2)
    assert best.prompt.region_text().split() == ["One.", "Two.", "Three.", "Four."]


async def test_a_child_that_passed_its_test_is_the_result_though_its_parent_had_more_luck_on_validation() -> (
    None
):
    class Lucky(Stated):
        """The start is a little better on one validation example, `Four.` is better on all others."""

        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            if example.id == "review-1000":
                return Reward(0.5 if "Four." in completion.text else 1.0)
            validation = int(example.id.partition("-")[2]) > 1000
            return Reward(0.5 if validation or "Four." not in completion.text else 0.7)

    env = replace(stating(), reward=Lucky())
    best, _, run = await search(
        by_turns("One.\nTwo.\nThree.\nFour."), env, LINES, rounds=1, proposals=1, minibatch=16, alpha=0.2
    )
    start, child = logged(run, "validated")
    assert start["validation"] > child["validation"]
    assert best.id == child["id"]


# Regions.


def fixer(question: str, sample: int) -> str:
    """Puts right whichever region it is shown."""
    quick = "<instructions>\nBe quick.\n</instructions>" in question
    return (
        f"<INSTRUCTION>{'Carefully, by evidence.' if quick else 'By tone, in a single word.'}</INSTRUCTION>"
    )


class Halves(ExactMatch):
    """The first region decides about good reviews, the second about bad ones."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        word = {"positive": "evidence", "negative": "tone"}[str(example.target)]
        return Reward(float(word in completion.text))


def assert_both_are_right(start: Prompt, best: Prompt) -> None:
    assert best.region_text("one") == "Carefully, by evidence."
    assert best.region_text("two") == "By tone, in a single word."
    assert best.edit("Be quick.", "one").edit("Guess.", "two") == start


@pytest.mark.parametrize("start", [PAIR, PROGRAM], ids=["regions", "prompts of a program"])
async def test_reflections_of_a_round_take_the_regions_by_turns_and_one_child_has_them_all(
    start: Prompt,
) -> None:
    env = replace(review_world(Answers(lambda q, s: q)), reward=Halves(), labels={})
    best, model, run = await search(fixer, env, start, rounds=1, proposals=2, minibatch=16)
    regions = ["Be quick." in q.partition("<instructions>")[2].partition("</")[0] for q in model.questions]
    assert regions == [True, False]
    assert [c["operator"] for c in logged(run, "candidate")] == ["start", "union of reflections"]
    assert_both_are_right(start, best.prompt)


@pytest.mark.parametrize("start", [PAIR, PROGRAM], ids=["regions", "prompts of a program"])
async def test_a_merge_takes_each_region_from_the_one_that_changed_it(start: Prompt) -> None:
    env = replace(review_world(Answers(lambda q, s: q)), reward=Halves(), labels={})
    drawn_twice = 3  # the seed with which the start is the parent in the second round as well
    best, _, run = await search(fixer, env, start, seed=drawn_twice, rounds=4, minibatch=16, parent="random")
    merges = [c for c in logged(run, "candidate") if c["operator"] == "merge"]
    assert merges and len(merges[0]["parents"]) == 2
    assert_both_are_right(start, best.prompt)


async def test_without_merges_and_with_one_region_nothing_is_merged() -> None:
    for start, merges in ((START, 5), (PAIR, 0)):
        _, _, run = await search(fixer, start=start, merges=merges)
        assert "merge" not in {c["operator"] for c in logged(run, "candidate")}


# Contests: the mechanism switched off loses by an interval.

COUNT = 30
LIMITS = Budget(task_calls=260, optimizer_calls=40)
FEW = Budget(task_calls=160, optimizer_calls=16)
"""So few that the rules are not all learned before the choice of a parent counts."""


class Numberless(Rules):
    """Honest critiques, and the same number for every page."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return replace(await super().grade(run, example, completion), value=0.5)


def rules_world(reward: Rules) -> Callable[[int], KnownWorld]:
    """Thirty hidden rules, of which the optimizer takes up four at a time."""

    def drawn(seed: int) -> KnownWorld:
        texts = [f"A page for shop {n} in town {seed}." for n in range(120)]
        rows = tuple(Example(f"p{n}", {"input": t}, None, {"input": t}, t) for n, t in enumerate(texts))
        model: Any = simulated("rules-generator", {"rules": str(COUNT), "seed": str(seed)})
        env = Environment(model, reward, rows[:80], rows[80:])
        start = Prompt.parse(
            "You write pages.\n<!-- whet:begin -->\nWrite the page.\n<!-- whet:end -->\n{{input}}"
        )
        return KnownWorld(
            env, start, stated, simulated("rules-optimizer", {"seed": str(seed), "capacity": "4"})
        )

    return drawn


def stated(prompt: Prompt) -> float:
    pairs = [pair for sentence in sentences(prompt.region_text()) for pair in stances(sentence)]
    ids = {rule.id for rule in first(COUNT)}
    return len({rule for rule, stance in pairs if stance is Stance.STATED} & ids) / COUNT


@cache
def whole(seed: int, limits: Budget) -> float:
    """What the method is worth with all its mechanisms."""
    return play_world("gepa", rules_world(Rules("honest", COUNT))(seed), seed, limits)


def gain(reward: Rules, settings: dict[str, Any], limits: Budget, seeds: int = 10) -> float:
    """The lower end of the interval of what the method is worth above the same with its mechanism switched off."""
    pairs = [
        whole(s, limits) - play_world("gepa", rules_world(reward)(s), s, limits, settings)
        for s in range(seeds)
    ]
    return fmean(pairs) - float(t.ppf(0.975, seeds - 1)) * stdev(pairs) / seeds**0.5


@pytest.mark.long
def test_with_a_random_parent_it_loses() -> None:
    """In 15 of 24 seeds the choice makes no difference, so that ten seeds show little."""
    assert gain(Rules("honest", COUNT), {"parent": "random"}, FEW, seeds=24) > 0.03


@pytest.mark.long
@pytest.mark.parametrize(
    ("reward", "settings", "limits"),
    [
        pytest.param(Rules("mistaken", COUNT), {}, LIMITS, id="critiques of other rules"),
        pytest.param(Rules("hidden", COUNT), {}, LIMITS, id="hidden critiques"),
        pytest.param(Numberless("honest", COUNT), {}, LIMITS, id="hidden scores"),
    ],
)
def test_with_its_mechanism_switched_off_it_loses(
    reward: Rules, settings: dict[str, Any], limits: Budget
) -> None:
    assert gain(reward, settings, limits) > 0.05


@pytest.mark.long
def test_beats_random_search_at_equal_budget() -> None:
    world = rules_world(Rules("honest", COUNT))
    assert advantage("gepa", "random_search", world, LIMITS, range(5)).low > 0.2


def test_is_ahead_of_random_search_in_one_world() -> None:
    world = rules_world(Rules("honest", COUNT))
    ahead, behind = (play_world(method, world(0), 0, LIMITS, None) for method in ("gepa", "random_search"))
    assert ahead > behind + 0.2
