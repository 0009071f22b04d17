"""The choice of the training rows that the next step of a training asks about, and of the groups that the step learns from.

A group is the texts that a policy was rewarded for on one row. A group of equal rewards has no advantage, so the calls for it
teach nothing. For rewards of 0 and 1, n texts and a probability of success p, a group is mixed with probability
1 - p^n - (1 - p)^n, which is highest at p = 1/2: that is what `mopps` and `pcl` look for before they pay, and `dynamic` after.

Each selector chooses rows from its statistics and is told the rewards of their groups. All statistics stand in the notes of
the learner, by the id of a row, so a checkpoint holds them and a resumed run chooses what it would have chosen.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.advantages import equal
from whet.rl.score_book import NoteKeeper, row_rewards
from whet.run import Run, convert_record
from whet.search.minibatch import minibatch
from whet.types import Example, Rollout

T = TypeVar("T")

RowChoice = Literal["uniform", "dynamic", "mopps", "pcl", "erpo", "easy-first"]
"""Selectors by name."""
CHOSEN: tuple[RowChoice, ...] = ("dynamic", "mopps", "pcl", "erpo", "easy-first")
"""All selectors that do not draw uniformly."""
NOTE, ASKED = "rows", "rows asked"
TARGET = 0.5
"""The rate of success at which a row teaches most."""
HIT = 0.5
"""From which reward, brought to 0 to 1, an answer counts as right."""

Features = Callable[[Sequence[Example]], Sequence[Sequence[float]]]
"""The features of rows for a value model: a vector of one width for each."""


@dataclass
class RowSelector:
    """Rows drawn uniformly, and the base of the other selectors. `learner` keeps the statistics, `rows` are all there are."""

    learner: NoteKeeper
    rows: Sequence[Example]

    def __post_init__(self) -> None:
        self.learner.notes[NOTE] = {}

    @property
    def state(self) -> dict[str, Any]:
        """The statistics as they are now: a resume replaces them."""
        notes: dict[str, Any] = self.learner.notes
        state: dict[str, Any] = notes.setdefault(NOTE, {})
        return state

    async def choose(self, run: Run, k: int, without: Collection[str] = ()) -> list[Example]:
        """At most `k` different rows, none of those whose ids are in `without`. All chance is the run's."""
        return minibatch(run.rng, [row for row in self.rows if row.id not in without], k)

    def update(self, row: Example, rewards: Sequence[float]) -> None:
        """Take in the rewards of a row's group, brought to 0 to 1."""

    def temperature(self, row: Example, base: float) -> float:
        """The temperature of the samples for a row; `base` is the setting."""
        return base

    def teaches(self, rewards: Sequence[float]) -> bool:
        """Whether a group is learned from; another row is asked about instead of one whose group is not."""
        return True


@dataclass
class DynamicSampling(RowSelector):
    """Dynamic sampling of DAPO; Yu et al. 2025, arXiv:2503.14476, equation 11.

    A group is kept if 0 < number of right answers < n, that is, if its rewards differ. Other rows are asked about in the place
    of the rest, until the step is full, the rounds are used up (`resamples`), or the rows that the limits pay for are.
    """

    def teaches(self, rewards: Sequence[float]) -> bool:
        """Whether the rewards differ."""
        return len(rewards) < 2 or not equal(rewards)


@dataclass
class MoPPS(RowSelector):
    """Model predictive prompt selection; Qu et al. 2025, arXiv:2507.04632, algorithm 1.

        rate_i ~ Beta(alpha_i, beta_i)  for `pool` x k rows drawn uniformly;  take the k with the least (rate_i - target)^2
        alpha <- decay alpha + (1 - decay) + s n,   beta <- decay beta + (1 - decay) + (1 - s) n

    s is the mean reward of the n texts; the prior is Beta(1, 1). `decay` below 1 forgets, as the policy changes; the
    published default is 1. Its code sets both counts to 8 after a group of one; here one text counts as one.
    """

    pool: int = 16
    decay: float = 1.0
    target: float = TARGET

    async def choose(self, run: Run, k: int, without: Collection[str] = ()) -> list[Example]:
        """The rows whose drawn rate of success is nearest to the target."""
        among = await super().choose(run, self.pool * k, without)
        rates = {row.id: run.rng.betavariate(*self.state.get(row.id, (1.0, 1.0))) for row in among}
        return sorted(among, key=lambda row: (rates[row.id] - self.target) ** 2)[:k]

    def update(self, row: Example, rewards: Sequence[float]) -> None:
        """Count successes and failures."""
        alpha, beta = self.state.get(row.id, (1.0, 1.0))
        right = sum(rewards)
        forgotten = 1 - self.decay
        self.state[row.id] = [
            self.decay * alpha + forgotten + right,
            self.decay * beta + forgotten + len(rewards) - right,
        ]


