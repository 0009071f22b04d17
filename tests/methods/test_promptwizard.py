"""PromptWizard: styles, critiques of praise or blame, examples; the same rows for all, ties to the shorter prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TOPICS, with_other_inputs
from tests.methods.rule_worlds import LAST_WORD, RuleWriter, optimized, poisoned

from whet.methods.promptwizard import BLAME, CRITIQUE, MUTATE, PERSONA, PRAISE, STYLES, Config, promptwizard
from whet.models.scripted import chance, choose_by_luck
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.demonstrations import HEAD
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world

CONFORMANCE = {"iterations": 2, "styles": 3, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "styles": 2, "examples": 2, "turns": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def writer(text: str = "Weigh the evidence") -> Callable[[str, int], str]:
    def write(question: str, sample: int) -> str:
        critique = "<CRITIQUE>It lacks care.</CRITIQUE>"
        if PERSONA in question:
            return f"<PROMPT>You are a critic. {text}.</PROMPT>"
        return critique if "<CRITIQUE>" in question else f"<PROMPT>{text} {sample}.</PROMPT>"

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"iterations": 2, "styles": 3, "examples": 20, **settings})
    return await promptwizard(run, env, LanguagePolicy(), START, config), model, run


def operators(run: MeteredRun) -> list[str]:
    return [v["operator"] for name, v in run.logged if name == "candidate"]  # type: ignore[index, call-overload]


async def test_each_mutation_of_a_round_follows_another_style() -> None:
    _, model, _ = await search(writer(), iterations=1, styles=4, turns=0, persona=False)
    styles = [style for q in model.questions if MUTATE in q for style in STYLES if style in q]
    assert len(styles) == len(set(styles)) == 4


@pytest.mark.parametrize(("value", "sign"), [(0.6, PRAISE), (0.4, BLAME), (0.5, PRAISE)])
async def test_the_sign_of_a_critique_follows_the_score(value: float, sign: str) -> None:
    from dataclasses import replace

    _, model, _ = await search(writer(), replace(review_world(), reward=ConstantReward(value)), turns=0)
    critiques = [q for q in model.questions if "<CRITIQUE>" in q]
    assert critiques and all(sign in q for q in critiques)


async def test_of_equal_scores_the_shorter_prompt_wins() -> None:
    """The published code takes the longer one, so that prompts grow."""
    lengths = ("Mind the tone and all that belongs to it", "Mind the tone")

    def write(question: str, sample: int) -> str:
        return writer(lengths[sample % 2])(question, sample)

    best, _, _ = await search(write, turns=0, persona=False)
    assert "belongs" not in best.prompt.region_text()


async def test_all_prompts_answer_the_same_rows() -> None:
    rows: dict[str, set[str]] = {}

    def answer(question: str, sample: int) -> str:
        text = question.partition("Review: ")[2]
        rows.setdefault(question.partition("Review: ")[0], set()).add(text)
        return "positive"

    await search(writer(), review_world(Answers(answer), train=60, validation=1), k=0)
    assert len({frozenset(r for r in seen if "Visit 1000" not in r) for seen in rows.values()}) == 1


async def test_examples_come_from_rows_that_no_prompt_is_scored_on() -> None:
    _, _, run = await search(writer(), turns=3)
    shown = [v for name, v in run.logged if name == "candidate" and v["operator"] == "examples"]  # type: ignore[index, call-overload]
    assert shown and all(HEAD in v["messages"][0][1] for v in shown)  # type: ignore[index, call-overload]
    _, _, run = await search(writer(), turns=3, k=0)
    assert "examples" not in operators(run)


async def test_a_persona_is_tried_at_the_end() -> None:
    _, model, run = await search(writer())
    assert PERSONA in model.questions[-1] and operators(run)[-1] == "persona"
    _, model, _ = await search(writer(), persona=False)
    assert not any(PERSONA in q for q in model.questions)


async def test_nothing_to_criticise_is_no_error_and_no_text_changes_nothing() -> None:
    from dataclasses import replace

    best, model, _ = await search(writer(), replace(review_world(), reward=ConstantReward(1.0)))
    assert not any("<CRITIQUE>" in q for q in model.questions) and best.prompt == START
    best, _, _ = await search(lambda q, s: "", k=0)
    assert best.prompt == START


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_a_round_and_examples(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, _, run = await search(writer(), env, limits, **vars(Config()))
    assert {"style", "critique", "examples"} <= set(operators(run))
    assert 0.4 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    def write(question: str) -> str:
        return "<CRITIQUE>Vague.</CRITIQUE>" if "<CRITIQUE>" in question else f"<PROMPT>{LAST_WORD}</PROMPT>"

    assert LAST_WORD in optimized(tmp_path, "promptwizard", write)


# The contest: a critic that reads which inputs failed, and a writer that follows it.


def wizardry(writer: RuleWriter, question: str, phrases: list[str]) -> str:
    """A critique names up to two phrases for inputs that failed; a style adds any phrase; a persona none."""
    if "<CRITIQUE>" in question:
        return f"<CRITIQUE>It lacks: {'|'.join(phrases[:2]) or 'nothing'}</CRITIQUE>"
    text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
    lacking = re.findall(r"It lacks: (.*)", question.partition(CRITIQUE)[2])
    new = (
        lacking[0].split("|")
        if lacking
        else [choose_by_luck(PHRASES, question)]
        if MUTATE in question
        else []
    )
    return f"<INSTRUCTION>{' '.join([text, *new])}</INSTRUCTION>"


OF_ANY_ROW = with_other_inputs(lambda line: int(chance(line, "other") * TOPICS))


@cache
def reached(method: str = "promptwizard", change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed; eight rounds of refinement."""
    limits = Budget(task_calls=1500)
    return [
        play_world(method, poisoned(seed, wizardry, change, right="0.8"), seed, limits, settings)
        for seed in range(8)
    ]


MANY = {"iterations": 8, "styles": 2}


def test_what_its_critiques_read_is_what_it_wins_by() -> None:
    others = reached(change=OF_ANY_ROW, **MANY)
    assert won_over("with critiques of other inputs", reached(**MANY), others).low > 0
    assert won_over("random_search", reached(**MANY), reached("random_search", edits=16)).low > 0


@pytest.mark.long
def test_with_few_rewrites_after_critiques_no_benefit_of_them_is_shown() -> None:
    others = reached(change=OF_ANY_ROW)
    assert won_over("with critiques of other inputs, default rounds", reached(), others).low < 0
