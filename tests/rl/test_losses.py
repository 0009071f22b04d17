"""Losses against numbers worked out by hand, and their limiting cases."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="losses need torch: pip install 'whet[train]'")

from whet.rl import losses  # noqa: E402 - after the check for torch


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_ppo_by_hand() -> None:
    ratio = row(1.5, 0.5, 1.5, 0.5)
    advantages = row(1.0, 1.0, -1.0, -1.0)
    loss = losses.ppo(ratio.log(), row(0, 0, 0, 0), advantages, 0.2, 0.28)
    assert loss[0].tolist() == pytest.approx([-1.28, -0.5, 1.5, 0.8])
    assert losses.is_clipped(ratio, advantages, 0.2, 0.28)[0].tolist() == [
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
        lambda p, old, a: losses.reinforce(p, a),
    ):
        logprobs = row(-1.0, -2.0).requires_grad_()
        loss(logprobs, logprobs.detach(), row(0.5, -2.0)).sum().backward()
        found.append(logprobs.grad.tolist())
    assert found == [[[-0.5, 2.0]]] * 3


def test_a_clipped_token_has_no_gradient() -> None:
    logprobs = row(0.5).requires_grad_()
    losses.ppo(logprobs, row(0.0), row(1.0), 0.2, 0.2).sum().backward()
    assert logprobs.grad.item() == 0.0


def test_importance_is_not_clipped() -> None:
    assert losses.importance(row(math.log(3.0)), row(0.0), row(2.0)).item() == pytest.approx(-6.0)


def test_kl_by_hand() -> None:
    now, ref = row(-1.0), row(-1.5)  # q = -.5
    assert losses.kl(now, ref).item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)


def test_kl_of_the_reference_itself_is_zero_and_never_negative() -> None:
    same = torch.linspace(-8, 0, 30, dtype=torch.float64)[None]
    assert losses.kl(same, same).abs().max() == 0
    assert (losses.kl(same, same.flip(1)) >= 0).all()


def test_kl_has_the_divergence_as_its_mean() -> None:
    p, q = torch.tensor([0.7, 0.3]).double(), torch.tensor([0.4, 0.6]).double()
    exact = (p * (p / q).log()).sum()
    assert (p * losses.kl(p.log()[None], q.log()[None])[0]).sum() == pytest.approx(exact)


def test_k3_of_one_token_is_bounded() -> None:
    assert losses.kl(row(-30.0), row(0.0)).item() == losses.KL_CAP


def test_k3_of_a_token_far_below_the_reference_has_a_finite_gradient() -> None:
    now = torch.tensor([[-150.0, -1.0]], requires_grad=True)
    found = losses.kl(now, torch.tensor([[-1.0, -0.5]]))
    found.sum().backward()
    assert found[0, 0].item() == losses.KL_CAP
    assert now.grad is not None and now.grad[0].tolist() == pytest.approx([0.0, 1 - math.exp(0.5)])
