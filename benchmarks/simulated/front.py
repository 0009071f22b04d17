"""A task whose front is known: each of sixteen words in a prompt moves accuracy and length of the answers by a law.

Accuracy and length are sums over the words of the prompt, so the worth of all 65,536 prompts can be listed, and with it
the true front. The simulated optimizer knows what a word is good for with the probability `skill`, asked for one objective;
else it changes a word at random.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whet.environments.environment import Environment
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rewards.text import ExactMatch
from whet.stats import Bound, Goal
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Usage

START = Prompt.parse("<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\nQuestion: {{input}}")
WORDS = tuple(f"word{i:02d}" for i in range(16))
BASE, LOWEST, HIGHEST = 0.4, 0.02, 0.98
TOKENS, SHORTEST, LONGEST = 100.0, 20.0, 220.0
ACCURACY, LENGTH = "accuracy", "length"

Point = tuple[float, float]
"""Accuracy and length."""


@dataclass(frozen=True)
class FrontLaw:
    """The law of one seed: what each word adds to accuracy and to length."""

    seed: int

    @cached_property
    def effects(self) -> list[Point]:
        """A third of the words trade length for accuracy, a third accuracy for length; the rest does harm, or good, in both."""
        rng = random.Random(f"front|{self.seed}")
        kinds = [(1, 1)] * 5 + [(-1, -1)] * 5 + [(1, -1)] * 2 + [(-1, 1)] * 4
        return [(a * rng.uniform(0.02, 0.12), t * rng.uniform(4.0, 20.0)) for a, t in kinds]

    def truth(self, words: Iterable[str]) -> Point:
        """The expected accuracy and length of a prompt with these words."""
        held = [self.effects[WORDS.index(word)] for word in set(words)]
        accuracy, length = BASE + sum(a for a, _ in held), TOKENS + sum(t for _, t in held)
        return min(HIGHEST, max(LOWEST, accuracy)), min(LONGEST, max(SHORTEST, length))

    def points(self) -> list[Point]:
        """The truth of every prompt."""
        bits = (np.arange(2 ** len(WORDS))[:, None] >> np.arange(len(WORDS))) & 1
        sums = bits @ np.array(self.effects) + np.array([BASE, TOKENS])
        low, high = np.array([LOWEST, SHORTEST]), np.array([HIGHEST, LONGEST])
        return [(float(a), float(t)) for a, t in np.clip(sums, low, high)]

    def answer(self, question: str, sample: int) -> Completion:
        """One answer under a prompt: right or wrong, long or short, by its words and the luck of the question."""
        prompt, _, row = question.partition("Question: ")
        words = words_in(prompt)
        accuracy, length = self.truth(words)
        luck = [chance(self.seed, kind, row, sample, *sorted(words)) for kind in ("right", "long")]
        text = "yes" if 0.7 * chance(self.seed, row) + 0.3 * luck[0] < _quantile(accuracy) else "no"
        return Completion(text, usage=Usage(10, max(1, round(length * (0.7 + 0.6 * luck[1])))))


def _quantile(p: float) -> float:
    """The value that 0.7 u + 0.3 v, with u and v uniform on [0, 1], is below with probability p."""
    a, b = 0.7, 0.3
    edge = b / (2 * a)
    if p < edge:
        return float((2 * a * b * p) ** 0.5)
    if p > 1 - edge:
        return float(1 - (2 * a * b * (1 - p)) ** 0.5)
    return a * p + b / 2


def words_in(text: str) -> set[str]:
    """The words of the law in a text."""
    return set(re.findall(r"word\d\d", text)) & set(WORDS)


def with_words(words: Iterable[str]) -> Prompt:
    """The prompt that holds these words."""
    return START.edit("Answer. " + " ".join(sorted(set(words))) + "\n")


def optimizer(law: FrontLaw, skill: float, directed: bool = True) -> Answers:
    """A model that changes one word: what it is asked to serve by `skill`, or anything; undirected, it serves either objective
    whatever it is asked."""

    def answer(question: str, sample: int) -> str:
        text = question.partition("<INSTRUCTION>")[2].partition("</INSTRUCTION>")[0]
        now, key = words_in(text), (law.seed, question, sample)
        aim = int(f"nothing else: {LENGTH}" in question) if directed else int(chance("aim", *key) < 0.5)
        serves = [
            w
            for w, effect in zip(WORDS, law.effects, strict=True)
            if (effect[aim] > 0) != (w in now) and not aim
        ]
        serves += [
            w for w, effect in zip(WORDS, law.effects, strict=True) if (effect[aim] < 0) != (w in now) and aim
        ]
        pool = serves if serves and chance("skill", *key) < skill else WORDS
        word = pool[int(chance("word", *key) * len(pool))]
        return f"<PROMPT>Answer. {' '.join(sorted(now ^ {word}))}</PROMPT>"

    return Answers(answer)


SHOWN = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", re.DOTALL)


def crosser(seed: int) -> Answers:
    """A model that knows nothing: it joins the words of two texts (one that only one of them has by a coin), changes one or two
    words of a single text, and writes half of the words where it is shown none."""

    def answer(question: str, sample: int) -> str:
        texts, key = [words_in(text) for text in SHOWN.findall(question)], (seed, question, sample)
        if len(texts) > 1:
            now = {
                w for w in WORDS if chance("joined", w, *key) < sum(w in text for text in texts) / len(texts)
            }
        elif texts:
            changed = 1 + (chance("two", *key) < 0.5)
            order = sorted(WORDS, key=lambda word: chance("changed", word, *key))
            now = texts[0] ^ set(order[:changed])
        else:
            now = {word for word in WORDS if chance("first", word, *key) < 0.5}
        return f"<INSTRUCTION>Answer. {' '.join(sorted(now))}</INSTRUCTION>"

    return Answers(answer)


def world(seed: int, skill: float = 0.6, directed: bool = True, weight: float = 1.0) -> KnownWorld:
    """The task of a seed. `weight` is that of accuracy beside length; a prompt's worth is the weighted sum that is climbed."""
    law = FrontLaw(seed)
    items = (
        Objective(Goal(ACCURACY, maximise=True, width=1.0, margin=0.99), part=0, weight=weight),
        Objective(
            Goal(LENGTH, maximise=False, bounds=(Bound(True, LONGEST, False),)), metric="output_tokens"
        ),
    )
    reward = Objectives([(1.0, ExactMatch())], items=items, baseline={ACCURACY: BASE, LENGTH: TOKENS})
    rows = [
        Example(f"r{i}", {"input": f"{seed}-{i}"}, "yes", {"input": f"{seed}-{i}", "target": "yes"})
        for i in range(90)
    ]
    env = Environment(Answers(law.answer), reward, tuple(rows[:60]), tuple(rows[60:]))

    def worth(prompt: Prompt) -> float:
        truth = dict(zip((ACCURACY, LENGTH), law.truth(words_in(prompt.source)), strict=True))
        total = sum(i.weight * i.worth(truth[i.name], reward.baseline[i.name]) for i in items)
        return total / (1.0 + weight)

    return KnownWorld(env, START, worth, optimizer(law, skill, directed))


def not_dominated(points: Sequence[Point]) -> list[int]:
    """Positions of the points that no other is at least as good as in both and better in one; of equal ones the first."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], points[i][1]))
    kept, shortest = [], float("inf")
    for i in order:
        if points[i][1] < shortest:
            kept.append(i)
            shortest = points[i][1]
    return kept


def hypervolume(points: Sequence[Point]) -> float:
    """The area that points dominate, up to accuracy 0 and the longest answer, as a share of the whole."""
    area, top = 0.0, 0.0
    for accuracy, length in sorted((points[i] for i in not_dominated(points)), key=lambda p: p[1]):
        area += max(0.0, accuracy - top) * (LONGEST - length)
        top = max(top, accuracy)
    return area / (LONGEST - 0.0)