@dataclass
class PCL(RowSelector):
    """Prompt curriculum learning; Gao et al. 2025, arXiv:2510.01135.

        take, of `pool` x k rows drawn uniformly, the k whose predicted rate V(x) is nearest to 1/2;
        then move V(x) towards the mean reward of their groups by squared error

    The paper's V is a language model with a scalar head that learns on the side. This one is linear in `features` of a row (for
    a policy with weights: the frozen reference's last hidden state behind the question), less their mean so far:

        V(x) = b + w . f,   w <- w + rate (s - V) f / (1 + |f|^2),   b <- b + rate (s - V) / (1 + |f|^2)

    the normalised step of least mean squares (Widrow and Hoff 1960), which converges for 0 < rate < 2. The paper's pool could
    not be verified; 4 is our reading. Predictions are recorded, so that a resume chooses the same rows.
    """

    features: Features = field(default=lambda rows: [[] for _ in rows])
    pool: int = 4
    rate: float = 0.5

    async def choose(self, run: Run, k: int, without: Collection[str] = ()) -> list[Example]:
        """The rows whose predicted rate of success is nearest to the target."""
        among = await super().choose(run, self.pool * k, without)

        async def predict() -> list[float]:
            return [self.predict(vector) for vector in self.features(among)]

        values = convert_record(await run.effect("row values", predict), list[float])
        order = sorted(range(len(among)), key=lambda i: (values[i] - TARGET) ** 2)
        return [among[i] for i in order[:k]]

    def predict(self, features: Sequence[float]) -> float:
        """V of a row with these features; 1/2 before anything is known."""
        if not self.state:
            return TARGET
        centred = [f - m for f, m in zip(features, self.state["mean"], strict=True)]
        return float(
            self.state["bias"] + sum(w * f for w, f in zip(self.state["weights"], centred, strict=True))
        )

    def update(self, row: Example, rewards: Sequence[float]) -> None:
        """One step of least mean squares towards the mean reward."""
        (vector,) = self.features([row])
        if not self.state:
            zeros = [0.0] * len(vector)
            self.state.update(mean=list(zeros), weights=zeros, bias=TARGET, seen=0)
        state = self.state
        state["seen"] += 1
        state["mean"] = [m + (f - m) / state["seen"] for m, f in zip(state["mean"], vector, strict=True)]
        centred = [f - m for f, m in zip(vector, state["mean"], strict=True)]
        error = sum(rewards) / len(rewards) - self.predict(vector)
        step = self.rate * error / (1 + sum(f * f for f in centred))
        state["weights"] = [w + step * f for w, f in zip(state["weights"], centred, strict=True)]
        state["bias"] += step


@dataclass
class ERPO(RowSelector):
    """The temperature of Explore Residual Prompts; arXiv:2511.04800.

        T_x = min(base + step c_x, hottest),    c_x: visits in a row on which all answers to x were right

    So a row that is always right is sampled hotter, until something else is tried. The paper's code is not public: the formula
    is our reading of its description. Ratios are taken at the temperature of the draw. The other half of ERPO is
    `zero_variance=erpo`.
    """

    step: float = 0.1
    hottest: float = 1.5

    def update(self, row: Example, rewards: Sequence[float]) -> None:
        """Count visits in a row that were all right; one wrong answer sets the count to 0."""
        self.state[row.id] = self.state.get(row.id, 0) + 1 if min(rewards) >= HIT else 0

    def temperature(self, row: Example, base: float) -> float:
        """Hotter for a row that is always right; a base above `hottest` stays."""
        visits = int(self.state.get(row.id, 0))
        return max(base, min(base + self.step * visits, self.hottest))


@dataclass
class EasyFirst(RowSelector):
    """From easy rows to hard ones; Bengio, Louradour, Collobert, Weston: Curriculum Learning, ICML 2009, section 4.

        draw uniformly from the easiest share  min(1, first + (1 - first) asked / horizon)  of the rows

    `asked`: rows so far. `horizon`: after how many of them all rows take part. A row's ease is its number in `column`, where rows
    name a difficulty (higher is harder); else (successes + 1) / (attempts + 2), so that rows nobody tried stand in the middle.
    """

    horizon: int = 1
    first: float = 0.25
    column: str = "difficulty"

    @property
    def share(self) -> float:
        """The share of the rows that take part now."""
        rows = int(self.state.get("asked", 0))
        return min(1.0, self.first + (1 - self.first) * rows / max(1, self.horizon))

    async def choose(self, run: Run, k: int, without: Collection[str] = ()) -> list[Example]:
        """Rows among the easiest."""
        order = sorted(run.rng.sample(list(self.rows), len(self.rows)), key=self._difficulty)
        most = max(k, math.ceil(self.share * len(order)))
        easy = [row for row in order[:most] if row.id not in without]
        return minibatch(run.rng, easy, k)

    def update(self, row: Example, rewards: Sequence[float]) -> None:
        """Count the row, its attempts and successes."""
        self.state["asked"] = self.state.get("asked", 0) + 1
        right, attempts = self.state.setdefault("by_row", {}).get(row.id, (0.0, 0))
        self.state["by_row"][row.id] = [right + sum(rewards), attempts + len(rewards)]

    def _difficulty(self, row: Example) -> float:
        difficulty = row.row.get(self.column)
        if isinstance(difficulty, int | float):
            return float(difficulty)
        right, attempts = self.state.get("by_row", {}).get(row.id, (0.0, 0))
        return -float(right + 1) / float(attempts + 2)


