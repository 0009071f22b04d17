"""The scores by which prompts are compared if a model scores labels: they tell more than the share of right answers."""

from __future__ import annotations

from typing import Literal

from whet.environments.environment import Environment
from whet.errors import UsageError, parameter
from whet.rewards import isinstance_label_reward

Signal = Literal["auto", "reward", "gap", "likelihood", "accuracy+likelihood"]


def label_signal(env: Environment, reward: Signal, auto: Signal) -> tuple[str, ...]:
    """Names of the parts of a score to add up; none for the task's own reward.

    `auto` stands for the signal named so where the task counts right labels, else for the reward. Raises UsageError for a signal
    that the task does not have.
    """
    parts = env.scores and isinstance_label_reward(env.reward)
    if reward == "auto":
        return tuple(auto.split("+")) if parts and env.reward.name == "exact_match" else ()
    if reward != "reward" and not parts:
        raise UsageError(
            f"reward={reward} needs a task that scores labels, with a reward made of them (exact_match, gap, "
            f"likelihood); this one has {env.reward.name}. Use {parameter('config.reward', 'reward')}."
        )
    return () if reward == "reward" else tuple(reward.split("+"))
