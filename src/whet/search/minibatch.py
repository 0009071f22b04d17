"""Drawing examples, and showing to a model what went wrong on them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from whet.types import Example, Rollout, content_hash

_SHOWN = 1500


def minibatch(
    rng: random.Random, examples: Sequence[Example], k: int, *, balanced: bool = False
) -> list[Example]:
    """`k` different examples in random order; all of them, shuffled, when there are no more than `k`.

    `balanced` takes the targets in turn, so that each is there as often as `k` and the data allow.
    """
    order = rng.sample(list(examples), len(examples))
    if not balanced:
        return order[:k]
    groups: dict[str, list[Example]] = {}
    for example in order:
        groups.setdefault(content_hash(example.target), []).append(example)
    turns = sorted(
        (turn, position) for position, group in enumerate(groups.values()) for turn in range(len(group))
    )
    dealt = list(groups.values())
    return [dealt[position][turn] for turn, position in turns[:k]]


def mistakes(rollouts: Sequence[Rollout], high: float) -> list[Rollout]:
    """Rollouts that a critic can learn from: answered, below full reward, and not above the mean of all.

    For a 0/1 reward these are the errors. An answer that could not be parsed counts; a call that failed
    at the provider says nothing about the prompt and does not. Worst first.
    """
    answered = [r for r in rollouts if r.error is None or r.error.startswith("parse:")]
    mean = sum(r.reward for r in answered) / max(1, len(answered))
    wrong = [r for r in answered if r.reward < high and r.reward <= mean + 1e-12]
    return sorted(wrong, key=lambda r: r.reward)


def show_example(example: Example) -> str:
    """An example's input and target as text for a meta-prompt, long inputs cut."""
    target = "" if example.target is None else f"\nWanted: {_cut(_plain(example.target))}"
    return f"Input: {_cut(example.user_text)}{target}"


def show_rollout(example: Example, rollout: Rollout) -> str:
    """An example with what the model answered, how it was graded and why, for a meta-prompt."""
    lines = [show_example(example), f"Answered: {_cut(rollout.output)}", f"Reward: {rollout.reward:.3g}"]
    if rollout.error:
        lines.append(f"Problem: {_cut(rollout.error)}")
    if rollout.critique:
        lines.append(f"Critique: {_cut(rollout.critique)}")
    return "\n".join(lines)


def _plain(target: object) -> str:
    return target if isinstance(target, str) else str(target)


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} [...]"
