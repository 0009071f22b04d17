"""Environment: a task, a frozen model and a reward. Give it prompts and examples, it returns rollouts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.models.base import LanguageModel
from whet.prompt import Prompt
from whet.rewards import (
    LABELS,
    TARGET_SCORE,
    LabelReward,
    RewardFailed,
    RewardFunction,
    isinstance_label_reward,
)
from whet.rewards.scored import target_gap
from whet.rewards.text import targets_of
from whet.run import Run
from whet.types import Completion, Example, Request, Rollout, Score, content_hash, mean_score


@dataclass(frozen=True)
class Generation:
    """How the task model is asked: temperature (0 = greedy) and the bound on its output in tokens (None: its own)."""

    temperature: float = 0.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Environment:
    """What a method may see of a task: train and validation examples, never the sealed test split.

    `labels` maps each label to the word that stands for it (the verbalizer); empty for free text.
    `scores` says whether labels are asked for by log-probability instead of by generation.
    """

    model: LanguageModel
    reward: RewardFunction
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    generation: Generation = Generation()
    scores: bool = False
    description: str = ""

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order. Failed rollouts are among them, at the low end of the reward."""
        if self.scores:
            return await self._evaluate_scored(run, prompt, examples)
        return await run.map(lambda branch, example: self.rollout(branch, prompt, example, sample), examples)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt over the examples; one batch where the model can score labels."""
        if self.scores and isinstance_label_reward(self.reward):
            return await self._score_batch(run, prompts, examples)

        async def one(branch: Run, prompt: Prompt) -> Score:
            return mean_score(await self.evaluate(branch, prompt, examples))

        return await run.map(one, prompts)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Ask the task model once about one example and grade the answer."""
        g = self.generation
        request = Request(
            prompt.render(example), g.temperature, g.max_tokens, stop=g.stop, schema=g.schema, sample=sample
        )
        completion = (await run.generate("task", request))[0]
        if completion.error is None and TARGET_SCORE in self.reward.needs:
            completion = replace(completion, target_score=await self._target_score(run, prompt, example))
        if completion.error is None and self.labels:
            completion = self._parse_label(completion)
        return await self._grade(run, prompt, example, completion, sample)

    async def _grade(
        self, run: Run, prompt: Prompt, example: Example, completion: Completion, sample: int = 0
    ) -> Rollout:
        failed = Rollout(
            prompt.id,
            example.id,
            completion.text,
            self.reward.low,
            usage=completion.usage,
            error=completion.error,
            sample=sample,
        )
        if completion.error is not None:
            return failed
        try:
            reward = await self.reward.grade(run, example, completion)
        except RewardFailed as error:
            return replace(failed, error=f"reward: {error}")
        return replace(failed, reward=reward.value, parts=reward.parts, critique=reward.critique)

    def _parse_label(self, completion: Completion) -> Completion:
        label = find_label(completion.text, self.labels)
        if label is None:
            shown = completion.text.strip()[:80]
            return replace(
                completion, error=f"parse: no single label of {', '.join(self.labels)} in {shown!r}"
            )
        return replace(completion, text=label)

    async def _target_score(self, run: Run, prompt: Prompt, example: Example) -> tuple[float, int]:
        target = targets_of(example)[0]

        async def compute() -> Any:
            scores = await self.model.score([prompt], [example.values], [[target]])
            return [float(scores.logprobs[0, 0, 0]), int(scores.tokens[0, 0])]

        found: Any = await run.effect("target_score", compute, [prompt.id, example.id], role="task", calls=1)
        return float(found[0]), int(found[1])

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

        async def compute() -> Any:
            probs = await self.label_probs(prompts, examples)
            targets = self._targets(examples)
            reward: LabelReward = self.reward  # type: ignore[assignment]
            columns = {"": reward.from_labels(probs, targets).mean(1), **_label_parts(probs, targets)}
            return {name: [float(v) for v in column] for name, column in columns.items()}

        args = content_hash([[p.id for p in prompts], [e.id for e in examples]])
        found: Any = await run.effect("score", compute, args, role="task", calls=len(prompts) * len(examples))
        means = found.pop("") if "" in found else []
        return [
            Score(mean, len(examples), {name: column[i] for name, column in found.items()})
            for i, mean in enumerate(means)
        ]

    async def _evaluate_scored(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[Rollout]:
        if not examples:
            return []

        async def compute() -> Any:
            return np.round((await self.label_probs([prompt], examples))[0], 6).tolist()

        args = content_hash([prompt.id, [e.id for e in examples]])
        rows: Any = await run.effect("labels", compute, args, role="task", calls=len(examples))
        names = list(self.labels)
        rollouts = []
        for example, row in zip(examples, rows, strict=True):
            answer = names[int(np.argmax(row))]
            completion = Completion(answer, label_probs=dict(zip(names, row, strict=True)))
            rollouts.append(await self._grade(run, prompt, example, completion))
        return rollouts


def _label_parts(probs: NDArray[np.float64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Per-prompt means that every label task reports: accuracy, log-likelihood of the right label, RLPrompt's gap."""
    index = np.broadcast_to(targets[None, :, None], (*probs.shape[:2], 1))
    own = np.take_along_axis(probs, index, axis=-1)[..., 0]
    gap = target_gap(probs, targets)
    return {
        "accuracy": (probs.argmax(-1) == targets).mean(1),
        "likelihood": np.log(np.maximum(own, 1e-300)).mean(1),
        "gap": np.where(gap > 0, 200 * gap, 180 * gap).mean(1),
    }


def find_label(text: str, labels: Mapping[str, str]) -> str | None:
    """The one label that an answer names, by label or by verbalizer word; None when none or several are named.

    An answer that *is* a label wins; then the only label mentioned as a word; then the only one mentioned
    on the last non-empty line.

    >>> find_label("The sentiment is Positive.", {"positive": "great", "negative": "bad"})
    'positive'
    """
    bare = text.strip().strip("\"'`*.:!() \n").casefold()
    for label, word in labels.items():
        if bare in (label.casefold(), word.casefold()):
            return label
    lines = [line for line in text.splitlines() if line.strip()]
    for part in (text, lines[-1] if lines else ""):
        found = [label for label, word in labels.items() if _mentions(part, label) or _mentions(part, word)]
        longest = [a for a in found if not any(a != b and a.casefold() in b.casefold() for b in found)]
        if len(longest) == 1:
            return longest[0]
    return None


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE) is not None


def check_environment(env: Environment) -> None:
    """Refuse combinations that cannot work before anything is paid. Raises UsageError."""
    needs = env.reward.needs
    if LABELS in needs and not env.labels:
        raise UsageError(f"The reward {env.reward.name} needs `labels:` in task.yaml.")
    if LABELS in needs and not env.scores:
        raise UsageError(
            f"The reward {env.reward.name} needs a model that can score labels; {env.model.address} cannot. "
            "Use embedded/..., hf/..., or another reward."
        )
    if not (math.isfinite(env.reward.low) and math.isfinite(env.reward.high)):
        raise UsageError(f"The reward {env.reward.name} has no finite range.")
