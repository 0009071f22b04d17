"""self_rewarding: the model learns from its own verdicts, and the alarm on anchors ends it when its judgement drifts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.environments.worlds import Scripted, small
from tests.methods.test_dpo import Judging

from whet.environments.environment import Environment
from whet.errors import SearchStopped, UsageError
from whet.methods.self_rewarding import Config, best_and_worst, check, deploy, is_lower, self_rewarding
from whet.prompt import Prompt
from whet.rewards.agreement import Agreement, agreement
from whet.rewards.judge import IGNORE, Judge
from whet.rl.policy_model import Sample
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.runs import MeteredRun

START = Prompt.parse("so {{input}}")
MENU = ["yes", "no"]
SMALL = Config(rounds=4, inputs=6, group=4, judgements=1, lr=8.0)
RUBRIC = "It must say yes."


def verdict(good: bool) -> str:
    return f'{{"explanation": "so", "score": {5 if good else 1}}}'


class SelfJudging(Judging):
    """Says yes or no, and judges: rightly until it was trained `sane` times, then the other way round."""

    def __init__(self, sane: int = 99) -> None:
        super().__init__(self.answers_or_verdict)
        self.sane = sane

    def answers_or_verdict(self, conversation: Any) -> list[str]:
        if RUBRIC not in conversation[0].content:
            return MENU
        right = "yes" in conversation[-1].content.rpartition("The answer to judge")[2]
        return [verdict(right == (self.anchors <= self.sane))]


def judged_task(n: int = 24, scores: tuple[int, int] = (5, 1)) -> Environment:
    """Rows with an answer that a person scored: every second one is right."""
    env = small(lambda request: "no", n).env
    rows = [
        dataclasses.replace(e, row={**e.row, "output": MENU[i % 2], "quality": scores[i % 2]})
        for i, e in enumerate((*env.train, *env.validation))
    ]
    reward: Any = Judge(RUBRIC, human="quality", reference=IGNORE)
    return dataclasses.replace(
        env, train=tuple(rows[: n // 2]), validation=tuple(rows[n // 2 :]), reward=reward
    )


async def search(policy: Any, config: Config = SMALL) -> tuple[Candidate, MeteredRun, Environment]:
    env = judged_task()
    right: Any = Scripted(
        lambda request: verdict("yes" in request.messages[-1].content.rpartition("judge")[2])
    )
    run = MeteredRun({"task": env.model, "judge": right})
    return await self_rewarding(run, env, policy, START, config), run, env


async def test_it_learns_from_its_own_verdicts_and_is_validated_by_another_judge() -> None:
    policy = SelfJudging()
    found, run, env = await search(policy)
    assert policy.probabilities(MENU)[0] > 0.8
    steps: list[Any] = [value for name, value in run.logged if name == "step"]
    assert len(steps) == 4 and all(step["anchor_agreement"] == 1.0 for step in steps)
    assert found.system is not None and found.prompt == START
    trained: Any = SelfJudging()
    system = deploy(env, trained, run.kept[found.system], SMALL)
    judged = MemoryRun({"task": env.model, "judge": run.models["judge"]})
    (score,) = await system.score(judged, [found.prompt], env.validation)
    assert score.mean == 1.0


async def test_the_alarm_ends_the_training_when_its_judgement_drifts() -> None:
    """Right in the first two rounds, the other way round in the third: two states are validated, and the drifted one is not."""
    policy: Any = SelfJudging(sane=2)
    env = judged_task()
    right: Any = Scripted(
        lambda request: verdict("yes" in request.messages[-1].content.rpartition("judge")[2])
    )
    run = MeteredRun({"task": env.model, "judge": right})
    with pytest.raises(SearchStopped, match=r"by -1\.00, and did so by 1\.00 .* its judgement drifts"):
        await self_rewarding(run, env, policy, START, SMALL)
    assert len([name for name, _ in run.logged if name == "validated"]) == 3


async def test_a_judge_at_chance_trains_nothing() -> None:
    policy = SelfJudging(sane=-1)
    with pytest.raises(SearchStopped, match="cannot be told from chance"):
        await search(policy)
    assert not policy.seen


def test_a_task_without_anchors_is_refused() -> None:
    env = judged_task()
    with pytest.raises(UsageError, match="needs one judge with people's scores"):
        check(small(lambda request: "no").env, SMALL)
    with pytest.raises(UsageError, match="have 9 answers with a person's score"):
        check(dataclasses.replace(env, train=env.train[:9]), SMALL)


def test_a_pair_is_the_best_and_the_worst_answer_with_a_verdict() -> None:
    one, two, three = (Sample(name, (0,), (0,), (0.0,), (True,), True) for name in "abc")
    assert best_and_worst([(2.0, one), (None, two), (4.5, three)]) == (three, one)
    assert best_and_worst([(2.0, one), (2.0, two)]) is None and best_and_worst([(2.0, one)]) is None


def rate_of_alarms(
    before: float, after: float, rounds: int, anchors: int, verdicts: int, trials: int
) -> float:
    """How often the alarm ends a training whose judge is right with these chances, at the beginning and afterwards."""
    rng = np.random.default_rng(0)
    people = np.arange(anchors) % 2

    def measure(chance: float) -> Any:
        right = rng.random((anchors, verdicts)) < chance
        own = np.where(right, people[:, None], 1 - people[:, None]).mean(1)
        return agreement([*zip(own.tolist(), people.tolist(), strict=True)])

    ended = 0
    for _ in range(trials):
        first = measure(before)
        ended += any(is_lower(measure(after), first) for _ in range(rounds))
    return ended / trials


@pytest.mark.long
def test_the_alarm_seldom_ends_the_training_of_a_steady_judge_and_notices_drift() -> None:
    """Four rounds of a steady judge, and one round of a judge that has drifted."""
    for anchors in (24, 50):
        steady = [rate_of_alarms(chance, chance, 4, anchors, 3, 400) for chance in (0.8, 0.9)]
        drifted = [rate_of_alarms(0.9, chance, 1, anchors, 3, 400) for chance in (0.7, 0.5)]
        print(f"{anchors} anchors: steady at .8, .9: {steady}; from .9 to .7, .5: {drifted}")
        assert max(steady) < 0.15 and drifted[1] > 0.95


def test_an_agreement_is_lower_where_the_difference_is_no_chance() -> None:
    def at(value: float, low: float, high: float) -> Agreement:
        return Agreement(value, "kappa", 24, low, high, False)

    first = at(1.0, 0.89, 1.0)
    assert not is_lower(at(0.75, 0.48, 1.0), first), "below the interval of the first, and yet chance"
    assert is_lower(at(0.6, 0.3, 0.8), first) and not is_lower(first, first)


@pytest.mark.parametrize("name", ["inputs", "group", "judgements", "epochs"])
def test_unusable_settings_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be"):
        Config(**{name: 0})  # type: ignore[arg-type]
