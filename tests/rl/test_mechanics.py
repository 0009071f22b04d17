"""The equations of the losses, divergences and advantages: against hand-worked numbers, against the formulas of other
libraries written out here, by torch's own check of gradients, and by exact sums over all outcomes of small policies."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="losses need torch: pip install 'whet[train]'")

from torch import Tensor  # noqa: E402 - after the check for torch

from whet.rl import advantages as a  # noqa: E402
from whet.rl import losses  # noqa: E402

NUMBERS = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 3))
GROUPS = st.lists(NUMBERS, min_size=2, max_size=6)


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Advantages


def test_remax_by_hand() -> None:
    assert a.remax([0.0, 0.25, 1.0], greedy=0.5) == pytest.approx([0.75, 0.75, 0.5])
    assert a.remax([0.0, 0.5], greedy=0.5) == [0.0, 0.0], "as good as the greedy text: nothing to learn"


def test_reinforce_pp_whitens_returns_of_tokens_over_the_batch() -> None:
    # Returns to go 1, 1 and 0: mean 2/3, variance ((1/3)^2 2 + (2/3)^2) / 2 = 1/3
    found = a.reinforce_pp([[0.0, 1.0], [0.0]])
    assert found[0] + found[1] == pytest.approx([(1 / 3) * 3**0.5] * 2 + [-(2 / 3) * 3**0.5])


@given(st.lists(GROUPS, min_size=1, max_size=3))
def test_whitened_advantages_sum_to_zero_over_the_tokens_of_the_batch(groups: list[list[float]]) -> None:
    lengths = [[1 + i % 3 for i in range(len(group))] for group in groups]
    tokens = [
        [0.0] * (n - 1) + [r]
        for group, counts in zip(groups, lengths, strict=True)
        for r, n in zip(group, counts, strict=True)
    ]
    for found in (a.reinforce_pp(tokens), a.reinforce_pp_baseline(groups, lengths)):
        assert sum(map(sum, found)) == pytest.approx(0, abs=1e-6)
        assert [len(one) for one in found] == [n for counts in lengths for n in counts]


def test_a_group_of_nearly_equal_rewards_is_blown_up_by_grpo_and_not_by_the_others() -> None:
    """The bias of dividing by the group's own spread (Dr. GRPO, section 3.1): 0.01 and 1 weigh the same."""
    near, far = [0.50, 0.51], [0.0, 1.0]
    assert a.grpo(near) == pytest.approx(a.grpo(far), rel=1e-3)
    assert a.dr_grpo(far)[1] == pytest.approx(100 * a.dr_grpo(near)[1])
    whitened = a.reinforce_pp_baseline([near, far], [[1, 1], [1, 1]])
    assert whitened[3][0] == pytest.approx(100 * whitened[1][0])


@given(GROUPS, st.floats(0.1, 5).map(lambda x: round(x, 2)))
def test_dr_grpo_and_rloo_scale_with_the_rewards_and_grpo_does_not(rewards: list[float], by: float) -> None:
    scaled = [by * r for r in rewards]
    for estimate in (a.dr_grpo, a.rloo):
        assert estimate(scaled) == pytest.approx([by * v for v in estimate(rewards)], abs=1e-6)
    if max(rewards) - min(rewards) > 0.1:
        assert a.grpo(scaled) == pytest.approx(a.grpo(rewards), rel=1e-3)


@given(st.lists(NUMBERS, min_size=1, max_size=6), NUMBERS)
def test_redistributed_rewards_sum_to_the_reward_and_true_forecasts_leave_one_token(
    values: list[float], reward: float
) -> None:
    assert sum(a.redistribute(values, reward)) == pytest.approx(reward, abs=1e-6)
    assert a.redistribute([0.0, 0.0, 1.0], 1.0) == [0.0, 1.0, 0.0], "the second token decided"


def test_rewards_of_rto_by_hand() -> None:
    assert a.token_rewards_rto([2.0, -1.0], 0.5, weight=0.1, rest=2.0) == pytest.approx([0.2, 0.9])
    assert a.token_rewards_rto([], 0.5) == []


