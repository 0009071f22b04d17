"""Rewards of single tokens from pairs of a policy's own texts: the model pi_dpo of Reinforced Token Optimization.

    pi_dpo <- the reference policy, trained by DPO on (best, worst) of each group whose rewards differ
    r_t    = log pi_dpo(token t) - log reference(token t)

Zhong et al. 2024, arXiv:2404.18922, algorithm 2; `advantages.token_rewards_rto` puts r_t beside the reward of the whole text. The
paper trains pi_dpo before, on people's pairs. Here there are none: it learns from each step's groups after they were
rewarded, so that the first step has no token rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whet.rl import losses
from whet.rl.advantages import Rows
from whet.rl.blob import Parts
from whet.rl.network import Adam
from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.learning import score_tokens
from whet.rl.policy_model.optimizer import MAX_NORM

if TYPE_CHECKING:
    from whet.rl.policy_model.sampling import Sample

BETA = 0.1
"""Of DPO; the paper's."""


class TokenReward:
    """pi_dpo: a second set of a body's trainable weights with an optimiser of its own."""

    def __init__(self, body: Backbone) -> None:
        self._weights = {name: weight.detach().clone() for name, weight in body.trainable.items()}
        self._adam = Adam(self._weights, 0.0)

    @torch.no_grad()
    def log_ratios(self, body: Backbone, samples: Sequence[Sample], reference: Rows) -> Rows:
        """log pi_dpo - log reference of each token of each sample; `reference`: its log-probabilities there."""
        rows = []
        with self._in_place(body):
            for sample, base in zip(samples, reference, strict=True):
                (now,) = score_tokens(body, [sample]).logprobs.tolist()
                rows.append([p - q for p, q in zip(now, base, strict=True)])
        return rows

    def fit(
        self,
        body: Backbone,
        pairs: Sequence[tuple[Sample, Sample]],
        reference: Sequence[tuple[float, float]],
        lr: float,
    ) -> float:
        """One step of Adam at rate `lr` down the DPO loss of pairs (better, worse); the loss before it.

        `reference`: log-probabilities of both whole texts under the reference policy.
        """
        total = 0.0
        gradients: list[Tensor] = [torch.zeros_like(weight) for weight in self._weights.values()]
        with self._in_place(body):
            for pair, base in zip(pairs, reference, strict=True):
                scores = score_tokens(body, pair)
                chosen, rejected = losses.sequence_logprobs(scores.logprobs, scores.own)[:, None]
                known = torch.tensor(base, device=body.device)[:, None]
                loss = losses.dpo(chosen, rejected, known[0], known[1], BETA).mean() / len(pairs)
                total += float(loss.detach())
                for sum_, gradient in zip(
                    gradients, torch.autograd.grad(loss, list(body.trainable.values())), strict=True
                ):
                    sum_ += gradient
        self._adam.rate = lr
        self._adam.step(gradients, MAX_NORM)
        return total

    @contextmanager
    def _in_place(self, body: Backbone) -> Iterator[None]:
        """pi_dpo's weights in the place of the policy's for the time of a block."""
        policy = {name: weight.detach().clone() for name, weight in body.trainable.items()}
        try:
            for name, weight in body.trainable.items():
                weight.data.copy_(self._weights[name])
            yield
        finally:
            for name, weight in body.trainable.items():
                weight.data.copy_(policy[name])

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
        return {"dpo": self._weights, "dpo_mean": adam.mean, "dpo_square": adam.square}


def pairs_of(
    groups: Sequence[Sequence[Sample]], rewards: Sequence[Sequence[float]]
) -> list[tuple[Sample, Sample]]:
    """The best and the worst text of each group whose rewards differ; of equals the first."""
    pairs = []
    for group, earned in zip(groups, rewards, strict=True):
        best, worst = max(earned, default=0.0), min(earned, default=0.0)
        if best > worst:
            pairs.append((group[earned.index(best)], group[earned.index(worst)]))
    return pairs
