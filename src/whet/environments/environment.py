"""Environment: a task, a frozen model and a reward. Give it prompts and examples, it returns rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.environments.labels import read_label
from whet.errors import UsageError, named_fields, task_setting
from whet.models.language_model import BatchModel, LanguageModel
from whet.prompt import Prompt
from whet.replies import close_tag, join_thought, separate_thought
from whet.rewards import (
    LABELS,
    TARGET_SCORE,
    LabelReward,
    Objectives,
    RewardFailed,
    RewardFunction,
    Weighted,
    isinstance_label_reward,
)
from whet.rewards.reward import judge_calls_of, part_names_of
from whet.rewards.scored import Gap, Likelihood
from whet.rewards.text import ExactMatch, targets_of
from whet.run import Run, convert_record
from whet.types import (
    EXAMPLE,
    Completion,
    Example,
    Message,
    Request,
    Rollout,
    Score,
    Usage,
    content_hash,
    mean_score,
)

_WATCHER: ContextVar[Callable[[Rollout], None]] = ContextVar("watcher", default=lambda rollout: None)
_COLLECTOR: ContextVar[Callable[[Prompt, Rollout], None]] = ContextVar(
    "collector", default=lambda prompt, rollout: None
)


@contextmanager
def watching_rollouts(watcher: Callable[[Rollout], None]) -> Iterator[None]:
    """Meanwhile `watcher` is called with each rollout once it is graded: so whoever waits is shown how a run goes on."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def collecting_rollouts(collector: Callable[[Prompt, Rollout], None]) -> Iterator[None]:
    """Meanwhile `collector` is called with each rollout once it is graded, and with its prompt."""
    token = _COLLECTOR.set(collector)
    try:
        yield
    finally:
        _COLLECTOR.reset(token)


def tell_watcher(prompt: Prompt, rollout: Rollout) -> Rollout:
    """The same rollout, after the watcher and the collector were called with it."""
    _WATCHER.get()(rollout)
    _COLLECTOR.get()(prompt, rollout)
    return rollout


@dataclass(frozen=True)
class Generation:
    """The parameters of a request to the task model: the temperature (0 = greedy), the largest number of output tokens (None:
    the model's own), and whether the model's `thoughts` are a part of its answers."""

    temperature: float = 0.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    thoughts: bool = False

    def answer(self, completion: Completion) -> Completion:
        """A completion of the task model as rewards and labels read it: without its thought, unless that is a part of it, and
        with the closing tag that a stop text took."""
        closed = close_tag(completion, self.stop)
        return join_thought(closed) if self.thoughts else closed


