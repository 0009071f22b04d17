"""The optimizer: Adam over the trainable weights, with everything that a resume needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from whet.rl import blob
from whet.rl.network import Adam, joint_norm
from whet.rl.policy_model.backbone import Backbone, divergence_error

Loss = Literal["ppo", "cispo", "importance", "reinforce", "gspo", "dro", "rebel"]
WHOLE = ("dro", "rebel")
"""Losses of whole texts, that compare the texts of a group among themselves."""
Aggregation = Literal["token", "sequence", "constant"]
MAX_NORM = 1.0
"""Bound on the norm of the gradient."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the weights by Adam."""

    lr: float = 1e-4
    """Adam's rate."""
    epochs: int = 1
    """Passes over the samples."""
    minibatch: int = 0
    """Samples of a minibatch; 0: all at once."""
    loss: Loss = "ppo"
    """See `whet.rl.losses`."""
    clip_low: float = 0.2
    """The importance ratio is at least 1 - `clip_low`."""
    clip_high: float = 0.2
    """The importance ratio is at most 1 + `clip_high`."""
    kl: float = 0.0
    """Weight of the divergence from the reference policy in the loss; for dro it is tau."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """The estimator of that divergence."""
    kl_power: float = 0.0
    """With a power above 0, the divergence weighs less where the reference is unsure (`losses.critical_weights`)."""
    kl_tag: str = ""
    """The divergence counts between <tag> and </tag> alone (`losses.partial_weights`); empty: everywhere."""
    eta: float = 1.0
    """The eta of rebel."""
    aggregation: Aggregation = "token"
    """The way in which the losses of own tokens are joined. token: their mean over a minibatch (DAPO). sequence: the mean over
    samples of their means (GRPO as published), in which a token of a long text weighs less. constant: their sum divided by
    samples x `length` (Dr. GRPO)."""
    length: int = 64
    """The length in the divisor of `aggregation` constant."""
    mask: float = 0.0
    """The policy chooses among the tokens that make up this share under the masking policy (`sampling.mask_logits`); 0: all."""


class Optimizer:
    """Adam over a body's trainable weights. `seed` decides the order of minibatches."""

    def __init__(self, body: Backbone, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self._weights = body.trainable
        self._adam = Adam({name: weight.detach() for name, weight in body.trainable.items()}, 0.0)

    def minibatches(self, n: int, settings: Update) -> Iterator[list[int]]:
        """Places of `n` samples, `epochs` times, in minibatches; in a new order each time if there are several."""
        size = settings.minibatch or n
        for _ in range(settings.epochs):
            order = list(range(n)) if size >= n else torch.randperm(n, generator=self.generator).tolist()
            yield from (order[at : at + size] for at in range(0, n, size))

    def step(self, lr: float) -> float:
        """Clip the gradients, take a step at rate `lr` and forget them; the gradient's norm before clipping.

        Raises UsageError for a gradient that is not finite; the weights stay as they were.
        """
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self._weights.values()]
        norm = joint_norm(gradients)
        if not math.isfinite(norm):
            raise divergence_error("the gradient")
        self._adam.rate = lr
        self._adam.step(gradients, MAX_NORM)
        for weight in self._weights.values():
            weight.grad = None
        return norm

    def tensors(self) -> blob.Parts:
        """Weights, Adam's moments and the generator by part and name."""
        moments = {"mean": self._adam.mean, "square": self._adam.square}
        return {"weights": self._weights, **moments, "generator": {"state": self.generator.get_state()}}

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return self._adam.updates

    def load(self, stored: blob.Parts, steps: int) -> None:
        """Fill everything with what was saved, or nothing. Raises UsageError when names or shapes differ."""
        blob.copy_tensors(self.tensors(), stored, "policy")
        self._adam.updates = steps
        self.generator.set_state(stored["generator"]["state"])