def make_selector(
    name: RowChoice, learner: NoteKeeper, rows: Sequence[Example], *, horizon: int, features: Features
) -> RowSelector:
    """The selector of a name with its published or default settings. `horizon`: rows of the first half of the training."""
    if name == "pcl":
        return PCL(learner, rows, features)
    if name == "easy-first":
        return EasyFirst(learner, rows, horizon)
    kinds = {"uniform": RowSelector, "dynamic": DynamicSampling, "mopps": MoPPS, "erpo": ERPO}
    return kinds[name](learner, rows)


def refuse_selectors(chosen: RowChoice, refused: Collection[str], why: str) -> None:
    """Raise UsageError where a method cannot choose its rows so."""
    if chosen in refused:
        raise UsageError(f"rows={chosen} does nothing here: {why}")


@dataclass(frozen=True)
class Rolled(Generic[T]):
    """A row, the rewards of its answers brought to 0 to 1, what its group is learned from, and what a method made of it."""

    row: Example
    rewards: Sequence[float]
    earned: Sequence[float]
    made: T


Roll = Callable[[Sequence[Example], float], Awaitable[Sequence[Rolled[T]]]]
"""Asks about rows at a temperature: one result for each, in order."""


@dataclass
class RowSource:
    """The rows of a training as its steps use them: chosen, asked about, counted, and where nothing differs replaced by others.

    `most`: rows that the limits pay for in the whole training, the replaced ones included; None without a limit. Once they are
    used up a step gets none. `resamples`: times that a step looks for others at most.
    """

    selector: RowSelector
    resamples: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        self.selector.learner.notes[ASKED] = 0

    @property
    def rows_asked(self) -> int:
        """Rows that were asked about so far, the replaced ones included."""
        count: Any = self.selector.learner.notes.get(ASKED, 0)
        return int(count)

    @property
    def is_used_up(self) -> bool:
        """Whether no further row is paid for."""
        return self.most is not None and self.rows_asked >= self.most

    def pay(self, rows: int) -> int:
        """Count so many more rows, or as many as are still paid for; their number."""
        paid = rows if self.most is None else max(0, min(rows, self.most - self.rows_asked))
        self.selector.learner.notes[ASKED] = self.rows_asked + paid
        return paid

    async def collect(self, run: Run, k: int, base: float, roll: Roll[T]) -> list[Rolled[T]]:
        """At most `k` rows with groups that teach; where there is none, the last ones that do not. `base`: the setting's
        temperature."""
        kept: list[Rolled[T]] = []
        idle: list[Rolled[T]] = []
        seen: set[str] = set()
        for _ in range(1 + self.resamples):
            rows = (await self.selector.choose(run, k - len(kept), seen))[: self.pay(k - len(kept))]
            if not rows:
                break
            seen.update(row.id for row in rows)
            rolled = await self._roll(rows, base, roll)
            for one in rolled:
                self.selector.update(one.row, one.rewards)
            kept += [one for one in rolled if self.selector.teaches(one.earned)]
            idle = [one for one in rolled if not self.selector.teaches(one.earned)]
            if len(kept) == k:
                break
        return kept or idle

    async def _roll(self, rows: Sequence[Example], base: float, roll: Roll[T]) -> list[Rolled[T]]:
        """Ask about rows, those of one temperature together; results in the order of the rows."""
        heats = {row.id: self.selector.temperature(row, base) for row in rows}
        by_id: dict[str, Rolled[T]] = {}
        for heat in sorted(set(heats.values())):
            part = [row for row in rows if heats[row.id] == heat]
            by_id |= {one.row.id: one for one in await roll(part, heat)}
        return [by_id[row.id] for row in rows]


async def score_on_rows(
    run: Run,
    env: Environment,
    source: RowSource,
    rewrites: Sequence[Prompt | None],
    k: int,
    grade: Callable[[Rollout], float] | None = None,
    high: float | None = None,
) -> list[float]:
    """Mean reward of each rewrite over at most `k` rows of the source; the lowest for one that cannot be used; none without rows.

    A row's group are the answers under all rewrites: a row on which all of them earn the same does not tell them apart.
    `grade`: what an answer is worth, 0 to `high`; None is the task's reward.
    """
    low = env.reward.low if grade is None else 0.0
    span = (env.reward.high if high is None else high) - low

    async def roll(rows: Sequence[Example], heat: float) -> list[Rolled[None]]:
        by_row = await row_rewards(run, env, rewrites, rows, grade or (lambda one: one.reward), low)
        return [
            Rolled(row, [(r - low) / span for r in rewards], rewards, None)
            for row, rewards in zip(rows, by_row, strict=True)
        ]

    rolled = await source.collect(run, k, 1.0, roll)
    return (
        [sum(one.earned[i] for one in rolled) / len(rolled) for i in range(len(rewrites))] if rolled else []
    )
