"""Groups of equal rewards: RL-ZVP and ERPO by hand-worked numbers and through an update; hinted groups by autograd."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.rl.answer_groups import GuidedGroups  # noqa: E402
from whet.rl.guidance import all_failed, hint_of, shaping_weights, with_hint, without_hints  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel  # noqa: E402
from whet.rl.training import MultiTurnTraining, Trainer, Training  # noqa: E402
from whet.rl.zero_variance import with_pseudo_negative, zvp  # noqa: E402
from whet.types import Example, Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
HINTED = [Message("user", "write in capitals the words a b c. Hint: A B C")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"), sharpness=1.0)


def opened(folder: Path) -> PolicyModel:
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)


def test_entropy_stands_in_for_rewards_that_do_not_differ() -> None:
    """By hand, alpha 0.1: right texts get alpha H; wrong ones -alpha (max H - H), the maximum of each text apart."""
    entropies = [[0.5, 2.0], [1.0, 1.0]]
    assert zvp(1.0, entropies, 0.1, 0.5) == [[pytest.approx(0.05), pytest.approx(0.2)], [0.1, 0.1]]
    assert zvp(0.0, entropies, 0.1, 0.5) == [[pytest.approx(-0.15), 0.0], [0.0, 0.0]]


def test_the_imagined_text_makes_the_others_a_little_better_than_the_mean() -> None:
    imagined = with_pseudo_negative([1.0] * 4, 0.1, 0.5)
    mean = sum(imagined) / 5
    std = math.sqrt(sum((r - mean) ** 2 for r in imagined) / 4)
    assert (imagined[0] - mean) / std == pytest.approx(1 / math.sqrt(5))
    assert with_pseudo_negative([0.0, 0.0], 0.1, 0.5) == [0.0, 0.0]
    assert with_pseudo_negative([1.0, 0.5], 0.1, 0.5) == [1.0, 0.5]


def learned(folder: Path, rewards: list[list[float]], **settings: Any) -> list[list[float]]:
    """The advantages of an update from two groups of two texts."""
    policy = opened(folder)
    groups = policy.sample([ASK, HINTED], 2, max_tokens=4, seed=3)
    seen: list[Any] = []

    def update(samples: Any, advantages: Any, how: Any) -> dict[str, float]:
        seen.extend(advantages)
        return {}

    policy.update = update  # type: ignore[method-assign]
    Trainer(policy, Training(**settings)).learn(groups, rewards)
    return seen


def test_turns_that_differ_teach_although_the_whole_rewards_are_equal(folder: Path) -> None:
    """Two episodes that earn 0 in all, one by 1 and -1 and one by -1 and 1: the turns' own advantages stay."""
    policy = opened(folder)
    first = policy.sample([ASK], 2, max_tokens=3, seed=3)[0]
    group = policy.sample_turn(first, [[Message("user", "again")]] * 2, max_tokens=3, seed=4)
    seen: dict[str, list[Any]] = {}
    for how in ("skip", "erpo", "zvp"):
        policy.update = lambda samples, rows, settings, name=how: seen.update({name: rows}) or {}  # type: ignore[method-assign, misc]
        config = MultiTurnTraining(credit="turn", zero_variance=how)  # type: ignore[arg-type]
        Trainer(policy, config).learn([group], [[[1.0, -1.0], [-1.0, 1.0]]])
    assert any(map(any, seen["skip"]))
    assert seen["erpo"] == seen["zvp"] == seen["skip"]


def test_an_update_fills_groups_of_equal_rewards_and_leaves_the_others(folder: Path) -> None:
    policy = opened(folder)
    groups = policy.sample([ASK, HINTED], 2, max_tokens=4, seed=3)
    rewards = [[0.0, 0.0], [1.0, 0.0]]
    plain = learned(folder, rewards)
    filled = learned(folder, rewards, zero_variance="zvp", zvp=0.2)
    assert not any(a for row in plain[:2] for a in row) and filled[2:] == plain[2:]
    assert filled[:2] == zvp(0.0, policy.entropies(groups[0]), 0.2, 0.5)
    assert all(a <= 0 for row in filled[:2] for a in row) and any(a < 0 for row in filled[:2] for a in row)
    right = learned(folder, [[1.0, 1.0], [0.0, 0.0]], zero_variance="erpo")
    assert [a for row in right[:2] for a in row] == pytest.approx([1 / math.sqrt(3)] * 8, rel=1e-3)
    assert not any(a for row in right[2:] for a in row)


