"""An environment in which a model writes what each example is asked with: its prompt, or its input in other words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.run import Run
from whet.types import Example, Message, Request, Rollout, Score, mean_score


class PromptWriter(Protocol):
    """Writes what each example is asked with, in order: `prompt` and the example themselves where it has nothing better."""

    async def write(
        self, run: Run, prompt: Prompt, examples: Sequence[Example]
    ) -> list[tuple[Prompt, Example]]:
        """A prompt and an example, or its `RewordedExample`, for each of the examples."""


@dataclass(frozen=True)
class RewordedExample(Example):
    """An example that the task model is asked about in other words; whatever grades the answer sees the example as it was."""

    question: Mapping[str, str] = field(default_factory=dict)
    question_text: str | None = None

    @property
    def as_read(self) -> Example:
        """The example as the task model reads it."""
        return Example(
            self.id, self.question, self.target, self.row, self.question_text, self.group, case=self.case
        )


def reword(example: Example, text: str) -> RewordedExample:
    """The example with another text as its input, or as the last of its values."""
    last = list(example.values)[-1]
    kept = {f.name: getattr(example, f.name) for f in fields(Example)}
    question_text = None if example.text is None else text
    return RewordedExample(**kept, question={**example.values, last: text}, question_text=question_text)


@dataclass(frozen=True)
class AskingReworded(Environment):
    """An environment that asks the task model about reworded examples and grades them as they were."""

    def request(self, prompt: Prompt, example: Example, sample: int = 0) -> Request:
        """The question to the task model."""
        return super().request(prompt, _as_asked(example), sample)

    def messages(self, prompt: Prompt, example: Example) -> tuple[Message, ...]:
        """The input of the task model."""
        return super().messages(prompt, _as_asked(example))

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order. Labels that are scored do not depend on what else a reward may see."""
        items = [_as_asked(e) for e in examples] if self.scores else examples
        return await super().evaluate(run, prompt, items, sample)


def _as_asked(example: Example) -> Example:
    return example.as_read if isinstance(example, RewordedExample) else example


@dataclass(frozen=True)
class WrittenPrompts(Environment):
    """An environment in which `writer` writes the prompt that each example is answered under."""

    writer: PromptWriter | None = None

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; all prompts are written first."""
        return await self._answer(run, prompt, await self._write(run, prompt, examples), sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of the system over the examples, for each prompt that it begins from."""
        return [mean_score(await self.evaluate(run, prompt, examples)) for prompt in prompts]

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of a prompt to begin from and an example."""
        return [await self.rollout(run, prompt, example, sample) for prompt, example in pairs]

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Answer one example and grade the answer."""
        return (await self.evaluate(run, prompt, [example], sample))[0]

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text that each example is answered under, in order."""
        return [written.region_text() for written, _ in await self._write(run, prompt, examples)]

    async def _write(
        self, run: Run, prompt: Prompt, examples: Sequence[Example]
    ) -> list[tuple[Prompt, Example]]:
        if self.writer is None:
            return [(prompt, example) for example in examples]
        return await self.writer.write(run, prompt, examples)

    async def _answer(
        self, run: Run, prompt: Prompt, written: Sequence[tuple[Prompt, Example]], sample: int
    ) -> list[Rollout]:
        """The rollouts of examples under prompts, those of equal prompts together."""
        plain = as_environment_type(self, AskingReworded)
        groups: dict[str, list[int]] = {}
        for place, (one, _) in enumerate(written):
            groups.setdefault(one.id, []).append(place)

        async def answer(branch: Run, places: list[int]) -> list[Rollout]:
            under = written[places[0]][0]
            return await plain.evaluate(branch, under, [written[i][1] for i in places], sample)

        answered = await run.map(answer, list(groups.values()))
        by_place = {
            place: replace(rollout, prompt_id=prompt.id)
            for places, rollouts in zip(groups.values(), answered, strict=True)
            for place, rollout in zip(places, rollouts, strict=True)
        }
        return [by_place[place] for place in range(len(written))]


def with_writer(env: Environment, writer: PromptWriter, method: str) -> WrittenPrompts:
    """The environment in which `writer` writes each prompt. Raises UsageError for a task of several turns."""
    if type(env) is not Environment:
        raise UsageError(
            f"{method} works with one question and one answer; this task is made of several turns."
        )
    return as_environment_type(env, WrittenPrompts, writer=writer)
