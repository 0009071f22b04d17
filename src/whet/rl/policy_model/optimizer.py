"""What takes the steps: Adam over the trainable weights, with everything that a resume needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from whet.rl import blob
from whet.rl.policy_model.backbone import Backbone, diverged

MAX_NORM = 1.0
"""Bound on the norm of the gradient."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the weights: Adam at rate `lr`, `epochs` passes over the samples in minibatches of `minibatch` samples
    (0: all at once).

    `loss`: see `whet.rl.losses`; `clip_low`, `clip_high` bound the importance ratio to [1 - low, 1 + high]. `kl` weighs the
    divergence from the reference policy in the loss.
    """

    lr: float = 1e-4
    epochs: int = 1
    minibatch: int = 0
    loss: Literal["ppo", "importance", "reinforce"] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0


class Optimizer:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over a body's trainable weights. `seed` decides the order of minibatches."""

    def __init__(self, body: Backbone, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self._weights = body.trainable
        self._adam = torch.optim.Adam(self._weights.values())
        for weight in self._weights.values():
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self._adam.state[weight] = {"step": torch.tensor(0.0), **moments}

    def minibatches(self, n: int, settings: Update) -> Iterator[list[int]]:
        """Places of `n` samples, `epochs` times, in minibatches; in a new order each time if there are several."""
        size = settings.minibatch or n
        for _ in range(settings.epochs):
            order = list(range(n)) if size >= n else torch.randperm(n, generator=self.generator).tolist()
            yield from (order[at : at + size] for at in range(0, n, size))

    def step(self, lr: float) -> float:
        """Clip the gradients, take a step and forget them; the gradient's norm before clipping.

        Raises UsageError for a gradient that is not finite; the weights stay as they were.
        """
        (group,) = self._adam.param_groups
        group["lr"] = lr
        norm = torch.nn.utils.clip_grad_norm_(group["params"], MAX_NORM)
        if not torch.isfinite(norm):
            raise diverged("the gradient")
        self._adam.step()
        self._adam.zero_grad()
        return float(norm)

    def tensors(self) -> blob.Parts:
        """Weights, Adam's moments and the generator by part and name."""
        tensors: blob.Parts = {"weights": self._weights}
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[moment] = {name: self._adam.state[w][moment] for name, w in self._weights.items()}
        return {**tensors, "generator": {"state": self.generator.get_state()}}

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._adam.state[next(iter(self._weights.values()))]["step"])

    def load(self, stored: blob.Parts, steps: int) -> None:
        """Fill everything with what was saved, or nothing. Raises UsageError when names or shapes differ."""
        blob.fill(self.tensors(), stored, "policy")
        for weight in self._weights.values():
            self._adam.state[weight]["step"].fill_(float(steps))
        self.generator.set_state(stored["generator"]["state"])