@given(GROUPS)
def test_the_value_of_dro_leaves_residuals_that_sum_to_zero(rewards: list[float]) -> None:
    ratios = [0.3 * i for i in range(len(rewards))]
    found = a.dro(rewards, ratios, tau=0.5)
    assert sum(v - 0.5 * d for v, d in zip(found, ratios, strict=True)) == pytest.approx(0, abs=1e-6)


# Losses of sampled texts

POLICY_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "ppo": losses.ppo,
    "ppo-clip-higher": lambda p, old, v: losses.ppo(p, old, v, 0.2, 0.28),
    "importance": losses.importance,
    "cispo": losses.cispo,
    "gspo": lambda p, old, v: losses.gspo(p, old, v, torch.ones_like(p)),
    "reinforce": lambda p, old, v: losses.reinforce(p, v),
}


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_with_the_old_policy_the_gradient_is_that_of_reinforce(name: str) -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    taken, advantages = torch.tensor([[0, 1, 4], [2, 2, 3]]), torch.tensor([[1.0], [-0.5]]).double()

    def gradient(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        free = logits.clone().requires_grad_()
        logprobs = free.log_softmax(-1).gather(-1, taken[..., None])[..., 0]
        loss(logprobs, logprobs.detach(), advantages).sum().backward()
        assert free.grad is not None
        return free.grad

    expected = gradient(lambda p, old, v: -v * p)
    assert torch.allclose(gradient(POLICY_LOSSES[name]), expected, atol=1e-12)


def test_gspo_clips_a_whole_text_by_the_geometric_mean_of_its_ratios() -> None:
    logprobs = torch.tensor([[math.log(4.0), 0.0, 9.0], [math.log(1.1), 0.0, 9.0]], requires_grad=True)
    own, old = torch.tensor([[1.0, 1.0, 0.0]] * 2), torch.zeros(2, 3)
    found = losses.gspo(logprobs, old, torch.ones(2, 3), own, 0.2, 0.2)[:, :2]
    assert found.flatten().tolist() == pytest.approx([-1.2, -1.2, -(1.1**0.5), -(1.1**0.5)])
    found.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad[:, :2].flatten().tolist() == pytest.approx([0.0, 0.0, -(1.1**0.5), -(1.1**0.5)])


def test_cispo_keeps_the_gradient_of_a_token_that_ppo_drops_and_bounds_its_weight() -> None:
    logprobs = row(math.log(3.0)).requires_grad_()
    losses.cispo(logprobs, row(0.0), row(2.0), high=0.28).sum().backward()
    assert logprobs.grad is not None and logprobs.grad.item() == pytest.approx(-1.28 * 2)
    # Without a lower bound a token that became unlikely weighs little; with one it weighs 0.8.
    assert losses.cispo(row(math.log(0.1)), row(0.0), row(1.0)).item() == pytest.approx(-0.1 * math.log(0.1))
    assert losses.cispo(row(math.log(0.1)), row(0.0), row(1.0), low=0.2).item() == pytest.approx(
        -0.8 * math.log(0.1)
    )


def logits_of(*shape: int) -> Tensor:
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return values.requires_grad_()


def chosen_logprobs(logits: Tensor) -> Tensor:
    """Log-probability of each row's first word at each place, summed: (B,)."""
    return logits.log_softmax(-1)[..., 0].sum(-1)


SMOOTH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "importance": lambda p, old: losses.importance(p, old - 0.3, torch.ones_like(p)),
    "reinforce": lambda p, old: losses.reinforce(p, torch.full_like(p, 0.7)),
    "kl-k2": lambda p, old: losses.kl(p, old + 0.4, "k2"),
    "kl-k3": lambda p, old: losses.kl(p, old + 0.4, "k3"),
    "dro": lambda p, old: losses.dro(p, old, row(0.5, -0.5), 0.3),
    "dpo": lambda p, old: losses.dpo(p[:1], p[1:], old[:1], old[1:] + 1),
    "ipo": lambda p, old: losses.ipo(p[:1], p[1:], old[:1], old[1:] + 1),
    "kto": lambda p, old: losses.kto(p, old, torch.tensor([True, False]), 0.2),
    "pmpo": lambda p, old: losses.pmpo(p, torch.tensor([True, False]), old - p),
    "rebel": lambda p, old: losses.rebel(p[:1], p[1:], row(0.7)),
    "regression": lambda p, old: losses.regression(p, old + row(0.1, -0.1)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_by_finite_differences(name: str) -> None:
    old = chosen_logprobs(logits_of(2, 3, 4)).detach()
    assert torch.autograd.gradcheck(
        lambda logits: SMOOTH[name](chosen_logprobs(logits), old), (logits_of(2, 3, 4),)
    )


# Divergences


def test_the_three_estimators_by_hand_and_an_unknown_one() -> None:
    now, ref = row(-1.0), row(-1.5)  # q = -.5
    assert losses.kl(now, ref, "k1").item() == 0.5
    assert losses.kl(now, ref, "k2").item() == 0.125
    assert losses.kl(now, ref, "k3").item() == losses.kl(now, ref).item() == math.exp(-0.5) + 0.5 - 1
    with pytest.raises(ValueError, match="there are k1, k2 and k3"):
        losses.kl(now, ref, "k4")  # type: ignore[arg-type]


def exact_gradient(divergence: Callable[[Tensor, Tensor], Tensor], logits: Tensor, ref: Tensor) -> Tensor:
    """Gradient of a divergence of whole distributions."""
    free = logits.clone().requires_grad_()
    divergence(free.log_softmax(-1), ref.log_softmax(-1)).backward()
    assert free.grad is not None
    return free.grad


def mean_gradient(estimator: losses.KlEstimator, logits: Tensor, ref: Tensor) -> Tensor:
    """Mean over samples of the policy of the gradient of an estimate as a loss: an exact sum over its words."""
    free = logits.clone().requires_grad_()
    logprobs = free.log_softmax(-1)
    (logprobs.detach().exp() * losses.kl(logprobs, ref.log_softmax(-1), estimator)).sum().backward()
    assert free.grad is not None
    return free.grad


@given(st.lists(NUMBERS, min_size=3, max_size=3), st.lists(NUMBERS, min_size=3, max_size=3))
@settings(max_examples=30)
def test_which_gradient_each_estimator_has_as_a_loss(policy: list[float], reference: list[float]) -> None:
    logits, ref = row(*policy) / 3, row(*reference) / 3  # no word so rare that k3 is capped
    backward = exact_gradient(lambda p, q: (p.exp() * (p - q)).sum(), logits, ref)
    forward = exact_gradient(lambda p, q: (q.exp() * (q - p)).sum(), logits, ref)
    assert torch.allclose(mean_gradient("k1", logits, ref), torch.zeros(3).double(), atol=1e-9)
    assert torch.allclose(mean_gradient("k2", logits, ref), backward, atol=1e-9)
    assert torch.allclose(mean_gradient("k3", logits, ref), forward, atol=1e-9)


def test_k1_in_the_reward_has_the_gradient_of_the_divergence_of_whole_texts_and_k2_in_the_loss_has_not() -> (
    None
):
    """Two words of two choices, enumerated. A first word decides which second words can come: the credit that a term of the
    loss, with the states held fixed, leaves out."""
    first, second = row(0.4, -0.3), torch.tensor([[1.0, 0.0], [-0.5, 0.8]]).double()
    ref_first, ref_second = row(0.0, 0.0), torch.tensor([[0.0, 1.5], [0.7, -0.4]]).double()

    def logprobs(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        """Of the first word (2, 1) and of the second one after it (2, 2)."""
        return one.log_softmax(-1)[:, None], two.log_softmax(-1)

    now, ref = logprobs(first, second), logprobs(ref_first, ref_second)
    chance = (now[0] + now[1]).exp().detach()

    def gradient(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        free, other = first.clone().requires_grad_(), second.clone().requires_grad_()
        loss(*logprobs(free, other)).backward()
        assert free.grad is not None and other.grad is not None
        return torch.cat([free.grad, other.grad.flatten()])

    exact = gradient(lambda p, q: ((p + q).exp() * (p + q - ref[0] - ref[1])).sum())
    k1 = [losses.kl(p, r, "k1").expand(2, 2) for p, r in zip(now, ref, strict=True)]
    to_go = [k1[0] + k1[1], k1[1]]  # minus the reward to go of each word
    in_reward = gradient(
        lambda p, q: (chance * (losses.reinforce(p, -to_go[0]) + losses.reinforce(q, -to_go[1]))).sum()
    )
    in_loss = gradient(
        lambda p, q: (chance * (losses.kl(p, ref[0], "k2") + losses.kl(q, ref[1], "k2"))).sum()
    )
    assert torch.allclose(in_reward, exact, atol=1e-12)
    assert not torch.allclose(in_loss, exact, atol=1e-3)
    assert torch.allclose(in_loss[2:], exact[2:], atol=1e-12), "nothing follows the last word"


def test_critical_weights_by_hand() -> None:
    entropy = row(0.0, math.log(4) / 2, math.log(4))
    assert losses.critical_weights(entropy, 4, 1.0).tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert losses.critical_weights(entropy, 4, 2.0).tolist() == pytest.approx([1.0, 0.25, 0.0])
    assert losses.critical_weights(entropy, 4, 0.0).tolist() == [1.0, 1.0, 1.0], "power 0: the plain penalty"
    with pytest.raises(ValueError, match="choices must be 2 or more"):
        losses.critical_weights(entropy, 1, 1.0)


# Losses of whole texts


def test_logprobs_of_texts_leave_out_padding_and_others() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, -4.0], [-1.0, -9.0, -9.0]])
    own = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert losses.sequence_logprobs(logprobs, own).tolist() == [-5.0, -1.0]
    assert losses.sequence_logprobs(logprobs, own, mean=True).tolist() == [-2.5, -1.0]


CHOSEN, REJECTED = row(-3.0, -2.0), row(-2.5, -6.0)
REFERENCE = row(-3.5, -2.5), row(-2.0, -5.0)


def test_dpo_and_ipo_are_the_formulas_of_trl() -> None:
    """DPOTrainer: logits = chosen_logratios - rejected_logratios; sigmoid and ipo."""
    delta = (CHOSEN - REFERENCE[0]) - (REJECTED - REFERENCE[1])
    sigmoid = -torch.nn.functional.logsigmoid(0.3 * delta)
    assert torch.allclose(losses.dpo(CHOSEN, REJECTED, *REFERENCE, beta=0.3), sigmoid)
    assert torch.allclose(losses.ipo(CHOSEN, REJECTED, *REFERENCE, beta=0.3), (delta - 1 / (2 * 0.3)) ** 2)


def test_dpo_and_ipo_by_hand() -> None:
    # Margins .5 - -.5 = 1 and .5 - -1 = 1.5
    assert losses.dpo(CHOSEN, REJECTED, *REFERENCE, beta=1.0).tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)), math.log(1 + math.exp(-1.5))]
    )
    assert losses.ipo(CHOSEN, REJECTED, *REFERENCE, beta=0.5).tolist() == pytest.approx([0.0, 0.25])


