"""A simulated world of two kinds of rows: a phrase that helps the one kind harms the other; both together help a little."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from whet.environments.environment import Environment
from whet.methods import OPTIMIZER, OPTIMIZER_OPTIONAL, configure, get_method
from whet.models.scripted import chance, load
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Example

START = Prompt.parse("You help.\n<!-- whet:begin -->\nDo it.\n<!-- whet:end -->\nQuestion: {{input}}")
HELPS = {"sum": PHRASES[0], "word": PHRASES[1]}
"""The phrase that helps each kind."""
FORMS = {
    "sum": ("What is {a} plus {b}?", "Add {a} to {b}.", "The sum of {a} and {b}, please.", "{a} + {b} = ?"),
    "word": (
        "Write the name of town {a} backwards.",
        "Spell street {a} in capitals.",
        "Which letter begins city {a}?",
        "Name a river near village {a}.",
    ),
}
PLAIN, GAIN, HARM = 0.5, 0.4, 0.35


def row(number: int, seed: int = 0) -> Example:
    """A row; the kinds come by turns."""
    kind = kind_of(number)
    form = FORMS[kind][int(4 * chance(seed, "form", number))]
    text = form.format(a=number, b=int(1000 * chance(seed, "b", number)))
    return Example(f"row-{number}", {"input": text}, f"right {number}", {"input": text}, text)


def kind_of(number: int) -> str:
    """The kind of a row."""
    return ("sum", "word")[number % 2]


def share_right(kind: str, prompt: str) -> float:
    """How often the task model is right about a kind under a prompt."""
    other = next(one for one in HELPS if one != kind)
    return PLAIN + GAIN * (HELPS[kind] in prompt) - HARM * (HELPS[other] in prompt)


@dataclass(frozen=True)
class TwoKinds:
    """The world of a seed: a task, and what a result is worth on rows that nobody saw."""

    seed: int
    env: Environment

    def worth(self, method: str, candidate: Candidate, run: MeteredRun, config: Any) -> float:
        """How often a result is right on 400 fresh rows."""
        fresh = [row(number, self.seed) for number in range(10_000, 10_400)]
        texts = [candidate.prompt.region_text()] * len(fresh)
        if candidate.system is not None:
            deploy: Any = get_method(method).deploy
            there = deploy(self.env, None, run.kept[candidate.system], config)
            texts = asyncio.run(there.texts(run, candidate.prompt, fresh))
        numbers = [int(one.id.removeprefix("row-")) for one in fresh]
        return fmean(share_right(kind_of(n), text) for n, text in zip(numbers, texts, strict=True))

    def play(
        self, method: str, limits: Budget, settings: Mapping[str, Any]
    ) -> tuple[float, Candidate, MeteredRun]:
        """What a method finds within limits is worth, what it is, and its run."""
        loaded = get_method(method)
        config = configure(loaded, settings)
        models = {
            "task": self.env.model,
            "optimizer": load("phrases", {"seed": str(self.seed), "phrases": "|".join(PHRASES[:6])}),
        }
        run = MeteredRun(models, self.seed, limits=limits)
        writes = OPTIMIZER in loaded.entry.needs or OPTIMIZER_OPTIONAL in loaded.entry.needs

        async def search() -> Candidate:
            found: Candidate = await loaded.coroutine(
                run, self.env, LanguagePolicy() if writes else None, START, config
            )
            return found

        best = asyncio.run(search())
        assert run.spent["task"] <= (limits.task_calls or 10**9)
        return self.worth(method, best, run, config), best, run


def answer(seed: int, question: str, sample: int = 0) -> str:
    """What the task model of a seed says to a rendered prompt: right or wrong by chance."""
    prompt, _, text = question.rpartition("Question: ")
    (number, *_) = map(int, re.findall(r"\d+", text))
    right = chance(seed, "right", number, prompt, sample) < share_right(kind_of(number), prompt)
    return f"right {number}" if right else "wrong"


def two_kinds(seed: int, train: int = 160, validation: int = 60) -> TwoKinds:
    """The world of a seed."""
    rows = [row(number, seed) for number in [*range(train), *range(1000, 1000 + validation)]]
    env = Environment(Answers(partial(answer, seed)), ExactMatch(), tuple(rows[:train]), tuple(rows[train:]))
    return TwoKinds(seed, env)
