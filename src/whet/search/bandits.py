"""Best-arm identification: which of several prompts are the best, for a given number of evaluations.

Prompts are arms, a pull evaluates an arm on some examples. All arms see the examples in the same order
(common random numbers), and an arm that has seen every example is known exactly and is not pulled again. No
rule spends more than its budget, counted in evaluations of one example. Ties keep the earlier arm.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Run
from whet.types import Example, Score

Rule = Literal["ucb", "ucb_e", "successive_rejects", "successive_halving", "brute_force"]
PULL = 32
"""Examples of one pull of the UCB rules, as in the paper; fewer if each arm could not be pulled twice."""

Evaluate = Callable[[Run, int, Sequence[Example]], Awaitable[float]]


@dataclass
class Arms:
    """The estimates of `n` arms. `evaluate(run, arm, examples)` gives a mean reward in [low, high].

    `seen[i]` counts the examples and `pulls[i]` the pulls of arm i; `left` is the rest of the budget.
    """

    n: int
    examples: Sequence[Example]
    left: int
    evaluate: Evaluate
    low: float = 0.0
    high: float = 1.0
    seen: list[int] = field(init=False)
    pulls: list[int] = field(init=False)
    totals: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.seen, self.pulls, self.totals = [0] * self.n, [0] * self.n, [0.0] * self.n

    async def pull(self, run: Run, chosen: Sequence[int], size: int) -> None:
        """Evaluate the chosen arms on their next `size` examples each, as far as examples and budget go."""
        work: list[tuple[int, Sequence[Example]]] = []
        for arm in chosen:
            take = min(size, len(self.examples) - self.seen[arm], self.left)
            if take > 0:
                self.left -= take
                work.append((arm, self.examples[self.seen[arm] : self.seen[arm] + take]))
        means = await run.map(lambda branch, item: self.evaluate(branch, *item), work)
        for (arm, examples), mean in zip(work, means, strict=True):
            self.seen[arm] += len(examples)
            self.pulls[arm] += 1
            self.totals[arm] += mean * len(examples)

    def mean(self, arm: int) -> float:
        """Mean reward, minus infinity before the first pull."""
        return self.totals[arm] / self.seen[arm] if self.seen[arm] else float("-inf")

    def scaled_mean(self, arm: int) -> float:
        """Mean reward on the scale from 0 to 1."""
        return (self.mean(arm) - self.low) / ((self.high - self.low) or 1.0)

    def rank(self, among: Sequence[int]) -> list[int]:
        """Arms by mean, best first; ties in the order of the arms."""
        return sorted(among, key=lambda arm: (-self.mean(arm), arm))

    def open(self) -> list[int]:
        """Arms that have not seen every example."""
        return [arm for arm in range(self.n) if self.seen[arm] < len(self.examples)]


async def upper_confidence(
    run: Run, arms: Arms, keep: int, size: int, bonus: Callable[[Arms, int], float]
) -> list[int]:
    """Pull every arm once, then the `keep` arms of highest mean + bonus at a time, while the budget lasts."""
    size = max(1, min(size, arms.left // (2 * arms.n)))
    await arms.pull(run, range(arms.n), size)
    while arms.left > 0 and arms.open():
        upper = {arm: arms.scaled_mean(arm) + bonus(arms, arm) for arm in arms.open()}
        await arms.pull(run, sorted(upper, key=lambda arm: (-upper[arm], arm))[:keep], size)
    return arms.rank(range(arms.n))


def ucb(c: float) -> Callable[[Arms, int], float]:
    """Bonus c sqrt(ln t / n_i) of an arm pulled n_i times in t pulls of all arms."""
    return lambda arms, arm: c * math.sqrt(math.log(sum(arms.pulls)) / arms.pulls[arm])


def ucb_e(c: float) -> Callable[[Arms, int], float]:
    """Bonus sqrt(c / n_i) of an arm pulled n_i times (UCB-E, Audibert et al. 2010)."""
    return lambda arms, arm: math.sqrt(c / arms.pulls[arm])


async def successive_rejects(run: Run, arms: Arms, keep: int) -> list[int]:
    """Drop the worst arm after each of n - keep phases (Audibert et al. 2010, section 4).

    After phase j every survivor has seen n_j = budget / (s (n + 1 - j)) examples. The constant s makes the
    phases cost the budget; for keep = 1 it is the paper's 1/2 + sum of 1/i for i from 2 to n.
    """
    n, budget, seen, dropped = arms.n, arms.left, 0, list[int]()
    alive = list(range(n))
    s = sum(1 / i for i in range(keep + 1, n + 1)) + keep / (keep + 1)
    for j in range(1, n - keep + 1):
        wanted = max(1, math.floor(budget / (s * (n + 1 - j))))
        await arms.pull(run, alive, wanted - seen)
        seen = wanted
        worst = arms.rank(alive)[-1]
        alive.remove(worst)
        dropped.insert(0, worst)
    return arms.rank(alive) + dropped


async def successive_halving(run: Run, arms: Arms, keep: int) -> list[int]:
    """Drop the lower half until `keep` arms are left, the budget shared evenly (Karnin et al. 2013)."""
    budget, alive, dropped = arms.left, list(range(arms.n)), list[int]()
    rounds = math.ceil(math.log2(arms.n / keep))
    for _ in range(rounds):
        await arms.pull(run, alive, max(1, budget // (rounds * len(alive))))
        order = arms.rank(alive)
        half = max(keep, math.ceil(len(alive) / 2))
        alive, dropped = sorted(order[:half]), order[half:] + dropped
    return arms.rank(alive) + dropped


async def brute_force(run: Run, arms: Arms) -> list[int]:
    """Every arm on the same budget / n examples."""
    await arms.pull(run, range(arms.n), max(1, arms.left // arms.n))
    return arms.rank(range(arms.n))


async def explore(run: Run, arms: Arms, rule: Rule, keep: int, size: int, c: float) -> list[int]:
    """Spend the budget of the arms by a rule; all arms, best first, those kept before those dropped.

    With no more arms than `keep` there is nothing to choose, but each is still measured.
    """
    if rule == "brute_force" or arms.n <= keep:
        return await brute_force(run, arms)
    if rule == "successive_rejects":
        return await successive_rejects(run, arms, keep)
    if rule == "successive_halving":
        return await successive_halving(run, arms, keep)
    return await upper_confidence(run, arms, keep, size, ucb(c) if rule == "ucb" else ucb_e(c))


async def select_prompts(
    run: Run,
    env: Environment,
    prompts: Sequence[Prompt],
    examples: Sequence[Example],
    *,
    rule: Rule,
    keep: int,
    budget: int,
    c: float = 1.0,
) -> list[tuple[int, Score]]:
    """Numbers and scores of all prompts, best first, for at most `budget` evaluations of one example.

    The rule is to find the best `keep`; `c` is the exploration of the two UCB rules. A prompt that the budget
    never reached is left out.
    """

    async def evaluate(branch: Run, arm: int, batch: Sequence[Example]) -> float:
        return (await env.score(branch, [prompts[arm]], batch))[0].mean

    arms = Arms(len(prompts), examples, budget, evaluate, env.reward.low, env.reward.high)
    order = [arm for arm in await explore(run, arms, rule, keep, PULL, c) if arms.seen[arm]]
    return [(arm, Score(arms.mean(arm), arms.seen[arm])) for arm in order]
