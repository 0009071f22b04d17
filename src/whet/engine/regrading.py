"""The same answers graded twice: whether a reward says the same of the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from whet.engine.durable import DurableRun
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.environments.program import ProgramEnvironment
from whet.environments.several import SeveralEnvironment
from whet.errors import BudgetExceeded
from whet.rewards import JUDGE, LABELS, TARGET_SCORE, Objectives, RewardFailed, RewardFunction, Weighted
from whet.rewards.checklist import Checklist
from whet.run import Budget, Run
from whet.types import Completion, Example, Rollout

ROWS = 8
"""Answers that are graded once more at most."""
JUDGE_SHARE = 50
"""One in so many of the judge calls that the limits allow may go into it."""
LARGE = 0.25
"""Mean difference, in units of the range, from which the noise of a judge is said. That of two uniform numbers is 1/3."""
_SAME = 1e-9


@dataclass(frozen=True)
class Regraded:
    """An answer that was graded twice."""

    row: str
    first: float
    second: float

    @property
    def gap(self) -> float:
        """The difference between the two grades."""
        return abs(self.second - self.first)


async def noise_warnings(
    run: DurableRun, env: Environment, baseline: Sequence[Rollout], limits: Budget
) -> list[str]:
    """Warnings when the reward grades answers of the baseline differently the second time.

    At most 8 answers are graded again. A judge is asked where the limits name a number of calls, for at most a fiftieth of
    them, and its noise is said where it is large; of every other reward, or part of one, any difference is. Rewards that read
    probabilities or the steps of an episode, and checklists whose items the judge writes, are left out.
    """
    examples = {example.id: example for example in env.validation}
    answers = [(examples[r.example_id], r) for r in baseline if r.error is None and r.example_id in examples]
    stepwise = _has_steps(env)
    warnings = []
    for number, (part, name) in enumerate(_parts(env.reward)):
        reads_steps = stepwise and _reads_steps(part)
        writes_items = isinstance(part, Checklist) and not part.items
        if part.needs & {LABELS, TARGET_SCORE} or reads_steps or writes_items:
            continue
        judged, width = JUDGE in part.needs, part.high - part.low
        most = _affordable(part, limits) if judged else ROWS
        pairs = await _grade(run.branch(f"{part.name}-{number}").sampling_anew(), part, name, answers[:most])
        different = [pair for pair in pairs if pair.gap > _SAME * width]
        if not different or (judged and fmean(pair.gap for pair in pairs) < LARGE * width):
            continue
        warnings.append(_warning(part, different, len(pairs)) + (_JUDGED if judged else _LOCAL))
    return warnings


def _has_steps(env: Environment) -> bool:
    """Whether the environment, or that of a case, grades rollouts with steps, which the rollouts of episodes do not keep."""
    cases = env.cases.values() if isinstance(env, SeveralEnvironment) else ()
    return isinstance(env, MultiTurn | ProgramEnvironment) or any(_has_steps(case.env) for case in cases)


def _reads_steps(reward: RewardFunction) -> bool:
    """Whether the reward, or one that it is made of, reads the steps of a rollout."""
    cases: Mapping[str, RewardFunction] = getattr(reward, "rewards", {})
    parts: Sequence[tuple[float, RewardFunction]] = getattr(reward, "parts", ())
    inner = [*cases.values(), *(part for _, part in parts)]
    return bool(getattr(reward, "reads_steps", False)) or any(map(_reads_steps, inner))


def _parts(reward: RewardFunction) -> list[tuple[RewardFunction, str | None]]:
    """The rewards that are graded again, each with its name among the parts of a rollout; None for a reward that is not made of
    others."""
    if isinstance(reward, Objectives):
        return [(reward.parts[item.part][1], item.name) for item in reward.items if item.part is not None]
    if not isinstance(reward, Weighted):
        return [(reward, None)]
    names = Counter(part.name for _, part in reward.parts)
    return [(part, part.name) for _, part in reward.parts if names[part.name] == 1]


def _affordable(reward: RewardFunction, limits: Budget) -> int:
    """Count the answers that a judge may grade once more; 0 without a limit on calls."""
    named = [limit for limit in (limits.judge_calls, limits.calls) if limit is not None]
    each = max(1, int(getattr(reward, "judge_calls", 1)))
    return min(ROWS, min(named, default=0) // (JUDGE_SHARE * each))


async def _grade(
    run: DurableRun, reward: RewardFunction, name: str | None, answers: Sequence[tuple[Example, Rollout]]
) -> list[Regraded]:
    """The answers graded by a reward, beside what it said before; nothing where the limits end it."""

    async def one(branch: Run, answer: tuple[Example, Rollout]) -> Regraded | None:
        example, rollout = answer
        first = rollout.reward if name is None else rollout.parts.get(name)
        completion = Completion(rollout.output, thought=rollout.thought, sentence=rollout.sentence)
        try:
            again = await reward.grade(branch, example, completion)
        except RewardFailed:
            return None
        return None if first is None else Regraded(example.place, first, again.value)

    try:
        graded = await run.map(one, answers)
    except BudgetExceeded:
        return []
    return [pair for pair in graded if pair is not None]


_LOCAL = (
    " A search cannot learn from chance, and chance hides real gains. Let the reward depend only on "
    "the row and the answer, not on random numbers, the time, or data from earlier calls."
)
_JUDGED = (
    " The preferences of such a judge are largely chance. Let the judge give more samples (`samples: "
    "3`), define in the rubric what earns which score, or name a stronger judge."
)


def _warning(reward: RewardFunction, different: Sequence[Regraded], of: int) -> str:
    worst = max(different, key=lambda one: one.gap)
    return (
        f"The reward {reward.name} gave the same answer to {worst.row} {worst.first:g} at first and {worst.second:g} "
        f"the second time, and differed in {len(different)} of {of} answers that it graded twice."
    )
