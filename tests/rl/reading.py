"""What the weights of a policy say about samples, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.learning import score_tokens


def token_scores(
    policy: PolicyModel, samples: Sequence[Sample], *, reference: bool = False
) -> tuple[Any, Any, Any]:
    """Log-probabilities, mask of own tokens and entropies, (B, T) each; gradients flow unless `reference`."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and not reference):
        scores = score_tokens(policy.body, samples, reference=reference)
    return scores.logprobs, scores.own, scores.entropy