def test_ipo_stops_where_dpo_goes_on() -> None:
    far = row(50.0).requires_grad_()
    losses.ipo(far, row(0.0), row(0.0), row(0.0), beta=0.01).sum().backward()
    assert far.grad is not None and far.grad.item() == 0.0, "the goal 1 / (2 beta) is reached"
    more = row(50.0).requires_grad_()
    losses.dpo(more, row(0.0), row(0.0), row(0.0), beta=0.01).sum().backward()
    assert more.grad is not None and more.grad.item() < 0


def test_kto_is_the_formula_of_trl() -> None:
    """KTOTrainer: 1 - sigmoid(beta (ratio - kl)) on good texts, 1 - sigmoid(beta (kl - ratio)) on bad ones."""
    ratio, good = CHOSEN - REFERENCE[0], torch.tensor([True, False])
    baseline = losses.kto_baseline(row(-1.0, -2.0), row(-1.5, -2.3))
    assert baseline.item() == pytest.approx(0.4)
    expected = torch.stack(
        [
            1 - torch.sigmoid(0.3 * (ratio[0] - baseline)),
            2.0 * (1 - torch.sigmoid(0.3 * (baseline - ratio[1]))),
        ]
    )
    found = losses.kto(CHOSEN, REFERENCE[0], good, baseline, beta=0.3, weight_bad=2.0)
    assert torch.allclose(found, expected)


