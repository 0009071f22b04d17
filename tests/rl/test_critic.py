"""The critic of `advantage=gae`: its steps against torch, what it learns, what it changes, and that a resume is exact."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.rl.advantages import gae, whiten  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample  # noqa: E402
from whet.rl.policy_model.critic import FITS, Critic  # noqa: E402
from whet.rl.training import (  # noqa: E402
    MultiTurnTraining,
    Trainer,
    Training,
    explained_variance,
    token_advantages,
    token_rewards,
)
from whet.run import MemoryRun  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
PPO = Training(advantage="gae", lr=1e-2, group=16, max_tokens=3, kl=0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"), sharpness=1.0)


def fresh(folder: Path, rank: int = 2) -> PolicyModel:
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=rank), seed=1)


def values_of(critic: Critic, states: list[Any]) -> list[float]:
    return [value for row in critic.values(states) for value in row]


def test_it_takes_the_steps_of_torch_on_the_squared_error() -> None:
    states = [torch.randn(3, 6, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    returns = [[0.1, 0.5, 1.0], [0.0, 0.0, 0.2], [1.0, 1.0, 1.0], [-0.5, 0.0, 0.5]]
    critic = Critic(6)
    losses = [critic.fit(states, returns, 0.01) for _ in range(3)]
    flat, goal = torch.cat(states), torch.tensor(returns).flatten()
    inputs = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    head = torch.nn.Linear(6, 1)
    torch.nn.init.zeros_(head.weight), torch.nn.init.zeros_(head.bias)
    adam = torch.optim.Adam(head.parameters(), lr=0.01)
    expected = []
    for _ in range(3 * FITS):
        loss = 0.5 * (head(inputs / 6**0.5)[:, 0] - goal).square().mean()
        expected.append(float(loss.detach()))
        adam.zero_grad(), loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        adam.step()
    assert losses == pytest.approx(expected[::FITS], rel=1e-4)
    assert values_of(critic, states) == pytest.approx(head(inputs / 6**0.5)[:, 0].tolist(), abs=1e-4)


def test_it_learns_to_foretell_what_a_state_shows_and_nothing_that_it_does_not(folder: Path) -> None:
    policy = fresh(folder)
    batches = [policy.sample([ASK], 16, max_tokens=4, seed=n)[0] for n in range(60)]
    coin = torch.Generator().manual_seed(0)
    sides = policy.body.weights.model.get_input_embeddings().weight[:, 0] > 0  # what a state shows of a word

    def learned(shown: bool) -> float:
        critic, found = Critic(32), []
        for samples in batches:
            rest = [row[1:2] for row in policy.states(samples)]  # after the first word
            tossed = torch.rand(len(samples), generator=coin).tolist()
            goal = [[float(sides[s.tokens[0]])] for s in samples] if shown else [[value] for value in tossed]
            goal = [row[: len(state)] for row, state in zip(goal, rest, strict=True)]
            found.append(explained_variance(critic.values(rest), goal))
            critic.fit(rest, goal, 0.03)
        return sum(found[-10:]) / 10

    assert learned(shown=True) > 0.3
    assert learned(shown=False) < 0.1


def test_a_state_is_what_the_frozen_model_shows_before_the_token_and_ignores_training(folder: Path) -> None:
    policy = fresh(folder)
    samples = policy.sample([ASK, [Message("user", "say it")]], 2, max_tokens=5, seed=3)
    flat = [s for group in samples for s in group]
    before = policy.states(flat)
    for sample, rows in zip(flat, before, strict=True):
        ids = torch.tensor([[*sample.prompt, *sample.tokens]])
        with torch.no_grad():
            out = policy.body.weights.model(input_ids=ids, output_hidden_states=True)
        expected = out.hidden_states[-1][0, len(sample.prompt) - 1 : -1]
        assert torch.allclose(rows, expected, atol=1e-5)
    policy.update(flat, [1.0, -1.0, 1.0, -1.0], PPO.update())
    assert all(torch.equal(a, b) for a, b in zip(before, policy.states(flat), strict=True))


def test_advantages_are_gae_of_rewards_less_divergence_whitened_over_the_batch(folder: Path) -> None:
    policy = fresh(folder)
    for number in range(3):  # away from the reference, and a critic that is not zero
        group = policy.sample([ASK], 6, max_tokens=4, seed=number)
        Trainer(policy, PPO).learn(group, [[float(i) for i in range(6)]])
    (samples,) = policy.sample([ASK], 3, max_tokens=4, seed=9)
    config = Training(advantage="gae", kl=0.5, trace=0.8, critic_lr=0.0)
    values = policy.with_critic().values(policy.states(samples))
    rewards, references = [1.0, 0.0, 0.4], policy.reference_logprobs(samples)
    rows = []
    for sample, reward, value, reference in zip(samples, rewards, values, references, strict=True):
        earned = [-0.5 * (old - ref) for old, ref in zip(sample.logprobs, reference, strict=True)]
        earned[-1] += reward
        rows.append(gae(earned, value, lam=0.8)[0])
    found, figures = token_advantages(config, policy, samples, rewards)
    assert [a for row in found for a in row] == pytest.approx([a for row in whiten(rows) for a in row])
    assert figures["kl"] != 0.0 and any(value for row in values for value in row)
    assert config.update().kl == 0.0, "the divergence is in the reward and not in the loss as well"


def test_rewards_of_turns_stand_at_their_last_own_token() -> None:
    sample = Sample("", (1,), (5, 6, 7, 8, 9), (0.0,) * 5, (True, True, False, True, True), True)
    by_turn = MultiTurnTraining(advantage="gae", credit="turn")
    assert token_rewards(by_turn, sample, [0.25, 1.0]) == [0.0, 0.25, 0.0, 1.0]
    assert token_rewards(by_turn, sample, [0.25, 1.0, 0.5]) == [0.0, 0.25, 0.0, 1.5]
    assert token_rewards(Training(advantage="gae"), sample, 0.7) == [0.0, 0.0, 0.0, 0.7]


@pytest.mark.parametrize("rank", [2, pytest.param(0, marks=pytest.mark.long)])
def test_a_resumed_training_with_a_critic_is_the_uninterrupted_one_bit_for_bit(
    folder: Path, rank: int
) -> None:
    def train(policy: PolicyModel, numbers: range) -> None:
        trainer = Trainer(policy, PPO)
        for number in numbers:
            group = policy.sample([ASK], 6, max_tokens=4, seed=number)
            trainer.learn(group, [[float(i == number) for i in range(6)]])

    straight, stopped, resumed = fresh(folder, rank), fresh(folder, rank), fresh(folder, rank)
    train(straight, range(6))
    train(stopped, range(3))
    train(resumed, range(5, 6))  # what a process did before it loads is forgotten
    resumed.load(stopped.save())
    train(resumed, range(3, 6))
    assert resumed.save() == straight.save()
    assert resumed.critic is not None and resumed.critic.steps == 6 * FITS


@pytest.mark.long
def test_the_critic_makes_a_baseline_so_that_one_text_of_a_question_can_be_learned_from(folder: Path) -> None:
    """The mechanism that a comparison in the group has not: with one text each, GRPO's advantage is the reward itself."""
    policy = fresh(folder)
    trainer = Trainer(policy, Training(advantage="gae", group=1, max_tokens=3, lr=0.0, trace=1.0))
    assert trainer.config.smallest_group == 1

    async def mean_advantages() -> list[float]:
        seen: list[float] = []
        for number in range(60):
            run = MemoryRun(seed=number)
            groups = await trainer.sample(run, [ASK] * 8, n=1)
            states = policy.states([g[0] for g in groups])
            values = [row[0] for row in policy.with_critic().values(states)]
            seen.append(sum(5.0 - v for v in values) / 8)
            trainer.learn(groups, [[5.0 + number % 2 * 0.1] for _ in groups])
        return seen

    gaps = asyncio.run(mean_advantages())
    assert gaps[0] == 5.0 and abs(gaps[-1]) < 2.0, "the value of the first state goes to the mean reward"
