"""Directional stimuli: a short hint for each input, written by a small model and attached to the input.

Li et al.: Guiding Large Language Models via Directional Stimulus Prompting. NeurIPS 2023. arXiv:2302.11520.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from whet.environments import Actor
from whet.environments.environment import Environment
from whet.environments.episodes import ActorObservation, Conversation
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rewards.text import targets_of
from whet.run import Run
from whet.types import Example, Message, Rollout, Score

SEPARATOR = ";"
MOST_KEYWORDS = 5
MISS = 0.2
_WORD = re.compile(r"[^\W_]{3,}", re.UNICODE)
_STOP_WORDS = """
    the and for are was were has had have not but with that this from they their them its his her she him you your our
    who what when where which will would could should been being into than then there here also any all can did does
    more most other some such only own same too very just about after before over under again once
"""
_STOP = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True)
class Hinted(Environment):
    """An environment in which `adviser` writes a hint for every example, which is attached to its input."""

    adviser: Actor | None = None

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; all hints are written in one batch."""
        return await self._plain.evaluate(run, prompt, await self._hinted(run, examples, sample), sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt over the hinted examples."""
        return await self._plain.score(run, prompts, await self._hinted(run, examples, 0))

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of prompt and hinted example."""
        examples = await self._hinted(run, [example for _, example in pairs], sample)
        plain = [(prompt, example) for (prompt, _), example in zip(pairs, examples, strict=True)]
        return await self._plain.rollouts(run, plain, sample)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Answer one hinted example and grade the answer."""
        (one,) = await self._hinted(run, [example], sample)
        return await self._plain.rollout(run, prompt, one, sample)

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text with the hint that each example is given, in order."""
        if self.adviser is None:
            return [prompt.region_text()] * len(examples)
        hints = await self.adviser.act(run, [ActorObservation.first(question(e)) for e in examples], 0)
        return [f"{prompt.region_text()}\n{HINT} {one.text.strip()}" for one in hints]

    @property
    def _plain(self) -> Environment:
        """The same task without hints."""
        return Environment(**{f.name: getattr(self, f.name) for f in fields(Environment)})

    async def _hinted(self, run: Run, examples: Sequence[Example], sample: int) -> list[Example]:
        if self.adviser is None:
            return list(examples)
        hints = await self.adviser.act(run, [ActorObservation.first(question(e)) for e in examples], sample)
        return [attached(e, one.text) for e, one in zip(examples, hints, strict=True)]


def hinted(env: Environment, adviser: Actor) -> Hinted:
    """The environment with a hint for every input. Raises UsageError for a task of several turns."""
    if type(env) is not Environment:
        raise UsageError("dsp hints at one question with one answer; this task is made of several turns.")
    kept: dict[str, Any] = {f.name: getattr(env, f.name) for f in fields(Environment)}
    return Hinted(**kept, adviser=adviser)


def question(example: Example) -> Conversation:
    """What the adviser reads."""
    return (Message("user", f"{KEYWORDS} {example.user_text}"),)


def attached(example: Example, hint: str) -> Example:
    """The example with the hint on a line of its own after its input (after the last value of several)."""
    last = list(example.values)[-1]
    values = {**example.values, last: f"{example.values[last]}\n{HINT} {hint.strip()}"}
    text = None if example.text is None else f"{example.text}\n{HINT} {hint.strip()}"
    return replace(example, values=values, text=text)


def keywords(hint: str) -> list[str]:
    """The keywords of a hint, in order, as they stand between the separators."""
    return [word.strip() for word in hint.split(SEPARATOR)]


def keywords_of(example: Example) -> list[str]:
    """Up to five words of the target that are worth a hint: those that the input holds first, no stop words.

    The supervised stage's targets; the paper extracts them with TextRank. None where there is no target.
    """
    if example.target is None:
        return []
    held = {word.casefold() for word in _WORD.findall(example.user_text)}
    words = [w for w in dict.fromkeys(_WORD.findall(targets_of(example)[0])) if w.casefold() not in _STOP]
    return sorted(words, key=lambda word: word.casefold() not in held)[:MOST_KEYWORDS]


def keyword_reward(hint: str, target: str) -> float:
    """+1 for each keyword that the target holds, -0.2 for each that is empty, a stop word, repeated or not in it.

    The published code has two signs for the penalty; this is the one of its run configuration.
    """
    total, seen, wanted = 0.0, set[str](), target.casefold()
    for word in (k.casefold() for k in keywords(hint)):
        good = bool(word) and word not in _STOP and word not in seen and word in wanted
        total += 1.0 if good else -MISS
        seen.add(word)
    return total


KEYWORDS = "Extract the keywords:"
HINT = "Hint:"


def unit(env: Environment, reward: float) -> float:
    """A reward brought to [0, 1]."""
    return (reward - env.reward.low) / (env.reward.high - env.reward.low)