@named_fields
@dataclass(frozen=True)
class Environment:
    """The part of a task that a method may see: train and validation examples, never the sealed test split.

    `labels` maps each label to the word that represents it (the verbalizer); empty for free text. `scores`: whether labels are
    scored by log-probability instead of generated. `start_answers`: the number of validation rows for which the start prompt's
    answers are recorded and cost nothing. `targets`: whether a row of the task may have a target, with which a judge compares.
    """

    model: LanguageModel
    reward: RewardFunction
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    generation: Generation = Generation()
    scores: bool = False
    description: str = ""
    start_answers: int = 0
    targets: bool = True

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order. Failed rollouts are among them, at the low end of the reward."""
        if self.scores:
            return await self._evaluate_scored(run, prompt, examples)
        return await self.rollouts(run, [(prompt, example) for example in examples], sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt over the examples, in one batch if the model can answer or score in batches."""
        if self.scores and isinstance_label_reward(self.reward):
            return await self._score_batch(run, prompts, examples)
        if not self.scores and self.supports_batching:
            rollouts = await self.rollouts(run, [(p, e) for p in prompts for e in examples])
            size = len(examples)
            return [mean_score(rollouts[i * size : (i + 1) * size]) for i in range(len(prompts))]

        async def one(branch: Run, prompt: Prompt) -> Score:
            return mean_score(await self.evaluate(branch, prompt, examples))

        return await run.map(one, prompts)

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of prompt and example, by generation. A model in this process that supports batches answers
        all of them at once, as one effect."""
        if not self.supports_batching:
            return await run.map(lambda branch, pair: self.rollout(branch, *pair, sample), pairs)
        answers = await self._answers(run, pairs, sample)

        async def one(branch: Run, item: tuple[tuple[Prompt, Example], Completion]) -> Rollout:
            (prompt, example), completion = item
            return await self.grade_answer(branch, prompt, example, completion, sample)

        return await run.map(one, list(zip(pairs, answers, strict=True)))

    @property
    def judge_calls(self) -> int:
        """The largest number of judge calls of one rollout."""
        return judge_calls_of(self.reward, targets=self.targets)

    @property
    def part_names(self) -> frozenset[str] | None:
        """The names of all parts that a score may have; None if they are only known from the scores."""
        if type(self) is not Environment:
            return None
        if self.scores and isinstance_label_reward(self.reward):
            return frozenset(_LABEL_PARTS)
        return part_names_of(self.reward)

    @property
    def supports_batching(self) -> bool:
        """Whether all prompts and examples go to the model in one call; never for a system with its own calls."""
        plain = type(self).ask is Environment.ask and type(self).rollout is Environment.rollout
        model = self.model
        return plain and isinstance(model, BatchModel) and model.local and model.can_generate

    @property
    def recorded_by_content(self) -> bool:
        """Whether a run records every answer by its request, so that the same prompt and row cost nothing again."""
        return not (self.scores or self.supports_batching or TARGET_SCORE in self.reward.needs)

    def messages(self, prompt: Prompt, example: Example) -> tuple[Message, ...]:
        """The messages that the model receives for one example under a prompt."""
        return prompt.render(example)

    def request(self, prompt: Prompt, example: Example, sample: int = 0) -> Request:
        """The request to the task model for one example under a prompt."""
        g = self.generation
        return Request(
            prompt.render(example), g.temperature, g.max_tokens, stop=g.stop, schema=g.schema, sample=sample
        )

    async def _answers(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int
    ) -> list[Completion]:
        """The model's answer to each pair: one effect for all, with the targets' scores where the reward needs them."""
        if not pairs:
            return []
        model, g = self.model, self.generation

        async def compute() -> object:
            assert isinstance(model, BatchModel)
            batch = await model.generate_batch([self.request(p, e, sample) for p, e in pairs])
            return [_texts_of(separate_thought(completions[0])) for completions in batch]

        ids = [[p.id, e.id] for p, e in pairs]
        schema = None if g.schema is None else dict(g.schema)
        args = content_hash([ids, sample, g.temperature, g.max_tokens, list(g.stop), schema])
        record = await run.effect("answers", compute, args, role="task", calls=len(pairs))
        answers = [g.answer(_read(row)) for row in convert_record(record, list[list[str | int | None]])]
        if TARGET_SCORE not in self.reward.needs:
            return answers
        scores = await self._target_scores(run, pairs)
        return [replace(answer, target_score=score) for answer, score in zip(answers, scores, strict=True)]

    async def _target_scores(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]]
    ) -> list[tuple[float, int]]:
        """(log-probability, tokens) of each pair's target; one effect."""

        async def compute() -> object:
            scored: list[list[float | int]] = [[] for _ in pairs]
            for prompt in {p.id: p for p, _ in pairs}.values():
                places = [i for i, (p, _) in enumerate(pairs) if p.id == prompt.id]
                examples = [pairs[i][1] for i in places]
                targets = [[targets_of(e)[0]] for e in examples]
                scores = await self.model.score([prompt], [e.values for e in examples], targets)
                for at, i in enumerate(places):
                    scored[i] = [float(scores.logprobs[0, at, 0]), int(scores.tokens[at, 0])]
            return scored

        args = content_hash([[p.id, e.id] for p, e in pairs])
        scores = await run.effect("target_scores", compute, args, role="task", calls=len(pairs))
        return convert_record(scores, list[tuple[float, int]])

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Make one call of the task model for an example, and grade the answer."""
        token = EXAMPLE.set(example)
        try:
            completion = await self.ask(run, self.request(prompt, example, sample))
            if completion.error is None and TARGET_SCORE in self.reward.needs:
                (score,) = await self._target_scores(run, [(prompt, example)])
                completion = replace(completion, target_score=score)
            return await self.grade_answer(run, prompt, example, completion, sample)
        finally:
            EXAMPLE.reset(token)

    async def ask(self, run: Run, request: Request) -> Completion:
        """One answer of the task model. A system that is more than that model answers in another way."""
        return self.generation.answer((await run.generate("task", request))[0])

    async def grade_answer(
        self, run: Run, prompt: Prompt, example: Example, completion: Completion, sample: int = 0
    ) -> Rollout:
        """The rollout of an answer to one example: the label is read if there are labels, and then the answer is graded."""
        if completion.error is None and self.labels:
            completion = self._parse_label(completion)
        return await self._grade(run, prompt, example, completion, sample)

    async def _grade(
        self, run: Run, prompt: Prompt, example: Example, completion: Completion, sample: int = 0
    ) -> Rollout:
        rollout = await self._grade_completion(run, prompt, example, completion, sample)
        if isinstance(self.reward, Objectives):
            tokens = self.model.count_tokens(prompt.text)
            rollout = self.reward.measure(rollout, completion.seconds, tokens)
        return tell_watcher(prompt, rollout)

    async def _grade_completion(
        self, run: Run, prompt: Prompt, example: Example, completion: Completion, sample: int
    ) -> Rollout:
        build = partial(
            Rollout,
            prompt.id,
            example.id,
            completion.text,
            usage=completion.usage,
            sample=sample,
            thought=completion.thought,
            sentence=completion.sentence,
            cut=completion.finish == "length",
        )
        if completion.error is not None:
            return build(self.reward.low, error=completion.error)
        try:
            reward = await self.reward.grade(run, example, completion)
        except RewardFailed as error:
            return build(self.reward.low, error=error.where)
        addressed = reward.addressed or {}
        return build(reward.value, parts=reward.parts, critique=reward.critique, addressed=addressed)

    def _parse_label(self, completion: Completion) -> Completion:
        reading = read_label(completion.text, self.labels)
        shown = completion.text.strip()[:80]
        if reading is None:
            return replace(
                completion, error=f"parse: no single label of {', '.join(self.labels)} in {shown!r}"
            )
        if reading.alone:
            same = reading.label == completion.text
            return completion if same else replace(completion, text=reading.label)
        if is_strict(self.reward):
            error = f"parse: the label {reading.label} does not stand alone in {shown!r}"
            return replace(completion, error=error)
        return replace(completion, text=reading.label, sentence=completion.text)

    async def label_probs(
        self, prompts: Sequence[Prompt], examples: Sequence[Example]
    ) -> NDArray[np.float64]:
        """Probabilities of the labels, shape (P, E, L): softmax over the labels' log-probabilities."""
        words = list(self.labels.values())
        scores = await self.model.score(prompts, [e.values for e in examples], [words] * len(examples))
        logits = scores.logprobs - scores.logprobs.max(axis=-1, keepdims=True)
        weights = np.exp(logits)
        probs: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
        return probs

    def _targets(self, examples: Sequence[Example]) -> NDArray[np.int64]:
        order = {label: i for i, label in enumerate(self.labels)}
        return np.array([order[str(e.target)] for e in examples], dtype=np.int64)

    async def _score_batch(
        self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]
    ) -> list[Score]:
        if not prompts:
            return []

        async def compute() -> object:
            probs = await self.label_probs(prompts, examples)
            targets = self._targets(examples)
            reward: LabelReward = self.reward  # type: ignore[assignment]
            rewards: Mapping[str, LabelReward] = {"": reward, **_LABEL_PARTS}
            columns = {name: one.from_labels(probs, targets).mean(1) for name, one in rewards.items()}
            return {name: [float(v) for v in column] for name, column in columns.items()}

        args = content_hash([[p.id for p in prompts], [e.id for e in examples]])
        record = await run.effect("score", compute, args, role="task", calls=len(prompts) * len(examples))
        by_part = convert_record(record, dict[str, list[float]])
        means = by_part.pop("") if "" in by_part else []
        return [
            Score(mean, len(examples), {name: column[i] for name, column in by_part.items()})
            for i, mean in enumerate(means)
        ]

    async def _evaluate_scored(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[Rollout]:
        if not examples:
            return []

        async def compute() -> object:
            return np.round((await self.label_probs([prompt], examples))[0], 6).tolist()

        args = content_hash([prompt.id, [e.id for e in examples]])
        record = await run.effect("labels", compute, args, role="task", calls=len(examples))
        rows = convert_record(record, list[list[float]])
        names = list(self.labels)
        rollouts = []
        for example, row in zip(examples, rows, strict=True):
            answer = names[int(np.argmax(row))]
            completion = Completion(answer, label_probs=dict(zip(names, row, strict=True)))
            rollouts.append(await self._grade(run, prompt, example, completion))
        return rollouts


def is_strict(reward: RewardFunction) -> bool:
    """Whether the reward, or a part of it, is an exact match that ignores nothing."""
    if isinstance(reward, Weighted):
        return any(is_strict(part) for _, part in reward.parts)
    return isinstance(reward, ExactMatch) and reward.strict


E = TypeVar("E", bound=Environment)


def as_environment_type(env: Environment, kind: type[E], **changes: object) -> E:
    """The same task as an environment of another class, of which no answers are recorded; `changes` are its own fields, or
    others that differ."""
    kept = {f.name: getattr(env, f.name) for f in fields(kind) if hasattr(env, f.name)} | {"start_answers": 0}
    return kind(**{**kept, **changes})


def _texts_of(completion: Completion) -> list[object]:
    usage = completion.usage
    row = [completion.text, completion.finish, usage.input_tokens, usage.output_tokens, completion.error]
    return [*row, completion.thought] if completion.thought else row


def _read(row: Sequence[Any]) -> Completion:
    text, finish, read, wrote, error, *thought = row
    return separate_thought(Completion(text, finish, Usage(read, wrote), error, thought="".join(thought)))


_LABEL_PARTS: Mapping[str, LabelReward] = {
    "accuracy": ExactMatch(),
    "likelihood": Likelihood(floor=-math.inf),
    "gap": Gap(),
}
"""Of which every label task reports the mean under each prompt."""


def check_environment(env: Environment) -> None:
    """Refuse combinations that cannot work before anything is paid. Raises UsageError."""
    needs = env.reward.needs
    if LABELS in needs and not env.labels:
        needed = task_setting("labels=[...]", "`labels:` in task.yaml")
        raise UsageError(f"The reward {env.reward.name} needs {needed}.")
    if LABELS in needs and not env.scores:
        raise UsageError(
            f"The reward {env.reward.name} needs a model that can score labels; {env.model.address} cannot. "
            "Use embedded/..., hf/..., or another reward."
        )
    if not (math.isfinite(env.reward.low) and math.isfinite(env.reward.high)):
        raise UsageError(f"The reward {env.reward.name} has no finite range.")