def test_the_baseline_of_kto_is_never_negative_and_needs_two_questions() -> None:
    assert losses.kto_baseline(row(-3.0, -3.0), row(-1.0, -1.0)).item() == 0.0
    assert not losses.kto_baseline(CHOSEN.clone().requires_grad_(), REFERENCE[0]).requires_grad
    with pytest.raises(ValueError, match="2 or more questions"):
        losses.kto_baseline(row(-1.0), row(-1.0))


@given(st.integers(0, 50), st.integers(0, 50), st.floats(1, 4 / 3))
def test_weights_of_kto_balance_the_classes(good: int, bad: int, ratio: float) -> None:
    liked, disliked = losses.kto_weights(good, bad, ratio)
    assert min(liked, disliked) == 1.0
    if good and bad:
        assert liked * good / (disliked * bad) == pytest.approx(ratio)
    else:
        assert liked == disliked == 1.0


def test_pmpo_by_hand_with_one_kind_of_text_and_without_a_bound() -> None:
    good = torch.tensor([True, True, False])
    logprobs, divergence = row(-1.0, -3.0, -4.0), row(0.2, 0.4)
    expected = -0.75 * -2.0 + 0.25 * -4.0 + 0.5 * 0.3
    assert losses.pmpo(logprobs, good, divergence, alpha=0.75).item() == pytest.approx(expected)
    assert losses.pmpo(logprobs[:2], good[:2], divergence, beta=0.0).item() == pytest.approx(1.0)
    assert losses.pmpo(logprobs[2:], good[2:], divergence).item() == pytest.approx(-2.0 + 0.15)
    with pytest.raises(ValueError, match="beta must be above 0"):
        losses.pmpo(logprobs[2:], good[2:], divergence, beta=0.0)


