"""A simulated stream of inputs of kinds whose rules contradict each other, and an optimizer that writes items from answers.

An answer is a digit from 0 to 3. The task model follows the digits that its prompt names, whatever kind they were meant for:
one of them by chance where there are several. What a prompt says not to answer it leaves out. It knows no kinds.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

from whet.environments.environment import Environment
from whet.methods import configure, get_method
from whet.models.scripted import Scripted, chance, load
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Example, Request

START = Prompt.parse("<!-- whet:begin -->\nAnswer with a digit.\n<!-- whet:end -->\nQuestion: {{input}}")
FORMS = (
    ("What does postman {a} carry to house {b}?", "Postman {a} goes to house {b}. With what?"),
    ("Which train leaves platform {a} at {b} o'clock?", "From platform {a}, what leaves at {b} o'clock?"),
    ("How heavy is parcel {a} from shelf {b}?", "Parcel {a}, shelf {b}: which weight has it?"),
    ("Who lives above flat {a}, on floor {b}?", "Above flat {a} on floor {b} lives who?"),
    ("Under which roof do owl {a} and bat {b} sleep?", "Where do owl {a} and bat {b} sleep?"),
    ("Why did ship {a} turn back from harbour {b}?", "Ship {a} turned back from harbour {b}. Why?"),
)
OBEYS = 0.9
"""How often the task model follows what its prompt names."""
DIGITS, KNOWS = 4, 0.4
DO, NOT = re.compile(r"Answer with the digit (\d)\."), re.compile(r"Never answer with the digit (\d)\.")


def kind_of(number: int, seed: int) -> int:
    """The kind of a row."""
    return int(len(FORMS) * chance(seed, "kind", number))


def digit(seed: int, kind: int) -> int:
    """The right answer to a kind; each digit is right for some kind."""
    return (kind + int(DIGITS * chance(seed, "turn"))) % DIGITS


def row(number: int, seed: int) -> Example:
    """A row of the stream."""
    kind = kind_of(number, seed)
    form = FORMS[kind][int(2 * chance(seed, "form", number))]
    text = form.format(a=number, b=int(1000 * chance(seed, "b", number)))
    return Example(f"row-{number}", {"input": text}, str(digit(seed, kind)), {"input": text}, text)


def share_right(right: int, prompt: str) -> float:
    """How often the task model is right under a prompt."""
    named = [int(one) for one in DO.findall(prompt)]
    if named:
        return OBEYS * named.count(right) / len(named) + (1 - OBEYS) / DIGITS
    barred = {int(one) for one in NOT.findall(prompt)}
    weights = {
        d: KNOWS if d == right else (1 - KNOWS) / (DIGITS - 1) for d in range(DIGITS) if d not in barred
    }
    return weights.get(right, 0.0) / sum(weights.values()) if weights else 1 / DIGITS


def answer(seed: int, question: str, sample: int = 0) -> str:
    """What the task model of a seed says to a rendered prompt."""
    prompt, _, text = question.rpartition("Question: ")
    number = int(re.findall(r"\d+", text)[0])
    right = digit(seed, kind_of(number, seed))
    named = [int(one) for one in DO.findall(prompt)]
    if named:
        obeys = chance(seed, "obeys", number, prompt, sample) < OBEYS
        chosen = named if obeys else range(DIGITS)
        return str(chosen[int(len(chosen) * chance(seed, "which", number, prompt, sample))])
    if chance(seed, "right", number, prompt, sample) < share_right(right, prompt):
        return str(right)
    barred = {int(one) for one in NOT.findall(prompt)} | {right}
    others = [d for d in range(DIGITS) if d not in barred] or [(right + 1) % DIGITS]
    return str(others[int(len(others) * chance(seed, "wrong", number, prompt, sample))])


class ItemWriter(Scripted):
    """Writes an item from an answer. It names the digit that was wanted where it sees that, else the one that was right or, after
    a wrong answer, the one that must not come again. Of several right answers it names the most frequent one.

    As a judge it is wrong with the probability `error`."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"error": "0"}

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        text = re.findall(r"^Input: (.*)$", question, re.MULTILINE)[-1]
        answers = re.findall(r"^Answered: (\d)$", question, re.MULTILINE)
        wanted = re.findall(r"^Wanted: (\d)$", question, re.MULTILINE)
        if "<VERDICT>" in question:
            number = int(re.findall(r"\d+", text)[0])
            right = answers[-1] == str(digit(self.seed, kind_of(number, self.seed)))
            wrong = chance(self.seed, "judge", text, answers[-1]) < self.option_float("error")
            return f"<VERDICT>{json.dumps({'why': 'I looked.', 'right': right != wrong})}</VERDICT>"
        right = re.findall(r"^Answered: (\d)\n(?:Judged right|Reward: 1$)", question, re.MULTILINE)
        if not wanted and not right:
            return f"<ITEM>A mistake\nFor like inputs.\n\nNever answer with the digit {answers[-1]}.</ITEM>"
        (best, _), *_ = Counter(wanted or right).most_common(1)
        return f"<ITEM>What is right\nFor like inputs.\n\nAnswer with the digit {best}.</ITEM>"


@dataclass(frozen=True)
class Kinds:
    """The world of a seed: a task, the models, and what a result is worth on rows that nobody saw."""

    seed: int
    env: Environment
    writer: Scripted

    def worth(self, method: str, candidate: Candidate, run: MeteredRun, config: Any) -> float:
        """How often a result is right on 300 fresh rows."""
        fresh = [row(number, self.seed) for number in range(10_000, 10_300)]
        texts = [candidate.prompt.region_text()] * len(fresh)
        if candidate.system is not None:
            deploy: Any = get_method(method).deploy
            there = deploy(self.env, None, run.kept[candidate.system], config)
            texts = asyncio.run(there.texts(run, candidate.prompt, fresh))
        return fmean(share_right(int(str(e.target)), text) for e, text in zip(fresh, texts, strict=True))

    def play(
        self, method: str, limits: Budget, settings: Mapping[str, Any]
    ) -> tuple[float, Candidate, MeteredRun]:
        """What a method finds within limits is worth, what it is, and its run."""
        loaded = get_method(method)
        config = configure(loaded, settings)
        writer = self.writer
        if method != "reasoning_bank":
            digits = [f"Answer with the digit {d}." for d in range(DIGITS)]
            options = {"seed": str(self.seed), "phrases": "|".join([*digits, *PHRASES[:4]])}
            writer = load("phrases", options)  # type: ignore[assignment]
        run = MeteredRun({"task": self.env.model, "optimizer": writer}, self.seed, limits=limits)
        best: Candidate = asyncio.run(
            loaded.coroutine(run, self.env, LanguagePolicy(), START, config)  # type: ignore[arg-type]
        )
        assert run.spent["task"] <= (limits.task_calls or 10**9)
        return self.worth(method, best, run, config), best, run


def kinds(seed: int, error: float = 0.0, train: int = 120, validation: int = 40) -> Kinds:
    """The world of a seed, with a judge that is wrong so often."""
    rows = [row(number, seed) for number in [*range(train), *range(1000, 1000 + validation)]]
    env = Environment(Answers(partial(answer, seed)), ExactMatch(), tuple(rows[:train]), tuple(rows[train:]))
    return Kinds(seed, env, ItemWriter("writer", {"seed": str(seed), "error": str(error)}))
