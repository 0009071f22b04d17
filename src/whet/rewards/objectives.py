"""Several objectives: every rollout carries their vector, and one number for methods that climb one number.

Where the task names a `reward` beside its objectives, that is the number. Without one it is the weighted mean of what each
objective is worth on the row, in [0, 1]: the reward's place in its range, and 1 / (1 + v / b) of a metric v whose mean is b
under the baseline (v / b / (1 + v / b) where more is better), so that the baseline's mean is worth one half. A row that
passes a bound loses as much as it passes it by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from whet.rewards.composite import Weighted
from whet.run import Run
from whet.stats import Bound, Goal, JointVerdict, decide_objectives
from whet.stats.joint import at_most_equal
from whet.types import Completion, Example, Reward, Rollout, Usage

INPUT_TOKENS, OUTPUT_TOKENS, COST, LATENCY, PROMPT_TOKENS = METRICS = (
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "latency_ms",
    "prompt_tokens",
)
"""Tokens, US dollars and milliseconds of one rollout's calls to the task model, and tokens of the prompt with its slots empty."""


@dataclass(frozen=True)
class Objective:
    """One objective: what the gate demands, and where its value comes from.

    `metric` is one of `METRICS`; else the value is that of the reward number `part` of `Objectives.parts`, in the range from
    `low`. `weight` counts in the one number.
    """

    goal: Goal
    metric: str | None = None
    part: int | None = None
    low: float = 0.0
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The task's name for it."""
        return self.goal.name

    @property
    def worst(self) -> float:
        """The value of an answer that could not be graded; of rewards only."""
        return self.low if self.goal.maximise else self.low + (self.goal.width or 0.0)

    @property
    def best(self) -> float:
        """The largest worth that a reward can have."""
        return self.low + (self.goal.width or 0.0) if self.goal.maximise else self.low

    def worth(self, value: float, baseline: float | None) -> float:
        """The utility of a value, in [0, 1]. `baseline` is the mean of the baseline; a metric without one has the utility one
        half."""
        if self.goal.width is not None:
            place = (value - self.low) / self.goal.width
            worth = place if self.goal.maximise else 1.0 - place
        elif not baseline:
            worth = 0.5 if baseline is None else float(self.goal.maximise == (value > 0))
        else:
            less = 1.0 / (1.0 + value / baseline)
            worth = 1.0 - less if self.goal.maximise else less
        return max(0.0, worth - sum(_excess(bound, value, baseline) for bound in self.goal.bounds))


def _excess(bound: Bound, value: float, baseline: float | None) -> float:
    """The share of the bound by which a value passes it."""
    level = bound.level(baseline)
    if level is None:
        return 0.0
    over = value - level if bound.at_most else level - value
    return 0.0 if at_most_equal(over, 0.0) else over / abs(level) if level else 1.0


