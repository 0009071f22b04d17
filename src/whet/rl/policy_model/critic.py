"""A critic for PPO: the value of what a policy has written so far, learned from what texts earned.

    V(s_t) = w . h_t / sqrt(d) + b        h_t: the reference policy's last hidden state before token t, standardised, d wide
    loss   = 1/2 (V(s_t) - G_t)^2         G_t = A_t + V(s_t), the returns of generalised advantage estimation

The value term of PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 9) with advantages by arXiv:1506.02438. The states are those of
the frozen reference and not of the policy: so the critic's inputs stay where they are while the policy moves, and its gradient
never reaches the policy's weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from whet.rl.advantages import Rows
from whet.rl.blob import Parts
from whet.rl.network import Adam

if TYPE_CHECKING:
    from whet.rl.policy_model.sampling import Sample

FITS = 4
"""Steps of Adam for each update of the policy."""
MAX_NORM = 1.0
"""Bound on the norm of the critic's gradient."""


class Critic:
    """A linear value function of states that are `width` wide; zero at first."""

    def __init__(self, width: int) -> None:
        self._weights = {"weight": torch.zeros(width), "bias": torch.zeros(())}
        self._adam = Adam(self._weights, 0.0)

    @torch.no_grad()
    def values(self, states: Sequence[Tensor]) -> Rows:
        """The value of each state: for states (T, d) of each sample T numbers."""
        values = iter(self._predict(_standard(torch.cat(list(states)))).tolist())
        return [[next(values) for _ in row] for row in states]

    def fit(self, states: Sequence[Tensor], returns: Rows, lr: float) -> float:
        """Move the values towards the returns by `FITS` steps at rate `lr`; the loss before the first."""
        goal = torch.tensor([value for row in returns for value in row])
        inputs = _standard(torch.cat(list(states)))
        self._adam.rate = lr
        losses = []
        for _ in range(FITS):
            error = self._predict(inputs) - goal
            losses.append(float(error.square().mean() / 2))
            self._adam.step([inputs.T @ error / len(error), error.mean()], MAX_NORM)
        return losses[0]

    def _predict(self, inputs: Tensor) -> Tensor:
        return inputs @ self._weights["weight"] + self._weights["bias"]

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return self._adam.updates

    @steps.setter
    def steps(self, steps: int) -> None:
        self._adam.updates = steps

    def tensors(self) -> Parts:
        """Weights and Adam's moments by part and name."""
        adam = self._adam
        return {"critic": self._weights, "critic_mean": adam.mean, "critic_square": adam.square}


def own_states(samples: Sequence[Sample], states: Sequence[Tensor]) -> list[Tensor]:
    """The states before the tokens that the policy wrote itself."""
    return [row[torch.tensor(sample.own)] for sample, row in zip(samples, states, strict=True)]


def _standard(states: Tensor) -> Tensor:
    """States with mean 0 over their d entries and a norm of 1."""
    width = states.shape[-1]
    scaled: Tensor = F.layer_norm(states.float(), (width,)) / math.sqrt(width)
    return scaled
