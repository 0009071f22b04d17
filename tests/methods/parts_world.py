"""A simulated reward with parts: six of twelve words are good, six bad, and the model acts by the first six that it reads.

The task's reward is the share of good words, or with `rare` 1 for five of them and else 0. Its parts: `near`, the share of good
words; `astray`, that of bad ones; `noise`, which says nothing. The writer changes the best text that it is shown by one word.
"""

from __future__ import annotations

import re
from typing import Any

from whet.environments.environment import Environment
from whet.models.scripted import chance, choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Reward

WORDS = tuple(f"word{n:02}" for n in range(12))
READ = 6
START = Prompt.parse("Work.\n<!-- whet:begin -->\nDo it.\n<!-- whet:end -->\n{{input}}")


def good_words(seed: int) -> set[str]:
    """The good ones."""
    return {*shuffle(WORDS, seed)[:6]}


class Parted:
    """The reward and its parts."""

    name, low, high, needs = "parted", 0.0, 1.0, frozenset[str]()

    def __init__(self, seed: int, rare: bool) -> None:
        self.seed, self.good, self.rare = seed, good_words(seed), rare

    def value(self, words: list[str]) -> float:
        """The reward of words."""
        near = len({*words} & self.good) / 6
        return float(near > 0.8) if self.rare else near

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        words = completion.text.split()
        near, astray = len({*words} & self.good) / 6, len({*words} - self.good) / 6
        noise = chance(self.seed, completion.text, "noise")
        return Reward(self.value(words), {"near": near, "astray": astray, "noise": noise})


def writer(seed: int) -> Any:
    """Takes a word in, at the front, or out."""

    def write(question: str, sample: int) -> str:
        text = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)[-1]
        words = re.findall(r"word\d\d", text)
        new = choose_by_luck([word for word in WORDS if word not in words] or WORDS, seed, sample, text)
        drop = choose_by_luck(words, seed, sample, "drop") if len(words) >= READ else ""
        return (
            f"<INSTRUCTION>Do it. {' '.join([new, *(word for word in words if word != drop)])}</INSTRUCTION>"
        )

    return write


def parts_world(seed: int, rare: bool = False) -> KnownWorld:
    """The world of a seed."""
    rows = [Example(f"r{n}", {"input": f"row {n}"}, text=f"row {n}") for n in range(12)]
    task = Answers(lambda question, sample: " ".join(re.findall(r"word\d\d", question)[:READ]) or "none")
    reward = Parted(seed, rare)
    env = Environment(task, reward, tuple(rows[:6]), tuple(rows[6:]))

    def worth(prompt: Prompt) -> float:
        return reward.value(re.findall(r"word\d\d", prompt.source)[:READ])

    return KnownWorld(env, START, worth, Answers(writer(seed)))