@dataclass(frozen=True)
class Objectives(Weighted):
    """The reward of a task with objectives: `parts` are the rewards that are asked, the task's own first where `own`.

    `baseline`: the mean of each objective under the prompt that the run began with, as soon as it is known. `cost` gives the
    US dollars of tokens, where an objective needs them.
    """

    name: str = "objectives"
    items: tuple[Objective, ...] = ()
    own: bool = False
    baseline: Mapping[str, float] = field(default_factory=dict)
    cost: Callable[[Usage], float] | None = None
    batched = False

    @property
    def low(self) -> float:
        return self.parts[0][1].low if self.own else 0.0

    @property
    def high(self) -> float:
        return self.parts[0][1].high if self.own else 1.0

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics among the objectives."""
        return frozenset(item.metric for item in self.items if item.metric is not None)

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """The rewards among the objectives, under their names; `measure` adds the metrics and the one number."""
        results = [await reward.grade(run, example, completion) for _, reward in self.parts]
        named = {name: value for result in results for name, value in result.parts.items()}
        named |= {item.name: results[item.part].value for item in self.items if item.part is not None}
        critiques = dict.fromkeys(result.critique for result in results if result.critique)
        worth = results[0].value if self.own else self._whole(named)
        return Reward(worth, named, "\n".join(critiques) or None)

    def measure(self, rollout: Rollout, seconds: float | None, prompt_tokens: int) -> Rollout:
        """The rollout with the whole vector among its parts, and the one number as its reward.

        `seconds` that its call took; a rollout whose time is needed and not known failed. An answer that could not be graded
        has the worst value of every reward.
        """
        used = rollout.usage
        values: dict[str, float] = {
            INPUT_TOKENS: used.input_tokens,
            OUTPUT_TOKENS: used.output_tokens,
            COST: 0.0 if self.cost is None else self.cost(used),
            LATENCY: 1000.0 * (seconds or 0.0),
            PROMPT_TOKENS: prompt_tokens,
        }
        if rollout.error is None and LATENCY in self.metrics and seconds is None:
            rollout = replace(
                rollout, reward=self.low, error="reward: the time of this answer was not measured"
            )
        worst = {i.name: i.worst for i in self.items if i.metric is None} if rollout.error is not None else {}
        metrics = {i.name: float(values[i.metric]) for i in self.items if i.metric is not None}
        return self.weigh(replace(rollout, parts={**rollout.parts, **worst, **metrics}))

    def weigh(self, rollout: Rollout) -> Rollout:
        """The rollout with the one number that its vector is worth; as it was where the task has a reward of its own."""
        if self.own or rollout.error is not None:
            return rollout
        return replace(rollout, reward=self._whole(rollout.parts))

    def _whole(self, values: Mapping[str, float]) -> float:
        """The weighted mean of what the objectives that have a value are worth; 0 where none has."""
        items = [item for item in self.items if item.name in values]
        total = sum(item.weight for item in items)
        worth = sum(i.weight * i.worth(values[i.name], self.baseline.get(i.name)) for i in items)
        return min(1.0, worth / total) if items else 0.0

    def calibrate(self, rollouts: Sequence[Rollout]) -> Objectives:
        """With the means of the baseline, from its rollouts."""
        rows = [r for r in rollouts if all(item.name in r.parts for item in self.items)]
        if not rows:
            return self
        return replace(self, baseline={i.name: fmean(r.parts[i.name] for r in rows) for i in self.items})

    def values(self, rollout: Rollout) -> dict[str, float]:
        """The value of each objective in one rollout."""
        return {i.name: rollout.parts.get(i.name, rollout.reward) for i in self.items}

    def means(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """The mean of each objective over rollouts (at least one)."""
        rows = [self.values(rollout) for rollout in rollouts]
        return {item.name: fmean(row[item.name] for row in rows) for item in self.items}

    def worths(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """The mean utility of each objective, in [0, 1], over rollouts (at least one)."""
        rows = [self.values(rollout) for rollout in rollouts]
        base = self.baseline
        return {i.name: fmean(i.worth(row[i.name], base.get(i.name)) for row in rows) for i in self.items}

    def meets(self, means: Mapping[str, float]) -> bool:
        """Whether means meet what is demanded, next to those of the baseline; what is not known yet is not held against them."""
        return all(
            i.goal.holds(means[i.name], self.baseline[i.name]) for i in self.items if i.name in self.baseline
        )

    def vector(self, rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
        """The values of each objective, row by row."""
        return {item.name: [r.parts[item.name] for r in rollouts] for item in self.items}

    def decide(
        self,
        baseline: Sequence[Rollout],
        candidate: Sequence[Rollout],
        clusters: Sequence[int] | None = None,
        alpha: float = 0.05,
    ) -> JointVerdict:
        """The verdict of the gate on rollouts of the same rows."""
        goals = [item.goal for item in self.items]
        return decide_objectives(goals, self.vector(baseline), self.vector(candidate), clusters, alpha)

    @property
    def description(self) -> str:
        """The description of the objectives for a model that writes prompts."""
        lines = [f"- {i.name}{_source(i)}: {_describe_goal(i)}" for i in self.items]
        return "\n".join([AIMS, *lines])


def _source(item: Objective) -> str:
    return f" ({item.metric})" if item.metric not in (None, item.name) else ""


def _describe_goal(item: Objective) -> str:
    bounds = [f"{bound} on average" for bound in item.goal.bounds]
    return ", ".join(["more is better" if item.goal.maximise else "less is better", *bounds])


AIMS = "What counts, all together:"
