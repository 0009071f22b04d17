"""Losses of policies with weights, each named after its paper. Pure functions of tensors.

Shapes: B samples of at most T response tokens, padded behind. Log-probabilities are natural and taken at the temperature
that the samples were drawn at. `old` are those of the behaviour policy, `reference` those of the frozen reference policy;
neither carries gradients. Three families:

- per token (B, T): `ppo`, `cispo`, `gspo`, `importance`, `reinforce`, and the divergence `kl`;
- per response (B,), of sums of token log-probabilities (`sequence_logprobs`): `dro`, `kto`, `pmpo`;
- per pair of responses (B,): `dpo`, `ipo`, `rebel`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

KL_CAP = 10.0
"""Largest divergence of one token: exp of a large difference would otherwise swamp the batch."""
KlEstimator = Literal["k1", "k2", "k3"]


def ppo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float = 0.2, high: float = 0.2) -> Tensor:
    """The clipped surrogate of PPO as a loss per token (B, T); Schulman et al. 2017, arXiv:1707.06347, eq. 7.

        -min(rho A, clip(rho, 1 - low, 1 + high) A),   rho = exp(logprobs - old)

    `high` above `low` is the clip-higher of DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 10).
    """
    ratio = (logprobs - old).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def is_clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Whether the clip of `ppo` or `gspo` leaves a token without a gradient, by its ratio: bool (B, T)."""
    return ((ratio < 1 - low) & (advantages < 0)) | ((ratio > 1 + high) & (advantages > 0))


def cispo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float = 1.0, high: float = 0.2) -> Tensor:
    """CISPO per token (B, T); MiniMax 2025, arXiv:2506.13585, eq. 4: the ratio is a bounded weight without a gradient.

        -sg(clip(rho, 1 - low, 1 + high)) A logprobs,   rho = exp(logprobs - old)

    No token loses its gradient, where `ppo` drops those beyond the clip. `low` 1 means no lower bound, as in the paper. TRL's
    `epsilon_high` is the bound itself, here 1 + `high`.
    """
    ratio = (logprobs - old).exp().clamp(1 - low, 1 + high).detach()
    return -ratio * advantages * logprobs


def sequence_ratio(logprobs: Tensor, old: Tensor, own: Tensor) -> Tensor:
    """The ratio of GSPO at each token (B, T): the value is that of the whole response, the gradient that of the token.

    s = exp(mean over a response's own tokens of (logprobs - old)); returned is sg(s) exp(logprobs - sg(logprobs)).
    """
    whole = sequence_logprobs(logprobs - old, own, mean=True).exp().detach()
    return whole[:, None] * (logprobs - logprobs.detach()).exp()


