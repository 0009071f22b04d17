"""Losses against numbers worked out by hand, and their limiting cases."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="losses need torch: pip install 'whet[train]'")

from whet.rl import guided_rollouts, losses  # noqa: E402 - after the check for torch


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_ppo_by_hand() -> None:
    ratio = row(1.5, 0.5, 1.5, 0.5)
    advantages = row(1.0, 1.0, -1.0, -1.0)
    loss = losses.ppo(ratio.log(), row(0, 0, 0, 0), advantages, 0.2, 0.28)
    assert loss[0].tolist() == pytest.approx([-1.28, -0.5, 1.5, 0.8])
    assert losses.clipped(ratio.log(), row(0, 0, 0, 0), advantages, 0.2, 0.28)[0].tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_the_two_clips_are_separate() -> None:
    ratio, one = row(1.25), row(0.0)
    assert losses.ppo(ratio.log(), one, row(1.0), 0.2, 0.2).item() == pytest.approx(-1.2)
    assert losses.ppo(ratio.log(), one, row(1.0), 0.2, 0.28).item() == pytest.approx(-1.25)
    assert losses.ppo(row(0.75).log(), one, row(-1.0), 0.3, 0.0).item() == pytest.approx(0.75)


def test_without_a_step_between_all_losses_have_the_gradient_of_reinforce() -> None:
    found = []
    for loss in (
        lambda p, old, a: losses.ppo(p, old, a),
        lambda p, old, a: losses.importance(p, old, a),
        lambda p, old, a: losses.cispo(p, old, a, 0.2, 0.2),
        lambda p, old, a: losses.reinforce(p, a),
    ):
        logprobs = row(-1.0, -2.0).requires_grad_()
        loss(logprobs, logprobs.detach(), row(0.5, -2.0)).sum().backward()
        found.append(logprobs.grad.tolist())
    assert found == [[[-0.5, 2.0]]] * 4


def test_a_clipped_token_has_no_gradient_in_ppo_and_keeps_it_in_cispo() -> None:
    for loss, expected in ((losses.ppo, 0.0), (losses.cispo, -1.2)):
        logprobs = row(0.5).requires_grad_()
        loss(logprobs, row(0.0), row(1.0), 0.2, 0.2).sum().backward()
        assert logprobs.grad.item() == pytest.approx(expected)


def test_importance_is_not_clipped() -> None:
    assert losses.importance(row(math.log(3.0)), row(0.0), row(2.0)).item() == pytest.approx(-6.0)


def test_kl_kinds_by_hand() -> None:
    now, ref = row(-1.0), row(-1.5)  # q = -.5
    assert losses.kl("k1", now, ref).item() == pytest.approx(0.5)
    assert losses.kl("k2", now, ref).item() == pytest.approx(0.125)
    assert losses.kl("k3", now, ref).item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)


def test_kl_of_the_reference_itself_is_zero_and_k2_k3_are_never_negative() -> None:
    same = torch.linspace(-8, 0, 30, dtype=torch.float64)[None]
    for kind in ("k1", "k2", "k3"):
        assert losses.kl(kind, same, same).abs().max() == 0
    other = same.flip(1)
    assert (losses.kl("k2", same, other) >= 0).all() and (losses.kl("k3", same, other) >= 0).all()
    assert (losses.kl("k1", same, other) < 0).any()


def test_k1_and_k3_have_the_divergence_as_their_mean() -> None:
    p, q = torch.tensor([0.7, 0.3]).double(), torch.tensor([0.4, 0.6]).double()
    exact = (p * (p / q).log()).sum()
    for kind in ("k1", "k3"):
        assert (p * losses.kl(kind, p.log()[None], q.log()[None])[0]).sum() == pytest.approx(exact)


def test_k3_of_one_token_is_bounded() -> None:
    assert losses.kl("k3", row(-30.0), row(0.0)).item() == losses.KL_CAP


def test_k3_of_a_token_far_below_the_reference_has_a_finite_gradient() -> None:
    now = torch.tensor([[-150.0, -1.0]], requires_grad=True)
    found = losses.kl("k3", now, torch.tensor([[-1.0, -0.5]]))
    found.sum().backward()
    assert found[0, 0].item() == losses.KL_CAP
    assert now.grad is not None and now.grad[0].tolist() == pytest.approx([0.0, 1 - math.exp(0.5)])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="k4"):
        losses.kl("k4", row(0.0), row(0.0))
    with pytest.raises(ValueError, match="median"):
        losses.token_weights(row(1.0), "median")


MASK = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])


def test_token_weights_by_hand() -> None:
    assert losses.token_weights(MASK, "token").tolist() == [[0.25] * 3 + [0.0], [0.25, 0, 0, 0]]
    by_sample = losses.token_weights(MASK, "sequence")
    assert by_sample[0].tolist() == pytest.approx([1 / 6] * 3 + [0.0])
    assert by_sample[1].tolist() == [0.5, 0, 0, 0]
    assert losses.token_weights(MASK, "constant", 8).tolist() == [[1 / 16] * 3 + [0.0], [1 / 16, 0, 0, 0]]


def test_the_constant_makes_a_token_weigh_the_same_in_long_and_short_responses() -> None:
    long = torch.ones(1, 8)
    short = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0]])
    weight = losses.token_weights(torch.cat([long, short]), "constant", 8)
    assert weight[0, 0] == weight[1, 0]
    by_sample = losses.token_weights(torch.cat([long, short]), "sequence")
    assert by_sample[0, 0] < by_sample[1, 0]


def test_a_sample_without_own_tokens_weighs_nothing() -> None:
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    for aggregation in ("token", "sequence", "constant"):
        weights = losses.token_weights(mask, aggregation, 4)
        assert weights[1].tolist() == [0, 0] and torch.isfinite(weights).all()
    assert losses.token_weights(torch.zeros(1, 2), "token").tolist() == [[0, 0]]


def test_dpo_by_hand() -> None:
    # beta * ((-1 - -2) - (-3 - -2)) = .1 * 2; -log sigmoid(.2) = .598139
    four = [torch.tensor([value]).double() for value in (-1.0, -3.0, -2.0, -2.0)]
    assert losses.dpo(*four, beta=0.1).item() == pytest.approx(0.5981388693815918)
    assert losses.dpo(*[torch.zeros(1)] * 4).item() == pytest.approx(math.log(2))


def test_dpo_raises_the_chosen_and_lowers_the_rejected() -> None:
    chosen, rejected = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    losses.dpo(chosen, rejected, torch.zeros(1), torch.zeros(1), beta=0.5).sum().backward()
    assert chosen.grad.item() == pytest.approx(-0.25) and rejected.grad.item() == pytest.approx(0.25)


def test_dro_by_hand() -> None:
    # (r - V) - tau (log-ratio) = .5 - .1 * 2 = .3; half its square
    assert losses.dro(row(-3.0), row(-5.0), row(0.5), 0.1).item() == pytest.approx(0.045)


def test_dro_is_at_rest_where_the_policy_is_the_tilted_reference() -> None:
    logprobs = (row(-4.0) + row(0.5) / 0.1).requires_grad_()
    losses.dro(logprobs, row(-4.0), row(0.5), 0.1).sum().backward()
    assert logprobs.grad.item() == pytest.approx(0.0)


def test_filtered_pairs_by_threshold_margin_and_length() -> None:
    rewards, lengths = [0.9, 0.1, 0.8, 0.75], [5, 5, 200, 5]
    pairs = losses.filtered_pairs(rewards, lengths, threshold=0.5, margin=0.12, longest=130)
    assert [(p.chosen, p.rejected) for p in pairs] == [(0, 3), (0, 1)]  # 2 is too long, and too near to 0
    pairs = losses.filtered_pairs(rewards, lengths, threshold=0.5, margin=0.12)
    assert [(p.chosen, p.rejected) for p in pairs] == [(0, 3), (0, 1), (2, 1)]
    assert losses.filtered_pairs(rewards, lengths, threshold=0.95) == []


def test_filtered_pairs_of_equal_or_single_texts_are_none() -> None:
    assert losses.filtered_pairs([0.5, 0.5], [1, 1]) == []
    assert losses.filtered_pairs([0.5], [1]) == [] == losses.filtered_pairs([], [])


def test_guide_shapes_the_ratio() -> None:
    assert guided_rollouts.shaped(row(0.0, 0.1, 0.9, 1e9), 0.1)[0].tolist() == pytest.approx(
        [0.0, 0.5, 0.9, 1.0]
    )


def test_guide_takes_its_constant_from_the_batch() -> None:
    ratios = torch.linspace(0, 1, 11)
    assert guided_rollouts.gamma_of(ratios, 0.9) == pytest.approx(0.9)
    assert guided_rollouts.gamma_of(torch.zeros(5), 0.9) == guided_rollouts.LEAST_GAMMA
    assert guided_rollouts.gamma_of(torch.tensor([]), 0.9) == guided_rollouts.LEAST_GAMMA


def test_guide_asks_again_what_fails_and_trains_on_what_is_mixed() -> None:
    accuracies = [0.0, 0.5, 1.0, 0.125]
    assert guided_rollouts.needs_hint(accuracies) == [0]
    assert guided_rollouts.worth_training(accuracies) == [1, 3]