def test_dro_by_hand() -> None:
    assert losses.dro(row(-1.0), row(-2.0), row(0.5), tau=0.1).item() == pytest.approx(0.08)


def test_dro_is_least_for_the_reference_tilted_by_the_rewards() -> None:
    rewards, ref, tau = row(1.0, 0.0, 0.4), row(0.2, 0.5, 0.3).log(), 0.7
    best = (ref + rewards / tau).log_softmax(-1)
    value = tau * (ref + rewards / tau).logsumexp(-1)
    assert losses.dro(best, ref, rewards - value, tau).tolist() == pytest.approx([0.0] * 3)
    # The value that a group finds by itself is the same one, wherever the texts came from.
    assert a.dro(rewards.tolist(), (best - ref).tolist(), tau) == pytest.approx((rewards - value).tolist())


def test_rebel_uses_the_size_of_a_gap_and_dpo_its_sign_only() -> None:
    assert losses.rebel(row(0.3), row(-0.2), row(0.5)).item() == pytest.approx(0.0)
    assert losses.rebel(row(0.3), row(-0.2), row(1.0), eta=2.0).item() == pytest.approx(2.25)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=5))
def test_rebel_over_all_pairs_is_the_centred_regression(pairs: list[tuple[float, float]]) -> None:
    d, r = row(*(p[0] for p in pairs)), row(*(p[1] for p in pairs))
    n = len(pairs)
    one, two = torch.triu_indices(n, n, 1)
    over_pairs = losses.rebel(d[one], d[two], r[one] - r[two], eta=0.7).sum()
    goals = d.mean() + 0.7 * (r - r.mean())
    assert 2 * n * losses.regression(d, goals).sum().item() == pytest.approx(over_pairs.item(), abs=1e-6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=5))
def test_dro_with_the_value_of_its_group_is_rebel_from_the_reference(
    pairs: list[tuple[float, float]],
) -> None:
    """1/2 (r - V - tau d)^2 = tau^2 times the regression with eta = 1 / tau: one mechanism under two names."""
    d, r, tau = row(*(p[0] for p in pairs)), row(*(p[1] for p in pairs)), 0.5
    values = row(*a.dro(r.tolist(), d.tolist(), tau))
    goals = d.mean() + (r - r.mean()) / tau
    found, other = losses.dro(d, torch.zeros_like(d), values, tau), losses.regression(d, goals)
    assert found.tolist() == pytest.approx((tau**2 * other).tolist(), abs=1e-6)