def gspo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, own: Tensor, low: float = 0.2, high: float = 0.2
) -> Tensor:
    """GSPO per token (B, T); Zheng et al. 2025, "Group Sequence Policy Optimization", arXiv:2507.18071.

        -min(s A, clip(s, 1 - low, 1 + high) A),   s = exp(mean over a response's own tokens of (logprobs - old))

    The clip drops or keeps whole responses, where that of `ppo` drops single tokens. s is a geometric mean, so it moves less than
    the ratio of a token: the paper clips at 3e-4 and 4e-4. Advantages may differ by token (GSPO-token). `own` (B, T) is 1 where
    the policy wrote the token.
    """
    ratio = sequence_ratio(logprobs, old, own)
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def importance(logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """Importance-weighted policy gradient without a clip, -rho A per token (B, T): the loss of E-SPL."""
    return -(logprobs - old).exp() * advantages


def reinforce(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A logprobs per token (B, T); Williams 1992. With an advantage of 1 it is the loss of supervised learning.

    Right for samples of the present weights only: nothing corrects for samples of older ones.
    """
    return -advantages * logprobs


def kl(logprobs: Tensor, reference: Tensor, estimator: KlEstimator = "k3") -> Tensor:
    """Estimate of KL(policy || reference) per sampled token (B, T); Schulman 2020, "Approximating KL divergence".

        k1 = -q        k2 = q^2 / 2        k3 = exp(q) - q - 1,  at most 10        q = reference - logprobs

    Over samples of the policy, k1 and k3 have the divergence as their mean; k2 has not, but is close to it where the two
    policies are. The gradient is another matter (Tang and Munos 2025, arXiv:2506.09477). As terms of a loss, over
    samples of the present policy, the mean gradient of

    - k1 is 0: a loss of k1 does nothing; k1 belongs into the reward, without a gradient;
    - k2 is that of KL(policy || reference), with the states before the tokens held fixed;
    - k3 is that of KL(reference || policy), the other direction, held likewise.

    Raises ValueError for another name.
    """
    q = reference - logprobs
    if estimator == "k1":
        return -q
    if estimator == "k2":
        return q.square() / 2
    if estimator == "k3":
        q = q.clamp_max(KL_CAP)  # where the cap holds anyway; an infinite exp has no gradient
        return (q.exp() - q - 1).clamp_max(KL_CAP)
    raise ValueError(f"no estimator of a divergence is called {estimator}; there are k1, k2 and k3.")


def critical_weights(entropy: Tensor, choices: int, power: float) -> Tensor:
    """Weights in [0, 1] of the divergence per token, of the shape of `entropy`: little where the reference policy is unsure.

        w_t = (1 - H_t / log V)^power        H_t: entropy of the reference policy before token t, nats; V: `choices`

    The prioritised penalty of Vassoyan et al. 2025, "Ignore the KL Penalty!", arXiv:2502.06533: a policy may leave the
    reference where the reference itself wavers, and those are the tokens that decide. `power` 0 is the plain penalty. The
    normalised negentropy and the power are our reading of the paper; its code was not compared.
    """
    if choices < 2:
        raise ValueError(f"a choice among {choices} tokens has no entropy; choices must be 2 or more.")
    return (1 - entropy / math.log(choices)).clamp(0, 1) ** power


def partial_weights(pieces: Sequence[str], tag: str) -> list[float]:
    """Weights of the divergence per token by its text in `pieces`, which together are the response: those of one part alone.

        w_t = 1 if token t begins between <tag> and </tag>, else 0

    The partial KL of SIRL (Chen et al. 2025, arXiv:2505.11792), which keeps the code of an answer near the reference and leaves
    its reasoning free. A part that is never closed reaches to the end.

    >>> partial_weights(["so ", "<code>", "x", "=1", "</code>", "."], "code")
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    """
    text, opening, closing, end = "".join(pieces), f"<{tag}>", f"</{tag}>", 0
    parts = list[range]()
    while (begin := text.find(opening, end)) >= 0:
        begin += len(opening)
        end = text.find(closing, begin)
        end = len(text) if end < 0 else end
        parts.append(range(begin, end))
    starts = accumulate((len(piece) for piece in pieces[:-1]), initial=0)
    return [float(any(start in part for part in parts)) for start, _ in zip(starts, pieces, strict=True)]


def sequence_logprobs(logprobs: Tensor, own: Tensor, *, mean: bool = False) -> Tensor:
    """Log-probability of each response (B,): the sum over its own tokens of `logprobs` (B, T), or with `mean` the mean.

    `own` (B, T) is 1 where the policy wrote the token and 0 for padding and tokens of others.
    """
    total = (logprobs * own).sum(-1)
    return total / own.sum(-1).clamp_min(1) if mean else total


def dro(logprobs: Tensor, reference: Tensor, advantages: Tensor, tau: float) -> Tensor:
    """Direct Reward Optimisation per response (B,); Richemond et al. 2024, arXiv:2405.19107, eq. 5.

        1/2 (r - V(x) - tau (logprobs - reference))^2

    `advantages` is r - V(x). It needs neither pairs nor groups, only a V: a learned one, or the V that minimises the loss over
    a group (`advantages.dro`). At its minimum the policy is the reference tilted by exp(r / tau).
    """
    return (advantages - tau * (logprobs - reference)).square() / 2


def dpo(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float = 0.1
) -> Tensor:
    """Direct Preference Optimization per pair (B,); Rafailov et al. 2023, arXiv:2305.18290, eq. 7.

        -log sigmoid(beta m),   m = (chosen - reference_chosen) - (rejected - reference_rejected)

    All four are log-probabilities of whole responses (B,). Only the sign of a preference enters, never its size.
    """
    return -F.logsigmoid(beta * _margin(chosen, rejected, reference_chosen, reference_rejected))


def ipo(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float = 0.1
) -> Tensor:
    """Identity preference optimisation per pair (B,); Azar et al. 2023, arXiv:2310.12036, eq. 17.

        (m - 1 / (2 beta))^2,   m as in `dpo`

    The margin has a finite goal, where DPO drives it to infinity on pairs that were never judged the other way round. With
    sums over tokens the goal does not grow with the length of the responses; TRL gives the mean over tokens instead, on the
    word of the paper's authors: `sequence_logprobs(..., mean=True)`.
    """
    return (_margin(chosen, rejected, reference_chosen, reference_rejected) - 1 / (2 * beta)).square()


def _margin(chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor) -> Tensor:
    return (chosen - reference_chosen) - (rejected - reference_rejected)


def kto_baseline(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The z of `kto`, a number without a gradient: max(0, mean(logprobs - reference)) over *mismatched* responses (B,).

    Mismatched: responses to other questions of the batch, for instance those of the batch moved on by one. B must be 2 or
    more, better 16: with one response nothing is mismatched, and ValueError says so.
    """
    if len(logprobs) < 2:
        raise ValueError(
            f"the baseline of KTO needs responses to 2 or more questions; there is {len(logprobs)}."
        )
    return (logprobs - reference).mean().detach().clamp_min(0)


def kto(
    logprobs: Tensor,
    reference: Tensor,
    good: Tensor,
    baseline: Tensor | float = 0.0,
    beta: float = 0.1,
    weight_good: float = 1.0,
    weight_bad: float = 1.0,
) -> Tensor:
    """Kahneman-Tversky optimisation per response (B,), from thumbs; Ethayarajh et al. 2024, arXiv:2402.01306, eq. 8.

        good:  weight_good (1 - sigmoid(beta (d - z)))        d = logprobs - reference,  z: `kto_baseline`
        bad:   weight_bad  (1 - sigmoid(beta (z - d)))

    `good` is bool (B,). With n_good and n_bad responses the paper asks for weight_good n_good / (weight_bad n_bad) in
    [1, 4/3] (`kto_weights`). `baseline` 0 is the loss that TRL calls apo_zero_unpaired, but for a constant.
    """
    distance = logprobs - reference - baseline
    sign = torch.where(good, 1.0, -1.0).to(distance)
    weight = torch.where(good, weight_good, weight_bad).to(distance)
    return weight * (1 - (beta * sign * distance).sigmoid())


def kto_weights(good: int, bad: int, ratio: float = 1.0) -> tuple[float, float]:
    """Weights (good, bad) of `kto` for so many responses, so that weight_good good / (weight_bad bad) is `ratio`.

    The paper's range for `ratio` is [1, 4/3]. One of the two weights is 1 and none is lower. Without responses of one kind
    both are 1.
    """
    if not good or not bad:
        return 1.0, 1.0
    weight = ratio * bad / good
    return (weight, 1.0) if weight >= 1 else (1.0, 1 / weight)


def pmpo(logprobs: Tensor, good: Tensor, divergence: Tensor, alpha: float = 0.5, beta: float = 0.5) -> Tensor:
    """PMPO, a number: learning from good responses, bad ones, or both; Abdolmaleki et al. 2024, arXiv:2410.04166, eq. 10.

        -alpha mean_good(logprobs) + (1 - alpha) mean_bad(logprobs) + beta mean(divergence)

    `logprobs` (B,) of whole responses, `good` bool (B,); `divergence` (any shape) estimates KL(reference || policy): the mean
    over samples of the reference of reference - logprobs. It works with good responses only, bad ones only, or both; with
    bad ones only nothing but the divergence bounds it from below, so `beta` 0 is refused there by a ValueError. The default
    of `beta` is ours.
    """
    if not beta and not bool(good.any()):
        raise ValueError("responses that are all bad push the policy without end: beta must be above 0.")
    liked = logprobs[good].mean() if bool(good.any()) else logprobs.new_zeros(())
    disliked = logprobs[~good].mean() if not bool(good.all()) else logprobs.new_zeros(())
    return -alpha * liked + (1 - alpha) * disliked + beta * divergence.mean()


def reference_divergence(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Estimate of KL(reference || policy) per response (B,), over responses that the reference wrote: the `divergence` of `pmpo`.

        exp(d) - d - 1,   d = logprobs - reference

    It is k3 with the two policies in each other's place, without its cap below: that would let the policy leave a bad response
    for ever.
    """
    d = logprobs - reference
    return d.clamp_max(KL_CAP).exp() - d - 1


def rebel(first: Tensor, second: Tensor, gap: Tensor, eta: float = 1.0) -> Tensor:
    """REBEL per pair (B,): regression on differences of rewards; Gao et al. 2024, arXiv:2404.16767, algorithm 1.

        ((first - second) - eta gap)^2        first, second: log policy - log old of two whole responses; gap: r1 - r2

    No critic and no clip. `eta` is in units of the reward: the reference code runs with 1 and with 1e6, so check it against
    the rewards. Over all pairs of a group it is `regression` on centred numbers.
    """
    return (first - second - eta * gap).square()


def regression(log_ratios: Tensor, goals: Tensor) -> Tensor:
    """Half the squared distance per response (B,) between log-ratios and their goals: what `rebel` and `dro` are of a group.

        sum over pairs i < j of rebel(d_i, d_j, r_i - r_j)  =  n sum_i (d_i - mean d - eta (r_i - mean r))^2

    So a group of n responses costs n terms and not n (n - 1) / 2. The goal of d_i is mean d + eta (r_i - mean r), without a
    gradient, which it does not need: the residuals add up to 0.
    """
    return (log_ratios - goals).square() / 2
