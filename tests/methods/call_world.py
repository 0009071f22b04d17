"""A program of two calls that a small softmax policy answers: each call writes one of five or six words.

`additive`: each call that writes "sound" pays half of the reward. `matching`: the reward is 1 where the answer repeats the plan,
which the answering prompt reads.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.environments.worlds import Scripted
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.environments.program import ProgramEnvironment, as_program, program_of
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import Sample
from whet.types import Example, Reward

WORDS = ("muddled", "sound", "vague", "long", "late")
PLANS = (*WORDS, "bare")  # no answer repeats the last one
START = Prompt.of_parts({"plan": "Plan {{input}}.", "answer": "Answer {{input}} by the plan {{plan}}."})


async def two_calls(lm: Any, prompts: Any, example: Any) -> str:
    plan = await lm("plan")
    return f"{plan}/{await lm('answer', plan=plan)}"


@dataclass(frozen=True)
class TwoWords:
    """What two words earn."""

    matching: bool = False
    name: str = "two_words"
    low: float = 0.0
    high: float = 1.0
    needs = ExactMatch().needs

    async def grade(self, run: Any, example: Any, completion: Any) -> Reward:
        plan, _, answer = completion.text.partition("/")
        if self.matching:
            return Reward(float(plan == answer))
        return Reward(((plan == "sound") + (answer == "sound")) / 2)


def call_world(matching: bool = False, rows: int = 6, program: Any = two_calls) -> ProgramEnvironment:
    """Rows that differ in nothing but a number."""
    examples = tuple(Example(f"r{i}", {"input": f"row {i}"}, None, {}, f"row {i}") for i in range(rows))
    cut = rows * 2 // 3
    reward: Any = TwoWords(matching)
    model: Any = Scripted(lambda request: "late")
    env = Environment(model, reward, examples[:cut], examples[cut:])
    return as_program(env, program_of(program, "program"))


def words_of(conversation: Any) -> list[str]:
    """The words of a call. Those of an answer stand in another order for each plan, which makes distributions of their own."""
    text = conversation[-1].content
    if text.startswith("Plan"):
        return [*PLANS]
    first = next(i for i, word in enumerate(PLANS) if text.endswith(f"{word}."))
    return [*WORDS[first:], *WORDS[:first]]


def blind_words_of(conversation: Any) -> list[str]:
    """The same, but answers do not depend on the plan."""
    return [*PLANS] if conversation[-1].content.startswith("Plan") else [*WORDS]


class Reader(Scribe):
    """A Scribe whose samples say which conversation they answer, as those of a network do."""

    def sample(self, conversations: Sequence[Any], n: int = 1, **how: Any) -> list[list[Sample]]:
        read = [zlib.crc32(conversation[-1].content.encode()) for conversation in conversations]
        groups = super().sample(conversations, n, **how)
        return [
            [replace(sample, prompt=(*sample.prompt, text)) for sample in group]
            for text, group in zip(read, groups, strict=True)
        ]


def policy(matching: bool = False) -> Any:
    """An untrained policy."""
    return Reader(words_of if matching else blind_words_of)


def worth(trained: Any, matching: bool = False) -> float:
    """What the policy earns on average."""
    plans = dict(zip(WORDS, trained.probabilities([*PLANS]), strict=False))
    if matching:
        return float(sum(p * trained.probabilities(words_of([_said(w)]))[0] for w, p in plans.items()))
    return float(plans["sound"] + trained.probabilities([*WORDS])[1]) / 2


@dataclass(frozen=True)
class _Said:
    content: str


def _said(word: str) -> _Said:
    return _Said(f"Answer row 0 by the plan {word}.")


# A program of six calls, each of which pays a sixth of the reward where it writes "sound".

MANY = {f"part{n}": f"Write part {n} of {{{{input}}}}." for n in range(6)}
MANY_START = Prompt.of_parts(MANY)


async def six_calls(lm: Any, prompts: Any, example: Any) -> str:
    return "/".join([await lm(name) for name in MANY])


@dataclass(frozen=True)
class SoundShare(TwoWords):
    """The share of sound words."""

    async def grade(self, run: Any, example: Any, completion: Any) -> Reward:
        return Reward(completion.text.split("/").count("sound") / len(MANY))


def many_world() -> ProgramEnvironment:
    """The rows of the other worlds, under the program of six calls."""
    env = call_world(program=six_calls)
    reward: Any = SoundShare()
    return replace(env, reward=reward)


def part_words_of(conversation: Any) -> list[str]:
    """The words of a part, in an order of its own, which makes distributions of their own."""
    return part_words(int(conversation[-1].content.split()[2]))


def part_words(number: int) -> list[str]:
    return [*PLANS[number:], *PLANS[:number]]


def many_worth(trained: Any) -> float:
    """What the policy earns on average."""
    chances = [trained.probabilities(part_words(n))[part_words(n).index("sound")] for n in range(len(MANY))]
    return float(sum(chances)) / len(MANY)
