"""A simulated task without targets: answers tell their quality, a judge compares them, an optimizer changes phrases at random."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from whet.environments.environment import Environment
from whet.models.scripted import chance, shuffle
from whet.prompt import Prompt
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers, reviews
from whet.types import Reward

START = Prompt.parse("Write about it.\n<!-- whet:begin -->\nWrite a text.\n<!-- whet:end -->\n{{input}}")
GOOD = PHRASES[:8]
QUALITY = re.compile(
    r"Answer of system (\d) to input \d+, between the two markers:\n\[\[\w+\]\]\nquality ([\d.]+)"
)


def quality(prompt: str) -> float:
    """How good the answers under a prompt are: eight phrases help, the others hinder."""
    return 0.3 + sum(0.08 if phrase in GOOD else -0.08 for phrase in PHRASES if phrase in prompt)


class Quality:
    """The reward is the quality that an answer tells, for rows of validation; training rows have none."""

    name, low, high, needs = "quality", -2.0, 2.0, frozenset[str]()

    async def grade(self, run: Any, example: Any, completion: Any) -> Any:
        assert example.id.startswith("review-10"), "the reward of a training row was asked for"
        return Reward(float(completion.text.split()[1]))


def verdict(question: str, seed: int, sample: int, bias: float, noise: float) -> str:
    """The set of higher quality, with noise and a liking for the first place."""
    sums = {"1": bias, "2": 0.0}
    for system, value in QUALITY.findall(question):
        sums[system] += float(value) + noise * (chance(seed, sample, question, system, value) - 0.5)
    return f"<BETTER>{max(sums, key=lambda name: sums[name])}</BETTER>"


def coin(seed: int) -> Callable[[str, int], str]:
    """A judge who tosses a coin."""
    return lambda question, sample: f"<BETTER>{1 + (chance(seed, question, sample) < 0.5)}</BETTER>"


def world(
    seed: int, judge: Callable[[str, int], str] | None = None, noise: float = 0.3, changes: int = 1
) -> KnownWorld:
    """An optimizer that changes phrases at random, and a judge who sees how good answers are."""

    def task(question: str, sample: int) -> str:
        prompt, row = question.split("<!--")[0], question.splitlines()[-1]
        return f"quality {quality(prompt) + 0.2 * (chance(seed, row) - 0.5):.4f} on {row}"

    def optimizer(question: str, sample: int) -> str:
        if "<BETTER>" in question:
            return judge(question, sample) if judge else verdict(question, seed, sample, 0.0, noise)
        text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
        for phrase in shuffle(PHRASES, seed, sample, question)[:changes]:
            text = text.replace(phrase, "") if phrase in text else f"{text} {phrase}"
        return f"<INSTRUCTION>{' '.join(text.split())}</INSTRUCTION>"

    rows = tuple(replace(row, target=None) for row in reviews(40))
    env = Environment(Answers(task), Quality(), rows, reviews(8, 1000))
    return KnownWorld(env, START, lambda p: quality(p.source), Answers(optimizer))
