"""IPO: what the optimizer is shown, captions, bounds, and that the finer figure finds what a coarse score hides."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.methods.readers import gauss
from tests.task.test_media import png

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.ipo import Config, check, ipo
from whet.models.scripted import Scripted, chance, load, luck, request_text
from whet.prompt import Prompt
from whet.rewards import Weighted
from whet.rewards.numbers import Number
from whet.rewards.text import ExactMatch
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Request
from whet_client import media

CONFORMANCE = {"steps": 3, "samples": 4, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 2, "samples": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse("<!-- whet:begin -->\nPaint it.\n<!-- whet:end -->\n\n{{input}}")
HARD = {"miscount": "0.8", "bleed": "0.7", "misplace": "0.9", "care": "1", "span": "90"}
"""A painter that misreads most vague requests, and none that asks for care: a whole scene is right by luck in 1 of 160."""
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "examples/painting/data.jsonl").read_text().splitlines()
]


def scenes(n: int, first: int = 0) -> tuple[Example, ...]:
    """Requests that can be misread in all three ways."""
    hard = [row for row in ROWS if len(row["scene"][0]) == 4 and row["scene"][0]["count"] > 1]
    return tuple(
        Example(r["id"], {"input": r["input"]}, None, r, r["input"]) for r in hard[first : first + n]
    )


def painting(*, whole: bool = True, train: int = 12, validation: int = 10) -> Environment:
    reward = SvgScene(whole=whole)
    return Environment(load("painter", HARD), reward, scenes(train), scenes(validation, 30))


async def search(
    optimizer: Any, env: Environment | None = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env = env or painting()
    model = optimizer if isinstance(optimizer, Answers) else Answers(optimizer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    found = await ipo(
        run, env, LanguagePolicy(), START, Config(**{"signal": "met", "threshold": 0.0, **settings})
    )
    return found, model, run


def numbered(question: str, sample: int) -> str:
    words = ("exactly", "own", "layout", "beautiful", "plain")
    return f"<INSTRUCTION>Number {sample}: mind {words[sample % 5]}.</INSTRUCTION>"


FIGURES = re.compile(r"</INSTRUCTION>\nScore: ([\d.]+)\nmet: ([\d.]+)$", re.MULTILINE)


async def test_both_figures_are_shown_and_texts_ascend_by_score_and_then_by_the_finer_one() -> None:
    _, model, _ = await search(numbered, steps=3, samples=5)
    last = [(float(score), float(met)) for score, met in FIGURES.findall(model.questions[-1])]
    assert len(last) == 11 and last == sorted(last) and len({met for _, met in last}) > 1
    assert "Where scores are equal, met tells which" in model.questions[-1]


async def test_without_a_signal_the_score_stands_alone() -> None:
    _, model, _ = await search(numbered, steps=1, samples=2, signal="none")
    assert "\nmet:" not in model.questions[0] and "\nScore: " in model.questions[0]


async def test_texts_below_the_threshold_are_hidden_once_one_is_above_it() -> None:
    good = "Count exactly, each its own colour, mind the layout."
    _, model, _ = await search(
        lambda q, s: f"<INSTRUCTION>{good} {s}</INSTRUCTION>", threshold=20.0, steps=2, samples=1
    )
    assert "Paint it." in model.questions[0] and good in model.questions[1]
    assert "\nPaint it.\n</INSTRUCTION>" not in model.questions[1]


async def test_the_best_thirty_are_shown_and_long_texts_are_dropped() -> None:
    _, model, _ = await search(numbered, steps=8, samples=5)
    assert len(FIGURES.findall(model.questions[-1])) == 30
    found, _, run = await search(
        lambda q, s: f"<INSTRUCTION>{'very ' * 60}{s}</INSTRUCTION>", steps=2, samples=3
    )
    assert found.prompt == START and run.spent["task"] == 12 + 10


async def test_a_signal_that_the_reward_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"signal=sharpness: .* It has: met, picture, shapes"):
        await search(numbered, signal="sharpness")


def test_an_unknown_signal_is_refused_before_any_call_where_the_reward_names_its_parts() -> None:
    env = painting()
    with pytest.raises(UsageError, match=r"signal=sharpness: .* It has: met, picture, shapes"):
        check(env, Config(signal="sharpness"))
    check(env, Config(signal="met"))
    check(replace(env, reward=Weighted([(0.5, ExactMatch()), (0.5, SvgScene())])), Config(signal="svg_scene"))
    with pytest.raises(UsageError, match=r"It has: none"):
        check(replace(env, reward=ExactMatch()), Config(signal="likelihood"))
    check(replace(env, reward=Number()), Config(signal="unknown beforehand"))


async def test_the_reward_names_all_of_its_parts() -> None:
    env = painting()
    for text in ("no picture", "<svg><circle/></svg>", "x" * 200_000):
        graded = await env.reward.grade(MeteredRun({}), env.train[0], Completion(text))
        assert graded.parts.keys() <= SvgScene.part_names


async def test_images_are_captioned_by_the_task_model_and_the_calls_are_planned_for() -> None:
    marks = [media.keep_bytes(png((n, 0, 0)), f"{n}.png", "here") for n in range(10)]
    rows = [Example(f"r{n}", {"input": m}, "boat", {"input": m}, m) for n, m in enumerate(marks)]

    def see(question: str, sample: int) -> str:
        return "A small\nred boat." if question.startswith("Describe") else "boat"

    env = Environment(Answers(see), ExactMatch(), tuple(rows[:8]), tuple(rows[8:]))  # type: ignore[arg-type]
    limits = Budget(task_calls=60)
    _, model, run = await search(numbered, env, limits, signal="none", exemplars=2)
    assert model.questions[0].count("What the image shows: A small red boat.") == 2
    assert run.spent["task"] <= 60
    _, model, _ = await search(numbered, steps=1, samples=1, exemplars=2)
    assert "What the image shows" not in model.questions[0] and model.questions[0].count("\nInput: ") == 2


# The contest: a whole scene is right only with three words together, and the share of its demands tells the way.

PHRASES = (
    "Count exactly.",
    "Give each its own colour.",
    "Mind the layout.",
    "Make it beautiful.",
    "Make it detailed.",
    "Use oil.",
    "Take your time.",
    "Be bold.",
    "Think first.",
    "Work from light to dark.",
    "Keep it calm.",
    "Use chalk.",
    "Start at the top.",
    "Leave no gaps.",
)
SHOWN = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>\nScore: ([\d.]+)(?:\nmet: ([\d.]+))?", re.DOTALL)


class FinerReader(Scripted):
    """Changes the best text by both figures: two phrases that the figures speak for, or against, or that are new."""

    def answer(self, request: Request, sample: int) -> str:
        found = SHOWN.findall(request_text(request))
        shown = [(text, float(score) + 100 * float(met or 0)) for text, score, met in found]
        draw = luck(request, sample)
        base = max(shown, key=lambda pair: (pair[1], chance(self.seed, draw, pair[0])))[0]

        def gain(phrase: str) -> float:
            having = [value for text, value in shown if phrase in text]
            lacking = [value for text, value in shown if phrase not in text]
            worth = fmean(having) - fmean(lacking) if having and lacking else 0.0
            return (-1 if phrase in base else 1) * worth + 3.0 * gauss(self.seed, draw, phrase)

        for phrase in sorted(PHRASES, key=gain, reverse=True)[:2]:
            base = base.replace(phrase, "") if phrase in base else f"{base} {phrase}"
        return f"<INSTRUCTION>{' '.join(base.split())}</INSTRUCTION>"


def world(seed: int) -> KnownWorld:
    def worth(prompt: Prompt) -> float:
        text = prompt.text
        cared = sum(word in text for word in ("exactly", "own", "layout")) == 3
        return float(cared and "beautiful" not in text and "detailed" not in text)

    return KnownWorld(painting(), START, worth, FinerReader("finer", {"seed": str(seed)}))


@cache
def reached(signal: str, seeds: int = 10) -> list[float]:
    settings = {"signal": signal, "threshold": 0.0, "samples": 4}
    return [play_world("ipo", world(seed), seed, Budget(task_calls=300), settings) for seed in range(seeds)]


@pytest.mark.long
def test_the_finer_figure_finds_what_the_score_alone_does_not_see() -> None:
    won = paired_difference(reached("met"), reached("none"))
    assert won.low > 0.1, (won, reached("met"), reached("none"))


@pytest.mark.long
def test_it_beats_random_search_over_the_same_phrases() -> None:
    limits = Budget(task_calls=300)
    random = [play_world("random_search", world(seed), seed, limits, {"edits": 16}) for seed in range(10)]
    assert paired_difference(reached("met"), random).low > 0.1, random
