"""meta_prompt: what the optimizer sees, what it may change, what is returned, and that critiques make the difference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import pytest
from benchmarks.simulated import load as simulated
from benchmarks.simulated.language import Stance, sentences
from benchmarks.simulated.rules import first, stances

from whet.environments.environment import Environment
from whet.methods.meta_prompt import Config, meta_prompt
from whet.models.scripted import choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget, Run
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import T_95, KnownWorld, advantage, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world, reviews
from whet.types import Completion, Example, Reward

CONFORMANCE = {"loops": 3, "rollouts": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"loops": 2, "rollouts": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)
GOOD = "Sort carefully: evidence, tone, a single word."
BETTER = "Sort carefully: evidence, tone."
BAD = "Guess, be quick."


@dataclass(frozen=True)
class Remarks:
    """The reward of the reviews, with a critique of each wrong answer that holds braces; `silent`: without."""

    silent: bool = False
    name: str = "remarks"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        right = completion.text == example.target
        remark = f"{example.id}: keep {{type: int}} and {{{{input}}}} {{annotations}}."
        return Reward(float(right), critique=None if right or self.silent else remark)


def world(silent: bool = False, **sizes: Any) -> Environment:
    return replace(review_world(**sizes), reward=Remarks(silent))


async def search(
    answer: Callable[[str, int], Any],
    env: Environment | None = None,
    start: Prompt = START,
    limits: Budget | None = None,
    **settings: Any,
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    return await meta_prompt(run, env, LanguagePolicy(), start, Config(**settings)), model, run


def prompts(*texts: str) -> Callable[[str, int], str]:
    """An optimizer that writes the texts in turn, the last one for ever."""
    return lambda question, sample: f"<PROMPT>{texts[min(sample, len(texts) - 1)]}</PROMPT>"


def counted(run: MeteredRun, name: str) -> int:
    return sum(value[name] for logged, value in run.logged if logged == "replies")  # type: ignore[index, call-overload, misc]


# What the optimizer sees.


async def test_one_call_shows_every_answer_of_the_batch_with_its_critique() -> None:
    _, model, run = await search(prompts("Text one.", "Text two."), loops=2, rollouts=12)
    assert run.spent["optimizer"] == 2
    for question in model.questions:
        rows = re.findall(r"<ANSWER>\n(.*?)\n</ANSWER>", question, re.DOTALL)
        assert len(rows) == len(set(rows)) == 12
        for row in rows:
            assert re.match(
                r"Input: Visit \d+: .*\nWanted: (?:positive|negative)\nAnswered: \w+\nReward: [01]", row
            )
            assert ("Critique: review-" in row) == ("Reward: 0" in row)
    assert "<INSTRUCTION>\nText one.\n</INSTRUCTION>" in model.questions[1]
    assert "[INSTRUCTION]\nReview: {{input}}" in model.questions[1]
    assert model.requests[0].max_tokens == 2048


async def test_critiques_arrive_as_they_are_and_stand_for_nothing() -> None:
    """Arize-ai/prompt-learning: braces in feedback become blanks, `{annotations}` and `{examples}` are filled in."""
    start = Prompt.parse("<!-- whet:begin -->\nUse {examples}.\n<!-- whet:end -->\n{{input}}")
    best, model, _ = await search(
        prompts("Use {examples} and {annotations}."), start=start, loops=1, rollouts=8
    )
    assert "keep {type: int} and {{input}} {annotations}." in model.questions[0]
    assert "<INSTRUCTION>\nUse {examples}.\n</INSTRUCTION>" in model.questions[0]
    assert model.questions[0].count("Input: Visit") == 8
    assert best.prompt.slots == start.slots


async def test_long_texts_are_cut_where_the_setting_says() -> None:
    long = [replace(row, text=f"{'very ' * 3000}good {row.id}") for row in reviews(10)]
    env = replace(world(), train=tuple(long))
    _, model, _ = await search(prompts("A."), env, loops=1, rollouts=4, longest=200)
    assert len(model.questions[0]) < 4000
    assert model.questions[0].count("[...]") == 4


async def test_without_critiques_target_and_reward_are_shown() -> None:
    _, model, _ = await search(prompts("A."), world(silent=True), loops=1, rollouts=8)
    rows = re.findall(r"<ANSWER>\n(.*?)\n</ANSWER>", model.questions[0], re.DOTALL)
    assert len(rows) == 8
    assert all("Wanted: " in row and "Reward: " in row and "Critique" not in row for row in rows)


async def test_answers_that_never_came_are_not_shown() -> None:
    def answer(question: str, sample: int) -> Completion:
        broken = "Visit 1" in question
        return Completion("" if broken else "positive", error="provider: HTTP 500" if broken else None)

    env = replace(world(), model=Answers(answer))  # type: ignore[arg-type]
    _, model, _ = await search(prompts("A."), env, loops=1, rollouts=60)
    assert "HTTP 500" not in model.questions[0]
    assert 40 < model.questions[0].count("<ANSWER>") < 60


# What it may change.


@pytest.mark.parametrize(
    "reply", ["Label the text.", "Label {{text}} of {{input}}.", "<!-- whet:end --> Free."]
)
async def test_a_rewrite_that_loses_a_slot_or_the_fence_is_refused_and_counted(reply: str) -> None:
    """Arize-ai/prompt-learning: the variables of the new prompt are said to be validated, and are not."""
    start = Prompt.parse("Sort.\n<!-- whet:begin -->\nLabel {{input}}.\n<!-- whet:end -->\nAnswer: {x}\n")
    best, model, run = await search(prompts(reply), start=start, loops=2, rollouts=8)
    assert best.prompt == start
    assert counted(run, "rejected") == len(model.requests) == 4
    assert counted(run, "kept") == 0
    assert "placeholders ({{input}})" in model.questions[0]


async def test_a_refused_rewrite_is_asked_for_once_more_with_the_reason() -> None:
    replies = ("<PROMPT>Sort {{slot}}.</PROMPT>", f"<PROMPT>{GOOD}</PROMPT>")
    best, model, run = await search(lambda q, s: replies["could not be used" in q], loops=1, rollouts=8)
    assert best.prompt.region_text() == GOOD
    assert "{{slot}}" in model.questions[1].rpartition("could not be used")[2]
    assert (counted(run, "rejected"), counted(run, "kept")) == (1, 1)


async def test_only_the_editable_text_changes() -> None:
    """Arize-ai/prompt-learning: the whole system message is replaced."""
    best, _, _ = await search(prompts(f"You sort reviews of places to eat.\n{GOOD}"), loops=1, rollouts=8)
    assert best.prompt != START
    assert best.prompt.edit(START.region_text()) == START


async def test_the_best_text_is_returned_not_the_last_one() -> None:
    """Arize-ai/prompt-learning: the last rewrite is returned, whatever it is worth."""
    best, _, run = await search(prompts(BETTER, BAD), loops=4, rollouts=20)
    assert best.prompt.region_text() == BETTER
    best, _, _ = await search(prompts(BAD), loops=3, rollouts=20)
    assert best.prompt == START
    assert any(BAD in json.dumps(value) for name, value in run.logged if name == "candidate")


async def test_an_answer_without_a_text_changes_nothing() -> None:
    best, _, run = await search(lambda q, s: "I would rather not.\n\nAsk again?", loops=2, rollouts=8)
    assert best.prompt == START
    assert counted(run, "off_format") == 4


async def test_a_batch_without_mistakes_asks_for_nothing() -> None:
    start = START.edit(GOOD)
    best, model, _ = await search(prompts("Worse."), start=start, loops=3, rollouts=10)
    assert best.prompt == start
    assert not model.requests


@pytest.mark.parametrize("most", [100, 500])
async def test_a_limit_is_spent_on_loops(most: int) -> None:
    env = world(train=200, validation=60)
    limits = Budget(task_calls=most, optimizer_calls=30)
    _, model, run = await search(lambda q, s: f"<PROMPT>Number {s}.</PROMPT>", env, limits=limits)
    assert 0.8 * most <= run.spent["task"] <= most
    assert 5 <= run.spent["optimizer"] == len({r.sample for r in model.requests}) <= 30


# What it is worth.


@dataclass(frozen=True)
class Rules:
    """Share of the hidden rules that a page follows, with critiques about it (`honest`), about nothing (`hidden`), or
    about rules that do not exist in this world (`mistaken`)."""

    critiques: str
    count: int = 10
    name: str = "rules"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        page = json.loads(completion.text)
        broken = [rule for rule in first(self.count) if not rule.holds(page)]
        named = (
            broken
            if self.critiques == "honest"
            else shuffle(first(100)[self.count :], example.id)[: len(broken)]
        )
        texts = [choose_by_luck(rule.critiques, rule.id, example.id) for rule in named]
        critique = " ".join(texts) if texts and self.critiques != "hidden" else None
        return Reward(1 - len(broken) / self.count, critique=critique)


def rules_world(critiques: str) -> Callable[[int], KnownWorld]:
    """Ten hidden rules; the worth of a prompt is the share of them that it states."""

    def drawn(seed: int) -> KnownWorld:
        texts = [f"A page for shop {n} in town {seed}." for n in range(120)]
        rows = tuple(Example(f"p{n}", {"input": t}, None, {"input": t}, t) for n, t in enumerate(texts))
        model: Any = simulated("rules-generator", {"rules": "10", "seed": str(seed)})
        env = Environment(model, Rules(critiques), rows[:80], rows[80:])
        start = Prompt.parse(
            "You write pages.\n<!-- whet:begin -->\nWrite the page.\n<!-- whet:end -->\n{{input}}"
        )
        return KnownWorld(env, start, stated, simulated("rules-optimizer", {"seed": str(seed)}))

    return drawn


def stated(prompt: Prompt) -> float:
    pairs = [pair for sentence in sentences(prompt.region_text()) for pair in stances(sentence)]
    ids = {rule.id for rule in first(10)}
    return len({rule for rule, stance in pairs if stance is Stance.STATED} & ids) / len(ids)


LIMITS = Budget(task_calls=100, optimizer_calls=10)


@pytest.mark.long
def test_without_honest_critiques_it_loses() -> None:
    worth = {
        kind: [play_world("meta_prompt", rules_world(kind)(seed), seed, LIMITS) for seed in range(5)]
        for kind in ("honest", "hidden", "mistaken")
    }
    for kind in ("hidden", "mistaken"):
        differences = [a - b for a, b in zip(worth["honest"], worth[kind], strict=True)]
        assert fmean(differences) - T_95[5] * stdev(differences) / 5**0.5 > 0.4, worth


def test_beats_random_search_at_equal_budget() -> None:
    gain = advantage("meta_prompt", "random_search", rules_world("honest"), LIMITS, range(5))
    assert gain.low > 0.4, gain