def test_entropies_are_those_of_the_logits(folder: Path) -> None:
    """Against torch's categorical distribution on the network's own logits."""
    policy = opened(folder)
    (group,) = policy.sample([ASK], 2, max_tokens=4, seed=3)
    for sample, row in zip(group, policy.entropies(group), strict=True):
        ids = torch.tensor([[*sample.prompt, *sample.tokens]])
        logits = policy.body.weights.model(ids).logits[0, len(sample.prompt) - 1 : -1]
        known = torch.distributions.Categorical(logits=logits).entropy()
        assert row == pytest.approx(known.tolist(), abs=1e-4)


def test_a_comparison_is_needed_for_groups_of_equal_rewards() -> None:
    with pytest.raises(UsageError, match=r"zero_variance=zvp .* not for advantage=gae"):
        Training(advantage="gae", zero_variance="zvp")


def test_weights_of_hinted_tokens_are_the_slope_of_the_shaped_ratio() -> None:
    """d/dx rho / (rho + gamma) at x = log pi by autograd, gamma held, as in the published code."""
    plain, hinted = [[-0.5, -3.0], [-1.0]], [[-0.1, -0.2], [-1.5]]
    logs = torch.tensor([-0.5, -3.0, -1.0], requires_grad=True)
    rho = (logs - torch.tensor([-0.1, -0.2, -1.5])).exp()
    gamma = float(torch.quantile(rho.detach(), 0.9))
    (rho / (rho + gamma)).sum().backward()
    found = shaping_weights(plain, hinted)
    assert [a for row in found for a in row] == pytest.approx(logs.grad.tolist(), rel=1e-5)
    assert all(0 < a <= 0.25 for row in found for a in row)
    assert shaping_weights([[-30.0]], [[0.0]])[0][0] < 1e-6  # what the policy would never write


def test_hinted_texts_become_texts_without_the_hint(folder: Path) -> None:
    policy = opened(folder)
    plain, hinted = policy.sample([ASK, HINTED], 2, max_tokens=4, seed=3)
    moved, weights = without_hints(policy, hinted, plain)
    assert [one.prompt for one in moved] == [one.prompt for one in plain]
    assert [one.tokens for one in moved] == [one.tokens for one in hinted]
    assert [list(one.logprobs) for one in moved] == policy.logprobs(moved)
    assert [len(row) for row in weights] == [len(one.tokens) for one in hinted]


def test_an_update_learns_the_question_without_the_hint(folder: Path) -> None:
    policy = opened(folder)
    plain, hinted = policy.sample([ASK, HINTED], 2, max_tokens=4, seed=3)
    groups = GuidedGroups()
    groups.add(policy, [hinted], [[1.0, 1.0]], [plain])
    assert groups.samples == [] and groups.weigh([plain]) is None  # equal rewards are left out
    groups.add(policy, [hinted], [[1.0, 0.0]], [plain])
    weights = groups.weigh([plain])
    assert weights is not None and weights[0] == [1.0] * len(plain[0].tokens) and len(weights) == 4
    best = groups.samples[0][0]
    before = sum(policy.logprobs([best])[0])
    config = Training(lr=0.01)
    Trainer(policy, config).learn([plain, *groups.samples], [[0.0, 0.0], *groups.rewards], weights)
    assert sum(policy.logprobs([best])[0]) > before


def test_hints_come_from_a_column_and_stand_behind_the_input() -> None:
    row = Example("1", {"input": "2 + 2"}, "4", {"input": "2 + 2", "hint": " count "}, "2 + 2")
    assert hint_of(row, "hint") == "count" and hint_of(row, "") == hint_of(row, "other") == ""
    assert with_hint(row, "count").user_text == "2 + 2\nHint: count" and with_hint(row, "count").target == "4"
    assert all_failed([0.0, 0.0]) and not all_failed([0.0, 0.1])
