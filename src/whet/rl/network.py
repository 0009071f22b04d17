"""The parts that every trained network needs: Adam, notes for a resume, and a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from whet.rl.blob import Parts, copy_tensors, pack, read_blob

Weights = dict[str, Tensor]


def joint_norm(gradients: Sequence[Tensor]) -> float:
    """The norm of all numbers of these gradients together."""
    return float(torch.stack([gradient.norm() for gradient in gradients]).norm())


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with its defaults, after clipping the gradient's norm.

    The steps of torch.optim.Adam; importing that takes seconds, for a compiler that nothing here uses.
    """

    DECAYS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, weights: Weights, rate: float) -> None:
        self.weights, self.rate, self.updates = weights, rate, 0
        self.mean = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.square = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], clip: float) -> None:
        """One step along gradients in the order of the weights, scaled down to a joint norm of `clip`."""
        self.updates += 1
        scale = min(1.0, clip / (joint_norm(gradients) + 1e-6))
        first, second = (1 - decay**self.updates for decay in self.DECAYS)
        for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
            mean = self.mean[name].mul_(self.DECAYS[0]).add_(gradient, alpha=scale * (1 - self.DECAYS[0]))
            square = self.square[name].mul_(self.DECAYS[1])
            square.addcmul_(gradient, gradient, value=scale**2 * (1 - self.DECAYS[1]))
            deviation = square.sqrt().add_(self.EPSILON * second**0.5)
            weight.addcdiv_(mean, deviation, value=-self.rate * second**0.5 / first)


class TrainedNetwork:
    """Base of the networks that a method trains: `weights` with Adam at rate `lr`; `name` stands in errors.

    `notes`: JSON values that a method must find again after a resume. `seconds`: time that this process spent in
    updates (not saved). `more`: other tensors that a checkpoint must hold.
    """

    def __init__(self, name: str, weights: Weights, lr: float, more: Parts | None = None) -> None:
        self.notes: dict[str, Any] = {}
        self.seconds = {"update": 0.0}
        self._name, self._more = name, more or {}
        self._weights = weights
        self._adam = Adam({name: weight.detach() for name, weight in weights.items()}, lr)

    def save(self) -> bytes:
        """Weights, Adam's moments and the notes as safetensors bytes."""
        return pack(self._parts(), {"notes": self.notes, "updates": self._adam.updates})

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned; training goes on bit for bit as it would have. Raises UsageError."""
        facts, stored = read_blob(blob, self._name)
        copy_tensors(self._parts(), stored, self._name)
        self.notes, self._adam.updates = facts["notes"], facts["updates"]

    def _parts(self) -> Parts:
        adam = self._adam
        return {"weights": self._weights, "mean": adam.mean, "square": adam.square, **self._more}
