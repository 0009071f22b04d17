"""A surrogate over discrete choices: optuna's tree-structured Parzen estimator (TPE), multivariate.

Bergstra, Bardenet, Bengio, Kégl: Algorithms for Hyper-Parameter Optimization. NeurIPS 2011.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from whet.errors import UsageError
from whet.types import Rollout

STARTUP = 5
TRIES = 5


def check_optuna(method: str) -> None:
    """Raises UsageError where optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"The method {method} needs optuna. Install it with: pip install 'whet[mipro]'")


@dataclass
class Observed:
    """A combination of choices, and by row the reward that it got there: a full evaluation weighs as much as it has rows."""

    choices: Mapping[str, int]
    rewards: dict[str, float] = field(default_factory=dict)

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Count more rollouts; a row that was seen counts once."""
        self.rewards |= {rollout.example_id: rollout.reward for rollout in rollouts}

    def mean(self, prior: float, weight: float) -> float:
        """The mean reward, drawn towards `prior` as if that had been seen `weight` times."""
        return (sum(self.rewards.values()) + prior * weight) / (len(self.rewards) + weight)


def suggest(
    sizes: Mapping[str, int], seen: Sequence[Observed], weight: float, seed: int
) -> Mapping[str, int]:
    """The next combination to try: for each name a number below its size.

    Each combination counts once, with a mean that is drawn towards the mean of all by `weight` rows, so that few rows do not make
    a winner. The first `STARTUP` combinations are drawn at random. The same arguments give the same answer.
    """
    import optuna

    prior = fmean(fmean(o.rewards.values()) for o in seen) if seen else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        space = {
            name: optuna.distributions.CategoricalDistribution(tuple(range(size)))
            for name, size in sizes.items()
        }
        for one in seen:
            value = one.mean(prior, weight)
            trial = optuna.trial.create_trial(
                params=dict(one.choices), distributions=dict(space), value=value
            )
            study.add_trial(trial)
        known = [dict(one.choices) for one in seen]
        params = dict(study.ask(dict(space)).params)
        for _ in range(TRIES):
            if params not in known:
                break
            params = dict(study.ask(dict(space)).params)
    return {name: int(params[name]) for name in sizes}
