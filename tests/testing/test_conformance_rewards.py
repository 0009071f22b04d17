"""Every built-in reward passes the public suite, and each test of the suite notices a broken reward."""

from __future__ import annotations

import itertools
import random
import re
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from whet.errors import UsageError
from whet.models.language_model import LanguageModel
from whet.rewards import JUDGE, LABELS, TARGET, RewardFunction, build_reward
from whet.run import Run
from whet.testing.rewards import RewardConformance
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Message, Request, Reward


class TestExactMatch(RewardConformance):
    reward = "exact_match"


class TestNormalisedExactMatch(RewardConformance):
    reward: ClassVar[Any] = {"exact_match": {"normalise": True}}


class TestF1(RewardConformance):
    reward = "f1"


class TestContains(RewardConformance):
    reward = "contains"


class TestContainsAText(RewardConformance):
    reward: ClassVar[Any] = {"contains": {"text": "answer"}}


class TestRegex(RewardConformance):
    reward: ClassVar[Any] = {"regex": {"pattern": r"(\w+)\W*$"}}


class TestGap(RewardConformance):
    reward = "gap"


class TestLikelihood(RewardConformance):
    reward = "likelihood"


class TestConfidence(RewardConformance):
    reward = "confidence"


class TestPerplexity(RewardConformance):
    reward = "perplexity"


class TestWeighted(RewardConformance):
    reward: ClassVar[Any] = [{"f1": 0.7}, {"exact_match": 0.3}]


class TestProgram(RewardConformance):
    """reward.py of a task folder: it may throw dice, because the run records what it returned."""

    random = True
    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def program(self, tmp_path: Path) -> None:
        TestProgram.folder = tmp_path
        (tmp_path / "reward.py").write_text(
            "import random\n"
            "def reward(example, output):\n"
            "    example['notes'].append('seen')\n"
            "    return {'reward': random.random(), 'critique': 'Think again.', 'length': len(output)}\n"
        )

    def load(self) -> RewardFunction:
        return build_reward("reward.py", self.folder, "task.yaml:1")


class Judged(RewardConformance):
    """Rewards that ask a judge."""

    reply: ClassVar[str]

    def judge(self) -> LanguageModel:
        return Answers(lambda question, sample: self.reply)


class TestListwise(Judged):
    reward: ClassVar[Any] = {"listwise": {"principles": "Be polite."}}
    reply = (
        '{"answers": [{"answer": 1, "explanation": "It is blunt.", "score": 2}, '
        '{"answer": 2, "explanation": "It is kind.", "score": 4}]}'
    )


class TestJudge(Judged):
    reward: ClassVar[Any] = {"judge": {"rubric": "Is it polite?"}}
    reply = (
        '{"answer_1": {"explanation": "It is blunt.", "score": 2}, '
        '"answer_2": {"explanation": "It is kind.", "score": 4}}'
    )


class TestYesNo(Judged):
    reward: ClassVar[Any] = {"yes_no": {"question": "Is it polite?"}}
    reply = '{"explanation": "It is.", "answer": "yes"}'


class TestChecklist(Judged):
    reward: ClassVar[Any] = {"checklist": {"items": ["It is polite.", "It is short."]}}
    reply = '{"items": [{"number": 1, "met": "yes", "reason": "-"}, {"number": 2, "met": "no", "reason": "Long."}]}'


class TestPreference(RewardConformance):
    """A model fitted to preferences."""

    folder: ClassVar[Path]
    features: ClassVar[str] = "surface"

    @pytest.fixture(autouse=True)
    def fitted(self, tmp_path: Path) -> None:
        pytest.importorskip("safetensors")
        from tests.rewards.test_preference import polite_pairs

        from whet.rewards.preference import fit_preferences

        type(self).folder = tmp_path
        (tmp_path / "taste.safetensors").write_bytes(fit_preferences(polite_pairs(), self.features)[0].save())

    def load(self) -> RewardFunction:
        return build_reward({"preference": {"model": "taste.safetensors"}}, self.folder, "task.yaml:1")


class TestPreferenceOfWords(TestPreference):
    features = "words"


@dataclass(frozen=True)
class Sound:
    """A small sound reward, for its broken relatives below to go wrong."""

    name: str = "sound"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        right = completion.text == example.target
        return Reward(float(right), {"length": float(len(completion.text))}, None if right else "Wrong.")

    def from_labels(self, probs: Any, targets: Any) -> Any:
        right: Any = (probs.argmax(-1) == targets).astype(np.float64)
        return right


@dataclass(frozen=True)
class Endless(Sound):
    high: float = float("inf")


