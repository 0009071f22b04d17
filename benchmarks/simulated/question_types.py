"""Questions with one of six types, which a model must be told: a world in which a start prompt earns nothing. SIMULATED models.

Every question is about one topic, and every topic has one type. The simulated task model answers with a type only where the
prompt names it. It knows the type of a third of the topics by itself, takes each other one for a certain wrong type, and
follows a line that names a topic and a type. The simulated optimizer writes such a line for each of the first few failures
that it is shown, at times with a wrong type; it forgets a line now and then, and lists the types that it has seen.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from whet.environments.environment import Environment
from whet.models.language_model import AnswersOnly
from whet.prompt import Prompt
from whet.run import Run
from whet.testing.paired_benchmark import KnownWorld
from whet.types import Completion, Example, Request, Reward, content_hash

TYPES = ("abbreviation", "description", "entity", "human", "location", "number")
_TOPICS = (
    "rivers kings letters recipes bridges prices islands actors insects wars rockets songs colours "
    "coins poets planets codes harbours"
)
TOPICS = tuple(_TOPICS.split())
START = "Answer."
LEAST = 3
SLIP, GARBLED, FORGOTTEN = 0.05, 0.15, 0.08
_ABOUT = re.compile(r"about (\w+)")
_WANTED = re.compile(r'exactly "(\w+)"')
_LISTED = re.compile(r"(?m)^- (\w+)$")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class QuestionTypes:
    """The types of the topics by `seed`, and how many failures the optimizer takes up in a reply (`capacity`)."""

    seed: int
    capacity: int = 4

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each topic."""
        topics = random.Random(f"types {self.seed}").sample(TOPICS, len(TOPICS))
        return {topic: TYPES[n % len(TYPES)] for n, topic in enumerate(topics)}

    @cached_property
    def first_thought(self) -> dict[str, str]:
        """What the task model takes a topic for that it is told nothing about."""
        rng = random.Random(f"thoughts {self.seed}")
        known = set(list(self.types)[: len(TOPICS) // LEAST])
        others = {topic: [name for name in TYPES if name != own] for topic, own in self.types.items()}
        return {t: own if t in known else rng.choice(others[t]) for t, own in self.types.items()}

    def rows(self, count: int, first: int = 0) -> tuple[Example, ...]:
        """Questions, numbered from `first`."""
        rows = []
        for n in range(first, first + count):
            topic = random.Random(f"row {self.seed} {n}").choice(TOPICS)
            text = f"Question {n}: what would you tell a friend about {topic}?"
            rows.append(Example(f"q{n}", {"input": text}, self.types[topic], {"input": text}, text))
        return tuple(rows)

    def answer(self, prompt: str, question: str) -> str:
        """The task model's answer."""
        rng = random.Random(content_hash([self.seed, prompt, question]))
        named = [name for name in TYPES if name in set(_WORDS.findall(prompt))]
        if not named:
            return "A friend would like to hear a lot of things."
        topic = _ABOUT.findall(question)[-1]
        thought = stated_types(prompt).get(topic) or self.first_thought[topic]
        thought = thought if thought in named else named[0]
        return rng.choice(named) if rng.random() < SLIP else thought

    def rewrite(self, question: str, sample: int) -> str:
        """The optimizer's new instruction."""
        rng = random.Random(content_hash([self.seed, question, sample]))
        opened = re.search(r"<(instructions|INSTRUCTION)>\n(.*?)\n?</\1>", question, re.DOTALL)
        fenced = re.search(r"```\n(.*?)\n```", question, re.DOTALL)
        shown = opened[2] if opened else fenced[1] if fenced else START
        told = [*_LISTED.findall(question), *_WANTED.findall(question)]
        lines = [line for line in shown.split("\n") if rng.random() > FORGOTTEN and "one of" not in line]
        failures = [
            (_ABOUT.findall(text)[-1], wanted)
            for text, wanted in zip(_WANTED.split(question)[::2], _WANTED.findall(question), strict=False)
            if _ABOUT.search(text)
        ]
        named = [name for name in TYPES if name in {*told, *_WORDS.findall(shown)}]
        for topic, wanted in list(dict.fromkeys(failures))[: self.capacity]:
            lines.append(f"About {topic}: {rng.choice(named) if rng.random() < GARBLED else wanted}")
        return "\n".join([*lines, f"Answer with one of {', '.join(named)}."])


def stated_types(prompt: str) -> dict[str, str]:
    """The type that a prompt states for topics: a line, or a demonstration, that names a topic and one type."""
    known: dict[str, str] = {}
    for line in re.sub(r"\nAnswer: ", " ", prompt).split("\n"):
        words = set(_WORDS.findall(line))
        types, topics = words & set(TYPES), words & set(TOPICS)
        if len(types) == len(topics) == 1:
            known[topics.pop()] = types.pop()
    return known


@dataclass(frozen=True)
class RightType:
    """1 for the right type and nothing else. The critique names it."""

    name: str = "right_type"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """Compare."""
        right = completion.text == example.target
        return Reward(
            float(right), critique=None if right else f'The right answer is exactly "{example.target}".'
        )


@dataclass
class Simulated(AnswersOnly):
    """A model of the world: the task model, or the optimizer where it `writes`."""

    world: QuestionTypes
    writes: bool = False
    address: str = "scripted/question-types"
    simulated: bool = True
    local: bool = True
    calls: int = field(default=0)

    async def generate(self, request: Request) -> list[Completion]:
        """The answer to the last message."""
        self.calls += 1
        text = "\n\n".join(m.content for m in request.messages)
        if self.writes:
            return [Completion(f"<INSTRUCTION>\n{self.world.rewrite(text, request.sample)}\n</INSTRUCTION>")]
        prompt, _, question = text.rpartition("\n\nQuestion ")
        return [Completion(self.world.answer(prompt, question))]

    def count_tokens(self, text: str) -> int:
        """A quarter of the characters."""
        return -(-len(text) // 4)

    async def close(self) -> None:
        """Nothing is held open."""


def world(seed: int, *, train: int = 60, validation: int = 28, start: str = START) -> KnownWorld:
    """The task with its simulated models; what a prompt is worth is its accuracy on 300 other questions."""
    law = QuestionTypes(seed)
    source = f"Look at this question.\n<!-- whet:begin -->\n{start}\n<!-- whet:end -->\n\n{{{{input}}}}"
    model: Any = Simulated(law)
    rows = law.rows(train), law.rows(validation, train)
    env = Environment(model, RightType(), *rows)
    return KnownWorld(env, Prompt.parse(source), lambda p: worth(law, p), Simulated(law, writes=True))


def worth(law: QuestionTypes, prompt: Prompt) -> float:
    """Share of right answers on questions that no search has seen."""
    fresh = law.rows(300, 10_000)
    outputs = [
        law.answer(*_split_question("\n\n".join(m.content for m in prompt.render(row)))) for row in fresh
    ]
    return fmean(out == row.target for out, row in zip(outputs, fresh, strict=True))


def _split_question(text: str) -> Sequence[str]:
    prompt, _, question = text.rpartition("\n\nQuestion ")
    return prompt, question
