"""Simulated optimizers that live on what a meta-prompt shows, and the same without it: on scores, or on failed inputs.

Each writes prompts of the same stock phrases, the same number at a time; only what it reads tells which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import ClassVar

from whet.methods.protegi import CRITICISED
from whet.models.scripted import Scripted, chance, luck, request_text, shuffle
from whet.rewards.text import ExactMatch
from whet.run import Run
from whet.search.edits import PHRASES
from whet.types import Completion, Example, Request, Reward

SHOWN = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", re.DOTALL)
CHANGES = 2
"""Phrases that are added or taken out at a time."""
SCORED = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>\nScore: (-?\d+)", re.DOTALL)


class ScoreReader(Scripted):
    """Changes the text that scored best: takes in what did well in other texts, or is new, and takes out what did badly.

    A phrase is worth what the texts with it score above those without it. Of texts with equal scores any is changed.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        pairs = [(text, int(score)) for text, score in SCORED.findall(request_text(request))]
        draw = luck(request, sample)

        def worth(phrase: str) -> float:
            having = [score for text, score in pairs if phrase in text]
            lacking = [score for text, score in pairs if phrase not in text]
            gain = fmean(having) - fmean(lacking) if having and lacking else 0.0
            return gain + 4.0 * gauss(self.seed, draw, phrase)

        base = max(pairs, key=lambda pair: (pair[1], chance(self.seed, draw, pair[0])))[0]
        present = {phrase for phrase in PHRASES if phrase in base}
        changed = sorted(PHRASES, key=lambda p: (-1.0 if p in present else 1.0) * worth(p), reverse=True)[
            :CHANGES
        ]
        for phrase in changed:
            base = base.replace(phrase, "") if phrase in present else f"{base} {phrase}"
        return f"<INSTRUCTION>{' '.join(base.split())}</INSTRUCTION>"


def gauss(*parts: object) -> float:
    """A draw from the standard normal distribution that depends on its arguments only."""
    radius = math.sqrt(-2 * math.log(1 - chance(*parts, "radius")))
    return radius * math.cos(2 * math.pi * chance(*parts, "angle"))


class Blinded:
    """An optimizer whose questions are changed before it reads them."""

    simulated, local, can_generate, can_score = True, True, True, False

    def __init__(self, inner: Scripted, change: Callable[[str], str]) -> None:
        self.address, self.inner, self.change = inner.address, inner, change

    async def generate(self, request: Request) -> list[Completion]:
        messages = tuple(replace(m, content=self.change(m.content)) for m in request.messages)
        return await self.inner.generate(replace(request, messages=messages))

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    async def close(self) -> None:
        return None


def without_scores(text: str) -> str:
    """A question in which every text has the same score."""
    return re.sub(r"(?m)^Score: -?\d+$", "Score: 50", text)


class Crosser(Scripted):
    """Crosses the texts that it is shown: a phrase of all of them stays, one of some stays by a coin. Then it takes in a phrase,
    or takes one out. Of a single text, or of none, it makes one with two phrases more."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        texts = SHOWN.findall(request_text(request)) or [""]
        draw = luck(request, sample)
        shares = {p: fmean(p in text for text in texts) for p in shuffle(PHRASES, self.seed, draw)}
        kept = [p for p, share in shares.items() if chance(self.seed, draw, p) < share]
        for number in range(1 if len(texts) > 1 else 2):
            phrase = list(shares)[int(len(PHRASES) * chance(self.seed, draw, "change", number))]
            kept = [p for p in kept if p != phrase] if phrase in kept else [*kept, phrase]
        return f"<INSTRUCTION>Say what the review is like. {' '.join(kept)}</INSTRUCTION>"


class Unscored(ExactMatch):
    """An exact match that tells a search nothing: all training rows of `review_world` have the same reward."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if int(example.id.rpartition("-")[2]) < 1000:
            return Reward(0.5)
        return await super().grade(run, example, completion)


TOPICS = 12
FAILED_INPUT = re.compile(r"(?m)^Input: (?:.* about )?topic-(\d+)\b.*$")
REASON = re.compile(r"nothing about topic-(\d+)")


class ErrorReader(Scripted):
    """Names the topic of most failed inputs that it is shown, and edits in the phrase that helps there: each topic has one.

    Asked for other words it puts the sentences in another order. Without a readable reason it takes in any phrase.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        if "<REASON>" in question:
            topics = FAILED_INPUT.findall(question) or ["none"]
            most = max(sorted(set(topics)), key=lambda t: (topics.count(t), chance(self.seed, draw, t)))
            return f"<REASON>The instruction says nothing about topic-{most}.</REASON>"
        text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
        if CRITICISED not in question:
            return f"<INSTRUCTION>{'. '.join(shuffle(text.split('. '), self.seed, draw))}</INSTRUCTION>"
        named = REASON.findall(question.split(CRITICISED)[1])
        index = int(named[0]) if named else int(chance(self.seed, draw) * len(PHRASES))
        return f"<INSTRUCTION>{text} {PHRASES[index]}</INSTRUCTION>"


class TopicModel(Scripted):
    """A classifier of inputs about 12 topics. Four of them, drawn by the seed, it does not understand (right on 10%) until the
    prompt holds the phrase of that topic; the others it does (90%). Each phrase costs 1% on all inputs."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    FAILING = 4

    @cached_property
    def hard(self) -> list[int]:
        """The topics that it does not understand."""
        return shuffle(range(TOPICS), self.seed, "hard")[: self.FAILING]

    def right(self, topic: int, prompt: str) -> float:
        """How often it is right on inputs about a topic."""
        cost = 0.01 * sum(phrase in prompt for phrase in PHRASES)
        return (0.1 if topic in self.hard and PHRASES[topic] not in prompt else 0.9) - cost

    def accuracy(self, prompt: str) -> float:
        """Expected accuracy of a prompt over all topics."""
        return fmean(self.right(topic, prompt) for topic in range(TOPICS))

    def answer(self, request: Request, sample: int) -> str:
        text = request_text(request)
        found = re.findall(r"Letter (\d+) about topic-(\d+): (\w+)", text)[-1]
        number, topic, label = int(found[0]), int(found[1]), found[2]
        lucky = chance(self.seed, "topics", number) < self.right(topic, text)
        return label if lucky else "unsure"


def letters(n: int, first: int = 0) -> tuple[Example, ...]:
    """Letters about the topics by turns."""
    rows = []
    for i in range(first, first + n):
        label = ("yes", "no")[i // TOPICS % 2]
        text = f"Letter {i} about topic-{i % TOPICS}: {label}"
        rows.append(Example(f"letter-{i}", {"input": text}, label, {"input": text, "target": label}, text))
    return tuple(rows)


def with_other_inputs(draw: Callable[[str], int]) -> Callable[[str], str]:
    """A change of a critic's question: each failed input is replaced by one about another topic, `draw(line)`."""
    return lambda text: FAILED_INPUT.sub(lambda m: f"Input: Letter 0 about topic-{draw(m[0])}: yes", text)