@dataclass(frozen=True)
class Generous(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(float(len(completion.text)))


@dataclass(frozen=True)
class Undefined(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(0.5, {"share": float("nan")})


@dataclass(frozen=True)
class Encodes(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(float(len(completion.text.encode()) < 20))


@dataclass(frozen=True)
class NeverGrades(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        from whet.rewards import RewardFailed

        raise RewardFailed("never")


@dataclass(frozen=True)
class Lists(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(0.0, critique=["Wrong."])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Dice(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(random.random())


@dataclass(frozen=True)
class Tired(Sound):
    count: Any = field(default_factory=itertools.count)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(1 / (1 + next(self.count)))


@dataclass(frozen=True)
class Scribbles(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        example.row["notes"].append(completion.text)
        return Reward(0.0)


@dataclass(frozen=True)
class Slow(Sound):
    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        re.search(r"a\s*[\n]\s*c", completion.text[:20_000])
        return Reward(0.0)


@dataclass(frozen=True)
class WithoutSayingSo(Sound):
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(float(example.target.casefold() == completion.text))


@dataclass(frozen=True)
class OtherInBatches(Sound):
    def from_labels(self, probs: Any, targets: Any) -> Any:
        return super().from_labels(probs, targets) * 0.5


@dataclass(frozen=True)
class Transposed(Sound):
    def from_labels(self, probs: Any, targets: Any) -> Any:
        return super().from_labels(probs, targets).T


@dataclass(frozen=True)
class AsksTwice(Sound):
    needs: frozenset[str] = frozenset({JUDGE})
    judge_calls: int = 1

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        question = Request((Message("user", completion.text),))
        await run.generate("judge", question)
        await run.generate("judge", question)
        return Reward(0.0)


@dataclass(frozen=True)
class TrustsTheJudge(Sound):
    needs: frozenset[str] = frozenset({JUDGE})
    judge_calls: int = 1

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        answer = (await run.generate("judge", Request((Message("user", completion.text),))))[0]
        return Reward(float(answer.text))


def suite(reward: type[Sound]) -> RewardConformance:
    """The suite for one of these rewards."""

    class Suite(RewardConformance):
        seconds = 0.2 if reward is Slow else 5.0

        def load(self) -> RewardFunction:
            return reward()

        def judge(self) -> LanguageModel:
            return Answers(lambda question, sample: "0.5")

    return Suite()


BROKEN = [
    (Endless, "test_declares_a_name_a_range_and_its_needs"),
    (Generous, "test_keeps_its_range"),
    (Undefined, "test_keeps_its_range"),
    (Encodes, "test_keeps_its_range"),
    (NeverGrades, "test_grades_the_answers_it_is_made_for"),
    (Lists, "test_a_critique_is_text"),
    (Dice, "test_the_same_answer_has_the_same_reward"),
    (Tired, "test_the_order_of_grading_does_not_matter"),
    (Scribbles, "test_leaves_the_example_as_it_is"),
    (Slow, "test_a_huge_answer_is_graded_in_time"),
    (WithoutSayingSo, "test_works_without_a_target_or_has_it_refused_at_load"),
    (OtherInBatches, "test_label_probabilities_give_the_same_in_one_batch"),
    (Transposed, "test_label_probabilities_give_the_same_in_one_batch"),
    (AsksTwice, "test_asks_the_judge_as_often_as_it_says"),
    (TrustsTheJudge, "test_survives_a_judge_that_writes_garbage"),
]
TESTS = [name for name in vars(RewardConformance) if name.startswith("test_")]


@pytest.mark.parametrize(("reward", "test"), BROKEN)
def test_the_suite_notices_a_broken_reward(reward: type[Sound], test: str) -> None:
    with pytest.raises((AssertionError, ValueError, AttributeError)):
        getattr(suite(reward), test)()


def test_each_test_of_the_suite_has_a_broken_reward() -> None:
    assert {test for _, test in BROKEN} == set(TESTS)


@pytest.mark.parametrize("test", TESTS)
def test_the_suite_passes_a_sound_reward(test: str) -> None:
    getattr(suite(Sound), test)()


def test_a_reward_whose_need_no_task_meets_is_noticed() -> None:
    class Suite(RewardConformance):
        reward: ClassVar[Any] = {"contains": {"text": "answer"}}

        def load(self) -> RewardFunction:
            return Sound()

    with pytest.raises(AssertionError, match="rows without a target are not refused"):
        Suite().test_works_without_a_target_or_has_it_refused_at_load()


def test_a_reward_that_needs_a_judge_says_that_the_suite_lacks_one() -> None:
    class Suite(RewardConformance):
        def load(self) -> RewardFunction:
            return AsksTwice()

    with pytest.raises(NotImplementedError, match="override `judge`"):
        Suite().test_keeps_its_range()


def test_labels_are_needed_at_load_too() -> None:
    assert LABELS in build_reward("gap", Path(), "x").needs
    with pytest.raises(UsageError):
        build_reward("gap_", Path(), "x")


def test_the_reward_of_the_page_on_extending_passes_the_suite() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
    module = sys.modules["extending"] = types.ModuleType("extending")
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/extending.md", "exec"), module.__dict__)  # noqa: S102
    found = module.__dict__["TestShort"]()
    for test in TESTS:
        getattr(found, test)()
