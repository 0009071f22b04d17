"""The forecast of a training step's time: a short trial of the open policy before anything is recorded, paid or learned."""

from __future__ import annotations

import time
from typing import Any

from whet.rl.policy_model.model import Conversation, PolicyModel

SHORT, LONG = 2, 6
"""Tokens of each text in the two trials of writing."""
QUESTIONS = ("problems", "inputs", "questions", "contexts", "tasks")
"""Settings that say how many questions a step asks, each of which gets `group` texts."""


def texts_of_step(config: Any) -> int | None:
    """Texts that a step writes, by the settings of a method; None where they do not say."""
    group = getattr(config, "group", None)
    if group is None:
        return None
    return int(group) * next((getattr(config, name) for name in QUESTIONS if hasattr(config, name)), 1)


def foresee_step_seconds(policy: PolicyModel, config: Any, conversation: Conversation) -> float | None:
    """Seconds that the policy works for a step, each text as long as `max_tokens` allows; None where the settings do not say
    how many texts a step has. The weights, the gradients and `policy.seconds` stay as they were.

        step = start + (max_tokens - SHORT) rate + epochs update,  rate = (time of LONG - time of SHORT) / (LONG - SHORT)

    `update` is the time of one gradient, and with `kl` of one reading by the reference policy, times the tokens of a step over
    those of the trial.
    """
    texts = texts_of_step(config)
    if texts is None or not hasattr(config, "update"):
        return None
    before = dict(policy.seconds)
    policy.sample([conversation], 1, max_tokens=1)  # the first pass of a process takes longer than others

    def write(tokens: int) -> tuple[float, list[Any]]:
        began = time.perf_counter()
        (group,) = policy.sample([conversation], texts, max_tokens=tokens)
        return time.perf_counter() - began, group

    start, _ = write(SHORT)
    whole, samples = write(LONG)
    rate = max(0.0, whole - start) / (LONG - SHORT)
    settings = config.update()
    update = policy.time_gradient(samples, settings)
    read = len(samples[0].prompt)
    grown = (read + config.max_tokens) / (read + max(len(sample.tokens) for sample in samples))
    policy.seconds.update(before)
    seconds: float = start + max(0, config.max_tokens - SHORT) * rate + settings.epochs * update * grown
    return seconds
