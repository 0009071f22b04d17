"""What takes the steps: Adam over the trainable weights and the critic, with everything that a resume needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from whet.rl import blob
from whet.rl.policy_model.backbone import Backbone, Tensors, diverged

MAX_NORM = 1.0
"""Bound on the norm of the policy's gradient."""
CRITIC_RATE = 0.01


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
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over a body's trainable weights and a linear critic.

    `critic`: `weight` (d,) and `bias` of a linear map from the last hidden state to its value, zero at first. `seed`
    decides the order of minibatches.
    """

    def __init__(self, body: Backbone, seed: int) -> None:
        width = body.weights.model.get_input_embeddings().weight.shape[1]
        self.critic: Tensors = {
            "weight": torch.zeros(width, device=body.device, requires_grad=True),
            "bias": torch.zeros((), device=body.device, requires_grad=True),
        }
        self.generator = torch.Generator().manual_seed(seed)
        self._learning = {"weights": body.trainable, "critic": self.critic}
        self._adam = torch.optim.Adam([{"params": list(part.values())} for part in self._learning.values()])
        for weight in (weight for part in self._learning.values() for weight in part.values()):
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self._adam.state[weight] = {"step": torch.tensor(0.0), **moments}

    def minibatches(self, n: int, settings: Update) -> Iterator[list[int]]:
        """Places of `n` samples, `epochs` times, in minibatches; in a new order each time if there are several."""
        size = settings.minibatch or n
        for _ in range(settings.epochs):
            order = list(range(n)) if size >= n else torch.randperm(n, generator=self.generator).tolist()
            yield from (order[at : at + size] for at in range(0, n, size))

    def step(self, lr: float) -> float:
        """Clip the gradients, take a step and forget them; the norm of the policy's gradient before clipping.

        Raises UsageError for a gradient that is not finite; the weights stay as they were.
        """
        policy, critic = self._adam.param_groups
        policy["lr"], critic["lr"] = lr, CRITIC_RATE
        norm = torch.nn.utils.clip_grad_norm_(policy["params"], MAX_NORM)
        if not torch.isfinite(norm):
            raise diverged("the gradient")
        self._adam.step()
        self._adam.zero_grad()
        return float(norm)

    def tensors(self) -> blob.Parts:
        """Weights, critic, Adam's moments and the generator by part and name."""
        tensors: blob.Parts = dict(self._learning)
        for part, of in self._learning.items():
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{part}_{moment}"] = {name: self._adam.state[w][moment] for name, w in of.items()}
        return {**tensors, "generator": {"state": self.generator.get_state()}}

    def steps(self) -> dict[str, int]:
        """Steps taken so far by part."""
        return {
            part: int(self._adam.state[next(iter(of.values()))]["step"])
            for part, of in self._learning.items()
        }

    def load(self, stored: blob.Parts, steps: Mapping[str, Any]) -> None:
        """Fill everything with what was saved, or nothing. Raises UsageError when names or shapes differ."""
        blob.fill(self.tensors(), stored, "policy")
        for part, of in self._learning.items():
            for weight in of.values():
                self._adam.state[weight]["step"].fill_(float(steps[part]))
        self.generator.set_state(stored["generator"]["state"])
