"""Conformance suite for rewards: subclass it, say what a task file says, run it with pytest.

    class TestMine(RewardConformance):
        reward = {"mine": {"words": 5}}

Every test is an ordinary function; no plugin is needed. Override `load` for a reward that no task file names, and `judge`
for one that asks a judge.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from whet.errors import UsageError
from whet.models.language_model import LanguageModel
from whet.rewards import (
    JUDGE,
    LABELS,
    TARGET,
    TARGET_SCORE,
    RewardFailed,
    RewardFunction,
    build_reward,
    isinstance_label_reward,
)
from whet.task import load_task
from whet.testing.runs import MeteredRun, RecordedRun
from whet.testing.simulated_task import garbage
from whet.testing.texts import HUGE_TEXTS, ODD_TEXTS
from whet.types import Completion, Example, Reward

NEEDS = frozenset({JUDGE, LABELS, TARGET, TARGET_SCORE})
PROBABILITIES = (0.98, 0.75, 0.5, 0.02, 0.0)


class RewardConformance:
    """Conformance tests for every reward."""

    reward: ClassVar[Any]
    """The reward as `reward:` in task.yaml says it."""
    labels: ClassVar[tuple[str, str]] = ("positive", "negative")
    target: ClassVar[Any] = "positive"
    outputs: ClassVar[tuple[str, ...]] = ("positive", "negative", "The answer is positive.", "I do not know.")
    """Answers of the kind that the reward is made for."""
    random: ClassVar[bool] = False
    """Whether an answer that is graded anew, in another run, may have another reward."""
    seconds: ClassVar[float] = 5.0
    """The longest time for a huge answer."""

    def load(self) -> RewardFunction:
        """The reward under test."""
        return build_reward(self.reward, Path(), "reward")

    def judge(self) -> LanguageModel:
        """The model that a reward asks which needs a judge: it must give answers that the reward can read."""
        raise NotImplementedError("This reward needs a judge: override `judge`.")

    def example(self) -> Example:
        """The example that is graded."""
        row = {
            "id": "one",
            "input": {"text": "The soup was good."},
            "target": self.target,
            "notes": ["a", "b"],
        }
        return Example("one", {"text": "The soup was good."}, self.target, row)

    def completion(self, text: str, probability: float = 0.75) -> Completion:
        """An answer with the task model's probabilities (of the first label) that the reward needs."""
        needs = self.load().needs
        probs = (
            dict(zip(self.labels, (probability, 1 - probability), strict=True)) if LABELS in needs else None
        )
        score = (math.log(max(probability, 1e-9)), 3) if TARGET_SCORE in needs else None
        return Completion(text, label_probs=probs, target_score=score)

    def completions(self) -> list[Completion]:
        """Answers to grade: those the reward is made for, odd ones, and certain and uncertain ones."""
        texts = [self.completion(text) for text in (*self.outputs, *ODD_TEXTS)]
        return texts + [self.completion(self.outputs[0], probability) for probability in PROBABILITIES]

    def run(self, seed: int = 0) -> RecordedRun:
        """A run with the judge, if the reward needs one."""
        return RecordedRun({"judge": self.judge()} if JUDGE in self.load().needs else {}, seed)

    def grade(
        self, run: MeteredRun, completions: Sequence[Completion], reward: RewardFunction | None = None
    ) -> list[Reward | None]:
        """The reward of each completion, each in a branch; None if the reward reports a failure."""
        graded = self.load() if reward is None else reward
        example = self.example()

        async def one(branch: Any, completion: Completion) -> Reward | None:
            try:
                value = await graded.grade(branch, example, completion)
            except RewardFailed as error:
                assert str(error).strip(), "RewardFailed says what happened"
                return None
            assert isinstance(value, Reward), f"grade returns a Reward, this one {type(value).__name__}"
            return value

        async def all_of_them() -> list[Reward | None]:
            return await run.map(one, completions)

        return asyncio.run(all_of_them())

    def test_declares_a_name_a_range_and_its_needs(self) -> None:
        reward = self.load()
        assert isinstance(reward.name, str) and reward.name.strip()
        assert math.isfinite(reward.low) and math.isfinite(reward.high) and reward.low < reward.high
        assert frozenset(reward.needs) <= NEEDS, (
            f"needs {sorted(reward.needs - NEEDS)}, which nothing provides"
        )
        assert inspect.iscoroutinefunction(reward.grade)

    def test_keeps_its_range(self) -> None:
        reward, completions = self.load(), self.completions()
        for completion, graded in zip(completions, self.grade(self.run(), completions), strict=True):
            if graded is not None:
                shown = f"{completion.text[:60]!r}: {graded.value}"
                assert math.isfinite(graded.value), shown
                assert reward.low <= graded.value <= reward.high, f"{shown} is outside the declared range"
                assert all(math.isfinite(part) for part in graded.parts.values()), f"{shown}, {graded.parts}"

    def test_grades_the_answers_it_is_made_for(self) -> None:
        graded = self.grade(self.run(), [self.completion(text) for text in self.outputs])
        assert all(reward is not None for reward in graded), "an ordinary answer cannot be graded"

    def test_a_critique_is_text(self) -> None:
        for graded in self.grade(self.run(), self.completions()):
            if graded is not None and graded.critique is not None:
                assert isinstance(graded.critique, str), (
                    f"the critique is of the type {type(graded.critique).__name__}"
                )
                assert graded.critique.strip(), "a critique without words is None"

    def test_the_same_answer_has_the_same_reward(self) -> None:
        """Randomness, clocks and other sources of variation go through the run, which replays them."""
        first, completions = self.run(), self.completions()
        assert self.grade(first, completions) == self.grade(first.replay(), completions)

    def test_the_order_of_grading_does_not_matter(self) -> None:
        if self.random:
            return
        reward = self.load()
        completions = [self.completion(text) for text in self.outputs]
        forth = [self.grade(self.run(), [completion], reward)[0] for completion in completions]
        back = [self.grade(self.run(), [completion], reward)[0] for completion in reversed(completions)]
        assert forth == back[::-1], "what was graded before changes a reward"

    def test_leaves_the_example_as_it_is(self) -> None:
        example = self.example()
        before = copy.deepcopy(example)

        class Same(type(self)):  # type: ignore[misc]
            def example(self) -> Example:
                return example

        Same().grade(self.run(), self.completions())
        assert example == before and example.row == before.row, "grading changed the example"

    def test_a_huge_answer_is_graded_in_time(self) -> None:
        for text in HUGE_TEXTS:
            start = time.monotonic()
            self.grade(self.run(), [self.completion(text)])
            spent = time.monotonic() - start
            assert spent < self.seconds, f"{len(text)} characters took {spent:.1f} s"

    def test_works_without_a_target_or_has_it_refused_at_load(self) -> None:
        if {TARGET, LABELS, TARGET_SCORE} & set(self.load().needs):
            if hasattr(self, "reward"):
                self._load_task_without_targets()
            return
        example = dataclasses.replace(self.example(), target=None, row={"id": "one"})

        class Without(type(self)):  # type: ignore[misc]
            def example(self) -> Example:
                return example

        Without().grade(self.run(), self.completions())

    def test_label_probabilities_give_the_same_in_one_batch(self) -> None:
        reward: Any = self.load()
        if not isinstance_label_reward(reward):
            return
        probs = np.array([[[p, 1 - p] for p in PROBABILITIES]])
        targets = np.full(len(PROBABILITIES), self.labels.index(self.target))
        batch = reward.from_labels(probs, targets)
        assert batch.shape == (1, len(PROBABILITIES)), batch.shape
        for p, value in zip(PROBABILITIES, batch[0], strict=True):
            answer = Completion(
                self.labels[int(np.argmax([p, 1 - p]))],
                label_probs=dict(zip(self.labels, (p, 1 - p), strict=True)),
                target_score=(math.log(max(p, 1e-9)), 1),
            )
            (one,) = self.grade(self.run(), [answer])
            assert one is not None and math.isclose(one.value, value, abs_tol=1e-6), f"{p}: {one} and {value}"

    def test_asks_the_judge_as_often_as_it_says(self) -> None:
        reward = self.load()
        run = self.run()
        self.grade(run, [self.completion(self.outputs[0])])
        most = int(getattr(reward, "judge_calls", 0))
        assert run.spent["judge"] <= most, f"{run.spent['judge']} calls, judge_calls says {most}"
        assert set(run.spent) <= {"judge"}, f"a reward asks the judge only; this one {sorted(run.spent)}"

    def test_survives_a_judge_that_writes_garbage(self) -> None:
        reward = self.load()
        if JUDGE not in reward.needs:
            return
        run = MeteredRun({"judge": garbage()})
        for graded in self.grade(run, [self.completion(text) for text in self.outputs]):
            assert graded is None or reward.low <= graded.value <= reward.high

    def _load_task_without_targets(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            task: dict[str, object] = {
                "name": "t",
                "prompt": "p.md",
                "data": "d.jsonl",
                "reward": self.reward,
            }
            if LABELS in self.load().needs:
                task["labels"] = list(self.labels)
            (folder / "task.yaml").write_text(json.dumps(task), encoding="utf-8")
            (folder / "p.md").write_text("Answer.\n{{input}}", encoding="utf-8")
            rows = [json.dumps({"id": str(i), "input": f"text {i}"}) for i in range(10)]
            (folder / "d.jsonl").write_text("\n".join(rows), encoding="utf-8")
            try:
                load_task(folder)
            except UsageError as error:
                assert "target" in str(error), error
            else:
                raise AssertionError("rows without a target are not refused, and the reward needs one")
