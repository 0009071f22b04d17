"""A simulated ladder of skills: a row has a level, and a prompt the rules for some levels.

A row whose rule the prompt has is always solved. One level above the highest rung that the rules reach without a gap, an
answer is right by luck; further up never. The reader of answers learns the rule of a row from a right answer beside a wrong
one, most of the time, and from nothing else. The creator changes the level of a row by one. No row has a target.
"""

from __future__ import annotations

import re
from typing import Any

from whet.environments.environment import Environment
from whet.models.scripted import chance, choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Reward

LEVELS, LUCK, READS = 10, 0.5, 0.8
START = Prompt.parse("Solve it.\n<!-- whet:begin -->\nRule 1 holds.\n<!-- whet:end -->\n{{input}}")
RULE = re.compile(r"Rule (\d+) holds\.")


class Solved:
    """1 for an answer that says that it is right: no target is needed."""

    name, low, high, needs = "solved", 0.0, 1.0, frozenset[str]()

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        return Reward(float(completion.text.startswith("right")))


def rung(prompt: str) -> int:
    """The highest level up to which a prompt has all rules."""
    rules = {int(n) for n in RULE.findall(prompt)}
    return next(level for level in range(LEVELS + 1) if level + 1 not in rules)


def solver(seed: int) -> Any:
    """Answers a row by its level and the rules above it."""

    def answer(question: str, sample: int) -> str:
        level = int(re.findall(r"level (\d+)", question)[-1])
        gap = level - rung(question)
        right = gap <= 0 or (gap == 1 and chance(seed, question, sample) < LUCK)
        return f"{'right' if right else 'wrong'}, by rule {level}"

    return answer


def writer(seed: int) -> Any:
    """The optimizer: the creator of rows, and the reader of pairs of answers."""

    def write(question: str, sample: int) -> str:
        if "<ROW>" in question:
            level = int(re.findall(r"level (\d+)", question)[0])
            move = 1 if "harder" in question else -1 if "easier" in question else 0
            level = min(LEVELS, max(1, level + move))
            return f"<ROW>Puzzle {int(chance(seed, question, sample) * 1e6)} of level {level}</ROW>"
        text = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)[0]
        pairs = re.findall(r"Better [^:]*: right, by rule (\d+)\nWorse [^:]*: wrong", question)
        news = sorted({int(n) for n in pairs} - {int(n) for n in RULE.findall(text)})
        reads = bool(news) and chance(seed, question, sample, "reads") < READS
        added = (
            f"Rule {choose_by_luck(news, seed, sample)} holds."
            if reads
            else shuffle(PHRASES, seed, sample)[0]
        )
        return f"<INSTRUCTION>{text} {added}</INSTRUCTION>"

    return write


def ladder(seed: int, whole: bool = False) -> KnownWorld:
    """The world of a seed: training rows of the lowest levels and of levels out of reach, validation rows of all levels. `whole`:
    training rows of all levels too, so that there is nothing to add."""
    low = [1 + int(chance(seed, n) * 2) for n in range(20)]
    train = [1 + n % LEVELS for n in range(30)] if whole else [*low, *(LEVELS for _ in range(10))]
    rows = [
        Example(f"puzzle-{n}", {"input": f"Puzzle {n} of level {level}"}, text=f"Puzzle {n} of level {level}")
        for n, level in enumerate([*train, *(1 + n % LEVELS for n in range(40))])
    ]
    env = Environment(Answers(solver(seed)), Solved(), tuple(rows[:30]), tuple(rows[30:]))
    return KnownWorld(env, START, lambda prompt: rung(prompt.source) / LEVELS, Answers(writer(seed)))
